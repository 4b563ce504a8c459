#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""RabbitMQ with everything that breaks meanwhile: the server is killed, the
broker is restarted, connections are cut at random bytes, the database stops.
What was published is handled once, and nothing is dead-lettered."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

import rabbit
from support import case, equal, main, until

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import npm  # noqa: E402
import postgres  # noqa: E402
from proxy import TO_CLIENT, TO_SERVER, Proxy  # noqa: E402

SEED = int(os.environ.get("SEED", time.time_ns() % 1000000))
COUNT = int(os.environ.get("MESSAGES", 2000))
CUTS = int(os.environ.get("CUTS", 25))
STRIKES = int(os.environ.get("STRIKES", 5))
OUTAGE_S = int(os.environ.get("OUTAGE_S", 3))

LEDGER = "sql: insert into ledger (id) values (:id)"


def ledger(place):
    """How often each id is in the ledger of a SQLite store."""
    with sqlite3.connect(f"file:{place.file('box.db')}?mode=ro", uri=True,
                         timeout=60) as link:
        return link.execute("SELECT count(*), count(DISTINCT id) FROM ledger"
                            ).fetchone()


def create_ledger(place):
    place.ok("migrate")
    with sqlite3.connect(place.file("box.db")) as link:
        link.execute("CREATE TABLE ledger (id TEXT)")


def with_dead_letters(kind="quorum", **more):
    """A quorum queue, which dead-letters what is delivered too often; or a
    classic one, for the cases that kill the broker: in one of ten starts after
    a SIGKILL a quorum queue of RabbitMQ 3.10 answers no request until the next
    restart, whoever the client is."""
    dead = rabbit.queue()
    limit = {"x-delivery-limit": 200} if kind == "quorum" else {}
    queue = rabbit.queue(**{
        "x-queue-type": kind, **limit, "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead.name, **more})
    return queue, dead


def fill(queue, count):
    """Every tenth message twice; the forms take turns."""
    messages = []
    for i in range(count):
        name = f"m{i}"
        if i % 2:
            message = (b"{}", {"headers": {
                "cloudEvents_specversion": "1.0", "cloudEvents_id": name,
                "cloudEvents_source": "in", "cloudEvents_type": "t"}})
        else:
            message = (b"{}", {"message_id": name, "type": "t"})
        messages += [message] * (2 if i % 10 == 0 else 1)
    queue.put_all(messages)


def await_ledger(place, count):
    until(lambda: ledger(place)[1] == count, 300)
    until(lambda: place.ok("stats", "--json").json()["handlers"][0]["done"] == count)
    equal(ledger(place), (count, count))


@case("a killed server loses no message and handles none twice")
def _(place):
    print(f"# SEED={SEED}")
    chance = random.Random(SEED)
    queue, dead = with_dead_letters()
    place.configure(rabbit.inbox([rabbit.source(queue.name, prefetch=100)], LEDGER))
    create_ledger(place)
    fill(queue, COUNT)
    for _ in range(6):
        server = place.serve()
        before = ledger(place)[0]
        until(lambda: ledger(place)[0] > min(before + chance.randrange(200), COUNT - 1))
        server.stop(signal.SIGKILL)
    place.serve()
    await_ledger(place, COUNT)
    until(lambda: queue.count() == 0)
    equal(dead.count(), 0)


@case("a connection that is cut at any byte loses no message")
def _(place):
    chance = random.Random(SEED)
    queue, dead = with_dead_letters()
    with Proxy(rabbit.server.port) as proxy:
        url = rabbit.server.url(port=proxy.port)
        place.configure(rabbit.inbox(
            [rabbit.source(queue.name, url, prefetch=20, heartbeat="1s")], LEDGER))
        create_ledger(place)
        fill(queue, COUNT)
        place.serve()
        for cut in range(CUTS):
            way = TO_SERVER if cut % 3 == 0 else TO_CLIENT
            held = cut % 8 == 7  # silent instead: the heartbeat finds out
            proxy.strike(way, chance.randrange(1 + 2 ** chance.randrange(16)), hold=held)
            until(lambda: proxy.struck or ledger(place)[1] == COUNT)
            if held:
                until(lambda: not rabbit.state(place)["connected"]
                      or rabbit.state(place)["last_error"])
                proxy.calm()
        proxy.calm()
        await_ledger(place, COUNT)
        until(lambda: queue.count() == 0)
        equal(dead.count(), 0)
        equal(place.started[0].stop(), 0)


def broker_ends(place, kind, number):
    queue, dead = with_dead_letters(kind)
    place.configure(rabbit.inbox([rabbit.source(queue.name, prefetch=50)], LEDGER))
    create_ledger(place)
    fill(queue, COUNT)
    place.serve()
    until(lambda: ledger(place)[0] > 100)
    rabbit.server.end(number)
    until(lambda: not rabbit.state(place)["connected"])
    rabbit.server.start()
    await_ledger(place, COUNT)
    until(lambda: queue.count() == 0)
    equal(dead.count(), 0)


@case("a broker that is killed and started again delivers the rest")
def _(place):
    broker_ends(place, "classic", signal.SIGKILL)


@case("a broker that is restarted delivers the rest of a quorum queue")
def _(place):
    broker_ends(place, "quorum", signal.SIGTERM)


def orders(server, first, count):
    """Each transaction writes an order and stages its message; every fifth one
    is rolled back."""
    for i in range(first, first + count):
        end = "ROLLBACK" if i % 5 == 0 else "COMMIT"
        server.sql(
            f"BEGIN; INSERT INTO orders VALUES ('o{i}');"
            f"SELECT postern.publish('out', 'order.placed', '{{}}', 'o{i}');{end}")


def await_server(place):
    """The server runs, and its database answers."""
    until(lambda: place.run("stats").code == 0)


@case("what is staged with an order is charged once, whatever breaks")
def _(place):
    chance = random.Random(SEED)
    queue, dead = with_dead_letters("classic")
    with postgres.Server(durable=True) as database, \
            Proxy(rabbit.server.port) as proxy:
        database.sql("CREATE TABLE orders (id text PRIMARY KEY);"
                     "CREATE TABLE charges (id text)")
        url = rabbit.server.url(port=proxy.port)
        place.configure(f"""\
store: "{database.url()}"
defaults: {{node_lease: 2s, restart_delay: 200ms, command_timeout: 5s}}
channels:
  out:
    handlers:
{rabbit.publisher(url=url, routing_key=queue.name, heartbeat="2s")}
  payments:
    sources:
      - {rabbit.source(queue.name, url, prefetch=50, heartbeat="2s")}
    handlers:
      charge: {{sql: insert into public.charges (id) values (:id)}}
""")
        place.ok("migrate")
        server = place.serve()
        for part in range(8):
            orders(database, part * 50, 50)
            what = part % 4
            if what == 0:
                server.stop(signal.SIGKILL)
                server = place.serve()
            elif what == 1:
                proxy.strike(TO_SERVER, chance.randrange(5000))
            elif what == 2:
                proxy.strike(TO_CLIENT, chance.randrange(5000))
            else:
                database.end(signal.SIGKILL)
                time.sleep(chance.random())
                database.start()
        rabbit.server.end(signal.SIGKILL)
        orders(database, 400, 20)
        rabbit.server.start()
        wanted = int(database.sql("SELECT count(*) FROM orders")[0])
        equal(wanted, 420 * 4 // 5)

        def charged():
            return database.sql(
                "SELECT count(*), count(DISTINCT id) FROM charges")[0]

        until(lambda: charged().split("|")[1] == str(wanted), 300)
        await_server(place)
        until(lambda: queue.count() == 0)
        equal(charged(), f"{wanted}|{wanted}")
        equal(database.sql("SELECT count(*) FROM orders o WHERE NOT EXISTS"
                           " (SELECT 1 FROM charges c WHERE c.id = o.id)"), ["0"])
        equal(place.ok("list", "--state", "poisoned", "--json").json(), [])
        equal(dead.count(), 0)


@case("a transaction that stays open is relayed after later ones, and not lost")
def _(place):
    queue, dead = with_dead_letters("quorum")
    with postgres.Server(durable=True) as database:
        database.sql("CREATE TABLE orders (id text PRIMARY KEY);"
                     "CREATE TABLE charges (id text)")
        place.configure(f"""\
store: "{database.url()}"
defaults: {{node_lease: 2s}}
channels:
  out:
    handlers:
{rabbit.publisher(routing_key=queue.name)}
  payments:
    sources:
      - {rabbit.source(queue.name)}
    handlers:
      charge: {{sql: insert into public.charges (id) values (:id)}}
""")
        place.ok("migrate")
        server = place.serve()

        def charged():
            return int(database.sql("SELECT count(DISTINCT id) FROM charges")[0])

        with database.session() as slow, database.session() as back:
            for session, name in ((slow, "late"), (back, "never")):
                session.say(f"BEGIN; INSERT INTO orders VALUES ('{name}');"
                            f"SELECT postern.publish('out', 't', '{{}}', '{name}')")
            # Later transactions commit and are relayed, by one server and the next.
            orders(database, 0, 50)
            until(lambda: charged() == 40)
            server.stop(signal.SIGKILL)
            orders(database, 50, 50)
            server = place.serve()
            until(lambda: charged() == 80)
            slow.say("COMMIT")
            back.say("ROLLBACK")
            orders(database, 100, 10)
        until(lambda: charged() == 89)
        until(lambda: queue.count() == 0)
        equal(database.sql("SELECT id FROM orders ORDER BY 1"),
              database.sql("SELECT id FROM charges ORDER BY 1"))
        equal(dead.count(), 0)
        equal(server.stop(), 0)


def strike(part, place, server, database, proxy, chance):
    """One fault, while messages are published and handled; returns the server."""
    what = part % 5
    if what == 0:
        server.stop(signal.SIGKILL)
        server = place.serve()
    elif what in (1, 2):
        for _ in range(4):
            proxy.strike((TO_SERVER, TO_CLIENT)[what - 1],
                         chance.randrange(2 ** chance.randrange(4, 17)))
            time.sleep(chance.random() / 4)
    elif what == 3:
        database.end(signal.SIGKILL)
        time.sleep(OUTAGE_S)
        database.start()
    else:
        rabbit.server.end(signal.SIGKILL)
        rabbit.server.start()
    return server


@case("what amqplib publishes in a storm of faults is handled once")
def _(place):
    print(f"# SEED={SEED}")
    chance = random.Random(SEED)
    queue, dead = with_dead_letters("classic")
    with postgres.Server(durable=True) as database, \
            Proxy(rabbit.server.port) as proxy:
        database.sql("CREATE TABLE public.ledger (id text)")
        url = rabbit.server.url(port=proxy.port)
        place.configure(rabbit.inbox(
            [rabbit.source(queue.name, url, prefetch=100, heartbeat="2s")],
            "sql: insert into public.ledger (id) values (:id)",
            store=f'"{database.url()}"').replace(
                "restart_delay: 200ms",
                "restart_delay: 200ms, node_lease: 2s, command_timeout: 5s"))
        place.ok("migrate")
        server = place.serve()
        publisher = npm.start("publish_amqp.js", rabbit.server.url(), queue.name,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for part in range(STRIKES):
            wanted = (part + 1) * COUNT // STRIKES
            publisher.stdin.write(f"{wanted}\n".encode())
            publisher.stdin.flush()
            server = strike(part, place, server, database, proxy, chance)
            equal(int(publisher.stdout.readline()), wanted)
        publisher.stdin.close()
        equal(publisher.wait(60), 0)
        proxy.calm()

        def handled():
            return database.sql("SELECT count(*), count(DISTINCT id) FROM public.ledger")[0]

        until(lambda: handled().split("|")[1] == str(COUNT), 300)
        await_server(place)
        until(lambda: queue.count() == 0)
        equal(handled(), f"{COUNT}|{COUNT}")
        equal(database.sql(f"SELECT count(*) FROM generate_series(0, {COUNT - 1}) AS n"
                           " WHERE NOT EXISTS (SELECT 1 FROM public.ledger"
                           " WHERE id = 'm' || n)"), ["0"])
        until(lambda: place.ok("stats", "--json").json()["handlers"][0]["done"] == COUNT)
        for state in ("poisoned", "parked", "discarded", "pending"):
            equal(place.ok("list", "--state", state, "--json").json(), [], state)
        equal(dead.count(), 0)
        print(f"# {COUNT} messages, {COUNT // 10} of them twice: each handled once")


@case("a database that is away for long dead-letters nothing")
def _(place):
    # Two deliveries are allowed: giving messages back would exceed that.
    queue, dead = with_dead_letters(**{"x-delivery-limit": 1})
    with postgres.Server(durable=True) as database:
        place.configure(rabbit.inbox(
            [rabbit.source(queue.name)], "sql: insert into charges (id) values (:id)",
            store=f'"{database.url()}"').replace(
                "into charges", "into public.charges").replace(
                "restart_delay: 200ms", "restart_delay: 50ms, command_timeout: 1s"))
        database.sql("CREATE TABLE charges (id text)")
        place.ok("migrate")
        place.serve()
        queue.put(message_id="first")
        until(lambda: database.sql("SELECT count(*) FROM charges") == ["1"])
        database.end(signal.SIGKILL)
        fill(queue, 200)
        # The longer it lasts, the more often each message is tried again.
        time.sleep(5)
        database.start()
        until(lambda: database.sql("SELECT count(*) FROM charges") == ["201"])
        until(lambda: queue.count() == 0)
        equal(dead.count(), 0)


def set_consumer_timeout(ms, interval_ms):
    """How long a broker waits for an acknowledgement, and how often it looks."""
    rabbit.server.control(
        "eval", f"application:set_env(rabbit, consumer_timeout, {ms}), "
        f"application:set_env(rabbit, channel_tick_interval, {interval_ms}).")


@case("a database that is away for longer than the broker waits costs one delivery")
def _(place):
    # Three deliveries are allowed.
    queue, dead = with_dead_letters(**{"x-delivery-limit": 2})
    set_consumer_timeout(1000, 200)
    with postgres.Server(durable=True) as database:
        place.configure(rabbit.inbox(
            [rabbit.source(queue.name)], "sql: insert into public.ledger (id) values (:id)",
            store=f'"{database.url()}"').replace(
                "restart_delay: 200ms", "restart_delay: 50ms, command_timeout: 1s"))
        database.sql("CREATE TABLE public.ledger (id text)")
        place.ok("migrate")
        server = place.serve()
        until(lambda: "connected source 'in.rabbitmq'" in server.stderr())
        database.end(signal.SIGKILL)
        fill(queue, 100)
        until(lambda: "timed out" in server.stderr())
        # Several times as long as the broker waits, with reconnects.
        time.sleep(8)
        database.start()
        until(lambda: database.sql("SELECT count(DISTINCT id) FROM public.ledger") == ["100"])
        until(lambda: queue.count() == 0)
        equal(database.sql("SELECT count(*) FROM public.ledger"), ["100"])
        equal(dead.count(), 0)
        equal(server.stop(), 0)
    set_consumer_timeout(1800000, 60000)


@case("a handler that runs for longer than the broker waits has run once")
def _(place):
    queue, dead = with_dead_letters(**{"x-delivery-limit": 20})
    queue.put(message_id="m1")
    set_consumer_timeout(1000, 200)
    place.configure(rabbit.inbox(
        [rabbit.source(queue.name)],
        "exec: [/bin/sh, -c, 'echo $CE_ID >> ${DIR}/log.out; "
        "until test -e ${DIR}/good; do sleep 0.1; done']",
        more="    mode: guard\n"))
    server = place.serve()
    until(lambda: server.stderr().count("timed out") >= 2)
    place.write("good", "")
    until(lambda: queue.count() == 0 and rabbit.state(place)["in_flight"] == 0
          and rabbit.state(place)["accepted"] == 1)
    equal(server.stop(), 0)
    equal((queue.count(), dead.count(), place.read("log.out").split()),
          (0, 0, ["m1"]))
    set_consumer_timeout(1800000, 60000)


rabbit.main(main)
