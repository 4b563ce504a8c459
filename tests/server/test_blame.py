#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A handler that is at fault itself is held; its messages are not charged.

$BLAME_MESSAGES is the number of messages, $BLAME_OUTAGE_S how long the table is
away.
"""

import json
import os
import sqlite3
import threading
import time

from support import case, equal, main, until

MESSAGES = int(os.environ.get("BLAME_MESSAGES", "300"))
OUTAGE_S = float(os.environ.get("BLAME_OUTAGE_S", "2"))

# The file belongs to the server, so handlers of its own make and drop the
# table.
SQL = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      ledger:
        sql: insert into ledger values (:id)
        max_attempts: 1
        commit_batch: {batch}
  admin:
    handlers:
      away: {{types: [away], sql: drop table ledger}}
      make: {{types: [make], sql: create table ledger (id text)}}
"""

EXEC = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      tool:
        exec: ["${DIR}/tool"]
        timeout: 60s
        max_attempts: 1
"""


def handler_stats(place, key):
    stats = place.ok("stats", "--json").json()
    return next(row for row in stats["handlers"] if row["key"] == key)


def order(place, kind):
    """Sends an order to the admin channel and waits until it is done."""
    name = f"{kind}-{time.monotonic_ns()}"
    place.ok("send", "admin", "--id", name, "--type", kind)
    until(lambda: place.state(name, kind) == "done")


def send_many(place, name, first, count):
    """Sends messages; all are accepted."""
    lines = [
        json.dumps({
            "specversion": "1.0", "id": f"m{number}", "source": "test",
            "type": "order", "data": number,
        })
        for number in range(first, first + count)
    ]
    path = place.write(name, "\n".join(lines) + "\n")
    result = place.ok("send", "orders", "--lines", path, "--json").json()
    equal(result["accepted"], count, result)


def events(server, name):
    return [
        line
        for line in map(json.loads, server.stderr().splitlines())
        if line.get("event") == name
    ]


@case("the same with several deliveries in one commit", batch=10)
@case("a table that is dropped under load and put back costs no message",
      batch=1)
def _(place, batch):
    place.configure(SQL.format(batch=batch))
    server = place.serve()
    order(place, "make")
    half = MESSAGES // 2
    sender = threading.Thread(target=send_many, args=(place, "first", 0, half))
    sender.start()
    until(lambda: handler_stats(place, "ledger")["done"] > 0)
    order(place, "away")
    send_many(place, "second", half, MESSAGES - half)
    sender.join()
    until(lambda: events(server, "handler_held"))
    equal(events(server, "handler_held")[0]["error"], "no such table: ledger")
    # Each probe is another delivery.
    until(lambda: len({row["seq"] for row in events(server, "delivery_held")}) > 1)
    time.sleep(OUTAGE_S)
    stats = handler_stats(place, "ledger")
    equal((stats["poisoned"], stats["done"] < MESSAGES), (0, True), stats)
    before = stats["done"]  # with the table these rows are lost
    order(place, "make")
    begin = time.monotonic()
    until(lambda: handler_stats(place, "ledger")["done"] == MESSAGES)
    took = time.monotonic() - begin
    print(f"# {MESSAGES} messages done {took:.1f} s after the table's return")
    assert took < 30, took
    until(lambda: events(server, "handler_released"))
    stats = handler_stats(place, "ledger")
    equal((stats["poisoned"], stats["pending"], stats["leased"]), (0, 0, 0))
    equal(events(server, "delivery_failed"), [])
    equal(events(server, "delivery_poisoned"), [])
    equal(server.stop(), 0)
    with sqlite3.connect(place.file("box.db")) as database:
        rows = database.execute("select count(*), count(distinct id) from ledger")
        equal(list(rows), [(MESSAGES - before,) * 2])


GOOD = "#!/bin/sh\ncat >> ${0%tool}log\n"


def put_tool(place, text, mode=0o755):
    """Replaces the program as a whole."""
    path = place.write("tool.new", text)
    os.chmod(path, mode)
    os.rename(path, place.file("tool"))


def remove_tool(place):
    os.remove(place.file("tool"))


FAULTS = [
    ("is removed", remove_tool, "No such file or directory"),
    ("is not executable", lambda place: put_tool(place, GOOD, 0o644),
     "not executable by this user"),
    ("has an interpreter that is missing",
     lambda place: put_tool(place, "#!/no/such/shell\n"),
     "(its interpreter '/no/such/shell')"),
    ("is no program", lambda place: put_tool(place, "cat\n"),
     "Exec format error"),
]


def break_tool(place, spoil, reason):
    place.configure(EXEC)
    put_tool(place, GOOD)
    server = place.serve()
    place.send("first", "first\n")
    until(lambda: place.state("first", "tool") == "done")
    spoil(place)
    for number in range(5):
        equal(place.send(f"m{number}", f"m{number}\n").code, 0)
    held = until(lambda: events(server, "handler_held"))
    assert reason in held[0]["error"], held
    assert f"'{place.file('tool')}'" in held[0]["error"], held
    equal(handler_stats(place, "tool")["poisoned"], 0)
    put_tool(place, GOOD)
    until(lambda: handler_stats(place, "tool")["done"] == 6)
    until(lambda: events(server, "handler_released"))
    equal(sorted(place.read("log").split()),
          ["first", *(f"m{number}" for number in range(5))])
    equal(events(server, "delivery_failed"), [])
    equal(server.stop(), 0)


for fault, spoil, reason in FAULTS:
    case(f"a program that {fault} and is put back costs no message",
         spoil=spoil, reason=reason)(break_tool)


@case("'check' names the interpreter of a script that is missing")
def _(place):
    place.configure(EXEC)
    put_tool(place, "#! /no/such/shell -e\n")
    result = place.run("check")
    equal(result.code, 1, result)
    assert "its interpreter '/no/such/shell': No such file" in result.out, result


main()
