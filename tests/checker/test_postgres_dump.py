#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The dump of a PostgreSQL store agrees with the command's output."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "server"))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import postgres_dump  # noqa: E402
from postgres import Server  # noqa: E402
from support import case, equal, main  # noqa: E402

CONFIG = """\
store: "{url}"
channels:
  orders:
    handlers:
      ledger:
        types: [placed]
        sql: insert into effect(id) values (:id)
      note:
        types: [placed]
        max_attempts: 1
        exec: [/bin/sh, -c, 'exit 1']
      keep:
        types: [kept]
        exec: [/bin/true]
"""

EFFECTS = "select id, 'ledger' as handler from effect"
SERVER = None  # one for all cases, started below


@case("messages, deliveries, effects and keys are those of the store")
def _(place):
    place.configure(CONFIG.format(url=SERVER.url()))
    place.ok("migrate")
    SERVER.sql("create table effect(id text)")
    place.send("a-1", "a", "--type", "placed")
    place.send("b-1", "b", "--type", "other")
    place.ok("process", "--ignore-failures")
    place.send("c-1", "c", "--type", "kept")
    SERVER.sql("insert into effect values ('nowhere')")
    dump = postgres_dump.dump(SERVER.url(), EFFECTS, drained=True)
    names = {m["seq"]: m["id"] for m in dump["messages"]}
    equal(
        [(m["id"], m["body"], m["channel"]) for m in dump["messages"]],
        [("a-1", "a", "orders"), ("b-1", "b", "orders"), ("c-1", "c", "orders")],
    )
    equal(
        {(names[d["seq"]], d["handler"]): d["state"] for d in dump["deliveries"]},
        {
            ("a-1", "ledger"): "done",
            ("a-1", "note"): "poisoned",
            ("c-1", "keep"): "pending",
        },
    )
    equal([names[seq] for seq in dump["parked"]], ["b-1"])
    equal([names[seq] for seq in dump["keys"]], ["a-1", "b-1", "c-1"])
    # 0: the message is not stored.
    equal(
        [(effect["id"], names.get(effect["seq"])) for effect in dump["effects"]],
        [("a-1", "a-1"), ("nowhere", None)],
    )
    assert dump["drained"]


@case("a database without a store is refused")
def _(place):
    del place
    result = subprocess.run(
        [
            sys.executable,
            os.path.join(HERE, "postgres_dump.py"),
            SERVER.url(database="postgres"),
        ],
        capture_output=True, text=True, check=False,
    )
    equal((result.returncode, result.stdout), (2, ""), result)
    assert "postern.message" in result.stderr, result


with Server() as SERVER:
    main()
