#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The dump of an SQLite store agrees with the command's output."""

import os
import sqlite3
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "server"))
import sqlite_dump  # noqa: E402
from support import case, main  # noqa: E402

CONFIG = """\
store: sqlite:box.db
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


def sql(place, text):
    database = sqlite3.connect(place.file("box.db"))
    database.execute(text)
    database.commit()
    database.close()


def fill(place):
    place.configure(CONFIG)
    place.ok("migrate")
    sql(place, "create table effect(id text)")


@case("messages, deliveries, effects and keys are those of the store")
def _(place):
    fill(place)
    place.send("a-1", "a", "--type", "placed")
    place.send("b-1", "b", "--type", "other")
    place.ok("process", "--ignore-failures")
    place.send("c-1", "c", "--type", "kept")
    dump = sqlite_dump.dump(place.file("box.db"), EFFECTS, drained=True)
    assert [(m["seq"], m["id"], m["body"]) for m in dump["messages"]] == [
        (1, "a-1", "a"), (2, "b-1", "b"), (3, "c-1", "c")
    ], dump["messages"]
    assert {m["channel"] for m in dump["messages"]} == {"orders"}
    states = {(d["seq"], d["handler"]): d["state"] for d in dump["deliveries"]}
    assert states == {
        (1, "ledger"): "done", (1, "note"): "poisoned", (3, "keep"): "pending"
    }, states
    assert dump["parked"] == [2], dump["parked"]
    assert dump["effects"] == [{"id": "a-1", "handler": "ledger", "seq": 1}]
    assert sorted(dump["keys"]) == [1, 2, 3], dump["keys"]
    assert dump["drained"]


@case("an effect of a message that is not stored has the seq 0")
def _(place):
    fill(place)
    sql(place, "insert into effect values ('nowhere')")
    dump = sqlite_dump.dump(place.file("box.db"), EFFECTS)
    assert [effect["seq"] for effect in dump["effects"]] == [0], dump["effects"]


@case("a damaged file is refused")
def _(place):
    fill(place)
    for number in range(200):
        sql(place, f"insert into effect values ('{number}' || hex(zeroblob(200)))")
    size = os.path.getsize(place.file("box.db"))
    with open(place.file("box.db"), "r+b") as file:
        file.seek(size - 4096)
        file.write(b"\xff" * 4096)
    result = subprocess.run(
        [sys.executable, os.path.join(HERE, "sqlite_dump.py"), place.file("box.db")],
        capture_output=True, text=True, check=False,
    )
    assert result.returncode == 2, result
    assert "box.db" in result.stderr, result


main()
