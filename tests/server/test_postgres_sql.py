#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SQL handlers on PostgreSQL, several in one commit: all statements are sent
in one pipeline, and each handler runs by itself if that fails. Changes to the
session do not reach the next handler, and one that fails affects no other.

Rows of one pipeline have the id of one transaction; under a savepoint each has
an id of its own.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from pgbouncer import Pooler  # noqa: E402
from postgres import Server, environment  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

CONFIG = """\
store: "{url}"
channels:
  orders:
    handlers:
      row: {{sql: "{sql}", commit_batch: {batch}, timeout: {timeout}, max_attempts: 1}}
"""


def prepare(place, schema, sql, batch=20, timeout="60s", text=None, **where):
    """Creates a store, a table and a function work(id, body) with `sql` as its
    PL/pgSQL body."""
    text = CONFIG.format(url=SERVER.url(schema=schema, **where), batch=batch,
                         timeout=timeout,
                         sql=text or f"select {schema}.work(:id, :body)")
    place.configure(text)
    place.ok("migrate")
    SERVER.sql(f"CREATE TABLE {schema}.effect"
               " (n serial, id text CHECK (id <> 'bad'), seen text)")
    SERVER.sql(
        f"CREATE FUNCTION {schema}.work(p_id text, p_body text) RETURNS void"
        f" LANGUAGE plpgsql AS $$ BEGIN {sql} END $$")


def send(place, names):
    for name in names:
        equal(place.send(name).out, "accepted\n")


def effects(schema, what, rest=""):
    return SERVER.sql(f"SELECT {what} FROM {schema}.effect {rest}")


NAMES = [f"m{number:02}" for number in range(12)]


@case("handlers in one pipeline are one transaction, and each is done")
def _(place):
    prepare(place, "together",
            "INSERT INTO together.effect (id, seen) VALUES (p_id, p_body);")
    send(place, NAMES)
    equal(place.process(), 12)
    equal(effects("together", "id", "ORDER BY n"), NAMES)
    equal(effects("together", "count(DISTINCT xmin::text)"), ["1"])
    equal(SERVER.sql("SELECT count(*), min(state), max(duration) < 1000,"
                     " min(starts) FROM together.ledger"), ["12|3|t|1"])
    equal(place.ok("stats", "--json").json()["handlers"][0]["done"], 12)


@case("every batch is one pipeline, and no prepared statement is missing")
def _(place):
    prepare(place, "again",
            "INSERT INTO again.effect (id) VALUES (p_id);", batch=2)
    send(place, NAMES)
    equal(place.process(), 12)
    equal(effects("again", "count(*), count(DISTINCT xmin::text)"), ["12|6"])


@case("a name without a schema resolves to Postern's tables last")
def _(place):
    # A role has the schema with its own name in its search_path.
    prepare(place, "postern",
            "IF p_id = 'm07' THEN SET search_path = postern; END IF;",
            text="insert into message (own) values (:id);"
                 " select postern.work(:id, :body)")
    SERVER.sql("CREATE TABLE public.message (own text CHECK (own <> 'bad'))")
    place.ok("check")
    send(place, NAMES)
    equal(place.process(), 12)
    equal(SERVER.sql("SELECT count(DISTINCT xmin::text) FROM public.message"),
          ["1"])
    send(place, ["m12", "bad", "m13"])  # these run one by one
    equal(place.process(), 3)
    equal(SERVER.sql("SELECT own FROM public.message ORDER BY own"),
          [*NAMES, "m12", "m13"])
    equal(SERVER.sql("SELECT count(*) FROM postern.message"), ["15"])
    SERVER.sql("DROP SCHEMA postern CASCADE")


@case("overlapping transactions of a node create no multixacts")
def _(place):
    def multixacts():
        SERVER.sql("CHECKPOINT")  # the value is that of the last checkpoint
        return int(SERVER.sql(
            "SELECT next_multixact_id FROM pg_control_checkpoint()")[0])

    prepare(place, "busy", "INSERT INTO busy.effect (id) VALUES (p_id);"
            " PERFORM pg_sleep(0.01);", batch=1)
    server = place.serve()
    before = multixacts()
    for number in range(3):
        SERVER.sql("SELECT busy.publish('orders', 't', n::text, n::text, 'x')"
                   f" FROM generate_series({100 * number}, {100 * number + 99}) n")
    until(lambda: effects("busy", "count(*)") == ["300"])
    made = multixacts() - before
    equal(server.stop(), 0)
    equal(made < 30, True, made)


@case("SET ROLE in a handler resolves names in the schema of that role")
def _(place):
    # The store's schema has the name of its user here, too.
    prepare(place, "postern", "", text="set local role taken;"
            " insert into own (id) values (:id)")
    SERVER.sql("CREATE ROLE taken; CREATE SCHEMA AUTHORIZATION taken")
    SERVER.sql("CREATE TABLE taken.own (id text CHECK (id <> 'bad'))")
    SERVER.sql("ALTER TABLE taken.own OWNER TO taken")
    send(place, NAMES[:3])
    equal(place.process(), 3)
    send(place, ["m03", "bad", "m04"])
    equal(place.process(), 3)
    equal(SERVER.sql("SELECT id FROM taken.own ORDER BY id"), NAMES[:5])
    SERVER.sql("DROP SCHEMA postern, taken CASCADE")


# A search_path of the user `postern`, and the path in handlers where the
# store's schema has that name; the first existing schema is where objects are
# created.
PATHS = [
    ('"$user", public', 'public, "$user"'),
    ("public", "public"),
    ("public, postern", "public, postern"),
    (' "$user" ,public ', 'public, "$user"'),
    ("$USER,Postern,public", "public, $USER, Postern"),
    ('"Postern", "POSTERN", "postern", public',
     '"Postern", "POSTERN", public, "postern"'),
    ('postern, "a, ""postern"", b", "$user", "x,postern,y", public',
     '"a, ""postern"", b", "x,postern,y", public, postern, "$user"'),
    ('"$user", not_there', 'not_there, "$user"'),
    ('"$user", "", public', '"", public, "$user"'),
    ('"$user"', '"$user"'),
    ('"$user", pg_temp', '"$user", pg_temp'),
    ('pg_temp, "$user"', 'pg_temp, "$user"'),
    ('"$user", public, pg_catalog, pg_temp',
     'public, "$user", pg_catalog, pg_temp'),
    ('"$user", pg_catalog, public', 'pg_catalog, public, "$user"'),
]


@case("the search_path stays the same, with Postern's schema moved to the end")
def _(place):
    SERVER.sql("CREATE TABLE public.path (id text, seen text)")
    place.configure(CONFIG.format(
        url=SERVER.url(), batch=20, timeout="60s", sql="insert into public.path"
        " values (:id, current_setting('search_path'))"))
    place.ok("migrate")
    for number, (path, meant) in enumerate(PATHS):
        options = "-c search_path=" + path.replace(" ", "\\ ")
        send(place, [f"{number}a", f"{number}b"])
        equal(place.process(env={"PGOPTIONS": options}), 2)
        equal(SERVER.sql("SELECT DISTINCT seen FROM public.path"), [meant])
        SERVER.sql("TRUNCATE public.path")
    SERVER.sql("DROP SCHEMA postern CASCADE; DROP TABLE public.path")


LEAVE = """
    INSERT INTO left_behind.effect (id, seen) VALUES (p_id, concat_ws(',',
        nullif(current_setting('app.tenant', true), ''),
        nullif(current_setting('work_mem'), '4MB'),
        CASE WHEN to_regclass('pg_temp.scratch') IS NOT NULL THEN 'temp' END,
        nullif(current_user::text, session_user::text)));
    PERFORM set_config('app.tenant', p_id, false);
    PERFORM set_config('work_mem', '1MB', false);
    CREATE TEMP TABLE scratch (n integer);
    SET ROLE left_behind_other;
"""


@case("session settings of a handler are reset for the next in the same commit")
def _(place):
    prepare(place, "left_behind", LEAVE)
    SERVER.sql("CREATE ROLE left_behind_other")
    SERVER.sql("GRANT USAGE ON SCHEMA left_behind TO left_behind_other")
    send(place, NAMES)
    equal(place.process(), 12)
    equal(effects("left_behind", "DISTINCT seen"), [""])
    equal(effects("left_behind", "count(DISTINCT xmin::text)"), ["1"])


# A row with the id of the transaction itself was not written under a
# savepoint.
ALONE = """
    IF EXISTS (SELECT 1 FROM left_over.effect WHERE id = p_id
            AND xmin::text::bigint = pg_current_xact_id()::text::bigint) THEN
        RAISE 'not in one go';
    END IF;
"""


def leave_over(place, seen, sql):
    """Checks that each handler finds (seen) nothing of what others do to the
    session: in a pipeline, and each by itself; three per commit, and four
    commits for three sessions."""
    for alone, transactions in (("", "4"), (ALONE, "12")):
        prepare(place, "left_over", "INSERT INTO left_over.effect (id, seen)"
                f" VALUES (p_id, {seen}); {alone} {sql}", batch=3)
        send(place, NAMES)
        equal(place.process(), 12)
        equal(effects("left_over", "id", "ORDER BY id"), NAMES)
        equal(effects("left_over", "DISTINCT seen"), ["0"])
        equal(effects("left_over", "count(DISTINCT xmin::text)"),
              [transactions])
        SERVER.sql("DROP SCHEMA left_over CASCADE")


@case("a WITH HOLD cursor is closed for the next handler, in this commit and later")
def _(place):
    leave_over(place, "(SELECT count(*) FROM pg_cursors WHERE is_holdable)",
               "EXECUTE 'DECLARE kept CURSOR WITH HOLD FOR SELECT 1';")


@case("LISTEN of a handler is reset for later handlers of its session")
def _(place):
    leave_over(place, "(SELECT count(*) FROM pg_listening_channels())",
               "LISTEN kept;")


@case("a handler that sets a role without rights is done like the others")
def _(place):
    prepare(place, "no_rights",
            "INSERT INTO no_rights.effect (id) VALUES (p_id);"
            " SET ROLE no_rights_other;")
    SERVER.sql("CREATE ROLE no_rights_other")
    send(place, NAMES)
    equal(place.process(), 12)
    equal(effects("no_rights", "count(*), count(DISTINCT id)"), ["12|12"])


@case("a handler that makes the transaction read-only fails, alone and in a batch")
def _(place):
    prepare(place, "read_only",
            "INSERT INTO read_only.effect (id) VALUES (p_id);"
            " IF p_id LIKE 'last%' THEN SET TRANSACTION READ ONLY; END IF;")
    send(place, ["last"])
    equal(place.process(), 1)
    equal(place.state("last", "row"), "poisoned")
    assert "made the transaction read-only" in place.ok("show", "last").out
    send(place, NAMES[:2] + ["bad", "last2"] + NAMES[2:4])
    equal(place.process(), 6)
    equal(place.state("last2", "row"), "poisoned")
    equal(effects("read_only", "id", "ORDER BY id"), NAMES[:4])


@case("a failing handler affects no other, and its attempts count once")
def _(place):
    prepare(place, "one_bad", "INSERT INTO one_bad.effect (id) VALUES (p_id);")
    send(place, NAMES[:6] + ["bad"] + NAMES[6:])
    equal(place.process(), 13)
    equal(effects("one_bad", "id", "ORDER BY id"), NAMES)
    equal(place.state("bad", "row"), "poisoned")
    equal(SERVER.sql("SELECT count(*) FROM one_bad.attempt"), ["1"])
    assert "check constraint" in place.ok("show", "bad").out


@case("a deferred constraint that fails affects no other handler")
def _(place):
    prepare(place, "late", "INSERT INTO late.effect (id, seen)"
            " VALUES (p_id, CASE p_id WHEN 'twin' THEN 'm00' ELSE p_id END);")
    SERVER.sql("ALTER TABLE late.effect ADD UNIQUE (seen)"
               " DEFERRABLE INITIALLY DEFERRED")
    send(place, NAMES + ["twin"])
    equal(place.process(), 13)
    equal(effects("late", "id", "ORDER BY id"), NAMES)
    equal(place.state("twin", "row"), "poisoned")


@case("a deferred trigger that fails, for any reason, affects no other handler")
def _(place):
    prepare(place, "trigger",
            "INSERT INTO trigger.effect (id) VALUES (p_id);")
    SERVER.sql("CREATE FUNCTION trigger.late() RETURNS trigger"
               " LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 'm01' THEN"
               " PERFORM 1 FROM missing; END IF; RETURN NULL; END $$")
    SERVER.sql("CREATE CONSTRAINT TRIGGER late AFTER INSERT ON trigger.effect"
               " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
               " EXECUTE FUNCTION trigger.late()")
    send(place, NAMES[:3])
    equal(place.process(), 3)
    equal(effects("trigger", "id", "ORDER BY id"), ["m00", "m02"])
    shown = place.delivery("m01", "row")
    equal((shown["state"], shown["failures"], shown["last_error"]),
          ("pending", 0, 'relation "missing" does not exist (SQLSTATE 42P01)'))


@case("a slow handler is not cut off, and its duration is recorded")
def _(place):
    prepare(place, "slow", "INSERT INTO slow.effect (id) VALUES (p_id);"
            " PERFORM pg_sleep(CASE p_id WHEN 'm01' THEN 1.5 ELSE 0.02 END);")
    send(place, NAMES[:3])
    equal(place.process(), 3)
    equal(effects("slow", "id", "ORDER BY id"), NAMES[:3])
    equal(SERVER.sql("SELECT count(*) FROM slow.ledger l"
                     " JOIN slow.message m USING (seq)"
                     " WHERE m.id = 'm01' AND duration >= 1500"), ["1"])
    send(place, NAMES[3:4])
    equal(place.process(), 1)
    equal(SERVER.sql("SELECT count(*) FROM slow.ledger l"
                     " JOIN slow.message m USING (seq)"
                     " WHERE m.id = 'm03' AND duration >= 20"), ["1"])


@case("a handler that never ends is cancelled at its timeout, by a server")
def _(place):
    prepare(place, "endless", "INSERT INTO endless.effect (id) VALUES (p_id);"
            " PERFORM pg_sleep(CASE p_id WHEN 'm01' THEN 1e6 ELSE 0 END);",
            timeout="2s")
    send(place, NAMES[:3])
    server = place.serve()
    until(lambda: place.state("m01", "row") == "poisoned")
    equal(server.stop(), 0)
    equal(effects("endless", "id", "ORDER BY id"), ["m00", "m02"])
    equal(SERVER.sql("SELECT count(*) FROM pg_stat_activity"
                     " WHERE state = 'active' AND query LIKE '%endless.work%'"
                     " AND pid <> pg_backend_pid()"), ["0"])


@case("a handler that never ends is cancelled at its timeout, by process")
def _(place):
    prepare(place, "by_hand", "INSERT INTO by_hand.effect (id) VALUES (p_id);"
            " PERFORM pg_sleep(CASE p_id WHEN 'm01' THEN 1e6 ELSE 0 END);",
            timeout="2s")
    send(place, NAMES[:3])
    equal(place.process(), 3)
    equal(place.state("m01", "row"), "poisoned")
    equal(effects("by_hand", "id", "ORDER BY id"), ["m00", "m02"])


@case("a timeout below a second is enforced")
def _(place):
    prepare(place, "short", "INSERT INTO short.effect (id) VALUES (p_id);"
            " PERFORM pg_sleep(0.7);", timeout="200ms")
    send(place, NAMES[:1])
    server = place.serve()
    until(lambda: place.state("m00", "row") in ("done", "poisoned"))
    equal(server.stop(), 0)
    equal(place.state("m00", "row"), "poisoned")
    equal(effects("short", "count(*)"), ["0"])


@case("a handler that uses COPY with the client is poisoned")
def _(place):
    for schema, way in (("copied_to", "to stdout"), ("copied_from", "from stdin")):
        prepare(place, schema, "", text=f"copy {schema}.effect (id) {way}")
        send(place, NAMES[:1])
        equal(place.process(), 1)
        equal(place.state("m00", "row"), "poisoned")
        equal("COPY from or to" in place.ok("show", "m00").out, True)


@case("a handler that exceeds a resource limit is counted as failed")
def _(place):
    prepare(place, "greedy", "SET LOCAL work_mem = '64kB';"
            " SET LOCAL temp_file_limit = '64kB'; PERFORM count(*) FROM (SELECT"
            " n FROM generate_series(1, 99999) n ORDER BY md5(n::text) OFFSET 0"
            ") s;")
    send(place, NAMES[:1])
    equal(place.process(), 1)
    equal(place.state("m00", "row"), "poisoned")
    assert "exceeds temp_file_limit" in place.ok("show", "m00").out


@case("a handler that always breaks its connection is counted as failed in the end")
def _(place):
    prepare(place, "broken",
            "PERFORM pg_terminate_backend(pg_backend_pid());")
    send(place, NAMES[:1])
    place.ok("process", "--ignore-failures")
    equal(place.state("m00", "row"), "pending")
    SERVER.sql("UPDATE broken.open SET due_at = 0, fence = 40, starts = 40")
    place.ok("process", "--ignore-failures")
    equal(place.state("m00", "row"), "pending")
    equal(SERVER.sql("UPDATE broken.open SET due_at = 0, breaks = 20"
                     " WHERE breaks = 2 RETURNING failures"), ["0"])
    place.ok("process", "--ignore-failures")
    equal(place.state("m00", "row"), "poisoned")
    shown = place.ok("show", "m00").out
    equal("is lost whenever this runs" in shown, True, shown)


@case("a connection that breaks during a delivery is logged")
def _(place):
    prepare(place, "told_of",
            "PERFORM pg_terminate_backend(pg_backend_pid());")
    send(place, NAMES[:1])
    server = place.serve()
    until(lambda: "delivery snoozed" in server.stderr())
    equal(server.stop(), 0)
    line = next(json.loads(line) for line in server.stderr().splitlines()
                if "delivery snoozed" in line)
    equal((line["level"], line["outcome"]), ("warn", "snooze"))
    equal("store unavailable: " in line["error"], True, line)


@case("statements that vanish from the session are prepared again")
def _(place):
    prepare(place, "vanish", "INSERT INTO vanish.effect (id) VALUES (p_id);"
            " IF p_id IN ('m03', 'm07') THEN EXECUTE 'DEALLOCATE ALL'; END IF;",
            batch=2)
    send(place, NAMES)
    equal(place.process(), 12)
    equal(effects("vanish", "count(*), count(DISTINCT id)"), ["12|12"])


MEET = """
    PERFORM nextval('meet.' || p_id);
    FOR i IN 1..3000 LOOP
        EXECUTE format('SELECT is_called FROM meet.%I',
            CASE p_id WHEN 'a' THEN 'b' ELSE 'a' END) INTO v_there;
        EXIT WHEN v_there;
        PERFORM pg_sleep(0.01);
    END LOOP;
    INSERT INTO meet.effect (id, seen) VALUES (p_id, v_there);
"""


@case("two handlers run at the same time, each in its own transaction")
def _(place):
    prepare(place, "meet", f"DECLARE v_there text; BEGIN {MEET} END;", batch=1)
    SERVER.sql("CREATE SEQUENCE meet.a; CREATE SEQUENCE meet.b")
    server = place.serve()
    send(place, ["a", "b"])
    until(lambda: effects("meet", "count(*)") == ["2"])
    equal(effects("meet", "DISTINCT seen"), ["true"])
    equal(server.stop(), 0)


LARGE = ("open", "ledger", "seen", "message", "attempt", "duplicate", "parked")


@case("no large table is scanned completely, however small it was at planning")
def _(place):
    prepare(place, "plans", "INSERT INTO plans.effect (id, seen)"
            " VALUES (p_id, p_body); PERFORM pg_sleep(0.02);", batch=1)
    # The planner assumes that a table without statistics is large; these have
    # some.
    send(place, ["first"])
    SERVER.sql("VACUUM ANALYZE")
    SERVER.sql("SELECT plans.publish('orders', 'sold', n::text, n::text)"
               " FROM generate_series(1, 100) AS n")
    server = place.serve()
    until(lambda: effects("plans", "count(*)") == ["101"])
    equal(server.stop(), 0)
    tables = ", ".join(f"'{table}'" for table in LARGE)
    read = SERVER.sql(
        "SELECT relname, seq_scan, seq_tup_read FROM pg_stat_user_tables"
        f" WHERE schemaname = 'plans' AND relname IN ({tables})"
        " AND seq_tup_read > 300 ORDER BY 1")
    equal(read, [])


def pooled(pooler, sql):
    return subprocess.run(
        ["psql", "-X", "-A", "-t", "-q", "-c", sql,
         SERVER.url(port=pooler.port)],
        env=environment(), check=True, capture_output=True, text=True).stdout


@case("a pooler's sessions are not changed, and no prepared statement is missing")
def _(place):
    with Pooler(SERVER) as pooler:
        prepare(place, "pooled", "INSERT INTO pooled.effect (id)"
                " VALUES (p_id);", batch=3, port=pooler.port)
        for round_ in range(4):
            names = [f"{name}-{round_}" for name in NAMES]
            send(place, names + ["bad"] * (round_ == 2))
            place.ok("process", "--ignore-failures")
        equal(effects("pooled", "count(*), count(DISTINCT id)"), ["48|48"])
        # Three per commit: fewer transactions than messages.
        assert int(effects("pooled", "count(DISTINCT xmin::text)")[0]) < 30
        for _ in range(20):
            equal(pooled(pooler, "SELECT name FROM pg_prepared_statements"),
                  "")


with Server() as SERVER:
    main()
