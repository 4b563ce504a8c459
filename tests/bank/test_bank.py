#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Wakes every bug of the bank and demands that the tests catch it.

A bug counts as caught only if the very case that was named fails, and the
same case passes without it. Arguments are names of bugs, to wake only some.
"""

import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "..", "checks"))
from bank import BUGS  # noqa: E402
from tap import Tap  # noqa: E402

TESTS = os.environ["POSTERN_TESTS"]  # where the test programs are
# A bug may make a test wait; one that hangs is not caught.
PATIENCE_S = 100


def run_case(program, case, bug=None):
    """Runs one case: what it came to, and what it said."""
    path = os.path.join(TESTS, program)
    env = {k: v for k, v in os.environ.items() if k != "POSTERN_BUG"}
    if os.path.isdir("/dev/shm"):
        env["TMPDIR"] = "/dev/shm"
    if bug:
        env["POSTERN_BUG"] = bug
    try:
        done = subprocess.run(
            [path, case], env=env, capture_output=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "hung", ""
    except OSError as error:
        return "missing", str(error)
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        match = re.fullmatch(r"(ok|not ok) \d+ - (.*)", line)
        if match and match.group(2) == case:
            passed = match.group(1) == "ok"
            return "passed" if passed else "failed", done.stderr.decode(
                "utf-8", "replace"
            )
    return f"exit {done.returncode} without the case", ""


def judge_clean(catch):
    result, said = run_case(*catch)
    return [] if result == "passed" else [f"{catch[0]}: {catch[1]}: {result} {said}"]


def judge_bug(bug):
    """What is wrong: with the bug, every catch must fail."""
    problems = []
    for program, case in bug.catches:
        result, said = run_case(program, case, bug.name)
        if result != "failed":
            problems.append(f"{program}: '{case}' {result} {said}")
        elif f"failed: {case}" not in said:
            problems.append(f"{program}: '{case}' failed without a reason")
    return problems


def names_in_sources():
    names = set()
    for path in glob.glob(os.path.join(ROOT, "src", "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as file:
            names |= set(re.findall(r'postern__bug\(\s*"([^"]+)"', file.read()))
    return names


def main():
    tap = Tap()
    started = time.monotonic()
    wanted = [bug for bug in BUGS if not sys.argv[1:] or bug.name in sys.argv[1:]]
    banked = {bug.name for bug in BUGS}
    sources = names_in_sources()
    tap.case(
        "every bug in the sources is in the bank, and the reverse",
        [f"{name} is not in the bank" for name in sorted(sources - banked)]
        + [f"{name} is not in the sources" for name in sorted(banked - sources)],
    )
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        catches = sorted({catch for bug in wanted for catch in bug.catches})
        clean = [p for problems in pool.map(judge_clean, catches) for p in problems]
        tap.case(f"all {len(catches)} cases pass without a bug", clean)
        caught = 0
        for bug, problems in zip(wanted, pool.map(judge_bug, wanted)):
            tap.case(f"{bug.name} is caught: {bug.story}", problems)
            caught += not problems
    seconds = time.monotonic() - started
    print(f"# bug bank: {caught} of {len(wanted)} caught, {seconds:.0f} s")
    tap.finish()


main()
