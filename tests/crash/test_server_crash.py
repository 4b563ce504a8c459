#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A database that crashes forgets the numbers of what it has lost.

A server that ends without a word may give the number of a transaction that
was under way, and of which nothing reached its log, to another one when it is
back. So that number alone does not tell what became of a COMMIT whose answer
never came.
"""

import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for room in ("server", "support"):
    sys.path.insert(0, os.path.join(HERE, "..", room))
from postgres import Server, ServerError  # noqa: E402
from support import POSTERN, case, equal, main, until  # noqa: E402

CONFIG = """\
store: "{url}"
channels:
  orders:
    handlers:
      row: {{sql: "insert into effect values (:id)"}}
"""

# Nothing gets to the log before somebody commits.
SETTINGS = {"wal_writer_delay": "10s", "wal_level": "minimal", "max_wal_senders": 0}

STALL = """
    create table effect (id text);
    create function stall() returns trigger language plpgsql as
        $$ begin perform pg_sleep(600); return null; end $$;
    create constraint trigger stall after insert on effect
        deferrable initially deferred for each row execute function stall();
"""


def start(server):
    """Again; what is left of the former one may be in the way."""
    try:
        server.start()
        return True
    except ServerError:
        return False


@case("what a crash has undone is not taken for what got its number")
def _(place):
    with Server(settings=SETTINGS) as server:
        place.configure(CONFIG.format(url=server.url()))
        place.ok("migrate")
        server.sql(STALL)
        equal(place.send("a").out, "accepted\n")
        first = place.start([POSTERN, "process"], stdout=subprocess.DEVNULL)
        lost = until(
            lambda: server.sql(
                "select backend_xid from pg_stat_activity"
                " where query = 'COMMIT' and wait_event = 'PgSleep'"
            )
        )
        server.end(signal.SIGKILL)
        # Nobody can ask before the number was given again.
        server.settings["listen_addresses"] = ""
        until(lambda: start(server))
        given = int(server.sql("select pg_current_xact_id()")[0])
        assert given <= int(lost[0]), "its number was not lost"
        while given <= int(lost[0]):
            given = int(server.sql("select pg_current_xact_id()")[0])
        server.sql("drop trigger stall on effect")
        server.end()
        del server.settings["listen_addresses"]
        until(lambda: start(server))
        equal(first.process.wait(60), 0, first.stderr())
        # It was not done, and is given back; else it would be leased still.
        equal(server.sql("select node is null, starts from postern.open"), ["t|0"])
        place.ok("process")
        equal(server.sql("select state from postern.ledger"), ["3"])
        equal(server.sql("select id from effect"), ["a"])


main()
