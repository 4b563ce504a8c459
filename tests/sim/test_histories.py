#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks histories of the simulation with the checker.

The simulation checks its rules from inside; the checker is another program in
another language that reads only what senders and handlers recorded and what
is in the store at the end. SIM is the simulation; SIM_SEEDS is the number of
seeds for each store, SIM_FIRST the first seed.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "checker"))
sys.path.insert(0, os.path.join(HERE, "..", "checks"))
from check import check, name_of  # noqa: E402
from history import read_stream  # noqa: E402
from tap import Tap  # noqa: E402

SIM = os.environ["SIM"]
SEEDS = int(os.environ.get("SIM_SEEDS", "300"))
FIRST = int(os.environ.get("SIM_FIRST", "1"))
# The number of histories that are written to one file, checked and deleted.
CHUNK = 500
PROBLEMS_MAX = 10


def check_histories(path):
    """Yields the number of events of each run, and its breaches."""
    with open(path, encoding="utf-8") as file:
        for number, (events, dump) in enumerate(read_stream(file, path), 1):
            name = name_of(events, number)
            yield len(events), [f"{name}: {text}" for text in check([events], dump)]


def run_chunk(store, first, count, path):
    """Writes the histories of seeds to a file; returns errors."""
    result = subprocess.run(
        [SIM, "--history", path, "--store", store]
        + ["--seed", str(first), "--seeds", str(count)],
        capture_output=True,
        text=True,
    )
    return [result.stderr] if result.returncode else []


def run_store(store, folder):
    problems = []
    events = 0
    runs = 0
    for first in range(FIRST, FIRST + SEEDS, CHUNK):
        count = min(CHUNK, FIRST + SEEDS - first)
        path = os.path.join(folder, "histories")
        problems += run_chunk(store, first, count, path)
        for number, breaches in check_histories(path) if not problems else []:
            events += number
            runs += 1
            problems += breaches
        if problems:
            break
    print(f"# {store}: {runs} histories with {events} events", flush=True)
    if not problems and runs != SEEDS:
        problems.append(f"{runs} histories of {SEEDS} seeds")
    return problems[:PROBLEMS_MAX]


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        for store in ("memory", "sqlite"):
            tap.case(
                f"the checker finds no broken rule in histories on {store}",
                run_store(store, folder),
            )
    tap.finish()


main()
