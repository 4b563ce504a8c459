#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""On PostgreSQL: a handler that is at fault itself is held on each node; its
messages are not charged, and a message that only looks like such a fault is.

$BLAME_MESSAGES is the number of messages, $BLAME_OUTAGE_S how long the table is
away.
"""

import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import DATABASE, Server  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below
MESSAGES = int(os.environ.get("BLAME_MESSAGES", "300"))
OUTAGE_S = float(os.environ.get("BLAME_OUTAGE_S", "2"))

CONFIG = """\
store: "{url}"
defaults: {{node_lease: 2s, polling_interval: 100ms}}
channels:
  orders:
    handlers:
      row:
        sql: insert into public.effect (id) values (:id)
        max_attempts: {attempts}
        backoff: [100ms]
        commit_batch: {batch}
"""


def configure(place, schema, batch, attempts=1, **who):
    SERVER.sql("DROP TABLE IF EXISTS public.effect, public.attic;"
               " CREATE TABLE public.effect (id text)")
    place.configure(CONFIG.format(url=SERVER.url(schema=schema, **who),
                                  batch=batch, attempts=attempts))
    place.ok("migrate")


def count(sql):
    (row,) = SERVER.sql(sql)
    return int(row)


# As a migration would: what is in the table is kept, and what is about to be
# written has nowhere to go.
DROP = """\
BEGIN;
LOCK TABLE public.effect IN ACCESS EXCLUSIVE MODE;
CREATE TABLE public.attic AS SELECT * FROM public.effect;
DROP TABLE public.effect;
COMMIT"""
RESTORE = """\
BEGIN;
CREATE TABLE public.effect (id text);
INSERT INTO public.effect SELECT * FROM public.attic;
COMMIT"""


def send_many(place, name, numbers):
    lines = [
        json.dumps({
            "specversion": "1.0", "id": f"m{number:05}", "source": "test",
            "type": "order", "data": number,
        })
        for number in numbers
    ]
    path = place.write(name, "\n".join(lines) + "\n")
    result = place.ok("send", "orders", "--lines", path, "--json").json()
    equal(result["accepted"], len(lines), result)


def events(servers, name):
    return [
        line
        for server in servers
        for line in map(json.loads, server.stderr().splitlines())
        if line.get("event") == name
    ]


@case("the same with several deliveries in one pipeline", batch=10)
@case("a table that is dropped for a while costs no message, on three nodes of "
      "which one is killed", batch=1)
def _(place, batch):
    schema = f"away_{batch}"
    configure(place, schema, batch)
    servers = [place.serve() for _ in range(3)]
    half = MESSAGES // 2
    sender = threading.Thread(target=send_many,
                              args=(place, "first", range(half)))
    sender.start()
    until(lambda: count("SELECT count(*) FROM public.effect") > 0)
    SERVER.sql(DROP)
    send_many(place, "second", range(half, MESSAGES))
    sender.join()
    # Every node finds out by itself.
    until(lambda: all(events([server], "handler_held") for server in servers))
    for line in events(servers, "handler_held"):
        equal(line["error"],
              'relation "public.effect" does not exist (SQLSTATE 42P01)')
    # The commands read the database, which has no holds.
    for command in ("stats", "list"):
        shown = place.ok(command)
        assert "known to the servers that run it: --server URL" in shown.err, shown
    servers[0].stop(signal.SIGKILL)
    time.sleep(OUTAGE_S)
    SERVER.sql(RESTORE)
    begin = time.monotonic()
    done = f"SELECT count(*) FROM {schema}.ledger WHERE state = 3"
    until(lambda: count(done) == MESSAGES)
    took = time.monotonic() - begin
    print(f"# {MESSAGES} messages done {took:.1f} s after the table's return")
    assert took < 30, took
    equal(SERVER.sql("SELECT count(*), count(DISTINCT id) FROM public.effect"),
          [f"{MESSAGES}|{MESSAGES}"])
    equal(count(f"SELECT sum(failures) FROM {schema}.ledger"), 0)
    equal(events(servers, "delivery_failed"), [])
    equal(events(servers, "delivery_poisoned"), [])
    for server in servers[1:]:
        equal(server.stop(), 0)


@case("the same with several deliveries in one commit: no neighbour is charged",
      batch=20)
@case("of a thousand messages the one that violates row security is charged",
      batch=1)
def _(place, batch):
    schema = f"guarded_{batch}"
    if not SERVER.sql("SELECT 1 FROM pg_roles WHERE rolname = 'teller'"):
        SERVER.sql("CREATE ROLE teller LOGIN")
        SERVER.sql(f"GRANT CREATE ON DATABASE {DATABASE} TO teller")
    configure(place, schema, batch, attempts=2, user="teller")
    SERVER.sql("ALTER TABLE public.effect ENABLE ROW LEVEL SECURITY;"
               " CREATE POLICY p ON public.effect FOR INSERT"
               " WITH CHECK (id <> 'm00500');"
               " GRANT INSERT ON public.effect TO teller")
    server = place.serve()
    send_many(place, "all", range(1001))
    ended = f"SELECT count(*) FROM {schema}.ledger"
    until(lambda: count(ended) >= 1000)
    # If it was the last to run, it is charged once another one has succeeded.
    send_many(place, "later", range(1001, 1002))
    until(lambda: count(ended) == 1002)
    equal(SERVER.sql("SELECT count(*), count(DISTINCT id) FROM public.effect"),
          ["1001|1001"])
    equal(SERVER.sql(f"SELECT m.id, l.state, l.failures FROM {schema}.ledger l"
                     f" JOIN {schema}.message m USING (seq)"
                     " WHERE l.state <> 3 OR l.failures > 0"),
          ["m00500|4|2"])
    shown = place.show("m00500")["deliveries"][0]
    assert shown["last_error"].endswith("(SQLSTATE 42501)"), shown
    outcomes = [attempt["outcome"] for attempt in shown["attempts"]]
    equal((outcomes[0], outcomes[-2:]), ("hold", ["hold", "hold"]))
    until(lambda: events([server], "handler_released"))
    equal(server.stop(), 0)


# The SQLSTATE that a function raises, what becomes of the delivery with
# max_attempts 1, and the failures counted.
STATES = [
    ("42P01", "hold", "pending", 0),
    ("42501", "hold", "pending", 0),
    ("3F000", "hold", "pending", 0),
    ("08001", "hold", "pending", 0),  # of another connection: this one works
    ("57P01", "hold", "pending", 0),
    ("22012", "poison", "poisoned", 1),
    ("25006", "poison", "poisoned", 1),
    ("23505", "retry", "poisoned", 1),
    ("P0001", "retry", "poisoned", 1),
    ("XX000", "retry", "poisoned", 1),
    ("38000", "retry", "poisoned", 1),
    ("53400", "retry", "poisoned", 1),
    ("58P01", "retry", "poisoned", 1),
    ("40001", "retry", "poisoned", 1),  # ten times in a row
    ("53100", "snooze", "pending", 0),
    ("58030", "snooze", "pending", 0),
    ("XX001", "snooze", "pending", 0),
]


@case("the same in a commit with others, which are done", batch=3)
@case("each class of errors is charged to what caused it", batch=1)
def _(place, batch):
    schema = f"classes_{batch}"
    configure(place, schema, batch)
    SERVER.sql(f"CREATE TABLE {schema}.told (id text);"
               f" CREATE FUNCTION {schema}.tell() RETURNS trigger"
               " LANGUAGE plpgsql AS $$ BEGIN"
               f" INSERT INTO {schema}.told VALUES (NEW.id);"
               " IF NEW.id LIKE 'bad-%' THEN"
               " RAISE 'no' USING ERRCODE = substr(NEW.id, 5);"
               " END IF; RETURN NEW; END $$;"
               f" CREATE TRIGGER tell BEFORE INSERT ON public.effect"
               f" FOR EACH ROW EXECUTE FUNCTION {schema}.tell()")
    for state, outcome, end, failures in STATES:
        names = [f"bad-{state}"]
        if batch > 1:
            names = [f"a-{state}", *names, f"z-{state}"]
        for name in names:
            place.send(name)
        place.run("process")
        shown = place.delivery(f"bad-{state}", "row")
        equal((shown["attempts"][-1]["outcome"], shown["state"],
               shown["failures"]), (outcome, end, failures), state)
        assert f"no (SQLSTATE {state})" in shown["last_error"], shown
        for name in names:
            if not name.startswith("bad"):
                delivery = place.delivery(name, "row")
                equal((delivery["state"], delivery["failures"]), ("done", 0))
        SERVER.sql(f"DELETE FROM {schema}.open")


with Server() as SERVER:
    main()
