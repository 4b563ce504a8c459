#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Dumps an SQLite store for the checker, directly from its tables.

    sqlite_dump.py FILE [--effects SQL] [--drained] > dump.json

No process may write to FILE meanwhile. A copy of it is read, so that the files
a crash left stay unchanged; a damaged file is refused.

SQL selects the rows that transactional handlers wrote, with columns named
handler and seq, or handler and id (then also source and channel, if an id may
occur more than once); fence if it is known.

As a module: dump(path, effects=None, drained=False).
"""

import argparse
import json
import os
import shutil
import sqlite3
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from history import body_text  # noqa: E402

STATES = {3: "done", 4: "poisoned", 5: "discarded"}

DELIVERIES = """
    select d.seq, coalesce(o.key, '') as handler, d.state, d.fence, d.failures,
           d.starts, d.crashes
    from (
        select seq, handler, fence, failures, starts, crashes,
               iif(node is null, 'pending', 'leased') as state
        from postern_open
        union all
        select seq, handler, fence, failures, starts, crashes, state
        from postern_ledger
    ) d
    left join postern_handler h on h.id = d.handler
    left join postern_handler o on o.id = h.owner
    order by d.seq, d.handler
"""

MESSAGES = """
    select m.seq, c.name as channel, coalesce(m.source, c.name) as source,
           m.id, m.body
    from postern_message m join postern_channel c on c.id = m.channel
    order by m.seq
"""


class Damaged(Exception):
    """The file is damaged."""


def rows(database, sql):
    return [dict(row) for row in database.execute(sql)]


def effect_seqs(effects, messages):
    """Adds the seq to effects that name their message by its id."""
    seqs = {}
    for message in messages:
        for name in [
            (message["id"],),
            (message["id"], message["source"]),
            (message["id"], message["source"], message["channel"]),
        ]:
            seqs.setdefault(name, message["seq"])
    for effect in effects:
        if "seq" not in effect:
            fields = [f for f in ("id", "source", "channel") if f in effect]
            # 0: the message is not stored.
            effect["seq"] = seqs.get(tuple(effect[f] for f in fields), 0)
    return effects


def read(database, effects, drained):
    broken = [row[0] for row in database.execute("pragma integrity_check")]
    if broken != ["ok"]:
        raise Damaged(broken[0])
    messages = rows(database, MESSAGES)
    for message in messages:
        message["body"] = body_text(bytes(message["body"]))
    deliveries = rows(database, DELIVERIES)
    for delivery in deliveries:
        delivery["state"] = STATES.get(delivery["state"], delivery["state"])
    written = rows(database, effects) if effects else []
    return {
        "messages": messages,
        "deliveries": deliveries,
        "parked": [row["seq"] for row in rows(database, "select seq from postern_parked")],
        "keys": [row["seq"] for row in rows(database, "select seq from postern_seen")],
        "effects": effect_seqs(written, messages),
        "drained": drained,
    }


def dump(path, effects=None, drained=False):
    """The dump of the store in a file, as described in history.py."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "copy.db")
        shutil.copyfile(path, copy)
        if os.path.exists(path + "-wal"):
            shutil.copyfile(path + "-wal", copy + "-wal")
        database = sqlite3.connect(copy)
        try:
            database.row_factory = sqlite3.Row
            return read(database, effects, drained)
        finally:
            database.close()


def main():
    parser = argparse.ArgumentParser(description="Dump an SQLite store.")
    parser.add_argument("file")
    parser.add_argument("--effects", metavar="SQL")
    parser.add_argument("--drained", action="store_true")
    options = parser.parse_args()
    try:
        found = dump(options.file, options.effects, options.drained)
    except (Damaged, OSError, sqlite3.Error) as error:
        print(f"sqlite_dump.py: {options.file}: {error}", file=sys.stderr)
        sys.exit(2)
    json.dump(found, sys.stdout)
    print()


if __name__ == "__main__":
    main()
