#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What people are shown of deliveries on two servers that share a PostgreSQL
store, and runs that one of them cancels for the other."""

import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import Server  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

CONFIG = """\
listen: unix:${{DIR}}/{name}.sock
store: "{url}"
defaults: {{node_lease: 3s, polling_interval: 100ms}}
channels:
  orders:
    handlers:
      work:
        concurrency: 1
        max_attempts: 5
        backoff: [1h]
        exec: [{program}]
"""


class Node:
    """A server with a configuration and a socket of its own."""

    def __init__(self, place, schema, name, program):
        place.write(f"{name}.yaml", CONFIG.format(
            name=name, url=SERVER.url(schema=schema), program=program))
        self.place = place
        self.config = place.file(f"{name}.yaml")
        self.socket = place.file(f"{name}.sock")
        self.server = place.serve("-c", self.config)

    def call(self, path, *words):
        done = subprocess.run(
            ["curl", "-sS", "--unix-socket", self.socket, *words,
             f"http://postern{path}"],
            stdout=subprocess.PIPE, check=True, timeout=60)
        return json.loads(done.stdout)

    def send(self, name):
        reply = self.call("/v1/channels/orders/messages",
                          "-H", f"Idempotency-Key: {name}", "--data-binary", "b")
        equal(reply["status"], "accepted")
        return reply["seq"]

    def shown(self, seq):
        return self.call(f"/v1/messages/{seq}")["deliveries"][0]["shown"]

    def row(self, seq):
        """The delivery of a message, which every view shows in the same way."""
        shown = self.call(f"/v1/messages/{seq}")["deliveries"][0]
        listed = [row for row in self.call("/v1/deliveries")["items"]
                  if row["seq"] == seq][0]
        for name in ("state", "shown", "reason", "node", "pid", "attempt",
                     "max_attempts"):
            equal(listed[name], shown[name])
        return shown

    def stats(self):
        return self.call("/v1/handlers")["items"][0]


def program(place, name, text):
    place.write(name, f"#!/bin/sh\n{text}\n")
    os.chmod(place.file(name), 0o755)
    return place.file(name)


def hang(place):
    """A program that runs until it is killed, if there is a file 'busy'."""
    return program(place, "hang", f"[ ! -e {place.file('busy')} ] || exec sleep 600")


@case("a run of one server is shown and cancelled by the other")
def _(place):
    place.write("busy", "")
    one = Node(place, "cancel", "one", hang(place))
    seq = one.send("a")
    until(lambda: one.shown(seq) == "running")
    two = Node(place, "cancel", "two", hang(place))
    until(lambda: two.shown(seq) == "running")
    row = two.row(seq)
    equal((row["state"], row["pid"], row["attempt"], row["max_attempts"]),
          ("leased", one.server.pid, 1, 5))
    equal(row["node"], one.row(seq)["node"])
    assert row["since"] and row["reported_at"], row
    for node in (one, two):
        equal((node.stats()["running"], node.stats()["queued"]), (1, 0))
        equal([r["seq"] for r in
               node.call("/v1/deliveries?state=running")["items"]], [seq])

    place.ok("cancel", "a", "-c", two.config, "--handler", "work",
             "--reason", "it hangs", "--by", "anna")
    for node in (one, two):
        row = node.row(seq)
        equal((row["state"], row["shown"], row["failures"]),
              ("pending", "waiting", 1))
        attempt = row["attempts"][-1]
        equal(attempt["outcome"], "cancelled")
        assert "it hangs" in attempt["error"], attempt
        equal(node.stats()["waiting"], 1)
    until(lambda: SERVER.sql("SELECT count(*) FROM cancel.cancel") == ["0"])
    # It does not run any more.
    result = place.fails(1, "cancel", "a", "-c", two.config, "--handler", "work")
    assert "does not run" in result.err, result
    reply = subprocess.run(
        ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST",
         "--unix-socket", two.socket,
         f"http://postern/v1/deliveries/{seq}/work/cancel"],
        stdout=subprocess.PIPE, check=True, timeout=60)
    equal(reply.stdout, b"409")
    place.fails(3, "cancel", "a", "-c", two.config, "--handler", "other")
    for node in (one, two):
        equal(node.server.stop(), 0)


@case("what waits is not cancelled, and a cancel may be uncounted")
def _(place):
    place.write("busy", "")
    one = Node(place, "queued", "one", hang(place))
    first = one.send("a")
    until(lambda: one.shown(first) == "running")
    # Not leased: a node leases no more than it can run soon.
    second = one.send("b")
    shown = one.row(second)["shown"]
    result = place.fails(1, "cancel", "b", "-c", one.config, "--handler", "work")
    assert f"is {shown} and does not run" in result.err, result
    if shown == "pending":
        assert "'postern discard' ends a delivery" in result.err, result
    # Uncounted, of its own server; the next one ends by itself.
    os.remove(place.file("busy"))
    place.ok("cancel", "a", "-c", one.config, "--uncounted")
    row = one.row(first)
    equal((row["shown"], row["failures"]), ("waiting", 0))
    until(lambda: one.shown(second) == "done")
    equal(one.server.stop(), 0)


@case("check calls no handler orphaned that another running server has")
def _(place):
    place.write("busy", "")
    one = Node(place, "left", "one", hang(place))
    first = one.send("a")
    until(lambda: one.shown(first) == "running")
    config = one.config.replace("one", "other")
    place.write("other.yaml", place.read("one.yaml").replace("work:", "more:")
                .replace("concurrency", "timeout: 1m\n        concurrency"))
    found = place.ok("check", "-c", config).out
    assert ("handler 'work' is not in this configuration, and 1 running node has "
            "it: 1 delivery is open") in found, found
    equal(one.stats()["nodes"], 1)
    one.server.stop(signal.SIGKILL)
    until(lambda: "no handler is configured for 'work': its 1 open delivery would"
          in place.run("check", "-c", config).out)


if __name__ == "__main__":
    with Server() as SERVER:
        main()
