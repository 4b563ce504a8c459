#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Commands beside the owner of the store: a server, an embedding program,
another command; and changes of the owner meanwhile."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from support import CONFIG, POSTERN, case, equal, main, until


def long_directory(place):
    """A directory whose path is far too long for a socket's address."""
    path = place.path
    for _ in range(4):
        path = os.path.join(path, "directory-" + "x" * 60)
        os.mkdir(path)
    assert len(path) > 300
    return path


@case("a second server on the same file exits with 4 and names the first")
def _(place):
    place.configure()
    first = place.serve()
    result = place.fails(4, "serve", says=str(first.pid))
    equal(result.out, "")
    equal(place.send("a").out, "accepted\n")
    equal(first.stop(), 0)


@case("commands use a server that has another configuration")
def _(place):
    place.configure()
    place.serve()
    os.mkdir(place.file("elsewhere"))
    store = "sqlite:" + place.file("box.db")
    cwd = place.file("elsewhere")
    words = ["send", "orders", "--id", "a", "--store", store]
    equal(place.ok(*words, cwd=cwd, stdin="x").out, "accepted\n")
    rows = place.ok("list", "--json", cwd=cwd, env={"POSTERN_STORE": store})
    equal([row["message_id"] for row in rows.json()], ["a"])
    equal(os.listdir(cwd), [])


@case("a command does not use a proxy to reach the server")
def _(place):
    place.configure()
    place.serve()
    nowhere = "http://127.0.0.1:1"
    env = {"http_proxy": nowhere, "ALL_PROXY": nowhere}
    # Only the server can have accepted it: it owns the store.
    equal(place.send("a", env=env).out, "accepted\n")


class FakeServer:
    """Listens on the socket of a server, and sends the given responses."""

    def __init__(self, place, responses):
        self.responses = list(responses)
        self.path = place.file("box.db.sock")
        self.requests = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        for response in self.responses:
            peer, _ = self.socket.accept()
            self.requests.append(peer.recv(65536))
            peer.sendall(response)
            peer.close()
        os.unlink(self.path)
        self.socket.close()


COUNTED = b'{"count":3,"dry_run":true}'


def http(status, body):
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@case("a request whose connection broke is retried if that is safe")
def _(place):
    place.configure()
    place.ok("init")
    half = b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{"
    fake = FakeServer(place, [b"", half, http(503, b"{}")])
    equal(place.send("a", "x").out, "accepted\n")
    fake.thread.join()
    equal(len(fake.requests), 3)
    equal(place.show("a")["transport"], "cli")


@case("a bulk edit is not made twice when the connection broke")
def _(place):
    place.configure()
    place.ok("init")
    fake = FakeServer(place, [http(200, COUNTED), b""])
    place.fails(4, "discard", "--state", "pending", "--yes", says="lost")
    fake.thread.join()
    equal(len(fake.requests), 2)


@case("a bulk edit is not made twice when a store failed")
def _(place):
    place.configure()
    place.ok("init")
    failed = b'{"detail":"store \'b\': the disk is full","code":"unavailable"}'
    fake = FakeServer(place, [http(200, COUNTED), http(503, failed)])
    place.fails(4, "retry", "--state", "poisoned", "--yes", says="disk is full")
    fake.thread.join()
    equal(len(fake.requests), 2)


@case("a bulk edit that the server did not start is made by the command")
def _(place):
    place.configure()
    place.ok("init")
    fake = FakeServer(place, [http(200, COUNTED), http(503, b"{}")])
    result = place.ok("retry", "--state", "poisoned", "--yes")
    equal(result.out, "retried 0\n")
    fake.thread.join()
    equal(len(fake.requests), 2)


@case("a response that is not JSON is a failure")
def _(place):
    place.configure()
    place.ok("init")
    for response in (b"hello", b"[]", b"", b"{"):
        fake = FakeServer(place, [http(200, response)])
        place.fails(1, "stats", says="not a JSON")
        fake.thread.join()
    fake = FakeServer(place, [http(500, b'{"detail":"it\\u001b[31m broke"}')])
    result = place.fails(1, "stats", says="broke")
    fake.thread.join()
    assert "\x1b" not in result.err, result


@case("a symbolic link to the store leads to its server")
def _(place):
    place.configure()
    place.serve()
    os.symlink("box.db", place.file("link.db"))
    result = place.send("a", "x", "--store", "sqlite:link.db")
    # Only the server can have accepted it: it owns the store.
    equal(result.out, "accepted\n")


@case("process and migrate are refused while a server runs")
def _(place):
    place.configure()
    server = place.serve()
    for command in ("process", "migrate"):
        result = place.fails(4, command, says="a server is running")
        assert str(server.pid) in result.err, result
    place.ok("migrate", "--print")
    equal(server.stop(), 0)
    place.ok("migrate")
    place.ok("process", "--ignore-failures")


@case("paths far over 107 bytes work, with a server and without")
def _(place):
    path = long_directory(place)
    database = os.path.join(path, "box.db")
    place.configure(CONFIG.replace("box.db", database))
    equal(place.send("a").out, "accepted\n")
    server = place.serve()
    equal(place.send("a").out, "duplicate\n")
    # Only the server can have accepted it: it owns the store.
    equal(place.send("b").out, "accepted\n")
    name = os.path.join(path, "box.db.sock")
    equal(os.stat(name).st_mode & 0o777, 0o600)
    equal(server.stop(), 0)
    assert not os.path.exists(name)
    place.ok("list")


@case("a file name of the maximum length works, too")
def _(place):
    name = "n" * 240 + ".db"
    place.configure(CONFIG.replace("box.db", name))
    server = place.serve()
    # Only the server can have accepted it: it owns the store.
    equal(place.send("a").out, "accepted\n")
    equal(server.stop(), 0)
    equal(place.send("a").out, "duplicate\n")


@case("beside an embedding program commands can read and not write")
def _(place):
    place.configure()
    equal(place.send("a", "x").out, "accepted\n")
    program = place.hold("sqlite:box.db")
    equal(place.show("a")["body"], "x")
    equal(place.ok("show", "a", "--body").out, "x")
    equal(len(place.ok("list", "--json").json()), 1)
    place.ok("stats")
    place.ok("check")
    # Each waits a while for the program to end: run all of them together.
    with ThreadPoolExecutor() as pool:
        refused = [
            pool.submit(place.fails, 4, *words.split(), says=str(program.pid))
            for words in (
                "send orders --id b",
                "retry a",
                "discard a",
                "retry --state poisoned --yes",
                "pause log",
                "resume log",
                "process",
                "migrate",
                "serve --listen=none",
            )
        ]
    for result in refused:
        equal(result.result().out, "")
    program.process.stdin.close()
    equal(program.process.wait(), 0)
    equal(place.send("b", "x").out, "accepted\n")


@case("the lock and socket of a killed server do not prevent a start")
def _(place):
    place.configure()
    server = place.serve()
    equal(place.send("a").out, "accepted\n")
    server.stop(signal.SIGKILL)
    assert os.path.exists(place.file("box.db.sock"))
    equal(place.send("a").out, "duplicate\n")
    equal(place.send("b").out, "accepted\n")
    place.ok("list")
    place.ok("process", "--ignore-failures")
    equal(place.state("b", "log"), "done")
    place.serve()
    equal(place.send("b").out, "duplicate\n")


@case("stats list the server while it runs")
def _(place):
    place.configure()
    server = place.serve()
    (node,) = place.ok("stats", "--json").json()["nodes"]
    equal((node["own"], node["left_ms"], node["leased"]), (True, None, 0), node)
    (line,) = [
        line
        for line in place.ok("stats").out.splitlines()
        if line.startswith(node["node"])
    ]
    equal((node["host"], node["pid"]), (socket.gethostname(), server.pid), node)
    equal((line.split()[1:4], line.split()[-1]),
          ([socket.gethostname(), str(server.pid), "0"], "this"), line)
    server.stop(signal.SIGKILL)
    equal(place.ok("stats", "--json").json()["nodes"], [])
    assert "NODE" not in place.ok("stats").out


@case("a command whose server has stopped opens the store itself")
def _(place):
    place.configure()
    stop = threading.Event()
    results = []

    def send_all(sender):
        number = 0
        while not stop.is_set():
            name = f"{sender}-{number}"
            results.append((name, place.send(name, name)))
            number += 1

    threads = [threading.Thread(target=send_all, args=[n]) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            server = place.serve()
            time.sleep(0.1)
            equal(server.stop(), 0)
            time.sleep(0.05)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for name, result in results:
        # The response may be lost with the server: then it is a duplicate.
        assert result.code == 0, (name, result)
        assert result.out in ("accepted\n", "duplicate\n"), (name, result)
    place.ok("process", "--ignore-failures")
    rows = place.ok("list", "--json", "--limit", "10000").json()
    equal(len(rows), len(results))
    equal({row["state"] for row in rows}, {"done"})


def long_command(place):
    """Starts a command that uses the store until the file 'go' exists."""
    place.configure(
        CONFIG.replace(
            "cat >> ${DIR}/log.out",
            "touch ${DIR}/begun; until test -e ${DIR}/go; do sleep 0.1; done",
        )
    )
    place.send("long")
    command = place.start([POSTERN, "process"], stdout=subprocess.DEVNULL)
    until(lambda: os.path.exists(place.file("begun")))
    return command


@case("a server and commands wait for a command, however long it takes")
def _(place):
    command = long_command(place)
    patient = ["--command-timeout", "1h"]
    server = place.serve(*patient, ready=False)
    send = place.start(
        [POSTERN, "send", "orders", "--id", "a", "--body", "x", *patient],
        stdout=subprocess.PIPE,
    )
    # Longer than commands wait for another program.
    time.sleep(3)
    assert server.alive() and send.alive(), (server.stderr(), send.stderr())
    place.write("go", "")
    equal(command.process.wait(), 0)
    equal(send.process.communicate()[0], b"accepted\n", send.stderr())
    until(lambda: '"serving"' in server.stderr() or not server.alive())
    assert server.alive(), server.stderr()


@case("command_timeout is how long commands wait for each other")
def _(place):
    command = long_command(place)
    result = place.fails(
        4, "send", "orders", "--id", "a", "--command-timeout", "1s"
    )
    assert str(command.pid) in result.err, result
    place.write("go", "")
    equal(command.process.wait(), 0)


@case("commands can read beside a server that hangs, and print a note")
def _(place):
    place.configure()
    server = place.serve()
    equal(place.send("a", "x").out, "accepted\n")
    server.process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor() as pool:
        show = pool.submit(place.ok, "show", "a", "--json")
        check = pool.submit(place.run, "check")
    equal(show.result().json()["body"], "x")
    assert "did not respond" in show.result().err, show.result()
    equal(check.result().code, 5)
    server.process.send_signal(signal.SIGCONT)
    equal(place.send("a", "x").out, "duplicate\n")
    equal(server.stop(), 0)


@case("check reports the health of a running server")
def _(place):
    place.configure()
    place.serve()
    result = place.ok("check")
    assert "a server is running and healthy" in result.out, result


@case("check reports a server that stops as not healthy, with exit 5")
def _(place):
    place.configure(
        CONFIG.replace("cat >> ${DIR}/log.out", "touch ${DIR}/started; sleep 30")
        + "shutdown_grace: 20s\n"
    )
    server = place.serve()
    place.send("a")
    until(lambda: os.path.exists(place.file("started")))
    server.process.send_signal(signal.SIGTERM)
    result = until(lambda: (r := place.run("check")).code == 5 and r)
    assert "not healthy" in result.out, result
    equal(place.show("a")["id"], "a")
    server.process.send_signal(signal.SIGTERM)
    server.process.wait()
    equal(place.state("a", "log"), "pending")


def try_all(place, lines):
    """Runs shell lines in another directory, and returns their output."""
    script = place.write("try.sh", "\n".join(lines) + "\n")
    result = subprocess.run(
        ["/bin/sh", script],
        cwd="/",
        env=place.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    assert b"not found" not in result.stderr, result
    return result.stdout.decode()


def start_demo(place):
    """The demo on a port that is free now: its webhooks need to know it."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = "127.0.0.1:%d" % free.getsockname()[1]
        with open(place.file("out"), "wb") as out:
            server = place.start([POSTERN, "serve", "--demo", "--listen", address],
                                 stdout=out)
        until(lambda: "Control-C" in place.read("out") or not server.alive())
        if server.alive() or "the port is in use" not in server.stderr():
            return server


@case("every command that the demo prints works")
def _(place):
    server = start_demo(place)
    lines = place.read("out").splitlines()
    tries = [line.strip() for line in lines if line.startswith("  ")]
    assert len(tries) > 5, server.stderr()
    # Without a terminal the log is JSON.
    for line in server.stderr().splitlines():
        assert json.loads(line)["message"], line
    store = ["--store", "sqlite:postern-demo.db"]
    # A person types slowly enough for handlers to finish.
    pause = next(i for i, line in enumerate(tries) if "--channel" in line)
    out = try_all(place, tries[:pause])
    assert "accepted" in out and "conflict" in out, (tries, out)
    assert [line.split('"')[3] for line in out.splitlines()[:2]] == [
        "accepted", "duplicate"], out
    poisoned = ["list", "--state", "poisoned", "--json", *store]
    until(lambda: len(place.ok(*poisoned).json()) == 2)
    received = ["list", "--channel", "received", "--state", "done", "--json", *store]
    until(lambda: place.ok(*received).json())
    out = try_all(place, [*tries[:3], *tries[pause:]])
    assert "refused on purpose" in out and "retried strict" in out, (tries, out)
    assert "it fails, as always" in out and "keep" in out, out
    until(lambda: len(place.ok(*poisoned).json()) == 1)
    equal(server.stop(signal.SIGINT), 0)
    place.fails(2, "serve", "--demo", "-c", "x.yaml", says="--demo")


main()
