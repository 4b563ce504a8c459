#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`postern send CHANNEL --lines FILE`: a file of CloudEvents, one per line."""

import base64
import json
import os

from support import case, equal, main, on_terminal

CONFIG = """\
store: sqlite:box.db
channels:
  orders:
    max_message_size: 4KiB
    handlers:
      log:
        exec: [/bin/true]
"""


def event(number, **more):
    return json.dumps({"specversion": "1.0", "id": str(number), "source": "/shop",
                       "type": "order.placed", **more})


def write(place, lines, end="\n"):
    place.configure(CONFIG)
    return place.write("events.jsonl", end.join(lines))


def send(place, *args, code=1, **options):
    result = place.run("send", "orders", "--json", "--lines", *args, **options)
    equal(result.code, code, result.err)
    return result.json(), [json.loads(line)["error"]
                           for line in result.err.splitlines()
                           if line.startswith('{"error"')]


def counts(events, accepted=0, duplicate=0, conflict=0, rejected=0):
    return {"events": events, "accepted": accepted, "duplicate": duplicate,
            "conflict": conflict, "rejected": rejected}


@case("a file is sent whole, and sending it again is harmless")
def _(place):
    write(place, [event(i, data={"n": i}) for i in range(1201)])
    summary, _ = send(place, "events.jsonl", code=0)
    equal(summary, counts(1201, accepted=1201))
    summary, _ = send(place, "events.jsonl", code=0)
    equal(summary, counts(1201, duplicate=1201))
    equal(place.show("1200")["body"], '{"n": 1200}')
    equal(place.show("1200")["transport"], "cli")


@case("a server accepts the lines while it runs")
def _(place):
    write(place, [event(i) for i in range(700)])
    place.serve()
    summary, _ = send(place, "events.jsonl", code=0)
    equal(summary, counts(700, accepted=700))
    summary, _ = send(place, "events.jsonl", code=0)
    equal(summary, counts(700, duplicate=700))


@case("a bad line is reported with its number, and the others are sent")
def _(place):
    write(place, [
        event(1, data=1),
        "",
        "{bad",
        event(2),
        event(1, data=2),
        json.dumps({"specversion": "1.0", "id": "3", "source": "/s"}),
        event(4),
    ])
    summary, errors = send(place, "events.jsonl")
    equal(summary, counts(6, accepted=3, conflict=1, rejected=2))
    equal(sorted(errors), [
        "events.jsonl, line 3: invalid JSON at byte 2: expected a member name",
        "events.jsonl, line 5: conflict: this id was accepted with another body",
        "events.jsonl, line 6: 'type' is missing",
    ])


@case("only the first errors are printed, and all are counted")
def _(place):
    write(place, ["x"] * 50 + [event(1)])
    summary, errors = send(place, "events.jsonl")
    equal(summary, counts(51, accepted=1, rejected=50))
    equal(len(errors), 21)
    equal(errors[-1], "further lines with errors are not printed")


@case("lines may end in CRLF or in nothing, and come from standard input")
def _(place):
    write(place, [])
    text = event(1) + "\r\n" + event(2) + "\r\n\r\n" + event(3)
    summary, _ = send(place, "-", code=0, stdin=text.encode())
    equal(summary, counts(3, accepted=3))
    summary, _ = send(place, "-", code=0, stdin=b"")
    equal(summary, counts(0))


@case("a body up to the limit is sent in base64, a longer one is refused")
def _(place):
    write(place, [
        event(1, data_base64=base64.b64encode(b"\0" * 4096).decode()),
        event(2, data_base64=base64.b64encode(b"\0" * 4097).decode()),
        event(3),
    ])
    summary, errors = send(place, "events.jsonl")
    equal(summary, counts(3, accepted=2, rejected=1))
    assert errors[0].startswith("events.jsonl, line 2: "), errors
    equal(place.show("1")["body_len"], 4096)


@case("a line that no request can hold is skipped to its end")
def _(place):
    write(place, [event(1), event(2, data="x" * 400000), event(3)])
    summary, errors = send(place, "events.jsonl")
    equal(summary, counts(3, accepted=2, rejected=1))
    equal(errors, ["events.jsonl, line 2: the line exceeds 139262B"])
    write(place, [event(4), event(5, data="x" * 400000)])
    summary, errors = send(place, "events.jsonl")
    equal(summary, counts(2, accepted=1, rejected=1))


@case("flags of one message, unknown channels and missing files are refused")
def _(place):
    write(place, [event(1)])
    place.fails(2, "send", "orders", "--lines", "events.jsonl", "--id", "1",
                says="--id cannot be combined with --lines")
    place.fails(2, "send", "orders", "--lines", "events.jsonl", "more",
                says="FILE and --lines cannot be combined")
    place.fails(3, "send", "order", "--lines", "events.jsonl",
                says="did you mean 'orders'?")
    place.fails(1, "send", "orders", "--lines", "nothing.jsonl",
                says="cannot read nothing.jsonl")
    assert not os.path.exists(place.file("box.db"))


@case("a terminal sees the progress")
def _(place):
    write(place, [event(i) for i in range(600)])
    text = on_terminal(place, "send", "orders", "--lines", "events.jsonl", both=True)
    assert b"%  500 sent" in text, text
    assert b"600 events: 600 accepted" in text, text


main()
