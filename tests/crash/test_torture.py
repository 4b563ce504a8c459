#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails every call of the store and allocations of the scenario, once each.

A call of the store fails before it is made, or after it took effect. After
each failure the scenario continues to its end: it never crashes or leaks
(which a build with a sanitizer detects), and no client gets "accepted" for a
message that is not stored. Then it runs again, and the checker checks the
result.

MEMORY_STEP=N     of the allocations of the library, one in so many fails (3)
SQLITE_TRIALS=N   allocations of SQLite that fail in each story (40)
TRIALS=N          in a database: calls, answers and allocations that fail in
                  each story (8)
SEED=N            which (printed)
SWEEP=all         all of them
"""

import json
import os
import random
import sys

import sweep
from sweep import STEADY_STORIES, Trial

ALL = os.environ.get("SWEEP") == "all"
MEMORY_STEP = int(os.environ.get("MEMORY_STEP", "3"))
SQLITE_TRIALS = int(os.environ.get("SQLITE_TRIALS", "40"))
TRIALS = int(os.environ.get("TRIALS", "8"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))

KINDS = [
    # what is counted, the variable and suffix that fail it, the name of the
    # case
    ("calls", "FAIL_CALL", "", "every call of the store fails once"),
    ("answers", "FAIL_CALL", ":after", "every answer of the store is lost once"),
    ("memory", "FAIL_MEMORY", "", "allocations fail once each"),
    ("sqlite", "FAIL_SQLITE", "", "allocations of SQLite fail once each"),
]
if sweep.DATABASE:
    KINDS = [kind for kind in KINDS if kind[0] != "sqlite"]
if sweep.DATABASE and not ALL:
    KINDS = [(*kind[:3], "some of: " + kind[3]) for kind in KINDS]


def numbers(what, total, dice):
    """Which of them fail: all, or with a stride."""
    step = 1
    if not ALL and sweep.DATABASE:
        step = max(1, total // TRIALS)
    elif not ALL and what == "sqlite":
        step = max(1, total // SQLITE_TRIALS)
    elif not ALL and what == "memory":
        step = MEMORY_STEP
    return range(1 + dice.randrange(step), total + 1, step)


def trials(counts, what, variable, suffix):
    dice = random.Random(SEED)
    for story, count in counts:
        total = count[what]
        print(f"# {what}: {total} in {story}", flush=True)
        for number in numbers(what, total, dice):
            strike = f"{number}{suffix}"
            yield Trial(
                f"{variable}={strike}", story, [{variable: strike}], killed=False
            )


def main():
    tap = sweep.Tap()
    print(f"# seed {SEED}", flush=True)
    counts = [
        (story, json.loads(sweep.count({}, "FAULTS_TOLD", story)))
        for story in STEADY_STORIES
    ]
    for what, variable, suffix, name in KINDS:
        report = sweep.sweep(trials(counts, what, variable, suffix), what=what)
        tap.sweep(f"{name}, and nothing is lost, doubled or reported falsely", report)
    tap.finish()


if __name__ == "__main__":
    sys.exit(main())
