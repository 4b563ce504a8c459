#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Paused handlers and closed channels while servers share a PostgreSQL store:
every server follows them without a restart, and timed pauses end for all."""

import json
import os
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import BIN, Server, environment  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

# Without notifications a poll would take ten minutes.
CONFIG = """\
listen: unix:${{DIR}}/{name}.sock
store: "{url}"
defaults: {{node_lease: 5s, polling_interval: {polling}}}
channels:
  orders:
    handlers:
      mail: {{sql: "insert into {schema}.effect values (:id)"}}
  other: {{}}
"""


class Node:
    def __init__(self, place, schema, name, polling="10m"):
        place.write(f"{name}.yaml", CONFIG.format(
            name=name, url=SERVER.url(schema=schema), schema=schema,
            polling=polling))
        self.place = place
        self.file = place.file(f"{name}.yaml")
        self.socket = place.file(f"{name}.sock")
        self.server = None

    def start(self):
        self.server = self.place.serve("-c", self.file)
        return self

    def request(self, path, *args):
        """Returns the status and the JSON of the response."""
        done = subprocess.run(
            ["curl", "-sS", "-w", "\n%{http_code}", "--unix-socket",
             self.socket, f"http://postern/v1/{path}", *args],
            stdout=subprocess.PIPE, check=True, timeout=60,
        )
        text, status = done.stdout.decode().rsplit("\n", 1)
        return int(status), json.loads(text)

    def post(self, path, body):
        return self.request(path, "-H", "Content-Type: application/json",
                            "--data-binary", json.dumps(body))

    def send(self, name, channel="orders"):
        return self.request(f"channels/{channel}/messages", "-H",
                            f"Idempotency-Key: {name}", "--data-binary", "x")

    def handler(self):
        return self.request("handlers")[1]["items"][0]

    def channel(self, name="orders"):
        for row in self.request("channels")[1]["items"]:
            if row["name"] == name:
                return row
        raise AssertionError(name)


def prepare(place, schema, polling="10m"):
    place.ok("migrate", "-c", Node(place, schema, "setup").file)
    SERVER.sql(f"CREATE TABLE {schema}.effect (id text)")
    one = Node(place, schema, "one", polling).start()
    two = Node(place, schema, "two", polling).start()
    return one, two


def effects(schema):
    return SERVER.sql(f"SELECT id FROM {schema}.effect ORDER BY id")


@case("a pause with an end holds on every node and ends by itself")
def _(place):
    one, two = prepare(place, "timed")
    status, answer = one.post("handlers/mail/pause", {
        "for": "4s", "reason": "smtp down", "by": "anna"})
    equal((status, answer["paused"]), (200, True))
    for node in (one, two):
        row = node.handler()
        equal((row["paused"], row["held"], row["held_by"], row["held_reason"]),
              (True, "paused", "anna", "smtp down"))
        assert row["held_until"] > row["held_at"]
    equal(one.send("a")[0], 202)
    equal(two.send("b")[0], 202)
    equal(SERVER.sql("SELECT count(*) FROM timed.open WHERE node IS NOT NULL"),
          ["0"])
    equal(effects("timed"), [])
    # Nobody resumes it, and no node polls before ten minutes have passed.
    until(lambda: effects("timed") == ["a", "b"], 30)
    equal((two.handler()["paused"], two.handler()["held"]), (False, None))
    equal(two.send("c")[0], 202)
    until(lambda: effects("timed") == ["a", "b", "c"])
    for node in (one, two):
        equal(node.server.stop(), 0)


@case("a pause is replaced and resumed through another node")
def _(place):
    one, two = prepare(place, "replaced")
    equal(one.post("handlers/mail/pause", {"for": "1h", "reason": "one"})[0],
          200)
    equal(place.ok("pause", "mail", "--reason", "two", "-c", two.file).out,
          "paused mail\n")
    row = one.handler()
    equal((row["held_reason"], row["held_until"]), ("two", None))
    assert "@" in row["held_by"], row
    equal(one.send("a")[0], 202)
    result = place.ok("retry", "a", "-c", two.file)
    equal(result.out, "retried mail\n")
    assert "deliveries to 'mail' wait: paused by" in result.err, result
    assert ": two" in result.err, result
    equal(effects("replaced"), [])
    equal(two.post("handlers/mail/resume", {"reason": "fixed"})[0], 200)
    until(lambda: effects("replaced") == ["a"])
    equal(one.handler()["held"], None)
    for node in (one, two):
        equal(node.server.stop(), 0)


@case("a closed channel refuses messages on every node until it is opened")
def _(place):
    one, two = prepare(place, "closed")
    equal(one.send("before")[0], 202)
    status, answer = one.post("channels/orders/close", {
        "reason": "moving", "by": "anna"})
    equal((status, answer["channel"], answer["closed"]),
          (200, "orders", True))
    for node in (one, two):
        status, answer = node.send(f"refused-{node.file}")
        equal((status, answer["code"]), (503, "unavailable"))
        equal(answer["detail"], "channel 'orders' is closed: moving")
        # Also a copy of what was accepted before.
        equal(node.send("before")[0], 503)
        equal(node.send(f"fine-{node.file}", "other")[0], 202)
        row = node.channel()
        equal((row["closed"], row["closed_reason"], row["closed_by"]),
              (True, "moving", "anna"))
        equal((row["accepted"], row["duplicates"]), (1, 0))
        equal(node.channel("other")["closed"], False)
    result = place.send("cli", "body", "-c", two.file)
    equal(result.code, 4)
    assert "channel 'orders' is closed: moving" in result.err, result
    # What was accepted before runs.
    until(lambda: effects("closed") == ["before"])
    # A node that starts now refuses, too.
    late = Node(place, "closed", "late").start()
    equal(late.send("late")[0], 503)
    equal(place.ok("channel", "open", "orders", "-c", two.file).out,
          "opened orders\n")
    for node in (one, two, late):
        equal(node.send(f"refused-{node.file}")[0], 202)
    until(lambda: len(effects("closed")) == 4)
    for node in (one, two, late):
        equal(node.server.stop(), 0)


@case("once closing has returned, no message is accepted by any node")
def _(place):
    one, two = prepare(place, "strict")
    accepted = []
    stop = threading.Event()

    def send_many(node):
        number = 0
        while not stop.is_set():
            number += 1
            # When this request began the channel may have been open.
            status, answer = node.send(f"{node.file}-{number}")
            if status == 202:
                accepted.append(answer["seq"])

    threads = [threading.Thread(target=send_many, args=(node,))
               for node in (one, two) for _ in range(2)]
    for thread in threads:
        thread.start()
    for round_ in range(5):
        until(lambda: len(accepted) > 20 * round_)
        place.ok("channel", "close", "orders", "-c", one.file)
        count = SERVER.sql("SELECT count(*) FROM strict.message")
        equal(one.send(f"refused-{round_}")[0], 503)
        equal(two.send(f"refused-{round_}")[0], 503)
        equal(SERVER.sql("SELECT count(*) FROM strict.message"), count)
        place.ok("channel", "open", "orders", "-c", two.file)
    stop.set()
    for thread in threads:
        thread.join()
    until(lambda: len(effects("strict")) == len(accepted))
    for node in (one, two):
        equal(node.server.stop(), 0)


@case("closing a channel waits for the batches that run")
def _(place):
    one, two = prepare(place, "batches")
    # What a batch holds until its commit; the name is as in schema/*.sql.
    batch = subprocess.Popen(
        [os.path.join(BIN, "psql"), "-X", "-q", "-A", "-t", SERVER.url()],
        env=environment(), text=True, bufsize=1,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    lock = 'hashtext(\'"batches".handler\'), 0'
    batch.stdin.write(f"BEGIN; SELECT pg_advisory_xact_lock_shared({lock});\n"
                      "SELECT 'locked';\n")
    until(lambda: batch.stdout.readline() == "locked\n")
    closing = place.start([os.environ["POSTERN"], "channel", "close", "orders",
                           "-c", one.file], stdout=subprocess.DEVNULL)
    waiting = ("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
               " AND mode = 'ExclusiveLock' AND NOT granted")

    def waits():
        assert closing.alive(), "the command did not wait"
        return SERVER.sql(waiting) == ["1"]

    until(waits)
    equal(two.channel()["closed"], False)
    batch.stdin.write("COMMIT;\n")
    batch.stdin.close()
    equal(batch.wait(60), 0)
    equal(closing.process.wait(60), 0)
    equal(two.send("refused")[0], 503)
    for node in (one, two):
        equal(node.server.stop(), 0)


@case("messages that are published wait while their channel is closed")
def _(place):
    one, two = prepare(place, "staged", "100ms")
    place.ok("channel", "close", "orders", "-c", one.file)
    SERVER.sql("SELECT staged.publish('orders', 'order.placed', 'x'::text,"
               " id => 'held')")
    SERVER.sql("SELECT staged.publish('other', 'order.placed', 'x'::text,"
               " id => 'fine')")
    until(lambda: two.channel("other")["accepted"] == 1)
    equal((two.channel()["accepted"], two.channel()["staged"]), (0, 1))
    place.ok("channel", "open", "orders", "-c", one.file)
    until(lambda: effects("staged") == ["held"])
    equal((two.channel()["accepted"], two.channel()["staged"]), (1, 0))
    for node in (one, two):
        equal(node.server.stop(), 0)


if __name__ == "__main__":
    with Server() as SERVER:
        main()
