#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sources in the configuration of a server: `lines`."""

import json
import os

from support import case, equal, main, until

CONFIG = """\
store: sqlite:box.db
channels:
  orders:
    sources:
      - lines: {file: events.jsonl}
      - lines: pipe
        name: piped
    handlers:
      log:
        exec: [/bin/true]
"""


def event(number, **more):
    return json.dumps({"specversion": "1.0", "id": str(number), "source": "/shop",
                       "type": "order.placed", **more}) + "\n"


def append(place, name, text):
    with open(os.path.join(place.path, name), "a", encoding="utf-8") as file:
        file.write(text)


def sources(place):
    stats = place.run("stats", "--json").json()
    return {source["name"]: source for source in stats["sources"]}


def accepted(place, name, count, **more):
    """Waits until a source has accepted this many messages."""
    def reached():
        found = sources(place)[name]
        wanted = {"accepted": count, **more}
        return found if all(found[key] >= wanted[key] for key in wanted) else None
    return until(reached)


def prepare(place):
    place.configure(CONFIG)
    os.mkfifo(os.path.join(place.path, "pipe"))


@case("a file and a pipe feed a channel, and stats shows both")
def _(place):
    prepare(place)
    append(place, "events.jsonl", event(1, data=1) + event(2))
    place.serve()
    accepted(place, "orders.lines", 2)
    append(place, "events.jsonl", event(3))
    found = accepted(place, "orders.lines", 3)
    equal((found["kind"], found["channel"]), ("lines", "orders"))
    equal((found["connected"], found["running"], found["last_error"]),
          (True, True, None))
    append(place, "pipe", event(4))
    append(place, "pipe", event(4))
    accepted(place, "piped", 1, duplicates=1)
    equal(place.show("1")["body"], "1")
    equal(place.show("1")["transport"], "lines")
    text = place.run("stats").out
    for word in ("SOURCE", "orders.lines", "piped", "connected"):
        assert word in text, text


@case("a bad line is counted and logged with its number, and stops no other")
def _(place):
    prepare(place)
    append(place, "events.jsonl", event(1) + "\nbad\n" + event(2))
    server = place.serve()
    accepted(place, "orders.lines", 2, rejected=1)
    server.stop()
    assert "source 'orders.lines': line 3 rejected: " in server.stderr(), server.stderr()


@case("a bad line is quarantined once, however often the file is read")
def _(place):
    prepare(place)
    text = place.read("postern.yaml")
    place.configure(text.replace(
        "lines: {file: events.jsonl}", "lines: {file: events.jsonl, on_unacceptable: quarantine}"))
    append(place, "events.jsonl", event(1) + "bad\n" + event(2))
    for duplicates in (0, 3):
        server = place.serve()
        accepted(place, "orders.lines", 2 if not duplicates else 0,
                 rejected=0 if duplicates else 1, duplicates=duplicates)
        server.stop()
    row, = place.ok("list", "--state", "poisoned", "--json").json()
    assert "JSON" in row["last_error"], row
    equal(place.show(row["message_id"])["body"], "bad")


@case("a file that is read again after a restart changes nothing")
def _(place):
    prepare(place)
    append(place, "events.jsonl", "".join(event(i) for i in range(50)))
    server = place.serve()
    accepted(place, "orders.lines", 50)
    server.stop()
    append(place, "events.jsonl", event(50))
    place.serve()
    accepted(place, "orders.lines", 1, duplicates=50)
    channels = place.run("stats", "--json").json()["channels"]
    equal([channel["accepted"] for channel in channels], [51])


@case("a file that is missing is waited for, and its error is shown")
def _(place):
    prepare(place)
    server = place.serve()
    found = until(lambda: sources(place)["orders.lines"]["last_error"])
    assert "No such file" in found, found
    append(place, "events.jsonl", event(1))
    found = accepted(place, "orders.lines", 1)
    equal(found["connected"], True)
    server.stop()
    assert "connected source 'orders.lines'" in server.stderr(), server.stderr()


@case("check prints the sources, and refuses what serve would refuse")
def _(place):
    prepare(place)
    out = place.run("check", "--print").out
    assert "      - name: orders.lines\n        lines:\n" in out, out
    place.configure(CONFIG.replace("events.jsonl}", "a, follow: maybe}"))
    result = place.run("check")
    equal(result.code, 2)
    assert "lines.follow: " in result.err, result
    place.configure(CONFIG.replace("lines: pipe", "kafka: {}"))
    result = place.run("check")
    equal(result.code, 2)
    assert "unknown key 'kafka' in a source" in result.err, result


main()
