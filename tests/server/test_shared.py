#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An SQLite file that a server shares with other processes: "?shared=yes"."""

import os
import signal
import sqlite3
import threading

from support import case, equal, main, until

CONFIG = """\
store: "sqlite:box.db?shared=yes"
shutdown_grace: 2s
defaults:
  command_timeout: 1s
channels:
  orders:
    handlers:
      write:
        sql: insert into done values (:id)
"""


def connect(place):
    database = sqlite3.connect(place.file("box.db"), timeout=60,
                               check_same_thread=False)
    database.isolation_level = None
    return database


def prepare(place):
    place.configure(CONFIG)
    with connect(place) as database:
        database.execute("create table done (id text)")
        database.execute("create table own (number integer)")
    database.close()


def done(place):
    database = connect(place)
    rows = database.execute("select id from done").fetchall()
    database.close()
    return sorted(row[0] for row in rows)


@case("another process writes its own tables beside a server")
def _(place):
    prepare(place)
    server = place.serve()
    database = connect(place)
    for number in range(20):
        place.ok("send", "orders", "--id", f"m{number:02}", stdin="body")
        database.execute("begin immediate")
        database.execute("insert into own values (?)", [number])
        database.execute("commit")
    database.close()
    until(lambda: len(done(place)) == 20)
    equal(done(place), [f"m{number:02}" for number in range(20)])
    equal(os.path.exists(place.file("box.db-wal")), False)
    equal(server.stop(), 0)
    database = connect(place)
    equal(database.execute("select count(*) from own").fetchone(), (20,))
    equal(database.execute("pragma journal_mode").fetchone(), ("delete",))
    equal(database.execute("pragma integrity_check").fetchone(), ("ok",))
    database.close()


@case("a second server on a shared file is refused")
def _(place):
    prepare(place)
    server = place.serve()
    place.fails(4, "serve", "--command-timeout", "100ms", says="in use by")
    place.fails(4, "process", "--command-timeout", "100ms", says="box.db")
    os.unlink(place.file("box.db.lock"))
    os.unlink(place.file("box.db.sock"))
    place.fails(4, "serve", "--command-timeout", "100ms", says="in use by")
    assert server.alive()
    equal(server.stop(), 0)


@case("commands reach the server of a shared file, and work without one")
def _(place):
    prepare(place)
    place.ok("mark", "record", "backup", "monday")
    server = place.serve()
    equal(place.ok("mark", "has", "backup", "monday").out.strip(), "done")
    place.ok("mark", "record", "backup", "tuesday")
    place.ok("send", "orders", "--id", "a", stdin="body")
    until(lambda: done(place) == ["a"])
    equal(len(place.ok("list", "--json").json()), 1)
    equal(server.stop(), 0)
    equal(place.ok("mark", "has", "backup", "tuesday").out.strip(), "done")
    equal(len(place.ok("list", "--json").json()), 1)
    place.ok("once", "backup", "friday", "--", "/bin/true")


@case("check says that a shared file is slower")
def _(place):
    prepare(place)
    place.serve().stop()
    result = place.ok("check")
    assert "several times slower" in result.out + result.err, result


@case("a parameter that sqlite: does not have is refused")
def _(place):
    place.configure(CONFIG.replace("shared=yes", "shared=no"))
    place.fails(2, "check", says="unknown parameter 'shared=no'")


@case("a message waits for another writer, and is refused as the store's fault")
def _(place):
    prepare(place)
    server = place.serve()
    database = connect(place)
    database.execute("begin immediate")
    place.fails(4, "send", "orders", "--id", "a", stdin="body",
                says="locked by another process")
    database.execute("commit")
    place.ok("send", "orders", "--id", "b", stdin="body")
    # The results of handlers wait for as long as it takes.
    until(lambda: "b" in done(place))
    stats = place.ok("stats", "--json").json()
    equal([handler["poisoned"] for handler in stats["handlers"]], [0])
    equal(server.stop(), 0)
    database.close()


@case("a message that waits for another writer is accepted after it")
def _(place):
    prepare(place)
    server = place.serve("--command-timeout", "60s")
    database = connect(place)
    database.execute("begin immediate")
    results = []
    sender = threading.Thread(
        target=lambda: results.append(place.send("a")))
    sender.start()
    sender.join(0.5)
    equal(results, [])
    database.execute("commit")
    sender.join()
    equal(results[0].word, "accepted", results)
    until(lambda: done(place) == ["a"])
    equal(server.stop(), 0)
    database.close()


@case("a server that is killed leaves nothing that others cannot read")
def _(place):
    prepare(place)
    for number in range(5):
        server = place.serve()
        place.ok("send", "orders", "--id", f"m{number}", stdin="body")
        server.stop(signal.SIGKILL)
        database = connect(place)
        equal(database.execute("pragma integrity_check").fetchone(), ("ok",))
        database.execute("insert into own values (1)")
        database.close()
    server = place.serve()
    until(lambda: len(done(place)) == 5)
    equal(server.stop(), 0)


main()
