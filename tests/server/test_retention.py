#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What cleanup removes and keeps, by the command and by a server; and the lock
of exclusive processing."""

import json

from support import case, equal, main, until

CONFIG = """\
stores:
  box: {{url: 'sqlite:box.db'}}
  other: {{url: 'sqlite:other.db', retention: {{payload: 1000d}}}}
defaults:
  max_attempts: 1
  retention: {{payload: 1ms, dedupe: {dedupe}}}
  {more}
channels:
  orders:
    store: box
    handlers:
      log: {{types: [good, bad], exec: [/bin/sh, -c, 'test "$CE_TYPE" = good']}}
  slow:
    store: other
    handlers:
      keep: {{exec: [/bin/true]}}
"""


def config(dedupe="none", more=""):
    return CONFIG.format(dedupe=dedupe, more=more).replace(
        "payload: 1000d", "payload: 1000d, dedupe: 2000d"
    )


def send(place, message_id, message_type="good", channel="orders"):
    result = place.send(message_id, "x", "--type", message_type, channel=channel)
    equal(result.code, 0)
    return result.out.strip()


def ids(place):
    return sorted(r["message_id"] for r in place.ok("list", "--json").json())


def clean_until(place, messages):
    """Cleans up until only these messages are left; returns the removed
    counts."""
    removed = [0, 0]

    def left():
        response = place.ok("cleanup", "--json").json()
        removed[0] += response["messages"]
        removed[1] += response["keys"]
        return ids(place) == sorted(messages)

    until(left)
    return removed


@case("a complete message expires, and its id is still a duplicate")
def _(place):
    place.configure(config())
    place.ok("migrate")
    for number in range(3):
        equal(send(place, f"{number}"), "accepted")
    equal(send(place, "open"), "accepted")
    place.ok("process", "--ignore-failures", "--max", "3")
    equal(clean_until(place, ["open"]), [3, 0])
    equal(send(place, "0"), "duplicate")
    place.fails(3, "show", "0", says="no message")


@case("an id that expired is new again")
def _(place):
    place.configure(config(dedupe="1ms"))
    place.ok("migrate")
    equal(send(place, "a"), "accepted")
    place.ok("process", "--ignore-failures")
    removed = [0, 0]

    def removed_all():
        response = place.ok("cleanup", "--json").json()
        removed[0] += response["messages"]
        removed[1] += response["keys"]
        return removed == [1, 1]

    until(removed_all)
    equal(send(place, "a"), "accepted")
    # The id of an open message is kept.
    place.ok("cleanup")
    equal(send(place, "a"), "duplicate")


@case("poisoned and parked messages stay, however old they are")
def _(place):
    place.configure(config(dedupe="1ms"))
    place.ok("migrate")
    send(place, "poisoned", "bad")
    send(place, "parked", "nobody")
    send(place, "done")
    place.ok("process", "--ignore-failures")
    clean_until(place, ["parked", "poisoned"])
    equal(send(place, "poisoned", "bad"), "duplicate")


@case("each store and channel has its own retention, and the result is printed")
def _(place):
    place.configure(config())
    place.ok("migrate")
    send(place, "a")
    send(place, "b", channel="slow")
    place.ok("process", "--ignore-failures")
    until(lambda: place.ok("cleanup").out
          == "box: removed 1 message and 0 remembered ids\n"
             "other: removed 0 messages and 0 remembered ids\n")
    equal(ids(place), ["b"])
    equal(place.ok("cleanup", "--in", "other", "--json").json(), {
        "messages": 0,
        "keys": 0,
        "stores": [
            {"store": "other", "messages": 0, "keys": 0, "busy": False,
             "complete": True}
        ],
    })


@case("a cleanup goes through the server")
def _(place):
    place.configure(config())
    server = place.serve()
    send(place, "a")
    until(lambda: place.state("a", "log") == "done")
    equal(clean_until(place, []), [1, 0])
    equal(server.stop(), 0)


@case("a server cleans up by itself, and that is no error in its log")
def _(place):
    place.configure(config(more="cleanup_interval: 20ms"))
    server = place.serve()
    send(place, "a")
    until(lambda: ids(place) == [])
    until(lambda: "cleaned up" in server.stderr())
    lines = [json.loads(line) for line in server.stderr().splitlines()]
    cleaned = [line for line in lines if "cleaned up" in line["message"]]
    equal(cleaned[0]["level"], "info")
    equal(cleaned[0]["store"], "box")
    assert "1 message and 0 remembered ids" in cleaned[0]["message"], cleaned
    equal([line for line in lines if line["level"] == "error"], [])


WINDOWS = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      mail:
        exec: [/bin/true]
        key: "json:/order"
        retention: {dedupe: 1ms}
      bill: {exec: [/bin/true], key: "json:/order"}
  pay:
    mode: guard
    handlers:
      charge: {exec: [/bin/true], retention: {dedupe: 1ms}}
  keep:
    mode: guard
    handlers:
      book: {exec: [/bin/true]}
"""


def send_order(place, message_id):
    place.send(message_id, '{"order": 17}')
    place.ok("process", "--ignore-failures")
    return [place.state(message_id, "mail"), place.state(message_id, "bill")]


@case("keys and markers of a handler expire by its own retention")
def _(place):
    place.configure(WINDOWS)
    place.ok("migrate")
    equal(send_order(place, "a"), ["done", "done"])
    equal(send_order(place, "b"), ["discarded", "discarded"])
    equal(place.send("m", "x", channel="pay").out, "done\n")
    equal(place.send("m", "x", channel="keep").out, "done\n")
    removed = [0]

    def all_removed():
        removed[0] += place.ok("cleanup", "--json").json()["keys"]
        return removed[0] >= 2

    until(all_removed)
    equal(removed, [2])
    equal(send_order(place, "c"), ["done", "discarded"])
    equal(place.send("m", "x", channel="pay").out, "done\n")
    equal(place.send("m", "x", channel="keep").out, "duplicate\n")
    equal(ids(place), ["a", "a", "b", "b", "c", "c"])


@case("a retention of a handler is refused where it has no keys or markers")
def _(place):
    handler = "h: {exec: [/bin/true], retention: {dedupe: 1h}}"
    for more, why in [
        ("", "needs a key of its own"),
        ("mode: direct", "the mode direct, which remembers nothing"),
        ("mode: guard, marker: one", "the channel's handlers share a marker"),
    ]:
        place.configure(
            "store: sqlite:box.db\n"
            f"channels: {{orders: {{{more + ', ' if more else ''}"
            f"handlers: {{{handler}}}}}}}\n")
        place.fails(2, "check", says=why)
        place.fails(2, "check", says="retention.dedupe of the handler 'h'")
    place.configure(
        "store: redis://localhost\n"
        "channels: {orders: {mode: guard, handlers: {" + handler + "}}}\n")
    place.fails(2, "check", says="set the ttl in its URL")
    place.configure(
        "store: sqlite:box.db\n"
        "channels: {orders: {handlers: {h: {exec: [/bin/true],"
        " retention: {payload: 1h}}}}}\n")
    place.fails(2, "check", says="payload")


@case("without retention nothing expires, and cleanup notes that")
def _(place):
    place.configure()
    place.ok("migrate")
    send(place, "a")
    place.ok("process", "--ignore-failures")
    result = place.ok("cleanup")
    equal(result.out, "removed 0 messages and 0 remembered ids\n")
    assert "nothing expires" in result.err, result
    equal(ids(place), ["a"])


@case("a cleanup creates no store")
def _(place):
    place.configure()
    place.fails(4, "cleanup", says="postern migrate")


HORIZON = """\
store: sqlite:box.db
channels:
  orders:
    retention: {payload: 1m, dedupe: 2m}
    handlers:
      log: {exec: [/bin/true], max_attempts: 20}
      fine: {exec: [/bin/true], max_attempts: 3}
"""


@case("check and serve report ids that are forgotten before the last retry")
def _(place):
    place.configure(HORIZON)
    text = "channel 'orders' forgets ids after 2m (retention.dedupe)"
    # With and without an existing store.
    for _ in range(2):
        findings = place.run("check", "--json").json()["findings"]
        found = [f for f in findings if text in f["text"]]
        equal([f["level"] for f in found], ["error"])
        assert "handler 'log'" in found[0]["text"], found
        assert found[0]["text"].startswith("postern.yaml:4:38: "), found
        assert found[0]["text"].endswith(
            " or more, or lower max_attempts"), found
        equal(place.run("check").code, 1)
        place.ok("migrate")
    server = place.serve()
    lines = [json.loads(line) for line in server.stderr().splitlines()]
    equal([l["level"] for l in lines if text in l["message"]], ["warn"])
    server.stop()
    place.configure(HORIZON.replace("2m", "10d"))
    place.ok("check")
    # Backoff of almost nothing, and an hour for each of three attempts.
    slow = HORIZON.replace("20", "3, backoff: [1ms], timeout: 1h, lease: 2h")
    place.configure(slow)
    assert "may retry for 10800002ms" in place.run("check").out
    place.configure(slow.replace("2m", "4h"))
    place.ok("check")


@case("with exclusive processing the lock is acquired and logged")
def _(place):
    place.configure(config(more="processing: exclusive"))
    server = place.serve()
    send(place, "a")
    until(lambda: "done" in place.ok("stats", "--json").out)
    lines = [json.loads(line) for line in server.stderr().splitlines()]
    locked = [line for line in lines if "processing lock acquired" in line["message"]]
    equal(sorted(line["store"] for line in locked), ["box", "other"])
    assert all(line["fence"] > 0 for line in locked), locked
    until(lambda: place.state("a", "log") == "done")


main()
