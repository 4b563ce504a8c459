#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails every call of the store and every allocation of the scenario, once.

A call of the store fails before it is made, or after it took effect. After
each failure the scenario goes on to its end: it never crashes or leaks (which
a build with a sanitizer notices), and nobody is told "accepted" without
reason. Then it is played again, and judged.

SQLITE_TRIALS=N   allocations of SQLite that fail in each story (60)
SWEEP=all         all of them
"""

import json
import os
import sys

import sweep
from sweep import STEADY_STORIES, Trial

ALL = os.environ.get("SWEEP") == "all"
SQLITE_TRIALS = int(os.environ.get("SQLITE_TRIALS", "60"))

KINDS = [
    # what is counted, how it is struck, what is said of it
    ("calls", "FAIL_CALL", "", "every call of the store fails once"),
    ("answers", "FAIL_CALL", ":after", "every answer of the store is lost once"),
    ("memory", "FAIL_MEMORY", "", "every allocation fails once"),
    ("sqlite", "FAIL_SQLITE", "", "allocations of SQLite fail once each"),
]


def trials(counts, what, variable, suffix):
    for story, count in counts:
        total = count[what]
        step = 1
        if what == "sqlite" and not ALL:
            step = max(1, total // SQLITE_TRIALS)
        print(f"# {what}: {total} in {story}", flush=True)
        for number in range(1, total + 1, step):
            strike = f"{number}{suffix}"
            yield Trial(
                f"{variable}={strike}", story, [{variable: strike}], killed=False
            )


def main():
    tap = sweep.Tap()
    counts = [
        (story, json.loads(sweep.count({}, "FAULTS_TOLD", story)))
        for story in STEADY_STORIES
    ]
    for what, variable, suffix, name in KINDS:
        report = sweep.sweep(trials(counts, what, variable, suffix), what=what)
        tap.sweep(f"{name}, and nothing is lost, doubled or falsely told", report)
    tap.finish()


if __name__ == "__main__":
    sys.exit(main())
