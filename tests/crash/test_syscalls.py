#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Injects a fault into every system call by which the scenario changes its
directory.

A write, a sync, a truncation, a creation or a removal gets one fault, by its
number: the process is killed there, or the call fails. Then the scenario runs
again to its end, and the checker checks the result. One run tries every third
call; the seed chooses the first.

SWEEP=all    tries every call; also kills after half of a write and after each
             call, makes calls fail with a full disk, and writes short
SEED=N       chooses the calls (printed)
"""

import os
import random
import sys

import sweep
from sweep import STEADY_STORIES, STORIES, Trial

ALL = os.environ.get("SWEEP") == "all"
STEP = 1 if ALL else 3
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))

# How, whether the process dies of it, and the name of the case.
STRIKES = [
    ("kill", True, "killed before a system call, nothing is lost or doubled"),
    ("eio", False, "with an I/O error in a system call, nothing is lost"),
]
MORE_STRIKES = [
    ("torn", True, "killed in the middle of every write, nothing is lost"),
    ("after", True, "killed after every system call, nothing is lost"),
    ("full", False, "with a full disk at every system call, nothing is lost"),
    ("short", False, "with every write cut short, nothing is lost"),
]


def environment(how, number):
    return {
        "LD_PRELOAD": sweep.STRIKE,
        "STRIKE_HOW": how,
        "STRIKE_AT": str(number),
    }


def trials(how, killed, dice):
    # Failing calls are tried in stories whose calls are the same every time.
    for story in STORIES if killed else STEADY_STORIES:
        total = int(sweep.count(environment("none", 0), "STRIKE_TOLD", story))
        print(f"# {how}: {total} system calls in {story}", flush=True)
        for number in range(1 + dice.randrange(STEP), total + 1, STEP):
            strike = environment(how, number)
            yield Trial(f"{how} {number}", story, [strike], killed=killed)


def main():
    tap = sweep.Tap()
    dice = random.Random(SEED)
    print(f"# seed {SEED}", flush=True)
    for how, killed, name in STRIKES + (MORE_STRIKES if ALL else []):
        report = sweep.sweep(trials(how, killed, dice), what=f"strikes ({how})")
        problems = list(report.problems)
        if killed and report.struck < report.trials // 2:
            problems.append("fewer than half of the trials hit their fault")
        report.problems = problems
        tap.sweep(name, report)
    tap.finish()


if __name__ == "__main__":
    sys.exit(main())
