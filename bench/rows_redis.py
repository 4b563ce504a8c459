# SPDX-License-Identifier: MIT
"""The rows of markers in Redis, and the private server they are measured on. It
keeps its log in memory alone: syncing it would take most of the time of both
programs, and hide what they do."""

import json
import os
import subprocess
import sys

from place import PATIENCE_S, Failure
from rows import compare, row

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "tests", "support"))

import redis  # noqa: E402


class Redis:
    """The server. It starts with the first use; stop() it."""

    def __init__(self, place):
        self.place = place
        self.server = None
        folder = os.path.join(os.path.dirname(os.path.dirname(place.postern)),
                              "bench")
        self.bare = os.path.join(folder, "bare_redis")
        self.guard = os.path.join(folder, "guard_redis")

    def start(self):
        if not os.path.exists(self.bare):
            raise Failure("this build has no Redis")
        if not self.server:
            self.server = redis.Server()

    def stop(self):
        if self.server:
            self.server.stop()
        self.server = None

    def version(self):
        try:
            text = subprocess.run(
                [redis.BIN, "--version"], stdout=subprocess.PIPE, text=True,
                timeout=PATIENCE_S, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return "Redis"
        return "Redis " + text.split("v=", 1)[-1].split()[0]

    def run(self, program, address, count, threads):
        """Keys per second, on an empty database."""
        self.server.call("FLUSHALL")
        words = [program, address, str(count), str(threads)]
        return json.loads(self.place.output(words))["messages_per_second"]

    def run_guard(self, count, threads):
        url = f"redis:///?socket={self.server.socket}"
        return self.run(self.guard, url, count, threads)

    def run_bare(self, count, threads):
        return self.run(self.bare, self.server.socket, count, threads)


@row("redis-guard", "Redis, a guarded function that does nothing")
def _(place):
    server = place.redis
    server.start()
    for threads, full in ((1, 100000), (16, 200000), (64, 200000)):
        count = place.count(full, 200)
        values, limits = place.in_turn(
            lambda: server.run_guard(count, threads),
            lambda: server.run_bare(count, threads),
        )
        many = "1 thread" if threads == 1 else f"{threads} threads"
        yield compare(f"guarded functions, {many}", values, limits,
                      "bare pipelined scripts", 0.8)
