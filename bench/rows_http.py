# SPDX-License-Identifier: MIT
"""The rows of the server: messages over HTTP, webhooks, workers that pull, and
connections that are idle. They are the same for both stores."""

import json
import os
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import time

from place import PATIENCE_S, Failure, median
from rows import Result, compare, rate, row

CONNECTIONS = 64
IDLE_CONNECTIONS = 10000
WORKERS = 4
BATCH = 100
# So many requests of a webhook handler are in flight at a time.
REQUESTS = 64

PATH = "/v1/channels/bench/messages"

CONFIG = """\
listen: 127.0.0.1:0
store: "{url}"
channels:
  bench:
    handlers:
      {handler}
"""
KEEP = "keep: {pull: {}}"
HOOK = 'hook: {{webhook: {{url: "http://127.0.0.1:{port}/in"}}, concurrency: {count}}}'
# Port 9 of this machine, on which nobody listens.
DOWN = 'hook: {webhook: {url: "http://127.0.0.1:9/in"}}'


class Store:
    """The store of a row, a file or a database: new(), and drop() at the end."""

    def __init__(self, place, is_postgres):
        self.place = place
        self.is_postgres = is_postgres
        self.kind = "postgres" if is_postgres else "sqlite"

    def new(self):
        """Creates an empty store; returns its URL."""
        if self.is_postgres:
            self.place.database.create()
            return self.place.database.url()
        self.place.create()
        return "sqlite:bench.db"

    def drop(self):
        if self.is_postgres:
            self.place.database.remove()
        else:
            self.place.clean()

    def drain(self, count):
        """Completions per second of a backlog, by callbacks in one process."""
        owner = self.place.database if self.is_postgres else self.place
        result = owner.run_postern("--messages", count, "--drain",
                                   "--duplicates", "0%")
        return result["completed"] / result["drain_seconds"]


class Server:
    """`postern serve` on a store, with one handler."""

    def __init__(self, place, url, handler):
        self.place = place
        self.log = place.path("serve.log")
        with open(place.path("serve.yaml"), "w", encoding="utf-8") as file:
            file.write(CONFIG.format(url=url, handler=handler))
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [place.postern, "serve", "-c", "serve.yaml"], cwd=place.folder,
                stderr=log)
        self.port = self.wait()

    def wait(self):
        """Waits until it serves; returns the port."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self.process.poll() is None:
            with open(self.log, encoding="utf-8") as file:
                found = re.search(r'"listen":"127\.0\.0\.1:(\d+)"', file.read())
            if found:
                return int(found.group(1))
            time.sleep(0.01)
        raise Failure("the server does not start, see serve.log")

    def memory_mib(self, name):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return int(re.search(name + r":\s*(\d+)", file.read()).group(1)) / 1024

    def command(self, *args):
        self.place.output([self.place.postern, *args, "--server",
                           f"http://127.0.0.1:{self.port}"])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(PATIENCE_S) != 0:
            raise Failure("the server failed, see serve.log")


def program(place, name):
    return os.path.join(os.path.dirname(os.path.dirname(place.postern)), "bench", name)


def load(place, port, count, *more):
    """Sends messages over HTTP; returns the result."""
    return json.loads(place.output([
        program(place, "load_http"), str(port), PATH, str(CONNECTIONS), str(count),
        *map(str, more)]))


def start(place, name, *args):
    """Starts a program whose first line is its port; returns both."""
    process = subprocess.Popen(
        [program(place, name), *map(str, args)], cwd=place.folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


def end(process):
    out, _ = process.communicate(timeout=PATIENCE_S)
    if process.returncode != 0:
        raise Failure(f"{process.args[0]} failed")
    return json.loads(out) if out else None


def ingest(place, store, count, *more):
    server = Server(place, store.new(), KEEP)
    result = load(place, server.port, count, *more)
    server.stop()
    store.drop()
    return result


def bare_ingest(place, store, count):
    url = store.new()
    process, port = start(place, f"bare_http_{store.kind}", url.removeprefix("sqlite:"))
    result = load(place, port, count)
    end(process)
    store.drop()
    return result


def webhooks(place, store, count):
    """Deliveries per second of a backlog, as the receiver counts them."""
    sink, sink_port = start(place, "sink_http", count)
    server = Server(place, store.new(), HOOK.format(port=sink_port, count=REQUESTS))
    server.command("pause", "hook")
    load(place, server.port, count)
    server.command("resume", "hook")
    result = end(sink)
    server.stop()
    store.drop()
    return result


def bare_webhooks(place, count):
    sink, port = start(place, "sink_http", count)
    place.output([program(place, "bare_curl"), str(port), str(count), str(REQUESTS)])
    return end(sink)


def pull(place, store, count):
    server = Server(place, store.new(), KEEP)
    load(place, server.port, count)
    result = json.loads(place.output([
        program(place, "pull_http"), str(server.port), "keep", str(count),
        str(WORKERS), str(BATCH)]))
    server.stop()
    store.drop()
    return result


def measure_ingest(place, store):
    count = place.count(50000)
    values, limits = place.in_turn(
        lambda: rate(ingest(place, store, count)),
        lambda: rate(bare_ingest(place, store, count)))
    yield compare(f"messages over HTTP, {CONNECTIONS} connections", values, limits,
                  "the same library, bare", 0.75)
    few = place.count(5000, 500)
    (runs,) = place.in_turn(lambda: ingest(place, store, few, 500))
    for name in ("p50", "p99"):
        values = [run["latency_ms"][name] for run in runs]
        yield Result(f"request to 202 at 500 messages/s, {name}", median(values), "ms",
                     rounds=values)


def measure_webhooks(place, store):
    count = place.count(50000)
    values, limits = place.in_turn(
        lambda: rate(webhooks(place, store, count)),
        lambda: rate(bare_webhooks(place, count)))
    yield compare(f"webhooks, {REQUESTS} requests at a time", values, limits,
                  "curl-multi", 0.5)


def measure_pull(place, store):
    count = place.count(100000)
    values, limits = place.in_turn(
        lambda: rate(pull(place, store, count)),
        lambda: store.drain(count))
    yield compare(f"{WORKERS} workers that pull batches of {BATCH}", values, limits,
                  "callbacks that drain a backlog", 0.5)


for prefix, title, is_pg in (("", "SQLite", False), ("pg-", "PostgreSQL", True)):
    for name, what, measure in (
            ("http", "messages over HTTP", measure_ingest),
            ("webhook", "webhooks that are sent", measure_webhooks),
            ("pull", "workers that pull over HTTP", measure_pull)):
        row(f"{prefix}{name}", f"{title}, {what}")(
            lambda place, measure=measure, is_pg=is_pg:
            measure(place, Store(place, is_pg)))


def connect_many(port, count):
    """Connections that stay open, after one request each."""
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
            raise Failure("a connection is not served")
        connections.append(connection)
    return connections


@row("connections", "connections that are idle, after one request each")
def _(place):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = place.count(IDLE_CONNECTIONS)
    store = Store(place, False)

    def measure():
        server = Server(place, store.new(), KEEP)
        connections = connect_many(server.port, count)
        used = server.memory_mib("VmRSS")
        # Those that were first are still open.
        connections[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        if not connections[0].recv(4096).startswith(b"HTTP/1.1 200"):
            raise Failure("an idle connection was closed")
        for connection in connections:
            connection.close()
        server.stop()
        store.drop()
        return used

    (values,) = place.in_turn(measure)
    yield Result(f"memory with {count:,} idle connections", median(values), "MiB",
                 at_most=100, rounds=values)


FILL = """
    insert into postern_message
    with recursive i (n) as (select 1 union all select n + 1 from i where n < {count})
    select n, (select id from postern_channel where name = 'bench'), {now},
        'm' || n, null, '', null, null, null, null, null, null, null, x'78' from i;
    insert into postern_open (seq, handler, fence, failures, starts, crashes, suspect,
        solo, node, due_at, since)
    select seq, (select id from postern_handler where key = 'hook'), 0, 0, 0, 0, 0, 0,
        null, {now}, {now} from postern_message;
"""


@row("down", "a backlog for a receiver that is down")
def _(place):
    count = place.count(10000000, 10000)
    store = Store(place, False)
    url = store.new()
    Server(place, url, DOWN).stop()
    place.progress(f"making {count:,} deliveries")
    with sqlite3.connect(place.path("bench.db")) as database:
        database.executescript("pragma synchronous = off;" + FILL.format(
            count=count, now=int(time.time() * 1000)))
    database.close()
    server = Server(place, url, DOWN)
    # While the receiver is probed, messages are accepted.
    load(place, server.port, place.count(5000, 500), 500)
    used = server.memory_mib("VmHWM")
    server.stop()
    store.drop()
    yield Result(f"memory with {count:,} deliveries for a receiver that is down, at most",
                 used, "MiB", at_most=256, rounds=[used])
