#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`postern send CHANNEL --lines FILE`: a file of CloudEvents, one per line."""

import base64
import http.client
import json
import os
import resource
import socket
import subprocess
import time

from support import POSTERN, case, equal, main, on_terminal, until

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


def counts(events, **more):
    names = ("accepted", "duplicate", "conflict", "rejected", "dropped",
             "unavailable")
    return {"events": events, **{name: more.get(name, 0) for name in names}}


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


@case("a line of exactly the limit is sent, a longer one is rejected")
def _(place):
    limit = 2 * 4096 + 128 * 1024 - 2
    for over in (0, 1, 100):
        empty = len(event(f"l{over}", x=""))
        long = event(f"l{over}", x="y" * (limit - empty + over))
        write(place, [event(f"a{over}"), long, event(f"b{over}")])
        summary, errors = send(place, "events.jsonl")
        equal(summary, counts(3, accepted=2, rejected=1))
        said = "the line exceeds" if over else "longer than 8192 bytes"
        assert said in errors[0] and "line 2" in errors[0], errors


@case("a batch that is refused is halved until the bad line is found")
def _(place):
    deep = json.loads("[" * 99 + "]" * 99)
    write(place, [event(i, data=deep if i == 300 else i) for i in range(700)])
    for serving in (False, True):
        if serving:
            place.serve()
        summary, errors = send(place, "events.jsonl")
        equal(summary, counts(700, rejected=1,
                              **{"duplicate" if serving else "accepted": 699}))
        assert "line 301: " in errors[0] and "nested" in errors[0], errors


@case("a server with shorter messages than the client expects gets all lines")
def _(place):
    write(place, [event(i, data="x" * 3000) for i in range(400)])
    place.serve()
    place.configure(CONFIG.replace("4KiB", "1MiB"))
    summary, _ = send(place, "events.jsonl", code=0)
    equal(summary, counts(400, accepted=400))


@case("dropped events and lines of zero bytes are counted as such")
def _(place):
    place.configure(CONFIG + "        types: [other]\n    unrouted: drop\n")
    place.write("events.jsonl", event(1) + "\n" + "\0" * 100 + "\n")
    summary, errors = send(place, "events.jsonl")
    equal(summary, counts(2, dropped=1, rejected=1))
    assert "line 2: " in errors[0], errors


@case("lines of a pipe are sent before more of it is awaited")
def _(place):
    place.configure(CONFIG)
    server = place.serve()
    sender = place.start([POSTERN, "send", "orders", "--lines", "-"],
                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    pipe = sender.process.stdin
    for number in ("1", "2"):
        pipe.write((event(number) + "\n").encode())
        pipe.flush()
        until(lambda: place.run("show", number).code == 0)
    pipe.close()
    equal(sender.process.wait(60), 0)
    assert server.alive()


@case("a pipe that does not block is waited for without using the processor")
def _(place):
    place.configure(CONFIG)
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    sender = place.start([POSTERN, "send", "orders", "--lines", "-"],
                         stdin=ends[0], stdout=subprocess.DEVNULL)
    os.close(ends[0])
    os.write(ends[1], (event("1") + "\n").encode())
    time.sleep(1.5)
    with open(f"/proc/{sender.process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    os.close(ends[1])
    equal(sender.process.wait(60), 0)
    assert ticks / os.sysconf("SC_CLK_TCK") < 0.4, ticks
    equal(place.show("1")["transport"], "cli")


@case("lines that a failing store did not accept are counted, and sent again")
def _(place):
    write(place, [event(i, data="x" * 2000) for i in range(2000)])
    server = place.serve()
    limits = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    # No file of the server may become longer than this.
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (2_000_000, limits[1]))
    summary, errors = send(place, "events.jsonl", code=4)
    accepted = summary["accepted"]
    assert 0 < accepted < 2000 and summary["unavailable"] > 0, summary
    equal(summary["events"], accepted + summary["unavailable"])
    assert "on have no result; send the file again" in errors[-1], errors
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)
    until(lambda: place.run("send", "orders", "--id", "x", stdin=b"x").code == 0)
    summary, _ = send(place, "events.jsonl", code=0)
    equal(summary["accepted"] + summary["duplicate"], 2000)
    assert summary["duplicate"] >= accepted, (summary, accepted)


@case("a server answers a batch with a result for each event, in order")
def _(place):
    write(place, [])
    place.serve()
    connection = http.client.HTTPConnection("postern", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(place.file("box.db.sock"))
    events = [event(i % 700, data=i % 700) for i in range(996)]
    events += [event("big", data="x" * 4097), event(5, data="other"), '{"id":1}',
               event("last")]

    def post(channel):
        connection.request(
            "POST", f"/v1/channels/{channel}/messages", "[" + ",".join(events) + "]",
            {"Content-Type": "application/cloudevents-batch+json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())

    status, answer = post("orders")
    equal(status, 200)
    items = answer["items"]
    equal(len(items), 1000)
    equal([item["id"] for item in items[:996]], [str(i % 700) for i in range(996)])
    equal({item["status"] for item in items[:700]}, {"accepted"})
    equal({item["status"] for item in items[700:996]}, {"duplicate"})
    equal([item["status"] for item in items[996:]],
          ["rejected", "conflict", "rejected", "accepted"])
    equal([item["seq"] for item in items[700:996]], [item["seq"] for item in items[:296]])
    equal(items[997]["seq"], items[5]["seq"])
    equal(place.show("last")["seq"], items[999]["seq"])
    equal(post("nothing")[0], 404)


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


@case("on a terminal a listing fits the line, and elsewhere nothing is shortened")
def _(place):
    place.configure("""\
store: sqlite:box.db
channels:
  orders-of-the-shop:
    handlers:
      send-confirmation: {max_attempts: 2, backoff: [1h],
          exec: [/bin/sh, -c, "echo the mail server said: 451 try again >&2; exit 1"]}
""")
    name = "order-0123456789abcdef0123456789abcdef0123456789abcdef-end"
    place.ok("send", "orders-of-the-shop", "--id", name, "--type", "order.placed",
             stdin="body")
    place.process()
    place.ok("pause", "send-confirmation", "--for", "2h", "--reason", "x" * 200)
    for columns in (80, 100, 200):
        for words in (["list"], ["stats"], ["show", name],
                      ["list", "--group-by", "error"]):
            text = on_terminal(place, *words, env={"NO_COLOR": "1"},
                               columns=columns).decode()
            lines = [line for line in text.splitlines()
                     if not line.startswith("message #")]
            for line in lines:
                assert len(line) <= columns, (columns, line)
            if words != ["stats"]:
                assert "the mail server" in text, text
        lines = on_terminal(place, "list", env={"NO_COLOR": "1"},
                            columns=columns).decode().splitlines()
        assert "order" in lines[1] and "-end" in lines[1], lines
        assert "…" in lines[1] or columns == 200, lines
        equal("TYPE" in lines[0], columns == 200)
    for words in (["list"], ["show", name]):
        text = place.ok(*words).out
        assert name in text and "451 try again" in text, text
    assert "CHANNEL" in place.ok("list").out


main()
