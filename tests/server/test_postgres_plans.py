#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How PostgreSQL finds the rows of large tables: by their keys, whatever
statistics it had when a session made its plans. Such a plan stays with the
session, and a table that was empty then may have a million rows later.

Every plan is in the server's log; its shape is checked, not its duration.
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import Server  # noqa: E402
from support import case, equal, main  # noqa: E402

EXPLAINED = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": 0,
    "auto_explain.log_nested_statements": "on",
    "autovacuum": "off",
}

LARGE = "open|ledger|seen|message|attempt|duplicate"

# These recover deliveries of other nodes, and read all leases for that.
READERS = {"recover_1", "orphans_1"}

WANTED = {"apply_1", "meet_1", "settle_1", "claim_1", "keep_attempts_1",
          "keep_samples_1", "take_units_1", "take_batch_1", "tell_duration_1"}

CONFIG = """\
store: "{url}"
defaults: {{max_attempts: 2, backoff: [1ms]}}
channels:
  orders:
    handlers:
      program: {{exec: [/bin/sh, -c, "! grep -q bad"]}}
      slow: {{sql: "select pg_sleep(0.15)", commit_batch: 5}}
"""


def work_by_hand(place):
    for number in range(6):
        body = "bad" if number % 2 else "good"
        place.send(f"{number}-{os.urandom(4).hex()}", body)
    for _ in range(3):
        place.run("process")


def work(place, url):
    """Everything that a node does with many messages at a time."""
    work_by_hand(place)
    for more in ([], ["--handler", "sql", "--commit-batch", "10"]):
        place.ok("bench", "--store", url, "--shared", "--messages", "200",
                 "--batch", "50", *more)


def find_full_scans(log):
    """The functions in the log, and the tables they read without a key."""
    entries = re.split(r"^(?=\d{4}-\d\d-\d\d )", log, flags=re.M)
    functions = set()
    found = set()
    for plan, context in zip(entries, entries[1:]):
        inside = re.findall(r"PL/pgSQL function (?:postern\.)?(\w+)\(", context)
        if "duration:" not in plan or not inside:
            continue
        functions.add(inside[0])
        # A scan with its details up to the next step of the plan. The index of
        # suspects contains only suspects.
        for step in re.split(r"\n(?=\s+->|\s+\w+ Scan)", plan):
            scan = re.search(rf"(\w+ Scan)\b.* on ({LARGE})\b", step)
            if scan and not re.search(
                    r"\n\s+(Index|TID|Recheck) Cond:|using open_suspect", step):
                found.add((inside[0], *scan.groups()))
    return functions, sorted(item for item in found if item[0] not in READERS)


def check_plans(place, prepare):
    with Server(settings=EXPLAINED) as server:
        url = server.url()
        place.configure(CONFIG.format(url=url))
        place.ok("migrate")
        prepare(server)
        server.sql("VACUUM ANALYZE")
        with open(server.log, encoding="utf-8", errors="replace") as file:
            file.seek(0, os.SEEK_END)
            work(place, url)
            functions, found = find_full_scans(file.read())
    assert functions >= WANTED, functions
    equal(found, [])


@case("rows of tables that were empty are found by their keys")
def _(place):
    check_plans(place, lambda server: None)


@case("rows of tables that had one row are found by their keys")
def _(place):
    def fill(server):
        server.sql("""\
INSERT INTO postern.open VALUES (1, 1, 1, 1, 1, 0, NULL, 1, 0, 1, 0, false);
INSERT INTO postern.message VALUES (1, 1, 1, 'x', NULL, 't', NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, 'b');
INSERT INTO postern.seen VALUES (1, 1, 1, 1, 1, md5('b')::uuid, 1);
INSERT INTO postern.ledger VALUES (1, 1, 1, 1, 3, 0, 1, 0, 3);
INSERT INTO postern.attempt (seq, fence, started_at, finished_at, handler,
    outcome) VALUES (1, 1, 1, 1, 3, 'x');
INSERT INTO postern.duplicate VALUES (1, 1, 1, 0)""")

    check_plans(place, fill)


@case("rows of tables that were small are found by their keys")
def _(place):
    check_plans(place, lambda server: work_by_hand(place))


main()
