#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The benchmark does what its options say, on every store. Its duration is
never checked: that is for `make bench`."""

import os
import shutil
import sqlite3
import subprocess
import sys
from xml.etree import ElementTree

from support import PATIENCE_S, POSTERN, case, equal, main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BENCH = os.path.join(ROOT, "bench")
BUILD = os.path.dirname(os.path.dirname(os.path.abspath(POSTERN)))
sys.path.insert(0, BENCH)

import report  # noqa: E402
import rows  # noqa: E402
import rows_postgres  # noqa: E402

NAMES = """accepted duplicates completed seconds messages_per_second latency_ms
    rss_kib""".split()


def bench(place, store, *args):
    return place.ok("bench", "--store", store, "--json", *args).json()


def both(name):
    """Registers a case for each store."""

    def register(function):
        for store in ("memory:", "sqlite:bench.db"):
            case(f"{name}, on {store}", store=store)(function)
        return function

    return register


@both("accepted plus duplicates is the number sent, and all accepted are completed")
def _(place, store):
    got = bench(place, store, "--messages", "2500", "--batch", "1000")
    equal(list(got)[: len(NAMES)], NAMES)
    equal(got["accepted"], 2250)
    equal(got["duplicates"], 250)
    equal(got["completed"], 2250)
    assert got["seconds"] > 0, got
    assert got["messages_per_second"] > 0, got
    assert got["rss_kib"] > 1000, got
    latency = got["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"], latency


@both("the share of duplicates, the batch and the senders follow the flags")
def _(place, store):
    got = bench(
        place, store, "--messages", "1000", "--batch", "7", "--senders", "4",
        "--duplicates", "40%", "--channels", "3",
    )
    equal(
        (got["accepted"], got["duplicates"], got["completed"]), (600, 400, 600)
    )
    equal((got["batch"], got["senders"], got["channels"]), (7, 4, 3))


@both("handlers that hang keep no message from being completed")
def _(place, store):
    got = bench(place, store, "--messages", "50", "--duplicates", "0",
                "--hung", "40")
    equal((got["accepted"], got["completed"]), (50, 50))
    place.fails(2, "bench", "--store", store, "--hung", "4", "--drain",
                says="remove --drain")


@both("without duplicates all messages are accepted")
def _(place, store):
    got = bench(place, store, "--messages", "11", "--duplicates", "0")
    equal((got["accepted"], got["duplicates"], got["completed"]), (11, 0, 11))


@both("with a rate messages are sent one by one, and no faster")
def _(place, store):
    got = bench(place, store, "--messages", "100", "--rate", "1000")
    equal((got["accepted"], got["duplicates"], got["completed"]), (90, 10, 90))
    assert got["seconds"] >= 0.099, got
    equal(got["rate"], 1000)


@both("a backlog is delivered after all of it was accepted")
def _(place, store):
    got = bench(place, store, "--messages", "500", "--drain")
    equal((got["accepted"], got["duplicates"], got["completed"]), (450, 50, 450))
    assert got["drain_seconds"] > 0, got
    assert got["accept_seconds"] + got["drain_seconds"] <= got["seconds"] + 0.001


@both("the handler can be a program")
def _(place, store):
    got = bench(place, store, "--messages", "10", "--handler", "exec")
    equal((got["accepted"], got["completed"]), (9, 9))


@both("without a handler messages are only accepted")
def _(place, store):
    got = bench(place, store, "--messages", "1000", "--handler", "none")
    equal((got["accepted"], got["duplicates"], got["completed"]), (900, 100, 0))
    equal(got["latency_ms"], {"p50": None, "p99": None, "max": None})
    assert got["messages_per_second"] > 0, got


@case("the counts of the benchmark agree with the store")
def _(place):
    store = "sqlite:bench.db"
    got = bench(place, store, "--messages", "1000")
    stats = place.ok("stats", "--store", store, "--json").json()
    (channel,) = stats["channels"]
    (handler,) = stats["handlers"]
    equal((channel["accepted"], channel["duplicates"]), (900, 100))
    equal((handler["done"], handler["pending"], handler["leased"]), (900, 0, 0))
    equal(got["completed"], handler["done"])
    row = place.ok("list", "--store", store, "--json", "--limit", "1").json()[0]
    body = place.ok("show", row["message_id"], "--store", store, "--body").raw
    equal(len(body), 256)


@case("the sql handler writes one row for each message, also in batches")
def _(place):
    for name, args in (("one.db", []), ("many.db", ["--commit-batch", "100"])):
        got = bench(
            place, f"sqlite:{name}", "--messages", "300", "--handler", "sql",
            *args,
        )
        equal((got["accepted"], got["completed"]), (270, 270))
        with sqlite3.connect(place.file(name)) as database:
            ((rows, ids),) = database.execute(
                "SELECT count(*), count(DISTINCT id) FROM bench_effect"
            )
        equal((rows, ids), (270, 270))


@case("the sql handler is refused on a store without SQL")
def _(place):
    place.fails(
        4, "bench", "--store", "memory:", "--handler", "sql", says="bench"
    )


@case("a store that has been used is refused and not changed")
def _(place):
    place.configure()
    place.ok("init")
    place.ok("send", "orders", "--id", "1", stdin="x")
    result = place.fails(
        1, "bench", "--store", "sqlite:box.db", "--messages", "10", says="used"
    )
    equal(result.out, "")
    equal(len(place.ok("list", "--json").json()), 1)
    bench(place, "sqlite:bench.db", "--messages", "10")
    place.fails(1, "bench", "--store", "sqlite:bench.db", says="used")


@case("a store that another process owns is refused")
def _(place):
    place.hold("sqlite:held.db")
    place.fails(4, "bench", "--store", "sqlite:held.db", says="in use")


@case("the store is never taken from a configuration")
def _(place):
    place.configure()
    place.fails(2, "bench", says="--store")
    place.fails(2, "bench", env={"POSTERN_STORE": "sqlite:x.db"}, says="--store")
    equal(os.path.exists(place.file("box.db")), False)
    equal(os.path.exists(place.file("x.db")), False)


@case("invalid flags are refused with what is allowed")
def _(place):
    for words, says in (
        (["--messages", "0"], "--messages"),
        (["--messages", "many"], "--messages"),
        (["--messages", "-1"], "--messages"),
        (["--batch", "0"], "--batch"),
        (["--batch", "10001"], "--batch"),
        (["--senders", "257"], "--senders"),
        (["--duplicates", "91%"], "0% to 90%"),
        (["--duplicates", "%"], "0% to 90%"),
        (["--duplicates", "-1%"], "0% to 90%"),
        (["--duplicates", "1" * 40], "0% to 90%"),
        (["--handler", "mail"], "callback, sql, exec or none"),
        (["--rate", "0"], "--rate"),
        (["--rate", "5", "--batch", "5"], "remove"),
        (["--rate", "5", "--drain"], "remove"),
        (["--rate", "5", "--senders", "2"], "remove"),
        (["--shared", "--drain"], "remove"),
        (["--shared", "--handler", "none"], "remove"),
        (["--store", "nosuch:x"], "nosuch"),
        (["more"], "unexpected argument"),
    ):
        if "--store" not in words:
            words = ["--store", "sqlite:bench.db"] + words
        result = place.fails(2, "bench", *words, says=says)
        equal(result.out, "", words)
    equal(os.path.exists(place.file("bench.db")), False)


@case("the output is lines of text, with progress on a terminal only")
def _(place):
    result = place.ok("bench", "--store", "memory:", "--messages", "100")
    equal(result.err, "")
    for name in ("accepted", "duplicates", "completed", "latency p99"):
        assert f"\n{name} " in "\n" + result.out, name
    master, slave = os.openpty()
    subprocess.run(
        [POSTERN, "bench", "--store", "memory:", "--rate", "100",
         "--messages", "50"],
        env=place.environment(), cwd=place.path, stdout=subprocess.DEVNULL,
        stderr=slave, timeout=PATIENCE_S, check=True,
    )
    os.close(slave)
    text = os.read(master, 65536).decode()
    os.close(master)
    assert "accepted" in text and "completed" in text, text
    assert text.endswith("\r\x1b[K"), text


@case("the bare programs work on the tables, and every row has its figures")
def _(place):
    result = subprocess.run(
        [os.path.join(BENCH, "run"), BUILD, "end", "remember", "clean", "sql"],
        env=dict(place.environment(), BENCH_SCALE="0.0001", BENCH_ROUNDS="1",
                 BENCH_DIR=place.file("data")),
        cwd=place.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, timeout=PATIENCE_S, check=False,
    )
    equal(result.returncode, 0, result.stderr)
    for text in ("end to end, batches of 1,000", "as many ids", "no clean-up",
                 "sql handler, 100 per commit", "aim ≥ 0.8"):
        assert text in result.stdout, (text, result.stdout)
    assert "round 1 of 1" in result.stderr, result.stderr


def has_postgres():
    """Whether the build has PostgreSQL."""
    return os.path.exists(os.path.join(BUILD, "bench", "bare_postgres"))


@case("the bare program works on the tables of PostgreSQL, too, if it was built")
def _(place):
    if not has_postgres():
        return
    result = subprocess.run(
        [os.path.join(BENCH, "run"), BUILD, "pg-end", "pg-remember",
         "pg-clean", "pg-sql", "pg-nodes", "pg-share"],
        env=dict(place.environment(), BENCH_SCALE="0.0001", BENCH_ROUNDS="1",
                 BENCH_DIR=place.file("data"), BENCH_NOT_DURABLE="1"),
        cwd=place.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, timeout=PATIENCE_S, check=False,
    )
    equal(result.returncode, 0, result.stderr)
    for text in ("end to end, batches of 1,000", "as many ids", "no clean-up",
                 "sql handler, 100 per commit", "two nodes on one database"):
        assert text in result.stdout, (text, result.stdout)


def run_http(place, *names):
    result = subprocess.run(
        [os.path.join(BENCH, "run"), BUILD, *names],
        env=dict(place.environment(), BENCH_SCALE="0.0001", BENCH_ROUNDS="1",
                 BENCH_DIR=place.file("data"), BENCH_NOT_DURABLE="1"),
        cwd=place.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, timeout=PATIENCE_S, check=False,
    )
    equal(result.returncode, 0, result.stderr)
    return result.stdout


@case("the server is measured over HTTP, beside programs with its libraries")
def _(place):
    out = run_http(place, "http", "webhook", "pull", "connections", "down")
    for text in ("the same library, bare", "request to 202 at 500", "curl-multi",
                 "callbacks that drain a backlog", "idle connections",
                 "a receiver that is down, at most"):
        assert text in out, (text, out)


@case("the server is measured over HTTP on PostgreSQL, too, if it was built")
def _(place):
    if has_postgres():
        out = run_http(place, "pg-http", "pg-webhook", "pg-pull")
        for text in ("the same library, bare", "curl-multi", "callbacks that drain"):
            assert text in out, (text, out)


@case("the bare program and the guard do the same in Redis, if it was built")
def _(place):
    if not os.path.exists(os.path.join(BUILD, "bench", "bare_redis")):
        return
    result = subprocess.run(
        [os.path.join(BENCH, "run"), BUILD, "redis-guard"],
        env=dict(place.environment(), BENCH_SCALE="0.0001", BENCH_ROUNDS="1",
                 BENCH_DIR=place.file("data")),
        cwd=place.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, timeout=PATIENCE_S, check=False,
    )
    equal(result.returncode, 0, result.stderr)
    for text in ("guarded functions, 1 thread", "guarded functions, 64 threads"):
        assert text in result.stdout, (text, result.stdout)


@case("without npm the peers are skipped, and the missing program is named")
def _(place):
    # The only program that the benchmark runs by name.
    os.mkdir(place.file("bin"))
    os.symlink(shutil.which("stat"), place.file("bin/stat"))
    result = subprocess.run(
        [sys.executable, os.path.join(BENCH, "run"), BUILD, "pg-peers"],
        env=dict(place.environment(), PATH=place.file("bin"),
                 BENCH_DIR=place.file("data")),
        cwd=place.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, timeout=PATIENCE_S, check=False,
    )
    equal(result.returncode, 1, result.stderr)
    assert "npm is missing" in result.stderr, result.stderr
    assert "apt-get install npm" in result.stderr, result.stderr
    assert "Traceback" not in result.stderr, result.stderr


@case("the peer with the lowest latency is the one to compare with")
def _(_):
    def waits(*values):
        return [{"p50": value, "p99": 10 * value} for value in values]

    middle, last = rows_postgres.compare_waits(
        waits(1, 2, 3), {"graphile-worker": waits(4, 4, 4),
                         "pg-boss": waits(9, 3, 3),
                         "pg-transactional-outbox": waits(8, 8, 8)})
    equal((middle.value, middle.limit, middle.ratio), (2, 3, 1.5))
    assert middle.beside.startswith("pg-boss "), middle.beside
    equal((last.value, last.limit, last.met()), (20, 30, True))


@case("a shared store may have been used, and the run ends when nothing is open")
def _(place):
    store = "sqlite:bench.db"
    bench(place, store, "--messages", "100")
    got = bench(place, store, "--messages", "100", "--shared")
    equal((got["accepted"], got["completed"]), (90, 90))
    stats = place.ok("stats", "--store", store, "--json").json()
    equal(stats["handlers"][0]["done"], 180)


@case("a ratio below its target is missed, and so is a figure above its limit")
def _(_):
    def met(value, **more):
        return rows.Result("x", value, "MiB", **more).met()

    equal(met(1, ratio=0.79, target=0.8), False)
    equal(met(1, ratio=0.8, target=0.8), True)
    equal(met(33, at_most=32), False)
    equal(met(32, at_most=32), True)
    equal(met(1), None)
    equal(rows.compare("x", [10, 1, 9], [10, 10, 10], "y", 0.9).ratio, 0.9)


@case("figures and chart are written into the page, also repeatedly")
def _(place):
    page = os.path.join(place.path, "performance.md")
    shutil.copyfile(os.path.join(ROOT, "docs", "performance.md"), page)
    about = {"postern": "P 1", "SQLite": "S 1", "PostgreSQL": "Q 1",
             "Redis": "R 1", "date": "2000-01-01",
             "processor": "<fast>", "cores": 2, "memory_gib": 1, "kernel": "k",
             "file_system": "f", "sync_ms": 0.1, "rounds": 3, "load": 0.5}
    results = [
        rows.compare("a < b", [70], [100], "bare & plain", 0.75),
        rows.Result("memory", 12.5, "MiB", at_most=32),
    ]
    rounds = [(store, failed) for failed in ([], ["drain"])
              for store in report.CHARTS]
    for store, failed in rounds:
        report.write(place.path, store, about, results, failed)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        _, part = text.split(report.BEGIN.format(store))
        part, rest = part.split(report.END, 1)
        equal(part.count("| a < b | 70.0 | 100 (bare & plain) | 0.70 | ≥ 0.75 |"
                         ), 1)
        equal("Could not be measured: drain." in part, bool(failed))
        equal(f"P 1, {about[store]}, measured on" in part, True)
        assert "## Measure it yourself" in rest
        equal(text.count(report.END), len(report.CHARTS))
        chart = ElementTree.parse(
            os.path.join(place.path, report.CHARTS[store]))
        words = " ".join(chart.getroot().itertext())
        assert "a < b" in words and "0.70" in words, words


main()
