#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Workers of servers that share a PostgreSQL store."""

import json
import os
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import BIN, Server, environment  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

CONFIG = """\
listen: unix:${{DIR}}/{name}.sock
store: "{url}"
channels:
  orders:
    handlers:
      ship:
        pull: {{}}
        backoff: [0s]
"""


class Node:
    """A server with a configuration and a socket of its own."""

    def __init__(self, place, schema, name):
        place.write(f"{name}.yaml",
                    CONFIG.format(name=name, url=SERVER.url(schema=schema)))
        self.socket = place.file(f"{name}.sock")
        place.serve("-c", place.file(f"{name}.yaml"))

    def request(self, path, body, *headers):
        text = body if isinstance(body, str) else json.dumps(body)
        done = subprocess.run(
            ["curl", "-sS", "--unix-socket", self.socket,
             f"http://postern/v1/{path}", *headers, "--data-binary", "@-"],
            input=text.encode(), stdout=subprocess.PIPE, check=True, timeout=120,
        )
        return json.loads(done.stdout)

    def send(self, name):
        done = self.request("channels/orders/messages", "body",
                            "-H", f"Idempotency-Key: {name}")
        equal(done["status"], "accepted")

    def claim(self, **body):
        return self.request("handlers/ship/claim", body,
                            "-H", "Content-Type: application/json")["items"]

    def settle(self, *items, **more):
        body = {"items": [dict({"handler": "ship", "seq": item["seq"],
                                "fence": item["fence"]}, **more)
                          for item in items]}
        done = self.request("deliveries/settle", body,
                            "-H", "Content-Type: application/json")
        return [item["status"] for item in done["items"]]


@case("a worker that waits at one server gets what another server's fails")
def _(place):
    one, two = Node(place, "fails", "one"), Node(place, "fails", "two")
    one.send("a")
    (first,) = one.claim(wait="100s")
    again = []
    thread = threading.Thread(
        target=lambda: again.extend(two.claim(wait="100s")))
    thread.start()
    equal(one.settle(first, outcome="retry"), ["settled"])
    thread.join(60)
    equal([item["attempt"] for item in again], [2])
    equal(one.settle(first, outcome="done"), ["late"])
    equal(one.settle(*again, outcome="done"), ["settled"])


@case("a result is not late because its lease is extended at the same time")
def _(place):
    node = Node(place, "extended", "one")
    for outcome in ("done", "retry", "discard"):
        node.send(outcome)
        (item,) = node.claim(wait="100s", lease="300s")
        # An extension whose transaction has not ended.
        with subprocess.Popen(
                [os.path.join(BIN, "psql"), "-X", "-q", "-At", "-h", SERVER.path,
                 "-p", str(SERVER.port), "-U", "postern", "postern"],
                env=environment(), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True, bufsize=1) as session:
            session.stdin.write(
                "BEGIN; UPDATE extended.open SET due_at = due_at + 1000"
                f" WHERE seq = {item['seq']}; SELECT 'held';\n")
            equal(session.stdout.readline(), "held\n")
            answers = []
            thread = threading.Thread(
                target=lambda: answers.extend(node.settle(item, outcome=outcome)))
            thread.start()
            until(lambda: SERVER.sql(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock'") != ["0"])
            session.stdin.write("COMMIT;\n")
            session.stdin.close()
            thread.join(60)
        equal(answers, ["settled"], outcome)
        if outcome == "retry":
            equal(node.settle(*node.claim(wait="100s"), outcome="done"),
                  ["settled"])


if __name__ == "__main__":
    with Server() as SERVER:
        main()
