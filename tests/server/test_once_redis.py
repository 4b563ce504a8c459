#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`postern mark` and `postern once` with --store redis://HOST, which needs no
configuration."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from redis import Server  # noqa: E402
from support import POSTERN, case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below


def mark(place, *args):
    result = place.run("mark", *args, "--store", SERVER.url())
    return result.code, result.out.strip()


@case("markers in Redis are those of every machine")
def _(place):
    equal(mark(place, "try", "h", "k"), (0, "first"))
    equal(mark(place, "try", "h", "k", "--duplicate-exit", "9"), (9, "duplicate"))
    equal(mark(place, "has", "h", "k"), (0, "done"))
    equal(mark(place, "forget", "h", "k"), (0, "forgotten"))
    equal(mark(place, "has", "h", "k"), (3, "unknown"))
    equal(mark(place, "record", "h", "k"), (0, "recorded"))
    # No file is created, and a server with other stores is not asked.
    equal([name for name in os.listdir(place.path) if name[0] != "."], [])
    place.configure()
    place.serve()
    equal(mark(place, "has", "h", "k"), (0, "done"))


@case("a command runs once, under a lease in Redis that is renewed")
def _(place):
    words = ["once", "h", "once", "--store", SERVER.url(), "--lease", "4s"]
    script = "echo ran >> out; until test -e go; do sleep 0.05; done"
    runs = [
        place.start([POSTERN, *words, "--wait", "1m", "--", "/bin/sh", "-c", script])
        for _ in range(4)
    ]
    until(lambda: place.read("out"))
    # More than one lease: the end of the first has passed, by the server's clock.
    rows = [SERVER.call("GET", key) for key in SERVER.call("KEYS", "*:h")]
    end_ms = max(int(row.split()[2]) for row in rows)
    assert end_ms > 0, rows
    until(lambda: int(SERVER.call("TIME")[0]) * 1000 > end_ms)
    place.fails(4, *words, "--", "true", says="is doing 'once' now")
    place.write("go", "")
    equal([run.stop(0) for run in runs], [0] * 4, [run.stderr() for run in runs])
    equal(place.read("out"), "ran\n")


@case("what Redis does not do is refused")
def _(place):
    place.fails(1, "mark", "expire", "--older-than", "1h", "--store", SERVER.url(),
                says="expires markers by itself")
    place.fails(2, "list", "--store", SERVER.url(), says="keeps markers only")
    place.fails(2, "mark", "try", "h", "k", "--store", "redis://h:x", says="the port is not a number")
    place.fails(4, "mark", "try", "h", "k", "--store", "redis://127.0.0.1:1",
                says="Connection refused")


@case("a password is neither printed nor shown to other users")
def _(place):
    with Server(requirepass="s3cret") as server:
        wrong = server.url(password="other")
        result = place.fails(2, "mark", "try", "h", "k", "--store", wrong)
        assert "other" not in result.err, result
        url = server.url(password="s3cret")
        script = "echo ran >> out; until test -e go; do sleep 0.05; done"
        run = place.start(
            [POSTERN, "once", "h", "k", "--store", url, "--", "/bin/sh", "-c", script]
        )
        until(lambda: place.read("out"))
        with open(f"/proc/{run.pid}/cmdline", "rb") as file:
            assert b"s3cret" not in file.read()
        place.write("go", "")
        equal((run.stop(0), run.stderr()), (0, ""))


with Server() as SERVER:
    main()
