#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The guard for receivers: its examples as programs, on PostgreSQL and SQLite."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys

from clients import CLIENTS
from support import case, equal, main, until

import npm
import postgres

KIT = os.path.join(CLIENTS, "receiver")
# Debian's, which has python3-psycopg2.
PYTHON = "/usr/bin/python3"
COPIES = 6

server = None


def script(name):
    with open(os.path.join(KIT, name), encoding="utf-8") as file:
        return file.read()


class Postgres:
    """A receiver with a database of its own, and an open transaction in it."""

    def __init__(self, place, example):
        self.place = place
        self.name = os.path.basename(place.path).replace("-", "_")
        server.sql(f'CREATE DATABASE "{self.name}"')
        self.run_sql(script("postgres.sql"))
        self.run_sql(script("postgres.sql"))  # again: changes nothing
        self.run_sql("CREATE TABLE charges (order_id text)")
        self.words = [*example(place), server.url(database=self.name)]

    def run_sql(self, text):
        return server.sql(text, database=self.name)

    def once(self, message_id, handler, fence):
        return self.run_sql(f"SELECT postern_once('{message_id}', '{handler}', {fence})")[0]

    def charges(self):
        return self.run_sql("SELECT order_id FROM charges ORDER BY 1")

    def waiting(self):
        return int(self.run_sql("SELECT count(*) FROM pg_stat_activity WHERE datname ="
                                " current_database() AND wait_event_type = 'Lock'")[0])

    @contextlib.contextmanager
    def first(self, message_id, end):
        """Another transaction handles the message; ends when the copies wait."""
        psql = self.place.start(
            [os.path.join(postgres.BIN, "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1",
             server.url(database=self.name)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE).process
        psql.stdin.write(f"BEGIN; SELECT postern_once('{message_id}', 'charge', 1);\n"
                         .encode())
        psql.stdin.flush()
        equal(psql.stdout.readline(), b"run\n")
        yield
        until(lambda: self.waiting() == COPIES)
        psql.stdin.write(f"INSERT INTO charges VALUES ('first'); {end};\n".encode())
        psql.stdin.close()
        equal(psql.wait(60), 0)


class Sqlite:
    def __init__(self, place, example):
        self.file = place.file("payments.db")
        self.link = sqlite3.connect(self.file, timeout=60, isolation_level=None)
        for _ in range(2):
            self.link.executescript(script("sqlite.sql"))
        self.link.execute("CREATE TABLE charges (order_id text)")
        self.words = [*example(place), self.file]

    def once(self, message_id, handler, fence):
        return self.link.execute(script("once.sql"), {
            "message_id": message_id, "handler": handler, "fence": fence}).fetchall()[0][0]

    def charges(self):
        return [row for row, in self.link.execute("SELECT order_id FROM charges ORDER BY 1")]

    @contextlib.contextmanager
    def first(self, message_id, end):
        self.link.execute("BEGIN IMMEDIATE")
        equal(self.once(message_id, "charge", 1), "run")
        yield
        self.link.execute("INSERT INTO charges VALUES ('first')")
        self.link.execute(end)


def python(name):
    def words(_):
        return [PYTHON, os.path.join(KIT, "examples", f"{name}.py")]
    return words


def node(name):
    def words(place):
        # An import looks for packages beside the program.
        shutil.copy(os.path.join(KIT, "examples", f"{name}.mjs"), place.path)
        os.symlink(npm.modules(), place.file("node_modules"))
        return [npm.program("node"), place.file(f"{name}.mjs")]
    return words


RECEIVERS = {
    "Python and PostgreSQL": (Postgres, python("charge_postgres")),
    "Node.js and PostgreSQL": (Postgres, node("charge_postgres")),
    "Python and SQLite": (Sqlite, python("charge_sqlite")),
}


def each_receiver(name):
    def register(function):
        for title, (kind, example) in RECEIVERS.items():
            def run(place, kind=kind, example=example):
                function(place, kind(place, example))
            case(f"{title}: {name}")(run)
        return function
    return register


def start(place, receiver, message_id, fence, body=b"o1"):
    process = place.start(
        receiver.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={
            "CE_ID": message_id, "POSTERN_HANDLER": "charge",
            "POSTERN_FENCE": str(fence)}).process
    process.stdin.write(body)
    process.stdin.close()
    return process


def finish(process):
    word = process.stdout.read().decode().strip()
    equal(process.wait(60), 0)
    return word


@each_receiver("of concurrent copies one runs, and if it is rolled back another one")
def _(place, receiver):
    for message_id, end, words in [
            ("m1", "COMMIT", ["done"] * COPIES),
            ("m2", "ROLLBACK", ["done"] * (COPIES - 1) + ["run"])]:
        with receiver.first(message_id, end):
            copies = [start(place, receiver, message_id, 1, message_id.encode())
                      for _ in range(COPIES)]
        equal(sorted(finish(each) for each in copies), words)
    equal(receiver.charges(), ["first", "m2"])


@each_receiver("a copy under an old fence is refused, and charges nothing")
def _(place, receiver):
    for fence, word in [(5, "run"), (3, "fenced"), (5, "done"), (6, "done"), (5, "fenced")]:
        equal(finish(start(place, receiver, "m1", fence)), word)
    equal(receiver.charges(), ["o1"])
    # Handlers and messages have nothing to do with each other.
    equal(receiver.once("m1", "mail", 1), "run")
    equal(receiver.once("m2", "charge", 1), "run")


@each_receiver("what Postern runs again after a lost answer is handled once")
def _(place, receiver):
    words = ", ".join(f"'{word}'" for word in receiver.words)
    place.configure(f"""\
store: sqlite:box.db
defaults: {{backoff: [10ms]}}
channels:
  orders:
    handlers:
      charge:
        # The first answer is lost.
        exec: [/bin/sh, -c, '"$0" "$@" && [ $POSTERN_ATTEMPT -gt 1 ]', {words}]
""")
    place.serve()
    equal(place.send("order-7", "7").word, "accepted")
    until(lambda: place.state("order-7", "charge") == "done")
    equal(place.delivery("order-7", "charge")["failures"], 1)
    equal(receiver.charges(), ["7"])


with postgres.Server() as server:
    main()
