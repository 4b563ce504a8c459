#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A program of an exec handler that charges each order once in PostgreSQL:

    charge: {exec: [charge_postgres.py, postgres://payments@db/payments]}
"""

import os
import sys

import psycopg2

database = psycopg2.connect(sys.argv[1])
with database, database.cursor() as cursor:  # one transaction
    cursor.execute("SELECT postern_once(%s, %s, %s)", [
        os.environ["CE_ID"], os.environ["POSTERN_HANDLER"], os.environ["POSTERN_FENCE"]])
    (word,) = cursor.fetchone()
    if word == "run":
        cursor.execute("INSERT INTO charges (order_id) VALUES (%s)", [sys.stdin.read()])
print(word)
