#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kill -9 of `postern serve` under the load of many clients over TCP, and of the
workers that pull from it.

64 clients send over connections that stay open: CloudEvents in binary and in
structured form, raw messages, and webhooks that are signed; each tenth twice, and
each tenth again with another body.
Three handlers get them: workers that claim over HTTP, a transactional statement,
and for some of them a webhook to a receiver. At random moments the server is
killed, or a worker. At the end everything runs until nothing is open, and the
checker compares what clients, workers and the receiver have recorded with the
tables.

CLIENT_KILLS is the number of kills of the server (default 10); a worker is killed
for each of them, too. SEED chooses the moments (printed).
"""

import hashlib
import hmac
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
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
for room in ("checker", "server", "support"):
    sys.path.insert(0, os.path.join(HERE, "..", room))
import check  # noqa: E402
import history  # noqa: E402
import postgres_dump  # noqa: E402
import sqlite_dump  # noqa: E402
from postgres import Server  # noqa: E402
from receiver import Receiver, answer  # noqa: E402
from support import case, equal, main, until  # noqa: E402
from writer import Writer  # noqa: E402

KILLS = int(os.environ.get("CLIENT_KILLS", "10"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
PATIENCE_S = 180
CLIENTS = 64
WORKERS = 3
# Between two messages of a client, so that the work fits on a small machine.
PAUSE_S = 0.05
SECRET = b"a secret of the sender"

CONFIG = """\
listen: 127.0.0.1:{port}
store: "{store}"
defaults: {{backoff: [50ms], max_attempts: {attempts}, node_lease: 3s}}
channels:
  orders:
    sources:
      - webhook: {{name: hub, verify: github, secret: "{secret}"}}
    handlers:
      ship: {{pull: {{}}}}
      ledger: {{sql: "insert into effect(id) values (:id)", commit_batch: 10}}
      notify:
        types: [order.told, push]
        webhook: {{url: "{url}"}}
        timeout: 5s
"""

# Ended leases of a worker are failures that no run has reported.
ATTEMPTS = 1000
HISTORY_CONFIG = {
    "e": "config",
    "handlers": {
        "ship": {"transactional": False, "max_attempts": ATTEMPTS,
                 "channel": "orders", "timeouts": True},
        "ledger": {"transactional": True, "max_attempts": ATTEMPTS,
                   "channel": "orders"},
        "notify": {"transactional": False, "max_attempts": ATTEMPTS,
                   "timeouts": True},
    },
    "retention": {"payload_ms": 0, "dedupe_ms": 0},
    "told_late": True,
}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def binary(message_id, body, kind):
    return "messages", body, "/shop", {
        "ce-specversion": "1.0", "ce-id": message_id, "ce-source": "/shop",
        "ce-type": kind, "content-type": "application/json"}


def structured(message_id, body, kind):
    event = f'{{"specversion":"1.0","id":"{message_id}","source":"/shop",' \
        f'"type":"{kind}","data":{body}}}'
    return "messages", event, "/shop", {"content-type": "application/cloudevents+json"}


def raw(message_id, body, _):
    return "messages", body, "orders", {
        "idempotency-key": f'"{message_id}"', "content-type": "application/json"}


def signed(message_id, body, _):
    digest = hmac.new(SECRET, body.encode(), hashlib.sha256).hexdigest()
    return "webhooks/hub", body, "orders", {
        "x-github-delivery": message_id, "x-github-event": "push",
        "x-hub-signature-256": f"sha256={digest}", "content-type": "application/json"}


FORMS = (binary, structured, raw, signed)


class Client(threading.Thread):
    """Sends messages one after the other over a connection of its own."""

    def __init__(self, address, number, writer):
        super().__init__(daemon=True)
        self.address = address
        self.number = number
        self.writer = writer
        self.stopping = False
        self.connection = None
        self.statuses = Counter()
        self.odd = []  # answers that nobody should get

    def post(self, path, body, headers):
        """The status and the answer; (0, {}) if there was none."""
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection(self.address, timeout=30)
            self.connection.request("POST", f"/v1/channels/orders/{path}", body, headers)
            response = self.connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError):
            if self.connection:
                self.connection.close()
            self.connection = None
            return 0, {}

    def send(self, message_id, body, form):
        """Whether the message is known to be in the store."""
        kind = "order.told" if self.number % 8 == 0 else "order.placed"
        path, text, source, headers = form(message_id, body, kind)
        who = {"channel": "orders", "source": source, "id": message_id, "body": body}
        self.writer.write("send", **who)
        status, told = self.post(path, text, headers)
        result = {202: "accepted", 200: "duplicate", 409: "conflict"}.get(status, "failed")
        more = {"seq": told["seq"]} if "seq" in told else {}
        self.writer.write("receipt", result=result, **who, **more)
        self.statuses[status] += 1
        if status not in (0, 200, 202, 409, 429, 503):
            self.odd.append((status, told))
            return True
        return result != "failed"

    def run(self):
        count = 0
        while not self.stopping:
            count += 1
            message_id = f"m-{self.number}-{count}"
            body = f'{{"of":"{message_id}","n":{2**60 + count}}}'
            form = FORMS[(self.number + count) % len(FORMS)]
            while not self.send(message_id, body, form):
                time.sleep(0.02)
            if count % 10 == 0:
                self.send(message_id, body, form)
            if count % 10 == 5:
                self.send(message_id, f'{{"of":"{message_id}"}}', form)
            time.sleep(PAUSE_S)


class Workers:
    """Processes that pull; each life has a number of its own."""

    def __init__(self, place, address):
        self.place = place
        self.address = address
        self.lives = 0
        self.running = [self.start() for _ in range(WORKERS)]

    def start(self):
        self.lives += 1
        return self.place.start(
            [sys.executable, os.path.join(HERE, "pull_worker.py"), self.address,
             "ship", self.place.file(f"run/worker-{self.lives}.jsonl"),
             str(100 + self.lives)], stdin=-1)

    def kill(self, dice):
        index = dice.randrange(WORKERS)
        equal(self.running[index].stop(signal.SIGKILL), -signal.SIGKILL,
              self.running[index].stderr())
        self.running[index] = self.start()

    def stop(self):
        for worker in self.running:
            worker.process.stdin.close()
        for worker in self.running:
            equal(worker.process.wait(PATIENCE_S), 0, worker.stderr())


class Told:
    """What the receiver of the webhooks gets; it knows no numbers of messages,
    so they are added from the dump."""

    def __init__(self):
        self.events = []
        self.receiver = Receiver()
        self.receiver.answers["/in"] = answer(200, more=self.note)

    def note(self, request):
        headers = request.headers
        event = {
            "node": 1, "handler": "notify", "channel": "orders",
            "source": headers["ce-source"], "id": headers["ce-id"],
            "fence": int(headers["postern-fence"]),
            "attempt": int(headers["postern-attempt"]),
            "body": request.body.decode()}
        now = time.monotonic_ns()
        self.events.append({"e": "run", **event, "t": now})
        self.events.append({"e": "ran", **event, "outcome": "done", "t": now + 1})

    def write(self, path, dump):
        numbers = {(row["source"], row["id"]): row["seq"] for row in dump["messages"]}
        with open(path, "w", encoding="utf-8") as file:
            for event in self.events:
                # 0: the message is not stored.
                event["seq"] = numbers.get((event["source"], event["id"]), 0)
                file.write(json.dumps(event) + "\n")


EFFECTS = "select id, 'ledger' as handler from "


class File:
    """A store in a file."""

    def __init__(self, place):
        self.path = place.file("box.db")
        self.url = "sqlite:box.db"
        self.effects = "effect"

    def run(self, statement):
        database = sqlite3.connect(self.path)
        database.execute(statement)
        database.commit()
        database.close()

    def dump(self):
        return sqlite_dump.dump(self.path, EFFECTS + self.effects, drained=True)


class Database:
    """A store in a database."""

    def __init__(self, server):
        self.server = server
        self.url = server.url()
        self.effects = "public.effect"
        self.run = server.sql

    def dump(self):
        return postgres_dump.dump(self.url, EFFECTS + self.effects, drained=True)


def prepare(place, store, url):
    port = free_port()
    place.configure(CONFIG.format(port=port, store=store.url, url=url,
                                  attempts=ATTEMPTS, secret=SECRET.decode()))
    equal(place.serve(env={"POSTERN_LISTEN": "none"}).stop(), 0)
    # No unique key: a second effect must be detected, not refused.
    store.run(f"create table {store.effects}(id text)")
    os.mkdir(place.file("run"))
    place.write("run/00-config.jsonl", json.dumps(HISTORY_CONFIG) + "\n")
    return f"127.0.0.1:{port}"


def is_drained(place):
    rows = place.ok("stats", "--json").json()["handlers"]
    return all(row["pending"] + row["leased"] == 0 for row in rows)


def play(place, dice, address, clients, workers):
    """Returns the last server."""
    server = place.serve()
    for client in clients:
        client.start()
    for _ in range(KILLS):
        sent = sum(client.statuses[202] for client in clients)
        until(lambda: sum(c.statuses[202] for c in clients) > sent + CLIENTS)
        time.sleep(dice.uniform(0, 0.3))
        workers.kill(dice)
        time.sleep(dice.uniform(0, 0.2))
        equal(server.stop(signal.SIGKILL), -signal.SIGKILL, server.stderr())
        server = place.serve(ready=False)
    for client in clients:
        client.stopping = True
    for client in clients:
        client.join(PATIENCE_S)
    return server


def judge(place, store):
    dice = random.Random(SEED)
    told = Told()
    address = prepare(place, store, told.receiver.url("/in"))
    writer = Writer(place.file("run/clients.jsonl"))
    clients = [Client(address, number, writer) for number in range(CLIENTS)]
    workers = Workers(place, address)
    server = play(place, dice, address, clients, workers)
    odd = [one for client in clients for one in client.odd]
    assert not odd, odd[:5]
    until(lambda: is_drained(place), PATIENCE_S)
    workers.stop()
    equal(server.stop(), 0, server.stderr())

    dump = store.dump()
    told.write(place.file("run/receiver.jsonl"), dump)
    place.write("run/dump.json", json.dumps(dump))
    problems = check.check(*history.read_folder(place.file("run")))
    assert not problems, "\n".join(problems)
    states = Counter((row["handler"], row["state"]) for row in dump["deliveries"])
    answers = sum((client.statuses for client in clients), Counter())
    print(f"# {len(dump['messages'])} messages, {KILLS} kills,"
          f" {workers.lives - WORKERS} workers killed, {len(told.events) // 2} webhooks;"
          f" answers {dict(answers)}; {dict(states)}", flush=True)
    # Else nothing was shown.
    assert answers[0] > 0 and answers[409] > 0, answers
    assert states["ship", "poisoned"] > 0 and states["notify", "done"] > 0, states
    assert set(state for _, state in states) <= {"done", "poisoned"}, states


@case(f"{KILLS} kills under the load of {CLIENTS} clients lose nothing that was answered")
def _(place):
    judge(place, File(place))


if "WITHOUT_POSTGRES" not in os.environ:

    @case(f"{KILLS} kills under that load lose nothing in PostgreSQL either")
    def _(place):
        with Server() as server:
            judge(place, Database(server))


print(f"# seed {SEED}", flush=True)
main()
