# SPDX-License-Identifier: MIT
"""The rows: what is measured, what it is compared with, and the target.

A row's function yields results. A result with a limit has a ratio, the median
of the ratios of all rounds; its two figures are medians of their own, so their
quotient may differ from the ratio.
"""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import time

from place import Failure, median, ratio

ROWS = []

# Small enough that all deliveries fit in the memory of the process: the row
# measures the transactions, not the queue.
SQL_MESSAGES = 10000

# The age of the expired ids, and the retention.
EXPIRED_DAYS = 60
KEPT_DAYS = 30

CLEAN_CONFIG = f"""\
store: sqlite:bench.db
channels:
  bench:
    retention: {{payload: {KEPT_DAYS}d, dedupe: {KEPT_DAYS}d}}
    handlers:
      nothing:
        exec: [/bin/true]
"""

CONFIG = """\
listen: none
store: sqlite:bench.db
channels:
  bench:
    handlers:
      nothing:
        exec: [/bin/true]
"""


class Row:
    def __init__(self, name, title, measure):
        self.name = name
        self.title = title
        self.measure = measure

    def store(self):
        prefixes = {"pg": "PostgreSQL", "redis": "Redis"}
        return prefixes.get(self.name.split("-", 1)[0], "SQLite")


class Result:
    def __init__(self, what, value, unit, **more):
        self.what = what
        self.value = value
        self.unit = unit
        self.beside = more.get("beside", "")  # what it is compared with
        self.limit = more.get("limit")
        self.ratio = more.get("ratio")
        self.target = more.get("target")
        self.at_most = more.get("at_most")
        self.rounds = more.get("rounds", [])

    def met(self):
        """Returns whether the target was reached; None if there is none."""
        if self.target is not None:
            return self.ratio >= self.target
        if self.at_most is not None:
            return self.value <= self.at_most
        return None


def row(name, title):
    def register(function):
        ROWS.append(Row(name, title, function))
        return function

    return register


def rate(result):
    return result["messages_per_second"]


def compare(what, values, limits, beside, target):
    return Result(
        what, median(values), "messages/s", beside=beside,
        limit=median(limits), ratio=ratio(values, limits), target=target,
        rounds=list(zip(values, limits)),
    )


@row("end", "SQLite end to end, accepted and completed")
def _(place):
    for batch, full, target in ((1000, 300000, 0.75), (100, 100000, None),
                                (1, 3000, None)):
        count = place.count(full)
        values, limits = place.in_turn(
            lambda: rate(place.run_postern(
                "--messages", count, "--batch", batch)),
            lambda: rate(place.run_bare(count, batch)),
        )
        yield compare(f"end to end, batches of {batch:,}", values, limits,
                      "bare sqlite3", target)


@row("many", "SQLite end to end, 64 senders of single messages")
def _(place):
    count = place.count(50000)
    (values,) = place.in_turn(lambda: rate(place.run_postern(
        "--messages", count, "--batch", 1, "--senders", 64)))
    yield Result("end to end, 64 senders, one message at a time",
                 median(values), "messages/s", rounds=values)


@row("channels", "SQLite end to end, 1,000 channels and handlers beside one")
def _(place):
    count = place.count(100000)

    def run(channels):
        return rate(place.run_postern("--messages", count, "--batch", 100,
                                      "--channels", channels))
    values, limits = place.in_turn(lambda: run(1000), lambda: run(1))
    yield compare("end to end, 1,000 channels with a handler each", values,
                  limits, "one channel", 0.9)


@row("keys", "SQLite end to end, the key read from the body")
def _(place):
    count = place.count(200000)

    def run(rule):
        return rate(place.run_postern("--messages", count, "--key", rule))
    values, limits = place.in_turn(lambda: run("json:/id"), lambda: run("id"))
    yield compare("end to end, key: json:/id", values, limits, "key: id", 0.9)


@row("drain", "a backlog accepted before anything is delivered")
def _(place):
    large = place.count(1000000, 10000)
    small = place.count(10000, 2000)
    memory = []

    def drain(count):
        result = place.run_postern(
            "--messages", count, "--drain", "--duplicates", "0%")
        if count == large:
            memory.append(result["rss_kib"] / 1024)
        return result["completed"] / result["drain_seconds"]

    # The small backlog is drained in a moment: use the median of several.
    values, limits = place.in_turn(
        lambda: drain(large), lambda: median([drain(small) for _ in range(5)])
    )
    yield compare(f"drain of a backlog of {large:,}", values, limits,
                  f"a backlog of {small:,}", 0.9)
    yield Result(f"memory with a backlog of {large:,}, at most",
                 median(memory), "MiB", at_most=256, rounds=memory)


@row("remember", "accepting with many ids remembered")
def _(place):
    remembered = place.count(10000000, 10000)
    count = place.count(200000)
    place.remembering(remembered)

    def postern_remembering():
        place.copy_remembering()
        return rate(place.run_postern("--messages", count, fresh=False))

    def bare_remembering():
        place.copy_remembering()
        return rate(place.run_bare(count, 1000, fresh=False))

    values, limits, empty, bare_empty = place.in_turn(
        postern_remembering,
        bare_remembering,
        lambda: rate(place.run_postern("--messages", count)),
        lambda: rate(place.run_bare(count, 1000)),
    )
    place.clean("remembered.db")
    what = f"with {remembered:,} remembered ids"
    yield compare(what, values, limits, "bare sqlite3, as many ids", 0.9)
    yield compare(what, values, empty, "an empty store", None)
    yield compare(f"bare sqlite3, {what}", limits, bare_empty,
                  "bare sqlite3, an empty file", None)


def count_expired(path):
    cutoff = (time.time() - KEPT_DAYS * 86400) * 1000
    with sqlite3.connect(path) as database:
        ((count,),) = database.execute(
            "SELECT count(*) FROM postern_seen WHERE at < ?", (cutoff,))
    database.close()
    return count


def clean_alone(place, expired):
    """Returns the seconds for the whole cleanup, without any other load."""
    place.copy_remembering()
    with open(place.path("clean.yaml"), "w", encoding="utf-8") as file:
        file.write(CLEAN_CONFIG)
    started = time.perf_counter()
    result = json.loads(place.output(
        [place.postern, "cleanup", "-c", "clean.yaml", "--json"]))
    seconds = time.perf_counter() - started
    place.clean()
    if result["keys"] != expired:
        raise Failure(f"cleaned up {result}, not {expired} ids")
    return seconds


@row("clean", "accepting while what has expired is cleaned up")
def _(place):
    expired = place.count(5000000, 20000)
    count = place.count(300000)
    keep = ("--retention-payload", f"{KEPT_DAYS}d", "--retention-dedupe",
            f"{KEPT_DAYS}d")
    cleaned = []
    place.remembering(expired, EXPIRED_DAYS)

    def job(*args, **more):
        place.copy_remembering()
        return place.run_postern(*args, fresh=False, **more)

    def cleaning(*args):
        result = job(*args, *keep, inspect=lambda path: cleaned.append(
            (expired - count_expired(path))))
        cleaned[-1] /= result["seconds"]
        return result

    values, limits = place.in_turn(
        lambda: rate(cleaning("--messages", count)),
        lambda: rate(job("--messages", count)),
    )
    yield compare(f"while {expired:,} expired ids are cleaned up", values,
                  limits, "no clean-up", 0.8)
    yield Result("ids cleaned up meanwhile", median(cleaned), "/s",
                 rounds=cleaned)
    few = place.count(5000, 500)
    busy, quiet = place.in_turn(
        lambda: cleaning("--messages", few, "--rate", 500)["latency_ms"]["p99"],
        lambda: job("--messages", few, "--rate", 500)["latency_ms"]["p99"],
    )
    yield Result("accept to handler start meanwhile, p99", median(busy), "ms",
                 beside="no clean-up", limit=median(quiet), rounds=busy)
    seconds = clean_alone(place, expired)
    yield Result(f"{expired:,} ids cleaned up with nothing else to do",
                 seconds, "s", rounds=[seconds])
    place.clean("remembered.db")


@row("sql", "the sql handler, its writes and the completion in one transaction")
def _(place):
    # With large commits a run is short: use the median of several.
    for commit, times in ((1, 1), (100, 5)):
        count = place.count(SQL_MESSAGES)
        values, limits = place.in_turn(
            lambda: median([rate(place.run_postern(
                "--messages", count, "--handler", "sql", "--commit-batch",
                commit)) for _ in range(times)]),
            lambda: median([rate(place.run_bare(count, 1000, commit))
                            for _ in range(times)]),
        )
        yield compare(f"sql handler, {commit} per commit", values, limits,
                      "bare transactions", 0.8)


def compare_guarded(runs, bare, what):
    """A guard beside the bare transactions, and its duplicates beside its first
    deliveries."""
    if any(run["again_wrote"] for run in runs):
        raise Failure("a duplicate wrote something")
    first = [rate(run) for run in runs]
    again = [run["again_per_second"] for run in runs]
    yield compare("transactional guard, one row each", first,
                  [rate(run) for run in bare], what, 0.8)
    yield compare("duplicates in a guard, which write nothing", again, first,
                  "first deliveries", 3)


@row("guard", "a transactional guard, and the duplicates that it finds")
def _(place):
    count = place.count(5000)
    runs, bare = place.in_turn(lambda: place.run_guarded("guard", count),
                               lambda: place.run_guarded("bare", count))
    yield from compare_guarded(runs, bare, "bare transactions")


@row("guard-memory", "a guard with its keys in memory (dedupe: memory)")
def _(place):
    count = place.count(1000000, 10000)
    program = os.path.join(os.path.dirname(os.path.dirname(place.postern)),
                           "bench", "guard_memory")
    (runs,) = place.in_turn(
        lambda: json.loads(place.output([program, str(count)])))
    for name, member in (("first deliveries", "messages_per_second"),
                         ("duplicates", "again_per_second")):
        values = [run[member] for run in runs]
        yield Result(f"keys in memory, {name}", median(values), "messages/s",
                     rounds=values)
    values = [run["bytes_per_key"] for run in runs]
    yield Result(f"keys in memory, {count:,} of them", median(values),
                 "bytes/key", at_most=100, rounds=values)


def shared_end(place, store, count):
    return rate(place.run_postern("--messages", count, "--batch", 100,
                                  store=store))


@row("shared", "a file that other processes may write to")
def _(place):
    count = place.count(20000)
    values, limits = place.in_turn(
        lambda: shared_end(place, "sqlite:bench.db?shared=yes", count),
        lambda: shared_end(place, "sqlite:bench.db", count))
    yield compare("end to end with ?shared=yes, batches of 100", values, limits,
                  "without it", None)


@row("latency", "from accept to the start of the handler")
def _(place):
    count = place.count(5000, 500)
    (runs,) = place.in_turn(
        lambda: place.run_postern("--messages", count, "--rate", 500))
    for name in ("p50", "p99"):
        values = [run["latency_ms"][name] for run in runs]
        yield Result(f"accept to handler start at 500 messages/s, {name}",
                     median(values), "ms", rounds=values)


@row("hung", "from accept to start, beside 100 handlers that hang and a slow one")
def _(place):
    count = place.count(5000, 500)

    def run(*more):
        return place.run_postern("--messages", count, "--rate", 500, *more)
    beside, alone = place.in_turn(lambda: run("--hung", 100), run)
    for name in ("p50", "p99"):
        values, limits = ([one["latency_ms"][name] for one in runs]
                          for runs in (beside, alone))
        yield Result(f"accept to handler start, {name}, 100 others hang, one is slow",
                     median(values), "ms", beside="alone",
                     limit=median(limits), ratio=ratio(values, limits),
                     rounds=list(zip(values, limits)))


def syncs(place, program):
    """Runs a job and returns its fsyncs per 1,000 messages."""
    log = place.path("syncs")
    result = program(("strace", "-f", "--seccomp-bpf", "-c", "-e",
                      "trace=fsync,fdatasync", "-o", log))
    calls = 0
    with open(log, encoding="utf-8") as file:
        for words in map(str.split, file):
            if words and words[-1] in ("fsync", "fdatasync"):
                calls += int(words[3])
    return calls * 1000 / result["accepted"]


@row("syncs", "how often the disk is waited for")
def _(place):
    for batch, full in ((1000, 100000), (100, 50000), (1, 1000)):
        count = place.count(full)
        value = syncs(place, lambda wrap: place.run_postern(
            "--messages", count, "--batch", batch, wrap=wrap))
        limit = syncs(place, lambda wrap: place.run_bare(
            count, batch, wrap=wrap))
        yield Result(f"fsyncs per 1,000 messages, batches of {batch:,}", value,
                     "", beside="bare sqlite3", limit=limit)


class Server:
    """`postern serve` on a new file."""

    def __init__(self, place):
        place.clean()
        with open(place.path("serve.yaml"), "w", encoding="utf-8") as file:
            file.write(CONFIG)
        self.socket = place.path("bench.db.sock")
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [place.postern, "serve", "-c", "serve.yaml"], cwd=place.folder,
            stderr=subprocess.DEVNULL,
        )

    def accept(self):
        """Sends a message; returns False if the server does not listen yet."""
        body = b"x" * 256
        head = (
            "POST /v1/channels/bench/messages HTTP/1.1\r\nHost: x\r\n"
            "Webhook-Id: first\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(self.socket)
            except OSError:
                return False
            connection.sendall(head.encode() + body)
            answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 20"), answer
        return True

    def rss_kib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return int(re.search(r"VmRSS:\s*(\d+)", file.read()).group(1))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0


def first_accept(place):
    server = Server(place)
    while not server.accept():
        assert server.process.poll() is None
        time.sleep(0.0005)
    seconds = time.perf_counter() - server.started
    # Wait until the server is idle.
    time.sleep(1)
    rss = server.rss_kib()
    server.stop()
    place.clean()
    return seconds, rss


@row("serve", "the server by itself")
def _(place):
    (runs,) = place.in_turn(lambda: first_accept(place))
    starts = [seconds * 1000 for seconds, _ in runs]
    memory = [rss / 1024 for _, rss in runs]
    yield Result("idle memory of postern serve", median(memory), "MiB",
                 at_most=32, rounds=memory)
    yield Result("start to first accepted message, new file", median(starts),
                 "ms", at_most=100, rounds=starts)
