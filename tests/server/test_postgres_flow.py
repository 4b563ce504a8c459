#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How servers that share a PostgreSQL store divide the work of a handler: slow
work spreads, a rate holds for all of them, a hold for one.

$FLOW_RUNS is the number of messages that one server accepts for two, $FLOW_SECONDS
how long messages arrive at their rate. With $FLOW_LEAST set, that rate is also
reached: that many runs in each second, which needs a machine without other load.
"""

import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import Server  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

RUNS = int(os.environ.get("FLOW_RUNS", "400"))
SECONDS = int(os.environ.get("FLOW_SECONDS", "6"))
LEAST = int(os.environ.get("FLOW_LEAST", "0"))

CONFIG = """\
listen: unix:${{DIR}}/{name}.sock
store: "{url}"
defaults: {{node_lease: 5s, polling_interval: 100ms}}
channels:
  orders:
    handlers:
      work:
        {policy}
        {action}
"""


class Node:
    """A server with a configuration and a socket of its own."""

    def __init__(self, place, schema, name, program, policy, sql=None):
        action = f"sql: {sql}" if sql else f"exec: [{program}]"
        place.write(f"{name}.yaml", CONFIG.format(
            name=name, url=SERVER.url(schema=schema), action=action,
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

    def send_many(self, numbers):
        """Sends events in one request; returns when all are accepted."""
        events = [{"specversion": "1.0", "id": f"m{number}", "source": "test",
                   "type": "order", "data": number} for number in numbers]
        done = subprocess.run(
            ["curl", "-sS", "--unix-socket", self.socket,
             "http://postern/v1/channels/orders/messages",
             "-H", "Content-Type: application/cloudevents-batch+json",
             "--data-binary", "@-"], input=json.dumps(events).encode(),
            stdout=subprocess.PIPE, check=True, timeout=60,
        )
        items = json.loads(done.stdout)["items"]
        equal([item["status"] for item in items], ["accepted"] * len(events))

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
    pids = [int(line.split()[0]) for line in place.read("runs").splitlines()]
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


@case("of many slow runs that one server accepts each runs about half, once")
def _(place):
    took_s, concurrency = 0.1, 4
    wait = program(place, "wait",
                   f"echo $PPID $CE_ID >> {place.file('runs')}; sleep {took_s}")
    place.write("runs", "")
    nodes = [Node(place, "half", name, wait, f"concurrency: {concurrency}")
             for name in ("one", "two")]
    begun = time.monotonic()
    for first in range(0, RUNS, 500):
        nodes[0].send_many(range(first, min(first + 500, RUNS)))
    until(lambda: open_count("half") == 0)
    took = time.monotonic() - begun
    ideal = RUNS * took_s / (len(nodes) * concurrency)
    returned = SERVER.sql("SELECT sum(returned) FROM half.handler_tally")[0]
    print(f"# {RUNS} runs took {took:.2f} s, {took / ideal:.3f} of the ideal"
          f" time; {returned} leases were returned to an idle server")
    lines = [line.split() for line in place.read("runs").splitlines()]
    equal(sorted(name for _, name in lines),
          sorted(f"m{number}" for number in range(RUNS)))
    equal(SERVER.sql("SELECT state, failures, count(*) FROM half.ledger"
                     " GROUP BY state, failures"), [f"3|0|{RUNS}"])
    for node in nodes:
        count = sum(int(pid) == node.server.pid for pid, _ in lines)
        assert 0.4 * RUNS <= count <= 0.6 * RUNS, (count, RUNS)
        equal(node.server.stop(), 0)


@case("what waits at one server goes back while the other is idle, and is counted")
def _(place):
    slow = place.file("slow")
    wait = program(
        place, "wait",
        f"echo $PPID $CE_ID >> {place.file('runs')}\n"
        f"while [ -e {slow} ]; do sleep 0.1; done")
    place.write("runs", "")
    one, two = (Node(place, "back", name, wait, "concurrency: 2")
                for name in ("one", "two"))
    total = 0
    returns = []
    # If the machine is slow, so are the quick runs, and the first server leases
    # fewer of the others: then there is nothing to return, and it begins again.
    for _ in range(20):
        # Quick runs, after which the first server leases a second of quick work.
        one.send_many(range(total, total + 40))
        until(lambda: open_count("back") == 0)
        until(lambda: SERVER.sql(
            "SELECT count(*) FROM back.node_handler JOIN back.node_sleep"
            " USING (node) WHERE idle AND sleeps") == ["2"])
        place.write("slow", "")
        place.write("runs", "")
        one.send_many(range(total + 40, total + 46))
        total += 46
        # Two hang at each; the second has its own from what the first returned.
        expected = {node.server.pid: 2 for node in (one, two)}
        until(lambda: runs(place) == expected)
        rows = place.ok("list", "-c", place.file("one.yaml"), "--json").json()
        returns = [row["returns"] for row in rows if row["state"] != "done"]
        equal(len(returns), 6)
        os.remove(slow)
        until(lambda: open_count("back") == 0)
        lines = [line.split() for line in place.read("runs").splitlines()]
        equal(sorted(name for _, name in lines),
              sorted(f"m{number}" for number in range(total - 6, total)))
        if sum(returns) >= 2:
            break
    assert returns.count(1) >= 2, returns
    # A return is neither a start nor a failure.
    equal(SERVER.sql("SELECT starts, failures, count(*) FROM back.ledger"
                     " GROUP BY starts, failures"), [f"1|0|{total}"])
    shown = place.ok("stats", "-c", place.file("one.yaml"), "--json").json()
    returned = shown["handlers"][0]["returned"]
    assert returned >= sum(returns), (returned, returns)
    assert returned <= 2 * total, returned
    for node in (one, two):
        equal(node.server.stop(), 0)


def starts_by_second(table):
    """The most starts in any period of a second, by the clock of the database,
    and the starts in each whole second from the first to the last."""
    starts = [float(line) for line in SERVER.sql(
        f"SELECT extract(epoch FROM at) FROM {table} ORDER BY at")]
    first = most = 0
    for last, at in enumerate(starts):
        while at - starts[first] >= 1:
            first += 1
        most = max(most, last - first + 1)
    whole = [0] * int(starts[-1] - starts[0])
    for at in starts:
        if at - starts[0] < len(whole):
            whole[int(at - starts[0])] += 1
    return most, whole


@case("three servers, one late and one killed, never exceed the rate")
def _(place):
    rate, policy = 100, "rate: 100/s\n        concurrency: 2"
    sql = "insert into public.start (id) values (:id)"
    SERVER.sql("CREATE TABLE public.start"
               " (id text, at timestamptz DEFAULT clock_timestamp())")
    nodes = [Node(place, "late", name, None, policy, sql)
             for name in ("one", "two")]
    # More than can run in the time, and all of it at one of the servers.
    total = rate * SECONDS
    for begin in range(0, total, 500):
        nodes[0].send_many(range(begin, min(begin + 500, total)))
    begin = time.monotonic()
    nodes.append(Node(place, "late", "three", None, policy, sql))
    time.sleep(max(0, SECONDS / 3 - (time.monotonic() - begin)))
    nodes[1].server.stop(signal.SIGKILL)
    until(lambda: open_count("late") == 0, seconds=120)
    equal(SERVER.sql("SELECT count(*), count(DISTINCT id) FROM public.start"),
          [f"{total}|{total}"])
    most, whole = starts_by_second("public.start")
    print(f"# at most {most} starts in a second; by second: {whole}")
    # The rate, and what is between its start and its INSERT: three servers may
    # have two runs each.
    assert most <= rate + 6, most
    # What the killed server had leased runs later, when it has expired.
    assert all(count >= LEAST for count in whole[:SECONDS - 2]), whole
    for node in (nodes[0], nodes[2]):
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
