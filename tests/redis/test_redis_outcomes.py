#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each state of a Redis server has one outcome: docs/redis.md."""

import os
import signal
import socket
import threading

from scene import (Server, case, contains, drive, equal, main,
                   mark, start, starts, until)


@case("the first to try has the key, and it is remembered for the ttl")
def _(place):
    with Server() as server:
        url = server.url(key_prefix="shop:", ttl="1h")
        equal(mark(url, "try", "mail", "k"), "OK")
        starts(mark(url, "try", "mail", "k"), "DUPLICATE: ")
        equal(mark(url, "has", "mail", "k"), "yes")
        keys = server.call("KEYS", "*")
        equal(len(keys), 1)
        starts(keys[0], "shop:{")
        assert keys[0].endswith("}:mail"), keys
        left = server.call("PTTL", keys[0])
        assert 3500_000 < left <= 3600_000, left
        equal(mark(url, "forget", "mail", "k"), "OK")
        equal(server.call("KEYS", "*"), [])
        starts(mark(url, "forget", "mail", "k"), "NOTFOUND: ")
        starts(mark(url, "expire", "mail", "k"), "UNSUPPORTED: Redis expires")


@case("seven days is the ttl that is not set")
def _(place):
    with Server() as server:
        equal(mark(server.url(), "record", "mail", "k"), "OK")
        left = server.call("PTTL", server.call("KEYS", "*")[0])
        week = 7 * 24 * 3600_000
        assert week - 60_000 < left <= week, left


@case("the clock of a lease is that of the server")
def _(place):
    with Server() as server:
        url = server.url()
        equal(mark(url, "begin", "mail", "k", 7, 60_000), "OK")
        key = server.call("KEYS", "*")[0]
        fence, written, end = server.call("GET", key).split()
        seconds, _ = server.call("TIME")
        equal(fence, "7")
        equal(int(end) - int(written), 60_000)
        assert 0 <= int(seconds) - int(written) // 1000 < 60, written
        starts(mark(url, "begin", "mail", "k", 8, 1000), "BUSY: ")
        equal(mark(url, "begin", "mail", "k2", 9, 1000), "OK")
        until(lambda: mark(url, "begin", "mail", "k2", 10, 60_000) == "OK",
              "the end of a lease")
        starts(mark(url, "finish", "mail", "k2", 9), "STALE: ")
        equal(mark(url, "finish", "mail", "k2", 10), "OK")


@case("another database and a unix socket are reached")
def _(place):
    with Server() as server:
        equal(mark(server.url().replace("/0", "/3"), "record", "h", "k"), "OK")
        equal(server.call("KEYS", "*"), [])
        equal(mark(f"redis:///3?socket={server.socket}", "has", "h", "k"), "yes")
        starts(mark(server.url().replace("/0", "/999"), "has", "h", "k"),
               "INVALID: Redis at '127.0.0.1:")


@case("a password that is missing or wrong is refused at once, and not shown")
def _(place):
    with Server(requirepass="canary:p@ss/w%rd") as server:
        equal(mark(server.url(password="canary:p@ss/w%rd"), "has", "h", "k"), "no")
        equal(mark(server.url("default", "canary:p@ss/w%rd"), "has", "h", "k"),
              "no")
        out = mark(server.url(), "has", "h", "k")
        starts(out, "INVALID: ")
        contains(out, "requires a password")
        for user in ("", "somebody"):
            out = mark(server.url(user, "canary-2"), "has", "h", "k")
            starts(out, "INVALID: ")
            contains(out, "refuses the user or the password")
            assert "canary" not in out, out
    with Server() as server:
        out = mark(server.url(password="canary"), "has", "h", "k")
        starts(out, "INVALID: ")
        contains(out, "has no password for the default user")
        assert "canary" not in out, out


@case("the documented rights are enough, and missing ones are named")
def _(place):
    rights = "~postern:* +evalsha +eval +get +set +del +time"
    with Server() as server:
        server.call("ACL", "SETUSER", "app", "on", ">secret", *rights.split())
        url = server.url("app", "secret")
        equal(mark(url, "try", "mail", "k"), "OK")
        starts(mark(url, "try", "mail", "k"), "DUPLICATE: ")
        starts(drive(url, "check"), "UNSUPPORTED: ")
        server.call("ACL", "SETUSER", "app", "+role", "+info", "+config|get")
        contains(drive(url, "check"), "appendonly is off")
        server.call("ACL", "SETUSER", "app", "-evalsha")
        out = mark(url, "try", "mail", "k")
        starts(out, "INVALID: ")
        contains(out, "does not permit the user")


@case("a password that changes while a program runs is reported")
def _(place):
    with Server(requirepass="first") as server:
        program = start(server.url(password="first"), "repeat", 3, "mail")
        ask(program, "no")
        server.call("CONFIG", "SET", "requirepass", "second")
        server.password = "second"
        server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        starts(answer(program), "INVALID: ")
        server.call("CONFIG", "SET", "requirepass", "first")
        server.password = "first"
        ask(program, "no")
        program.stdin.close()
        program.wait()


def answer(program):
    program.stdin.write("\n")
    program.stdin.flush()
    return program.stdout.readline().strip()


def ask(program, wanted):
    equal(answer(program), wanted)


# The time of a call that is to run out. On a busy machine another call may need
# as much: then it is asked again.
SHORT_MS = 1000
MANY = 100_000


def ask_until(program, begin):
    until(lambda: answer(program).startswith(begin), begin)


@case("a replica is refused, also one that becomes it while a program runs")
def _(place):
    with Server() as primary, Server() as replica:
        program = start(replica.url(), "repeat", MANY, "mail", timeout_ms=SHORT_MS)
        ask_until(program, "no")
        replica.call("REPLICAOF", "127.0.0.1", primary.port)
        ask_until(program, "UNAVAILABLE: ")
        out = mark(replica.url(), "has", "mail", "k")
        starts(out, "UNAVAILABLE: ")
        contains(out, "is a read-only replica; use the address of the primary")
        replica.call("REPLICAOF", "NO", "ONE")
        ask_until(program, "no")
        program.stdin.close()
        program.wait()


@case("a full memory fails a change at once and changes nothing")
def _(place):
    with Server() as server:
        url = server.url()
        equal(mark(url, "record", "mail", "old"), "OK")
        server.call("CONFIG", "SET", "maxmemory", "1")
        out = mark(url, "try", "mail", "k")
        starts(out, "UNAVAILABLE: ")
        contains(out, "no memory left")
        # What is done stays so, and can be asked for.
        equal(mark(url, "has", "mail", "old"), "yes")
        starts(mark(url, "try", "mail", "old"), "DUPLICATE: ")
        equal(mark(url, "has", "mail", "k"), "no")
        server.call("CONFIG", "SET", "maxmemory", "0")
        equal(mark(url, "try", "mail", "k"), "OK")


@case("scripts that the server forgets are sent again")
def _(place):
    with Server() as server:
        program = start(server.url(), "repeat", 3, "mail")
        ask(program, "no")
        server.call("SCRIPT", "FLUSH")
        ask(program, "no")
        equal(mark(server.url(), "record", "mail", "k0"), "OK")
        server.call("SCRIPT", "FLUSH")
        ask(program, "yes")
        program.stdin.close()
        program.wait()


@case("a call waits while the server restarts")
def _(place):
    with Server(appendonly="yes") as server:
        program = start(server.url(), "repeat", 2, "mail")
        ask(program, "no")
        equal(mark(server.url(), "record", "mail", "k0"), "OK")
        server.end(signal.SIGKILL)
        program.stdin.write("\n")
        program.stdin.flush()
        server.start()
        equal(program.stdout.readline().strip(), "yes")
        program.stdin.close()
        program.wait()


@case("a server that loads its data is waited for")
def _(place):
    with Server(rdbcompression="no", key_load_delay="0",
                loading_process_events_interval_bytes="1024") as server:
        equal(mark(server.url(), "record", "mail", "k0"), "OK")
        for i in range(3000):
            server.call("SET", f"filler-{i}", "x" * 1100)
        server.call("SAVE")
        program = start(server.url(), "repeat", 2, "mail", timeout_ms=60_000)
        ask(program, "yes")
        server.end(signal.SIGKILL)
        # A minute for all keys; the server answers after each of them.
        server.settings["key_load_delay"] = "20000"
        server.start(wait=False)
        until(lambda: is_loading(server), "loading")
        until(lambda: "is loading its data" in mark(
            server.url(), "has", "mail", "k0", timeout_ms=2400), "the reason")
        server.call("CONFIG", "SET", "key-load-delay", "0")
        equal(answer(program), "yes")
        program.stdin.close()
        program.wait()


def is_loading(server):
    try:
        server.call("GET", "x")
    except OSError:
        return False
    except Exception as problem:
        return str(problem).startswith("LOADING")
    return False


@case("a server that cannot be reached fails a call when its time is over")
def _(place):
    with Server() as server:
        url = server.url()
        program = start(url, "repeat", MANY, "mail", timeout_ms=SHORT_MS)
        ask_until(program, "no")
        server.end(signal.SIGKILL)
        starts(answer(program), "UNAVAILABLE: ")
        until(lambda: "Connection refused" in answer(program), "the reason")
        starts(mark(url, "has", "h", "k"), "UNAVAILABLE: cannot connect to Redis")
        program.stdin.close()
        program.wait()


@case("a server that hangs fails a call when its time is over")
def _(place):
    with Server() as server:
        program = start(server.url(), "repeat", MANY, "mail", timeout_ms=SHORT_MS)
        ask_until(program, "no")
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            starts(answer(program), "UNAVAILABLE: ")
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        ask_until(program, "no")
        program.stdin.close()
        program.wait()


@case("foreign data under the key of a marker is reported")
def _(place):
    with Server() as server:
        equal(mark(server.url(), "record", "mail", "k"), "OK")
        key = server.call("KEYS", "*")[0]
        for words in (("SET", key, "x"), ("DEL", key), ("LPUSH", key, "x")):
            server.call(*words)
            if words[0] != "DEL":
                out = mark(server.url(), "try", "mail", "k")
                starts(out, "CORRUPT: ")
                contains(out, "use another 'key_prefix'")


@case("a peer that is not Redis is reported")
def _(place):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        for reply, wanted in (
                (b"HTTP/1.1 400 Bad Request\r\n\r\n", "UNAVAILABLE: "),
                (b"-MOVED 1 10.0.0.1:6379\r\n", "UNSUPPORTED: "),
                (b"-DENIED Redis is running in protected mode\r\n", "INVALID: "),
                (b"-ERR max number of clients reached\r\n", "UNAVAILABLE: "),
                (b"-MASTERDOWN Link with MASTER is down\r\n", "UNAVAILABLE: "),
                (b"-NEW kind of error\r\n", "UNAVAILABLE: "),
                (b"", "UNAVAILABLE: ")):
            thread = threading.Thread(target=reply_once, args=(listener, reply))
            thread.start()
            starts(mark(f"redis://127.0.0.1:{port}", "has", "h", "k"), wanted)
            thread.join()


def reply_once(listener, reply):
    link, _ = listener.accept()
    with link:
        link.recv(1000)
        link.sendall(reply)


@case("the check names each setting that can lose a marker")
def _(place):
    with Server() as server:
        url = server.url()
        contains(drive(url, "check"), "appendonly is off")
        server.call("CONFIG", "SET", "appendonly", "yes")
        for fsync, wanted in (("everysec", "the last 2 seconds"),
                              ("no", "about the last 30 seconds"),
                              ("always", "")):
            server.call("CONFIG", "SET", "appendfsync", fsync)
            until(lambda: wanted in drive(url, "check"), wanted)
        equal(drive(url, "check"), "")
        server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        contains(drive(url, "check"), "set maxmemory-policy noeviction")
        server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        with Server(replicaof=f"127.0.0.1 {server.port}"):
            until(lambda: "promoted" in drive(url, "check"), "a replica")


main()
