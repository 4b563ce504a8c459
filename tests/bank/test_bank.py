#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Chooses every bug of the bank in turn and requires the tests to catch it.

The patches of the bank are applied to a copy of the tree, which is compiled
once (patches.py). A bug counts as caught only if every catch that bank.py
names for it fails, for the reason given there, and if none of them fails
without a bug. Arguments are names of bugs, to test only some.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "checks"))
sys.path.insert(0, os.path.join(HERE, "..", "crash"))
import patches  # noqa: E402
import sweep  # noqa: E402
from bank import BUGS  # noqa: E402
from tap import Tap  # noqa: E402

BUILD = os.environ["BANK_BUILD"]  # directory of the copy and its build
TESTS = os.path.join(BUILD, "build", "tests")  # directory of the test programs
# URL of PostgreSQL; not set: it is not built in.
SERVER = os.environ.get("POSTERN_TEST_POSTGRES")
sweep.SCENARIO = os.path.join(TESTS, "crash", "scenario")
COMMAND = "src/postern"  # which the tests in tests/server/*.py start
CHECKER = os.path.join(HERE, "..", "checker", "check.py")
POWER = os.path.join(HERE, "..", "crash", "test_power.py")
# Without the sync a loss is likely, but not in every cut.
POWER_CUTS = 30
RABBITMQ = os.path.join(HERE, "..", "support", "rabbitmq.py")
REDIS = os.path.join(HERE, "..", "support", "redis.py")
SIM = "sim/test_sim"
# Seeds per store; the slower one needs fewer.
SEEDS = {"memory": 400, "sqlite": 40}
# A bug may make a test wait; one that hangs is not caught.
PATIENCE_S = 200


def choose(bug):
    """The environment that chooses a bug, for C and for SQL."""
    name = bug or "none"
    return {
        "POSTERN_BUG": name,
        "POSTERN_BUG_SCHEMAS": os.path.join(BUILD, "schemas"),
        "PGOPTIONS": f"-c postern.bug={name}",
    }


def run(command, bug=None, **more):
    """Runs a program: its exit code (None if it hung), stdout and stderr."""
    env = dict(os.environ)
    if "postgres" not in command[0]:
        env.pop("POSTERN_TEST_POSTGRES", None)
    if os.path.isdir("/dev/shm"):
        env["TMPDIR"] = "/dev/shm"
    env.update(choose(bug))
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
    """Whether a case passed (None: it was not run), and the output."""
    command = [os.path.join(TESTS, program), case]
    if program.endswith(".py"):
        command[0] = os.path.join(HERE, "..", program)
        more["POSTERN"] = os.path.join(BUILD, "build", COMMAND)
    if program.endswith("source_rabbitmq"):
        command.insert(0, RABBITMQ)
    if "redis" in program:
        command.insert(0, REDIS)
    code, out, output = run(command, bug, **more)
    for line in out.splitlines():
        match = re.fullmatch(r"(ok|not ok) \d+ - (.*)", line)
        if match and match.group(2) == case:
            return match.group(1) == "ok", output
    return None, f"exit {code} without the case; {output[-400:]}"


def run_sim(store, bug=None):
    case = f"no seed breaks a rule on {store}"
    return run_case(SIM, case, bug, SIM_SEEDS=str(SEEDS[store]))


def run_checker(store, bug=None, wanted=()):
    """The rules that the checker finds broken, and an error. A few seeds
    are enough if they break the rules that are wanted."""
    for seeds in [SEEDS[store] // 8, SEEDS[store]] if bug else [SEEDS[store]]:
        rules, output = run_checker_on(store, bug, seeds)
        if output or rules.issuperset(wanted):
            break
    return rules, output


def run_checker_on(store, bug, seeds):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "histories")
        command = [os.path.join(TESTS, SIM), "--history", path, "--store", store]
        command += ["--seeds", str(seeds)]
        code, _, output = run(command, bug, SIM_BLIND="1")
        if code != 0:
            return set(), f"the simulation: exit {code}; {output[-400:]}"
        code, out, output = run([sys.executable, CHECKER, "--stream", path])
    rules = set(re.findall(r"^seed \d+: (\w+): ", out, re.MULTILINE))
    good = code == (1 if rules else 0)
    return rules, "" if good else f"the checker: exit {code}; {output[-400:]}"


def passes(place):
    """POINT:FIRST-LAST is several passes of a point, as POINT:NUMBER each."""
    point, numbers = place.split(":")
    first, _, last = numbers.partition("-")
    return [f"{point}:{n}" for n in range(int(first), int(last or first) + 1)]


def run_point(place, bug=None):
    """The problems after a crash point failed in the scenario on a
    database."""
    problems = []
    for one in passes(place):
        life = {"POSTERN_FAIL_AT": one, **choose(bug)}
        trial = sweep.Trial(one, sweep.Story("pump"), [life], killed=False)
        problems += sweep.attempt(trial).problems
    return problems


def run_power(bug):
    """The output of power cuts during the scenario on a file."""
    _, out, output = run(
        [sys.executable, POWER], bug,
        SCENARIO=sweep.SCENARIO, POWER_CUTS=str(POWER_CUTS),
    )
    return out + output


def check_point(place):
    return [f"{place} without a bug: {text}" for text in run_point(place)]


def check_case(catch):
    """The problems without a bug."""
    passed, output = run_case(*catch)
    return [] if passed else [f"{catch[0]}: '{catch[1]}' without a bug: {output}"]


def check_store(store):
    passed, output = run_sim(store)
    problems = [] if passed else [f"the simulation on {store}: {output}"]
    rules, output = run_checker(store)
    if rules or output:
        problems.append(f"the checker on {store}: {sorted(rules)} {output}")
    return problems


def check_bug(bug):
    """The problems with a bug: every catch must fail."""
    problems = []
    for program, case in bug.cases:
        passed, output = run_case(program, case, bug.name)
        if passed is not False:
            problems.append(f"{program}: '{case}' did not fail: {output}")
    for place, rule in bug.strikes:
        found = run_point(place, bug.name)
        if not any(text.startswith(rule + ":") for text in found):
            problems.append(f"{place}: {rule} is not broken, but {found}")
    if bug.power:
        output = run_power(bug.name)
        if not any(f": {rule}: " in output for rule in bug.power):
            problems.append(f"power cuts did not break {bug.power}: {output[-400:]}")
    for store, rule in bug.sim:
        passed, output = run_sim(store, bug.name)
        if passed is not False or f" on {store}: {rule}: " not in output:
            problems.append(f"the simulation on {store} did not report {rule}: {output}")
    for store in sorted({store for store, _ in bug.checker}):
        wanted = {rule for place, rule in bug.checker if place == store}
        rules, output = run_checker(store, bug.name, wanted)
        missed = wanted - rules
        if missed or output:
            problems.append(
                f"the checker on {store} did not find {sorted(missed)} broken, "
                f"but {sorted(rules)} {output}"
            )
    return problems


def without_server(bug):
    """The bug with the catches that need no PostgreSQL."""
    bug.cases = [case for case in bug.cases if "postgres" not in case[0]]
    bug.strikes = []
    return bug


def check_names():
    """Checks that every patch has its bug in bank.py, and is conditional on
    that bug."""
    banked = {bug.name for bug in BUGS}
    names = set(patches.patch_names())
    problems = [f"{name}.patch is not in bank.py" for name in sorted(names - banked)]
    problems += [f"{name} has no patch" for name in sorted(banked - names)]
    for name in sorted(names):
        for path, text in patches.split(patches.read(patches.patch_path(name))).items():
            asked = set(re.findall(r'postern__bug(?:_sql)?\(\s*"([^"]+)"', text))
            if not path.endswith(".sql") and asked != {name}:
                problems.append(
                    f"{name}.patch is conditional on {sorted(asked)} in {path}"
                )
    return problems


def build_copy(wanted):
    """Makes and compiles the patched copy; returns the error of the build, and
    the patches that do not apply."""
    errors = patches.make(BUILD)
    programs = {case[0] for bug in wanted for case in bug.cases}
    programs |= {SIM, "crash/scenario"}
    error = patches.build(BUILD, sorted(
        COMMAND if name.endswith(".py") else f"tests/{name}" for name in programs))
    return error, errors


def main():
    tap = Tap()
    started = time.monotonic()
    wanted = [bug for bug in BUGS if not sys.argv[1:] or bug.name in sys.argv[1:]]
    if not SERVER:
        wanted = [without_server(bug) for bug in wanted]
        wanted = [bug for bug in wanted if bug.cases]
    sweep.root()  # before threads are started
    tap.case("every patch is a bug of the bank, and the reverse", check_names())
    error, errors = build_copy(wanted)
    tap.case("the patched copy compiles", [error] if error else [])
    if error:
        tap.finish()
    if "schema" in errors:
        tap.case("schema.patch applies", [errors["schema"]])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        cases = sorted({case for bug in wanted for case in bug.cases})
        clean = [p for problems in pool.map(check_case, cases) for p in problems]
        strikes = sorted({place for bug in wanted for place, _ in bug.strikes})
        clean += [p for problems in pool.map(check_point, strikes) for p in problems]
        tap.case(f"all {len(cases)} cases pass without a bug", clean)
        clean = [p for problems in pool.map(check_store, SEEDS) for p in problems]
        tap.case("simulation and checker find nothing without a bug", clean)
        caught = 0
        applied = [bug for bug in wanted if bug.name not in errors]
        found = {bug.name: [f"{bug.name}.patch does not apply; see tests/bank/refresh:"
                            f" {errors[bug.name]}"]
                 for bug in wanted if bug.name in errors}
        found.update(zip([bug.name for bug in applied], pool.map(check_bug, applied)))
        for bug in wanted:
            problems = found[bug.name]
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
