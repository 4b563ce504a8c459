#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks runs by the histories of clients and handlers and a dump of the
store.

    check.py HISTORY... --dump DUMP     one run
    check.py FOLDER...                  one run each: *.jsonl and dump.json
    check.py --stream FILE...           many runs in one file, "-" is stdin

Prints a line for each breach and a count; exits with 0 if all runs are clean,
1 if one is not, 2 if something could not be read. The format is described in
history.py, the rules in rules.py. It shares no code with the library: it knows
only the contract.

As a module: check(histories, dump) returns the breaches as sentences.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import history  # noqa: E402
from history import BadHistory  # noqa: E402
from rules import RULES  # noqa: E402
from view import View  # noqa: E402

# More breaches of one rule add no information.
BREACHES_MAX = 10


def check(histories, dump):
    """The breaches of a run, as "rule: sentence"."""
    view = View(histories, dump)
    breaches = []
    for rule in RULES:
        found = [f"{rule.__name__}: {sentence}" for sentence in rule(view)]
        if len(found) > BREACHES_MAX:
            more = len(found) - BREACHES_MAX
            found[BREACHES_MAX:] = [f"{rule.__name__}: and {more} more"]
        breaches += found
    return breaches


def check_folder(path):
    return check(*history.read_folder(path))


def name_of(events, number):
    config = events[0] if events else {}
    if "name" in config:
        return str(config["name"])
    return f"seed {config['seed']}" if "seed" in config else f"run {number}"


def runs_of(options):
    """Yields (name, histories, dump) for each run."""
    if options.dump:
        histories = [history.read_history(path) for path in options.paths]
        yield options.paths[0], histories, history.read_dump(options.dump)
        return
    for path in options.paths:
        if not options.stream:
            yield (path, *history.read_folder(path))
        elif path == "-":
            yield from runs_of_stream(sys.stdin, "stdin")
        else:
            with open(path, encoding="utf-8") as file:
                yield from runs_of_stream(file, path)


def runs_of_stream(lines, name):
    for number, run in enumerate(history.read_stream(lines, name), 1):
        events, dump = run
        yield name_of(events, number), [events], dump


def main():
    parser = argparse.ArgumentParser(
        description="Check runs by their histories and dumps."
    )
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--dump", help="the dump of the one run")
    parser.add_argument("--stream", action="store_true", help="many runs per file")
    options = parser.parse_args()
    runs = 0
    events = 0
    bad = 0
    try:
        for name, histories, dump in runs_of(options):
            breaches = check(histories, dump)
            runs += 1
            events += sum(len(each) for each in histories)
            bad += bool(breaches)
            for breach in breaches:
                print(f"{name}: {breach}")
    except (BadHistory, OSError, ValueError, KeyError) as error:
        print(f"check.py: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{runs} runs with {events} events, {bad} broken")
    sys.exit(1 if bad or not runs else 0)


if __name__ == "__main__":
    main()
