#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A private Redis server, for as long as a test needs it.

As a program it runs a command beside a server and exits with its status:

    redis.py COMMAND [ARGUMENT...]

The command finds the server by $POSTERN_TEST_REDIS, a URL. From Python:

    with Server(appendonly="yes", appendfsync="always") as server:
        server.call("CONFIG", "SET", "maxmemory", "1")
        place.run("mark", "--store", server.url())

All files are in one temporary directory; the server listens on a free port of
127.0.0.1. However this program ends, the kernel ends the server, too.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

import postgres

BIN = os.environ.get("POSTERN_TEST_REDIS_BIN", "/usr/bin/redis-server")
PATIENCE_S = 60
START_TRIES = 5


class ServerError(Exception):
    """A server that failed; the text has its log."""


class ReplyError(Exception):
    """An error reply."""


def read_line(file):
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise ServerError("the connection was closed")
    return line[:-2]


def read_reply(file):
    line = read_line(file)
    kind, rest = line[:1], line[1:]
    if kind == b"-":
        raise ReplyError(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"$":
        size = int(rest)
        return None if size < 0 else file.read(size + 2)[:-2].decode()
    if kind == b"*":
        return [read_reply(file) for _ in range(int(rest))]
    return rest.decode()


class Server:
    """A server, from the call on; use it in a `with`, or stop() it. Settings
    are those of redis.conf, with '_' in place of '-'."""

    def __init__(self, tls=None, environment=None, **settings):
        self.path = tempfile.mkdtemp(prefix="postern-redis-")
        self.log = os.path.join(self.path, "log")
        self.socket = os.path.join(self.path, "socket")
        self.settings = {"save": "", "appendonly": "no", **settings}
        self.tls = tls
        self.environment = {**os.environ, **(environment or {})}
        self.password = settings.get("requirepass")
        self.process = None
        self.port = None
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.stop()

    def command(self, port):
        words = [BIN, "--dir", self.path, "--bind", "127.0.0.1",
                 "--unixsocket", self.socket, "--daemonize", "no"]
        words += ["--port", "0", "--tls-port", str(port)] if self.tls else [
            "--port", str(port)]
        for name, value in {**self.settings, **(self.tls or {})}.items():
            words += ["--" + name.replace("_", "-"), *value.split(" ")]
        return words

    def start(self, wait=True):
        """Starts the server, or starts it again on its former port."""
        tries = 1 if self.port else START_TRIES
        for left in reversed(range(tries)):
            port = self.port or postgres.free_port()
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen(
                    self.command(port), stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log, cwd=self.path, start_new_session=True,
                    env=self.environment,
                    preexec_fn=lambda: postgres.die_with_parent(
                        signal.SIGKILL))
            self.port_now = port
            if not wait or self.wait():
                self.port = port
                return
            if not left:
                raise ServerError(f"no server: {self.read_log()}")

    def wait(self):
        """Waits until the server answers; False if it has ended."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False
            try:
                self.call("PING")
                return True
            except (OSError, ServerError):
                time.sleep(0.01)
            except ReplyError as problem:
                if not str(problem).startswith("LOADING"):
                    return True
                time.sleep(0.01)
        raise ServerError(f"no answer within {PATIENCE_S} s")

    def read_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]

    def call(self, *words):
        """One request, over the unix socket; returns the reply."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(PATIENCE_S)
            link.connect(self.socket)
            with link.makefile("rwb") as file:
                if self.password:
                    self.write(file, ("AUTH", self.password))
                    read_reply(file)
                self.write(file, words)
                return read_reply(file)

    @staticmethod
    def write(file, words):
        file.write(b"*%d\r\n" % len(words))
        for word in words:
            word = str(word).encode()
            file.write(b"$%d\r\n%s\r\n" % (len(word), word))
        file.flush()

    def end(self, number=signal.SIGTERM):
        """Ends the server and keeps its files; start() starts it again."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
        if self.process:
            self.process.wait(PATIENCE_S)

    def stop(self):
        """Ends the server and removes everything."""
        self.end(signal.SIGKILL)
        shutil.rmtree(self.path, ignore_errors=True)

    def url(self, user="", password=None, port=None, host="127.0.0.1", **more):
        """The URL of the markers; `more` are its parameters."""
        who = ""
        if password is not None:
            quoted = urllib.parse.quote(password, safe="")
            who = f"{urllib.parse.quote(user, safe='')}:{quoted}@"
        query = "?" + urllib.parse.urlencode(more) if more else ""
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{who}{host}:{port or self.port}/0{query}"


def main(words):
    if not words:
        sys.exit("usage: redis.py COMMAND [ARGUMENT...]")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, postgres.raise_exit)
    with Server() as server:
        environment = {**os.environ, "POSTERN_TEST_REDIS": server.url()}
        process = subprocess.Popen(
            words, env=environment,
            preexec_fn=lambda: postgres.die_with_parent(signal.SIGKILL))
        try:
            code = process.wait()
        finally:
            postgres.end_command(process)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main(sys.argv[1:])
