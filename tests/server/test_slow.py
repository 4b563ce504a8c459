#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Slow clients by the hundred, of `slowhttptest`: heads and bodies that never end,
ranges, and answers that are read a few bytes at a time. Others are served
meanwhile. All of them together need less than memory_max.

SLOW_S is how long (default 6 seconds), SLOW_COUNT how many connections of each
kind (default 200)."""

import http.client
import json
import os
import subprocess
import sys
import threading

from support import case, equal, main, until

SECONDS = int(os.environ.get("SLOW_S", "6"))
COUNT = int(os.environ.get("SLOW_COUNT", "200"))
BODY_LEN = 100000

CONFIG = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      ledger: {sql: "select :id"}
"""


class Attack:
    def __init__(self, place, url, *words):
        self.process = place.start(
            ["slowhttptest", *words, "-c", str(COUNT), "-r", "200", "-l", str(SECONDS),
             "-i", "1", "-p", "30", "-u", url], stdout=subprocess.PIPE)
        # What is written is read, so that it never waits for that.
        self.out = b""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        self.out = self.process.process.stdout.read()

    def end(self):
        self.reader.join(SECONDS + 60)
        self.process.process.wait(60)
        assert b"Cannot" not in self.out, self.out
        assert b"service available:   NO" not in self.out, self.out[-2000:]


def attacks(place, url):
    yield Attack(place, f"{url}/v1/channels/orders/messages", "-H", "-t", "POST")
    yield Attack(place, f"{url}/v1/channels/orders/messages", "-B", "-s", "100000",
                 "-f", "text/plain")
    yield Attack(place, f"{url}/v1/messages/1/body", "-R", "-t", "HEAD")
    yield Attack(place, f"{url}/v1/messages/1/body", "-X", "-k", "3", "-n", "1",
                 "-z", "32", "-w", "10", "-y", "512")


def memory_kib(server):
    with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def thread_count(server):
    return len(os.listdir(f"/proc/{server.pid}/task"))


@case("slow clients of each kind hold up nobody else")
def _(place):
    place.configure(CONFIG)
    server = place.serve(tcp=True)
    equal(place.send("first", "x" * BODY_LEN).out, "accepted\n")
    threads = thread_count(server)
    running = list(attacks(place, server.url))
    sent = 0
    # One connection that stays open, and a new one each time.
    kept = http.client.HTTPConnection(server.url[len("http://"):], timeout=60)
    while any(one.reader.is_alive() for one in running):
        fresh = http.client.HTTPConnection(server.url[len("http://"):], timeout=60)
        for client in (kept, fresh):
            try:
                client.request("POST", "/v1/channels/orders/messages", "x", {
                    "content-type": "text/plain", "x-message-id": f"m{sent}"})
                answer = client.getresponse()
            except (ConnectionError, http.client.RemoteDisconnected):
                # Of too many connections the one that is idle longest is closed.
                assert client is kept
                client.close()
                continue
            told = json.loads(answer.read())
            equal((answer.status, told["status"]), (202, "accepted"), told)
            sent += 1
        fresh.close()
    for one in running:
        one.end()
    assert sent >= SECONDS, sent
    size = memory_kib(server)
    print(f"# {4 * COUNT} slow clients, {sent} messages accepted meanwhile,"
          f" {size // 1024} MiB", flush=True)
    # With a sanitizer memory is another thing.
    assert size < 300 * 1024 or "CUTS" in os.environ, size
    until(lambda: place.state(f"m{sent - 1}", "ledger") == "done")
    until(lambda: thread_count(server) <= threads + 2)
    equal(server.stop(), 0)


main()
