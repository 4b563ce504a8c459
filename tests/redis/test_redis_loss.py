#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What is kept and what is lost when clients and servers of Redis are killed."""

import os
import signal

from scene import (PATIENCE_S, SAFE, TO_CLIENT, Proxy, Server, case, drive, equal, main, mark,
                   start, starts, until)

KEYS = 200


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
        programs = [start(server.url(), "run", "mail", KEYS, 22,
                          place.file("effects")) for _ in range(3)]
        equal(totals(programs), {"OK": KEYS, "DUPLICATE": KEYS * 65})
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


@case("with appendfsync always a killed server forgets nothing that was done")
def _(place):
    with Server(**SAFE) as server:
        url = server.url()
        for turn in range(3):
            program = start(url, "record", f"mail-{turn}", timeout_ms=60_000,
                            retries=-1)
            said = [program.stdout.readline() for _ in range(100)]
            server.end(signal.SIGKILL)
            out, _ = program.communicate(timeout=PATIENCE_S)
            said = [line for line in "".join([*said, out]).splitlines()
                    if line.startswith("k")]
            # What was answered has been synced: cut the log to that alone.
            server.start()
            last = len(said) - 1
            equal(last >= 99, True, out)
            for i in (0, last // 2, last):
                equal(mark(url, "has", f"mail-{turn}", f"k{i}"), "yes")
            equal(len([1 for key in server.call("KEYS", f"*:mail-{turn}")])
                  >= len(said), True)


@case("a log that lacks what was not synced has lost only that")
def _(place):
    with Server(appendonly="yes", appendfsync="no",
                auto_aof_rewrite_percentage="0") as server:
        url = server.url()
        folder = os.path.join(server.path, "appendonlydir")
        equal(mark(url, "record", "mail", "old"), "OK")
        log = [name for name in os.listdir(folder) if ".incr." in name]
        path = os.path.join(folder, log[0])
        synced = os.path.getsize(path)
        equal(mark(url, "record", "mail", "new"), "OK")
        server.end(signal.SIGKILL)
        # As after a power failure.
        os.truncate(path, synced)
        server.start()
        equal(mark(url, "has", "mail", "old"), "yes")
        equal(mark(url, "has", "mail", "new"), "no")


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


def ask(program, key):
    program.stdin.write(key + "\n")
    program.stdin.flush()
    return program.stdout.readline().strip()


main()
