#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The upgrade of a PostgreSQL schema of an older version, which contains
messages."""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import BIN, Server, ServerError, environment  # noqa: E402
from support import POSTERN, case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below
FIXTURE = os.path.join(os.path.dirname(__file__), "postgres_schema_1.sql")
UNREACHABLE = 4

CONFIG = """\
store: "{url}"
defaults: {{node_lease: 2s, polling_interval: 100ms}}
channels:
  orders:
    handlers:
      book: {{exec: [/bin/true], types: [placed]}}
      fail: {{exec: [/bin/true], types: [slow, broken]}}
"""

# Everything that two schemas may differ in, but for their names and comments.
CATALOG = """\
WITH own AS (SELECT oid FROM pg_namespace WHERE nspname = '{schema}')
SELECT line FROM (
	SELECT format('column %s.%s %s %s %s %s', c.relname, a.attname,
		format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
		pg_get_expr(d.adbin, d.adrelid)) AS line
	FROM own JOIN pg_class c ON c.relnamespace = own.oid AND c.relkind = 'r'
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
		AND NOT a.attisdropped
	LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
	UNION ALL SELECT format('table %s %s %s', c.relname, c.relpersistence,
		c.reloptions)
	FROM own JOIN pg_class c ON c.relnamespace = own.oid AND c.relkind = 'r'
	UNION ALL SELECT format('index %s', pg_get_indexdef(i.indexrelid))
	FROM own JOIN pg_class c ON c.relnamespace = own.oid
	JOIN pg_index i ON i.indrelid = c.oid
	UNION ALL SELECT format('constraint %s %s', conrelid::regclass,
		pg_get_constraintdef(k.oid))
	FROM own JOIN pg_constraint k ON k.connamespace = own.oid
	UNION ALL SELECT format('trigger %s', pg_get_triggerdef(t.oid))
	FROM own JOIN pg_class c ON c.relnamespace = own.oid
	JOIN pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
	UNION ALL SELECT format('sequence %s %s %s', c.relname, s.seqincrement,
		s.seqmin)
	FROM own JOIN pg_class c ON c.relnamespace = own.oid
	JOIN pg_sequence s ON s.seqrelid = c.oid
	UNION ALL SELECT format('function %s', pg_get_functiondef(p.oid))
	FROM own JOIN pg_proc p ON p.pronamespace = own.oid) AS f ORDER BY line
"""


def load(schema):
    """Makes a store of version 1; returns its URL."""
    with open(FIXTURE, encoding="utf-8") as file:
        text = re.sub(r"\bpostern\b(?=[.;])", schema, file.read())
    done = subprocess.run(
        [os.path.join(BIN, "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h",
         SERVER.path, "-p", str(SERVER.port), "-U", "postern", "-d", "postern"],
        env=environment(), input=text, text=True, capture_output=True,
        check=False)
    equal((done.returncode, done.stderr), (0, ""))
    return SERVER.url(schema=schema)


def prepare(place, schema, **options):
    load(schema)
    place.configure(CONFIG.format(url=SERVER.url(schema=schema, **options)))


def version(schema):
    (text,) = SERVER.sql("SELECT convert_from(value, 'UTF8')"
                         f" FROM {schema}.meta WHERE name = 'version'")
    return text


def catalog(schema):
    """The objects of a schema, as lines without its name."""
    text = "\n".join(SERVER.sql(CATALOG.format(schema=schema)))
    return set(text.replace(f"'{schema}.", "'SCHEMA.")
               .replace(f'"{schema}".', "SCHEMA.")
               .replace(f"{schema}.", "SCHEMA.").splitlines())


def newest():
    SERVER.sql("DROP SCHEMA IF EXISTS fresh CASCADE")
    subprocess.run([POSTERN, "migrate", "--store", SERVER.url(schema="fresh")],
                   check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return version("fresh")


@case("an upgraded schema has the same objects as a new one")
def _(place):
    prepare(place, "alike")
    place.ok("migrate")
    equal(version("alike"), newest())
    old, new = catalog("alike"), catalog("fresh")
    equal((old - new, new - old), (set(), set()))


@case("an upgraded store keeps its messages and goes on with them")
def _(place):
    prepare(place, "kept")
    equal(version("kept"), "1")
    place.ok("migrate")
    # The node that leased one of them is ended, whatever its lease says.
    equal(SERVER.sql("SELECT count(*) FROM kept.node"), ["0"])
    place.ok("process", "--ignore-failures")
    place.ok("retry", "--state", "poisoned", "--yes")
    place.ok("process", "--ignore-failures")
    for name, handler in (("done", "book"), ("leased", "book"),
                          ("staged", "book"), ("retried", "fail"),
                          ("poisoned", "fail")):
        equal(place.state(name, handler), "done", name)
    equal(place.send("leased", "body", "--type", "placed").out, "duplicate\n")
    equal(place.send("leased", "other", "--type", "placed").code, 1)
    equal(place.send("done", '{"n": 1}', "--type", "placed", "--source",
                     "shop").out, "duplicate\n")
    equal(place.send("new", "body", "--type", "placed").out, "accepted\n")
    equal([row["message_id"] for row in
           place.ok("list", "--state", "parked", "--json").json()], ["parked"])


@case("of many processes that start at once one upgrades, and all succeed")
def _(place):
    for round_ in range(3):
        prepare(place, f"raced{round_}")
        commands = [
            place.start([POSTERN, "migrate"], stdout=subprocess.DEVNULL)
            for _ in range(6)
        ]
        for command in commands:
            equal(command.process.wait(60), 0, command.stderr())
        equal(version(f"raced{round_}"), newest())


@case("a process that is killed during the upgrade leaves version 1")
def _(place):
    prepare(place, "killed")
    before = catalog("killed")
    # The upgrade has changed everything but the version, for which it waits.
    psql = place.start(
        [os.path.join(BIN, "psql"), "-X", "-q", "-h", SERVER.path, "-p",
         str(SERVER.port), "-U", "postern", "-d", "postern"],
        stdin=subprocess.PIPE)
    psql.process.stdin.write(
        b"BEGIN; LOCK TABLE killed.meta IN SHARE MODE;\n")
    psql.process.stdin.flush()
    until(lambda: SERVER.sql(
        "SELECT count(*) FROM pg_locks WHERE mode = 'ShareLock'"
        " AND relation = 'killed.meta'::regclass") == ["1"])
    command = place.start([POSTERN, "migrate"])
    until(lambda: SERVER.sql(
        "SELECT count(*) FROM pg_locks WHERE NOT granted"
        " AND relation = 'killed.meta'::regclass") == ["1"])
    command.process.kill()
    command.process.wait()
    # The server notices when the statement ends.
    psql.process.stdin.write(b"COMMIT;\n")
    psql.process.stdin.close()
    equal(psql.process.wait(60), 0)
    until(lambda: SERVER.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle'"
        " AND application_name <> 'psql' AND datname = 'postern'") == ["0"])
    equal(version("killed"), "1")
    equal(catalog("killed"), before)
    place.ok("migrate")
    equal(version("killed"), newest())


@case("commands that must not upgrade report the version and change nothing")
def _(place):
    prepare(place, "asked")
    before = catalog("asked")
    for words in (["list"], ["stats"], ["process"], ["send", "orders"]):
        place.fails(UNREACHABLE, *words, says="has version 1: run 'postern migrate'")
    checked = place.run("check")
    equal(checked.code, UNREACHABLE)
    assert "has version 1: run 'postern migrate'" in checked.out, checked
    equal(catalog("asked"), before)


@case("serve upgrades a store before it works")
def _(place):
    prepare(place, "served")
    server = place.serve()
    equal(version("served"), newest())
    until(lambda: place.state("leased", "book") == "done")
    equal(server.stop(), 0)


@case("a node of the former version that enrols again fails and is told why")
def _(place):
    prepare(place, "former")
    place.ok("migrate")
    try:
        SERVER.sql("SELECT former.enrol_node_1(1, NULL, 1000, '{1}', 'host', 7,"
                   " false)")
        raise AssertionError("enrolled")
    except ServerError as error:
        assert "restart it with a newer postern" in str(error), error


@case("functions keep their privileges and what depends on them")
def _(place):
    prepare(place, "granted")
    SERVER.sql("CREATE ROLE shop LOGIN; CREATE ROLE other LOGIN;"
               " GRANT USAGE ON SCHEMA granted TO shop, other;"
               " REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA granted FROM PUBLIC;"
               " GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA granted TO shop;"
               " CREATE VIEW public.staging AS SELECT"
               " granted.publish('orders', 'placed', 'x', 'viewed')")
    place.ok("migrate")
    publish = "SELECT granted.publish('orders', 'placed', 'x', '{}')"
    equal(SERVER.sql(publish.format("s"), user="shop"), ["s"])
    equal(SERVER.sql("SELECT * FROM public.staging"), ["viewed"])
    for name in ("publish(text, text, text, text, text, text, jsonb)",
                 "stage_1(text, text, bytea, text, text, text, jsonb, text, text, text, text)"):
        equal(SERVER.sql("SELECT has_function_privilege('other',"
                         f" 'granted.{name}', 'EXECUTE')"), ["f"])
    place.ok("process", "--ignore-failures")
    equal(place.state("viewed", "book"), "done")


@case("a user who does not own the schema is told who upgrades it")
def _(place):
    SERVER.sql("CREATE ROLE worker LOGIN")
    load("owned")
    SERVER.sql("GRANT USAGE ON SCHEMA owned TO worker;"
               " GRANT ALL ON ALL TABLES IN SCHEMA owned TO worker")
    place.configure(CONFIG.format(url=SERVER.url(schema="owned", user="worker")))
    result = place.run("migrate")
    equal(result.code, UNREACHABLE, result)
    assert "'postern migrate' as its owner" in result.err, result
    equal(version("owned"), "1")


with Server() as SERVER:
    main()
