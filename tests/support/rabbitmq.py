#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A private RabbitMQ broker, for as long as a test needs it.

As a program it runs a command beside a broker and exits with its status:

    rabbitmq.py COMMAND [ARGUMENT...]

The command finds the broker by $POSTERN_TEST_RABBITMQ, a URL. From Python:

    with Server() as server:
        with server.client() as channel:      # of pika
            channel.queue_declare("q")
        place.configure(... server.url() ...)

All files are in one temporary directory; the broker has a node name, a cookie
and an Erlang port mapper of its own, and listens on free ports of 127.0.0.1.
However this program ends, the kernel ends the broker, too.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import postgres

# Where Debian has it, for an interpreter from elsewhere.
sys.path.append("/usr/lib/python3/dist-packages")
import pika  # noqa: E402

BIN = os.environ.get("POSTERN_TEST_RABBITMQ_BIN", "/usr/lib/rabbitmq/bin")
PATIENCE_S = 120
START_TRIES = 5
# Below the ports that the kernel gives to connections: a broker that is away
# for a moment must find its port again.
PORTS = range(10000, 30000)

CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users = none
log.file = broker.log
log.file.level = info
log.console = false
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 1MB
collect_statistics_interval = 60000
"""

# The VM must not spin, and needs few threads: tests run beside each other.
ERL_ARGS = "+sbwt none +sbwtdcpu none +sbwtdio none +S 2:2 +SDcpu 2:2 +A 8"


def quiet_port():
    for port in random.sample(PORTS, 100):
        with socket.socket() as listener:
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", port))
                return port
    raise ServerError("no free port")


class ServerError(Exception):
    """A broker that failed; the text has its log."""


class Server:
    """A broker, from the call on; use it in a `with`, or stop() it."""

    def __init__(self, config=""):
        self.path = tempfile.mkdtemp(prefix="postern-rabbitmq-")
        self.config = config
        self.process = None
        self.mapper = None
        self.port = None
        self.node = f"postern{os.getpid()}-{os.path.basename(self.path)}@localhost"
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.stop()

    def file(self, name):
        return os.path.join(self.path, name)

    def environment(self, port=None):
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RABBITMQ", "ERL"))
        }
        return {
            **kept,
            "HOME": self.path,
            "ERL_EPMD_PORT": str(self.mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port or self.port),
            "RABBITMQ_DIST_PORT": str(self.node_port),
            "RABBITMQ_MNESIA_BASE": self.file("data"),
            "RABBITMQ_LOG_BASE": self.file("log"),
            "RABBITMQ_CONFIG_FILE": self.file("rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.file("plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERL_ARGS,
            "RABBITMQ_PID_FILE": self.file("pid"),
            # The script becomes the virtual machine and leaves no shell.
            "RUNNING_UNDER_SYSTEMD": "1",
        }

    def spawn(self, words, environment=None):
        with open(self.file("output"), "ab") as log:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.path, env=environment, start_new_session=True,
                preexec_fn=lambda: postgres.die_with_parent(signal.SIGKILL))

    def start_mapper(self):
        """The port mapper of Erlang: a broker refuses to start without."""
        if self.mapper and self.mapper.poll() is None:
            return
        self.mapper_port = quiet_port()
        self.mapper = self.spawn(
            ["epmd", "-port", str(self.mapper_port), "-address", "127.0.0.1",
             "-relaxed_command_check"])

    def start(self, wait=True):
        """Starts the broker, or starts it again on its former port."""
        tries = START_TRIES
        for left in reversed(range(tries)):
            port = self.port or quiet_port()
            self.start_mapper()
            self.node_port = quiet_port()
            with open(self.file("rabbitmq.conf"), "w", encoding="utf-8") as file:
                file.write(CONFIG.format(port=port) + self.config)
            with open(self.file("plugins"), "w", encoding="utf-8") as file:
                file.write("[].\n")
            self.process = self.spawn(
                [os.path.join(BIN, "rabbitmq-server")], self.environment(port))
            self.port_now = port
            if not wait or self.wait():
                self.port = port
                return
            if not left:
                raise ServerError(f"no broker: {self.read_log()}")

    def wait(self):
        """Waits until the broker answers; False if it has ended."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False
            try:
                self.connect().close()
                return True
            except (OSError, pika.exceptions.AMQPError):
                time.sleep(0.05)
        raise ServerError(f"no answer within {PATIENCE_S} s: {self.read_log()}")

    def read_log(self):
        text = ""
        for name in ("output", "log/broker.log"):
            with contextlib.suppress(OSError):
                with open(self.file(name), encoding="utf-8",
                          errors="replace") as file:
                    text += file.read()[-3000:]
        return text

    def connect(self, port=None, user="guest", password="guest"):
        """A connection of pika."""
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", port or self.port or self.port_now,
                credentials=pika.PlainCredentials(user, password),
                heartbeat=0, socket_timeout=PATIENCE_S,
                blocked_connection_timeout=PATIENCE_S))

    @contextlib.contextmanager
    def client(self):
        """A channel with confirms on a connection of its own."""
        connection = self.connect()
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel
        finally:
            if connection.is_open:
                connection.close()

    def control(self, *words):
        """rabbitmqctl, which takes a second or two."""
        result = subprocess.run(
            [os.path.join(BIN, "rabbitmqctl"), "--node", self.node, *words],
            env=self.environment(), cwd=self.path, timeout=PATIENCE_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if result.returncode != 0:
            raise ServerError(result.stdout.decode("utf-8", "replace"))
        return result.stdout.decode()

    def count(self, queue):
        """How many messages of a queue are ready."""
        with self.client() as channel:
            return channel.queue_declare(queue, passive=True).method.message_count

    def end(self, number=signal.SIGKILL):
        """Ends the broker and keeps its files; start() starts it again. What
        it has confirmed is on disk."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
        if self.process:
            self.process.wait(PATIENCE_S)
            # Helpers of the virtual machine are in its session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def stop(self):
        """Ends the broker and removes everything."""
        self.end()
        if self.mapper:
            self.mapper.kill()
            self.mapper.wait(PATIENCE_S)
        shutil.rmtree(self.path, ignore_errors=True)

    def url(self, user="guest", password="guest", port=None, vhost=""):
        return f"amqp://{user}:{password}@127.0.0.1:{port or self.port}/{vhost}"


def main(words):
    if not words:
        sys.exit("usage: rabbitmq.py COMMAND [ARGUMENT...]")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, postgres.raise_exit)
    with Server() as server:
        environment = {**os.environ, "POSTERN_TEST_RABBITMQ": server.url()}
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
