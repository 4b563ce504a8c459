#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The main promises of the project, used from a shell."""

import os
import signal

from support import case, equal, main, until

TWO = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      good:
        exec: [/bin/sh, -c, 'echo "$CE_ID $POSTERN_FENCE" >> ${DIR}/good.out']
      bad:
        backoff: [1ms]
        max_attempts: 3
        exec:
          - /bin/sh
          - -c
          - |
            echo "$CE_ID $POSTERN_ATTEMPT $POSTERN_FENCE" >> ${DIR}/bad.out
            test -e ${DIR}/mended && exit 0
            echo "attempt $POSTERN_ATTEMPT went wrong" >&2
            exit 75
"""


def lines(place, name):
    return place.read(name).splitlines()


def two_handlers(place, pump):
    equal(place.send("a", "x").out, "accepted\n")
    pump()
    row = until(
        lambda: (r := place.delivery("a", "bad"))["state"] == "poisoned" and r
    )
    equal((row["failures"], row["last_error"]), (3, "attempt 3 went wrong"))
    equal([a["error"] for a in row["attempts"]],
          [f"attempt {n} went wrong" for n in (1, 2, 3)])
    until(lambda: place.state("a", "good") == "done")
    equal(lines(place, "good.out"), ["a 1"])
    equal([line.split()[1] for line in lines(place, "bad.out")], list("123"))
    assert "attempt 3 went wrong" in place.ok("show", "a").out

    # The same message again is a duplicate and runs nothing.
    equal(place.send("a", "x").out, "duplicate\n")
    equal(place.send("a", "y").out, "conflict\n")
    pump()
    equal(place.state("a", "bad"), "poisoned")

    place.write("mended", "")
    equal(place.ok("retry", "a").out, "retried bad\n")
    pump()
    until(lambda: place.state("a", "bad") == "done")
    equal(lines(place, "good.out"), ["a 1"])
    fences = [int(line.split()[2]) for line in lines(place, "bad.out")]
    equal(len(fences), 4)
    assert fences == sorted(set(fences)), fences
    equal(place.delivery("a", "bad")["fence"], fences[-1])
    assert place.show("a")["completed_at"], place.show("a")


@case("of two handlers one fails until it is retried, with process")
def _(place):
    place.configure(TWO)

    def pump():
        # The backoff is 1 ms.
        while place.ok("process", "--ignore-failures", "--json").json()["processed"]:
            pass
        until(
            lambda: not place.ok("list", "--json", "--state", "pending").json()
            or place.ok("process", "--ignore-failures").out and False
        )

    two_handlers(place, pump)


@case("of two handlers one fails until it is retried, with a server")
def _(place):
    place.configure(TWO)
    place.serve()
    two_handlers(place, lambda: None)


RENAMED = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      %s
        exec: [/bin/sh, -c, 'echo "$CE_ID" >> ${DIR}/ran.out; test -e ${DIR}/mended']
        backoff: [%s]
"""


@case("after a rename done deliveries are not run again and open ones are run")
def _(place):
    place.configure(RENAMED % ("before:", "1h"))
    place.write("mended", "")
    equal(place.send("done").out, "accepted\n")
    place.ok("process", "--ignore-failures")
    os.unlink(place.file("mended"))
    equal(place.send("open").out, "accepted\n")
    place.ok("process", "--ignore-failures")
    equal(place.send("fresh").out, "accepted\n")
    equal(lines(place, "ran.out"), ["done", "open"])

    place.write("mended", "")
    place.configure(
        RENAMED % ("after:\n        legacy_keys: [before]", "1h")
    )
    place.ok("check")
    server = place.serve()
    equal(place.send("done").out, "duplicate\n")
    until(lambda: place.state("fresh", "after") == "done")
    place.ok("retry", "open", "--handler", "before")
    until(lambda: place.state("open", "after") == "done")
    equal(place.state("done", "after"), "done")
    equal(sorted(lines(place, "ran.out")), ["done", "fresh", "open", "open"])
    equal(server.stop(), 0)

    # Without the legacy key in the configuration it is still the same handler,
    # also for open deliveries.
    os.unlink(place.file("mended"))
    equal(place.send("late").out, "accepted\n")
    place.ok("process", "--ignore-failures")
    place.configure(RENAMED % ("after:", "1h"))
    place.ok("check")
    equal(place.send("done").out, "duplicate\n")
    equal(place.process(), 0)
    equal(place.state("done", "after"), "done")
    equal(place.state("late", "after"), "pending")
    place.ok("check")


@case("a handler added later gets a message that is sent again")
def _(place):
    place.configure(RENAMED % ("first:", "1h"))
    place.write("mended", "")
    equal(place.send("a").out, "accepted\n")
    place.ok("process", "--ignore-failures")
    place.configure(
        (RENAMED % ("first:", "1h"))
        + "      second:\n        exec: [/bin/sh, -c, 'echo \"$CE_ID\" >> ${DIR}/two.out']\n"
    )
    place.ok("process", "--ignore-failures")
    equal(lines(place, "two.out"), [])
    equal(place.send("a").out, "duplicate\n")
    place.ok("process", "--ignore-failures")
    equal(lines(place, "two.out"), ["a"])
    equal(lines(place, "ran.out"), ["a"])


@case("a parked message is delivered when a handler wants its type")
def _(place):
    text = RENAMED % ('first:\n        types: ["%s"]', "1h")
    place.configure(text % "this")
    place.write("mended", "")
    equal(place.send("a", "x", "--type", "that").word, "accepted")
    place.ok("process", "--ignore-failures")
    equal(place.state("a", ""), "parked")
    place.configure(text % "th*")
    place.ok("process", "--ignore-failures")
    equal(place.state("a", "first"), "done")
    equal(lines(place, "ran.out"), ["a"])


@case("a command that sends changes nothing that is there already")
def _(place):
    text = RENAMED % ('first:\n        types: ["%s"]', "1h")
    place.configure(text % "this")
    place.write("mended", "")
    place.send("a", "x", "--type", "that")
    equal(place.send("b", "x", "--type", "this").word, "accepted")
    # Leased when the process died.
    server = place.serve("--shutdown-grace=0s")
    server.stop(signal.SIGKILL)
    place.configure((text % "th*").replace("first:", "other:"))
    result = place.send("c", "x", "--type", "that")
    equal((result.out, result.err), ("accepted\n", ""))
    equal((place.state("a", ""), place.state("c", "other")), ("parked", "pending"))
    place.ok("process", "--ignore-failures")
    equal((place.state("a", "other"), place.state("c", "other")), ("done", "done"))


@case("a server that stops returns its leases, and nothing is lost")
def _(place):
    place.configure(
        """\
store: sqlite:box.db
shutdown_grace: 100ms
channels:
  orders:
    handlers:
      slow:
        exec: [/bin/sh, -c, 'echo run >> ${DIR}/ran.out; test -e ${DIR}/go || sleep 60']
"""
    )
    server = place.serve()
    for number in range(10):
        equal(place.send(str(number)).out, "accepted\n")
    until(lambda: lines(place, "ran.out"))
    equal(server.stop(signal.SIGTERM), 0)
    rows = place.ok("list", "--json").json()
    equal({row["state"] for row in rows}, {"pending"})
    equal({row["failures"] for row in rows}, {0})
    place.write("go", "")
    place.serve()
    until(lambda: len(place.ok("list", "--json", "--state", "done").json()) == 10)


main()
