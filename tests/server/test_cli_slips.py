#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mistakes of users, and their errors: the sentence names the object and the
flag to use, before anything is opened or changed."""

import json
import os
import resource
import sqlite3

from support import CONFIG, case, equal, main, until

# A store that cannot be opened.
NOWHERE = CONFIG.replace("sqlite:box.db", "sqlite:/nonexistent/box.db")

# Every message is poisoned by its first attempt.
BAD = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      bad:
        exec: [/bin/sh, -c, 'echo "no way" >&2; exit 65']
"""


def both(name, text=CONFIG):
    """Registers a case twice: alone, and beside a server."""

    def register(function):
        def alone(place):
            place.configure(text)
            place.ok("init")
            function(place)

        def served(place):
            place.configure(text)
            place.serve()
            function(place)

        case(f"{name}, without a server")(alone)
        case(f"{name}, beside a server")(served)
        return function

    return register


@case("an invalid filter is refused before the store is opened")
def _(place):
    place.configure(NOWHERE)
    place.fails(4, "list")
    for words, says in (
        (("list", "--state", "posioned"), "did you mean 'poisoned'?"),
        (("list", "--state", "?"), "unknown state '?'"),
        (("list", "--limit", "-1"), "--limit: '-1' is not a number from 1 to 10000"),
        (("list", "--limit", "10001"), "--limit: '10001' is not a number"),
        (("list", "--since", "noon"), "--since: 'noon' is neither a time"),
        (("list", "--until", "noon"), "--until: 'noon' is neither a time"),
        (("list", "--channel", ""), "'channel' is empty"),
        (("retry", "--state", "posioned"), "did you mean 'poisoned'?"),
        (("retry", "--state", "done"), "--state: a delivery that is done is not run again"),
        (("discard", "--state", "done"), "--state: a delivery that is done has ended"),
        (("discard", "--state", "poisoned", "--limit", "0"), "--limit: '0'"),
        (("show", "--seq", "-1"), "'-1' is not the number of a message"),
        (("process", "--max", "0"), "--max: '0'"),
    ):
        result = place.fails(2, *words, says=says)
        equal(result.out, "")


@both("an id that is the number of another message is reported with the flag to use")
def _(place):
    for name in ("a", "b", "c", "7"):
        equal(place.send(name).out, "accepted\n")
    for command in ("show", "retry", "discard"):
        place.fails(3, command, "2",
                    says="no message has the id '2', but one has the number 2 "
                    "(id 'b'): use --seq 2")
        place.fails(3, command, "--seq", "7",
                    says="no message has the number 7, but one has the id '7': "
                    "use --id '7'")
        place.fails(3, command, "#7", says="use --id '7'")
        place.fails(3, command, "99", says="no message has the id '99'\n")
        place.fails(3, command, "--seq", "99",
                    says="no message has the number 99\n")
    equal(place.ok("show", "--seq", "2", "--json").json()["id"], "b")
    equal(place.ok("show", "#2", "--json").json()["id"], "b")
    equal(place.show("7")["seq"], 4)


@both("an argument that is one message's number and another's id is refused")
def _(place):
    for name in ("a", "#1", "#2"):
        equal(place.send(name).out, "accepted\n")
    place.fails(2, "show", "#1",
                says="'#1' is the number of one message and the id of another: "
                "use --seq 1 or --id '#1'")
    equal(place.ok("show", "--seq", "1", "--json").json()["id"], "a")
    equal(place.ok("show", "--id", "#1", "--json").json()["seq"], 2)


def settled(place):
    rows = place.ok("list", "--json").json()
    return rows and all(row["state"] == "poisoned" for row in rows) and rows


@both("with --json a status is a word, and ids have one name each", BAD)
def _(place):
    equal(place.send("a", "x", "--json").json()["status"], "accepted")
    equal(place.send("a", "x", "--json").json()["status"], "duplicate")
    result = place.send("a", "other", "--json")
    data = result.json()
    equal((result.code, data["status"], data["id"], data["seq"]),
          (1, "conflict", "a", 1))
    assert "type" not in data and "title" not in data, data
    place.run("process")  # refused beside a server, which processes by itself
    row = until(lambda: settled(place))[0]
    equal(row["message_id"], "a")
    assert "id" not in row, row
    shown = place.show("a")
    equal(shown["id"], "a")
    assert "message_id" not in shown, shown
    equal([row["message_id"] for row in shown["deliveries"]], ["a"])
    response = place.ok("discard", "a", "--json").json()[0]
    equal((response["status"], response["message_id"], response["seq"]),
          ("discarded", "a", 1))


@case("a delivery whose message is missing is shown and discarded by its number")
def _(place):
    place.configure(BAD)
    place.ok("init")
    for name in ("a", "b", "c"):
        equal(place.send(name).out, "accepted\n")
    place.ok("process", "--ignore-failures")
    until(lambda: settled(place))
    with sqlite3.connect(place.file("box.db")) as db:
        db.execute("delete from postern_message where seq < 3")
    db.close()
    text = place.ok("show", "--seq", "1").out
    assert "message #1" in text and "is missing" in text, text
    assert "poisoned" in text and "no way" in text, text
    data = place.ok("show", "--seq", "1", "--json").json()
    equal((data["seq"], data["id"], data["message_missing"]), (1, None, True))
    equal([row["state"] for row in data["deliveries"]], ["poisoned"])
    place.fails(3, "show", "--seq", "9", says="no message has the number 9")
    equal(place.ok("discard", "--seq", "1").out, "discarded bad\n")
    server = place.serve()
    equal(place.ok("discard", "#2", "--handler", "bad").out, "discarded bad\n")
    equal(place.ok("show", "#2", "--json").json()["deliveries"][0]["state"],
          "discarded")
    equal(server.stop(), 0)


@case("check does not report a server of another store as one of this store")
def _(place):
    place.configure("listen: unix:api.sock\n" + CONFIG)
    place.serve()
    assert "a server is running and healthy" in place.ok("check").out
    place.ok("migrate", "--store", "sqlite:other.db")
    for store in ("sqlite:other.db", "sqlite:none.db"):
        result = place.ok("check", "--store", store)
        assert "running and healthy" not in result.out, result
        assert "api.sock has another store, which is not in" in result.out, result
    # A server that has a store of this configuration counts, restarted or not.
    place.configure("listen: unix:api.sock\nstores: {default: {url: sqlite:box.db},"
                    " more: {url: sqlite:more.db}}\n")
    result = place.ok("check")
    assert "another configuration: it lacks the store 'more'; restart it" in result.out, result


def handlers(**legacy):
    """A configuration with these handlers, each with its legacy keys."""
    text = "store: sqlite:box.db\nchannels:\n  orders:\n    handlers:\n"
    for key, old in legacy.items():
        more = f", legacy_keys: [{old}]" if old else ""
        text += f"      {key}: {{exec: [/bin/true]{more}}}\n"
    return text


@case("check and serve refuse two handlers that are stored as one")
def _(place):
    place.configure(handlers(a=""))
    place.serve().stop()
    place.configure(handlers(b="a"))
    place.ok("check")
    place.serve().stop()
    for text, pair in (
        (handlers(a="", b=""), "'a' and 'b'"),
        (handlers(c="a", b=""), "'c' and 'b'"),
        (handlers(x="", c="a", d="b"), "'c' and 'd'"),
    ):
        place.configure(text)
        says = f"handlers {pair} have the same stored id"
        result = place.run("check")
        equal(result.code, 2, result)
        assert says in result.out, result
        place.fails(2, "serve", says=says)
    for good in (handlers(a=""), handlers(b="", x=""), handlers(x="", c="a, b")):
        place.configure(good)
        place.ok("check")


@case("check does not report a handler under its legacy key as orphaned")
def _(place):
    place.configure(handlers(a=""))
    place.ok("migrate")
    place.configure(handlers(b="a"))
    equal(place.send("1").out, "accepted\n")
    place.configure(handlers(a=""))
    place.ok("check")
    equal(place.process(), 1)
    equal(place.state("1", "a"), "done")


@case("a change that fails on a full disk is retried a few times, not dozens")
def _(place):
    place.configure()
    server = place.serve()
    for number in range(20):
        equal(place.send(str(number), "x" * 50_000).out, "accepted\n")
    room = os.stat(place.file("box.db-wal")).st_size // 2
    limits = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (room, limits[1]))
    result = place.fails(4, "pause", "log", says="pause: ")
    equal(len(result.err.splitlines()), 1, result)
    asked = [line for line in server.stderr().splitlines() if "/log/pause" in line]
    assert 1 <= len(asked) <= 8, f"asked {len(asked)} times"
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)
    equal(place.ok("pause", "log").out, "paused log\n")


@case("process prints the message, the handler and the reason of a failure")
def _(place):
    place.configure(BAD)
    place.ok("init")
    place.send("a")
    result = place.ok("process", "--ignore-failures")
    equal(result.err,
          "postern: note: delivery poisoned: message 'a', handler 'bad': no way\n")
    place.send("b")
    (line,) = place.ok("process", "--ignore-failures", "--json").err.splitlines()
    equal(json.loads(line),
          {"note": "delivery poisoned: message 'b', handler 'bad': no way"})


@both("an edit of a delivery that is done names the delivery")
def _(place):
    place.send("a")
    place.run("process")  # refused beside a server, which processes by itself
    until(lambda: place.show("a")["completed_at"])
    for command, says in (("retry", "retried"), ("discard", "discarded")):
        for row in place.show("a")["deliveries"]:
            place.fails(1, command, "a", "--handler", row["handler"],
                        says=f"the delivery of message 1 is done: not {says}")


@case("one byte and one event are singular")
def _(place):
    place.configure()
    place.ok("init")
    place.send("a", "x")
    assert "\nbody, 1 byte\n" in place.ok("show", "a").out
    line = '{"specversion":"1.0","id":"b","source":"s","type":"t"}\n'
    result = place.ok("send", "orders", "--lines", "-", stdin=line)
    equal(result.out, "1 event: 1 accepted, 0 duplicate, 0 conflict, 0 rejected\n")


DRAINED = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      mail: {exec: [/bin/true]TYPES}
"""


@case("a handler is drained by types that no message has, not by a pause")
def _(place):
    place.configure(DRAINED.replace("TYPES", ""))
    place.ok("init")
    for name in ("a", "b"):
        equal(place.send(name).out, "accepted\n")
    place.ok("pause", "mail")
    equal(place.process(), 0)
    equal(place.send("c").out, "accepted\n")
    (handler,) = place.ok("stats", "--json").json()["handlers"]
    equal((handler["pending"], handler["leased"]), (3, 0))
    place.ok("resume", "mail")
    place.configure(DRAINED.replace("TYPES", ", types: [nothing]"))
    equal(place.send("d").word, "accepted")
    equal(place.process(), 3)
    (handler,) = place.ok("stats", "--json").json()["handlers"]
    equal((handler["pending"], handler["leased"], handler["done"]), (0, 0, 3))
    equal(place.state("d", ""), "parked")


main()
