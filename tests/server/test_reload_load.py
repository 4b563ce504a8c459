#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reloads while messages arrive: handlers are added, removed and renamed, and
files are broken. The checker compares the answers of all senders with the tables.

RELOADS is how many (default 20); the senders send until they are over."""

import http.client
import json
import os
import signal
import sqlite3
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
for room in ("checker", "crash"):
    sys.path.insert(0, os.path.join(HERE, "..", room))
import check  # noqa: E402
import history  # noqa: E402
import sqlite_dump  # noqa: E402
from support import PATIENCE_S, case, equal, main, until  # noqa: E402
from writer import Writer  # noqa: E402

RELOADS = int(os.environ.get("RELOADS", "20"))
SENDERS = 8

HEAD = """\
store: sqlite:box.db
defaults: {orphans: hold}
channels:
  orders:
    handlers:
"""
HANDLER = """\
      {key}:
        legacy_keys: [{legacy}]
        types: [{types}]
        rate: {rate}
        sql: insert into effect(handler, id, type) values ('{name}', :id, :type)
"""

KINDS = ("order.placed", "order.paid")
BROKEN = (
    "channels: [",
    HEAD + "      main: {sql: 'insert into'}\n",
    HEAD + "      main: {exec: [/bin/true], timout: 3s}\n",
    "store: sqlite:other.db\nchannels: {orders: {}}\n",
)
HISTORY_CONFIG = {
    "e": "config",
    "handlers": {
        "main": {"transactional": True, "max_attempts": 5, "channel": "orders",
                 "aliases": ["main-0", "main-1"]},
        "paid": {"transactional": True, "max_attempts": 5},
        "extra": {"transactional": True, "max_attempts": 5},
    },
    "retention": {"payload_ms": 0, "dedupe_ms": 0},
}


# Slower than the senders, so that deliveries are open at each reload.
SLOW = "100/s"


def handler(key, types="'*'", legacy="", rate=SLOW):
    return HANDLER.format(key=key, types=types, legacy=legacy, rate=rate,
                          name=key.split("-")[0])


def config(number):
    """The main handler has another name each time; `paid` and `extra` come and
    go."""
    text = HEAD + handler(f"main-{number % 2}", legacy=f"main, main-{1 - number % 2}")
    if number % 3 != 1:
        text += handler("paid", "order.paid")
    if number % 4 < 2:
        text += handler("extra")
    return text


def last():
    """With the keys of the history, and all handlers."""
    return HEAD + handler("main", legacy="main-0, main-1", rate="none") \
        + handler("paid", "order.paid", rate="none") + handler("extra", rate="none")


def lines(server, event):
    return [line for line in map(json.loads, server.stderr().splitlines())
            if line["event"] == event]


def reload(place, server, text, event):
    count = len(lines(server, event))
    place.configure(text)
    os.kill(server.pid, signal.SIGHUP)
    until(lambda: len(lines(server, event)) > count or not server.alive())
    assert server.alive(), server.stderr()


class Sender(threading.Thread):
    def __init__(self, address, number, writer):
        super().__init__(daemon=True)
        self.address = address
        self.number = number
        self.writer = writer
        self.stopping = False
        self.sent = 0
        self.odd = None  # an answer that nobody should get

    def run(self):
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        while not self.stopping and not self.odd:
            message_id = f"m-{self.number}-{self.sent}"
            body = f"of {message_id}"
            who = {"channel": "orders", "source": "/s", "id": message_id, "body": body}
            self.writer.write("send", **who)
            connection.request("POST", "/v1/channels/orders/messages", body, {
                "ce-specversion": "1.0", "ce-id": message_id, "ce-source": "/s",
                "ce-type": KINDS[self.sent % 2], "content-type": "text/plain"})
            response = connection.getresponse()
            told = json.loads(response.read())
            if response.status != 202:
                self.odd = response.status, told
                return
            self.writer.write("receipt", result="accepted", seq=told["seq"], **who)
            self.sent += 1


def prepare(place):
    place.configure(config(0))
    equal(place.serve().stop(), 0)
    database = sqlite3.connect(place.file("box.db"))
    database.execute("create table effect(handler text, id text, type text)")
    database.commit()
    database.close()
    os.mkdir(place.file("run"))
    place.write("run/00-config.jsonl", json.dumps(HISTORY_CONFIG) + "\n")


def open_count(place):
    rows = place.ok("stats", "--json").json()["handlers"]
    return sum(row["pending"] + row["leased"] for row in rows)


@case("handlers that come, go and change names under load lose and mix up nothing")
def _(place):
    prepare(place)
    server = place.serve(tcp=True)
    writer = Writer(place.file("run/senders.jsonl"))
    senders = [Sender(server.url[len("http://"):], number, writer)
               for number in range(SENDERS)]
    for sender in senders:
        sender.start()
    for number in range(1, RELOADS + 1):
        sent = sum(sender.sent for sender in senders)
        until(lambda: sum(sender.sent for sender in senders) > sent + SENDERS
              or any(sender.odd for sender in senders))
        reload(place, server, config(number), "configuration_reloaded")
        reload(place, server, BROKEN[number % len(BROKEN)], "reload_refused")
    for sender in senders:
        sender.stopping = True
    for sender in senders:
        sender.join(PATIENCE_S)
        assert not sender.odd, sender.odd
    reload(place, server, last(), "configuration_reloaded")
    until(lambda: open_count(place) == 0)
    equal(server.stop(), 0)
    assert not os.path.exists(place.file("other.db"))

    dump = sqlite_dump.dump(place.file("box.db"), "select id, handler from effect",
                            drained=True)
    place.write("run/dump.json", json.dumps(dump))
    problems = check.check(*history.read_folder(place.file("run")))
    assert not problems, "\n".join(problems)
    count = len(dump["messages"])
    equal(count, sum(sender.sent for sender in senders))
    states = {(row["handler"], row["state"]) for row in dump["deliveries"]}
    equal(states, {("main", "done"), ("paid", "done"), ("extra", "done")})
    database = sqlite3.connect(place.file("box.db"))
    runs = dict(database.execute("select handler, count(*) from effect group by 1"))
    wrong = database.execute("select count(*) from effect where handler = 'paid'"
                             " and type <> 'order.paid'").fetchone()[0]
    database.close()
    equal((runs["main"], wrong), (count, 0))
    print(f"# {count} messages, {RELOADS} reloads and as many refused, runs {runs}",
          flush=True)
    # Else nothing was shown.
    assert 0 < runs["extra"] < count and 0 < runs["paid"] < count / 2, runs


main()
