#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What an operator changes, through the command line and the API: reasons,
authors and ends, and the intake of a channel. tests/server/test_postgres_halt.py
has the cases with several nodes."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from support import case, equal, main, until  # noqa: E402

CONFIG = """\
store: sqlite:shop.db
channels:
  orders:
    sources: [{lines: {file: "${DIR}/feed"}}]
    handlers:
      mail: {exec: ["/bin/true"]}
  bills:
    handlers:
      audit: {exec: ["/bin/true"]}
"""

PLAIN = CONFIG.replace(
    '    sources: [{lines: {file: "${DIR}/feed"}}]\n', "")


def request(place, path, body=None):
    """Returns the status and the JSON of the response."""
    more = [] if body is None else [
        "-H", "Content-Type: application/json", "--data-binary", "@-"]
    done = subprocess.run(
        ["curl", "-sS", "-w", "\n%{http_code}", "--unix-socket",
         place.file("shop.db.sock"), f"http://postern/v1/{path}", *more],
        input=json.dumps(body).encode() if body is not None else None,
        stdout=subprocess.PIPE, check=True, timeout=60,
    )
    text, status = done.stdout.decode().rsplit("\n", 1)
    return int(status), json.loads(text)


def handler(place, key="mail"):
    rows = place.ok("stats", "--json").json()["handlers"]
    return [row for row in rows if row["key"] == key][0]


def channel(place, name="orders"):
    rows = place.ok("stats", "--json").json()["channels"]
    return [row for row in rows if row["name"] == name][0]


def both(name):
    """A case without a server, and the same with one."""

    def register(function):
        def run(place, served):
            place.configure(PLAIN)
            place.ok("init")
            place.send("first")
            if served:
                place.serve()
                until(lambda: place.state("first", "mail") == "done")
            function(place)

        case(name, served=False)(run)
        case(f"{name}, by a server", served=True)(run)
        return function

    return register


@both("a pause has a reason, an author and an end")
def _(place):
    equal(place.ok("pause", "mail", "--for", "2h", "--reason", "smtp down",
                   "--by", "anna").out, "paused mail\n")
    row = handler(place)
    equal((row["paused"], row["held"], row["held_reason"], row["held_by"]),
          (True, "paused", "smtp down", "anna"))
    assert row["held_until"] > row["held_at"]
    text = place.ok("stats").out
    assert f"paused until {row['held_until']} by anna: smtp down" in text, text
    # Pausing again replaces reason and end.
    place.ok("pause", "mail", "--reason", "still down")
    row = handler(place)
    equal((row["held_until"], row["held_reason"]), (None, "still down"))
    assert "@" in row["held_by"], row
    place.send("second")
    result = place.ok("retry", "second")
    assert "deliveries to 'mail' wait: paused by" in result.err, result
    result = place.ok("retry", "--state", "pending", "--yes")
    assert "deliveries to 'mail' wait: paused by" in result.err, result
    place.ok("resume", "mail", "--reason", "fixed")
    row = handler(place)
    equal((row["paused"], row["held"], row["held_reason"], row["held_at"]),
          (False, None, None, None))
    assert "wait" not in place.run("retry", "second").err


@both("a pause with an end ends by itself")
def _(place):
    place.ok("pause", "mail", "--for", "500ms")
    place.send("second")
    until(lambda: not handler(place)["paused"])
    place.run("process")  # refused where a server runs
    until(lambda: place.state("second", "mail") == "done")


@both("a closed channel refuses messages and runs what it has")
def _(place):
    equal(place.ok("channel", "close", "orders", "--reason", "moving",
                   "--by", "anna").out, "closed orders\n")
    for name in ("second", "first"):
        result = place.send(name)
        equal(result.code, 4)
        assert "channel 'orders' is closed: moving" in result.err, result
    place.write("lines", '{"specversion":"1.0","id":"l","source":"s",'
                         '"type":"t"}\n')
    result = place.run("send", "orders", "--lines", place.file("lines"))
    assert result.code == 4 and "is closed" in result.err, result
    equal(place.send("other", channel="bills").code, 0)
    row = channel(place)
    equal((row["accepted"], row["closed"], row["closed_reason"],
           row["closed_by"]), (1, True, "moving", "anna"))
    assert row["closed_at"], row
    assert "closed by anna: moving" in place.ok("stats").out
    place.run("process")
    until(lambda: place.state("first", "mail") == "done")
    equal(place.ok("channel", "open", "orders", "--json").json()["closed"],
          False)
    equal(place.send("second").out, "accepted\n")
    equal(channel(place)["closed"], False)


@both("bad changes are refused, and nothing changes")
def _(place):
    place.fails(2, "pause", "mail", "--for", "0", says="--for")
    place.fails(2, "pause", "mail", "--for", "11y", says="not a duration")
    place.fails(2, "pause", "mail", "--for", "-1h", says="not a duration")
    place.fails(2, "pause", "mail", "--for", "4015d", says="10 years")
    place.fails(2, "resume", "mail", "--for", "1h", says="--for")
    place.fails(2, "pause", "mail", "--reason", "x" * 501, says="500 bytes")
    place.fails(2, "pause", "mail", "--reason", "a\tb", says="control")
    place.fails(2, "pause", "mail", "--reason", b"\xff", says="UTF-8")
    place.fails(2, "pause", "mail", "--by", "x" * 101, says="100 bytes")
    place.fails(2, "pause", "mail", "--by", "postern", says="reserved")
    place.fails(3, "pause", "mial", says="did you mean 'mail'?")
    place.fails(3, "resume", "nobody", says="no handler 'nobody'")
    place.fails(3, "channel", "close", "order", says="did you mean 'orders'?")
    place.fails(3, "channel", "open", "nothing", says="no channel 'nothing'")
    place.fails(2, "channel", "shut", "orders", says="'close' nor 'open'")
    place.fails(2, "channel", "close", "", says="name")
    place.fails(2, "retry", "first", "--handler", "mail", "--reason", "x" * 501,
                says="500 bytes")
    place.fails(2, "discard", "--state", "pending", "--yes", "--reason", "\x7f",
                says="control")
    equal((handler(place)["paused"], channel(place)["closed"]), (False, False))


@case("a handler that has drained can be renamed without a legacy key")
def _(place):
    place.configure(PLAIN)
    place.ok("init")
    place.send("first")
    place.ok("channel", "close", "orders")
    place.fails(4, "send", "orders", "--id", "second", stdin="x")
    place.ok("process")
    row = handler(place)
    equal((row["pending"], row["leased"], row["done"]), (0, 0, 1))
    place.configure(PLAIN.replace("mail:", "post:"))
    place.ok("channel", "open", "orders")
    place.send("second")
    equal(place.send("first").out, "duplicate\n")
    place.ok("process")
    equal(place.state("second", "post"), "done")
    equal(place.state("first", "mail"), "done")
    equal(place.ok("list", "--state", "poisoned", "--json").json(), [])


@case("the API takes reasons, authors and ends in the body")
def _(place):
    place.configure(PLAIN)
    place.serve()
    equal(request(place, "handlers/mail/pause", {
        "reason": "smtp \u2014 down", "by": "anna", "for": "2h"})[0], 200)
    status, answer = request(place, "handlers")
    row = [row for row in answer["items"] if row["key"] == "mail"][0]
    equal((status, row["held"], row["held_reason"], row["held_by"]),
          (200, "paused", "smtp \u2014 down", "anna"))
    end = "2099-01-01T00:00:00.000Z"
    equal(request(place, "handlers/mail/pause", {"until": end})[0], 400)
    soon = "2030-01-01T00:00:00.000Z"
    equal(request(place, "handlers/mail/pause", {"until": soon})[0], 200)
    row = handler(place)
    # The time was converted to a duration, and that added to the clock.
    assert row["held_until"][:16] in ("2029-12-31T23:59", soon[:16]), row
    equal(row["held_by"], None)
    equal(request(place, "handlers/mail/resume", {"by": "bob"})[0], 200)
    equal(request(place, "channels/orders/close", {"reason": "moving"})[0], 200)
    status, answer = request(place, "channels")
    row = [row for row in answer["items"] if row["name"] == "orders"][0]
    equal((row["closed"], row["closed_reason"]), (True, "moving"))
    equal(request(place, "channels/orders/open", {})[0], 200)
    for body, says in (
            ({"for": "0"}, "for: "),
            ({"for": "1h", "until": soon}, "not both"),
            ({"until": "2001-01-01T00:00:00Z"}, "in the future"),
            ({"until": "tomorrow"}, "until: "),
            ({"for": 7}, "'for'"),
            ({"reason": ["x"]}, "'reason'"),
            ({"reason": "x" * 501}, "reason is longer than 500 bytes"),
            ({"reason": "a\u0001b"}, "control character"),
            ({"by": "postern"}, "reserved"),
            ({"why": "x"}, "'why'")):
        status, answer = request(place, "handlers/mail/pause", body)
        equal(status, 400, body)
        assert says in answer["detail"], (body, answer)
    equal(request(place, "handlers/mail/pause",
                  {"reason": "\u0001" * 2**20})[0], 413)
    equal(request(place, "handlers/mail/resume", {"for": "1h"})[0], 400)
    equal(request(place, "channels/orders/close", {"for": "1h"})[0], 400)
    equal(handler(place)["paused"], False)


@case("every change is logged with its reason and its author")
def _(place):
    place.configure(PLAIN)
    server = place.serve()
    words = ["--reason", "a reason", "--by", "anna"]
    place.ok("pause", "mail", "--for", "1h", *words)
    place.send("first")
    place.ok("retry", "first", *words)
    place.ok("discard", "--state", "pending", "--yes", *words)
    place.ok("resume", "mail", *words)
    place.ok("channel", "close", "orders", *words)
    place.ok("channel", "open", "orders", *words)
    place.ok("pause", "audit")

    def edits():
        lines = [json.loads(line) for line in server.stderr().splitlines()]
        return [line for line in lines if line["event"] == "operator_edited"]

    until(lambda: len(edits()) == 7)
    equal([line["action"] for line in edits()],
          ["pause", "retry", "discard", "resume", "close", "open", "pause"])
    for line in edits()[:6]:
        equal((line["reason"], line["by"]), ("a reason", "anna"), line)
    assert edits()[0]["until_ms"] > 0
    equal([line["action"] for line in edits() if "until_ms" in line], ["pause"])
    equal(edits()[4]["channel"], "orders")
    assert "reason" not in edits()[6] and "@" in edits()[6]["by"]


@case("a source keeps its messages while its channel is closed")
def _(place):
    place.configure(CONFIG)
    place.write("feed", "")
    place.serve()
    place.ok("channel", "close", "orders")
    with open(place.file("feed"), "a", encoding="utf-8") as file:
        file.write('{"specversion":"1.0","id":"1","source":"s","type":"t"}\n')

    def source():
        rows = place.ok("stats", "--json").json()["sources"]
        return [row for row in rows if row["name"] == "orders.lines"][0]

    until(lambda: source()["unavailable"] > 0)
    equal((source()["accepted"], channel(place)["accepted"]), (0, 0))
    place.ok("channel", "open", "orders")
    until(lambda: source()["accepted"] == 1)
    until(lambda: place.state("1", "mail") == "done")


if __name__ == "__main__":
    main()
