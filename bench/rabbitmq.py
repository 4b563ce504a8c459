#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures sources and publishers of RabbitMQ beside bare programs that do the
same writes, in turn, with a broker and a database of its own.

    bench/rabbitmq.py BUILD [COUNT [ROUNDS]]

A row is the median of the rounds, in messages per second. Postern is measured
from the first message of the queue that is done to the last, the bare programs
by themselves without the time to connect.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import postgres  # noqa: E402
import rabbitmq  # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 50000
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
POSTERN = os.path.join(BUILD, "src", "postern")
BARE = os.path.join(BUILD, "bench", "bare_rabbitmq")
UNCONFIRMED = 500
PATIENCE_S = 120


def bare(mode, server, queue, more):
    done = subprocess.run([BARE, mode, str(server.port), queue, str(COUNT), str(more)],
                          check=True, capture_output=True, text=True,
                          timeout=PATIENCE_S)
    return COUNT / float(done.stdout)


def fresh_queue(server, name):
    with server.client() as channel:
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True)


def serve(folder, text):
    with open(os.path.join(folder, "postern.yaml"), "w", encoding="utf-8") as file:
        file.write(text)
    return subprocess.Popen([POSTERN, "serve"], cwd=folder, stderr=subprocess.DEVNULL)


def await_count(count, wanted, process):
    """Waits until count() is at least `wanted`; returns when that was."""
    end = time.monotonic() + PATIENCE_S
    while count() < wanted:
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit("postern did not finish")
        time.sleep(0.1)
    return time.monotonic()


def handled(folder):
    done = subprocess.run([POSTERN, "stats", "--json"], cwd=folder, text=True,
                          capture_output=True, check=False)
    if done.returncode != 0:
        return 0
    rows = json.loads(done.stdout)["handlers"]
    return rows[0]["done"] if rows else 0


def timed(folder, text):
    """How many messages a second a server handles, from its first on."""
    process = serve(folder, text)
    try:
        begin = await_count(lambda: handled(folder), 1, process)
        before = handled(folder)
        end = await_count(lambda: handled(folder), COUNT, process)
        return (COUNT - before) / (end - begin)
    finally:
        process.terminate()
        process.wait()


def source_config(server, store):
    return f"""\
store: "{store}"
channels:
  in:
    sources: [{{rabbitmq: {{url: "{server.url()}", queue: bench}}}}]
    handlers: {{h: {{sql: select 1, commit_batch: 500}}}}
"""


def relay_config(server):
    return f"""\
store: sqlite:box.db
channels:
  out:
    sources: [{{lines: {{file: events.jsonl, follow: off}}}}]
    handlers:
      relay:
        publish: {{rabbitmq: {{url: "{server.url()}", routing_key: bench}}}}
        concurrency: {UNCONFIRMED}
"""


def run_source(server, kind, database, round_number):
    fresh_queue(server, "bench")
    bare("publish", server, "bench", 2000)
    with tempfile.TemporaryDirectory() as folder:
        if kind == "sqlite":
            limit = bare("sqlite", server, "bench", os.path.join(folder, "bare.db"))
        else:
            database.sql("DROP SCHEMA IF EXISTS bare CASCADE")
            limit = bare("postgres", server, "bench", database.url())
        bare("publish", server, "bench", 2000)
        store = "sqlite:box.db"
        if kind == "postgres":
            database.sql("DROP SCHEMA IF EXISTS postern CASCADE")
            store = database.url()
        rate = timed(folder, source_config(server, store))
    print(f"# {kind} {round_number}: {rate:.0f} of {limit:.0f}", flush=True)
    return rate, limit


def run_publisher(server, round_number):
    fresh_queue(server, "bench")
    limit = bare("publish", server, "bench", UNCONFIRMED)
    fresh_queue(server, "bench")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "events.jsonl"), "w", encoding="utf-8") as file:
            for i in range(COUNT):
                file.write('{"specversion":"1.0","id":"m%d","source":"s","type":"t",'
                           '"data":"%s"}\n' % (i, "x" * 254))
        rate = timed(folder, relay_config(server))
    print(f"# publish {round_number}: {rate:.0f} of {limit:.0f}", flush=True)
    return rate, limit


def main():
    print(f"# {COUNT} messages of 256 bytes, {ROUNDS} rounds, load "
          f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with rabbitmq.Server() as server, postgres.Server(durable=True) as database:
        rows = {"RabbitMQ -> SQLite": lambda n: run_source(server, "sqlite", None, n),
                "RabbitMQ -> PostgreSQL":
                    lambda n: run_source(server, "postgres", database, n),
                "outbox -> RabbitMQ": lambda n: run_publisher(server, n)}
        results = {name: [] for name in rows}
        for number in range(ROUNDS):
            for name, run in rows.items():
                results[name].append(run(number))
    for name, pairs in results.items():
        rate, limit = (statistics.median(column) for column in zip(*pairs))
        print(f"| {name} | {rate:,.0f} | {limit:,.0f} | {rate / limit:.2f} |")


if __name__ == "__main__":
    main()
