#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several stores of which one is unavailable: the others continue, and the
result of each is reported."""

import http.client
import json
import os
import resource
import signal
import socket

from support import POSTERN, case, equal, main, until

# Two files; messages to `second` grow the log of its store.
TWO = """\
stores:
  one: {url: 'sqlite:one.db'}
  two: {url: 'sqlite:two.db'}
defaults:
  max_attempts: 1
channels:
  first:
    store: one
    handlers:
      a: {exec: [/bin/sh, -c, 'echo "$CE_ID" >> ${DIR}/a.out; exit 65']}
  second:
    store: two
    handlers:
      b: {exec: [/bin/sh, -c, 'echo "$CE_ID" >> ${DIR}/b.out; exit 65']}
"""

ROOM = 600_000


class Connection(http.client.HTTPConnection):
    """HTTP over the socket beside the first store."""

    def __init__(self, place):
        super().__init__("postern", timeout=60)
        self.path = place.file("one.db.sock")

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)

    def ask(self, method, path, data=None):
        body = None if data is None else json.dumps(data)
        headers = {"Content-Type": "application/json"} if body else {}
        self.request(method, path, body, headers)
        response = self.getresponse()
        return response.status, json.loads(response.read())


def poisoned(place, *args):
    rows = place.ok("list", "--json", "--state", "poisoned", *args).json()
    return [(row["store"], row["message_id"]) for row in rows]


def fill(place):
    """Two poisoned deliveries in store one, twenty in two."""
    for number in range(2):
        equal(place.send(f"a{number}", channel="first").out, "accepted\n")
    for number in range(20):
        equal(place.send(f"b{number}", "x" * 50_000, channel="second").out,
              "accepted\n")
    until(lambda: len(poisoned(place)) == 22)


def fill_disk(place, server):
    """Store two cannot grow any more, as if it were on a full disk of its
    own."""
    assert os.stat(place.file("two.db-wal")).st_size > ROOM
    assert os.stat(place.file("one.db-wal")).st_size < ROOM / 2
    limits = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (ROOM, limits[1]))
    return limits


def serve_with_full_disk(place):
    place.configure(TWO)
    server = place.serve()
    fill(place)
    return server, fill_disk(place, server)


def by_store(response):
    return {row["store"]: row for row in response["stores"]}


@case("a bulk edit in which a store fails is made once and reported")
def _(place):
    serve_with_full_disk(place)
    words = ["retry", "--state", "poisoned", "--yes"]
    result = place.fails(4, *words, says="retry: store 'two': ")
    equal(result.out, "retried 2\n")
    assert "store 'one'" not in result.err, result
    # A repeated edit would have run them again by now.
    until(lambda: len(poisoned(place, "--in", "one")) == 2)
    equal(sorted(place.read("a.out").split()), ["a0", "a0", "a1", "a1"])
    equal(len(place.read("b.out").split()), 20)
    # The same with an edit that lists each store.
    response = place.run("discard", "--state", "poisoned", "--yes", "--json")
    equal(response.code, 4)
    rows = by_store(response.json())
    equal(response.json()["count"], 2)
    equal((rows["one"]["count"], rows["two"]["count"]), (2, 0))
    equal(rows["two"]["code"], "unavailable")
    assert "error" not in rows["one"], rows


@case("a bulk edit fails only if nothing was changed")
def _(place):
    server, limits = serve_with_full_disk(place)
    http = Connection(place)
    edit = {"filter": {"state": "poisoned"}, "limit": 1000}
    status, response = http.ask("POST", "/v1/deliveries/discard", edit)
    equal((status, response["count"]), (200, 2))
    # The remaining deliveries are in the failing store.
    status, response = http.ask("POST", "/v1/deliveries/discard", edit)
    equal((status, response["status"], response["count"]), (503, 503, 0))
    assert response["detail"].startswith("store 'two': "), response
    equal([row["store"] for row in response["stores"]], ["one", "two"])
    result = place.fails(4, "discard", "--state", "poisoned", "--yes",
                         says="discard: store 'two': ")
    equal(result.out, "")
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)
    status, response = http.ask("POST", "/v1/deliveries/discard", edit)
    equal((status, response["count"]), (200, 20))
    equal(response["stores"], [{"store": "one", "count": 0, "total": 0},
                             {"store": "two", "count": 20, "total": 20}])


@case("a store of another configuration is not changed, whatever its name")
def _(place):
    place.configure(TWO)
    place.serve()
    fill(place)
    # The second store is another one in this configuration, the first is
    # shared.
    for url in ("sqlite:staging.db", "memory:"):
        mine = place.write("mine.yaml", TWO.replace("sqlite:two.db", url))
        for words in (["discard", "--state", "poisoned", "--handler", "b", "--yes"],
                      ["list", "--in", "two"],
                      ["send", "second", "--id", "new"]):
            place.fails(4, *words, "-c", mine, says="does not have this store")
    equal(len(poisoned(place, "--in", "two")), 20)
    assert not os.path.exists(place.file("staging.db"))


# Done messages expire at once; their ids, too.
SHORT = TWO.replace(
    "  max_attempts: 1\n",
    "  max_attempts: 1\n  retention: {payload: 1ms, dedupe: 1ms}\n",
).replace("exit 65", "exit 0")


def sent(place, first, second):
    for number in range(first):
        equal(place.send(f"a{number}", channel="first").out, "accepted\n")
    for number in range(second):
        equal(place.send(f"b{number}", "x" * 50_000, channel="second").out,
              "accepted\n")


def done(place):
    rows = place.ok("list", "--json", "--state", "done", "--limit", "1000").json()
    return len(rows)


@case("a cleanup goes through all stores of a server, and counts each")
def _(place):
    place.configure(SHORT)
    place.serve()
    sent(place, 3, 2)
    until(lambda: done(place) == 5)
    status, response = Connection(place).ask("POST", "/v1/cleanup")
    equal(status, 200)
    equal((response["messages"], response["keys"]), (5, 5))
    equal([(row["store"], row["messages"], row["keys"], row["complete"])
           for row in response["stores"]], [("one", 3, 3, True), ("two", 2, 2, True)])


# The store that will fail is first in the configuration.
ONE = "  one: {url: 'sqlite:one.db'}\n"
BACKWARD = SHORT.replace(ONE, "").replace("defaults:\n", ONE + "defaults:\n")


@case("a cleanup in which a store fails cleans the others, with a server")
def _(place):
    place.configure(BACKWARD)
    server = place.serve()
    sent(place, 2, 20)
    until(lambda: done(place) == 22)
    fill_disk(place, server)
    result = place.fails(4, "cleanup", says="store 'two': ")
    equal(result.out, "one: removed 2 messages and 2 remembered ids\n")
    # The working store has nothing left to remove.
    status, response = Connection(place).ask("POST", "/v1/cleanup")
    equal((status, response["messages"]), (503, 0))
    assert response["detail"].startswith("store 'two': "), response
    rows = by_store(response)
    equal([row["store"] for row in response["stores"]], ["two", "one"])
    equal((rows["one"]["complete"], rows["two"]["complete"]), (True, False))


@case("a cleanup in which a store fails cleans the others, without a server")
def _(place):
    place.configure(BACKWARD)
    sent(place, 2, 1)
    equal(place.process(), 3)
    place.write("two.db", "this is no database, but long enough to be one" * 99)
    result = place.run("cleanup", "--json")
    equal(result.code, 4)
    assert "store 'two': " in result.err, result
    response = result.json()
    equal((response["messages"], response["keys"]), (2, 2))
    rows = by_store(response)
    equal(rows["one"]["messages"], 2)
    assert rows["two"]["error"], rows


@case("process continues after a store that fails, and names it")
def _(place):
    place.configure(BACKWARD)
    sent(place, 2, 1)
    place.write("two.db", "this is no database, but long enough to be one" * 99)
    result = place.fails(4, "process", says="store 'two': ")
    equal(result.out, "processed 2\n")
    result = place.run("process", "--json")
    printed = result.json()
    equal((result.code, printed["processed"], printed["failed"]), (4, 0, ["two"]))
    equal(place.fails(4, "process", "--in", "two", says="two.db").out, "")


def blocks(pid, number):
    """Whether a process has blocked a signal."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("SigBlk:"):
                return int(line.split()[1], 16) & (1 << (number - 1))
    return False


@case("a server that waits for a store at its start stops at once")
def _(place):
    place.configure(TWO.replace("exit 65", "exec sleep 600"))
    place.ok("migrate")  # a server may be stopped before it creates a file
    equal(place.send("a", channel="second").out, "accepted\n")
    # A command owns the store, so the server waits for its end.
    worker = place.start([POSTERN, "process", "--in", "two"])
    until(lambda: place.read("b.out") == "a\n")
    for number in (signal.SIGTERM, signal.SIGINT):
        server = place.serve("--command-timeout", "100s", ready=False)
        until(lambda: blocks(server.pid, number))
        equal(server.stop(number), 0)
        messages = [json.loads(line)["message"]
                    for line in server.stderr().splitlines()]
        equal(messages, ["stopping", "stopped"])
    worker.stop(signal.SIGKILL)
    # The stopped server has released its other store.
    equal(place.process("--in", "one"), 0)


@case("a file that was removed under a server is not created again")
def _(place):
    place.configure(TWO)
    server = place.serve()
    equal(place.send("a", channel="second").out, "accepted\n")
    until(lambda: place.state("a", "b") == "poisoned")
    os.unlink(place.file("two.db"))
    place.fails(4, "send", "second", "--id", "b", says="file was removed")
    place.fails(4, "stats", says="file was removed")
    equal(place.send("a", channel="first").out, "accepted\n")
    place.fails(4, "send", "second", "--id", "b", "--store", "sqlite:two.db", "-c",
                place.write("alone.yaml", "channels: {second: {}}\n"),
                says="two.db-wal' exists but the database is missing")
    server.stop(signal.SIGKILL)
    assert not os.path.exists(place.file("two.db"))
    server = place.serve(ready=False)
    equal(server.process.wait(60), 4)
    assert "store 'two': " in server.stderr(), server.stderr()
    assert "restore it" in server.stderr(), server.stderr()


@case("one file under two names is refused, whether it exists or not")
def _(place):
    place.configure(TWO)
    os.mkdir(place.file("below"))
    os.symlink("below/../two.db", place.file("link.db"))
    os.symlink(place.file("link.db"), place.file("below/chain.db"))
    names = ["link.db", "below/chain.db", "below/../two.db"]

    def refused(name):
        place.configure(TWO.replace("sqlite:one.db", f"sqlite:{name}"))
        result = place.fails(2, "check", says="are in the same file, 'two.db'")
        assert "postern.yaml:3:14: " in result.err, result

    for name in names:
        refused(name)
    place.configure(TWO)
    place.ok("migrate")
    os.link(place.file("two.db"), place.file("hard.db"))
    for name in names + ["hard.db"]:
        refused(name)
    # A link to a missing file, or to itself, is another file.
    os.symlink("gone/two.db", place.file("nowhere.db"))
    os.symlink("self.db", place.file("self.db"))
    for name in ("nowhere.db", "self.db", "below/two.db"):
        place.configure(TWO.replace("sqlite:one.db", f"sqlite:{name}"))
        assert "same file" not in place.run("check").err


@case("a server is ready only if all of its stores are")
def _(place):
    server, limits = serve_with_full_disk(place)
    equal(Connection(place).ask("GET", "/readyz")[0], 200)
    place.fails(4, "send", "second", "--id", "new", says="two.db")

    def unready():
        status, response = Connection(place).ask("GET", "/readyz")
        return status == 503 and response["detail"].startswith("store 'two': ")

    until(unready)
    equal(place.run("check").code, 5)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)
    equal(place.send("new", channel="second").out, "accepted\n")
    until(lambda: Connection(place).ask("GET", "/readyz")[0] == 200)


# One program at a time, which never ends by itself.
LONG = TWO.replace("exit 65", "exec sleep 600").replace(
    "  max_attempts: 1\n", "  max_attempts: 1\n  concurrency: 1\n"
) + "shutdown_grace: 500s\n"


@case("a second signal ends running handlers in every store")
def _(place):
    place.configure(LONG)
    server = place.serve()
    equal(place.send("b", channel="second").out, "accepted\n")
    until(lambda: place.read("b.out") == "b\n")
    os.kill(server.pid, signal.SIGTERM)
    until(lambda: '"stopping"' in server.stderr())
    equal(server.stop(), 0)
    row = place.delivery("b", "b")
    equal((row["state"], row["failures"]), ("pending", 0))


@case("all stores start to stop together, whatever runs in the first")
def _(place):
    place.configure(LONG)
    server = place.serve()
    for message_id, channel in (("a", "first"), ("b", "second"), ("c", "second")):
        equal(place.send(message_id, channel=channel).out, "accepted\n")
    until(lambda: place.read("a.out") == "a\n" and place.read("b.out") == "b\n")
    until(lambda: place.state("c", "b") == "leased")
    os.kill(server.pid, signal.SIGTERM)
    # The lease that waits for the running program is returned at once.
    until(lambda: place.state("c", "b") == "pending")
    equal(place.state("a", "a"), "leased")
    equal(server.stop(), 0)


@case("a handler is paused in every working store, and failures are reported")
def _(place):
    # Both stores know both keys after their channels were swapped.
    place.configure(TWO.replace("store: one", "store: x").replace(
        "store: two", "store: one").replace("store: x", "store: two"))
    place.serve().stop()
    serve_with_full_disk(place)
    result = place.fails(4, "pause", "a", says="pause: store 'two': ")
    equal(result.out, "paused a\n")
    handlers = place.ok("stats", "--json").json()["handlers"]
    equal([(r["store"], r["paused"]) for r in handlers if r["key"] == "a"],
          [("one", True), ("two", False)])
    result = place.fails(4, "pause", "a", "--in", "two", says="two.db")
    equal(result.out, "")
    status, response = Connection(place).ask("POST", "/v1/handlers/a/pause")
    equal((status, response["stores"], response["failed"][0]["store"]),
          (200, ["one"], "two"))


@case("the error of an edit names the store")
def _(place):
    serve_with_full_disk(place)
    place.fails(4, "retry", "b7", says="retry: store 'two': ")


main()
