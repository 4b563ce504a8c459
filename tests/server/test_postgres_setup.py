#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Setting up a store in PostgreSQL: what the commands for that say and write
before the first message comes."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from pgbouncer import Pooler  # noqa: E402
from postgres import Server  # noqa: E402
from support import case, equal, main  # noqa: E402

SERVER = None  # one for all cases, started below

# A password that no output may have in it.
SECRET = "canary-4e07"

FAILED = 1
UNREACHABLE = 4


def configure(place, url, *handlers):
    """A store with these SQL texts as the handlers h0, h1, …"""
    lines = [f'store: "{url}"', "channels:", "  orders:", "    handlers:"]
    for number, sql in enumerate(handlers):
        lines += [f"      h{number}:", "        sql: |"]
        lines += [f"          {line}" for line in sql.splitlines()]
    place.configure("\n".join(lines) + "\n")


def findings(place, level):
    result = place.run("check", "--json")
    assert SECRET not in result.out + result.err, result
    found = [f["text"] for f in result.json()["findings"] if f["level"] == level]
    return result.code, found


@case("check tells SQL that the server would refuse, by handler and line")
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


@case("check tells rights that the store's user has not on handlers' tables")
def _(place):
    SERVER.sql(
        "CREATE ROLE modest LOGIN; CREATE TABLE public.mine (id text, n integer);"
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


@case("check runs nothing, and believes in tables that a handler creates")
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


@case("check asks about handlers through a pooler, and of a store that is there")
def _(place):
    with Pooler(SERVER) as pooler:
        url = SERVER.url(port=pooler.port, schema="pooled")
        configure(place, url, "select 1", "select * from nowhere_to_be")
        place.ok("migrate")
        for _ in range(3):
            code, found = findings(place, "error")
            equal((code, len(found)), (FAILED, 1), found)
            assert "'h1'" in found[0], found


@case("check tells rights that a node has not on the store's own tables")
def _(place):
    SERVER.sql("CREATE ROLE half LOGIN")
    configure(place, SERVER.url(schema="half"), "select 1", "select * from no_such")
    place.ok("migrate")
    SERVER.sql("GRANT USAGE ON SCHEMA half TO half;"
               "GRANT SELECT ON ALL TABLES IN SCHEMA half TO half")
    configure(place, SERVER.url(user="half", schema="half"), "select 1",
              "select * from no_such")
    for missing, grant in (
        ("attempt", "INSERT, UPDATE, DELETE ON ALL TABLES"),
        ("message_seq", "USAGE ON ALL SEQUENCES"),
    ):
        code, found = findings(place, "error")
        equal((code, len(found)), (UNREACHABLE, 2), found)
        assert "no_such" in found[0], found
        assert f'"half".{missing} ' in found[1] and "'half'" in found[1], found
        SERVER.sql(f"GRANT {grant} IN SCHEMA half TO half")
    SERVER.sql("REVOKE EXECUTE ON FUNCTION half.bell_1 FROM public")
    _, found = findings(place, "error")
    assert '"half".bell_1 ' in found[1], found
    SERVER.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA half TO half")
    equal(len(findings(place, "error")[1]), 1)


@case("check tells what keeps a server from being used, as serve does")
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
    # This server is one of those that a power failure would harm.
    configure(place, SERVER.url(), "select 1")
    code, found = findings(place, "note")
    equal(code, 0)
    assert any("fsync or full_page_writes" in text for text in found), found


@case("the schema that is printed has the store's own name for it")
def _(place):
    place.configure("channels: {orders: {handlers: {h: {exec: [/bin/cat]}}}}\n")
    default = place.ok("migrate", "--print", "--store", "postgres://h/d").out
    assert default.startswith("CREATE SCHEMA postern;\n"), default[:200]
    assert "CREATE TABLE postern.meta (" in default
    for name in ("elsewhere", "order"):  # the second is a word of SQL
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
    SERVER.sql(f"CREATE ROLE starter LOGIN SUPERUSER PASSWORD '{SECRET}@/'")
    SERVER.demand_password("starter")
    word = SECRET + "%40%2F"
    url = SERVER.url(user="starter", schema="begun").replace("//starter@",
                                                             f"//starter:{word}@")
    results = [place.ok("init", "--store", url)]
    text = place.read("postern.yaml")
    assert url.replace(word, "${POSTERN_PASSWORD:-}") in text, text
    equal(os.stat(place.file("postern.yaml")).st_mode & 0o777, 0o600)
    results.append(place.fails(UNREACHABLE, "stats", says="no password"))
    results.append(place.ok("check", env={"POSTERN_PASSWORD": word}))
    equal(place.ok("send", "orders", "--id", "a", stdin="b",
                   env={"POSTERN_PASSWORD": word}).out, "accepted\n")
    equal(place.ok("process", env={"POSTERN_PASSWORD": word}).out, "processed 1\n")
    place.write(".pgpass", f"*:*:*:starter:{SECRET}@/\n")
    os.chmod(place.file(".pgpass"), 0o600)
    results.append(place.ok("check", env={"HOME": place.path,
                                          "PGPASSFILE": place.file(".pgpass")}))
    assert SECRET not in text, text
    for result in results:
        assert SECRET not in result.out + result.err, result


@case("init writes the store's file and settings, and no secret it cannot name")
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
    ):
        result = place.fails(2, "init", "-c", "no.yaml", "--store", url,
                             says="--store-file")
        assert SECRET not in result.err, result
        equal(os.path.exists(place.file("no.yaml")), False)


with Server() as SERVER:
    main()
