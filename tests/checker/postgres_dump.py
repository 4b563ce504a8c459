#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Dumps a PostgreSQL store for the checker, directly from its tables.

    postgres_dump.py URL [--schema NAME] [--effects SQL] [--drained] > dump.json

URL is one that psql understands. Everything is read in one transaction, so
nodes may continue meanwhile.

SQL selects the rows that transactional handlers wrote, with columns named
handler and seq, or handler and id (then also source and channel, if an id may
occur more than once); fence if it is known.

As a module: dump(url, effects=None, drained=False, schema="postern").
"""

import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from history import body_text  # noqa: E402
from sqlite_dump import STATES, effect_seqs  # noqa: E402

BIN = os.environ.get("POSTERN_TEST_POSTGRES_BIN", "/usr/lib/postgresql/15/bin")

DELIVERIES = """
    select d.seq, coalesce(o.key, '') as handler, d.state, d.fence, d.failures,
           d.starts, d.crashes
    from (
        select seq, handler, fence, failures, starts, crashes,
               case when node is null then 1 else 2 end as state
        from {schema}.open
        union all
        select seq, handler, fence, failures, starts, crashes, state
        from {schema}.ledger
    ) d
    left join {schema}.handler h on h.id = d.handler
    left join {schema}.handler o on o.id = h.owner
    order by d.seq, d.handler
"""

MESSAGES = """
    select m.seq, c.name as channel, coalesce(m.source, c.name) as source,
           m.id, encode(m.body, 'hex') as body
    from {schema}.message m join {schema}.channel c on c.id = m.channel
    order by m.seq
"""

PARKED = "select seq from {schema}.parked order by seq"
KEYS = "select seq from {schema}.seen order by seq"
NOTHING = "select 1 where false"

OPEN_STATES = {1: "pending", 2: "leased"}


class Unreadable(Exception):
    """The database cannot be read."""


def read(url, queries):
    """The rows of each query, from one snapshot."""
    script = ["begin isolation level repeatable read read only"]
    for number, query in enumerate(queries):
        script.append(
            f"select json_build_array({number}, row_to_json(q)) from ({query}) q"
        )
    done = subprocess.run(
        [
            os.path.join(BIN, "psql"),
            *("-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", url),
        ],
        input=";\n".join(script) + ";\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unreadable(done.stderr.strip())
    rows = [[] for _ in queries]
    for line in done.stdout.splitlines():
        number, row = json.loads(line)
        rows[number].append(row)
    return rows


def dump(url, effects=None, drained=False, schema="postern"):
    """The dump of a store, as described in history.py."""
    queries = [
        query.format(schema=schema)
        for query in (MESSAGES, DELIVERIES, PARKED, KEYS)
    ]
    messages, deliveries, parked, keys, written = read(
        url, [*queries, effects or NOTHING]
    )
    for message in messages:
        message["body"] = body_text(bytes.fromhex(message["body"]))
    for delivery in deliveries:
        delivery["state"] = {**OPEN_STATES, **STATES}[delivery["state"]]
    return {
        "messages": messages,
        "deliveries": deliveries,
        "parked": [row["seq"] for row in parked],
        "keys": [row["seq"] for row in keys],
        "effects": effect_seqs(written, messages),
        "drained": drained,
    }


def main():
    parser = argparse.ArgumentParser(description="Dump a PostgreSQL store.")
    parser.add_argument("url")
    parser.add_argument("--schema", default="postern")
    parser.add_argument("--effects", metavar="SQL")
    parser.add_argument("--drained", action="store_true")
    options = parser.parse_args()
    try:
        found = dump(options.url, options.effects, options.drained, options.schema)
    except (Unreadable, OSError, KeyError) as error:
        print(f"postgres_dump.py: {error}", file=sys.stderr)
        sys.exit(2)
    json.dump(found, sys.stdout)
    print()


if __name__ == "__main__":
    main()
