#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A server that crashes may assign a lost transaction id again.

After a crash the server may assign the id of a transaction that was in
progress, and of which nothing reached the log, to another transaction. So the
id alone does not decide whether a COMMIT without a reply has committed.
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

# Nothing is written to the log before a commit.
SETTINGS = {"wal_writer_delay": "10s", "wal_level": "minimal", "max_wal_senders": 0}

STALL = """
    create table effect (id text);
    create function stall() returns trigger language plpgsql as
        $$ begin perform pg_sleep(600); return null; end $$;
    create constraint trigger stall after insert on effect
        deferrable initially deferred for each row execute function stall();
"""


def start_again(server):
    """Starts the server again; False while remains of the former one block
    it."""
    try:
        server.start()
        return True
    except ServerError:
        return False


@case("a transaction lost in a crash is not confused with one that got its id")
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
        # The node cannot connect before the id was assigned again.
        server.settings["listen_addresses"] = ""
        until(lambda: start_again(server))
        given = int(server.sql("select pg_current_xact_id()")[0])
        assert given <= int(lost[0]), "the server did not lose the transaction id"
        while given <= int(lost[0]):
            given = int(server.sql("select pg_current_xact_id()")[0])
        server.sql("drop trigger stall on effect")
        server.end()
        del server.settings["listen_addresses"]
        until(lambda: start_again(server))
        equal(first.process.wait(60), 0, first.stderr())
        # The delivery was not done, and its lease was returned.
        equal(server.sql("select node is null, starts from postern.open"), ["t|0"])
        place.ok("process")
        equal(server.sql("select state from postern.ledger"), ["3"])
        equal(server.sql("select id from effect"), ["a"])


main()
