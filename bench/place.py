# SPDX-License-Identifier: MIT
"""The directory of a measurement: new files, and the programs run on them."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

# The timeout of a program; far longer than any of them takes.
PATIENCE_S = 3600


class Failure(Exception):
    """A program failed."""


class Place:
    def __init__(self, build, folder, scale, rounds):
        self.postern = os.path.join(build, "src", "postern")
        self.bare = os.path.join(build, "bench", "bare_sqlite")
        self.guarded = os.path.join(build, "bench", "guarded")
        self.remember = os.path.join(build, "bench", "remember_sqlite")
        self.folder = folder
        self.scale = scale
        self.rounds = rounds
        self.started = time.monotonic()
        self.database = None  # set by the caller
        self.redis = None  # likewise

    def progress(self, text):
        """Prints the progress."""
        seconds = int(time.monotonic() - self.started)
        print(f"[{seconds // 60:2}:{seconds % 60:02}] {text}",
              file=sys.stderr, flush=True)

    def count(self, full, least=1000):
        """Returns a scaled number of messages."""
        return max(min(full, least), int(full * self.scale))

    def path(self, name):
        return os.path.join(self.folder, name)

    def clean(self, name="bench.db"):
        for suffix in ("", "-wal", "-shm", "-journal", ".lock", ".sock"):
            if os.path.exists(self.path(name) + suffix):
                os.remove(self.path(name) + suffix)

    def output(self, args):
        result = subprocess.run(
            args, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=PATIENCE_S, check=False,
        )
        if result.returncode != 0:
            raise Failure(f"{' '.join(args)}: {result.stderr.strip()}")
        return result.stdout

    def create(self, name="bench.db"):
        """Creates a new file with the empty tables of Postern."""
        self.clean(name)
        self.output(
            [self.postern, "init", "-c", f"{name}.yaml", "--store",
             f"sqlite:{name}"]
        )

    def run_postern(self, *args, fresh=True, wrap=(), inspect=None,
                    store="sqlite:bench.db"):
        """Runs a job through Postern; returns its result. inspect() is called with
        the path of the file before it is removed."""
        if fresh:
            self.clean()
        command = [self.postern, "bench", "--store", store,
                   "--json", *map(str, args)]
        result = json.loads(self.output([*wrap, *command]))
        if inspect:
            inspect(self.path("bench.db"))
        self.clean()
        return result

    def run_bare(self, *args, fresh=True, wrap=()):
        """Runs the same writes without Postern; returns the result."""
        if fresh:
            self.create()
        command = [self.bare, "bench.db", *map(str, args)]
        result = json.loads(self.output([*wrap, *command]))
        self.clean()
        return result

    def run_guarded(self, way, count):
        """Runs a guard, or the same writes without one."""
        self.create()
        result = json.loads(self.output(
            [f"{self.guarded}_sqlite", way, "bench.db", str(count)]))
        self.clean()
        return result

    def remembering(self, count, days=0):
        """Creates a file that remembers so many ids, to be copied."""
        self.progress(f"making {count:,} ids")
        self.create("remembered.db")
        self.output([self.remember, "remembered.db", str(count), str(days)])

    def copy_remembering(self):
        self.clean()
        shutil.copyfile(self.path("remembered.db"), self.path("bench.db"))
        with open(self.path("bench.db"), "rb") as file:
            os.fsync(file.fileno())

    def in_turn(self, *programs, at_most=1000):
        """Runs each program once a round, in turn, so that other load on the
        machine affects all of them. Returns a list of results for each."""
        values = [[] for _ in programs]
        rounds = min(self.rounds, at_most)
        for number in range(rounds):
            self.progress(f"round {number + 1} of {rounds}")
            for program, list_of in zip(programs, values):
                list_of.append(program())
        return values


def ratio(values, limits):
    """Returns the median of the ratios of all rounds."""
    return statistics.median(a / b for a, b in zip(values, limits))


def median(values):
    return statistics.median(values)
