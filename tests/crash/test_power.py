#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Cuts the power under the scenario.

The store is on an ext4 file system of its own, in a file that is mounted
through a loop device. Before a system call that is chosen by chance, the file
system is shut down without writing anything back: what was not synced is
gone, as when the power goes. The process dies, or goes on for a while and can
write nothing any more. Then the file system is mounted again, which replays
its journal, and the scenario is played to the end. Its histories are not on
that file system; what they were told must be there.

All of it happens in a mount namespace of its own, which takes the mounts with
it however the test ends. Needs root.

POWER_CUTS=N   how many (100)
SEED=N         which (printed)
"""

import atexit
import glob
import os
import random
import shutil
import subprocess
import sys
import tempfile

import sweep
from sweep import STEADY_STORIES, STORIES, Trial

CUTS = int(os.environ.get("POWER_CUTS", "100"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
IMAGE_BYTES = 24 * 1024 * 1024
INSIDE = "POSTERN_POWER_INSIDE"


class NoDisk(Exception):
    """There is no way to have a file system of one's own here."""


def run(*command):
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if result.returncode != 0:
        raise NoDisk(f"{' '.join(command)}: {result.stderr.strip()}")


class Disk:
    """A file system that loses what was not synced when it is cut."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="disk-", dir=sweep.root())
        self.image = os.path.join(self.folder, "image")
        self.path = os.path.join(self.folder, "disk")
        self.mounted = False
        os.mkdir(self.path)
        try:
            with open(self.image, "wb") as file:
                file.truncate(IMAGE_BYTES)
            run("mkfs.ext4", "-q", "-F", "-m", "0", self.image)
            self.mount()
        except NoDisk:
            self.close()
            raise

    def mount(self):
        run("mount", "-t", "ext4", "-o", "loop", self.image, self.path)
        self.mounted = True

    def unmount(self):
        run("umount", self.path)
        self.mounted = False

    def come_back(self):
        """After a cut: what the disk has."""
        self.unmount()
        self.mount()

    def close(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.path], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


# One for each process of the sweep, made when it is first needed.
disk = None


def begin_store(path):
    """An empty directory that is durable."""
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    for name in (path, os.path.dirname(path)):
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def was_cut(told, environment):
    """Whether a life came as far as its cut. A process that was killed leaves no
    count, or an empty file if another thread got there while it wrote the count."""
    if not os.path.exists(told):
        return True
    with open(told, encoding="utf-8") as file:
        count = file.read()
    return not count or int(count) >= int(environment["STRIKE_AT"])


def cut(trial):
    """Plays a trial on a disk whose power goes."""
    global disk
    if disk is None:
        disk = Disk()
    outcome = sweep.Outcome(trial)
    folder = sweep.make_folder()
    store = os.path.join(disk.path, "store")
    story = trial.story
    life = 0
    try:
        begin_store(store)
        if story.before:
            life += 1
            sweep.play(folder, life, story.before, store=store)
        for environment in trial.lives:
            life += 1
            told = os.path.join(folder, f"told{life}")
            code, said = sweep.play(
                folder,
                life,
                story.parts,
                {**environment, "STRIKE_TOLD": told},
                store=store,
            )
            if code not in (0, 3, sweep.KILLED):
                outcome.problems.append(f"life {life} ended with {code}: {said}")
                return outcome
            outcome.struck += was_cut(told, environment)
            sweep.note_crash(folder, life)
            disk.come_back()
        outcome.problems += sweep.finish(folder, life + 1, trial, store)
    except subprocess.TimeoutExpired:
        outcome.problems.append("does not come to an end")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def environment(how, number):
    return {
        "LD_PRELOAD": sweep.STRIKE,
        "STRIKE_HOW": how,
        "STRIKE_AT": str(number),
    }


def count_calls(story):
    told = sweep.count(environment("none", 0), "STRIKE_TOLD", story)
    return int(told)


def cuts(number, dice):
    """Cuts at any call of any story, one in four of them twice in a row."""
    totals = [(story, count_calls(story)) for story in STORIES]
    steady_totals = [(story, count_calls(story)) for story in STEADY_STORIES]
    for _ in range(number):
        # What goes on in the dark has no threads that wait for better times.
        how = dice.choice(("cut", "cut", "dark"))
        story, total = dice.choice(totals if how == "cut" else steady_totals)
        places = [dice.randint(1, total)]
        if dice.randrange(4) == 0:
            # A second life finds much of it done, and makes fewer calls.
            places.append(dice.randint(1, total // 3))
        yield Trial(
            " then ".join(f"{how} {place}" for place in places),
            story,
            [environment(how, place) for place in places],
        )


def begin():
    """Goes on in a mount namespace of its own; returns there."""
    if INSIDE in os.environ:
        return
    if os.geteuid() != 0:
        tap = sweep.Tap()
        tap.case("a file system can be mounted and cut", ["only root may: be root"])
        tap.finish()
    os.environ[INSIDE] = "1"
    command = ["unshare", "--mount", "--propagation"]
    # Where the root is a mere directory, it cannot be made private.
    private = subprocess.run([*command, "private", "true"], capture_output=True)
    kind = "private" if private.returncode == 0 else "unchanged"
    os.execvp("unshare", [*command, kind, sys.executable, *sys.argv])


def unmount_all():
    """Those of the processes that swept, which have ended."""
    for path in glob.glob(os.path.join(glob.escape(sweep.root()), "disk-*", "disk")):
        subprocess.run(["umount", "-q", "-l", path], check=False)


def main():
    begin()
    sweep.root()
    atexit.register(unmount_all)  # is done first, then the root goes
    tap = sweep.Tap()
    dice = random.Random(SEED)
    print(f"# seed {SEED}", flush=True)
    try:
        Disk().close()
    except (NoDisk, OSError) as error:
        tap.case("a file system can be mounted and cut", [str(error)])
        tap.finish()
    report = sweep.sweep(cuts(CUTS, dice), do=cut, what="power cuts")
    if report.struck < report.trials // 2:
        report.problems.append("hardly anything was cut")
    tap.sweep(f"{CUTS} power cuts lose nothing that was acknowledged", report)
    tap.finish()


if __name__ == "__main__":
    sys.exit(main())
