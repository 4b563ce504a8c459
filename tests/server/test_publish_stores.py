#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Handlers that publish to a channel of another store: at least once, under the
same id, so that it is handled there once."""

import os
import signal
import sqlite3
import sys

from support import case, equal, main, until

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import postgres  # noqa: E402

COUNT = 400

CONFIG = """\
stores:
  one: {{url: 'sqlite:one.db'}}
  two: {{url: '{url}'}}
defaults: {{restart_delay: 100ms, node_lease: 2s, command_timeout: 5s}}
channels:
  orders:
    store: one
    handlers:
      bill: {{publish: {{channel: bills}}}}
  bills:
    store: two
    max_message_size: 1000B
    handlers:
      book: {{sql: 'insert into {ledger} (id) values (:id)'}}
"""


def configure(place, url="sqlite:two.db", ledger="ledger"):
    place.configure(CONFIG.format(url=url, ledger=ledger))
    place.ok("migrate")
    if url.startswith("sqlite:"):
        with sqlite3.connect(place.file("two.db")) as link:
            link.execute("CREATE TABLE ledger (id TEXT)")


def booked(place):
    """How many ids are in the ledger of the other store, and different ones."""
    with sqlite3.connect(f"file:{place.file('two.db')}?mode=ro", uri=True,
                         timeout=60) as link:
        return link.execute("SELECT count(*), count(DISTINCT id) FROM ledger"
                            ).fetchone()


def handler(place, key):
    rows = place.ok("stats", "--json").json()["handlers"]
    return next(row for row in rows if row["key"] == key)


def delivery(place, message_id):
    """Of the message to the handler that publishes."""
    (row,) = place.ok("show", message_id, "--in", "one", "--json").json()["deliveries"]
    return row


def state(place, message_id):
    return delivery(place, message_id)["state"]


def send(place, count, first=0):
    lines = "".join(
        f'{{"specversion":"1.0","id":"m{i}","source":"/shop","type":"t","data":{i}}}\n'
        for i in range(first, first + count))
    place.ok("send", "orders", "--lines", "-", stdin=lines)


@case("a message is accepted by the channel of the other store, as it was sent")
def _(place):
    configure(place)
    place.serve()
    place.send("m1", "body", "--type", "order.placed", "--subject", "o1",
               "--source", "/shop", "--header", "region=eu")
    until(lambda: booked(place) == (1, 1))
    until(lambda: state(place, "m1") == "done")
    message = place.ok("show", "m1", "--in", "two", "--json").json()
    for name, wanted in {"channel": "bills", "source": "/shop", "subject": "o1",
                         "type": "order.placed", "body": "body"}.items():
        equal(message[name], wanted, name)
    equal(message["headers"], [{"name": "region", "value": "eu"}])
    equal(place.started[0].stop(), 0)


@case("a server that is killed again and again books each message once")
def _(place):
    configure(place)
    server = place.serve()
    for part in range(5):
        send(place, COUNT // 5, part * COUNT // 5)
        until(lambda: booked(place)[0] > part * COUNT // 5)
        server.stop(signal.SIGKILL)
        server = place.serve()
    until(lambda: booked(place)[1] == COUNT)
    until(lambda: handler(place, "bill")["done"] == COUNT)
    until(lambda: handler(place, "book")["done"] == COUNT)
    equal(booked(place), (COUNT, COUNT))
    equal(server.stop(), 0)


@case("a store that is away holds the handler, and costs no attempt")
def _(place):
    with postgres.Server(durable=True) as database:
        database.sql("CREATE TABLE public.ledger (id text)")
        configure(place, database.url(), "public.ledger")
        server = place.serve()
        send(place, 1)
        until(lambda: database.sql("SELECT count(*) FROM public.ledger") == ["1"])
        database.end(signal.SIGKILL)
        send(place, 100, 1)
        until(lambda: any(row["last_error"] for row in place.ok(
            "list", "--in", "one", "--json").json()))
        database.start()
        until(lambda: database.sql("SELECT count(*), count(DISTINCT id)"
                                   " FROM public.ledger") == ["101|101"])
        until(lambda: place.run("stats").code == 0
              and handler(place, "bill")["done"] == 101)
        rows = place.ok("list", "--in", "one", "--limit", "500", "--json").json()
        equal({row["failures"] for row in rows}, {0})
        equal(server.stop(), 0)


@case("a message that the other channel can never accept is poisoned, and no other")
def _(place):
    configure(place)
    place.serve()
    place.send("large", "x" * 1001)
    place.send("known", "one", channel="bills")
    place.send("known", "two", "--source", "bills")
    place.send("good", "x")
    for message_id, says in (("large", "1000"), ("known", "another body")):
        until(lambda: state(place, message_id) == "poisoned")
        error = delivery(place, message_id)["last_error"]
        assert says in error, error
    until(lambda: state(place, "good") == "done")
    until(lambda: booked(place) == (2, 2))


@case("a reload adds and replaces such a handler")
def _(place):
    configure(place)
    text = place.read("postern.yaml")
    place.configure(text.replace("{publish: {channel: bills}}", "{sql: select 1}"))
    server = place.serve()
    place.send("before")
    until(lambda: state(place, "before") == "done")
    place.configure(text)
    server.process.send_signal(signal.SIGHUP)
    until(lambda: '"configuration_reloaded"' in server.stderr())
    place.send("after")
    until(lambda: booked(place) == (1, 1))
    equal(server.stop(), 0)


@case("without a server the message waits for one")
def _(place):
    configure(place)
    place.send("m1")
    place.run("process", "--in", "one", "--ignore-failures")
    row = delivery(place, "m1")
    assert "run 'postern serve'" in row["last_error"], row
    equal((row["state"], row["failures"]), ("pending", 0))
    place.serve()
    until(lambda: booked(place) == (1, 1))


@case("channels that would pass messages in a circle are refused, across stores too")
def _(place):
    configure(place)
    text = place.read("postern.yaml")
    place.configure(text.replace("book: {sql:", "back: {publish: {channel: orders}}\n"
                                 "      book: {sql:"))
    for command in ("check", "serve"):
        place.fails(2, command, says="from which its messages come back")
    place.configure(text.replace("max_message_size: 1000B", "mode: direct"))
    place.fails(2, "check", says="which has no inbox")
    place.configure(text.replace("{channel: bills}", "{channel_elsewhere: bills}"))
    place.fails(2, "check", says="'publish' needs one target")
    place.configure(text.replace("{channel: bills}}", "{channel: bills}, timeout: 10m}"))
    place.fails(2, "check", says="lease")
    # Its own defaults, not those of a transaction.
    place.configure(text)
    printed = place.ok("check", "--print").out
    assert "timeout: 30s" in printed and "concurrency: 500" in printed, printed


main()
