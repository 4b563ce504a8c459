#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A server: its start, its socket, its log, its signals."""

import http.client
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import time

from support import CONFIG, POSTERN, case, equal, main, until

SLOW = """\
store: sqlite:box.db
shutdown_grace: {grace}
channels:
  orders:
    handlers:
      slow:
        exec: [/bin/sh, -c, 'echo begun >> ${{DIR}}/begun.out; sleep {seconds};
          echo ended >> ${{DIR}}/ended.out']
"""

FAILING = """\
store: sqlite:box.db
defaults:
  max_attempts: 1
  on_broken: count
  break_after: none
channels:
  orders:
    handlers:
      bad:
        exec: [/bin/sh, -c, 'printf "%b" "{says}" >&2; exit 1']
"""


class Connection(http.client.HTTPConnection):
    """HTTP over the socket beside the store of a place."""

    def __init__(self, place, name="box.db.sock"):
        super().__init__("postern", timeout=60)
        self.path = place.file(name)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None, **headers):
        self.request(
            method,
            path,
            body,
            {name.replace("_", "-"): value for name, value in headers.items()},
        )
        response = self.getresponse()
        return response.status, response.read()

    def send_message(self, message_id, body=b"body", channel="orders"):
        return self.ask(
            "POST",
            f"/v1/channels/{channel}/messages",
            body,
            x_message_id=message_id,
        )[0]


def lines(server):
    """Every line of the log, which has to be JSON."""
    return [json.loads(line) for line in server.stderr().splitlines()]


def logged(server, message):
    return [line for line in lines(server) if message in line["message"]]


@case("the socket is private, logged at start, and removed at the end")
def _(place):
    os.umask(0)
    place.configure()
    server = place.serve()
    path = place.file("box.db.sock")
    status = os.lstat(path)
    assert stat.S_ISSOCK(status.st_mode)
    equal(stat.S_IMODE(status.st_mode), 0o600)
    equal(stat.S_IMODE(os.lstat(place.file("box.db")).st_mode), 0o600)
    serving = logged(server, "serving")[0]
    equal(serving["socket"], os.path.realpath(path))
    equal(serving["pid"], server.pid)
    equal(serving["channels"], 1)
    equal(serving["handlers"], 1)
    equal(serving["url"], "sqlite:box.db")
    assert "store" not in serving, serving
    equal(server.stop(), 0)
    assert not os.path.exists(path)
    equal(lines(server)[-1]["message"], "stopped")


@case("the transport of clients other than the command is http")
def _(place):
    place.configure()
    place.serve()
    equal(Connection(place).send_message("a"), 202)
    equal(place.show("a")["transport"], "http")
    equal(place.send("b").out, "accepted\n")
    equal(place.show("b")["transport"], "cli")


@case("SIGINT stops a server like SIGTERM; SIGHUP and SIGPIPE do not")
def _(place):
    place.configure()
    server = place.serve()
    os.kill(server.pid, signal.SIGPIPE)
    os.kill(server.pid, signal.SIGHUP)
    until(lambda: logged(server, "configuration reloaded"))
    equal(Connection(place).ask("GET", "/readyz")[0], 200)
    equal(server.stop(signal.SIGINT), 0)


@case("a killed server's socket is replaced, and its accepted messages are kept")
def _(place):
    place.configure()
    server = place.serve()
    equal(Connection(place).send_message("a"), 202)
    server.stop(signal.SIGKILL)
    assert os.path.exists(place.file("box.db.sock"))
    place.serve()
    equal(Connection(place).send_message("a"), 200)
    until(lambda: place.state("a", "log") == "done")


@case("a server waits for the lock of a killed one whose socket still accepts")
def _(place):
    # The state just after a kill: the lock and the socket exist, but no
    # server.
    place.configure()
    place.ok("migrate")
    holder = place.hold("sqlite:box.db")
    place.write("box.db.lock", "999999999\n")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place.file("box.db.sock"))
    listener.listen()
    server = place.serve(ready=False)
    time.sleep(0.3)
    assert server.alive(), server.stderr()
    listener.close()
    holder.stop(signal.SIGKILL)
    until(lambda: '"serving"' in server.stderr())


@case("another file at the socket's path is not replaced")
def _(place):
    place.configure()
    place.write("box.db.sock", "precious")
    place.fails(4, "serve", "--listen=none", says="not a socket")
    equal(place.read("box.db.sock"), "precious")


@case("a second server takes neither store nor socket from the first")
def _(place):
    place.configure()
    server = place.serve()
    result = place.fails(4, "serve", says=str(server.pid))
    assert "box.db" in result.err
    equal(Connection(place).ask("GET", "/readyz")[0], 200)


@case("a store in memory cannot be served")
def _(place):
    place.configure(CONFIG.replace("sqlite:box.db", "'memory:'"))
    place.fails(2, "serve", says="postern.yaml:1:8: 'memory:' cannot be the only")
    result = place.run("check")
    equal(result.code, 2)
    assert "postern.yaml:1:8: 'memory:' cannot be the only" in result.out, result


@case("a store in a missing directory is an error in serve and check")
def _(place):
    place.configure(CONFIG.replace("box.db", "no/dir/box.db"))
    place.fails(4, "serve", says="no/dir/box.db")
    result = place.run("check")
    equal(result.code, 4)
    assert "no/dir/box.db cannot be created" in result.out, result


@case("an invalid configuration exits with 2 and creates no store")
def _(place):
    place.configure(CONFIG.replace("exec", "exce"))
    place.fails(2, "serve", says="postern.yaml:6:9")
    assert not os.path.exists(place.file("box.db"))


@case("a stop lets running handlers finish")
def _(place):
    place.configure(SLOW.format(grace="60s", seconds=1))
    server = place.serve()
    equal(Connection(place).send_message("a"), 202)
    until(lambda: place.read("begun.out"))
    equal(server.stop(), 0)
    equal(place.read("ended.out"), "ended\n")
    equal(place.state("a", "slow"), "done")


@case("after the grace period running handlers are ended, uncounted")
def _(place):
    place.configure(SLOW.format(grace="300ms", seconds=600))
    server = place.serve()
    equal(Connection(place).send_message("a"), 202)
    until(lambda: place.read("begun.out"))
    begin = time.monotonic()
    equal(server.stop(), 0)
    assert time.monotonic() - begin < 30
    row = place.delivery("a", "slow")
    equal((row["state"], row["failures"]), ("pending", 0))
    equal(place.read("ended.out"), "")


@case("a second signal ends the grace period")
def _(place):
    place.configure(SLOW.format(grace="10m", seconds=600))
    server = place.serve()
    equal(Connection(place).send_message("a"), 202)
    until(lambda: place.read("begun.out"))
    os.kill(server.pid, signal.SIGTERM)
    until(lambda: logged(server, "stopping"))
    equal(server.stop(signal.SIGINT), 0)
    assert logged(server, "second signal")
    row = place.delivery("a", "slow")
    equal((row["state"], row["failures"]), ("pending", 0))


@case("a stopping server is not ready, but responds and accepts")
def _(place):
    place.configure(SLOW.format(grace="60s", seconds=600))
    server = place.serve()
    connection = Connection(place)
    equal(connection.ask("GET", "/readyz")[0], 200)
    equal(connection.send_message("a"), 202)
    until(lambda: place.read("begun.out"))
    os.kill(server.pid, signal.SIGTERM)
    until(lambda: connection.ask("GET", "/readyz")[0] == 503)
    equal(connection.ask("GET", "/healthz")[0], 200)
    equal(connection.send_message("b"), 202)
    equal(place.state("b", "slow"), "pending")
    equal(server.stop(), 0)
    equal(place.state("b", "slow"), "pending")
    equal(place.read("begun.out"), "begun\n")


@case("a channel has a limit of its own for bodies")
def _(place):
    place.configure(
        CONFIG
        + "    max_message_size: 64KiB\n"
        + "  large:\n    max_message_size: 2MiB\n"
    )
    place.serve()
    connection = Connection(place)
    equal(connection.send_message("a", b"x" * 65536), 202)
    equal(connection.send_message("b", b"x" * 65537), 413)
    equal(connection.send_message("c", b"x" * 2097152, "large"), 202)
    equal(connection.send_message("d", b"x" * 2097153, "large"), 413)
    equal(connection.ask("GET", "/v1/messages?id=b")[1], b'{"items":[]}')


@case("a body of any bytes reaches the handler as it was sent")
def _(place):
    place.configure()
    place.serve()
    body = bytes(range(256)) * 4000
    connection = Connection(place)
    equal(connection.send_message("a", body), 202)
    until(lambda: place.state("a", "log") == "done")
    with open(place.file("log.out"), "rb") as file:
        equal(file.read() == body, True)
    seq = place.show("a")["seq"]
    equal(connection.ask("GET", f"/v1/messages/{seq}/body") == (200, body), True)


@case("failures are logged with handler, attempt and reason")
def _(place):
    place.configure(FAILING.format(says="it broke"))
    server = place.serve()
    equal(Connection(place).send_message("a"), 202)
    line = until(lambda: logged(server, "delivery poisoned"))[0]
    equal(line["level"], "error")
    equal(line["handler"], "bad")
    equal(line["channel"], "orders")
    equal(line["attempt"], 1)
    equal(line["error"], "it broke")
    equal(line["seq"], 1)


@case("changes by an operator are logged")
def _(place):
    place.configure()
    server = place.serve()
    equal(Connection(place).ask("POST", "/v1/handlers/log/pause")[0], 200)
    equal(Connection(place).ask("POST", "/v1/handlers/l%0Ag/pause")[0], 400)
    line, refused = until(
        lambda: len(x := logged(server, "requested by operator")) == 2 and x
    )
    equal(line["path"], "/v1/handlers/log/pause")
    equal((line["status"], line["uid"]), (200, os.getuid()))
    equal(line["pid"], os.getpid())
    equal((refused["path"], refused["status"]), ("/v1/handlers/l%0Ag/pause", 400))


@case("the limit of open files is raised, as far as the system allows it")
def _(place):
    place.configure()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        server = place.serve()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    equal(resource.prlimit(server.pid, resource.RLIMIT_NOFILE), (most, hard))


@case("an unavailable store is logged as an error, its end is not")
def _(place):
    place.configure(CONFIG + "defaults: {restart_delay: 100ms}\n")
    server = place.serve()
    limits = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    # No file of the server may become longer than this.
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (400_000, limits[1]))
    connection = Connection(place)
    number = 0
    while connection.send_message(str(number), b"x" * 50_000) == 202:
        number += 1
    trouble = until(lambda: logged(server, "store unavailable"))
    equal({line["level"] for line in trouble}, {"error"})
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)
    over = until(lambda: logged(server, "store available again"))
    equal({line["level"] for line in over}, {"info"})


@case("the output of a program cannot break the log")
def _(place):
    says = "\\\\033[2J\\\\0377 fake\\\\011\\\\042,\\\\0302\\\\0233"
    place.configure(FAILING.format(says=says))
    server = place.serve()
    equal(Connection(place).send_message("a"), 202)
    line = until(lambda: logged(server, "delivery poisoned"))[0]
    assert "fake" in line["error"], line
    for character in server.stderr().replace("\n", ""):
        assert " " <= character and not "\x7f" <= character <= "\x9f"


@case("many failures do not flood the log")
def _(place):
    place.configure(FAILING.format(says="no").replace("/bin/sh", "/nothing"))
    server = place.serve()
    connection = Connection(place)
    for i in range(300):
        equal(connection.send_message(str(i)), 202)
    until(
        lambda: json.loads(connection.ask("GET", "/v1/handlers")[1])["items"][0][
            "poisoned"
        ]
        == 300
    )
    until(
        lambda: len(logged(server, "delivery poisoned"))
        + sum(x["count"] for x in logged(server, "log lines suppressed"))
        == 300
    )
    assert len(logged(server, "delivery poisoned")) < 200


@case("logs are text on terminals and on request")
def _(place):
    place.configure()
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [POSTERN, "serve", "--listen=none"],
        cwd=place.path,
        env=place.environment(),
        stderr=theirs,
        stdin=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    text = b""
    try:
        while b"serving" not in text:
            text += os.read(ours, 4096)
        assert not text.startswith(b"{"), text
        assert b" socket=" in text, text
    finally:
        process.terminate()
        equal(process.wait(60), 0)
        os.close(ours)


def responds(place):
    """Whether the server responds: its socket exists a moment earlier."""
    try:
        return Connection(place).ask("GET", "/readyz")[0] == 200
    except OSError:
        return False


def serves_with(place, **options):
    """Checks that a server with these options serves, with failing
    handlers."""
    process = subprocess.Popen(
        [POSTERN, "serve", "--listen=none"],
        cwd=place.path,
        env=place.environment(),
        **options,
    )
    try:
        until(lambda: responds(place))
        connection = Connection(place)
        for i in range(400):
            equal(connection.send_message(str(i)), 202)
        until(
            lambda: json.loads(connection.ask("GET", "/v1/handlers")[1])[
                "items"
            ][0]["poisoned"]
            == 400
        )
    finally:
        process.terminate()
        equal(process.wait(60), 0)


FLOOD = FAILING.format(says="no").replace("/bin/sh", "/nothing")


@case("a stderr without a reader does not stop the service")
def _(place):
    place.configure(FLOOD)
    ours, theirs = os.pipe()
    # Fill the pipe before the first line.
    os.set_blocking(theirs, False)
    try:
        while True:
            os.write(theirs, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(theirs, True)
    serves_with(place, stderr=theirs)
    os.close(theirs)
    os.close(ours)


@case("a stderr whose reader has exited does not stop the service")
def _(place):
    place.configure(FLOOD)
    ours, theirs = os.pipe()
    os.close(ours)
    serves_with(place, stderr=theirs)
    os.close(theirs)


@case("a stderr on a full disk does not stop the service")
def _(place):
    place.configure(FLOOD)
    with open("/dev/full", "wb") as full:
        serves_with(place, stderr=full)


@case("with all standard streams closed no log line is written into the store")
def _(place):
    place.configure(FLOOD)

    def close_all():
        os.close(0)
        os.close(1)
        os.close(2)

    serves_with(place, preexec_fn=close_all)
    equal(len(place.ok("list", "--json", "--limit", "1000").json()), 400)
    with open(place.file("box.db"), "rb") as file:
        equal(file.read(16), b"SQLite format 3\x00")


@case("a server that inherits an ignored SIGCHLD sees programs succeed")
def _(place):
    place.configure(SLOW.format(grace="60s", seconds=0))
    process = subprocess.Popen(
        [POSTERN, "serve", "--listen=none"],
        cwd=place.path,
        env=place.environment(),
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    try:
        until(lambda: responds(place))
        equal(Connection(place).send_message("a"), 202)
        until(lambda: place.delivery("a", "slow")["state"] == "done")
        equal(place.read("begun.out"), "begun\n")
    finally:
        process.terminate()
        equal(process.wait(60), 0)


main()
