#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs an example and compares what it prints: check.py PROGRAM SOURCE

SOURCE is the example's file; beside it lie NAME.out, what the first run prints,
and where there is one NAME.again.out, what a second run in the same directory
prints, and NAME.in, what both read. The directory is a private one.

With NAME.sql beside it the example works a database: the one that
$POSTERN_TEST_POSTGRES names, in which that is run first and which the program
gets as its argument.
"""

import difflib
import os
import subprocess
import sys
import tempfile


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def prepare(script):
    """Runs a script in the database; its URL."""
    support = os.path.join(os.path.dirname(__file__), "..", "tests", "support")
    sys.path.insert(0, support)
    from postgres import BIN

    url = os.environ["POSTERN_TEST_POSTGRES"]
    psql = os.path.join(BIN, "psql")
    subprocess.run([psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", script, url],
                   check=True)
    return url


def run(command, place, given):
    """What the program printed, errors included."""
    result = subprocess.run(
        command,
        cwd=place,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    end = "" if result.returncode == 0 else f"exit {result.returncode}\n"
    return result.stdout + end


def main():
    program, source = map(os.path.abspath, sys.argv[1:])
    stem = os.path.splitext(source)[0]
    given = text_of(stem + ".in") if os.path.exists(stem + ".in") else ""
    command = [program]
    if os.path.exists(stem + ".sql"):
        command.append(prepare(stem + ".sql"))
    failed = 0
    runs = [
        (stem + end, name)
        for end, name in [
            (".out", "the example prints what it should"),
            (".again.out", "run again, it does nothing twice"),
        ]
        if os.path.exists(stem + end)
    ]
    with tempfile.TemporaryDirectory(prefix="postern-example-") as place:
        for number, (path, name) in enumerate(runs, 1):
            wanted = text_of(path)
            found = run(command, place, given)
            good = found == wanted
            failed += not good
            print(f"{'ok' if good else 'not ok'} {number} - {name}")
            sys.stderr.writelines(
                difflib.unified_diff(
                    wanted.splitlines(True),
                    found.splitlines(True),
                    os.path.basename(path),
                    "printed",
                )
            )
    print(f"1..{len(runs)}")
    sys.exit(1 if failed or not runs else 0)


main()
