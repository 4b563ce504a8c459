#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files of an SQLite store that are removed, replaced or truncated while a
server has it open: acknowledged messages are stored at the next start, no
message is acknowledged that would be lost, and the server names the file."""

import http.client
import json
import os
import signal
import socket
import sqlite3
import threading

from support import case, equal, main, until

# Messages are accepted and parked: nothing else writes to the store.
CONFIG = """\
store: sqlite:box.db
shutdown_grace: 2s
defaults:
  command_timeout: 100s
channels:
  orders:
    handlers:
      idle: {exec: [/bin/true], types: [none]}
"""


class Connection(http.client.HTTPConnection):
    """HTTP over the socket beside the store."""

    def __init__(self, place):
        super().__init__("postern", timeout=60)
        self.path = place.file("box.db.sock")

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None, headers=None):
        self.request(method, path, body, headers or {})
        response = self.getresponse()
        return response.status, json.loads(response.read() or b"{}")

    def post(self, message_id, body="body"):
        return self.ask("POST", "/v1/channels/orders/messages", body, {
            "ce-specversion": "1.0", "ce-id": message_id, "ce-source": "test",
            "ce-type": "order.paid", "Content-Type": "text/plain"})


def post_all(place, ids):
    connection = Connection(place)
    for message_id in ids:
        status, response = connection.post(message_id)
        assert status in (200, 201, 202), (status, response)
    return list(ids)


def refused(place, name, word):
    """Checks that a message is not accepted and the error names the file."""
    status, response = Connection(place).post("refused")
    equal(status, 503, response)
    for part in (name, word):
        assert part in response["detail"], response
    until(lambda: Connection(place).ask("GET", "/readyz")[0] == 503)


def stored(place):
    rows = place.ok("list", "--json", "--limit", "10000").json()
    return {row["message_id"] for row in rows}


def check_after_restart(place, server, ids, how=signal.SIGKILL):
    server.stop(how)
    server = place.serve()
    missing = set(ids) - stored(place)
    equal(missing, set())
    post_all(place, ["after-restart"])
    server.stop()


@case("a second server does not start after the lock file was removed")
def _(place):
    place.configure(CONFIG)
    server = place.serve()
    ids = post_all(place, ["a", "b"])
    os.unlink(place.file("box.db.lock"))
    os.unlink(place.file("box.db.sock"))
    place.fails(4, "serve", "--command-timeout", "100ms", says="in use by another")
    place.fails(4, "process", "--command-timeout", "100ms", says="in use by another")
    assert server.alive()
    check_after_restart(place, server, ids)


@case("a second program does not start after the lock file was removed")
def _(place):
    place.configure(CONFIG)
    program = place.hold("sqlite:" + place.file("box.db"))
    os.unlink(place.file("box.db.lock"))
    place.fails(4, "serve", "--command-timeout", "100ms", says="in use by another")
    program.stop(signal.SIGKILL)
    place.serve().stop()


@case("a log that is removed loses no message", number=signal.SIGKILL)
@case("a log that is removed loses no message at a stop",
      number=signal.SIGTERM)
def _(place, number):
    place.configure(CONFIG)
    server = place.serve()
    ids = post_all(place, [f"m{i}" for i in range(20)])
    os.unlink(place.file("box.db-wal"))
    refused(place, "box.db-wal", "removed")
    check_after_restart(place, server, ids, number)


@case("a log that is replaced loses no message")
def _(place):
    place.configure(CONFIG)
    server = place.serve()
    ids = post_all(place, [f"m{i}" for i in range(20)])
    place.write("other", b"\0" * 100_000)
    os.rename(place.file("other"), place.file("box.db-wal"))
    refused(place, "box.db-wal", "replaced")
    check_after_restart(place, server, ids, signal.SIGTERM)


@case("nothing is acknowledged after the log was truncated", length=0)
@case("nothing is acknowledged after the log was truncated in the middle",
      length=50_000)
def _(place, length):
    place.configure(CONFIG)
    server = place.serve()
    post_all(place, [f"m{i}" for i in range(20)])
    assert os.stat(place.file("box.db-wal")).st_size > length
    os.truncate(place.file("box.db-wal"), length)
    refused(place, "box.db-wal", "truncated")
    equal(server.stop(), 0)
    # Messages in the log are lost, but not the store.
    server = place.serve()
    ids = post_all(place, ["new"])
    check_after_restart(place, server, ids)


@case("an index that is truncated is rebuilt", length=0)
@case("an index that is truncated in the middle is rebuilt", length=12_288)
def _(place, length):
    place.configure(CONFIG)
    server = place.serve()
    ids = post_all(place, [f"m{i}" for i in range(20)])
    os.truncate(place.file("box.db-shm"), length)
    equal(stored(place), set(ids))
    ids += post_all(place, [f"n{i}" for i in range(20)])
    os.truncate(place.file("box.db-shm"), length)
    ids += post_all(place, [f"o{i}" for i in range(20)])
    equal(stored(place), set(ids))
    check_after_restart(place, server, ids)
    server = place.serve()
    os.truncate(place.file("box.db-shm"), length)
    equal(server.stop(), 0)


@case("an index that has grown since the last check is rebuilt", length=0)
@case("an index that has grown and was truncated in the middle is rebuilt",
      length=40_960)
def _(place, length):
    place.configure(CONFIG)
    server = place.serve()
    ids = []
    grown = 0
    while len(ids) < 100 and grown <= 32_768:
        ids.append(f"m{len(ids)}")
        equal(Connection(place).post(ids[-1], "b" * 1_000_000)[0], 202)
        grown = os.stat(place.file("box.db-shm")).st_size
    equal(grown, 65_536)
    # The commit that made it grow was the last one.
    os.truncate(place.file("box.db-shm"), length)
    ids += post_all(place, [f"n{i}" for i in range(20)])
    equal(stored(place), set(ids))
    check_after_restart(place, server, ids)


@case("nothing is written after the index was removed")
def _(place):
    place.configure(CONFIG)
    server = place.serve()
    ids = post_all(place, [f"m{i}" for i in range(20)])
    os.unlink(place.file("box.db-shm"))
    refused(place, "box.db-shm", "removed")
    equal(stored(place), set(ids))
    check_after_restart(place, server, ids)


@case("nothing is written after the database was truncated")
def _(place):
    place.configure(CONFIG)
    server = place.serve()
    post_all(place, ["a"])
    copy = open(place.file("box.db"), "rb").read()
    os.truncate(place.file("box.db"), 0)
    refused(place, "box.db", "truncated")
    equal(server.stop(), 0)
    place.fails(4, "serve", says="the database is empty")
    place.write("box.db", copy)
    server = place.serve()
    equal(stored(place), {"a"})
    server.stop()


class Sender(threading.Thread):
    """Sends until a message is refused, or retries then; records the
    acknowledged ids."""

    def __init__(self, place, name, again):
        super().__init__(daemon=True)
        self.place = place
        self.prefix = name
        self.again = again
        self.ids = []
        self.ended = False
        self.error = None

    def run(self):
        connection = Connection(self.place)
        try:
            while not self.ended:
                message_id = f"{self.prefix}{len(self.ids)}"
                status, response = connection.post(message_id)
                if status == 503 and self.again:
                    continue
                if status == 503:
                    self.error = response["detail"]
                    break
                assert status in (200, 201, 202), (status, response)
                self.ids.append(message_id)
        except (OSError, AssertionError, http.client.HTTPException) as error:
            self.error = repr(error)


def senders(place, again=False):
    result = [Sender(place, f"s{i}-", again) for i in range(4)]
    for sender in result:
        sender.start()
    for sender in result:
        until(lambda sender=sender: len(sender.ids) > 20 or sender.error)
    return result


@case("a log that is removed under load loses no message")
def _(place):
    place.configure(CONFIG)
    server = place.serve()
    crowd = senders(place)
    os.unlink(place.file("box.db-wal"))
    for sender in crowd:
        until(lambda sender=sender: sender.error)
        assert "box.db-wal" in sender.error, sender.error
    check_after_restart(place, server, [i for s in crowd for i in s.ids])


@case("nothing is acknowledged after the log was truncated under load")
def _(place):
    place.configure(CONFIG)
    server = place.serve()
    crowd = senders(place)
    os.truncate(place.file("box.db-wal"), 0)
    # Requests in progress may succeed or fail; later ones are refused.
    refused(place, "box.db-wal", "truncated")
    for sender in crowd:
        until(lambda sender=sender: sender.error)
        assert "box.db-wal" in sender.error, sender.error
    equal(server.stop(), 0)
    server = place.serve()
    check_after_restart(place, server, post_all(place, ["new"]))


@case("an index that is truncated under load is rebuilt")
def _(place):
    place.configure(CONFIG)
    server = place.serve()
    crowd = senders(place, again=True)
    for number in range(50):
        counts = [len(sender.ids) for sender in crowd]
        os.truncate(place.file("box.db-shm"), (0, 12_288)[number % 2])
        for sender, count in zip(crowd, counts):
            until(lambda s=sender, c=count: len(s.ids) > c + 2 or s.error)
    for sender in crowd:
        sender.ended = True
        sender.join()
        assert not sender.error, sender.error
    assert server.alive(), server.stderr()
    check_after_restart(place, server, [i for s in crowd for i in s.ids])
    with sqlite3.connect(place.file("box.db")) as database:
        equal(database.execute("pragma integrity_check").fetchall(), [("ok",)])


def remove(place, *names):
    for name in names:
        os.unlink(place.file(name))


@case("a server whose database was removed stops within its grace")
def _(place):
    place.configure(CONFIG.replace("types: [none]", "types: ['*']").replace(
        "[/bin/true]", "[/bin/sh, -c, 'echo >> ${DIR}/begun; exec sleep 1']"))
    server = place.serve()
    post_all(place, ["a", "b"])
    until(lambda: len(place.read("begun")) == 2)
    remove(place, "box.db")
    # Settlements wait for a store that does not recover.
    until(lambda: Connection(place).ask("GET", "/readyz")[0] == 503)
    equal(server.stop(), 0)  # waits 60 s, and the command timeout is 100 s


@case("a database that was removed is not replaced by an empty one",
      names=["box.db"], says="box.db-wal' exists but the database is missing")
@case("a database that was removed with its log is not replaced",
      names=["box.db", "box.db-wal"],
      says="box.db-shm' exists but the database is missing")
@case("a database that was removed with log and index is not replaced",
      names=["box.db", "box.db-wal", "box.db-shm"],
      says="box.db' was removed while it was in use")
@case("a database that was removed with all its files is not replaced",
      names=["box.db", "box.db-wal", "box.db-shm", "box.db.lock"],
      says="box.db' was removed while it was in use")
def _(place, names, says):
    for number in (signal.SIGTERM, signal.SIGKILL):
        place.configure(CONFIG)
        server = place.serve()
        post_all(place, ["a"])
        remove(place, *names)
        refused(place, "box.db' ", "removed")
        server.stop(number)
        for _ in range(2):
            place.fails(4, "serve", says=says)
            place.fails(4, "send", "orders", "--id", "new", says=says)
        assert not os.path.exists(place.file("box.db"))
        # Follow the advice of the error.
        for name in os.listdir(place.path):
            if name.startswith("box.db"):
                os.unlink(place.file(name))
        place.serve().stop()
        remove(place, "box.db")


@case("a store that is created is reported as created, once")
def _(place):
    place.configure(CONFIG)
    server = place.serve()
    server.stop()
    equal(server.stderr().count("created store sqlite:" + place.file("box.db")), 1)
    server = place.serve()
    server.stop()
    assert "created" not in server.stderr(), server.stderr()


main()
