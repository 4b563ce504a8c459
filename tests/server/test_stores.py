#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several stores at once: two files and one in memory."""

import http.client
import json
import os
import signal
import socket

from support import case, equal, main, until

THREE = """\
store: sqlite:box.db
stores:
  audit: {url: 'sqlite:audit.db', max_attempts: 2, backoff: [1ms]}
  scratch: {url: memory}
channels:
  orders:
    handlers:
      log:
        exec: [/bin/sh, -c, 'echo "$CE_ID" >> ${DIR}/log.out']
  trail:
    store: audit
    handlers:
      copy:
        exec: [/bin/sh, -c, 'echo "$CE_ID" >> ${DIR}/copy.out; test -e ${DIR}/good']
  pings:
    store: scratch
    handlers:
      ping:
        exec: [/bin/sh, -c, 'echo "$CE_ID" >> ${DIR}/ping.out']
"""

TWO = """\
stores:
  one: {url: 'sqlite:one.db'}
  two: {url: 'sqlite:two.db'}
channels:
  first: {store: one}
  second: {store: two}
"""


class Connection(http.client.HTTPConnection):
    """HTTP over the socket beside one of the files."""

    def __init__(self, place, name):
        super().__init__("postern", timeout=60)
        self.path = place.file(name)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None, headers=None):
        self.request(method, path, body, headers or {})
        response = self.getresponse()
        return response.status, json.loads(response.read())


def at(place, name):
    return "sqlite:" + os.path.realpath(place.file(name))


def listing(place, *args):
    return place.ok("list", "--json", *args).json()


def fill(place):
    """Messages with the same numbers in both stores, and some with the same
    id."""
    for channel in ("first", "second"):
        for number in range(3):
            place.send(f"{channel}-{number}", channel=channel)
        place.send("same", channel=channel)


def through_all(place, read):
    """Checks the listing page by page, for every page size."""
    whole = [(row["store"], row["message_id"]) for row in listing(place)]
    equal([store for store, _ in whole], ["one"] * 4 + ["two"] * 4)
    for limit in range(1, 10):
        pages, cursor = [], None
        while True:
            more = ["--cursor", cursor] if cursor else []
            rows, cursor = read("--limit", str(limit), *more)
            assert rows, f"an empty page at limit {limit}"
            pages += rows
            if not cursor:
                break
        equal([(r["store"], r["message_id"]) for r in pages], whole, limit)


def by_command(place):
    def read(*args):
        result = place.ok("list", "--json", *args)
        cursor = json.loads(result.err)["cursor"] if result.err else None
        return result.json(), cursor

    return read


@case("a server delivers messages of each of its stores")
def _(place):
    place.configure(THREE)
    place.write("good", "")
    server = place.serve()
    equal(place.send("a").out, "accepted\n")
    equal(place.send("a", channel="trail").out, "accepted\n")
    equal(place.send("a", channel="pings").out, "accepted\n")
    equal(place.send("a", channel="pings").out, "duplicate\n")
    for name in ("log.out", "copy.out", "ping.out"):
        until(lambda: place.read(name) == "a\n")
    until(lambda: {row["state"] for row in listing(place)} == {"done"})
    equal([(row["store"], row["seq"], row["handler"]) for row in listing(place)],
          [("default", 1, "log"), ("audit", 1, "copy"), ("scratch", 1, "ping")])
    stats = place.ok("stats", "--json").json()
    equal(stats["stores"], [
        {"name": "default", "kind": "sqlite", "url": at(place, "box.db")},
        {"name": "audit", "kind": "sqlite", "url": at(place, "audit.db")},
        {"name": "scratch", "kind": "memory", "url": "memory:"},
    ])
    equal([(r["store"], r["key"], r["done"]) for r in stats["handlers"]],
          [("default", "log", 1), ("audit", "copy", 1), ("scratch", "ping", 1)])
    equal([(r["store"], r["name"]) for r in stats["channels"]],
          [("default", "orders"), ("audit", "trail"), ("scratch", "pings")])
    assert "STORE" in place.ok("stats").out
    assert "a server is running and healthy" in place.ok("check").out
    equal(server.stop(), 0)
    # Messages in files are kept, those in memory are lost.
    equal([row["store"] for row in listing(place)], ["default", "audit"])
    place.fails(4, "list", "--in", "scratch", says="in the memory of a server")
    place.fails(4, "send", "pings", says="in the memory of a server")


@case("each store has its own settings, and log lines name the store")
def _(place):
    place.configure(THREE)
    server = place.serve()
    equal(place.send("a", channel="trail").out, "accepted\n")
    until(lambda: place.state("a", "copy") == "poisoned")
    row = place.delivery("a", "copy")
    equal((row["failures"], row["max_attempts"]), (2, 2))
    assert "2 of 2 attempts used up" in place.ok("show", "a").out
    lines = [json.loads(line) for line in server.stderr().splitlines()]
    poisoned = [line for line in lines if line["message"] == "delivery poisoned"]
    equal([line["store"] for line in poisoned], ["audit"])
    opened = [line for line in lines if line["message"] == "store opened"]
    equal([(line["store"], line["url"]) for line in opened],
          [("default", "sqlite:box.db"), ("audit", "sqlite:audit.db"),
           ("scratch", "memory:")])
    equal([line.get("socket") for line in opened],
          [place.file("box.db.sock"), place.file("audit.db.sock"), None])


@case("a command finds the server from any of its files, and uses that store")
def _(place):
    place.configure(THREE)
    place.write("good", "")
    place.serve()
    for channel in ("orders", "trail", "pings"):
        place.send(channel, channel=channel)
    os.unlink(place.file("postern.yaml"))
    for name, channel in (("box.db", "orders"), ("audit.db", "trail")):
        url = f"sqlite:{name}"
        rows = listing(place, "--store", url)
        equal([row["message_id"] for row in rows], [channel])
        equal(place.send("b", "", "--store", url, channel=channel).out,
              "accepted\n")
        place.fails(3, "show", "pings", "--store", url, says="no message")
        place.fails(3, "send", "pings", "--store", url, says="no channel")
    place.fails(3, "retry", "--store", "sqlite:audit.db", "--state", "pending",
                "--dry-run", "--channel", "orders", says="no channel 'orders'")


@case("a command refuses a server that lacks one of its stores")
def _(place):
    place.configure(TWO)
    place.ok("migrate")
    place.serve("--store", "sqlite:one.db", "-c", place.write("one.yaml", ""))
    place.fails(4, "list", says="does not have this store")
    equal(listing(place, "--in", "one"), [])
    place.fails(4, "list", "--in", "two", says="does not have this store")


@case("equal numbers in two stores are distinguished, with a server")
def _(place):
    place.configure(TWO)
    place.serve()
    fill(place)
    check_distinguished(place)
    http = Connection(place, "two.db.sock")
    equal(http.ask("GET", "/v1/messages/1?store=two")[1]["id"], "second-0")
    equal(http.ask("GET", "/v1/messages/1?store=one")[1]["id"], "first-0")
    status, problem = http.ask("GET", "/v1/messages/1")
    equal(status, 409)
    assert "?store=" in problem["detail"], problem
    equal(http.ask("GET", "/v1/messages/99")[0], 404)
    status, problem = http.ask("GET", "/v1/messages/1?store=tow")
    equal(status, 404)
    assert "did you mean 'two'" in problem["detail"], problem
    equal(http.ask("POST", "/v1/deliveries/2//discard")[0], 409)
    status, response = http.ask("POST", "/v1/deliveries/2//discard?store=two")
    equal((status, response["store"]), (200, "two"))
    rows = listing(place, "--state", "discarded")
    equal([(row["store"], row["seq"]) for row in rows], [("two", 2)])
    equal(http.ask("GET", "/v1/stats?store=one")[1]["stores"],
          [{"name": "one", "kind": "sqlite", "url": at(place, "one.db")}])
    items = http.ask("GET", "/v1/deliveries?store=one&limit=2")[1]
    equal([row["store"] for row in items["items"]], ["one", "one"])
    equal(http.ask("GET", "/v1/deliveries?cursor=nowhere:1")[0], 400)
    equal(http.ask("GET", "/v1/deliveries?cursor=junk")[0], 400)
    receipt = http.ask("POST", "/v1/channels/second/messages", b"x",
                       {"X-Message-Id": "new"})[1]
    equal((receipt["store"], receipt["seq"]), ("two", 5))


def check_distinguished(place):
    result = place.fails(2, "show", "#1", says="#1 (one, two): choose one with --in")
    assert "?store=" not in result.err, result
    equal(place.ok("show", "#1", "--in", "two", "--json").json()["id"],
          "second-0")
    shown = place.ok("show", "first-0")
    assert "store          one" in shown.out, shown
    result = place.fails(2, "show", "same", says="--in two --channel second")
    assert "choose one with --in, --channel or --source" in result.err, result
    equal(place.ok("show", "same", "--in", "two", "--json").json()["store"],
          "two")
    equal(place.ok("show", "same", "--channel", "first", "--body").out, "body")


@case("equal numbers in two stores are distinguished, without a server")
def _(place):
    place.configure(TWO)
    place.ok("migrate")
    fill(place)
    check_distinguished(place)
    place.ok("discard", "second-1")
    rows = listing(place, "--state", "discarded")
    equal([(row["store"], row["seq"]) for row in rows], [("two", 2)])


@case("a listing continues in the next store, without a server")
def _(place):
    place.configure(TWO)
    place.ok("migrate")
    fill(place)
    through_all(place, by_command(place))
    assert "STORE" in place.ok("list").out


@case("a listing continues in the next store, with a server")
def _(place):
    place.configure(TWO)
    place.serve()
    fill(place)
    through_all(place, by_command(place))


@case("the limit of a bulk edit is one for all stores")
def _(place):
    place.configure(TWO)
    place.ok("migrate")
    fill(place)
    result = place.ok("discard", "--state", "parked", "--limit", "6", "--yes")
    equal(result.out, "discarded 6\n")
    stores = [row["store"] for row in listing(place, "--state", "parked")]
    equal(stores, ["two", "two"])
    result = place.ok("discard", "--in", "one", "--state", "parked", "--dry-run")
    equal(result.out, "would discard 0 deliveries\n")
    result = place.ok("discard", "--in", "two", "--state", "parked", "--yes")
    equal(result.out, "discarded 2\n")


@case("process runs one store after the other")
def _(place):
    place.configure(THREE)
    place.write("good", "")
    place.ok("migrate")
    for number in range(3):
        place.send(f"{number}", channel="orders")
        place.send(f"{number}", channel="trail")
    equal(place.process("--max", "4"), 4)
    equal(place.read("copy.out"), "0\n")
    equal(place.process("--in", "default"), 0)
    equal(place.process(), 2)


@case("send opens the store of its channel and no other")
def _(place):
    place.configure(TWO)
    equal(place.send("a", channel="second").word, "accepted")
    assert not os.path.exists(place.file("one.db"))
    holder = place.hold("sqlite:" + place.file("one.db"))
    equal(place.send("b", channel="second").word, "accepted")
    place.fails(4, "process", "--command-timeout", "10ms", says="store 'one': ")
    equal(place.process("--in", "two"), 0)
    equal(len(listing(place, "--in", "two")), 2)
    holder.stop(signal.SIGKILL)


@case("migrate and check go through all stores")
def _(place):
    place.configure(TWO)
    notes = place.ok("check", "--json").json()["findings"]
    equal([note["store"] for note in notes], ["one", "two"])
    place.fails(4, "list", says="store 'one': ")
    result = place.ok("migrate", "--json").json()
    equal(result["stores"], [
        {"name": "one", "url": "sqlite:one.db"},
        {"name": "two", "url": "sqlite:two.db"},
    ])
    equal(place.ok("check", "--json").json()["findings"], [])
    assert "  two:\n    url: " in place.ok("check", "--print").out


@case("deliveries of a handler that moved to another store are orphaned")
def _(place):
    place.configure(THREE)
    place.ok("migrate")
    equal(place.send("a", channel="trail").out, "accepted\n")
    place.ok("check")
    place.configure(THREE.replace("store: audit\n", "store: default\n"))
    result = place.run("check")
    equal(result.code, 1)
    assert "store audit: no handler is configured for 'copy'" in result.out


@case("a store that cannot be opened is named")
def _(place):
    place.configure(TWO)
    place.write("two.db", "this is no database, but long enough to be one" * 99)
    server = place.serve(ready=False)
    equal(server.process.wait(60), 4)
    assert "store 'two': " in server.stderr(), server.stderr()
    place.fails(4, "list", says="store 'two': ")
    findings = place.run("check", "--json").json()["findings"]
    equal([f["store"] for f in findings if f["level"] == "error"], ["two"])


@case("pause applies to a handler in every store that has it")
def _(place):
    place.configure(THREE)
    place.ok("migrate")
    place.send("a")
    equal(place.ok("pause", "log", "--json").json(),
          {"handler": "log", "paused": True, "stores": ["default"]})
    place.fails(3, "pause", "log", "--in", "audit", says="log")
    equal(place.process(), 0)
    place.ok("resume", "log")
    equal(place.process(), 1)


@case("a server with an old configuration is reported")
def _(place):
    before = "store: sqlite:x.db\nchannels:\n  a: {}\n"
    after = (
        "store: sqlite:x.db\nstores: {q: {url: 'sqlite:q.db'}}\n"
        "channels:\n  a: {}\n  b: {store: q}\n  c: {}\n"
    )
    place.configure(before)
    server = place.serve()
    result = place.ok("check")
    assert "a server is running and healthy\n" in result.out, result
    place.configure(after)
    result = place.fails(4, "send", "c", "--id", "1", "--body", "x",
                         says="no channel 'c': the server was started with another")
    assert "did you mean" not in result.err, result
    for words in (["send", "b", "--id", "1", "--body", "x"], ["list", "--in", "q"],
                  ["stats"], ["retry", "--in", "q", "--state", "poisoned", "--yes"]):
        place.fails(4, *words, says="does not have this store")
    assert not os.path.exists(place.file("q.db"))
    for words in (["check"], ["check", "--in", "q"]):
        result = place.ok(*words)
        assert "another configuration: it lacks the store 'q'; restart it" in result.out, result
    # A missing file is not the server's store, even under the same name.
    place.configure("store: sqlite:y.db\nstores: {old: {url: 'sqlite:x.db'}}\n"
                    "channels: {a: {}}\n")
    place.fails(4, "send", "a", "--id", "1", "--body", "x", says="does not have this store")
    server.stop()
    place.configure(after)
    place.serve()
    equal(place.send("1", channel="b").word, "accepted")
    assert "a server is running and healthy\n" in place.ok("check").out
    place.configure(after.replace("  c: {}\n", ""))
    assert "it still has the channel 'c'" in place.ok("check").out
    place.configure(after.replace("c: {}", "c: {handlers: {h: {sql: select 1}}}"))
    assert "it lacks the handler 'h'" in place.ok("check").out
    place.configure(after.replace("b: {store: q}", "b: {}"))
    assert "has in another store the channel 'b'" in place.ok("check").out


@case("a memory store cannot be used without its server")
def _(place):
    place.configure(THREE)
    place.ok("migrate")
    place.fails(4, "send", "pings", "--id", "1", "--body", "x", says="no server is running")
    result = place.fails(2, "process", "--in", "scratch", says="memory of a server")
    assert "sqlite:FILE" not in result.err, result


@case("an unknown store name is reported with the closest name")
def _(place):
    place.configure(TWO)
    place.fails(2, "list", "--in", "", says="--in")
    place.fails(2, "list", "--in", "tow", says="did you mean 'two'?")
    place.fails(2, "list", "--in", "nowhere",
                says="no store 'nowhere'; the configuration has: one, two")
    place.fails(2, "send", "first", "--in", "one",
                says="--in cannot be used with send: the channel decides the store")
    assert "--in" not in place.ok("send", "--help").out
    place.fails(2, "list", "--store", "sqlite:x.db",
                says="none is named 'default'")


@case("a stop gives all stores the same grace period")
def _(place):
    place.configure(
        TWO.replace("{store: one}", "{store: one, handlers: {a: &}}")
        .replace("{store: two}", "{store: two, handlers: {b: &}}")
        .replace("&", "{exec: [/bin/sh, -c, 'echo x >> ${DIR}/begun; sleep 600']}")
        + "shutdown_grace: 500ms\n"
    )
    server = place.serve()
    place.send("a", channel="first")
    place.send("b", channel="second")
    until(lambda: place.read("begun") == "x\nx\n")
    equal(server.stop(), 0)
    rows = listing(place)
    equal({(row["state"], row["failures"]) for row in rows}, {("pending", 0)})
    assert not os.path.exists(place.file("one.db.sock"))
    assert not os.path.exists(place.file("two.db.sock"))


main()
