#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What is kept and what is lost when clients and servers of Redis are killed."""

import os
import signal
import threading
import time

from scene import (PATIENCE_S, TO_CLIENT, Proxy, Server, case, drive, equal, main, mark,
                   start, starts, until)

KEYS = 1000


def effects(place):
    try:
        with open(place.file("effects")) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def totals(programs):
    sums = {}
    for program in programs:
        out, _ = program.communicate(timeout=PATIENCE_S)
        for line in out.splitlines():
            name, count = line.split()
            sums[name] = sums.get(name, 0) + int(count)
    return sums


@case("three processes with many threads run each function once")
def _(place):
    with Server() as server:
        programs = [start(server.url(), "run", "mail", KEYS, threads,
                          place.file("effects")) for threads in (22, 21, 21)]
        # A duplicate that is answered before its effect is counted as EARLY.
        equal(totals(programs), {"OK": KEYS, "DUPLICATE": KEYS * 63})
        equal(sorted(effects(place)), sorted(f"k{i}" for i in range(KEYS)))


@case("threads with keys of their own share few connections")
def _(place):
    with Server() as server:
        for count in (1, 2, 8):
            server.call("FLUSHALL")
            out = drive(server.url(connections=count), "own", "mail", 300, 16,
                        "/dev/null")
            equal(out, "OK 4800")
            equal(server.call("DBSIZE"), 4800)


@case("a client that is killed has finished nothing that did not run")
def _(place):
    with Server() as server:
        for _ in range(5):
            before = len(effects(place))
            program = start(server.url(), "run", "mail", 10_000, 8,
                            place.file("effects"), 1, lease_ms=1000)
            until(lambda: len(effects(place)) > before + 20, "effects")
            program.kill()
            program.wait()
        # What was running was not done: it runs again after its lease.
        keys = sorted(set(effects(place)))
        program = start(server.url(), "each", "has", "mail")
        out, _ = program.communicate("".join(f"{key}\n" for key in keys))
        done = [line for line in out.splitlines() if line == "yes"]
        equal(len(out.splitlines()), len(keys))
        finished = [key for key in server.call("KEYS", "*")
                    if server.call("GET", key).endswith(" 0")]
        equal(len(finished), len(done))


class Synced:
    """A server whose files can be cut back to what it has synced."""

    def __init__(self, place, **settings):
        self.notes = place.file("synced")
        self.server = Server(
            environment={"LD_PRELOAD": os.environ["SYNCED_LIBRARY"],
                         "SYNCED": self.notes},
            appendonly="yes", auto_aof_rewrite_percentage="0", **settings)

    def sizes(self):
        """The last synced size of each log, and how often one was synced."""
        sizes, count = {}, 0
        with open(self.notes) as file:
            for line in file.read().splitlines():
                size, path = line.split(" ", 1)
                if ".incr." in path:
                    sizes[os.path.basename(path)] = int(size)
                    count += 1
        return sizes, count

    def cut(self):
        """What a power failure leaves; returns how many bytes it took."""
        folder = os.path.join(self.server.path, "appendonlydir")
        sizes, _ = self.sizes()
        lost = 0
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if ".incr." in name:
                lost += os.path.getsize(path) - sizes.get(name, 0)
                os.truncate(path, sizes.get(name, 0))
        return lost


class Recorder:
    """Records k0, k1, … and keeps when each was answered."""

    def __init__(self, url, handler):
        self.program = start(url, "record", handler)
        self.times = []
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.program.stdout:
            if line.endswith("\n"):  # the last one may be a part
                equal(line, f"k{len(self.times)}\n")
                self.times.append(time.monotonic())

    def stop(self):
        self.program.kill()
        self.program.wait(PATIENCE_S)
        self.thread.join(PATIENCE_S)


def missing(url, handler, count):
    """The numbers of the keys that are not done."""
    program = start(url, "each", "has", handler)
    lines = "".join(f"k{i}\n" for i in range(count))
    out, _ = program.communicate(lines, timeout=PATIENCE_S)
    answers = out.split()
    equal(len(answers), count)
    return [i for i, answer in enumerate(answers) if answer != "yes"]


def lose_power(synced, handler, enough):
    """Records until enough(recorder), kills the server and cuts its log.
    Returns what was answered, what of it is lost, and for how long the oldest
    of that had been answered."""
    server = synced.server
    recorder = Recorder(server.url(), handler)
    until(lambda: enough(recorder), "markers")
    at = time.monotonic()
    server.end(signal.SIGKILL)
    recorder.stop()
    synced.cut()
    server.start()
    lost = missing(server.url(), handler, len(recorder.times))
    age = max((at - recorder.times[i] for i in lost), default=0)
    return len(recorder.times), lost, age


@case("with appendfsync always a power failure forgets nothing that was done")
def _(place):
    synced = Synced(place, appendfsync="always")
    with synced.server:
        for turn in range(3):
            count, lost, _ = lose_power(synced, f"mail-{turn}",
                                        lambda one: len(one.times) >= 100)
            equal((count >= 100, lost), (True, []))


@case("with appendfsync everysec a power failure forgets the last two seconds at most")
def _(place):
    synced = Synced(place, appendfsync="everysec")
    with synced.server:
        starts(drive(synced.server.url(), "check"), "appendfsync is everysec: a "
               "power failure forgets what was done in the last 2 seconds")

        # A machine that stops for a while makes the loss longer by that: it is
        # repeated then. Of a longer window no turn would be within it.
        turns = iter(range(1000))

        def is_within():
            before = synced.sizes()[1]
            count, lost, age = lose_power(
                synced, f"mail-{next(turns)}",
                lambda one: synced.sizes()[1] >= before + 3 and len(one.times) > 0)
            # What is lost is the end of it.
            equal(lost, list(range(count - len(lost), count)))
            return lost and age <= 2.0

        until(is_within, "a loss of two seconds at most")


@case("without appendonly everything is forgotten when the server ends")
def _(place):
    with Server() as server:
        equal(mark(server.url(), "record", "mail", "k"), "OK")
        starts(drive(server.url(), "check"), "appendonly is off: a restart of Redis "
               "forgets all that was done since its last snapshot")
        server.end(signal.SIGKILL)
        server.start()
        equal(mark(server.url(), "has", "mail", "k"), "no")


@case("a replica that is promoted has lost what it had not received")
def _(place):
    with Server() as primary, Proxy(primary.port) as proxy:
        with Server(replicaof=f"127.0.0.1 {proxy.port}") as replica:
            until(lambda: "master_link_status:up" in
                  replica.call("INFO", "replication"), "the replica")
            equal(mark(primary.url(), "record", "mail", "old"), "OK")
            until(lambda: replica.call("DBSIZE") == 1, "replication")
            # From now on the replica receives nothing.
            proxy.strike(TO_CLIENT, 1, hold=True)
            equal(mark(primary.url(), "record", "mail", "new"), "OK")
            primary.end(signal.SIGKILL)
            replica.call("REPLICAOF", "NO", "ONE")
            equal(mark(replica.url(), "has", "mail", "old"), "yes")
            equal(mark(replica.url(), "has", "mail", "new"), "no")
            starts(mark(replica.url(), "try", "mail", "old"), "DUPLICATE: ")


@case("a call whose answer is lost has the result of the first time")
def _(place):
    with Server() as server, Proxy(server.port) as proxy:
        url = server.url(port=proxy.port)
        program = start(url, "each", "try", "mail")
        equal(ask(program, "k"), "OK")
        # What the reply has: "*3", and three numbers.
        for i in range(14):
            proxy.strike(TO_CLIENT, i)
            equal(ask(program, f"k{i}"), "OK")
            proxy.calm()
            equal(mark(server.url(), "has", "mail", f"k{i}"), "yes")
            starts(ask(program, f"k{i}"), "DUPLICATE: ")
        program.stdin.close()
        program.wait()


@case("a lease whose release is repeated, because the answer was lost, is released")
def _(place):
    with Server() as server, Proxy(server.port) as proxy:
        program = start(server.url(port=proxy.port), "each", "release", "mail", 7)
        for i in range(15):
            equal(mark(server.url(), "begin", "mail", f"k{i}", 7, 60_000), "OK")
        equal(ask(program, "k14"), "OK")
        for i in range(14):
            proxy.strike(TO_CLIENT, i)
            equal(ask(program, f"k{i}"), "OK")
            proxy.calm()
            # Released a second time by the caller, it does not exist.
            starts(ask(program, f"k{i}"), "STALE: ")
        # Another lease is not released.
        equal(mark(server.url(), "begin", "mail", "k0", 8, 60_000), "OK")
        proxy.strike(TO_CLIENT, 3)
        starts(ask(program, "k0"), "STALE: ")
        proxy.calm()
        starts(mark(server.url(), "begin", "mail", "k0", 9, 60_000), "BUSY: ")
        program.stdin.close()
        program.wait()


def ask(program, key):
    program.stdin.write(key + "\n")
    program.stdin.flush()
    return program.stdout.readline().strip()


main()
