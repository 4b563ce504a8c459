#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`postern mark` and `postern once`, on a file and beside a server."""

import os
import signal
import subprocess
import time

from support import POSTERN, case, equal, main, until

STORES = """\
stores:
  first: {url: "sqlite:first.db"}
  other: {url: "sqlite:other.db"}
channels:
  orders: {store: first}
"""


def both(name):
    """Registers a case twice: alone, and beside a server."""

    def register(function):
        def alone(place):
            place.configure()
            place.ok("migrate")
            function(place)

        def served(place):
            place.configure()
            place.serve()
            function(place)

        case(f"{name}, without a server")(alone)
        case(f"{name}, beside a server")(served)
        return function

    return register


def mark(place, *args, **options):
    """Runs `postern mark` and returns the exit code and the words."""
    result = place.run("mark", *args, **options)
    return result.code, result.out.strip()


def once(place, *args, **options):
    return place.start([POSTERN, "once", *args], **options)


@both("the first to try a key gets first, everybody else duplicate")
def _(place):
    equal(mark(place, "try", "h", "k"), (0, "first"))
    equal(mark(place, "try", "h", "k"), (0, "duplicate"))
    equal(mark(place, "try", "h", "k", "--duplicate-exit", "9"), (9, "duplicate"))
    equal(mark(place, "try", "h", "k2"), (0, "first"))
    equal(mark(place, "try", "h2", "k"), (0, "first"))


@both("has, record and forget print what is known")
def _(place):
    equal(mark(place, "record", "h", "k"), (0, "recorded"))
    equal(mark(place, "has", "h", "k"), (0, "done"))
    equal(mark(place, "has", "h", "k2"), (3, "unknown"))
    equal(mark(place, "record", "h", "k"), (0, "recorded"))
    equal(mark(place, "forget", "h", "k"), (0, "forgotten"))
    equal(mark(place, "forget", "h", "k"), (3, "unknown"))
    equal(mark(place, "has", "h", "k"), (3, "unknown"))
    data = place.ok("mark", "try", "h", "a \"b\" ü", "--json").json()
    equal(
        data,
        {"result": "first", "store": "default", "handler": "h", "key": 'a "b" ü'},
    )


@both("expire forgets what was done longer ago, of one handler or of all")
def _(place):
    for handler in ("a", "b"):
        for key in ("1", "2"):
            mark(place, "record", handler, key)
    equal(mark(place, "expire", "a", "--older-than", "1h"), (0, "expired 0"))
    equal(mark(place, "expire", "a", "--older-than", "0"), (0, "expired 2"))
    equal(mark(place, "has", "a", "1"), (3, "unknown"))
    equal(mark(place, "has", "b", "1"), (0, "done"))
    result = place.ok("mark", "expire", "--older-than", "0", "--json").json()
    equal((result["result"], result["count"]), ("expired", 2))


@both("a command runs once for a key")
def _(place):
    command = ["once", "h", "k", "--", "/bin/sh", "-c", "echo ran >> out"]
    result = place.ok(*command)
    equal((result.out, place.read("out")), ("", "ran\n"))
    result = place.ok(*command)
    equal((result.out, result.err, place.read("out")), ("", "", "ran\n"))
    equal(place.run(*command[:3], "--duplicate-exit", "7", "--", "true").code, 7)
    equal(mark(place, "has", "h", "k"), (0, "done"))
    equal(mark(place, "try", "h", "k"), (0, "duplicate"))


@both("a command that fails is not marked, and its exit status is passed on")
def _(place):
    for status in (1, 3, 126, 255):
        result = place.run("once", "h", "k", "--", "/bin/sh", "-c", f"exit {status}")
        equal((result.code, result.err), (status, ""))
    result = place.run("once", "h", "k", "--", "/bin/sh", "-c", "kill -KILL $$")
    equal(result.code, 128 + signal.SIGKILL)
    equal(mark(place, "has", "h", "k"), (3, "unknown"))
    equal(mark(place, "try", "h", "k"), (0, "first"))


@both("a command that cannot be started leaves no lease")
def _(place):
    place.fails(127, "once", "h", "k", "--", "no-such-program", says="no-such")
    path = place.write("plain", "not a program")
    place.fails(126, "once", "h", "k", "--", path, says="Permission denied")
    equal(place.run("once", "h", "k", "--", "true").code, 0)


@both("the command has the standard streams, arguments and environment")
def _(place):
    script = 'cat; echo "$1 $2 $POSTERN_HANDLER $POSTERN_KEY" >&2; test "$POSTERN_FENCE"'
    result = place.ok(
        "once", "h", "k", "--", "/bin/sh", "-c", script, "-x", "--json", "two",
        stdin="in\n",
    )
    equal((result.out, result.err), ("in\n", "--json two h k\n"))


@both("a second one is busy while the first runs, or waits for it")
def _(place):
    script = "echo a >> out; until test -e go; do sleep 0.05; done"
    first = once(place, "h", "k", "--", "/bin/sh", "-c", script)
    until(lambda: place.read("out"))
    place.fails(4, "once", "h", "k", "--", "touch", "never", says="is doing 'k' now")
    equal(mark(place, "try", "h", "k"), (4, "busy"))
    equal(mark(place, "has", "h", "k"), (3, "unknown"))
    # The store is not held: others use it meanwhile.
    equal(place.run("once", "h", "k2", "--", "true").code, 0)
    waiting = once(place, "h", "k", "--wait", "1m", "--", "touch", "never")
    place.write("go", "")
    equal((first.stop(0), waiting.stop(0)), (0, 0), waiting.stderr())
    equal((place.read("out"), os.path.exists(place.file("never"))), ("a\n", False))


@both("a waiting one runs if the first fails")
def _(place):
    script = "echo a >> out; until test -e go; do sleep 0.05; done; exit 1"
    first = once(place, "h", "k", "--", "/bin/sh", "-c", script)
    until(lambda: place.read("out"))
    second = once(place, "h", "k", "--wait", "1m", "--", "/bin/sh", "-c", "echo b >> out")
    place.write("go", "")
    equal((first.stop(0), second.stop(0)), (1, 0), second.stderr())
    equal(place.read("out"), "a\nb\n")


@both("signals reach the command, whose end decides")
def _(place):
    script = (
        "trap 'echo got; exit 5' TERM; trap 'echo usr >> out' USR1;"
        " echo ready >> out; while :; do sleep 0.05; done"
    )
    run = once(place, "h", "k", "--", "/bin/sh", "-c", script, stdout=subprocess.PIPE)
    until(lambda: place.read("out"))
    os.kill(run.pid, signal.SIGUSR1)
    until(lambda: "usr" in place.read("out"))
    equal(run.stop(signal.SIGTERM), 5)
    equal(run.process.stdout.read(), b"got\n")
    equal(mark(place, "try", "h", "k"), (0, "first"))


def has_ended(pid):
    """Whether a process is not there, or nobody has waited for it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return not file.read()
    except (FileNotFoundError, ProcessLookupError):
        return True


@both("the lease is renewed while the command runs, and ends after SIGKILL")
def _(place):
    script = "echo $$ >> out; exec sleep 600"
    first = once(place, "h", "k", "--lease", "4s", "--", "/bin/sh", "-c", script)
    until(lambda: place.read("out").endswith("\n"))
    began = time.monotonic()
    while time.monotonic() < began + 6:
        place.fails(4, "once", "h", "k", "--", "true", says="now")
    first.stop(signal.SIGKILL)
    # Nobody renews its lease, so the command must not go on.
    until(lambda: has_ended(place.read("out").strip()))
    equal(place.ok("once", "h", "k", "--wait", "1m", "--", "echo", "ran").out, "ran\n")


@both("a lease that was lost is reported, and the exit status is 1")
def _(place):
    script = "echo a >> out; until test -e go; do sleep 0.05; done"
    first = once(place, "h", "k", "--lease", "1s", "--", "/bin/sh", "-c", script)
    until(lambda: place.read("out"))
    os.kill(first.pid, signal.SIGSTOP)
    result = place.ok("once", "h", "k", "--wait", "1m", "--", "echo", "second")
    equal(result.out, "second\n")
    os.kill(first.pid, signal.SIGCONT)
    until(lambda: "was lost while the command was running" in first.stderr())
    place.write("go", "")
    equal(first.stop(0), 1)
    assert "another process may have run it, too" in first.stderr(), first.stderr()
    equal(mark(place, "has", "h", "k"), (0, "done"))


@both("a marker that was forgotten while the command ran is not recorded")
def _(place):
    script = "echo a >> out; until test -e go; do sleep 0.05; done"
    first = once(place, "h", "k", "--", "/bin/sh", "-c", script)
    until(lambda: place.read("out"))
    equal(mark(place, "forget", "h", "k"), (0, "forgotten"))
    place.write("go", "")
    equal(first.stop(0), 1)
    equal(mark(place, "has", "h", "k"), (3, "unknown"))


@case("a missing store is created, and a file that is named by its URL")
def _(place):
    equal(mark(place, "try", "h", "k", "--store", "sqlite:new.db"), (0, "first"))
    assert os.path.exists(place.file("new.db"))


@case("twenty at once run the command once")
def _(place):
    place.configure()
    runs = [
        once(place, "h", "k", "--wait", "1m", "--", "/bin/sh", "-c", "echo a >> out")
        for _ in range(20)
    ]
    equal([run.stop(0) for run in runs], [0] * 20, [r.stderr() for r in runs])
    equal(place.read("out"), "a\n")


@case("a server that ends while the command runs is no obstacle")
def _(place):
    place.configure()
    server = place.serve()
    script = "echo a >> out; until test -e go; do sleep 0.05; done"
    first = once(place, "h", "k", "--lease", "6s", "--", "/bin/sh", "-c", script)
    until(lambda: place.read("out"))
    equal(server.stop(), 0)
    time.sleep(2.5)  # at least one renewal
    place.fails(4, "once", "h", "k", "--", "true", says="now")
    server = place.serve()
    place.write("go", "")
    equal(first.stop(0), 0, first.stderr())
    equal(mark(place, "has", "h", "k"), (0, "done"))


@case("a marker is in the first store, or in the one that is named")
def _(place):
    place.configure(STORES)
    equal(mark(place, "record", "h", "k"), (0, "recorded"))
    equal(mark(place, "has", "h", "k", "--in", "first"), (0, "done"))
    equal(mark(place, "has", "h", "k", "--store", "first"), (0, "done"))
    equal(mark(place, "try", "h", "k", "--store", "other"), (0, "first"))
    place.fails(2, "mark", "has", "h", "k", "--store", "oter", says="did you mean 'other'")
    place.serve()
    equal(mark(place, "try", "h", "k", "--store", "other"), (0, "duplicate"))
    equal(mark(place, "try", "h", "k"), (0, "duplicate"))


@case("a program that keeps the file open makes the store unreachable")
def _(place):
    place.configure()
    place.ok("init", "--store", "sqlite:box.db", "-c", "other.yaml")
    place.hold("sqlite:box.db")
    place.fails(4, "mark", "try", "h", "k", says="in use by")
    place.fails(4, "once", "h", "k", "--", "true", says="in use by")


@case("bad arguments are refused before anything runs")
def _(place):
    place.configure()
    for words in (
        ["mark"],
        ["mark", "tri", "h", "k"],
        ["mark", "try", "h"],
        ["mark", "try", "h", "k", "x"],
        ["mark", "try", "", "k"],
        ["mark", "try", "h", ""],
        ["mark", "try", "h", "k" * 1001],
        ["mark", "try", "h" * 201, "k"],
        ["mark", "try", "h", b"\xff"],
        ["mark", "try", "h", "k", "--duplicate-exit", "256"],
        ["mark", "has", "h", "k", "--duplicate-exit", "1"],
        ["mark", "has", "h", "k", "--older-than", "1h"],
        ["mark", "expire", "h"],
        ["mark", "expire", "h", "k", "--older-than", "1h"],
        ["mark", "expire", "--older-than", "week"],
        ["once", "h", "k"],
        ["once", "h", "k", "--"],
        ["once", "h", "k", "touch", "never"],
        ["once", "h", "k", "touch", "--json", "never"],
        ["once", "h", "k", "touch", "--", "never"],
        ["once", "h", "k", "--lease", "10ms", "--", "touch", "never"],
        ["once", "h", "k", "--wait", "soon", "--", "touch", "never"],
        ["once", "h", "", "--", "touch", "never"],
        ["once", "", "k", "--", "touch", "never"],
    ):
        place.fails(2, *words)
    assert not os.path.exists(place.file("never"))
    assert not os.path.exists(place.file("box.db")) or mark(
        place, "has", "h", "k"
    ) == (3, "unknown")


main()
