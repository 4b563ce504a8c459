#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Setting up a store in PostgreSQL: what the commands print and write before
the first message."""

import contextlib
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from pgbouncer import Pooler  # noqa: E402
from postgres import BIN, Server, environment, free_port  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

# A password that must not occur in any output.
SECRET = "canary-4e07"

# The number of sessions that wait for a lock on the table.
ASKING = ("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
          " AND wait_event = 'relation' AND query LIKE '%barred%'"
          " AND pid <> pg_backend_pid()")

FAILED = 1
UNREACHABLE = 4


def configure(place, url, *handlers):
    """A store with these SQL texts as the handlers h0, h1, …"""
    lines = [f'store: "{url}"', "channels:", "  orders:", "    handlers:"]
    for number, sql in enumerate(handlers):
        lines += [f"      h{number}:", "        sql: |"]
        lines += [f"          {line}" for line in sql.splitlines()]
    place.configure("\n".join(lines) + "\n")


@contextlib.contextmanager
def locked(table):
    """Locks this table for other sessions."""
    session = subprocess.Popen(
        [os.path.join(BIN, "psql"), "-X", "-q", "-h", SERVER.path, "-p",
         str(SERVER.port), "-U", "postern", "postern"],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    session.stdin.write(f"BEGIN; LOCK TABLE {table};\n\\echo .\n")
    session.stdin.flush()
    equal(session.stdout.readline(), ".\n")
    try:
        yield
    finally:
        session.stdin.close()
        session.wait()
        session.stdout.close()


def findings(place, level):
    result = place.run("check", "--json")
    assert SECRET not in result.out + result.err, result
    found = [f["text"] for f in result.json()["findings"] if f["level"] == level]
    return result.code, found


@case("check reports SQL that the server would refuse, by handler and line")
def _(place):
    SERVER.sql("CREATE TABLE public.there (id text, n integer)")
    configure(
        place,
        SERVER.url(password=SECRET),
        "insert into there (id, n) values (:id, (:body_json->>'n')::integer)",
        "insert into there (id)\n  valus (:id)",
        "insert into missing values (:id)",
        "delete from there;\nupdate there\n  set nowhere = :id",
        "select no_such_function(:headers)",
        "delete from there where n = 'one'",
    )
    code, found = findings(place, "error")
    equal(code, FAILED)
    for text, (where, what) in zip(
        found,
        (
            ("8:7: handler 'h1': sql: line 2: ", 'syntax error at or near "valus"'),
            ("12:7: handler 'h2': sql: line 1: ", 'relation "missing"'),
            ("15:7: handler 'h3': sql: line 3: ", 'column "nowhere"'),
            ("20:7: handler 'h4': sql: line 1: ", "no_such_function"),
            ("23:7: handler 'h5': sql: line 1: ", "invalid input syntax"),
        ),
        strict=True,
    ):
        assert f"postern.yaml:{where}" in text and what in text, text


@case("check reports missing rights on the tables of handlers")
def _(place):
    SERVER.sql(
        "CREATE ROLE modest LOGIN; GRANT CREATE ON DATABASE postern TO modest;"
        "CREATE TABLE public.mine (id text, n integer);"
        "CREATE TABLE public.others (id text); CREATE SCHEMA inner_room;"
        "CREATE TABLE inner_room.t (id text);"
        "GRANT INSERT, SELECT ON public.mine TO modest;"
        "CREATE FUNCTION public.closed(text) RETURNS text LANGUAGE plpgsql"
        " AS $$ BEGIN RETURN $1; END $$;"
        "REVOKE EXECUTE ON FUNCTION public.closed FROM public"
    )
    configure(
        place,
        SERVER.url(user="modest", password=SECRET),
        "insert into mine values (:id, :attempt)",
        "update mine set id = :id where n = :attempt",
        "insert into mine (id) values (:id);\n\nselect * from others",
        "insert into inner_room.t values (:id)",
        "insert into mine (id) values (closed(:id))",
    )
    code, found = findings(place, "error")
    equal(code, FAILED)
    for text, parts in zip(
        found,
        (
            ("'h1': sql: line 1: permission denied for table mine", "'modest'"),
            ("'h2': sql: line 3: permission denied for table others",),
            ("'h3'", "permission denied for schema inner_room"),
            ("'h4'", "permission denied for function closed"),
        ),
        strict=True,
    ):
        for part in parts:
            assert part in text, (part, text)


@case("check runs no SQL of handlers, and allows tables that a handler creates")
def _(place):
    SERVER.sql("CREATE TABLE public.kept (id text)")
    SERVER.sql("INSERT INTO public.kept VALUES ('a')")
    configure(
        place,
        SERVER.url(),
        "delete from kept",
        "create table if not exists made (id text);\n"
        "insert into made (id) values (:id)",
        "create table other (id text); insert into other (id) valus (:id)",
        "with gone as (delete from kept returning id)\n"
        "  select id from gone where id = :subject and 1 / :attempt = 1",
        "select jsonb_build_object(:id::text, 1)",
    )
    code, found = findings(place, "error")
    equal(code, FAILED)
    equal(len(found), 1, found)
    text = found[0]
    assert "'h2'" in text and "valus" in text, text
    equal(SERVER.sql("SELECT id FROM public.kept"), ["a"])
    equal(SERVER.sql("SELECT to_regclass('public.made') IS NULL"), ["t"])
    equal(SERVER.sql("SELECT to_regnamespace('postern') IS NULL"), ["t"])


@case("check allows for settings of a handler, and reports errors beside them")
def _(place):
    SERVER.sql(
        "CREATE ROLE away; CREATE SCHEMA away AUTHORIZATION away;"
        "CREATE TABLE away.far (id text); ALTER TABLE away.far OWNER TO away;"
        "CREATE TABLE public.near (id text);"
        "CREATE PROCEDURE public.go_away() LANGUAGE plpgsql AS"
        " $$ BEGIN SET LOCAL search_path = away; END $$"
    )
    good = (
        "set local search_path = away; insert into far values (:id)",
        "set local role away; insert into far values (:id)",
        "SET SCHEMA 'away';\nupdate far set id = :id",
        "set session authorization away; insert into far values (:id)",
        "select pg_catalog.set_config('search_path', 'away', true);\n"
        "insert into far values (:id)",
        "select set_config('a.b', :id, true), set_config(:subject, 'c', true);\n"
        "insert into far values (:id)",
        "do $$ begin set local role away; end $$; insert into far values (:id)",
        "call go_away(); insert into far values (:id)",
        "alter table near add word text; insert into near (word) values (:id)",
        "set local app.tenant = '7';\n"
        "delete from near where id = current_setting('app.tenant')",
        "select set_config('app.tenant', :id, true);\n"
        "delete from near where id = current_setting('app.tenant')",
    )
    bad = (
        "set local search_path = away; insert into far valus (:id)",
        "set local search_path = away; copy far from stdin",
        "set local lock_timeout = '5s'; insert into far values (:id)",
        "set constraints all immediate; insert into far values (:id)",
        "set local app.tenant = '7'; insert into far values (:id)",
        "select set_config('app.tenant', :id, true);\n"
        "insert into far values (:id)",
        "insert into far values (:id); set local search_path = away",
    )
    configure(place, SERVER.url(), *good, *bad)
    place.ok("migrate")
    code, found = findings(place, "error")
    equal(code, FAILED)
    for text, (number, what) in zip(
        found,
        enumerate((
            'line 1: syntax error at or near "valus"',
            "line 1: COPY stdin is not available",
            'line 1: relation "far"',
            'line 1: relation "far"',
            'line 1: relation "far"',
            'line 2: relation "far"',
            'line 1: relation "far"',
        ), len(good)),
        strict=True,
    ):
        assert f"'h{number}': sql: {what}" in text, (number, what, text)
    # At run time all of these but the UPDATE insert a row.
    configure(place, SERVER.url(), *good[:5], *good[6:8])
    place.ok("check")
    equal(place.send("m").out, "accepted\n")
    equal(place.process(), 7)
    equal(SERVER.sql("SELECT count(*) FROM away.far"), ["6"])
    SERVER.sql("DROP SCHEMA postern CASCADE; DROP TABLE public.near")


@case("check reports a missing right to create")
def _(place):
    SERVER.sql(
        "CREATE ROLE builder LOGIN; GRANT CREATE ON DATABASE postern TO builder;"
        "CREATE SCHEMA yard; CREATE SCHEMA \"My Yard\";"
        "GRANT USAGE ON SCHEMA yard TO builder;"
        "GRANT USAGE, CREATE ON SCHEMA \"My Yard\" TO builder"
    )
    configure(
        place,
        SERVER.url(user="builder", password=SECRET),
        "create table if not exists newt (id text);\ninsert into newt values (:id)",
        "select 1;\n create unlogged table\n  yard.newt (id text)",
        "create table \"My Yard\" . newt (id text)",
        "create or replace view yard.seen as select 1",
        "create schema if not exists later; create table later.newt (id text)",
    )
    code, found = findings(place, "error")
    equal(code, FAILED)
    for text, parts in zip(
        found,
        (
            ("'h0': sql: line 1: permission denied for schema public",
             "grant 'builder' CREATE"),
            ("'h1': sql: line 3: permission denied for schema yard",),
            ("'h3': sql: line 1: permission denied for schema yard",),
        ),
        strict=True,
    ):
        for part in parts:
            assert part in text, (part, text)


@case("check reports COPY with a client, and misplaced parameters")
def _(place):
    SERVER.sql("CREATE TABLE public.copied (id text)")
    configure(
        place,
        SERVER.url(),
        "select 1;\ncopy copied\n  from stdin",
        "copy (select id from copied) to StdOut",
        "copy copied from '/dev/null'",
        "do $body$ begin\n  perform ':id';\n"
        "  insert into copied values (:id);\nend $body$",
        "do language plpgsql 'begin insert into copied values (:body); end'",
        "do $$ declare n int[] := '{1,2}'; begin perform n[1:2], ':id'::text;"
        " end $$; select :id::text",
    )
    code, found = findings(place, "error")
    equal(code, FAILED)
    for text, part in zip(
        found,
        (
            "'h0': sql: line 3: COPY stdin is not available",
            "'h1': sql: line 1: COPY StdOut is not available",
            "'h3': sql: line 3: the body of DO cannot have parameters such as :id:",
            "'h4': sql: line 1: the body of DO cannot have parameters such as :body:",
        ),
        strict=True,
    ):
        assert part in text, (part, text)


@case("serve warns of SQL that cannot work, and serves")
def _(place):
    configure(
        place,
        SERVER.url(schema="warned", password=SECRET),
        "select 1",
        "selec 1",
        "insert into comes_later values (:id)",
    )
    server = place.serve()
    until(lambda: "'h2'" in server.stderr())
    warnings = [line for line in server.stderr().splitlines() if "handler '" in line]
    for line, part in zip(
        warnings,
        ("'h1': sql: line 1: syntax error", "'h2': sql: line 1: relation"),
        strict=True,
    ):
        assert part in line and "warn" in line.lower(), line
        assert "postern.yaml:" in line and "is held until" in line, line
    SERVER.sql("CREATE TABLE public.comes_later (id text)")
    equal(place.send("a").code, 0)
    until(lambda: place.state("a", "h2") == "done")
    equal(server.stop(), 0)
    assert SECRET not in server.stderr(), server.stderr()


@case("serve does not wait for its check of handlers, at the start or at a stop")
def _(place):
    SERVER.sql("CREATE TABLE public.barred (id text)")
    text = "select * from barred where id = :id;\n" * 20 + "selec 1"
    configure(place, SERVER.url(schema="unbarred"), text)
    with locked("public.barred"):
        server = place.serve()
        until(lambda: SERVER.sql(ASKING) == ["1"])
        equal(server.stop(), 0)
    assert "selec" not in server.stderr(), server.stderr()


@case("check reports a listen_url without notifications")
def _(place):
    SERVER.sql("CREATE DATABASE aside")
    with Pooler(SERVER) as pooler:
        for listen, says in (
            (SERVER.url(password=SECRET, port=free_port()), "cannot be reached"),
            (SERVER.url(password=SECRET, database="aside"), "another database"),
            (SERVER.url(password=SECRET, port=pooler.port), "pooler"),
            (SERVER.url(password=SECRET), None),
        ):
            place.configure(
                f'stores: {{one: {{url: "{SERVER.url(schema="eared")}", '
                f'listen_url: "{listen}"}}}}\n'
                "channels: {orders: {handlers: {h: {sql: select 1}}}}\n"
            )
            code, found = findings(place, "error")
            if says:
                equal((code, len(found)), (UNREACHABLE, 1), found)
                assert found[0].startswith("listen_url: ") and says in found[0], found
            else:
                equal((code, found), (0, []))


@case("check checks handlers through a pooler, also of an existing store")
def _(place):
    with Pooler(SERVER) as pooler:
        url = SERVER.url(port=pooler.port, schema="pooled")
        configure(place, url, "select 1", "select * from nowhere_to_be")
        place.ok("migrate")
        for _ in range(3):
            code, found = findings(place, "error")
            equal((code, len(found)), (FAILED, 1), found)
            assert "'h1'" in found[0], found


@case("check reports a pooler through which LISTEN does not work")
def _(place):
    def notes(url):
        configure(place, url, "select 1")
        code, found = findings(place, "note")
        equal(code, 0, found)
        return [text for text in found if "LISTEN" in text]

    with Pooler(SERVER) as pooler:
        url = SERVER.url(port=pooler.port, schema="unheard")
        configure(place, url, "select 1")
        place.ok("migrate")
        found = notes(url)
        equal(len(found), 1, found)
        assert "set listen_url" in found[0], found
    equal(notes(SERVER.url(schema="unheard")), [])


@case("check reports a missing store that may not be created")
def _(place):
    SERVER.sql("CREATE ROLE guest LOGIN;"
               "CREATE SCHEMA bare; GRANT USAGE ON SCHEMA bare TO guest")
    for schema, grant in (
        ("unmade", "GRANT CREATE ON DATABASE postern TO guest"),
        ("bare", "GRANT CREATE ON SCHEMA bare TO guest"),
    ):
        configure(place, SERVER.url(user="guest", schema=schema), "select 1")
        code, found = findings(place, "error")
        equal((code, len(found)), (UNREACHABLE, 1), found)
        assert "'guest' may not create" in found[0], found
        assert grant in found[0], found
        equal(place.run("migrate").code, UNREACHABLE)
        # The rights named in the error are sufficient.
        SERVER.sql(grant)
        equal(findings(place, "error"), (0, []))
        place.ok("migrate")


def says_missing(place, *parts):
    """Checks what check and list report about a missing store."""
    _, found = findings(place, "note")
    for text in ([t for t in found if "schema" in t][-1], place.run("list").err):
        for part in parts:
            assert part in text, (part, text)


@case("a schema without a store is distinguished from a missing schema")
def _(place):
    SERVER.sql("CREATE SCHEMA vacant")
    configure(place, SERVER.url(schema="absent"), "select 1")
    says_missing(place, '"absent"', "does not exist yet", "'postern migrate'")
    configure(place, SERVER.url(schema="vacant"), "select 1")
    says_missing(place, '"vacant"', "exists but contains no store",
                 "'postern migrate'")
    # A table with the name of a store's table does not make it a store.
    SERVER.sql("CREATE TABLE vacant.meta (name text, value text)")
    code, found = findings(place, "error")
    equal((code, len(found)), (UNREACHABLE, 1), found)
    assert "names that a store uses: meta;" in found[0], found
    says_missing(place, "exists but contains no store")
    SERVER.sql("DROP TABLE vacant.meta")
    place.ok("migrate")
    equal(findings(place, "error"), (0, []))


@case("objects that conflict with a store's names are reported, and nothing is made")
def _(place):
    SERVER.sql(
        "CREATE SCHEMA shop; CREATE TABLE shop.ledger (id text);"
        "CREATE VIEW shop.node AS SELECT 1; CREATE TYPE shop.seen AS ENUM ('a');"
        "CREATE SEQUENCE shop.open_due;"
        "CREATE FUNCTION shop.wake_1(a bigint) RETURNS void LANGUAGE sql AS '';"
        # These do not conflict.
        "CREATE FUNCTION shop.bell_1(a text) RETURNS void LANGUAGE sql AS '';"
        "CREATE TABLE shop.orders (id text)"
    )
    configure(place, SERVER.url(schema="shop", password=SECRET), "select 1")
    code, found = findings(place, "error")
    equal((code, len(found)), (UNREACHABLE, 1), found)
    names = "ledger, node, open_due, seen, wake_1;"
    assert '"shop" at ' in found[0] and f": {names}" in found[0], found
    _, notes = findings(place, "note")
    assert not [text for text in notes if "postern migrate" in text], notes
    for command in (["migrate"], ["send", "orders", "--id", "a"]):
        place.fails(UNREACHABLE, *command, says=names)
    equal(SERVER.sql("SELECT count(*) FROM pg_class WHERE relkind = 'r'"
                     " AND relnamespace = 'shop'::regnamespace"), ["2"])
    SERVER.sql("DROP TABLE shop.ledger; DROP VIEW shop.node; DROP TYPE shop.seen;"
               "DROP SEQUENCE shop.open_due; DROP FUNCTION shop.wake_1")
    place.ok("migrate")


@case("every name that a store uses conflicts with an existing object")
def _(place):
    SERVER.sql("CREATE ROLE passer LOGIN")
    configure(place, SERVER.url(schema="full"), "select 1")
    place.ok("migrate")
    SERVER.sql("ALTER TABLE \"full\".meta RENAME COLUMN value TO other")
    # Except names that PostgreSQL chooses, which never conflict.
    count = int(SERVER.sql(
        "SELECT count(DISTINCT name) FROM (SELECT relname FROM pg_class"
        " WHERE relnamespace = 'full'::regnamespace AND relkind IN ('r', 'S', 'i')"
        " AND NOT EXISTS (SELECT 1 FROM pg_depend"
        " WHERE objid = pg_class.oid AND deptype = 'i')"
        " UNION ALL SELECT proname FROM pg_proc"
        " WHERE pronamespace = 'full'::regnamespace) AS n (name)")[0])
    # A role without rights gets the same report.
    SERVER.sql("GRANT USAGE ON SCHEMA \"full\" TO passer")
    for user in ("postern", "passer"):
        configure(place, SERVER.url(user=user, schema="full"), "select 1")
        _, found = findings(place, "error")
        assert f" and {count - 5} more;" in found[-1], (count, found)


@case("check reports missing rights on the store's own tables")
def _(place):
    SERVER.sql("CREATE ROLE half LOGIN")
    configure(place, SERVER.url(schema="half"), "select 1", "select * from no_such")
    place.ok("migrate")
    SERVER.sql("GRANT USAGE ON SCHEMA half TO half;"
               "GRANT SELECT ON ALL TABLES IN SCHEMA half TO half")
    configure(place, SERVER.url(user="half", schema="half"), "select 1",
              "select * from no_such")
    SERVER.sql("REVOKE EXECUTE ON FUNCTION half.bell_1 FROM public")
    code, found = findings(place, "error")
    equal((code, len(found)), (UNREACHABLE, 4), found)
    assert "no_such" in found[0], found
    tables = SERVER.sql("SELECT tablename FROM pg_tables"
                        " WHERE schemaname = 'half' ORDER BY tablename COLLATE \"C\"")
    some = ", ".join(tables[:3])
    for text, head, grant in zip(
        found[1:],
        (f"no DELETE, INSERT, UPDATE on {some} and {len(tables) - 3} more of ",
         "no USAGE on message_seq of ",
         "no EXECUTE on bell_1 of "),
        ("DELETE, INSERT, UPDATE ON ALL TABLES",
         "USAGE ON ALL SEQUENCES",
         "EXECUTE ON ALL FUNCTIONS"),
        strict=True,
    ):
        equal(text, f"'half' has {head}the schema half: "
                    f"GRANT {grant} IN SCHEMA half TO half")
    # The rights named in the error are sufficient.
    SERVER.sql(found[1].partition(": ")[2])
    SERVER.sql("REVOKE UPDATE, INSERT ON half.meta FROM half")
    _, found = findings(place, "error")
    assert "'half' has no INSERT, UPDATE on meta of the schema half: " in found[1], found
    for text in found[1:]:
        SERVER.sql(text.partition(": ")[2])
    equal(len(findings(place, "error")[1]), 1)


@case("check reports an unusable server, as serve does")
def _(place):
    for role, setting, says in (
        ("hasty", "synchronous_commit = off", "synchronous_commit is off"),
        (
            "steady",
            "default_transaction_isolation = 'serializable'",
            "'read committed'",
        ),
        ("reader", "default_transaction_read_only = on", "is read-only"),
    ):
        SERVER.sql(f"CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET {setting}")
        configure(place, SERVER.url(user=role, password=SECRET), "select 1")
        code, found = findings(place, "error")
        equal((code, len(found)), (UNREACHABLE, 1), found)
        assert says in found[0], found
    # This test server would lose data in a power failure.
    configure(place, SERVER.url(), "select 1")
    code, found = findings(place, "note")
    equal(code, 0)
    assert any("fsync or full_page_writes" in text for text in found), found


@case("the printed schema has the name of the store's schema")
def _(place):
    place.configure("channels: {orders: {handlers: {h: {exec: [/bin/cat]}}}}\n")
    default = place.ok("migrate", "--print", "--store", "postgres://h/d").out
    head, _, rest = default.partition("\n\n")
    assert all(line.startswith("-- ") for line in head.splitlines()), head
    assert "The whole schema" in head, head
    assert rest.startswith("BEGIN;\nCREATE SCHEMA postern;\n"), default[:200]
    assert "CREATE TABLE postern.meta (" in default
    for name in ("elsewhere", "order"):  # the second is a keyword of SQL
        url = SERVER.url(schema=name, password=SECRET)
        printed = place.ok("migrate", "--print", "--store", url).out
        equal(printed, default.replace("SCHEMA postern", f'SCHEMA "{name}"')
              .replace("'postern.publish:", "'POSTERN.publish:")
              .replace("postern.", f'"{name}".')
              .replace("'POSTERN.publish:", "'postern.publish:"))
        SERVER.sql(printed)
        equal(place.ok("send", "orders", "--id", "a", "--store", url).out, "accepted\n")
        rows = SERVER.sql(f'SELECT count(*) FROM "{name}".message')
        equal(rows, ["1"])
    place.configure(
        f'stores: {{one: {{url: "{SERVER.url()}", schema: said}}}}\n'
        "channels: {orders: {store: one, handlers: {h: {exec: [/bin/cat]}}}}\n"
    )
    assert 'TABLE "said".meta (' in place.ok("migrate", "--print").out
    printed = place.ok("migrate", "--print", "--json").json()["schema"]
    assert 'TABLE "said".meta (' in printed


@case("init writes a configuration for the store it is given, without its password")
def _(place):
    SERVER.sql(f"CREATE ROLE starter LOGIN SUPERUSER PASSWORD '{SECRET}@/:'")
    SERVER.demand_password("starter")
    word = SECRET + "%40%2F:"
    url = SERVER.url(user="starter", schema="begun").replace("//starter@",
                                                             f"//starter:{word}@")
    results = [place.ok("init", "--store", url)]
    assert "set POSTERN_PASSWORD, written as in a URL" in results[0].err, results
    text = place.read("postern.yaml")
    assert url.replace(word, "${POSTERN_PASSWORD:-}") in text, text
    equal(os.stat(place.file("postern.yaml")).st_mode & 0o777, 0o600)
    results.append(place.fails(UNREACHABLE, "stats", says="no password"))
    results.append(place.ok("check", env={"POSTERN_PASSWORD": word}))
    equal(place.ok("send", "orders", "--id", "a", stdin="b",
                   env={"POSTERN_PASSWORD": word}).out, "accepted\n")
    equal(place.process(env={"POSTERN_PASSWORD": word}), 1)
    place.write(".pgpass", f"*:*:*:starter:{SECRET}@/\\:\n")
    os.chmod(place.file(".pgpass"), 0o600)
    results.append(place.ok("check", env={"HOME": place.path,
                                          "PGPASSFILE": place.file(".pgpass")}))
    assert SECRET not in text, text
    for result in results:
        assert SECRET not in result.out + result.err, result


@case("commands accept libpq's keyword form, and hide its password")
def _(place):
    SERVER.sql(f"CREATE ROLE plain LOGIN SUPERUSER PASSWORD '{SECRET}''x'")
    SERVER.demand_password("plain")
    word = SECRET + "\\'x"
    rest = f"host=127.0.0.1 port={SERVER.port} dbname=postern"
    open_url = f"postgres:{rest} user=postern schema='eighth' connections = 4"
    result = place.ok("init", "-c", "open.yaml", "--store", open_url)
    assert f'\nstore: "{open_url}"\n' in place.read("open.yaml")
    assert "POSTERN_PASSWORD" not in result.err, result
    equal(SERVER.sql("SELECT to_regclass('eighth.meta') IS NULL"), ["f"])
    place.ok("check", "-c", "open.yaml")
    results = [place.ok("init", "--store",
                        f"postgres:{rest} password='{word}'  user=plain schema=ninth")]
    assert "set POSTERN_PASSWORD, written with a \\ in" in results[0].err, results
    assert f"store postgres:{rest} password=*** user=plain" in results[0].out, results
    text = place.read("postern.yaml")
    assert (f"\nstore: \"postgres:{rest} password='${{POSTERN_PASSWORD:-}}'"
            ' user=plain schema=ninth"\n') in text, text
    results.append(place.fails(UNREACHABLE, "stats", says="no password"))
    results.append(place.ok("check", env={"POSTERN_PASSWORD": word}))
    assert SECRET not in text, text
    for result in results:
        assert SECRET not in result.out + result.err, result


@case("init refuses flags that name another schema than the existing file")
def _(place):
    place.ok("init", "--store", SERVER.url(), "--schema", "tenth")
    kept = place.read("postern.yaml")
    place.ok("init", "--schema", "tenth")
    place.fails(2, "init", "--schema", "eleventh", says="(schema tenth), not ")
    place.fails(2, "init", "--schema", "tenth", "--connections", "5",
                says="does not set 'connections: 5'")
    equal(place.read("postern.yaml"), kept)
    equal(SERVER.sql("SELECT to_regnamespace('eleventh') IS NULL"), ["t"])
    url = SERVER.url(schema="twelfth", password=SECRET)
    place.ok("init", "-c", "url.yaml", "--store", url)
    # The password does not count in the comparison.
    result = place.ok("init", "-c", "url.yaml", "--store", url, "--schema", "twelfth")
    assert "kept url.yaml" in result.out, result


@case("commands name the schema of a store, also where it is a setting")
def _(place):
    url = SERVER.url()
    place.configure(
        f'stores: {{a: {{url: "{url}", schema: named_a}}, '
        f'b: {{url: "{SERVER.url(schema="named_b")}"}}}}\n'
        "channels: {one: {store: a, handlers: {h: {sql: select 1}}},"
        " two: {store: b, handlers: {i: {sql: select 1}}}}\n"
    )
    found = place.ok("check").out
    for name in ("a", "b"):
        assert f'store {name}: the schema "named_{name}" at ' in found, found
    result = place.ok("migrate")
    assert f"the schema named_a of {url} is up to date\n" in result.out, result
    assert "the schema named_b of " in result.out, result
    equal([store["schema"] for store in place.ok("migrate", "--json").json()["stores"]],
          ["named_a", "named_b"])
    assert f"store {url} (schema named_a) is ready\n" in place.ok("init").out
    server = place.serve()
    until(lambda: "serving" in server.stderr())
    equal(server.stop(), 0)
    assert "named_a" in server.stderr() and "named_b" in server.stderr(), server.stderr()


@case("the tables in init's sample configuration are not tables of the store")
def _(place):
    place.ok("init", "--store", SERVER.url(schema="sample"))
    tables = re.findall(r"(?:insert into|create table if not exists) (\w+)",
                        place.read("postern.yaml"))
    assert tables
    equal(SERVER.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'sample'"
                     f" AND tablename = ANY ('{{{','.join(tables)}}}')"), [])


@case("init writes the store's file and settings, and refuses other secrets")
def _(place):
    url = SERVER.url(schema="fifth")
    place.write("url", url + "\n")
    os.chmod(place.file("url"), 0o600)
    place.ok("init", "-c", "file.yaml", "--store-file", "url")
    assert '\nstore_file: "url"\n' in place.read("file.yaml")
    place.ok("init", "-c", "schema.yaml", "--store", SERVER.url(), "--schema",
             "sixth", "--connections", "3")
    place.ok("check", "-c", "schema.yaml")
    text = place.ok("check", "-c", "schema.yaml", "--print").out
    assert "schema: sixth" in text and "connections: 3" in text, text
    equal(SERVER.sql("SELECT to_regclass('sixth.meta') IS NULL"), ["f"])
    for url in (
        f"postgres://u:{SECRET}@h/d?sslpassword={SECRET}",
        f"postgres://u@h/d?sslpassword={SECRET}",
        f"postgres:host=h sslpassword={SECRET}",
        f"postgres:host=h password=a sslpassword={SECRET}",
    ):
        result = place.fails(2, "init", "-c", "no.yaml", "--store", url,
                             says="--store-file")
        assert SECRET not in result.err, result
        equal(os.path.exists(place.file("no.yaml")), False)


with Server() as SERVER:
    main()
