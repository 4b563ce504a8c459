#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Strikes at every point that the sources name.

The scenario is killed at each of them, played again to the end, and judged.
It is also failed at each point that can fail, stopped at each point while a
second process comes, and killed twice or three times in a row. That one is
refused where the store is a file; in a database it takes over what the first
one has, and the first one goes on when it has done everything.

SWEEP=all    strikes at every pass of every point; else at the first five
             passes of a point and at one in ten of the rest
PASSES=N     else so many passes of each point in a database (1); kills are in
             one of the stories that pass it
PAIRS=N      kills of two or three lives in a row (100; in a database 10)
SEED=N       chooses what is not tried always (printed)
"""

import os
import random
import signal
import subprocess
import sys
import time

import points
import sweep
from sweep import STEADY_STORIES, STORIES, Trial

ALL = os.environ.get("SWEEP") == "all"
# What goes on for long repeats itself: of later passes, some are tried, and
# others in the next run.
FIRST_PASSES = 5
LATER_STEP = 1 if ALL else 10
# A life takes longer where every step is a round trip.
PASSES = 0
if sweep.DATABASE and not ALL:
    PASSES = int(os.environ.get("PASSES", "1"))
TRIES = 10
PAIRS = int(os.environ.get("PAIRS", "10" if sweep.DATABASE else "100"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))

# A second process in a database mostly waits for the command timeout while the
# first is stopped, so more trials run at a time.
PAUSE_WORKERS = (2 if sweep.DATABASE else 1) * sweep.WORKERS

# What the scenario does not pass, and where it is struck instead.
ELSEWHERE = {
    "halve.before": "only if the store refuses an item: passed by apply.refused",
    "sqlite-reopen.closed": "only after a failure: passed by the failures below",
    "postgres-migrate.upgraded": "only with an older schema: "
    "tests/server/test_postgres_upgrade.py kills a process during the upgrade",
    "inline.before": "channels without an inbox: tests/unit/test_modes.c",
    "inline.after": "channels without an inbox: tests/unit/test_modes.c",
    "inline.guarded": "channels without an inbox: tests/unit/test_modes.c",
    "inline.answered": "channels without an inbox: tests/unit/test_modes.c",
    "memory-apply.fails": "memory: the simulation",
    "memory-apply.prepared": "memory: the simulation",
    "memory-apply.settled": "memory: the simulation",
}
# The points of other stores than the one that is played on.
STRANGE = ("sqlite-", "memory-") if sweep.DATABASE else ("postgres-",)


class Passes:
    """How often each point is passed by a life that is left alone."""

    def __init__(self, story, named):
        self.story = story
        self.named = named
        self.dice = random.Random(f"{SEED} {story}")
        told = sweep.count({}, "POSTERN_POINTS_TOLD", story)
        lines = [line.split() for line in told.splitlines()]
        self.counts = {name: int(count) for name, count in lines}

    def names(self, kind):
        return sorted(n for n in self.counts if self.named[n][0] == kind)

    def numbers(self, count):
        """Which passes of a point with so many are struck."""
        later = FIRST_PASSES + 1 + self.dice.randrange(LATER_STEP)
        return [
            *range(1, min(count, FIRST_PASSES) + 1),
            *range(later, count + 1, LATER_STEP),
        ]

    def places(self, kind):
        for name in self.names(kind):
            numbers = self.numbers(self.counts[name])
            if PASSES and len(numbers) > PASSES:
                numbers = sorted(self.dice.sample(numbers, PASSES))
            for number in numbers:
                yield f"{name}:{number}"


def divide(all_passes):
    """In a database, where a life takes long, the process is killed at a point
    in only one of the stories that pass it."""
    if not PASSES:
        return
    dice = random.Random(SEED)
    for name in sorted(set().union(*(each.counts for each in all_passes))):
        having = [passes for passes in all_passes if name in passes.counts]
        for passes in dice.sample(having, len(having) - 1):
            del passes.counts[name]


def kills(all_passes):
    for passes in all_passes:
        for place in passes.places("crash"):
            yield Trial(place, passes.story, [{"POSTERN_CRASH_AT": place}])


def failures(all_passes):
    for passes in all_passes:
        for place in passes.places("fail"):
            strike = {"POSTERN_FAIL_AT": place}
            yield Trial(place, passes.story, [strike], killed=False)


def many_kills(all_passes, dice):
    """Lives that end somewhere, one after the other."""
    all_places = [(p.story, list(p.places("crash"))) for p in all_passes]
    for _ in range(PAIRS):
        story, places = dice.choice(all_places)
        lives = [dice.choice(places) for _ in range(dice.choice((2, 3)))]
        strikes = [{"POSTERN_CRASH_AT": place} for place in lives]
        yield Trial(" then ".join(lives), story, strikes)


def wait_until_stopped(process):
    """True if it was stopped, False if it ended."""
    until = time.monotonic() + sweep.PATIENCE_S
    while time.monotonic() < until:
        pid, status = os.waitpid(process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return False
    raise AssertionError("neither stopped nor ended")


def is_right_answer(code, said):
    """Whether the second process may end so while the first is stopped."""
    if sweep.DATABASE:
        return code == 0
    return code == 3 and "in use by" in said


def pause(trial):
    """One process is stopped at a point; meanwhile a second one comes."""
    outcome = sweep.Outcome(trial)
    folder = sweep.make_folder()
    os.makedirs(os.path.join(folder, "store"))
    parts = trial.story.parts
    first = subprocess.Popen(
        [sweep.SCENARIO, sweep.place(folder),
         os.path.join(folder, "life1.jsonl"), "1"],
        env=sweep.surroundings(folder, parts, trial.lives[0]),
        stderr=subprocess.DEVNULL,
    )
    try:
        outcome.struck = int(wait_until_stopped(first))
        if outcome.struck:
            code, said = sweep.play(folder, 2, parts)
            if not is_right_answer(code, said):
                outcome.problems.append(f"the second one ended with {code}: {said}")
            first.send_signal(signal.SIGCONT)
            first.wait(sweep.PATIENCE_S)
        if first.returncode != 0:
            outcome.problems.append(f"the first one ended with {first.returncode}")
        outcome.problems += sweep.finish(folder, 3, trial)
    except subprocess.TimeoutExpired:
        outcome.problems.append("does not come to an end")
    finally:
        if first.poll() is None:
            first.kill()
            first.wait()
        sweep.remove_folder(folder)
    return outcome


def pauses(passes):
    places = [f"{name}:1" for name in passes.names("crash")]
    if sweep.DATABASE:
        places = list(passes.places("crash"))
    for place in places:
        yield Trial(place, passes.story, [{"POSTERN_PAUSE_AT": place}])


def main():
    tap = sweep.Tap()
    everywhere = points.named()
    named = {name: point for name, point in everywhere.items()
             if not name.startswith(STRANGE)}
    elsewhere = {name for name in ELSEWHERE if name in named}
    passes = [Passes(story, named) for story in STORIES]
    steady = [Passes(story, named) for story in STEADY_STORIES]
    passed = set().union(*(each.counts for each in passes))
    for _ in range(TRIES):
        # On a busy machine a thread may not have had its turn.
        if not set(named) - passed - elsewhere:
            break
        passed |= set(Passes(STORIES[0], named).counts)
    print(f"# seed {SEED}, {len(named)} points", flush=True)

    stops = list(pauses(passes[0]))
    divide(passes)

    tap.case("every point has a name of its own", points.problems(everywhere))
    tap.case(
        "the scenario passes every point",
        [f"{name} ({named[name][1][0]})" for name in sorted(named)
         if name not in passed and name not in elsewhere]
        + [f"{name} is passed after all" for name in elsewhere if name in passed],
    )
    tap.sweep(
        f"killed at {'every pass' if ALL else 'some passes'} of every point, "
        "nothing is lost or doubled",
        sweep.sweep(kills(passes), what="kills"),
    )
    tap.sweep(
        "killed again and again, nothing is lost or doubled",
        sweep.sweep(many_kills(passes, random.Random(SEED)), what="kills"),
    )
    tap.sweep(
        f"failed at {'every pass' if ALL else 'some passes'} of every point that "
        "can fail, nothing is lost",
        sweep.sweep(failures(steady), what="failures"),
    )
    tap.sweep(
        "a second process takes over while the first is stopped at any point"
        if sweep.DATABASE else
        "a second process is refused while the first is stopped at any point",
        sweep.sweep(stops, do=pause, what="pauses", workers=PAUSE_WORKERS),
    )
    tap.finish()


if __name__ == "__main__":
    sys.exit(main())
