#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Messages staged by "insert into postern_publish" in a program's own
transaction on a SQLite file: they commit or roll back with it, and are accepted
once. The program is this one, with nothing but Python's sqlite3."""

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from support import case, equal, main, until  # noqa: E402

CONFIG = """\
store: "sqlite:shop.db{shared}"
channels:
  orders:
    max_message_size: 1000B
    handlers:
      row:
        sql: insert into effect (id, body) values (:id, :body)
"""

PATIENCE_S = 120  # for a lock of the file, on a machine that is busy


@contextlib.contextmanager
def connected(place):
    """A connection of a publisher, whose transactions begin explicitly."""
    connection = sqlite3.connect(place.file("shop.db"), timeout=PATIENCE_S,
                                 isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def begin(place, config=CONFIG, shared="?shared=yes"):
    """Creates the file, the tables of the test, and registers the channels."""
    place.configure(config.format(shared=shared))
    place.ok("migrate")
    with connected(place) as connection:
        connection.executescript(
            "CREATE TABLE effect (id TEXT, body TEXT);"
            "CREATE TABLE business (n INTEGER)")
    place.ok("process", "--ignore-failures")


def publish(connection, body="text", message_id=None, channel="orders",
            kind="order.placed", **more):
    row = dict(channel=channel, type=kind, body=body, **more)
    if message_id is not None:
        row["id"] = message_id
    connection.execute(
        f"INSERT INTO postern_publish ({', '.join(row)})"
        f" VALUES ({', '.join('?' * len(row))})", list(row.values()))


def rows(place, sql):
    with connected(place) as connection:
        return connection.execute(sql).fetchall()


def count(place, what, where="true"):
    ((number,),) = rows(place, f"SELECT count(*) FROM {what} WHERE {where}")
    return number


def refused(words, function, *args, **more):
    try:
        function(*args, **more)
    except sqlite3.DatabaseError as error:
        assert words in str(error), f"not {words!r}: {error}"
        return
    raise AssertionError(f"not refused: {words}")


@case("a committed message is delivered once, and a rolled-back one never")
def _(place):
    begin(place)
    server = place.serve()
    with connected(place) as client:
        client.execute("BEGIN IMMEDIATE")
        client.execute("INSERT INTO business VALUES (1)")
        publish(client, "one", "first")
        client.execute("COMMIT")
        client.execute("BEGIN IMMEDIATE")
        client.execute("INSERT INTO business VALUES (2)")
        publish(client, "two", "second")
        client.execute("ROLLBACK")
        client.execute("BEGIN IMMEDIATE")
        publish(client, "three", "third")
        client.execute("COMMIT")
    until(lambda: count(place, "effect") == 2)
    until(lambda: count(place, "postern_ledger", "state = 3") == 2)
    equal(rows(place, "SELECT id, body FROM effect ORDER BY body"),
          [("first", "one"), ("third", "three")])
    equal(server.stop(), 0)
    equal((count(place, "postern_staged"), count(place, "business")), (0, 1))
    equal(rows(place, "SELECT DISTINCT transport FROM postern_message"),
          [("publish",)])


@case("an id that is not given is generated when the message is staged")
def _(place):
    begin(place)
    with connected(place) as client:
        for _ in range(3):
            publish(client)
    staged = {row[0] for row in rows(place, "SELECT id FROM postern_publish")}
    equal(len(staged), 3)
    for text in staged:
        equal((str(uuid.UUID(text)), uuid.UUID(text).version), (text, 4))
    equal(place.process(), 3)
    equal({row[0] for row in rows(place, "SELECT id FROM effect")}, staged)


@case("messages staged while no server runs are accepted by the next one")
def _(place):
    begin(place)
    with connected(place) as client:
        publish(client, "waiting", "waiting")
    server = place.serve()
    until(lambda: count(place, "effect") == 1)
    equal(server.stop(), 0)
    equal(place.state("waiting", "row"), "done")


@case("a transaction that stays open loses nothing, and is not overtaken")
def _(place):
    begin(place)
    server = place.serve()
    with connected(place) as slow, connected(place) as quick:
        slow.execute("BEGIN IMMEDIATE")
        slow.execute("INSERT INTO business VALUES (1)")
        publish(slow, "late", "late")
        # The file has one writer at a time: whoever comes later waits.
        quick.execute("PRAGMA busy_timeout = 1")
        refused("locked", publish, quick, "quick", "early")
        equal(count(place, "effect"), 0)
        slow.execute("COMMIT")
        quick.execute(f"PRAGMA busy_timeout = {PATIENCE_S * 1000}")
        # A transaction that only reads lets others stage before it does.
        slow.execute("BEGIN")
        for number in range(20):
            publish(quick, "quick", f"quick-{number}")
        publish(slow, "last", "last")
        slow.execute("COMMIT")
    until(lambda: count(place, "effect") == 22)
    equal(server.stop(), 0)
    equal((count(place, "postern_staged"), count(place, "effect")), (0, 22))


@case("an invalid message fails its statement, and the transaction can go on")
def _(place):
    begin(place)
    with connected(place) as client:
        client.execute("BEGIN IMMEDIATE")
        client.execute("INSERT INTO business VALUES (1)")

        def fails(words, *args, **more):
            refused("postern_publish: " + words, publish, client, *args, **more)

        fails("no such channel", channel="nowhere")
        fails("no such channel", channel=None)
        fails("the body is longer than max_message_size", "x" * 1001)
        fails("the body is longer than max_message_size", "ä" * 501)
        fails("the body is neither", None)
        fails("the body is neither", 7)
        fails("the type is missing", kind=None)
        fails("the id is empty", message_id="")
        fails("the id is empty, a blob, or longer", message_id="x" * 201)
        fails("the id is empty, a blob, or longer", message_id=b"x")
        fails("an attribute contains a control", message_id="a\nb")
        fails("an attribute contains a control", kind="a\0")
        fails("an attribute contains a control", subject="\x85")
        fails("the source is empty", source="")
        fails("an attribute is longer", source="x" * 1025)
        fails("an attribute is longer", subject="ä" * 513)
        fails("the headers are not", headers="[1]")
        fails("the headers are not", headers="{")
        fails("a header has no name, is not a text", headers='{"a": 1}')
        fails("a header has no name, is not a text", headers='{"": "b"}')
        fails("a header has no name, is not a text", headers='{"a": "\\n"}')
        fails("a header has no name, is not a text",
              headers=json.dumps({"a": "x" * 8193}))
        fails("there are more than 64 headers",
              headers=json.dumps({f"h{n}": "" for n in range(65)}))
        fails("there are more than 64 headers",
              headers=json.dumps({f"h{n}": "x" * 8190 for n in range(9)}))
        publish(client, "x" * 1000, "ä" * 200)
        client.execute("COMMIT")
    equal((count(place, "business"), count(place, "postern_staged")), (1, 1))
    equal(place.process(), 1)


@case("attributes and headers arrive; some headers become attributes")
def _(place):
    begin(place)
    with connected(place) as client:
        publish(client, b"\x00\xff", "full", source="/shop", subject="order 7",
                headers=json.dumps({
                    "Kind": "grün", "content-type": "text/csv", "Empty": "",
                    "Correlation-Id": "c1", "traceparent": "t1"}))
        publish(client, "", "empty", time="2026-01-02T03:04:05Z",
                content_type="a/b", correlation_id="c2", traceparent="t2")
    equal(place.process(), 2)
    names = ("source", "subject", "content_type", "correlation_id",
             "traceparent")
    shown = place.show("full")
    equal([shown[name] for name in names],
          ["/shop", "order 7", "text/csv", "c1", "t1"])
    equal(shown["headers"], [{"name": "Kind", "value": "grün"},
                             {"name": "Empty", "value": ""}])
    shown = place.show("empty")
    equal([shown[name] for name in names], ["orders", None, "a/b", "c2", "t2"])
    equal(shown["time"], "2026-01-02T03:04:05Z")
    equal(rows(place, "SELECT hex(body) FROM postern_message ORDER BY id"),
          [("",), ("00FF",)])


@case("a row that postern_publish did not write is refused, and blocks no other")
def _(place):
    begin(place)
    with connected(place) as client:
        client.execute("INSERT INTO postern_staged (channel, id, type, body)"
                       " VALUES (1, 'a' || char(9), 'x', '')")
        client.execute("INSERT INTO postern_staged"
                       " (channel, id, type, headers, body)"
                       " VALUES (1, 'bad', 'x', 'a', '')")
        publish(client, "good", "good")
    server = place.serve()
    until(lambda: count(place, "effect") == 1)
    until(lambda: "staged messages cannot be accepted" in server.stderr())
    equal(server.stop(), 0)
    (first, second) = rows(place, "SELECT refused FROM postern_staged ORDER BY n")
    equal(first, ("the id contains a control character",))
    assert "header" in second[0], second
    (row,) = place.ok("stats", "--json").json()["channels"]
    equal((row["staged"], row["refused"]), (0, 2))


@case("a message that the store cannot accept holds up no other")
def _(place):
    begin(place)
    with connected(place) as client:
        publish(client, "one", "a")
    equal(place.process(), 1)
    with connected(place) as client:
        # The stored message no longer matches the remembered id.
        client.execute("UPDATE postern_message SET id = 'b'")
        for message_id in "vwxayz":
            publish(client, "one", message_id)
    server = place.serve()
    until(lambda: count(place, "effect") == 6)
    until(lambda: count(place, "postern_ledger", "state = 3") == 6)
    until(lambda: "1 staged message cannot be accepted" in server.stderr())
    ((message_id, why),) = rows(place, "SELECT id, refused FROM postern_staged")
    equal(message_id, "a")
    assert "belongs to another message" in why, why
    equal(server.stop(), 0)


@case("a remembered id is a duplicate, with another body a conflict")
def _(place):
    begin(place)
    with connected(place) as client:
        for body in ("same", "same", "other"):
            publish(client, body, "twice")
    equal(place.process(), 1)
    equal(place.send("twice", "same").out, "duplicate\n")
    shown = place.show("twice")
    equal((shown["duplicates"], len(shown["conflicts"])), (2, 1))


@case("a closed channel keeps what is staged until it is opened")
def _(place):
    begin(place)
    server = place.serve()
    place.ok("channel", "close", "orders")
    with connected(place) as client:
        publish(client, "x", "later")
    place.ok("channel", "open", "orders")
    until(lambda: count(place, "effect") == 1)
    equal(server.stop(), 0)


@case("messages staged in a channel that no server has are reported")
def _(place):
    begin(place, CONFIG + "  notes: {{}}\n")
    with connected(place) as client:
        publish(client, channel="notes")
    place.configure(CONFIG.format(shared="?shared=yes"))
    server = place.serve()
    said = "1 staged message waits in channel 'notes', which no running node has"
    (warning,) = place.ok("stats", "--json").json()["warnings"]
    equal(warning["text"].startswith(said), True, warning)
    until(lambda: "staged messages wait: 1 in channel 'notes'" in server.stderr())
    equal(server.stop(), 0)


@case("a file that is not shared refuses what other programs stage")
def _(place):
    begin(place, shared="")
    with connected(place) as client:
        refused("the store is not shared with other processes; open it as"
                " sqlite:FILE?shared=yes", publish, client)
    # Opened as shared it takes them, and afterwards it refuses them again.
    place.configure(CONFIG.format(shared="?shared=yes"))
    place.ok("process")
    with connected(place) as client:
        publish(client)
    equal(place.process(), 1)
    place.configure(CONFIG.format(shared=""))
    place.ok("process")
    with connected(place) as client:
        refused("the store is not shared", publish, client)


RELAY = """\
store: "sqlite:shop.db{shared}"
channels:
  orders:
    handlers:
      relay:
        max_attempts: 2
        backoff: [10ms]
        sql: >
          insert into postern_publish (channel, type, body, id, headers)
          values ('bills', 'bill', :body, 'bill-' || :id, '{{"a": "b"}}');
          insert into business values (json(:body))
  bills:
    handlers:
      row: {{sql: "insert into effect (id, body) values (:id, :body)"}}
  thief:
    handlers:
      steal: {{sql: "delete from postern_staged", max_attempts: 1}}
      forge: {{sql: "insert into postern_staged (channel, id, type, body) values (1, '1', 't', '')", max_attempts: 1}}
"""


def relay(place, shared):
    begin(place, RELAY, shared)
    server = place.serve()
    for number in range(20):
        place.send(f"o{number}", str(number))
    place.send("broken", "{")  # fails after it has published
    until(lambda: count(place, "effect") == 20)
    until(lambda: place.state("broken", "relay") == "poisoned")
    equal((count(place, "effect"), count(place, "business")), (20, 20))
    equal(place.show("bill-o7")["headers"], [{"name": "a", "value": "b"}])
    place.send("theft", channel="thief")
    for handler in ("steal", "forge"):
        until(lambda: "handler changed a table of postern" in (
            place.delivery("theft", handler)["last_error"] or ""))
    equal(server.stop(), 0)


@case("a sql handler publishes exactly once with its completion")
def _(place):
    relay(place, "")


@case("a sql handler on a shared file publishes exactly once with its completion")
def _(place):
    relay(place, "?shared=yes")


CHAIN = """\
store: "sqlite:shop.db{shared}"
channels:
  first:
    handlers:
      onward: {{publish: {{channel: second}}}}
  second:
    max_message_size: 1000B
    handlers:
      row: {{sql: "insert into effect (id, body) values (:id, :body)"}}
"""


@case("a handler publishes to another channel exactly once, under the same id")
def _(place):
    begin(place, CHAIN, "")
    server = place.serve()
    for number in range(20):
        place.send(f"m{number}", str(number), "--source", "/shop",
                   "--header", "a=b", channel="first")
    place.send("large", "x" * 1001, channel="first")
    until(lambda: count(place, "effect") == 20)
    until(lambda: place.state("large", "onward") == "poisoned")
    equal(server.stop(), 0)
    equal(rows(place, "SELECT count(*), count(DISTINCT id) FROM effect"),
          [(20, 20)])
    shown = [row for row in place.ok("list", "--channel", "second",
                                     "--json").json()]
    equal(len(shown), 20)
    equal({row["source"] for row in shown}, {"/shop"})
    assert "max_message_size" in place.delivery("large", "onward")["last_error"]


@case("channels that publish to each other in a cycle are refused")
def _(place):
    def says(words, first="second", second="third", third="last"):
        place.configure(f"""\
store: sqlite:shop.db
channels:
  first: {{handlers: {{a: {{publish: {{channel: {first}}}}}}}}}
  second: {{handlers: {{b: {{publish: {{channel: {second}}}}}}}}}
  third: {{handlers: {{c: {{publish: {{channel: {third}}}}}}}}}
  last: {{}}
""")
        for command in ("check", "serve"):
            if words:
                place.fails(2, command, says=words)

    says(None)
    place.ok("check")
    says("which is not in the configuration", third="nowhere")
    says("its own channel", second="second")
    says("from which its messages come back", third="first")
    says("from which its messages come back", third="second")


@case("with many publishers and killed servers each message is delivered once")
def _(place):
    begin(place)
    total = 600
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"# seed {seed}")
    dice = random.Random(seed)

    def stage(first):
        with connected(place) as client:
            for number in range(first, total, 3):
                client.execute("BEGIN IMMEDIATE")
                client.execute("INSERT INTO business VALUES (?)", (number,))
                publish(client, "x", f"m-{number}")
                client.execute("COMMIT" if number % 5 else "ROLLBACK")

    wanted = total - len(range(0, total, 5))
    publishers = [threading.Thread(target=stage, args=(n,)) for n in range(3)]
    for publisher in publishers:
        publisher.start()
    while any(publisher.is_alive() for publisher in publishers):
        server = place.serve()
        more = count(place, "effect") + dice.randrange(5, 60)
        until(lambda: count(place, "effect") >= min(more, wanted)
              or not any(publisher.is_alive() for publisher in publishers))
        server.stop(signal.SIGKILL)
    for publisher in publishers:
        publisher.join()
    server = place.serve()
    until(lambda: count(place, "effect") >= wanted, 4 * PATIENCE_S)
    until(lambda: count(place, "postern_ledger", "state = 3") == wanted)
    equal(server.stop(), 0)
    equal((count(place, "effect"), count(place, "business"),
           count(place, "postern_staged")), (wanted, wanted, 0))
    ((distinct,),) = rows(place, "SELECT count(DISTINCT id) FROM effect")
    equal(distinct, wanted)


PUBLISHER = """
import sqlite3, sys
client = sqlite3.connect(sys.argv[1], timeout=120, isolation_level=None)
number = 0
while True:
    number += 1
    client.execute("BEGIN IMMEDIATE")
    client.execute("INSERT INTO business VALUES (?)", (number,))
    client.execute("INSERT INTO postern_publish (channel, type, body, id)"
                   " VALUES ('orders', 't', 'x', ?)", (sys.argv[2] + str(number),))
    client.execute("COMMIT")
    print(number, flush=True)
"""


@case("a killed publisher leaves its data and its message, or neither")
def _(place):
    begin(place)
    server = place.serve()
    for turn in "abcde":
        publisher = subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, place.file("shop.db"), turn],
            stdout=subprocess.PIPE, text=True)
        for _ in range(7):
            publisher.stdout.readline()
        publisher.kill()
        publisher.wait()
        publisher.stdout.close()
    until(lambda: count(place, "postern_staged") == 0)
    until(lambda: count(place, "effect") == count(place, "business"))
    equal(count(place, "business") >= 35, True)
    equal(server.stop(), 0)


@case("a channel that only transactions feed needs a store that can stage")
def _(place):
    config = CONFIG.replace("    handlers:", "    sources: [staged]\n    handlers:")
    begin(place, config)
    server = place.serve()
    with connected(place) as connection:
        publish(connection, message_id="m1")
    until(lambda: count(place, "effect") == 1)
    equal(server.stop(), 0)
    place.configure(config.format(shared=""))
    for command in ("check", "serve"):
        place.fails(2, command, says="use postgres://… or sqlite:FILE?shared=yes")


main()
