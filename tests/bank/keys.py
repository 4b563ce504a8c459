# SPDX-License-Identifier: MIT
"""The bugs of key rules, a part of the bank: see bank.py."""

from catch import Bug, databases, every_store

KEYS = [
    Bug(
        "alias-key-ignored",
        "a handler's key is looked for under the handler's own id only",
        *every_store("a key under an alias counts for its owner"),
    ),
    Bug(
        "open-key-forgotten",
        "cleanup removes the id of a message that is still open",
        *databases("open, parked and poisoned messages are kept"),
    ),
    Bug(
        "suppressed-takes-key",
        "a message that is suppressed by an alias gets the key of the owner",
        *every_store("a message that an alias suppresses stays suppressed"),
    ),
    Bug(
        "unparked-without-key",
        "a parked message is delivered without the key of the handler",
        ("unit/test_keys",
         "a parked message gets the key of the handler that wants it later"),
    ),
    Bug(
        "suppressed-copy-without-row",
        "a suppressed copy of a parked message leaves no delivery",
        *every_store(
            "a parked message whose copy is suppressed is not parked any more"
        ),
    ),
    Bug(
        "changed-rule-starts",
        "a box starts with another key rule than the one that made the keys",
        *databases("a changed key rule is refused until it is confirmed"),
    ),
    Bug(
        "window-of-open-delivery",
        "a handler's key expires while its delivery is open or poisoned",
        *every_store("an open or poisoned delivery keeps its handler's key"),
    ),
    Bug(
        "window-not-of-owner",
        "keys under an alias expire with the channel's ids, not by the window",
        *every_store("the window of a handler holds for keys under its aliases"),
    ),
    Bug(
        "function-session-kept",
        "what a guarded function sets in its session is there for the next one",
        ("unit/test_postgres_guard", "a function leaves nothing in its session"),
    ),
    Bug(
        "memory-key-before-run",
        "a key in memory is remembered before its function has succeeded",
        ("unit/test_dedupe_memory", "a run that failed leaves no key in memory"),
    ),
    *(Bug(
        name,
        story,
        ("sim/test_guards", "guards keep their promises wherever they are"
         " paused, by the same seeds"),
    ) for name, story in (
        ("marker-before-run",
         "a guarded function is marked as done before it has run"),
        ("lease-of-another-ignored",
         "a guarded function runs while another process has its lease"),
    )),
]
