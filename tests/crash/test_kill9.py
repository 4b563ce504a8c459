#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kill -9 of `postern serve`, hundreds of times, while messages are sent.

A sender posts numbered messages over the unix socket and records every
response; when the server dies during one, the result is unknown and the same
message is sent again. The test kills the server at random moments. At the end
the server runs until nothing is open, and then:

  - every message that was accepted has ended, in each handler;
  - the sql handler's row exists exactly once for each done one, and never
    for a message that was not sent;
  - the exec handler ran at least once for each done one;
  - the first response to a message was `accepted`, unless an earlier try of
    the same message had no response at all.

KILLS is the number of kills (default 200), SEED chooses the moments (printed).
"""

import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "server"))
from support import case, main  # noqa: E402

KILLS = int(os.environ.get("KILLS", "200"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
PATIENCE_S = 120
SENDERS = 4

CONFIG = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      ledger:
        sql: insert into effect(id, body) values (:id, :body)
        commit_batch: 10
      note:
        exec: [/bin/sh, -c, 'echo "$CE_ID" >> "$0"', {path}/note.out]
"""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the socket beside the store."""

    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(30)
        self.sock.connect(self.path)


class Sender(threading.Thread):
    """Posts messages one after the other until stopping is set."""

    def __init__(self, socket_path, number):
        super().__init__()
        self.socket_path = socket_path
        self.number = number
        self.stopping = False
        self.connection = None
        self.responses = {}  # id -> list of statuses, None for unknown
        self.sent = {}  # id -> body

    def post(self, message_id, body):
        """The status of the response, or None if there was none."""
        try:
            if self.connection is None:
                self.connection = UnixConnection(self.socket_path)
            self.connection.request(
                "POST",
                "/v1/channels/orders/messages",
                body=body,
                headers={
                    "ce-specversion": "1.0",
                    "ce-id": message_id,
                    "ce-source": "/kill9",
                    "ce-type": "order.placed",
                    "content-type": "text/plain",
                },
            )
            response = self.connection.getresponse()
            text = response.read()
            if response.status in (503, 429):
                return None
            return json.loads(text).get("status", str(response.status))
        except (OSError, http.client.HTTPException, ValueError):
            if self.connection is not None:
                self.connection.close()
            self.connection = None
            return None

    def run(self):
        count = 0
        while not self.stopping:
            count += 1
            message_id = f"m-{self.number}-{count}"
            body = f"body of {message_id}"
            self.sent[message_id] = body
            responses = self.responses.setdefault(message_id, [])
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until:
                responses.append(self.post(message_id, body))
                if responses[-1] is not None:
                    break
                time.sleep(0.002)
            # Every tenth is sent twice, as brokers do.
            if count % 10 == 0:
                responses.append(self.post(message_id, body))


def check_responses(sender):
    for message_id, responses in sender.responses.items():
        known = [response for response in responses if response is not None]
        assert known, f"{message_id} never had a response"
        assert set(known) <= {"accepted", "duplicate"}, f"{message_id}: {responses}"
        if responses[0] is not None:
            assert responses[0] == "accepted", f"{message_id}: {responses}"
        assert known.count("accepted") <= 1, f"{message_id}: {responses}"


def list_all(place):
    rows = []
    cursor = None
    while True:
        query = "/v1/deliveries?limit=1000" + (f"&cursor={cursor}" if cursor else "")
        connection = UnixConnection(place.file("box.db.sock"))
        connection.request("GET", query)
        page = json.loads(connection.getresponse().read())
        connection.close()
        rows += page["items"]
        cursor = page.get("cursor")
        if not cursor:
            return rows


def wait_until_settled(place):
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        rows = list_all(place)
        if all(row["state"] in ("done", "poisoned") for row in rows):
            return rows
        time.sleep(0.1)
    raise AssertionError("deliveries stay open: " + str(
        [row for row in rows if row["state"] not in ("done", "poisoned")][:5]))


def prepare(place):
    place.configure(CONFIG.format(path=place.path))
    assert place.serve().stop() == 0
    database = sqlite3.connect(place.file("box.db"))
    # No unique key: a second effect must be detected, not refused.
    database.execute("create table effect(id text, body text)")
    database.commit()
    database.close()


@case(f"{KILLS} kills lose nothing and double no transactional effect")
def _(place):
    print(f"# seed {SEED}", flush=True)
    dice = random.Random(SEED)
    prepare(place)
    senders = [Sender(place.file("box.db.sock"), i) for i in range(SENDERS)]
    server = place.serve(ready=False)
    for sender in senders:
        sender.start()
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.0, 0.12))
        server.stop(signal.SIGKILL)
        server = place.serve(ready=False)
    for sender in senders:
        sender.stopping = True
    for sender in senders:
        sender.join()
    rows = wait_until_settled(place)
    assert server.stop() == 0, server.stderr()

    accepted = {}
    for sender in senders:
        check_responses(sender)
        accepted.update(sender.sent)
    done = {"ledger": set(), "note": set()}
    states = {}
    for row in rows:
        key = (row["message_id"], row["handler"])
        assert key not in states, f"two deliveries of {key}"
        states[key] = row["state"]
        if row["state"] == "done":
            done[row["handler"]].add(row["message_id"])
    for message_id in accepted:
        for handler in done:
            assert (message_id, handler) in states, f"{message_id} lost for {handler}"
    assert {key[0] for key in states} == set(accepted), \
        "a delivery of a message that was never sent"

    database = sqlite3.connect(place.file("box.db"))
    effects = database.execute("select id, body from effect").fetchall()
    database.close()
    assert sorted(effect[0] for effect in effects) == sorted(done["ledger"]), \
        "effects and completions differ"
    assert all(accepted[effect[0]] == effect[1] for effect in effects), "wrong body"
    noted = set(place.read("note.out").split())
    assert done["note"] <= noted, "done without having run"
    assert noted <= set(accepted), "ran what was never sent"
    poisoned = sum(state == "poisoned" for state in states.values())
    print(f"# {len(accepted)} messages, {KILLS} kills, {poisoned} poisoned", flush=True)
    assert poisoned == 0, "a delivery was poisoned without a failure"


main()
