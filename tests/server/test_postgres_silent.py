#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A connection to the database goes silent: it stays open, TCP acknowledges
its bytes, and nothing arrives. The server continues with other connections.

The command timeout is longer than the test waits, so a step that waits for it
fails here."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import Server  # noqa: E402
from proxy import TO_CLIENT, TO_SERVER, Proxy  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

CONFIG = """\
listen: unix:${{DIR}}/api.sock
store: "{url}"
defaults:
  command_timeout: 10m
  node_lease: 6s
  polling_interval: 100ms
  restart_delay: 50ms
channels:
  orders:
    handlers:
      row: {{sql: "insert into {schema}.effect values (:id)"}}
"""

# After how many more bytes a connection goes silent: within an accept, a
# claim, a COMMIT or a renewal.
MOMENTS = (1, 150, 400, 900)


def prepare(place, proxy, schema):
    place.configure(CONFIG.format(url=SERVER.url(schema=schema), schema=schema))
    place.ok("migrate")
    SERVER.sql(f"CREATE TABLE {schema}.effect (id text)")
    url = SERVER.url(port=proxy.port, schema=schema)
    place.configure(CONFIG.format(url=url, schema=schema))


def post(place, name):
    """Sends a message to the server; returns the status."""
    done = subprocess.run(
        ["curl", "-sS", "--unix-socket", place.file("api.sock"),
         "http://postern/v1/channels/orders/messages",
         "-H", f"Idempotency-Key: {name}", "--data-binary", "body"],
        stdout=subprocess.PIPE, check=True, timeout=60,
    )
    return json.loads(done.stdout)["status"]


def nodes(schema):
    return SERVER.sql(f"SELECT node FROM {schema}.node")


def go_silent(place, direction, schema):
    """Each message is sent while one more connection goes silent."""
    sent = []
    with Proxy(SERVER.port) as proxy:
        prepare(place, proxy, schema)
        server = place.serve()
        equal(post(place, "first"), "accepted")
        until(lambda: SERVER.sql(f"SELECT id FROM {schema}.effect") == ["first"])
        before = nodes(schema)
        for after in MOMENTS:
            proxy.strike(direction, after, hold=True, only=True)
            sent += [f"m{after:03}-1", f"m{after:03}-2"]
            for name in sent[-2:]:
                equal(post(place, name), "accepted", after)
            until(lambda: proxy.struck and not SERVER.sql(
                f"SELECT 1 FROM {schema}.open"))
        # The node was renewed all the time.
        equal(nodes(schema), before, server.stderr())
        equal(server.stop(), 0)
    equal(
        SERVER.sql(f"SELECT id, count(*) FROM {schema}.effect GROUP BY id ORDER BY id"),
        [f"{name}|1" for name in ["first", *sorted(sent)]],
    )


@case("a server continues when nothing arrives at the database on one connection")
def _(place):
    go_silent(place, TO_SERVER, "silent_to")


@case("a server continues when nothing arrives from the database on one connection")
def _(place):
    go_silent(place, TO_CLIENT, "silent_from")


with Server() as SERVER:
    main()
