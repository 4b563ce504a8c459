#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs an example and compares its output: check.py PROGRAM SOURCE

SOURCE is the example's file. In the same directory are NAME.out, the expected
output of the first run, and optionally NAME.again.out, that of a second run in
the same working directory, and NAME.in, the standard input of both. The working
directory is a private one.

If there is a NAME.sql, the example uses a database, the one in
$POSTERN_TEST_POSTGRES: NAME.sql is run in it first, and the program gets its URL
as the argument.
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
    """Runs a script in the database and returns the URL of the database."""
    support = os.path.join(os.path.dirname(__file__), "..", "tests", "support")
    sys.path.insert(0, support)
    from postgres import BIN

    url = os.environ["POSTERN_TEST_POSTGRES"]
    psql = os.path.join(BIN, "psql")
    subprocess.run([psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", script, url],
                   check=True)
    return url


def run(command, place, given):
    """Runs the program and returns its output, including errors."""
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
            (".out", "the example prints the expected output"),
            (".again.out", "a second run delivers no message again"),
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
