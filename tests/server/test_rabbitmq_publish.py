#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Handlers that publish to RabbitMQ: what other clients receive, and the
outcome when the broker returns, refuses or is not there."""

import http.client
import json
import os
import socket
import threading

import rabbit
from fake_broker import FakeBroker
from support import PATIENCE_S, case, equal, main, until

# What the broker is configured to refuse.
LARGE = 300000

EVENT = {"specversion": "1.0", "id": "m1", "source": "/shop",
         "type": "order.placed", "subject": "o1", "extra": "x",
         "time": "2024-05-01T10:00:00Z", "data": {"a": 1}}


def outbox(place, handlers, more="", source="", serve=None):
    place.configure(f"""\
store: sqlite:box.db
{more}channels:
  out:
{source}    handlers:
{handlers}""")
    return place.serve(**(serve or {}))


def post(server, headers):
    """Sends a message over HTTP."""
    client = http.client.HTTPConnection(server.url[len("http://"):], timeout=PATIENCE_S)
    client.request("POST", "/v1/channels/out/messages", b"body", headers)
    equal(client.getresponse().status, 202)
    client.close()


def send(place, events):
    lines = "".join(json.dumps(event) + "\n" for event in events)
    place.ok("send", "out", "--lines", "-", stdin=lines)


@case("a message is published as a CloudEvent, and keeps its id")
def _(place):
    queue = rabbit.queue()
    outbox(place, rabbit.publisher(routing_key=queue.name))
    send(place, [EVENT])
    until(lambda: place.state("m1", "mirror") == "done")
    properties, body = queue.get()
    equal(json.loads(body), {"a": 1})
    equal(properties.message_id, "m1")
    equal(properties.type, "order.placed")
    equal(properties.content_type, "application/json")
    equal(properties.delivery_mode, 2)
    equal(properties.timestamp, 1714557600)
    equal(properties.headers, {
        "cloudEvents_" + name: EVENT[name]
        for name in ("specversion", "id", "source", "type", "subject", "time",
                     "extra")})


@case("a message without a type is published with its properties only")
def _(place):
    queue = rabbit.queue()
    first = rabbit.queue()
    first.put(b"body", message_id="m1", headers={"a": "b"})
    outbox(place, rabbit.publisher(routing_key=queue.name),
           source=f"    sources: [{rabbit.source(first.name)}]\n")
    until(queue.count)
    properties, body = queue.get()
    equal((body, properties.message_id, properties.headers),
          (b"body", "m1", {"a": "b"}))


@case("headers of a message do not become attributes that it has not")
def _(place):
    first, queue = rabbit.queue(), rabbit.queue()
    spoofed = {"ce-id": "m2", "CE-Source": "/other", "ce-specversion": "0.3", "ce-extra": "x"}
    outbox(place, rabbit.publisher(routing_key=queue.name),
           source=f"    sources: [{rabbit.source(first.name)}]\n")
    first.put(b"body", message_id="m1", type="t", headers={**spoofed, "a": "b"})
    until(queue.count)
    properties, _ = queue.get()
    headers = {name: value for name, value in properties.headers.items()
               if name != "cloudEvents_source"}
    equal(headers, {"cloudEvents_specversion": "1.0", "cloudEvents_id": "m1",
                    "cloudEvents_type": "t", "cloudEvents_extra": "x", "a": "b"})


@case("the routing key is made of the message, and the exchange routes it")
def _(place):
    queue = rabbit.queue()
    with rabbit.server.client() as channel:
        channel.exchange_declare("shop", "topic", durable=True)
        channel.queue_bind(queue.name, "shop", "eu.order.*.o1")
    outbox(place, rabbit.publisher(
        "shop", routing_key='"{header:region}.{type}.{subject}"'))
    place.send("m1", "x", "--type", "order.placed", "--subject", "o1",
               "--header", "region=eu", channel="out")
    until(lambda: place.state("m1", "mirror") == "done")
    assert queue.get()


@case("a message that no queue gets has failed, with the reason")
def _(place):
    outbox(place, rabbit.publisher("amq.direct").replace(
        "}}}", "}}, max_attempts: 1}"))
    place.send("m1", "x", "--type", "nobody", channel="out")
    until(lambda: place.state("m1", "mirror") == "poisoned")
    text = place.delivery("m1", "mirror")["last_error"]
    assert "NO_ROUTE" in text and "'amq.direct'" in text and "'nobody'" in text, text


@case("among many messages those that are returned fail, and no others")
def _(place):
    queue = rabbit.queue()
    outbox(place, rabbit.publisher(routing_key='"{type}"').replace(
        "}}}", "}}, max_attempts: 1}"))
    events = [{**EVENT, "id": f"m{i}", "source": f"/s{i % 3}",
               "type": queue.name if i % 7 else "nobody"} for i in range(700)]
    # Of two messages with one id, one is returned.
    events += [{**EVENT, "id": "twin", "source": "/a", "type": "nobody"},
               {**EVENT, "id": "twin", "source": "/b", "type": queue.name}]
    send(place, events)

    def counts():
        row = place.ok("stats", "--json").json()["handlers"][0]
        return row["done"], row["poisoned"]

    until(lambda: sum(counts()) == 702)
    equal(counts(), (601, 101))
    equal(queue.count(), 601)
    rows = place.ok("list", "--state", "poisoned", "--limit", "1000",
                    "--json").json()
    equal({row["type"] for row in rows}, {"nobody"})


@case("a message that is returned has failed, whatever its id and headers are")
def _(place):
    queue = rabbit.queue()
    server = outbox(place, rabbit.publisher(routing_key='"{header:to}"').replace(
        "}}}", "}}, max_attempts: 1}"), serve={"tcp": True})
    event = {"ce-specversion": "1.0", "ce-source": "/shop", "ce-type": "t"}
    snowmen = "\N{SNOWMAN}" * 90  # more bytes than a property has room for
    words = [
        ({"X-Message-Id": snowmen}, {}),
        ({"X-Message-Id": "m1"}, {"cloudEvents_id": "another"}),
        ({"ce-id": "m2"}, {**event, "cloudEvents_id": "another"}),
        ({"ce-id": "m3"}, {**event, "cloudEvents_source": "/another"}),
    ]
    for key, more in words:
        (name, message_id), = key.items()
        for suffix, to, wanted in (("-a", queue.name, "done"), ("-b", "nobody", "poisoned")):
            headers = {name: (message_id + suffix).encode(), "to": to, **more}
            post(server, headers)
            until(lambda key=message_id + suffix: place.state(key, "mirror")
                  in ("done", "poisoned"))
            equal(place.state(message_id + suffix, "mirror"), wanted)
    for _ in words:
        properties, _ = queue.get()
        assert "another" not in str(properties.headers), properties.headers


@case("a message that is dropped by the broker is done if that is wanted")
def _(place):
    outbox(place, rabbit.publisher("amq.direct", on_unroutable="drop"))
    place.send("m1", "x", "--type", "nobody", channel="out")
    until(lambda: place.state("m1", "mirror") == "done")


@case("what can never be published is poisoned at once")
def _(place):
    queue = rabbit.queue()
    outbox(place, rabbit.publisher(routing_key=f'"{queue.name}{{header:long}}"'))
    place.send("m1", "x", "--header", "long=" + "x" * 300, channel="out")
    place.send("m2", "x", channel="out")
    until(lambda: place.state("m1", "mirror") == "poisoned")
    until(lambda: place.state("m2", "mirror") == "done")
    assert "routing key" in place.delivery("m1", "mirror")["last_error"]


@case("an exchange that does not exist holds the handler, and costs no attempt")
def _(place):
    queue = rabbit.queue()
    name = f"x-{queue.name}"
    outbox(place, rabbit.publisher(name, routing_key="k"))
    place.send("m1", "x", "--type", "t", channel="out")
    until(lambda: "NOT_FOUND" in (place.delivery("m1", "mirror")["last_error"] or ""))
    with rabbit.server.client() as channel:
        channel.exchange_declare(name, "direct")
        channel.queue_bind(queue.name, name, "k")
    until(lambda: place.state("m1", "mirror") == "done")
    equal(place.delivery("m1", "mirror")["failures"], 0)
    equal(queue.count(), 1)


@case("a message that the broker finds too large is poisoned, and no other")
def _(place):
    queue = rabbit.queue()
    outbox(place, rabbit.publisher(routing_key=queue.name))
    lines = [{**EVENT, "id": f"m{i}", "data": "x" * (LARGE if i == 50 else 10)}
             for i in range(100)]
    send(place, lines)
    until(lambda: place.state("m50", "mirror") == "poisoned")
    assert "message size" in place.delivery("m50", "mirror")["last_error"]
    until(lambda: done(place) == 99)
    rows = place.ok("list", "--json", "--limit", "1000", "--state", "done").json()
    equal({row["failures"] for row in rows}, {0})


@case("a broker that takes no messages holds the handler, and costs no attempt")
def _(place):
    queue = rabbit.queue()
    outbox(place, rabbit.publisher(routing_key=queue.name))
    place.send("before", "x", channel="out")
    until(lambda: place.state("before", "mirror") == "done")
    rabbit.server.control("set_vm_memory_high_watermark", "absolute", "1024")
    try:
        send(place, [{**EVENT, "id": f"m{i}"} for i in range(50)])
        until(lambda: any("takes no messages now" in (row["last_error"] or "")
                          for row in place.ok("list", "--json").json()))
    finally:
        rabbit.server.control("set_vm_memory_high_watermark", "absolute", "1000000000")
    until(lambda: done(place) == 51)
    rows = place.ok("list", "--json", "--limit", "100").json()
    equal({row["failures"] for row in rows}, {0})


def script_case(place, script, count=10, more="", **options):
    broker = FakeBroker(script)
    outbox(place, rabbit.publisher(url=broker.url(), **options).replace(
        "}}}", "}}, backoff: [10ms], timeout: 2m}"), more)
    send(place, [{**EVENT, "id": f"m{i}"} for i in range(1, count + 1)])
    return broker


def done(place):
    return place.ok("stats", "--json").json()["handlers"][0]["done"]


@case("confirms in any order, and with multiple, are taken for their messages")
def _(place):
    held = threading.Event()

    def script(_, published):
        if published < 10:
            return None
        held.wait(60)
        ack = FakeBroker.ack
        # 7, then 3, all up to 5, again 7, and the rest.
        return ack(7) + ack(3) + ack(5, True) + ack(6) + ack(0, True)

    broker = script_case(place, script)
    until(lambda: place.ok("stats", "--json").json()["handlers"][0]["running"] == 10)
    equal(done(place), 0)
    held.set()
    until(lambda: done(place) == 10)
    equal(broker.connections, 1)
    broker.stop()


@case("a message that the broker refuses is published again")
def _(place):
    def script(_, published):
        return FakeBroker.ack(published, nack=published == 3)

    broker = script_case(place, script)
    until(lambda: done(place) == 10)
    failed = [row for row in place.ok("list", "--json", "--limit", "50").json()
              if row["failures"]]
    equal(len(failed), 1)
    broker.stop()


@case("a message that is not confirmed in time is published again, and confirmed once")
def _(place):
    # The confirm of the first comes too late, together with that of the second.
    broker = FakeBroker(lambda _, published: FakeBroker.ack(2, True)
                        if published == 2 else None)
    outbox(place, rabbit.publisher(url=broker.url()).replace(
        "}}}", "}}, backoff: [10ms], timeout: 500ms}"))
    send(place, [{**EVENT, "id": "m1"}])
    until(lambda: place.state("m1", "mirror") == "done")
    row = place.delivery("m1", "mirror")
    equal(row["failures"], 1)
    assert "not confirmed the message in time" in row["last_error"], row
    equal(broker.connections, 1)
    broker.stop()


@case("a confirm of what was never published ends the connection")
def _(place):
    lies = [True]

    def script(_, published):
        if published == 10 and lies:
            lies.clear()
            return FakeBroker.ack(99)
        return None if lies else FakeBroker.ack(published)

    broker = script_case(place, script)
    until(lambda: done(place) == 10)
    assert broker.connections > 1
    broker.stop()


@case("a connection that is lost with many outstanding costs no attempt")
def _(place):
    lost = []

    def script(link, published):
        if published == 500 and not lost:
            lost.append(True)
            link.shutdown(socket.SHUT_RDWR)
            return None
        return FakeBroker.ack(published) if lost else None

    broker = script_case(place, script, 500)
    until(lambda: done(place) == 500)
    rows = place.ok("list", "--json", "--limit", "1000").json()
    equal({row["failures"] for row in rows}, {0})
    broker.stop()


GARBAGE = [b"\x01\x00\x01\x7f\xff\xff\xff", b"\x00" * 40, os.urandom(400),
           b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\xff\xff\xce",
           b"\x02\x00\x01\x00\x00\x00\x0e" + b"\x00\x3c" + b"\x00" * 12 + b"\xce",
           b"\x03\x00\x01\x00\x00\x00\x01x\xce",
           FakeBroker.method(1, 60, 50, b"\x01\x38\xff")]


@case("frames that are garbage end the connection, and nothing else")
def _(place):
    sent = []

    def script(_, published):
        if len(sent) < len(GARBAGE):
            sent.append(True)
            return GARBAGE[len(sent) - 1]
        return FakeBroker.ack(published)

    # Some of it may be the beginning of a frame: then nothing more comes.
    broker = script_case(place, script, 3, heartbeat="1s")
    until(lambda: done(place) == 3)
    equal(place.started[0].stop(), 0)
    broker.stop()


@case("a server that stops returns what is not confirmed")
def _(place):
    broker = script_case(place, lambda link, published: None,
                         more="shutdown_grace: 100ms\n")
    until(lambda: place.ok("stats", "--json").json()["handlers"][0]["running"] == 10)
    equal(place.started[0].stop(), 0)
    rows = place.ok("list", "--json", "--limit", "50").json()
    equal({(row["state"], row["failures"]) for row in rows}, {("pending", 0)})
    broker.stop()


@case("settings that can never work are refused")
def _(place):
    for settings, says in [
        ("{exchange: x}", "url"),
        ("{url: 'http://h/'}", "URL of RabbitMQ"),
        ("{url: 'amqp://h/', routing_key: '{nothing}'}", "{nothing}"),
        ("{url: 'amqp://h/', ca_file: /x}", "amqps"),
        ("{url: 'amqp://h/', other: 1}", "other"),
    ]:
        place.configure(f"""\
store: sqlite:box.db
channels: {{out: {{handlers: {{m: {{publish: {{rabbitmq: {settings}}}}}}}}}}}
""")
        place.fails(2, "check", says=says)
    place.configure("""\
store: sqlite:box.db
channels: {out: {handlers: {m: {publish: {rabbit: {url: "amqp://h/"}}}}}}
""")
    place.fails(2, "check", says="'publish' needs one target, as in {rabbitmq: {url: "
                "URL}}, {http: {url: URL}} or {channel: NAME}")


rabbit.main(main, config=f"max_message_size = {LARGE - 1}\n")
