#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stores that are large: cleanup of large bodies, and recovery in a backlog.

A node renews its lease in time, whatever else it does and however much there is of
it; a program that runs for longer than the lease is started once; and a cleanup
does not delay accepts for long. The database records each renewal.

LARGE_BODIES, LARGE_BODIES_SQLITE: completed messages with bodies of 1 MiB
(default 10000 and 4000). LARGE_PENDING: pending deliveries (default 10000000).
LARGE_LOST: leases of a dead node among them (default 10000). The defaults need
15 GB in $TMPDIR or, if that is not set, in /var/tmp, and 5 GB in /tmp.
"""

import http.client
import json
import os
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for room in ("server", "support"):
    sys.path.insert(0, os.path.join(HERE, "..", room))
from postgres import Server  # noqa: E402
from proxy import TO_CLIENT, TO_SERVER, Proxy  # noqa: E402
from support import case, equal, main, until  # noqa: E402

BODIES = int(os.environ.get("LARGE_BODIES", "10000"))
BODIES_SQLITE = int(os.environ.get("LARGE_BODIES_SQLITE", "4000"))
PENDING = int(os.environ.get("LARGE_PENDING", "10000000"))
LOST = int(os.environ.get("LARGE_LOST", "10000"))

BODY_LEN = 1 << 20
HANDLERS = 10  # of a message of the backlog
LEASE_MS = 15000
# How much longer than otherwise an accept may take because of a cleanup.
ACCEPT_S_MAX = 2
DEAD_NODE = 4711
# Far more than anything takes, also on a busy machine.
PATIENCE_S = 3600

CONFIG = """\
listen: unix:${{DIR}}/api.sock
store: "{url}"
defaults:
  cleanup_interval: 1s
channels:
  large:
    {retention}
    handlers:
      read: {{exec: [/bin/sh, -c, 'cat >/dev/null']}}
  long:
    handlers:
      sleep: {{exec: [/bin/sh, -c, 'echo begun >>${{DIR}}/long; sleep 60;
        echo ended >>${{DIR}}/long']}}
  backlog:
    handlers:
{handlers}
"""
RETENTION = "retention: {payload: 1ms}"

NOTE_RENEWALS = """
    create table public.renewed (at bigint, node bigint);
    create function public.note_renewed() returns trigger language plpgsql as $$
    begin
        insert into public.renewed values (new.renewed_at, new.node);
        return null;
    end $$;
    create trigger note_renewed after insert or update on postern.node_term
        for each row execute function public.note_renewed();
"""

# Messages first to last, as a node would have accepted them.
FILL_MESSAGES = """
    insert into postern.message (seq, received_at, channel, id, type, body)
        select n, postern.now_ms(), {channel}, 'fill-' || n, 't', {body}
        from generate_series({first}, {last}) as n;
    insert into postern.seen (k0, k1, k2, seq, at, digest, channel)
        select hashint8extended(n, 0), hashint8extended(n, 1), 0, n,
            postern.now_ms(), md5('body')::uuid, {channel}
        from generate_series({first}, {last}) as n;
"""
FILL_DONE = """
    insert into postern.ledger (seq, fence, finished_at, handler, failures,
            starts, crashes, state)
        select n, 1, postern.now_ms(), {handler}, 0, 1, 0, 3
        from generate_series({first}, {last}) as n;
"""
FILL_PENDING = """
    insert into postern.open (seq, fence, due_at, since, suspect, handler,
            failures, starts, crashes, solo)
        select n, 0, postern.now_ms(), postern.now_ms(), 0, h.handler, 0, 0, 0,
            false
        from generate_series({first}, {last}) as n, postern.handler_key as h
        where h.key like 'h_';
"""
# A node that died holding leases all over the backlog.
LOSE_LEASES = f"""
    insert into postern.node (node, host, pid, works)
        values ({DEAD_NODE}, 'elsewhere', 1, true);
    insert into postern.node_term (node, renewed_at, lives_until)
        values ({DEAD_NODE}, postern.now_ms(), postern.now_ms() + {LEASE_MS});
    update postern.open set node = {DEAD_NODE}, fence = 1, starts = 1
        where seq % {{step}} = 0 and handler = {{handler}};
"""


def write_config(place, url, retention=""):
    handlers = "\n".join(
        f"      h{n}: {{sql: select 1, commit_batch: 100}}" for n in range(HANDLERS)
    )
    place.configure(CONFIG.format(url=url, retention=retention, handlers=handlers))


class Client:
    """A connection to the server's socket."""

    def __init__(self, place):
        self.connection = http.client.HTTPConnection("postern", timeout=PATIENCE_S)
        self.connection.sock = socket.socket(socket.AF_UNIX)
        self.connection.sock.connect(place.file("api.sock"))

    def post(self, channel, name, body):
        """Sends a message; returns how many seconds that took."""
        started = time.monotonic()
        self.connection.request(
            "POST", f"/v1/channels/{channel}/messages", body,
            {"Idempotency-Key": name},
        )
        answer = json.loads(self.connection.getresponse().read())
        equal(answer.get("status"), "accepted", answer)
        return time.monotonic() - started


class Sender(threading.Thread):
    """Sends messages one after the other, with a pause after each, and notes
    the longest accept."""

    def __init__(self, place, body, pause_s):
        super().__init__(daemon=True)
        self.client = Client(place)
        self.body = body
        self.pause_s = pause_s
        self.ending = False
        self.count = 0
        self.longest_s = 0
        self.problem = None
        self.start()

    def run(self):
        try:
            while not self.ending:
                name = f"{self.name}-{self.count}"
                seconds = self.client.post("large", name, self.body)
                self.longest_s = max(self.longest_s, seconds)
                self.count += 1
                time.sleep(self.pause_s)
        except Exception as problem:  # for end()
            self.problem = problem

    def end(self):
        self.ending = True
        self.join()
        if self.problem:
            raise self.problem
        return f"{self.count} accepts, the longest {self.longest_s:.2f} s"


def fill(server, text, count, part, **values):
    for first in range(1, count + 1, part):
        last = min(first + part - 1, count)
        server.sql(text.format(first=first, last=last, **values))


def prepare(place, server):
    """Creates the store, with its channels and handlers."""
    write_config(place, server.url())
    place.ok("migrate")
    equal(place.serve().stop(), 0)
    # Numbers below a billion are free for what is filled in.
    server.sql("select setval('postern.message_seq', 1000000001)")
    # Otherwise the bodies, which are easy to compress, would be small.
    server.sql("alter table postern.message alter body set storage external")
    server.sql(NOTE_RENEWALS)


def number_of(server, table, key, column="id"):
    name = "name" if table == "channel" else "key"
    (number,) = server.sql(
        f"select {column} from postern.{table} where {name} = '{key}'")
    return int(number)


def check_renewals(server, node, what):
    """The node was renewed in time, from its enrolment until now."""
    ((count, gap),) = [row.split("|") for row in server.sql(f"""
        select count(*), max(next - at) from (
            select at, lead(at, 1, postern.now_ms()) over (order by at) as next
            from public.renewed where node = {node}) as each
    """)]
    print(f"# {what}: {count} renewals, at most {int(gap) / 1000:.1f} s apart",
          flush=True)
    assert int(gap) < LEASE_MS, gap


def the_node(server):
    """The only node that is alive."""
    found = server.sql(f"select node from postern.node where node <> {DEAD_NODE}")
    equal(len(found), 1)
    return found[0]


def finish(place, server, process, node, what):
    """The long program was started once; the node is the same, and stops."""
    until(lambda: "ended" in place.read("long"), PATIENCE_S)
    equal(place.read("long"), "begun\nended\n")
    equal(the_node(server), node, process.stderr())
    check_renewals(server, node, what)
    until(lambda: place.state("long", "sleep") == "done")
    equal(process.stop(), 0)


@case("a cleanup of large bodies ends, and the node keeps its lease")
def _(place):
    with Server(durable=True) as server:
        prepare(place, server)
        channel = number_of(server, "channel", "large")
        handler = number_of(server, "handler_key", "read", "handler")
        body = f"decode(repeat('5a', {BODY_LEN}), 'hex')"
        fill(server, FILL_MESSAGES + FILL_DONE, BODIES, 250, channel=channel,
             handler=handler, body=body)
        write_config(place, server.url(), RETENTION)
        started = time.monotonic()
        process = place.serve()
        node = the_node(server)
        Client(place).post("long", "long", b"")
        until(lambda: "cleaned up" in process.stderr(), PATIENCE_S)
        equal(server.sql(f"select 1 from postern.message where channel = {channel}"), [])
        print(f"# removed {BODIES} messages of 1 MiB in "
              f"{time.monotonic() - started:.0f} s", flush=True)
        finish(place, server, process, node, "cleanup")


def break_connections(proxy, stop):
    """Every few seconds one more connection goes silent."""
    direction = TO_SERVER
    while not stop.wait(4):
        proxy.strike(direction, 5000, hold=True, only=True)
        direction = TO_CLIENT if direction == TO_SERVER else TO_SERVER


@case("leases in a large backlog are recovered, and the node keeps its own")
def _(place):
    with Server(durable=True) as server, Proxy(server.port) as proxy:
        prepare(place, server)
        messages = PENDING // HANDLERS
        fill(server, FILL_MESSAGES, messages, 200000, body="'body'",
             channel=number_of(server, "channel", "backlog"))
        fill(server, FILL_PENDING, messages, 20000)
        handler = number_of(server, "handler_key", "h0", "handler")
        server.sql(LOSE_LEASES.format(step=messages // LOST, handler=handler))
        equal(server.sql(f"select count(*) from postern.open where node = {DEAD_NODE}"),
              [str(LOST)])
        place.ok("check")
        write_config(place, server.url(port=proxy.port), RETENTION)
        started = time.monotonic()
        process = place.serve()
        node = the_node(server)
        Client(place).post("long", "long", b"")
        stop = threading.Event()
        breaker = threading.Thread(target=break_connections, args=(proxy, stop))
        breaker.start()
        senders = [Sender(place, bytes(BODY_LEN), 0.05) for _ in range(2)]
        try:
            until(lambda: not server.sql(
                f"select 1 from postern.node where node = {DEAD_NODE}"
                f" union all select 1 from postern.gone where node = {DEAD_NODE}"),
                PATIENCE_S)
            print(f"# recovered {LOST} leases among {PENDING} deliveries in "
                  f"{time.monotonic() - started:.0f} s", flush=True)
            equal(server.sql(f"select 1 from postern.open where node = {DEAD_NODE}"), [])
            until(lambda: "ended" in place.read("long"), PATIENCE_S)
        finally:
            stop.set()
            breaker.join()
            proxy.calm()
        for sender in senders:
            print(f"# large bodies: {sender.end()}", flush=True)
        finish(place, server, process, node, "recovery")


@case("a cleanup of large bodies in a file does not delay accepts for long")
def _(place):
    write_config(place, "sqlite:box.db")
    process = place.serve()
    clients = [Client(place) for _ in range(4)]
    body = os.urandom(BODY_LEN)

    def send(index):
        for n in range(BODIES_SQLITE // len(clients)):
            clients[index].post("large", f"{index}-{n}", body)

    threads = [threading.Thread(target=send, args=(i,)) for i in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: all(not row["pending"] and not row["leased"] for row in
                      place.ok("stats", "--json").json()["handlers"]), PATIENCE_S)
    equal(process.stop(), 0)
    write_config(place, "sqlite:box.db", RETENTION)
    started = time.monotonic()
    process = place.serve()
    sender = Sender(place, b"small", 0.01)
    until(lambda: "cleaned up" in process.stderr(), PATIENCE_S)
    print(f"# removed {BODIES_SQLITE} messages of 1 MiB in "
          f"{time.monotonic() - started:.0f} s: {sender.end()}", flush=True)
    assert sender.longest_s < ACCEPT_S_MAX, sender.longest_s
    equal(process.stop(), 0)


main()
