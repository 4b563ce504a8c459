#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Faults around a store in PostgreSQL: its server is lost and a standby is
promoted; the clock of a node is wrong."""

import datetime
import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import Server, Standby  # noqa: E402
from support import POSTERN, case, equal, main, until  # noqa: E402

CONFIG = """\
store: "{url}"
defaults:
  node_lease: 2s
  polling_interval: 100ms
  restart_delay: 100ms
  backoff: [1s]
channels:
  orders:
    handlers:
      row:
        sql: insert into public.effect (id) values (:id)
      second_try:
        exec: [/bin/sh, -c, 'test "$POSTERN_ATTEMPT" -gt 1']
        break_after: none
"""

SHIFT_CLOCK = os.environ["SHIFT_CLOCK_LIBRARY"]
SENDERS = 4


class Sender(threading.Thread):
    """Sends messages until stopping is set, each until it is acknowledged."""

    def __init__(self, place, number):
        super().__init__()
        self.place = place
        self.number = number
        self.stopping = False
        self.acknowledged = []

    def run(self):
        count = 0
        while not self.stopping:
            count += 1
            name = f"m-{self.number}-{count}"
            while self.place.send(name).code != 0:
                time.sleep(0.05)
            self.acknowledged.append(name)


def prepare(place, server, url):
    server.sql("CREATE TABLE public.effect (id text)")
    place.configure(CONFIG.format(url=url))


def open_count(server):
    (row,) = server.sql("SELECT count(*) FROM postern.open")
    return int(row)


def check_once(server, names):
    """Checks that each was delivered to both handlers, and has one effect."""
    until(lambda: open_count(server) == 0)
    equal(server.sql("SELECT id FROM public.effect ORDER BY id"), sorted(names))
    equal(server.sql("SELECT count(*), min(state), max(state)"
                     " FROM postern.ledger"), [f"{2 * len(names)}|3|3"])


@case("a promoted standby has every acknowledged message")
def _(place):
    with Server() as primary, Standby(primary) as standby:
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        prepare(place, primary,
                f"postgres://postern@{hosts}/postern"
                "?target_session_attrs=read-write")
        server = place.serve()
        senders = [Sender(place, number) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        try:
            until(lambda: all(len(s.acknowledged) > 5 for s in senders))
            primary.end(signal.SIGQUIT)
            before = [len(sender.acknowledged) for sender in senders]
            standby.promote()
            until(lambda: all(len(s.acknowledged) > n + 5
                              for s, n in zip(senders, before)))
        finally:
            for sender in senders:
                sender.stopping = True
            for sender in senders:
                sender.join()
        check_once(standby, [n for s in senders for n in s.acknowledged])
        equal(server.stop(), 0)


def serve_at(place, shift):
    """Starts a server whose clock is wrong by `shift` seconds."""
    server = place.start(["env", f"LD_PRELOAD={SHIFT_CLOCK}",
                          f"SHIFT_CLOCK={shift}", POSTERN, "serve", "--listen=none"])
    until(lambda: '"serving"' in server.stderr())
    return server


def log_start(server):
    """The time of the first line of a server's log."""
    first = json.loads(server.stderr().splitlines()[0])
    return datetime.datetime.fromisoformat(first["time"].rstrip("Z")).timestamp()


@case("a node whose clock is an hour wrong changes nothing")
def _(place):
    with Server() as database:
        prepare(place, database, database.url())
        place.ok("migrate")
        ahead, behind = serve_at(place, 3600), serve_at(place, -3600)
        servers = [ahead, behind, place.serve()]
        assert log_start(ahead) - log_start(behind) > 7000
        names = [f"m-{number}" for number in range(30)]
        for name in names:
            equal(place.send(name).out, "accepted\n")
        check_once(database, names)
        # No node has expired, and times are the database's.
        equal(database.sql("SELECT count(*) FROM postern.node"), ["3"])
        equal(database.sql(
            "SELECT count(*) FROM postern.message WHERE abs(received_at"
            " - extract(epoch FROM now()) * 1000) > 600000"), ["0"])
        equal(database.sql(
            "SELECT count(*) FROM postern.ledger WHERE starts <>"
            " (SELECT CASE key WHEN 'row' THEN 1 ELSE 2 END"
            "  FROM postern.handler WHERE id = handler)"), ["0"])
        ahead.stop(signal.SIGKILL)
        until(lambda: database.sql("SELECT count(*) FROM postern.node") == ["2"])
        for server in servers[1:]:
            equal(server.stop(), 0)


main()
