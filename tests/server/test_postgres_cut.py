#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The connection to the database is cut while a command or a server uses it.

A command starts, connects, checks the schema, registers and does its work;
each run of it is cut once, after another number of bytes in one direction. It
may reconnect. At the end nothing is lost or stored twice, and its output is
true.

CUTS is the number of cuts in each direction (default 20); 0: after every byte.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import Server  # noqa: E402
from proxy import TO_CLIENT, TO_SERVER, Proxy  # noqa: E402
from support import case, equal, main, until  # noqa: E402

CUTS = int(os.environ.get("CUTS", "20"))
SERVER = None  # one for all cases, started below

CONFIG = """\
store: "{url}"
defaults: {{node_lease: 500ms, polling_interval: 100ms, restart_delay: 50ms}}
channels:
  orders:
    handlers:
      row: {{sql: "insert into {schema}.effect values (:id)"}}
"""


# More than the bytes of one delivery from its claim to its end.
SERVE_BYTES = 1200


def moments(total):
    """The numbers of bytes after which to cut: all, or evenly spread ones."""
    if CUTS == 0 or total <= CUTS:
        return range(total)
    return [number * total // CUTS for number in range(CUTS)]


def prepare(place, proxy, schema):
    """Creates a store, and a configuration that uses the proxy."""
    direct = SERVER.url(schema=schema)
    place.configure(CONFIG.format(url=direct, schema=schema))
    place.ok("migrate")
    SERVER.sql(f"CREATE TABLE {schema}.effect (id text)")
    equal(place.send("first").out, "accepted\n")
    url = SERVER.url(port=proxy.port, schema=schema)
    place.configure(CONFIG.format(url=url, schema=schema))
    return direct


def measure(proxy, direction, run):
    """How many bytes a run takes that is not cut."""
    before = proxy.counts[direction]
    run()
    return proxy.counts[direction] - before


def stored(schema):
    return SERVER.sql(
        f"SELECT m.id, count(*), count(DISTINCT m.seq), count(o.seq)"
        f" FROM {schema}.message m LEFT JOIN {schema}.open o USING (seq)"
        f" GROUP BY m.id ORDER BY m.id"
    )


def cut_sending(place, direction, schema):
    """Each message is sent until it is stored."""
    sent = ["first", "second"]
    duplicates = 0
    with Proxy(SERVER.port) as proxy:
        prepare(place, proxy, schema)
        total = measure(
            proxy, direction, lambda: equal(place.send("second").out, "accepted\n")
        )
        for after in moments(total):
            name = f"m{after:06}"
            sent.append(name)
            proxy.strike(direction, after)
            result = place.send(name)
            assert proxy.struck, after
            if result.code == 0:
                # The command noticed the cut and checked the result.
                equal(result.out, "accepted\n", after, result)
            else:
                equal((result.code, result.out), (4, ""), after, result)
            proxy.calm()
            again = place.ok("send", "orders", "--id", name, stdin="body")
            if result.code == 0:
                equal(again.out, "duplicate\n", after, result)
            duplicates += again.out == "duplicate\n"
    print(f"# {len(sent) - 2} kills, {total} bytes {direction}")
    equal(stored(schema), [f"{name}|1|1|1" for name in sorted(sent)])
    equal(
        SERVER.sql(f"SELECT sum(duplicates), max(duplicates) FROM {schema}.duplicate"),
        [f"{duplicates}|1"],
    )


@case("a message is sent once, wherever the connection to the server is cut")
def _(place):
    cut_sending(place, TO_SERVER, "cut_sending_to")


@case("a message is sent once, wherever the connection from the server is cut")
def _(place):
    cut_sending(place, TO_CLIENT, "cut_sending_from")


def is_drained(schema):
    return not SERVER.sql(f"SELECT 1 FROM {schema}.open UNION ALL"
                          f" SELECT 1 FROM {schema}.staged")


def publish(schema, name):
    SERVER.sql(f"SELECT {schema}.publish('orders', 'a.type', 'body', '{name}')")


def cut_processing(place, direction, schema, published=False):
    """Each message is processed until it is done."""
    done = ["first", "second"]
    with Proxy(SERVER.port) as proxy:
        direct = prepare(place, proxy, schema)

        def add_message(name):
            if published:
                publish(schema, name)
            else:
                result = place.send(name, "body", "--store", direct)
                equal(result.out, "accepted\n")

        place.ok("process", "--ignore-failures")
        add_message("second")
        total = measure(proxy, direction, lambda: place.ok("process", "--ignore-failures"))
        spared = 0
        for after in moments(total):
            name = f"m{after:06}"
            done.append(name)
            add_message(name)
            proxy.strike(direction, after)
            result = place.run("process")
            # A slow run polls once more. If the measured run was slow, a fast
            # run sends fewer bytes and is not cut.
            assert proxy.struck or result.code == 0, (after, result)
            spared += not proxy.struck
            proxy.calm()
            until(lambda: place.ok("process", "--ignore-failures") and is_drained(schema))
        assert spared <= len(done) // 4, spared
    print(f"# {len(done) - 2 - spared} kills, {total} bytes {direction}")
    equal(
        SERVER.sql(f"SELECT id, count(*) FROM {schema}.effect GROUP BY id ORDER BY id"),
        [f"{name}|1" for name in sorted(done)],
    )
    equal(
        SERVER.sql(f"SELECT count(*), min(state), max(state) FROM {schema}.ledger"),
        [f"{len(done)}|3|3"],
    )


@case("a message is processed once, wherever the connection to the server is cut")
def _(place):
    cut_processing(place, TO_SERVER, "cut_processing_to")


@case("a message is processed once, wherever the connection from the server is cut")
def _(place):
    cut_processing(place, TO_CLIENT, "cut_processing_from")


@case("a published message is processed once, wherever the connection to the"
      " server is cut")
def _(place):
    cut_processing(place, TO_SERVER, "cut_published_to", True)


@case("a published message is processed once, wherever the connection from the"
      " server is cut")
def _(place):
    cut_processing(place, TO_CLIENT, "cut_published_from", True)


def cut_serving(place, direction, schema):
    """Another process sends each message, so that the server has to claim
    it."""
    sent = []
    with Proxy(SERVER.port) as proxy:
        direct = prepare(place, proxy, schema)
        place.write("direct.yaml", CONFIG.format(url=direct, schema=schema))
        server = place.serve()
        until(lambda: is_drained(schema))
        for after in moments(SERVE_BYTES):
            sent.append(f"m{after:06}")
            proxy.strike(direction, after)
            result = place.send(sent[-1], "body", "-c", "direct.yaml")
            equal(result.out, "accepted\n")
            until(lambda: proxy.struck and is_drained(schema))
        equal(server.stop(), 0)
    print(f"# {len(sent)} kills, {SERVE_BYTES} bytes {direction}")
    equal(
        SERVER.sql(f"SELECT id, count(*) FROM {schema}.effect GROUP BY id ORDER BY id"),
        [f"{name}|1" for name in ["first", *sorted(sent)]],
    )


@case("a server processes once, wherever the connection to the database is cut")
def _(place):
    cut_serving(place, TO_SERVER, "cut_serving_to")


@case("a server processes once, wherever the connection from the database is cut")
def _(place):
    cut_serving(place, TO_CLIENT, "cut_serving_from")


with Server() as SERVER:
    main()
