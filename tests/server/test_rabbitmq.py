#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A queue of RabbitMQ as a source: what becomes of the messages that other
clients publish, and of what cannot be a message."""

import json
import os

import rabbit
from support import case, equal, main, until


def serve(place, queue, handler=rabbit.LOG, more="", **options):
    place.configure(
        rabbit.inbox([rabbit.source(queue.name, **options)], handler, more=more))
    return place.serve()


def headers(message):
    return {header["name"]: header["value"] for header in message["headers"]}


@case("a CloudEvent in headers is accepted, with either prefix")
def _(place):
    queue = rabbit.queue()
    for prefix in ("cloudEvents_", "cloudEvents:"):
        event = {
            "specversion": "1.0", "id": f"{prefix}1", "source": "/shop",
            "type": "order.placed", "subject": "o1", "extra": 7,
            "time": "2024-05-01T10:00:00Z", "correlationid": "c1",
        }
        queue.put(b"{}", content_type="application/json", message_id="other",
                  headers={**{prefix + n: v for n, v in event.items()}, "h": "1"})
    serve(place, queue)
    rabbit.await_accepted(place, 2)
    for prefix in ("cloudEvents_", "cloudEvents:"):
        message = place.show(f"{prefix}1")
        for name, wanted in {
            "source": "/shop", "type": "order.placed", "subject": "o1",
            "time": "2024-05-01T10:00:00Z", "content_type": "application/json",
            "correlation_id": "c1", "transport": "rabbitmq",
        }.items():
            equal(message[name], wanted, name)
        equal(headers(message), {"ce-extra": "7", "h": "1"})


@case("a CloudEvent in JSON is accepted, and its data is the body")
def _(place):
    queue = rabbit.queue()
    event = {"specversion": "1.0", "id": "s1", "source": "/shop", "type": "t",
             "data": {"a": 1}}
    queue.put(json.dumps(event).encode(), correlation_id="c7",
              content_type="application/cloudevents+json; charset=utf-8")
    serve(place, queue)
    rabbit.await_accepted(place, 1)
    message = place.show("s1")
    equal(message["source"], "/shop")
    equal(message["correlation_id"], "c7")
    equal(message["content_type"], "application/json")


@case("the properties of any other message are its attributes")
def _(place):
    queue = rabbit.queue()
    queue.put(b"\x00\xff", message_id="p1", correlation_id="c1", type="t.x",
              timestamp=1714557600, content_type="text/plain",
              content_encoding="gzip",
              headers={"traceparent": "00-1-2-01", "n": -5, "flag": True,
                       "list": [1, "a", {"b": None}], "nothing": None})
    queue.put(b"", message_id="p2", timestamp=1714557600000)
    serve(place, queue, source="/legacy")
    rabbit.await_accepted(place, 2)
    message = place.show("p1")
    for name, wanted in {
        "source": "/legacy", "type": "t.x", "correlation_id": "c1",
        "time": "2024-05-01T10:00:00.000Z", "content_type": "text/plain",
        "traceparent": "00-1-2-01",
    }.items():
        equal(message[name], wanted, name)
    equal(headers(message), {"n": "-5", "flag": "true",
                             "list": '[1,"a",{"b":null}]',
                             "content-encoding": "gzip"})
    # A time in milliseconds is no time: it is kept as it is.
    message = place.show("p2")
    equal(message.get("time"), None)
    assert "1714557600000" in json.dumps(message["headers"]), message


@case("a message that is published twice is handled once")
def _(place):
    queue = rabbit.queue()
    serve(place, queue)
    queue.put_all([(b"x", {"message_id": f"m{i % 50}", "type": "t"})
                   for i in range(100)])
    until(lambda: rabbit.state(place)["duplicates"] == 50)
    until(lambda: len(place.read("log.out").split()) == 50)
    equal(queue.count(), 0)


BAD = [
    ("without an id", b"x", {}),
    ("without an id as a CloudEvent", b"x",
     {"headers": {"cloudEvents:specversion": "1.0", "cloudEvents:type": "t"}}),
    ("with another version of CloudEvents", b"x",
     {"headers": {"cloudEvents:specversion": "0.3", "cloudEvents:id": "1",
                  "cloudEvents:source": "s", "cloudEvents:type": "t"}}),
    ("with an attribute that is given twice", b"x",
     {"headers": {"cloudEvents:specversion": "1.0", "cloudEvents:id": "1",
                  "cloudEvents_id": "1", "cloudEvents:source": "s",
                  "cloudEvents:type": "t"}}),
    ("with a body that is no JSON", b"{", {
        "content_type": "application/cloudevents+json"}),
    ("with a batch of events", b"[]", {
        "content_type": "application/cloudevents-batch+json"}),
    ("with too many headers", b"x", {
        "message_id": "h", "headers": {f"h{i}": i for i in range(10000)}}),
    ("with a header of several lines", b"x", {
        "message_id": "l", "headers": {"trace": "a\nb"}}),
    ("with an id that has a control character", b"x", {"message_id": "a\x01"}),
    ("with a header that is too deep", b"x", {
        "message_id": "d", "headers": {"deep": "see below"}}),
    ("with a body over the limit", b"x" * 2000, {"message_id": "big"}),
]


def deepen(properties):
    deep = []
    for _ in range(300):
        deep = [deep]
    return {**properties, "headers": {"deep": [deep, "x" * 9000]}}


def with_dead_letters():
    dead = rabbit.queue()
    return rabbit.queue(**{"x-dead-letter-exchange": "",
                           "x-dead-letter-routing-key": dead.name}), dead


def put_bad(queue):
    """Each of the bad ones, and a good one after it."""
    messages = []
    for what, body, properties in BAD:
        if "deep" in what:
            properties = deepen(properties)
        messages += [(body, properties),
                     (b"good", {"message_id": f"after-{len(messages)}"})]
    queue.put_all(messages)


def poisoned(place):
    return place.ok("list", "--state", "poisoned", "--json").json()


@case("what cannot be accepted is quarantined with its reason, and no handler runs")
def _(place):
    queue, dead = with_dead_letters()
    put_bad(queue)
    serve(place, queue, more="    max_message_size: 1KiB\n")
    until(lambda: rabbit.state(place)["quarantined"] == len(BAD))
    equal(rabbit.state(place)["rejected"], len(BAD))
    until(lambda: len(place.read("log.out").split()) == len(BAD))
    assert "quarantine" not in place.read("log.out")
    rows = poisoned(place)
    equal(len(rows), len(BAD))
    reasons = " | ".join(row["last_error"] for row in rows)
    for says in ("the id is empty", "specversion is not", "given twice",
                 "+json, or with", "10000 headers", "control character",
                 "the limit of channel 'in'", "value of a header"):
        assert says in reasons, (says, reasons)
    kept = [place.show(row["message_id"]) for row in rows]
    equal(sorted(message["headers"][0]["name"] for message in kept),
          ["postern-quarantine-reason"] * len(BAD))
    big = next(m for m in kept if headers(m).get("postern-quarantine-id") == "big")
    equal(place.ok("show", big["id"], "--body").out.strip(), "x" * 2000)
    place.started[0].stop()
    equal((queue.count(), dead.count()), (0, 0))
    assert '"source_quarantined"' in place.started[0].stderr()


@case("a copy of what is quarantined is a duplicate, and a retry runs it")
def _(place):
    queue = rabbit.queue()
    serve(place, queue)
    queue.put_all([(b"x", {"type": "t"})] * 3 + [(b"y", {"type": "t"})])
    until(lambda: rabbit.state(place)["quarantined"] == 2)
    until(lambda: rabbit.state(place)["duplicates"] == 2)
    equal(len(poisoned(place)), 2)
    equal(place.read("log.out"), "")
    place.ok("retry", poisoned(place)[0]["message_id"])
    until(lambda: place.read("log.out").startswith("quarantine:"))


@case("what no handler wants is parked in a channel that rejects it")
def _(place):
    queue, dead = with_dead_letters()
    text = rabbit.inbox([rabbit.source(queue.name)], more="    unrouted: reject\n")
    place.configure(text.replace("exec:", "types: [a.*]\n        exec:"))
    place.serve()
    queue.put_all([(b"1", {"message_id": "m1", "type": "b.x"}),
                   (b"2", {"message_id": "m2", "type": "a.x"})])
    until(lambda: rabbit.state(place)["quarantined"] == 1)
    until(lambda: place.read("log.out").split() == ["m2"])
    rows = place.ok("list", "--state", "parked", "--json").json()
    equal([row["message_id"] for row in rows], ["m1"])
    place.started[0].stop()
    equal((queue.count(), dead.count()), (0, 0))


@case("a channel that stores nothing rejects what it would quarantine")
def _(place):
    for mode in ("guard", "direct"):
        queue, dead = with_dead_letters()
        queue.put_all([(b"x", {"message_id": "a\x01"}), (b"x", {"message_id": "b"})])
        server = serve(place, queue, more=f"    mode: {mode}\n")
        until(lambda: dead.count() == 1)
        until(lambda: queue.count() == 0)
        equal(rabbit.state(place)["quarantined"], 0)
        server.stop()


@case("what cannot be accepted is rejected if the source says so")
def _(place):
    queue, dead = with_dead_letters()
    put_bad(queue)
    serve(place, queue, more="    max_message_size: 1KiB\n", on_unacceptable="reject")
    rabbit.await_accepted(place, len(BAD))
    until(lambda: rabbit.state(place)["rejected"] == len(BAD))
    until(lambda: dead.count() == len(BAD))
    equal(queue.count(), 0)
    assert '"source_rejected"' in place.started[0].stderr()


@case("what cannot be accepted is dropped if the source says so")
def _(place):
    dead = rabbit.queue()
    queue = rabbit.queue(**{
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name})
    serve(place, queue, on_unacceptable="drop")
    queue.put_all([(b"x", {}), (b"x", {"message_id": "m"}), (b"x", {})])
    until(lambda: rabbit.state(place)["rejected"] == 2)
    rabbit.await_accepted(place, 1)
    place.started[0].stop()
    equal((queue.count(), dead.count()), (0, 0))


@case("another body with the same id is a conflict, and is quarantined")
def _(place):
    queue, dead = with_dead_letters()
    serve(place, queue)
    queue.put_all([(body, {"message_id": "m"}) for body in (b"a", b"b", b"b")])
    until(lambda: rabbit.state(place)["conflicts"] == 1)
    until(lambda: rabbit.state(place)["duplicates"] == 1)
    equal(rabbit.state(place)["quarantined"], 1)
    row, = poisoned(place)
    assert "another body" in row["last_error"], row
    equal(headers(place.show(row["message_id"]))["postern-quarantine-id"], "m")
    equal(place.ok("show", row["message_id"], "--body").out.strip(), "b")
    equal(place.read("log.out").split(), ["m"])
    place.started[0].stop()
    equal((queue.count(), dead.count()), (0, 0))


@case("a message without an id is accepted where the key is something else")
def _(place):
    queue = rabbit.queue()
    serve(place, queue, more="    key: json:/order\n")
    queue.put_all([(b'{"order": 1}', {}), (b'{"order": 2}', {}),
                   (b'{"order": 1}', {})])
    rabbit.await_accepted(place, 2)
    until(lambda: rabbit.state(place)["duplicates"] == 1)


@case("what the broker refuses is said, and tried again")
def _(place):
    queue = rabbit.queue()
    good = rabbit.server.url()
    missing = f"missing-{queue.name}"
    sources = [
        f"{{name: none, {rabbit.source(missing)[1:]}",
        f"{{name: user, {rabbit.source(queue.name, rabbit.server.url('nobody'))[1:]}",
        f"{{name: vhost, {rabbit.source(queue.name, good + 'nowhere')[1:]}",
        f"{{name: port, {rabbit.source(queue.name, 'amqp://127.0.0.1:1/')[1:]}",
    ]
    place.configure(rabbit.inbox(sources))
    place.serve()
    for name, says in [("none", f"no queue '{missing}'"),
                       ("user", "ACCESS_REFUSED"),
                       ("vhost", "nowhere"), ("port", "cannot connect")]:
        until(lambda: rabbit.state(place, name)["last_error"])
        text = rabbit.state(place, name)["last_error"]
        assert says in text and "guest" not in text, text
    with rabbit.server.client() as channel:
        channel.queue_declare(missing, durable=True)
    until(lambda: rabbit.state(place, "none")["connected"])


@case("a user without rights is refused, in a vhost and on a queue")
def _(place):
    queue = rabbit.queue()
    queue.put(message_id="m1")
    rabbit.server.control("add_vhost", "closed")
    rabbit.server.control("add_user", "clerk", "s3cret")
    rabbit.server.control("set_permissions", "clerk", "", "", "")
    url = rabbit.server.url("clerk", "s3cret")
    place.configure(rabbit.inbox([
        f"{{name: vhost, {rabbit.source(queue.name, url + 'closed')[1:]}",
        f"{{name: queue, {rabbit.source(queue.name, url)[1:]}"]))
    server = place.serve()
    for name, says in [("vhost", "'closed'"), ("queue", f"'{queue.name}'")]:
        until(lambda: rabbit.state(place, name)["last_error"])
        text = rabbit.state(place, name)["last_error"]
        assert says in text and "refused" in text.lower(), text
        assert "s3cret" not in server.stderr()
    equal(queue.count(), 1)
    rabbit.server.control("set_permissions", "clerk", "", "", ".*")
    rabbit.await_accepted(place, 1)
    equal(server.stop(), 0)


@case("a queue that is deleted is consumed from again once it is back")
def _(place):
    queue = rabbit.queue()
    server = serve(place, queue)
    queue.put(message_id="m1")
    rabbit.await_accepted(place, 1)
    with rabbit.server.client() as channel:
        channel.queue_delete(queue.name)
        until(lambda: "ended the consumer: queue" in server.stderr())
        until(lambda: "no queue" in (rabbit.state(place)["last_error"] or ""))
        channel.queue_declare(queue.name, durable=True)
    queue.put(message_id="m2")
    rabbit.await_accepted(place, 2)
    equal(server.stop(), 0)


@case("two channels read two queues, each its own")
def _(place):
    queues = [rabbit.queue(), rabbit.queue()]
    text = rabbit.inbox([rabbit.source(queues[0].name)])
    place.configure(text + "  other:\n    sources:\n      - " + rabbit.source(
        queues[1].name) + "\n    handlers:\n      too: {sql: select 1}\n")
    place.serve()
    for number, queue in enumerate(queues):
        queue.put_all([(b"x", {"message_id": f"m{number}-{i}", "type": "t"})
                       for i in range(100 + number)])
    rabbit.await_accepted(place, 100)
    rabbit.await_accepted(place, 101, "other")
    equal(rabbit.accepted(place), 100)
    equal([rabbit.state(place, f"{name}.rabbitmq")["accepted"]
           for name in ("in", "other")], [100, 101])


@case("of several hosts one that answers is used")
def _(place):
    queue = rabbit.queue()
    url = f"amqp://guest:guest@127.0.0.1:1,127.0.0.1:{rabbit.server.port}/"
    place.configure(rabbit.inbox([rabbit.source(queue.name, url)]))
    place.serve()
    queue.put(message_id="m")
    rabbit.await_accepted(place, 1)


@case("a source declares what is missing, and what it rejects is kept")
def _(place):
    name = f"declared-{rabbit.queue().name}"
    source = rabbit.source(
        name, declare="on", exchange=f"x-{name}", binding_keys='"a.*,b"',
        on_unacceptable="reject")
    place.configure(rabbit.inbox([source]))
    for _ in range(2):  # the second time it all exists
        server = place.serve()
        until(lambda: rabbit.state(place)["connected"])
        with rabbit.server.client() as channel:
            for key, message_id in [("a.x", "m1"), ("b", "m2"), ("b", None)]:
                channel.basic_publish(
                    f"x-{name}", key, b"x", rabbit.pika.BasicProperties(
                        message_id=message_id, delivery_mode=2), mandatory=True)
        rabbit.await_accepted(place, 2)
        until(lambda: rabbit.state(place)["rejected"] == 1)
        server.stop()
    until(lambda: rabbit.server.count(f"{name}.dlq") == 2)
    # As a quorum queue, which another declaration must not contradict.
    place.configure(rabbit.inbox([source.replace("on,", "on, queue_type: classic,")]))
    place.serve()
    until(lambda: "PRECONDITION_FAILED" in (rabbit.state(place)["last_error"] or ""))


@case("a source does not declare what it was not told to")
def _(place):
    place.configure(rabbit.inbox([rabbit.source("q", exchange="x")]))
    place.fails(2, "check", says="'declare: on'")
    long = "q" * 252
    place.configure(rabbit.inbox([rabbit.source(long, declare="on")]))
    place.fails(2, "check", says="dead_letters: off")
    place.configure(rabbit.inbox(
        [rabbit.source(long, declare="on", dead_letters="off")]))
    place.ok("check")


@case("check and the log warn of a source whose rejected messages are lost")
def _(place):
    for options, says in [
        ({"on_unacceptable": "reject"}, "unless queue 'q' has a dead-letter exchange"),
        ({"on_failed": "retry", "declare": "on", "dead_letters": "off"},
         "has no dead-letter exchange; set 'dead_letters: on'"),
        ({}, None),
        ({"on_failed": "retry", "declare": "on"}, None),
    ]:
        place.configure(rabbit.inbox([rabbit.source("q", **options)]))
        result = place.ok("check")
        text = result.out + result.err
        assert (says or "rejected is lost") in text if says else (
            "rejected is lost" not in text), text
        assert "note: RabbitMQ is not asked: " in result.out, result
        server = place.serve()
        equal("rejected is lost" in server.stderr(), says is not None)
        server.stop()


@case("of several sources each one is warned of, once")
def _(place):
    inbox = rabbit.inbox([rabbit.source("a"), rabbit.source("b", on_unacceptable="reject")])
    other = "  other:\n    sources:\n      - " + rabbit.source(
        "c", on_unacceptable="reject") + "\n"
    for text, names in ((inbox, "b"), (inbox + other, "bc")):
        place.configure(text)
        result = place.ok("check")
        for name in "abc":
            equal((result.out + result.err).count(f"unless queue '{name}' has"),
                  int(name in names), name)


FLAKY = ("exec: [/bin/sh, -c, 'echo x >> ${DIR}/runs.out; "
         "test -e ${DIR}/good']")


@case("in a guard a message whose handler failed runs again, and is not lost")
def _(place):
    dead = rabbit.queue()
    queue = rabbit.queue(**{
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name})
    queue.put(message_id="m1")
    serve(place, queue, FLAKY, more="    mode: guard\n")
    until(lambda: len(place.read("runs.out").split()) >= 3)
    place.write("good", "")
    until(lambda: rabbit.state(place)["accepted"] == 1)
    place.started[0].stop()
    equal((queue.count(), dead.count()), (0, 0))


@case("in a guard the broker's dead letters are in charge if the source says so")
def _(place):
    dead = rabbit.queue()
    queue = rabbit.queue(**{
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name})
    queue.put(message_id="m1")
    serve(place, queue, FLAKY, more="    mode: guard\n", on_failed="reject")
    until(lambda: dead.count() == 1)
    equal(place.read("runs.out").split(), ["x"])
    equal(queue.count(), 0)


def serve_retry(place, name, handler=FLAKY, **options):
    source = rabbit.source(name, declare="on", on_failed="retry",
                           retry_delay="100ms", **options)
    place.configure(rabbit.inbox([source], handler, more="    mode: guard\n"))
    server = place.serve()
    until(lambda: rabbit.state(place)["connected"])
    return server


def publish(name, body, **properties):
    with rabbit.server.client() as channel:
        channel.basic_publish("", name, body, rabbit.pika.BasicProperties(
            delivery_mode=2, **properties))


@case("in a guard a failed message takes the retry queue, then the dead letters")
def _(place):
    for queue_type in ("quorum", "classic"):
        name = f"retried-{rabbit.queue().name}"
        place.write("runs.out", "")
        server = serve_retry(place, name, max_retries=3, queue_type=queue_type)
        publish(name, b"body", message_id="m1", app_id="shop", user_id="guest",
                expiration="60000", headers={"a": [1, {"b": True}], "CC": [name]})
        dead = f"{name}.dlq"
        until(lambda: rabbit.server.count(dead) == 1)
        equal(place.read("runs.out").split(), ["x"] * 4)
        until(lambda: rabbit.state(place)["dead_letters"] == 1)
        equal((rabbit.server.count(name), rabbit.server.count(f"{name}.retry")), (0, 0))
        assert "given up after 4 attempts" in server.stderr(), server.stderr()
        with rabbit.server.client() as channel:
            _, properties, body = channel.basic_get(dead, True)
        equal((body, properties.message_id, properties.app_id), (b"body", "m1", "shop"))
        equal(properties.headers["a"], [1, {"b": True}])
        equal(properties.headers["x-postern-retries"], 3)
        server.stop()


@case("a broker that takes no messages delays a retry, and loses nothing")
def _(place):
    name = f"retried-{rabbit.queue().name}"
    server = serve_retry(place, name, max_retries=1000)
    for i in range(5):
        publish(name, b"x", message_id=f"m{i}")
    until(lambda: len(place.read("runs.out").split()) > 10)
    rabbit.server.control("set_vm_memory_high_watermark", "absolute", "1024")
    try:
        place.write("good", "")
    finally:
        rabbit.server.control("set_vm_memory_high_watermark", "absolute", "1000000000")
    until(lambda: rabbit.state(place)["accepted"] == 5)
    until(lambda: rabbit.server.count(name) == 0)
    equal([rabbit.server.count(f"{name}{end}") for end in (".retry", ".dlq")], [0, 0])
    equal(server.stop(), 0)


@case("a message that works in a later attempt is done, and others do not wait for it")
def _(place):
    name = f"retried-{rabbit.queue().name}"
    serve_retry(place, name, handler=(
        "exec: [/bin/sh, -c, 'echo $CE_ID >> ${DIR}/runs.out; "
        "test $CE_ID != bad || test -e ${DIR}/good']"), max_retries=1000)
    publish(name, b"x", message_id="bad")
    until(lambda: place.read("runs.out").split().count("bad") >= 2)
    for i in range(20):
        publish(name, b"x", message_id=f"m{i}")
    until(lambda: len(set(place.read("runs.out").split())) == 21)
    place.write("good", "")
    until(lambda: rabbit.state(place)["accepted"] == 21)
    equal(place.started[0].stop(), 0)
    equal([rabbit.server.count(f"{name}{end}") for end in ("", ".retry", ".dlq")],
          [0, 0, 0])


@case("a fault event is published before a message is dead-lettered")
def _(place):
    queue, dead = with_dead_letters()
    text = rabbit.inbox([rabbit.source(queue.name, on_failed="reject")], FLAKY,
                        more="    mode: guard\n    fault_channel: faults\n")
    place.configure(text + "  faults: {handlers: {}}\n")
    place.serve()
    queue.put(b"body", message_id="m1", type="order.placed")
    until(lambda: dead.count() == 1)
    message = place.show("m1")
    equal((message["type"], message["body"]), ("postern.fault", "body"))
    equal(headers(message)["postern-fault-attempts"], "1")
    assert headers(message)["postern-fault-reason"], message
    equal(headers(message)["postern-fault-type"], "order.placed")


@case("a retry queue that is missing is said, and no message is lost")
def _(place):
    queue, dead = with_dead_letters()
    queue.put(message_id="m1")
    serve(place, queue, FLAKY, more="    mode: guard\n", on_failed="retry")
    until(lambda: f"'{queue.name}.retry'" in (rabbit.state(place)["last_error"] or ""))
    place.write("good", "")
    until(lambda: rabbit.state(place)["accepted"] == 1)
    equal(dead.count(), 0)


def example():
    """The configuration of docs/rabbitmq.md that is marked as an example."""
    path = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "rabbitmq.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return text.split("## An example", 1)[1].split("```yaml\n", 1)[1].split("```", 1)[0]


@case("the example of the manual declares its queues, and a renamed handler goes on")
def _(place):
    text = example()
    for words in ("declare: on", "max_retries: 3", "retry_delay: 30s", "legacy"):
        assert words in text, text
    text = text.replace("amqp://app:secret@broker/shop", rabbit.server.url())
    place.write("charge", f"#!/bin/sh\necho $CE_ID >> {place.file('log.out')}\n")
    os.chmod(place.file("charge"), 0o755)
    text = text.replace("/usr/local/bin/charge", place.file("charge"))
    old = text.replace("legacy_keys: [charge-order]\n", "").replace(
        "orders/charge:", "charge-order:")
    assert old != text
    place.configure(old)
    server = place.serve()
    until(lambda: rabbit.state(place, "orders.rabbitmq")["connected"])
    for i in range(3):
        publish("orders", b"{}", message_id=f"m{i}", type="order.placed")
    until(lambda: sorted(place.read("log.out").split()) == ["m0", "m1", "m2"])
    server.stop()
    place.configure(text)
    place.serve()
    publish("orders", b"{}", message_id="m1", type="order.placed")
    publish("orders", b"{}", message_id="m3", type="order.placed")
    until(lambda: sorted(place.read("log.out").split()) == ["m0", "m1", "m2", "m3"])
    equal(place.state("m1", "orders/charge"), "done")
    equal([rabbit.server.count(f"orders{end}") for end in ("", ".retry", ".dlq")],
          [0, 0, 0])


URLS = ["http://host/", "amqp://", "amqp://user@host:0/", "amqp://host/a/b",
        "amqp://host:99999/", "amqp://u:p%zz@host/", "amqp://host/?x=1",
        "amqp://" + ",".join(["h"] * 9) + "/"]


@case("a URL that is wrong is refused, and no part of it is shown")
def _(place):
    for url in URLS:
        place.configure(rabbit.inbox([rabbit.source("q", url)]))
        result = place.fails(2, "check", says="the URL of RabbitMQ")
        assert "p%zz" not in result.err, result
    place.configure(rabbit.inbox(["{rabbitmq: {queue: q}}"]))
    place.fails(2, "check", says="needs the option 'url'")
    place.configure(rabbit.inbox([rabbit.source("q", prefetch=0)]))
    place.fails(2, "check", says="prefetch")


rabbit.main(main)
