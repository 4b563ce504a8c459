#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Wakes every bug of the bank and demands that the tests catch it.

A bug counts as caught only if every catch that bank.py names for it does, for
the reason that it names, and if none of them says anything without a bug.
Arguments are names of bugs, to wake only some.
"""

import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "..", "checks"))
sys.path.insert(0, os.path.join(HERE, "..", "crash"))
import sweep  # noqa: E402
from bank import BUGS  # noqa: E402
from tap import Tap  # noqa: E402

TESTS = os.environ["POSTERN_TESTS"]  # where the test programs are
# Where PostgreSQL is; not set: it is not built in.
SERVER = os.environ.get("POSTERN_TEST_POSTGRES")
sweep.SCENARIO = os.path.join(TESTS, "crash", "scenario")
CHECKER = os.path.join(HERE, "..", "checker", "check.py")
SIM = "sim/test_sim"
# Seeds per store; the slower one shows what it has to with fewer.
SEEDS = {"memory": 400, "sqlite": 40}
# A bug may make a test wait; one that hangs is not caught.
PATIENCE_S = 200
TRIES = 3


def run(command, bug=None, **more):
    """Runs a program: its exit code, None if it hung, and what it said."""
    env = {k: v for k, v in os.environ.items() if k != "POSTERN_BUG"}
    if "postgres" not in command[0]:
        env.pop("POSTERN_TEST_POSTGRES", None)
    if os.path.isdir("/dev/shm"):
        env["TMPDIR"] = "/dev/shm"
    if bug:
        env["POSTERN_BUG"] = bug
    env.update(more)
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None, "", "it hung"
    except OSError as error:
        return None, "", str(error)
    return (
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )


def run_case(program, case, bug=None, **more):
    """Whether a case passed (None: it did not come to that), and why not."""
    code, out, said = run([os.path.join(TESTS, program), case], bug, **more)
    for line in out.splitlines():
        match = re.fullmatch(r"(ok|not ok) \d+ - (.*)", line)
        if match and match.group(2) == case:
            return match.group(1) == "ok", said
    return None, f"exit {code} without the case; {said[-400:]}"


def run_sim(store, bug=None):
    case = f"no seed breaks a rule on {store}"
    return run_case(SIM, case, bug, SIM_SEEDS=str(SEEDS[store]))


def run_checker(store, bug=None):
    """The rules that the checker finds broken, and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "histories")
        command = [os.path.join(TESTS, SIM), "--history", path, "--store", store]
        command += ["--seeds", str(SEEDS[store])]
        code, _, said = run(command, bug, SIM_BLIND="1")
        if code != 0:
            return set(), f"the simulation: exit {code}; {said[-400:]}"
        code, out, said = run([sys.executable, CHECKER, "--stream", path])
    rules = set(re.findall(r"^seed \d+: (\w+): ", out, re.MULTILINE))
    good = code == (1 if rules else 0)
    return rules, "" if good else f"the checker: exit {code}; {said[-400:]}"


def run_strike(place, bug=None):
    """What is wrong after a strike at the scenario in a database."""
    life = {"POSTERN_FAIL_AT": place, "POSTERN_BUG": bug or "none"}
    trial = sweep.Trial(place, sweep.Story("pump"), [life], killed=False)
    return sweep.attempt(trial).problems


def judge_strike(place):
    return [f"{place} without a bug: {text}" for text in run_strike(place)]


def judge_case(catch):
    """Without a bug: what is wrong."""
    passed, said = run_case(*catch)
    return [] if passed else [f"{catch[0]}: '{catch[1]}' without a bug: {said}"]


def judge_store(store):
    passed, said = run_sim(store)
    problems = [] if passed else [f"the simulation on {store}: {said}"]
    rules, said = run_checker(store)
    if rules or said:
        problems.append(f"the checker on {store}: {sorted(rules)} {said}")
    return problems


def catch_case(program, case, bug):
    """The same with a bug, which some tests with threads meet most of the time:
    what is missed is tried again."""
    for _ in range(TRIES):
        passed, said = run_case(program, case, bug)
        if passed is not True:
            break
    return passed, said


def judge_bug(bug):
    """What is wrong: with the bug every catch must catch it."""
    problems = []
    for program, case in bug.cases:
        passed, said = catch_case(program, case, bug.name)
        if passed is not False:
            problems.append(f"{program}: '{case}' did not fail: {said}")
    for place, rule in bug.strikes:
        found = run_strike(place, bug.name)
        if not any(text.startswith(rule + ":") for text in found):
            problems.append(f"{place}: {rule} is not broken, but {found}")
    for store, rule in bug.sim:
        passed, said = run_sim(store, bug.name)
        if passed is not False or f" on {store}: {rule}: " not in said:
            problems.append(f"the simulation on {store} did not say {rule}: {said}")
    for store in sorted({store for store, _ in bug.checker}):
        rules, said = run_checker(store, bug.name)
        missed = {rule for place, rule in bug.checker if place == store} - rules
        if missed or said:
            problems.append(
                f"the checker on {store} did not find {sorted(missed)} broken, "
                f"but {sorted(rules)} {said}"
            )
    return problems


def without_server(bug):
    """What can be caught without PostgreSQL."""
    bug.cases = [case for case in bug.cases if "postgres" not in case[0]]
    bug.strikes = []
    return bug


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
    if not SERVER:
        wanted = [without_server(bug) for bug in wanted]
        wanted = [bug for bug in wanted if bug.cases]
    sweep.root()  # before there are threads
    banked = {bug.name for bug in BUGS}
    sources = names_in_sources()
    tap.case(
        "every bug in the sources is in the bank, and the reverse",
        [f"{name} is not in the bank" for name in sorted(sources - banked)]
        + [f"{name} is not in the sources" for name in sorted(banked - sources)],
    )
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        cases = sorted({case for bug in wanted for case in bug.cases})
        clean = [p for problems in pool.map(judge_case, cases) for p in problems]
        strikes = sorted({place for bug in wanted for place, _ in bug.strikes})
        clean += [p for problems in pool.map(judge_strike, strikes) for p in problems]
        tap.case(f"all {len(cases)} cases pass without a bug", clean)
        clean = [p for problems in pool.map(judge_store, SEEDS) for p in problems]
        tap.case("simulation and checker find nothing without a bug", clean)
        caught = 0
        for bug, problems in zip(wanted, pool.map(judge_bug, wanted)):
            tap.case(f"{bug.name} is caught: {bug.story}", problems)
            caught += not problems
    simulated = sum(bool(bug.sim) for bug in wanted)
    checked = sum(bool(bug.checker) for bug in wanted)
    seconds = time.monotonic() - started
    print(
        f"# bug bank: {caught} of {len(wanted)} caught, {simulated} of them also by "
        f"the simulation and {checked} by the checker alone, in {seconds:.0f} s"
    )
    tap.finish()


main()
