#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Changes by an operator or another node while servers share a PostgreSQL
store: each server must follow them, whatever it read when it started."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import Server  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

CONFIG = """\
listen: unix:${{DIR}}/{name}.sock
store: "{url}"
defaults: {{node_lease: 5s, polling_interval: {polling}}}
channels:
  orders:
    handlers:
      {handler}
"""

HANDLER = (
    "{key}: {{legacy_keys: {legacy},"
    " sql: \"insert into {schema}.effect values (:id, '{key}')\"}}"
)


class Node:
    """A server with a configuration and a socket of its own."""

    def __init__(self, place, schema, name, key, legacy="[]", polling="100ms"):
        handler = HANDLER.format(key=key, legacy=legacy, schema=schema)
        place.write(f"{name}.yaml", CONFIG.format(
            name=name, url=SERVER.url(schema=schema), handler=handler,
            polling=polling))
        self.place = place
        self.file = place.file(f"{name}.yaml")
        self.socket = place.file(f"{name}.sock")
        self.server = None

    def start(self):
        self.server = self.place.serve("-c", self.file)
        return self

    def send(self, name):
        """Sends a message to this server; returns the status."""
        done = subprocess.run(
            ["curl", "-sS", "--unix-socket", self.socket,
             "http://postern/v1/channels/orders/messages",
             "-H", f"Idempotency-Key: {name}", "--data-binary", "body"],
            stdout=subprocess.PIPE, check=True, timeout=60,
        )
        return json.loads(done.stdout)["status"]


def prepare(place, schema):
    node = Node(place, schema, "setup", "unused")
    place.ok("migrate", "-c", node.file)
    SERVER.sql(f"CREATE TABLE {schema}.effect (id text, key text)")


def effects(schema):
    return SERVER.sql(f"SELECT id FROM {schema}.effect ORDER BY id")


def settled(schema):
    return SERVER.sql(f"SELECT count(*) FROM {schema}.open") == ["0"]


@case("a handler that is paused runs on no server until it is resumed")
def _(place):
    prepare(place, "paused")
    node = Node(place, "paused", "one", "mail").start()
    other = Node(place, "paused", "two", "mail").start()
    equal(node.send("before"), "accepted")
    until(lambda: effects("paused") == ["before"])
    equal(place.ok("pause", "mail", "-c", node.file).code, 0)
    for number in range(5):
        equal((node, other)[number % 2].send(f"held-{number}"), "accepted")
    late = Node(place, "paused", "late", "mail").start()
    equal(late.send("held-late"), "accepted")
    equal(SERVER.sql("SELECT count(*) FROM paused.open WHERE node IS NOT NULL"),
          ["0"])
    equal(effects("paused"), ["before"])
    for started in (node, other):
        equal(started.server.stop(), 0)
    # Only the server that started during the pause remains.
    equal(place.ok("resume", "mail", "-c", node.file).code, 0)
    until(lambda: len(effects("paused")) == 7)
    until(lambda: settled("paused"))
    equal(late.server.stop(), 0)


@case("a pause and a resume reach servers that seldom poll")
def _(place):
    prepare(place, "notified")
    node = Node(place, "notified", "one", "mail", polling="10m").start()
    for round_ in range(3):
        equal(place.ok("pause", "mail", "-c", node.file).code, 0)
        equal(node.send(f"held-{round_}"), "accepted")
        equal(len(effects("notified")), round_)
        equal(place.ok("resume", "mail", "-c", node.file).code, 0)
        until(lambda: len(effects("notified")) == round_ + 1)
    equal(node.server.stop(), 0)


@case("nodes of three generations run a renamed handler once per message")
def _(place):
    prepare(place, "renamed")
    old = Node(place, "renamed", "old", "charge").start()
    new = Node(place, "renamed", "new", "charge-card").start()
    equal(old.send("by-old"), "accepted")
    until(lambda: effects("renamed") == ["by-old"])
    equal(new.send("by-new"), "accepted")
    until(lambda: effects("renamed") == ["by-new", "by-old"])
    until(lambda: settled("renamed"))
    both = Node(place, "renamed", "both", "charge-card", "[charge]").start()
    for node in (old, new, both):
        for message in ("by-old", "by-new"):
            equal(node.send(message), "duplicate")
        equal(node.send(f"fresh-{node.file}"), "accepted")
    until(lambda: len(effects("renamed")) == 5)
    until(lambda: settled("renamed"))
    equal(len(set(effects("renamed"))), 5)
    for node in (old, new, both):
        equal(node.server.stop(), 0)


@case("deliveries open under a legacy key are run by a node with the new key")
def _(place):
    prepare(place, "opened")
    old = Node(place, "opened", "old", "charge").start()
    new = Node(place, "opened", "new", "charge-card").start()
    equal(place.ok("pause", "charge", "-c", old.file).code, 0)
    equal(old.send("left"), "accepted")
    equal(old.server.stop(), 0)
    # The command creates the alias and runs nothing: the server that started
    # before it runs the deliveries, once the pause of the former key has ended.
    both = Node(place, "opened", "both", "charge-card", "[charge]")
    equal(place.send("sent", "body", "-c", both.file).out, "accepted\n")
    equal(effects("opened"), [])
    equal(place.ok("resume", "charge-card", "-c", both.file).code, 0)
    until(lambda: effects("opened") == ["left", "sent"])
    until(lambda: settled("opened"))
    equal(new.server.stop(), 0)


@case("check compares key rules with those of the store")
def _(place):
    prepare(place, "ruled")
    config = f"""\
store: "{SERVER.url(schema='ruled')}"
channels:
  NAME:
    key: RULE
    handlers:
      audit: {{exec: [/bin/true], timeout: 5s}}
"""

    def configure(name, rule):
        place.configure(config.replace("NAME", name).replace("RULE", rule))

    configure("orders", "id")
    place.ok("send", "orders", "--id", "1", stdin="{}")
    place.ok("check")
    for name in "orders", "sales:\n    former_names: [orders]\n#":
        configure(name, "json:/id")
        for command in "check", "process":
            result = place.run(command)
            equal(result.code, 1, result)
            assert ("was 'id' and is 'json:/id' now"
                    in result.out + result.err), result
    configure("orders", "id")
    place.ok("check")


if __name__ == "__main__":
    with Server() as SERVER:
        main()
