#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A worker that does what the body of each message says, and prints what it does:
worker.py ADDRESS OPTIONS. worker.mjs is the same with the client for Node.js.

    {"until": FILE}         begins, and ends when the file exists
    {"first": OUTCOME}      that outcome at the first attempt, then done
"""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(
    os.path.dirname(__file__), "..", "..", "clients", "python"))
import postern  # noqa: E402


def fail():
    raise RuntimeError("no terminal")


def outcome(kind, *words):
    def throw():
        raise kind(*words)
    return throw


FIRST = {
    "fail": fail,
    "retry": outcome(postern.Retry, "later", 0.1),
    "snooze": outcome(postern.Snooze, 0.1, "not yet"),
    "odd": outcome(postern.Retry, "\0 \ud800", 0.1),
    "wrong": lambda: postern.Snooze(-1),
    "poison": outcome(postern.Poison, "never"),
    "discard": outcome(postern.Discard, "not wanted"),
}
begun = set()


def say(*words):
    # In one piece, also if threads speak at the same time.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def work(delivery):
    say("begin", delivery.id, delivery.attempt)
    task = delivery.json()
    while "until" in task and not os.path.exists(task["until"]):
        if delivery.lost.wait(0.02):
            say("lost", delivery.id)
            return
    if "first" in task and delivery.id not in begun:
        begun.add(delivery.id)
        FIRST[task["first"]]()
    say("end", delivery.id)


def main(address, options):
    postern.Client(address).work("job", work, **json.loads(options))
    say("stopped")


main(*sys.argv[1:])
