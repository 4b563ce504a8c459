#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How servers that share a PostgreSQL store divide the work of a handler: slow
work spreads, a rate holds for all of them, a hold for one."""

import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import Server  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

CONFIG = """\
listen: unix:${{DIR}}/{name}.sock
store: "{url}"
defaults: {{node_lease: 5s, polling_interval: 100ms}}
channels:
  orders:
    handlers:
      work:
        {policy}
        exec: [{program}]
"""


class Node:
    """A server with a configuration and a socket of its own."""

    def __init__(self, place, schema, name, program, policy):
        place.write(f"{name}.yaml", CONFIG.format(
            name=name, url=SERVER.url(schema=schema), program=program,
            policy=policy))
        self.socket = place.file(f"{name}.sock")
        self.server = place.serve("-c", place.file(f"{name}.yaml"))

    def send(self, name):
        """Sends a message to this server, which leases what it will run."""
        done = subprocess.run(
            ["curl", "-sS", "--unix-socket", self.socket,
             "http://postern/v1/channels/orders/messages",
             "-H", f"Idempotency-Key: {name}", "--data-binary", "body"],
            stdout=subprocess.PIPE, check=True, timeout=60,
        )
        equal(json.loads(done.stdout)["status"], "accepted")

    def events(self, name):
        lines = [json.loads(line) for line in self.server.stderr().splitlines()]
        return [line for line in lines if line["event"] == name]


def program(place, name, text):
    """A program in the place; its parent is the server that runs it."""
    place.write(name, f"#!/bin/sh\n{text}\n")
    os.chmod(place.file(name), 0o755)
    return place.file(name)


def open_count(schema):
    return int(SERVER.sql(f"SELECT count(*) FROM {schema}.open")[0])


def runs(place):
    """How many runs each server has started."""
    pids = [int(line) for line in place.read("runs").splitlines()]
    return {pid: pids.count(pid) for pid in pids}


@case("slow work that one server accepts runs on both")
def _(place):
    wait = program(
        place, "wait",
        f"echo $PPID >> {place.file('runs')}\n"
        f"while [ ! -e {place.file('go')} ]; do sleep 0.1; done")
    place.write("runs", "")
    nodes = [Node(place, "share", name, wait, "concurrency: 4")
             for name in ("one", "two")]
    for number in range(12):
        nodes[0].send(f"m{number}")
    # Each runs as many as it may; the first has not leased the others.
    expected = {node.server.pid: 4 for node in nodes}
    until(lambda: runs(place) == expected)
    equal(SERVER.sql("SELECT count(*) FROM share.open WHERE node IS NULL"),
          ["4"])
    place.write("go", "")
    until(lambda: open_count("share") == 0)
    equal(sum(runs(place).values()), 12)
    for node in nodes:
        equal(node.server.stop(), 0)


@case("three servers keep to the rate of a handler together")
def _(place):
    quick = program(place, "quick", f"echo $PPID >> {place.file('runs')}")
    place.write("runs", "")
    nodes = [Node(place, "rate", name, quick, "rate: 10/s")
             for name in ("one", "two", "three")]
    begun = time.monotonic()
    for number in range(35):
        nodes[number % 3].send(f"m{number}")
    until(lambda: open_count("rate") == 0)
    # The first ten at once, and the last five after three more seconds; being
    # slow can only make it longer.
    took = time.monotonic() - begun
    assert took >= 3.0, took
    equal(sum(runs(place).values()), 35)
    for node in nodes:
        equal(node.server.stop(), 0)


@case("a server without the program is held, and the other runs everything")
def _(place):
    quick = program(place, "quick", f"echo $PPID >> {place.file('runs')}")
    place.write("runs", "")
    policy = "max_attempts: 1"
    without = Node(place, "held", "one",
                   f"/bin/sh, -c, 'echo broken >> {place.file('runs.bad')};"
                   " exit 69'", policy)
    good = Node(place, "held", "two", quick, policy)
    for number in range(30):
        without.send(f"m{number}")
    until(lambda: open_count("held") == 0)
    equal(SERVER.sql("SELECT state, count(*) FROM held.ledger GROUP BY state"),
          ["3|30"])
    equal(runs(place), {good.server.pid: 30})
    equal(len(without.events("handler_held")), 1)
    equal(good.events("handler_held"), [])
    # It probes now and then: far less often than there are messages.
    assert place.read("runs.bad").count("broken") < 15
    for node in (without, good):
        equal(node.server.stop(), 0)


if __name__ == "__main__":
    with Server() as SERVER:
        main()
