#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A queue of RabbitMQ whose broker is scripted: what a source acknowledges, to
the byte, and what it does with frames that no broker sends."""

import os
import random
import time

from fake_broker import FakeBroker
from support import case, equal, main, until

SEED = int(os.environ.get("SEED", time.time_ns() % 1000000))
ROUNDS = int(os.environ.get("ROUNDS", 40))

# Each message runs until a file of its name exists.
WAITS = ("exec: [/bin/sh, -c, 'while ! test -e ${DIR}/$CE_ID; do sleep 0.02; done; "
         "echo $CE_ID >> ${DIR}/log.out']")
LOG = "exec: [/bin/sh, -c, 'echo $CE_ID >> ${DIR}/log.out']"


def serve(place, broker, handler=LOG, mode="inbox", **options):
    inner = "".join(f", {key}: {value}" for key, value in options.items())
    place.configure(f"""\
store: sqlite:box.db
defaults: {{restart_delay: 50ms}}
channels:
  in:
    mode: {mode}
    sources:
      - rabbitmq: {{url: "{broker.url()}", queue: q{inner}}}
    handlers:
      log:
        {handler}
""")
    return place.serve()


def state(place):
    rows = place.ok("stats", "--json").json()["sources"]
    return next(row for row in rows if row["name"] == "in.rabbitmq")


def messages(count, first=1):
    """With tags from 1."""
    return b"".join(FakeBroker.message(i + 1, f"m{first + i}") for i in range(count))


@case("an acknowledgement of several never covers a message that is not done")
def _(place):
    broker = FakeBroker(consume=lambda number: messages(3))
    serve(place, broker, WAITS, mode="guard")
    for name in ("m2", "m3"):
        place.write(name, "")
    until(lambda: state(place)["accepted"] == 2)
    equal(broker.settled, [])
    place.write("m1", "")
    until(lambda: broker.settled)
    equal(broker.settled, [(1, "ack", 3, True)])
    broker.stop()


@case("what was delivered on a connection is never acknowledged on another one")
def _(place):
    def consume(number):
        return messages(5) if number == 1 else messages(1, first=6)

    broker = FakeBroker(consume=consume)
    serve(place, broker, WAITS, mode="guard")
    until(lambda: state(place)["in_flight"] == 5)
    broker.cut()
    until(lambda: state(place)["in_flight"] == 6)
    for i in range(1, 6):
        place.write(f"m{i}", "")
    until(lambda: len(place.read("log.out").split()) == 5)
    until(lambda: state(place)["accepted"] == 5)
    equal(broker.settled, [])
    place.write("m6", "")
    until(lambda: broker.settled)
    equal(broker.settled, [(2, "ack", 1, True)])
    broker.stop()


GOOD = FakeBroker.message(1, "good")
HOSTILE = [
    ("a tag that was left out", FakeBroker.message(2, "bad")),
    ("the same tag again", GOOD + GOOD),
    ("a delivery inside another one", FakeBroker.deliver(1) + FakeBroker.deliver(2)),
    ("a header without a delivery", FakeBroker.header(1, b"bad")),
    ("two headers", FakeBroker.deliver(1) + FakeBroker.header(1, b"bad") * 2),
    ("a body without a header", FakeBroker.deliver(1) + FakeBroker.frame(3, b"x")),
    ("a body that is too long", FakeBroker.deliver(1) + FakeBroker.header(1, b"bad") +
     FakeBroker.frame(3, b"xx")),
    ("a frame that says it has 2 GB", FakeBroker.frame(3, b"x", 2 ** 31)),
    ("a frame without its end", FakeBroker.deliver(1)[:-1] + b"\x00"),
    ("properties that are cut", FakeBroker.deliver(1) +
     FakeBroker.frame(2, b"\x00\x3c\x00\x00" + b"\x00" * 8 + b"\xff\xf8\x05")),
    ("an unknown method", FakeBroker.method(1, 99, 99, b"x" * 30)),
    ("the end of the consumer", FakeBroker.method(1, 60, 30, b"\x07postern\x01")),
    ("more than the prefetch", b"".join(
        FakeBroker.message(i, "slow") for i in range(1, 6))),
]


@case("frames that no broker sends end the connection, and nothing is acknowledged")
def _(place):
    sent = []

    def consume(_):
        if len(sent) < len(HOSTILE):
            sent.append(HOSTILE[len(sent)][1])
            return sent[-1]
        return FakeBroker.message(1, "last")

    broker = FakeBroker(consume=consume)
    server = serve(place, broker, heartbeat="1s", prefetch=4)
    until(lambda: "last" in place.read("log.out").split())
    # Of the hostile ones these alone were complete before the lie.
    equal(set(place.read("log.out").split()) - {"good", "slow", "last"}, set())
    assert broker.connections > len(HOSTILE), broker.connections
    assert "tags with a gap" in server.stderr(), server.stderr()
    for number, kind, tag, _ in broker.settled:
        assert kind == "ack" and tag <= 4, (number, kind, tag)
    equal(server.stop(), 0)
    broker.stop()


def close(channel, code, text):
    """The broker closes a channel, or with 0 the connection."""
    class_id, method_id = (20, 40) if channel else (10, 50)
    return FakeBroker.method(channel, class_id, method_id, code.to_bytes(2, "big") +
                             bytes([len(text)]) + text + b"\x00" * 4)


@case("a channel and a connection that the broker closes are opened again")
def _(place):
    ends = [close(1, 406, b"PRECONDITION_FAILED - timeout on channel"),
            close(0, 320, b"CONNECTION_FORCED - broker forced it"), b""]
    broker = FakeBroker(consume=lambda number: messages(3) + ends[number - 1])
    server = serve(place, broker)
    until(lambda: (3, "ack", 3, True) in broker.settled)
    until(lambda: sorted(place.read("log.out").split()) == ["m1", "m2", "m3"])
    for says in ("closed the channel: PRECONDITION_FAILED - timeout",
                 "closed the connection: CONNECTION_FORCED"):
        assert says in server.stderr(), server.stderr()
    # On the closed ones nothing was acknowledged, or what was stored before.
    for number, kind, tag, _ in broker.settled:
        assert kind == "ack" and tag <= 3 and number <= 3, broker.settled
    equal(server.stop(), 0)
    broker.stop()


@case("an id that is no UTF-8 is quarantined, and acknowledged")
def _(place):
    bad = FakeBroker.deliver(1) + FakeBroker.header(1, b"\xff\xfe") + FakeBroker.frame(3, b"x")
    broker = FakeBroker(consume=lambda number: bad)
    serve(place, broker)
    until(lambda: state(place)["quarantined"] == 1)
    row, = place.ok("list", "--state", "poisoned", "--json").json()
    equal(row["last_error"], "the id is not valid UTF-8")
    until(lambda: broker.settled == [(1, "ack", 1, True)])
    broker.stop()


@case("the copy of a failed message does not expire before its retry")
def _(place):
    header = FakeBroker.header(1, b"m1", b"\x0560000", 0x0100)
    broker = FakeBroker(
        consume=lambda number: FakeBroker.deliver(1) + header + FakeBroker.frame(3, b"x"),
        script=lambda link, published: FakeBroker.ack(published))
    serve(place, broker, "exec: [/bin/false]", mode="guard", on_failed="retry")
    until(lambda: broker.settled)
    equal(broker.settled, [(1, "ack", 1, True)])
    equal([flags & 0x0180 for flags in broker.flags], [0x0080])
    broker.stop()


@case("a failed message whose headers leave no room for its retry is rejected")
def _(place):
    value = b"x" * 8144
    table = b"\x01h" + b"S" + len(value).to_bytes(4, "big") + value
    header = FakeBroker.header(1, b"long", len(table).to_bytes(4, "big") + table, 0x2000)
    assert 0 <= 8192 - len(header) < 20, len(header)
    broker = FakeBroker(frame=8192, consume=lambda number: (
        FakeBroker.deliver(1) + header + FakeBroker.frame(3, b"x") +
        FakeBroker.message(2, "short")), script=lambda link, published: FakeBroker.ack(published))
    serve(place, broker, "exec: [/bin/false]", mode="guard", on_failed="retry")
    until(lambda: len(broker.settled) == 2)
    equal(broker.settled, [(1, "reject", 1, False), (1, "ack", 2, True)])
    broker.stop()


@case("a broker whose bytes are damaged at random is survived")
def _(place):
    print(f"# SEED={SEED}")
    chance = random.Random(SEED)
    whole = (FakeBroker.deliver(1) +
             FakeBroker.header(4, b"bad", b"\x00\x00\x00\x12\x01aF\x00\x00\x00\x0b\x01bS\x00\x00\x00\x04text",
                               0x2000) + FakeBroker.frame(3, b"body"))

    def consume(number):
        if number > ROUNDS:
            return FakeBroker.message(1, "last")
        bytes_ = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)
        if chance.randrange(3) == 0:
            bytes_ = bytes_[:chance.randrange(len(bytes_))]
        return bytes(bytes_)

    broker = FakeBroker(consume=consume, ends=ROUNDS)
    server = serve(place, broker)
    until(lambda: "last" in place.read("log.out").split(), 300)
    equal(server.stop(), 0)
    broker.stop()


if __name__ == "__main__":
    main()
