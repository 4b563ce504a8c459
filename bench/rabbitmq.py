#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures sources and publishers of RabbitMQ beside bare programs that do the
same writes, in turn, with a broker and a database of its own.

    bench/rabbitmq.py BUILD [COUNT [ROUNDS]]

A row is the median of the rounds, in messages per second, and of their ratios. The programs that
read a queue measure themselves; the relay is measured from its first message
that is done to the last. End to end: four clients commit RATE orders a second,
each with its message, on one PostgreSQL; a handler writes a row on another one
for each message that comes through RabbitMQ.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import postgres  # noqa: E402
import rabbitmq  # noqa: E402
import psycopg2  # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 50000
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
POSTERN = os.path.join(BUILD, "src", "postern")
BARE = os.path.join(BUILD, "bench", "bare_rabbitmq")
BOX = os.path.join(BUILD, "bench", "box_rabbitmq")
UNCONFIRMED = 500
RATE = 500
CLIENTS = 4
SECONDS = 10
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


def relay_config(server):
    return f"""\
store: sqlite:box.db
listen: none
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
        store = f"sqlite:{folder}/box.db"
        if kind == "postgres":
            database.sql("DROP SCHEMA IF EXISTS postern CASCADE")
            store = database.url()
        done = subprocess.run([BOX, store, server.url(), "bench", str(COUNT)],
                              check=True, capture_output=True, text=True,
                              timeout=PATIENCE_S)
        rate = COUNT / float(done.stdout)
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


ORDERS = """\
store: "{store}"
listen: none
channels:
  out:
    handlers:
      relay: {{publish: {{rabbitmq: {{url: "{url}", routing_key: bench}}}}}}
"""

PAYMENTS = """\
store: "{store}"
listen: none
channels:
  in:
    sources: [{{rabbitmq: {{url: "{url}", queue: bench}}}}]
    handlers:
      charge: {{sql: "insert into public.charges values (:id, clock_timestamp())"}}
"""


def place_orders(database, client):
    """At a fixed rate, however long the transactions take."""
    link = psycopg2.connect(database.url())
    begin = time.monotonic()
    for i in range(RATE * SECONDS // CLIENTS):
        due = begin + i * CLIENTS / RATE
        time.sleep(max(0, due - time.monotonic()))
        with link, link.cursor() as cursor:
            cursor.execute(
                "INSERT INTO orders VALUES (%(id)s, clock_timestamp());"
                "SELECT postern.publish('out', 't', '{}', %(id)s)",
                {"id": f"{client}-{i}"})
    link.close()


def times_of(database, table):
    return {row.split("|")[0]: float(row.split("|")[1]) for row in database.sql(
        f"SELECT id, extract(epoch FROM at) FROM {table}")}


def run_through(server, first, second):
    """Orders to charges: messages per second, p50 and p99 in milliseconds."""
    fresh_queue(server, "bench")
    for database, table in ((first, "orders"), (second, "charges")):
        database.sql("DROP SCHEMA IF EXISTS postern CASCADE;"
                     f"DROP TABLE IF EXISTS {table};"
                     f"CREATE TABLE {table} (id text, at timestamptz)")
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        processes = [
            serve(one, ORDERS.format(store=first.url(), url=server.url())),
            serve(two, PAYMENTS.format(store=second.url(), url=server.url()))]
        try:
            for folder in (one, two):
                end = time.monotonic() + PATIENCE_S
                while subprocess.run([POSTERN, "stats"], cwd=folder,
                                     capture_output=True).returncode != 0:
                    assert time.monotonic() < end, "postern did not start"
            time.sleep(1)
            threads = [threading.Thread(target=place_orders, args=(first, n))
                       for n in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            count = RATE * SECONDS
            await_count(lambda: int(second.sql("SELECT count(*) FROM charges")[0]),
                        count, processes[1])
            placed, charged = times_of(first, "orders"), times_of(second, "charges")
        finally:
            for process in processes:
                process.terminate()
                process.wait()
    assert len(charged) == count, f"{len(charged)} of {count}"
    delays = sorted(1000 * (charged[i] - placed[i]) for i in placed)
    rate = count / (max(charged.values()) - min(placed.values()))
    return rate, delays[count // 2], delays[count * 99 // 100]


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
        with postgres.Server(durable=True) as second:
            through = [run_through(server, database, second) for _ in range(ROUNDS)]
    for name, pairs in results.items():
        rate, limit = (statistics.median(column) for column in zip(*pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"| {name} | {rate:,.0f} | {limit:,.0f} | {ratio:.2f} |")
    rate, half, most = (statistics.median(column) for column in zip(*through))
    print(f"| order to charge at {RATE}/s: rate, p50, p99 | {rate:,.0f} |"
          f" {half:.1f} ms | {most:.1f} ms |")


if __name__ == "__main__":
    main()
