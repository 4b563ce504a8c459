#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program of an exec handler that charges each order once in a SQLite file:

    charge: {exec: [charge_sqlite.py, payments.db]}
"""

import os
import sqlite3
import sys

with open(os.path.join(os.path.dirname(__file__), "..", "once.sql"),
          encoding="utf-8") as file:
    ONCE = file.read()

database = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
database.execute("BEGIN IMMEDIATE")  # what fails from here on is rolled back
((word,),) = database.execute(ONCE, {
    "message_id": os.environ["CE_ID"], "handler": os.environ["POSTERN_HANDLER"],
    "fence": int(os.environ["POSTERN_FENCE"])}).fetchall()
if word == "run":
    database.execute("INSERT INTO charges (order_id) VALUES (?)", [sys.stdin.read()])
database.execute("COMMIT")
print(word)
