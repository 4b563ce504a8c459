# SPDX-License-Identifier: MIT
"""The rows of PostgreSQL, compared with a bare program that does the same writes
on two connections."""

import json
import os
import re
import signal
import subprocess
import time

from database import EMPTY, FILLED, finish, postgres
from peers import VERSIONS, Peers
from place import Failure, median, ratio
from rows import (EXPIRED_DAYS, KEPT_DAYS, SQL_MESSAGES, Result, compare,
                  compare_guarded, rate, row)

BARE = "bare libpq"

# As many senders as the bare program has threads.
SENDERS = ("--senders", 2)

# As many transactions as Postern has open at the same time.
TRANSACTIONS = 3

# A database takes longer to fill than a file, and more rounds do not change the
# result.
LONG_ROUNDS = 3

CLIENTS = 32
PUBLISH_SECONDS = 10

SERVE_CONFIG = """\
listen: none
store: "{url}"
channels:
  bench:
    handlers:
      nothing:
        exec: [/bin/true]
"""

# Runs of a tenth of a second, four at a time on each of two nodes.
SHARE_CONFIG = """\
listen: unix:{name}.sock
store: "{url}"
channels:
  bench:
    handlers:
      slow:
        concurrency: 4
        exec: [/bin/sleep, "0.1"]
"""
SHARE_PARALLEL = 8
SHARE_PER_SECOND = SHARE_PARALLEL / 0.1

# Without handlers: the row measures the cost of publishing.
COLLECT_CONFIG = """\
listen: none
store: "{url}"
channels:
  bench: {{}}
"""


@row("pg-end", "PostgreSQL end to end, accepted and completed")
def _(place):
    database = place.database
    for batch, full in ((1000, 300000), (100, 200000)):
        count = place.count(full)
        values, limits = place.in_turn(
            lambda: rate(database.run_postern(
                "--messages", count, "--batch", batch, *SENDERS)),
            lambda: rate(database.run_bare(count, batch)),
        )
        yield compare(f"end to end, batches of {batch:,}", values, limits,
                      BARE, 0.75)


@row("pg-many", "PostgreSQL end to end, fewer and more senders")
def _(place):
    for senders, batch, full in ((1, 1000, 200000), (64, 1, 50000)):
        count = place.count(full)
        (values,) = place.in_turn(lambda: rate(place.database.run_postern(
            "--messages", count, "--batch", batch, "--senders", senders)))
        many = "1 sender" if senders == 1 else f"{senders} senders"
        yield Result(f"{many}, batches of {batch:,}", median(values),
                     "messages/s", rounds=values)


@row("pg-drain", "PostgreSQL, a backlog accepted before it is delivered")
def _(place):
    large = place.count(1000000, 10000)
    small = place.count(10000, 2000)
    memory = []

    def drain(count):
        result = place.database.run_postern(
            "--messages", count, "--drain", "--duplicates", "0%")
        if count == large:
            memory.append(result["rss_kib"] / 1024)
        return result["completed"] / result["drain_seconds"]

    values, limits = place.in_turn(
        lambda: drain(large), lambda: median([drain(small) for _ in range(5)]),
        at_most=LONG_ROUNDS,
    )
    yield compare(f"drain of a backlog of {large:,}", values, limits,
                  f"a backlog of {small:,}", 0.9)
    yield Result(f"memory with a backlog of {large:,}, at most",
                 median(memory), "MiB", at_most=256, rounds=memory)


@row("pg-remember", "PostgreSQL, accepting with many ids remembered")
def _(place):
    database = place.database
    remembered = place.count(10000000, 10000)
    count = place.count(200000)
    database.remembering(remembered)

    def job(of):
        return rate(database.run_postern(
            "--messages", count, *SENDERS, of=of))

    values, limits, empty, bare_empty = place.in_turn(
        lambda: job(FILLED),
        lambda: rate(database.run_bare(count, 1000, of=FILLED)),
        lambda: job(EMPTY),
        lambda: rate(database.run_bare(count, 1000)),
        at_most=LONG_ROUNDS,
    )
    database.remove(FILLED)
    what = f"with {remembered:,} remembered ids"
    yield compare(what, values, limits, f"{BARE}, as many ids", 0.9)
    yield compare(what, values, empty, "an empty store", None)
    yield compare(f"{BARE}, {what}", limits, bare_empty,
                  f"{BARE}, an empty database", None)


def count_seen(database):
    (line,) = database.sql(
        "SELECT count(*) FROM postern.seen WHERE at <="
        f" postern.now_ms() - {KEPT_DAYS} * 86400000::bigint")
    return int(line)


@row("pg-clean", "PostgreSQL, accepting while what has expired is cleaned up")
def _(place):
    database = place.database
    expired = place.count(5000000, 20000)
    count = place.count(400000)
    keep = ("--retention-payload", f"{KEPT_DAYS}d", "--retention-dedupe",
            f"{KEPT_DAYS}d")
    cleaned = []
    database.remembering(expired, EXPIRED_DAYS)

    def cleaning():
        result = database.run_postern(
            "--messages", count, *SENDERS, *keep, of=FILLED,
            inspect=lambda d: cleaned.append(expired - count_seen(d)))
        cleaned[-1] /= result["seconds"]
        return rate(result)

    values, limits = place.in_turn(
        cleaning,
        lambda: rate(database.run_postern(
            "--messages", count, *SENDERS, of=FILLED)),
        at_most=LONG_ROUNDS,
    )
    database.remove(FILLED)
    yield compare(f"while {expired:,} expired ids are cleaned up",
                  values, limits, "no clean-up", 0.8)
    yield Result("ids cleaned up meanwhile", median(cleaned), "/s",
                 rounds=cleaned)


@row("pg-sql", "PostgreSQL, the sql handler in one transaction with its end")
def _(place):
    database = place.database
    for commit in (1, 100):
        count = place.count(SQL_MESSAGES if commit > 1 else SQL_MESSAGES // 2)
        values, limits, several = place.in_turn(
            lambda: rate(database.run_postern(
                "--messages", count, "--handler", "sql", "--commit-batch",
                commit)),
            lambda: rate(database.run_bare(count, 1000, commit)),
            lambda: rate(database.run_bare(count, 1000, commit, TRANSACTIONS)),
        )
        what = f"sql handler, {commit} per commit"
        yield compare(what, values, limits, "bare transactions", 0.8)
        yield compare(what, values, several,
                      f"bare transactions, {TRANSACTIONS} at a time", None)


@row("pg-guard", "PostgreSQL, a transactional guard and its duplicates")
def _(place):
    database = place.database
    count = place.count(5000)
    runs, bare = place.in_turn(lambda: database.run_guarded("guard", count),
                               lambda: database.run_guarded("bare", count))
    yield from compare_guarded(runs, bare, "bare transactions")


def latency(place):
    return place.database.run_postern(
        "--messages", place.count(5000, 500), "--rate", 500)["latency_ms"]


@row("pg-latency", "PostgreSQL, from accept to the start of the handler")
def _(place):
    (runs,) = place.in_turn(lambda: latency(place))
    for name in ("p50", "p99"):
        values = [run[name] for run in runs]
        yield Result(f"accept to handler start at 500/s, {name}",
                     median(values), "ms", rounds=values)


def two_nodes(place, count):
    """Returns the messages per second of two nodes that share a database."""
    database = place.database
    database.create()
    jobs = [database.start_bench("--messages", count // 2, "--shared")
            for _ in range(2)]
    results = [finish(job) for job in jobs]
    database.remove()
    done = sum(result["completed"] for result in results)
    if done != sum(result["accepted"] for result in results):
        raise Failure(f"not all that was accepted was completed: {results}")
    return done / max(result["seconds"] for result in results)


@row("pg-nodes", "PostgreSQL, two nodes on one database")
def _(place):
    count = place.count(300000)
    values, limits = place.in_turn(
        lambda: two_nodes(place, count),
        lambda: rate(place.database.run_postern(
            "--messages", count, *SENDERS)),
    )
    yield compare("two nodes on one database", values, limits,
                  "one node", 0.85)


class Node:
    """`postern serve` on the database of the round."""

    def __init__(self, place, config, name="serve"):
        self.log = place.path(f"{name}.log")
        self.socket = place.path(f"{name}.sock")
        with open(place.path(f"{name}.yaml"), "w", encoding="utf-8") as file:
            file.write(config.format(url=place.database.url(), name=name))
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [place.postern, "serve", "-c", f"{name}.yaml"],
                cwd=place.folder, stdin=subprocess.DEVNULL, stderr=log,
            )
        end = time.monotonic() + 60
        while '"serving"' not in self.read_log():
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failure(f"postern serve: {self.read_log()}")
            time.sleep(0.01)

    def read_log(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    def rss_kib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return int(re.search(r"VmRSS:\s*(\d+)", file.read()).group(1))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60) != 0:
            raise Failure(f"postern serve: {self.read_log()}")


def idle_memory(place):
    place.database.create()
    node = Node(place, SERVE_CONFIG)
    time.sleep(1)
    rss = node.rss_kib()
    node.stop()
    place.database.remove()
    return rss / 1024


def send_all(place, node, count):
    """Has one node accept all messages, in one request."""
    path = place.path("events.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump([{"specversion": "1.0", "id": str(number), "source": "bench",
                    "type": "slow"} for number in range(count)], file)
    text = place.output([
        "curl", "-sS", "--fail", "--unix-socket", node.socket,
        "http://postern/v1/channels/bench/messages", "-H",
        "Content-Type: application/cloudevents-batch+json", "-d", f"@{path}"])
    if text.count('"accepted"') != count:
        raise Failure(f"not all messages were accepted: {text[:200]}")


def shared_rate(place, count):
    """Returns the runs per second of two nodes, of which one accepted all."""
    database = place.database
    database.create()
    nodes = [Node(place, SHARE_CONFIG, name) for name in ("one", "two")]
    started = time.perf_counter()
    send_all(place, nodes[0], count)
    while database.sql("SELECT count(*) FROM postern.open") != ["0"]:
        time.sleep(0.02)
    seconds = time.perf_counter() - started
    for node in nodes:
        node.stop()
    done = database.sql("SELECT count(*) FROM postern.ledger WHERE state = 3")
    database.remove()
    if done != [str(count)]:
        raise Failure(f"{done[0]} of {count} messages are done")
    return count / seconds


def bare_rate(place, count):
    """Returns the same programs per second, started by nothing but xargs."""
    started = time.perf_counter()
    place.output(["sh", "-c", f"yes 0.1 | head -n {count} |"
                  f" xargs -n 1 -P {SHARE_PARALLEL} /bin/sleep"])
    return count / (time.perf_counter() - started)


@row("pg-share", "PostgreSQL, slow work of one node runs on both")
def _(place):
    count = place.count(1000, 40)
    values, limits = place.in_turn(lambda: shared_rate(place, count),
                                   lambda: bare_rate(place, count),
                                   at_most=LONG_ROUNDS)
    what = f"{count:,} runs of 0.1 s, accepted by one of two nodes"
    yield compare(what, values, limits, "xargs -P 8", 1 / 1.15)
    yield compare(what, values, [SHARE_PER_SECOND] * len(values), "no overhead",
                  None)


@row("pg-serve", "PostgreSQL, the server by itself")
def _(place):
    (memory,) = place.in_turn(lambda: idle_memory(place), at_most=LONG_ROUNDS)
    yield Result("idle memory of postern serve", median(memory),
                 "MiB", at_most=32, rounds=memory)


# A client commits a row of its own table, alone or with a message.
BUSINESS = """\
CREATE TABLE public.business (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer integer NOT NULL, amount integer NOT NULL, note text NOT NULL);
CREATE TABLE public.plain (
    id bigint GENERATED ALWAYS AS IDENTITY, type text NOT NULL,
    body bytea NOT NULL);
"""
INSERT = """\
\\set customer random(1, 1000000)
BEGIN;
INSERT INTO public.business (customer, amount, note)
    VALUES (:customer, 5, 'x');
"""
PUBLISH = "SELECT postern.publish('bench', 'sold', repeat('x', 256));\n"
# The minimal cost of a message: a row with its contents, without a key, which
# nobody reads.
PLAIN = ("INSERT INTO public.plain (type, body)"
         " VALUES ('sold', convert_to(repeat('x', 256), 'UTF8'));\n")
COMMIT = "COMMIT;\n"


def commits(place, script, seconds):
    """Returns the transactions per second of many clients, while a node
    collects."""
    database = place.database
    database.create()
    database.sql(BUSINESS)
    node = Node(place, COLLECT_CONFIG)
    path = place.path("commits.sql")
    with open(path, "w", encoding="utf-8") as file:
        file.write(script)
    text = place.output([
        os.path.join(postgres.BIN, "pgbench"), "-n", "-M", "prepared", "-c",
        str(CLIENTS), "-j", "2", "-T", str(seconds), "-f", path, "-h",
        database.server.path, "-p", str(database.server.port), "-U",
        postgres.USER, "bench"])
    node.stop()
    # Every published message is accepted or still staged.
    counts = database.sql(
        "SELECT count(*) FROM public.business;"
        "SELECT (SELECT count(*) FROM postern.message)"
        " + (SELECT count(*) FROM postern.staged)")
    database.remove()
    if PUBLISH in script and counts[0] != counts[1]:
        raise Failure(f"{counts[0]} rows, and {counts[1]} messages")
    return float(re.search(r"tps = ([0-9.]+)", text).group(1))


@row("pg-publish", "PostgreSQL, clients that publish with their own rows")
def _(place):
    seconds = max(1, round(PUBLISH_SECONDS * min(place.scale, 1)))
    values, limits, plain = place.in_turn(
        lambda: commits(place, INSERT + PUBLISH + COMMIT, seconds),
        lambda: commits(place, INSERT + COMMIT, seconds),
        lambda: commits(place, INSERT + PLAIN + COMMIT, seconds),
    )
    yield compare(f"{CLIENTS} clients that publish", values, limits,
                  "without it", 0.8)
    yield compare(f"{CLIENTS} clients that publish", values, plain,
                  "a row of a plain table instead", None)


# How many messages are enough for a measurement: some peers are sixty times as
# fast as others.
PEER_MESSAGES = {
    "graphile-worker": 100000,
    "pg-boss": 100000,
    "pg-transactional-outbox": 5000,
}


def compare_waits(runs, others):
    """Compares the latency with that of the fastest peer."""
    for part in ("p50", "p99"):
        mine = [run[part] for run in runs]
        best = min(others, key=lambda name: median(
            [run[part] for run in others[name]]))
        theirs = [run[part] for run in others[best]]
        yield Result(f"accept to handler start at 500/s, {part}",
                     median(mine), "ms", beside=f"{best} {VERSIONS[best]}",
                     limit=median(theirs), ratio=ratio(theirs, mine), target=1,
                     rounds=list(zip(mine, theirs)))


@row("pg-peers", "PostgreSQL, beside others that do the job")
def _(place):
    peers = Peers(place)
    count = place.count(300000)
    # Delivered while they are sent, and delivered afterwards: which one is
    # faster differs between the peers.
    ways = [(name, way) for name in VERSIONS for way in ("together", "apart")]
    values, *others = place.in_turn(
        lambda: rate(place.database.run_postern(
            "--messages", count, *SENDERS)),
        *[lambda name=name, way=way: rate(peers.run(
            name, way, place.count(PEER_MESSAGES[name], 100)))
          for name, way in ways],
        at_most=LONG_ROUNDS,
    )
    for (name, way), limits in zip(ways, others):
        beside = f"{name} {VERSIONS[name]}"
        if way == "apart":
            beside += ", sent first"
        yield compare("end to end", values, limits, beside, 5)
    count = place.count(5000, 500)
    runs, *others = place.in_turn(
        lambda: latency(place),
        *[lambda name=name: peers.run(name, "latency", count, 500)
          for name in VERSIONS],
        at_most=LONG_ROUNDS,
    )
    yield from compare_waits(runs, dict(zip(VERSIONS, others)))
