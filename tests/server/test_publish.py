#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Messages staged by postern.publish in a program's own transaction: they
commit or roll back with it, and are accepted once."""

import json
import os
import random
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import BIN, Server, ServerError, environment  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

CONFIG = """\
store: "{url}"
defaults: {{node_lease: 2s}}
channels:
  orders:
    max_message_size: 1000B
    handlers:
      row:
        sql: insert into public.effect (id, body) values (:id, :body)
  notes:
    unrouted: reject
    handlers:
      some: {{sql: "select 1", types: [note.wanted]}}
"""


def Client(user="postern"):
    """A session in which transactions stay open."""
    return SERVER.session(user)


def begin(place):
    """Creates a new schema and the tables of the test."""
    SERVER.sql("DROP SCHEMA IF EXISTS postern CASCADE;"
               "DROP TABLE IF EXISTS public.effect, public.business;"
               "CREATE TABLE public.effect (id text, body text);"
               "CREATE TABLE public.business (n integer)")
    place.configure(CONFIG.format(url=SERVER.url()))
    place.ok("migrate")
    place.ok("process", "--ignore-failures")  # registers the channels


def count(what, where="true"):
    (row,) = SERVER.sql(f"SELECT count(*) FROM {what} WHERE {where}")
    return int(row)


def publish(body="'text'", message_id="NULL", channel="orders", more=""):
    return (f"SELECT postern.publish('{channel}', 'order.placed', {body},"
            f" {message_id}{more})")


def refused(sql, *words):
    try:
        SERVER.sql(sql)
    except ServerError as error:
        for word in words:
            assert word in str(error), f"not {word!r}: {error}"
        return
    raise AssertionError(f"not refused: {sql}")


@case("a committed message is delivered once, and a rolled-back one never")
def _(place):
    begin(place)
    server = place.serve()
    with Client() as client:
        client.say("BEGIN; INSERT INTO business VALUES (1)")
        (first,) = client.say(publish("'one'"))
        client.say("COMMIT; BEGIN; INSERT INTO business VALUES (2)")
        client.say(publish("'two'", "'second'"))
        client.say("ROLLBACK")
        client.say(publish("'three'", "'third'"))
    until(lambda: count("public.effect") == 2)
    until(lambda: count("postern.ledger", "state = 3") == 2)
    equal(SERVER.sql("SELECT id, body FROM public.effect ORDER BY body"),
          [f"{first}|one", "third|three"])
    equal(server.stop(), 0)
    equal((count("postern.staged"), count("postern.message")), (0, 2))
    equal(SERVER.sql("SELECT DISTINCT transport FROM postern.message"),
          ["publish"])


@case("a staged message that cannot be accepted blocks no other, and is logged")
def _(place):
    begin(place)
    SERVER.sql(publish("'one'", "'a'"))
    place.ok("process", "--ignore-failures")
    # The stored message no longer matches the remembered id.
    SERVER.sql("UPDATE postern.message SET id = 'b'")
    for message_id in "xaz":
        SERVER.sql(publish("'one'", f"'{message_id}'"))
    server = place.serve()
    until(lambda: count("public.effect") == 3)
    until(lambda: count("postern.ledger", "state = 3") == 3)
    (row,) = SERVER.sql("SELECT id || ': ' || refused FROM postern.staged")
    assert row.startswith("a: ") and "does not match its remembered id" in row, row
    equal(server.stop(), 0)
    assert "1 staged message cannot be accepted" in server.stderr(), server.stderr()


@case("a failure to collect staged messages is logged")
def _(place):
    begin(place)
    SERVER.sql("ALTER FUNCTION postern.take_staged_1 RENAME TO gone_1")
    SERVER.sql(publish("'one'"))
    server = place.serve()
    until(lambda: "staged messages are not accepted" in server.stderr())
    equal(server.stop(), 0)


@case("a transaction that stays open blocks no other message and loses nothing")
def _(place):
    begin(place)
    server = place.serve()
    with Client() as slow:
        slow.say("BEGIN")
        slow.say(publish("'late'", "'late'"))
        for number in range(50):
            SERVER.sql(publish("'quick'", f"'quick-{number}'"))
        equal(place.send("sent").out, "accepted\n")
        until(lambda: count("public.effect") == 51)
        until(lambda: count("postern.node_sleep", "rests") == 1)
        slow.say("COMMIT")
        until(lambda: count("public.effect", "id = 'late'") == 1)
    equal(server.stop(), 0)
    equal((count("postern.staged"), count("public.effect")), (0, 52))


@case("messages staged while no node runs are collected by the next server")
def _(place):
    begin(place)
    SERVER.sql(publish("'waiting'", "'waiting'"))
    equal(place.serve().stop(), 0)
    place.serve()
    until(lambda: count("public.effect") == 1)


@case("process collects staged messages")
def _(place):
    begin(place)
    for number in range(3):
        SERVER.sql(publish("'by hand'", f"'hand-{number}'"))
    equal(place.process(), 3)
    equal(place.state("hand-2", "row"), "done")


@case("process collects a message staged after a thousand copies")
def _(place):
    begin(place)
    SERVER.sql(publish("'same'", "'copied'"))
    equal(place.process(), 1)
    SERVER.sql("SELECT count(postern.publish('orders', 'a', 'same'::text,"
               " 'copied')) FROM generate_series(1, 1000)")
    SERVER.sql(publish("'behind'", "'behind'"))
    equal(place.process(), 1)
    equal(place.state("behind", "row"), "done")


@case("a remembered id is a duplicate, with another body a conflict")
def _(place):
    begin(place)
    SERVER.sql(publish("'same'", "'twice'"))
    SERVER.sql(publish("'same'", "'twice'"))
    SERVER.sql(publish("'other'", "'twice'"))
    place.ok("process", "--ignore-failures")
    equal(place.send("twice", "same").out, "duplicate\n")
    equal(count("public.effect"), 1)
    shown = place.show("twice")
    equal((shown["duplicates"], len(shown["conflicts"])), (2, 1))


@case("a body is text, JSON or bytes, and arrives unchanged")
def _(place):
    begin(place)
    SERVER.sql(publish("'{\"a\": 1}'::jsonb", "'json'"))
    SERVER.sql(publish("'\\x00ff'::bytea", "'bytes'"))
    SERVER.sql(publish("'grün'::text", "'text'"))
    SERVER.sql(publish("''", "'empty'"))
    place.ok("process", "--ignore-failures")
    equal(place.show("json")["content_type"], "application/json")
    equal(SERVER.sql("SELECT encode(body, 'hex') FROM postern.message"
                     " ORDER BY id"),
          ["00ff", "", b'{"a": 1}'.hex(), "grün".encode().hex()])


@case("source, subject and headers arrive; some headers become attributes")
def _(place):
    begin(place)
    SERVER.sql(publish("'x'", "'full'", more=(
        ", '/shop', 'order 7', '{\"Kind\": \"a\", \"content-type\":"
        " \"text/csv\", \"Correlation-Id\": \"c1\", \"traceparent\": \"t1\"}'")))
    SERVER.sql("SELECT postern.publish(channel => 'orders', type => 'a',"
               " body => 'b', id => 'named', subject => 's')")
    place.ok("process", "--ignore-failures")
    shown = place.show("full")
    equal([shown[name] for name in ("source", "subject", "content_type",
                                    "correlation_id", "traceparent")],
          ["/shop", "order 7", "text/csv", "c1", "t1"])
    equal(shown["headers"], [{"name": "Kind", "value": "a"}])
    equal(place.show("named")["source"], "orders")


@case("an invalid message fails the whole transaction with the reason")
def _(place):
    begin(place)
    refused("BEGIN; INSERT INTO business VALUES (1);"
            + publish("repeat('x', 1001)") + "; COMMIT",
            "has 1001 bytes, the limit of channel \"orders\" is 1000",
            "max_message_size")
    equal(count("business"), 0)
    refused(publish(channel="nowhere"), 'no channel "nowhere"', "start")
    refused(publish("NULL::text"), "is NULL")
    refused(publish("'x'", "''"), "the id has 0 characters")
    refused(publish("'x'", "repeat('x', 201)"), "the id has 201 characters")
    refused(publish("'x'", "E'a\\nb'"), "the id contains a control character")
    refused(publish("'x'", "'a'", more=", ''"), "the source is empty")
    refused(publish("'x'", "'a'", more=", repeat('x', 1025)"), "the source is")
    refused(publish("'x'", "'a'", more=", 's', 's', '[1]'"), "JSON object")
    refused(publish("'x'", "'a'", more=", 's', 's', '{\"a\": 1}'"), "not a text")
    refused(publish("'x'", "'a'", more=", 's', 's', '{\"\": \"b\"}'"), "no name")
    refused(publish("'x'", "'a'", more=(
        ", 's', 's', (SELECT jsonb_object_agg('h' || n, '') FROM"
        " generate_series(1, 65) n)")), "65 headers")
    SERVER.sql(publish("repeat('x', 1000)", "repeat('ä', 200)"))
    equal(count("postern.staged"), 1)


@case("a row that publish did not write is refused and blocks no other")
def _(place):
    begin(place)
    SERVER.sql("INSERT INTO postern.staged (channel, id, type, body)"
               " VALUES (1, E'a\\tb', 'x', '')")
    SERVER.sql(publish("'good'", "'good'"))
    server = place.serve()
    until(lambda: count("public.effect") == 1)
    until(lambda: "cannot be accepted" in server.stderr())
    equal(SERVER.sql("SELECT refused FROM postern.staged"),
          ["the id contains a control character"])


@case("a row with headers that publish did not write blocks no other")
def _(place):
    begin(place)
    SERVER.sql("INSERT INTO postern.staged (channel, id, type, headers, body)"
               " VALUES (1, 'bad', 'x', '\\x61', '')")
    SERVER.sql(publish("'good'", "'good'"))
    server = place.serve()
    until(lambda: count("public.effect") == 1)
    until(lambda: "cannot be accepted" in server.stderr())


@case("staged and refused messages are counted by channel")
def _(place):
    begin(place)

    def counts():
        channels = place.ok("stats", "--json").json()["channels"]
        return {c["name"]: (c["staged"], c["refused"]) for c in channels}

    equal(counts(), {"orders": (0, 0), "notes": (0, 0)})
    with Client() as client:
        client.say("BEGIN")
        client.say(publish("'one'", "'a'"))
        equal(counts()["orders"], (0, 0))
        client.say("COMMIT")
    SERVER.sql(publish("'two'", "'b'"))
    SERVER.sql("INSERT INTO postern.staged (channel, id, type, body)"
               " VALUES (1, E'a\\tb', 'x', '')")
    equal(counts(), {"orders": (3, 0), "notes": (0, 0)})
    (head, orders, _) = place.ok("stats").out.splitlines()[:3]
    equal(head.split()[-2:], ["STAGED", "REFUSED"])
    equal(orders.split()[-2:], ["3", "0"])
    place.ok("process", "--ignore-failures")
    equal(counts(), {"orders": (0, 1), "notes": (0, 0)})


@case("a staged message without a handler is parked, also with unrouted: reject")
def _(place):
    begin(place)
    SERVER.sql(publish("'x'", "'unwanted'", channel="notes"))
    place.ok("process", "--ignore-failures")
    equal(count("postern.parked"), 1)


@case("staged messages wait for a node that has their channel")
def _(place):
    begin(place)
    SERVER.sql(publish("'x'", "'other'", channel="notes"))
    text = CONFIG.format(url=SERVER.url())
    place.configure(text[: text.index("  notes:")])
    SERVER.sql(publish("'x'", "'mine'"))
    place.ok("process", "--ignore-failures")
    equal((count("postern.staged"), count("public.effect")), (1, 1))


@case("a role with USAGE on the schema may publish, and nothing else")
def _(place):
    begin(place)
    SERVER.sql("DROP ROLE IF EXISTS shop; CREATE ROLE shop LOGIN;"
               "GRANT USAGE ON SCHEMA postern TO shop")
    with Client("shop") as client:
        client.say(publish("'from the shop'", "'shop'"))
        for table in ("staged", "message", "channel"):
            (answer,) = client.say(f"SELECT * FROM postern.{table}")
            assert "permission denied" in answer, answer
    place.ok("process", "--ignore-failures")
    equal(place.state("shop", "row"), "done")
    SERVER.sql("DROP OWNED BY shop; DROP ROLE shop")


# Operators and functions that shadow those of PostgreSQL, and note who runs them.
TRAP = """
CREATE SCHEMA trap AUTHORIZATION shop; SET ROLE shop; SET search_path = trap;
CREATE TABLE log (who text);
CREATE FUNCTION note(a {t}, b {u}) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO trap.log VALUES (current_user); RETURN true; END $$;
CREATE OPERATOR = (LEFTARG = {t}, RIGHTARG = {u}, FUNCTION = note);
CREATE OPERATOR > (LEFTARG = {t}, RIGHTARG = {u}, FUNCTION = note);
CREATE OPERATOR ~ (LEFTARG = {t}, RIGHTARG = {u}, FUNCTION = note);
CREATE OPERATOR <> (LEFTARG = {t}, RIGHTARG = {u}, FUNCTION = note);
"""
TRAP_FUNCTIONS = """
CREATE FUNCTION trap.octet_length(a text) RETURNS integer LANGUAGE sql AS
    $$ INSERT INTO trap.log VALUES (current_user); SELECT 1 $$;
CREATE FUNCTION trap.octet_length(a bytea) RETURNS integer LANGUAGE sql AS
    $$ INSERT INTO trap.log VALUES (current_user); SELECT 1 $$;
CREATE FUNCTION trap.jsonb_typeof(a jsonb) RETURNS text LANGUAGE sql AS
    $$ INSERT INTO trap.log VALUES (current_user); SELECT 'object' $$;
CREATE FUNCTION trap.gen_random_uuid() RETURNS uuid LANGUAGE sql AS
    $$ INSERT INTO trap.log VALUES (current_user);
       SELECT pg_catalog.gen_random_uuid() $$;
CREATE FUNCTION trap.pg_notify(a text, b text) RETURNS void LANGUAGE sql AS
    $$ INSERT INTO trap.log VALUES (current_user) $$;
"""


@case("names in the caller's search path are never run with the owner's rights")
def _(place):
    begin(place)
    SERVER.sql("CREATE ROLE shop; GRANT USAGE ON SCHEMA postern TO shop")
    text = TRAP.format(t="text", u="text")
    for left, right in (("integer", "integer"), ("integer", "bigint"),
                        ("bigint", "integer"), ("uuid", "uuid")):
        part = TRAP.format(t=left, u=right)
        text += part[part.index("CREATE FUNCTION"):]
    SERVER.sql(text + TRAP_FUNCTIONS)
    # The traps work.
    SERVER.sql("SET search_path = trap, pg_catalog;"
               " SELECT octet_length('a'::text) > 0")
    equal(SERVER.sql("SELECT count(*) FROM trap.log"), ["2"])
    SERVER.sql("TRUNCATE trap.log")
    more = (", 'source', 'subject', '{\"a\": \"b\"}'")
    SERVER.sql("SET ROLE shop; SET search_path = trap, pg_catalog;"
               + publish(message_id="NULL") + ";"
               + publish(message_id="'given'", more=more) + ";"
               "SELECT postern.publish_many('orders', 'a', array['x'::text],"
               " array['many'], 's', 's', '{\"a\": \"b\"}')")
    equal(SERVER.sql("SELECT DISTINCT who FROM trap.log WHERE who <> 'shop'"), [])
    equal(count("postern.staged"), 3)
    SERVER.sql("DROP OWNED BY shop; DROP ROLE shop")


@case("a handler publishes to another channel exactly once")
def _(place):
    begin(place)
    text = CONFIG.format(url=SERVER.url())
    place.configure(text + "  first: {handlers: {onward: {publish:"
                    " {channel: orders}, commit_batch: 10}}}\n")
    server = place.serve()
    for number in range(20):
        place.send(f"m{number}", str(number), channel="first")
    place.send("large", "x" * 1001, channel="first")
    until(lambda: count("public.effect") == 20)
    until(lambda: place.state("large", "onward") == "poisoned")
    equal(server.stop(), 0)
    equal(SERVER.sql("SELECT count(DISTINCT id) FROM public.effect"), ["20"])


@case("publish_many stages all messages or none, and returns their ids")
def _(place):
    begin(place)

    def many(bodies, ids="NULL", more=""):
        return (f"SELECT unnest(postern.publish_many('orders', 'order.placed',"
                f" {bodies}, {ids}{more}))")

    first = SERVER.sql(many("array['one', 'two', 'three']"))
    equal(len(set(first)), 3)
    equal(SERVER.sql(many("array['{\"a\": 4}', '5']::jsonb[]",
                          "array['four', NULL]",
                          ", '/shop', 's', '{\"Kind\": \"k\"}'"))[0], "four")
    refused("BEGIN; INSERT INTO business VALUES (1);"
            + many("array['x', repeat('x', 1001)]") + "; COMMIT",
            "body 2 has 1001 bytes", '"orders" is 1000')
    equal(count("business"), 0)
    refused(many("array['x', NULL]"), "body 2 is NULL")
    refused(many("array['x']", "array['a', 'b']"), "2 ids for 1 bodies")
    refused(many("array['x', 'y']", "array['a', '']"), "the id has 0 characters")
    refused(many("array['x']", more=", ''"), "the source is empty")
    refused(many("array['x']", more=", 's', 's', '{\"a\": 1}'"), "not a text")
    refused(many("array['x']").replace("'orders'", "'nowhere'"),
            'no channel "nowhere"')
    equal(SERVER.sql(many("array[]::text[]")), [])
    equal(place.process(), 5)
    equal(SERVER.sql("SELECT body FROM public.effect ORDER BY body"),
          ["5", "one", "three", "two", '{"a": 4}'])
    shown = place.show("four")
    equal((shown["source"], shown["subject"], shown["content_type"],
           shown["headers"]), ("/shop", "s", "application/json",
                               [{"name": "Kind", "value": "k"}]))


@case("publish_many pairs bodies and ids by their order, not by their indices")
def _(place):
    begin(place)

    def many(bodies, ids):
        return SERVER.sql("SELECT unnest(postern.publish_many('orders', 't',"
                          f" '{bodies}'::text[], '{ids}'::text[]))")

    equal(many("{a1,b2}", "[0:1]={a,b}"), ["a", "b"])
    equal(many("[5:6]={c3,d4}", "{c,d}"), ["c", "d"])
    equal(many("{{e5},{f6}}", "{{e},{f}}"), ["e", "f"])
    equal(place.process(), 6)
    equal(SERVER.sql("SELECT id || body FROM public.effect ORDER BY id"),
          ["aa1", "bb2", "cc3", "dd4", "ee5", "ff6"])


@case("messages staged in a channel that no node has are reported everywhere")
def _(place):
    begin(place)
    both = CONFIG.format(url=SERVER.url())
    alone = both[:both.index("  notes:")]
    for message_id in ("'a'", "'b'"):
        SERVER.sql(publish(message_id=message_id, channel="notes"))
    # The configuration with the channel passes check.
    place.ok("check")
    place.configure(alone)
    server = place.serve()
    said = "2 staged messages wait in channel 'notes', which no running node has"
    result = place.run("check")
    equal(result.code, 1, result)
    assert f"error: {said}" in result.out, result
    result = place.ok("stats")
    assert said in result.err, result
    (warning,) = place.ok("stats", "--json").json()["warnings"]
    equal((warning["channel"], warning["staged"]), ("notes", 2), warning)
    assert said in warning["text"], warning

    def channel_warnings():
        lines = [json.loads(line) for line in server.stderr().splitlines()]
        return [line for line in lines if "2 in channel 'notes'" in line["message"]]

    (line,) = until(channel_warnings)
    equal(line["level"], "warn", line)
    assert "which no running node has" in line["message"], line
    # A second node with the channel accepts them, and the report ends.
    place.write("both.yaml", both)
    other = place.serve("-c", "both.yaml")
    until(lambda: count("postern.staged", "refused IS NULL") == 0)
    place.ok("check")
    equal(place.ok("stats", "--json").json()["warnings"], [])
    equal(len(channel_warnings()), 1)
    equal((server.stop(), other.stop()), (0, 0))


@case("a store that is created is logged as created, once")
def _(place):
    begin(place)
    SERVER.sql("DROP SCHEMA postern CASCADE")
    for times in (1, 0):
        server = place.serve()
        equal(server.stop(), 0)
        lines = [json.loads(line) for line in server.stderr().splitlines()]
        made = [l for l in lines if l["message"].startswith("created store: ")]
        equal([l["level"] for l in made], ["info"] * times, lines)
        assert all('schema "postern" at ' in l["message"] for l in made), made
    SERVER.sql("DROP SCHEMA postern CASCADE")
    result = place.ok("migrate")
    assert "created store: schema" in result.err, result
    SERVER.sql("DROP SCHEMA postern CASCADE")
    result = place.ok("send", "orders", "--id", "a", stdin="x")
    assert "created store: schema" in result.err, result
    equal(place.send("b").err, "")


@case("with many publishers and killed servers each message is delivered once")
def _(place):
    begin(place)
    total = 2000
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"# seed {seed}")
    dice = random.Random(seed)

    def stage(first):
        with Client() as client:
            for number in range(first, total, 4):
                client.say("BEGIN; INSERT INTO business VALUES (1)")
                client.say(publish("'x'", f"'m-{number}'"))
                client.say("COMMIT")

    threads = [threading.Thread(target=stage, args=(n,)) for n in range(4)]
    servers = [place.serve() for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        victim = dice.randrange(2)
        servers[victim].stop(signal.SIGKILL)
        servers[victim] = place.serve()
    for thread in threads:
        thread.join()
    until(lambda: count("postern.ledger", "state = 3") == total)
    for server in servers:
        equal(server.stop(), 0)
    equal(count("postern.staged"), 0)
    equal(SERVER.sql("SELECT count(*), count(DISTINCT id) FROM public.effect"),
          [f"{total}|{total}"])
    equal(count("business"), total)


with Server() as SERVER:
    main()
