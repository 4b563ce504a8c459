#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A store in PostgreSQL, used as in docs/postgresql.md: by several nodes that
have only the rights listed there."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from pgbouncer import SESSIONS, Pooler  # noqa: E402
from postgres import DATABASE, Server  # noqa: E402
from support import POSTERN, case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below
DOCUMENT = os.path.join(
    os.path.dirname(__file__), "..", "..", "docs", "postgresql.md"
)

UNREACHABLE = 4

CONFIG = """\
store: "{url}"
defaults: {{node_lease: 2s, polling_interval: 100ms}}
channels:
  orders:
    handlers:
      row:
        sql: >
          insert into public.effect (id, body, kind)
          values (:id, :body_json, :headers->>'kind');
          update public.total set n = n + (:body_json->>'n')::integer
"""


def rights():
    """The SQL in the document: before the schema, without CREATE DATABASE, and
    after it."""
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    text = text[text.index("## Rights"):].replace(" PASSWORD '…'", "")
    before, after = re.findall(r"```sql\n(.*?)```", text, re.S)
    return re.sub(r"CREATE DATABASE .*?;", "", before), after


def prepare(place):
    """Creates the store as its owner; the configuration then uses the node's
    role."""
    before, after = rights()
    SERVER.sql(before)
    SERVER.sql(f"GRANT CREATE ON DATABASE {DATABASE} TO shop_owner")
    place.configure(CONFIG.format(url=SERVER.url(user="shop_owner")))
    place.ok("migrate")
    SERVER.sql(after)
    SERVER.sql("CREATE TABLE public.effect (id text, body jsonb, kind text)")
    SERVER.sql("CREATE TABLE public.total (n integer)")
    SERVER.sql("INSERT INTO public.total VALUES (0)")
    SERVER.sql("GRANT INSERT ON public.effect TO postern_node")
    SERVER.sql("GRANT SELECT, UPDATE ON public.total TO postern_node")
    place.configure(CONFIG.format(url=SERVER.url(user="postern_node")))


def count(sql):
    (row,) = SERVER.sql(sql)
    return int(row)


def effects():
    return count("SELECT count(*) FROM public.effect")


@case("a node needs only the rights that the document lists")
def _(place):
    prepare(place)
    equal(place.ok("check").out.splitlines()[-1], "ok")
    equal(place.send("good", '{"n": 5}').out, "accepted\n")
    equal(place.send("good", '{"n": 5}').out, "duplicate\n")
    equal(place.send("bad", "no json").out, "accepted\n")
    equal(place.process(), 2)
    equal(place.state("good", "row"), "done")
    equal(place.state("bad", "row"), "poisoned")
    assert "not valid JSON" in place.ok("list", "--state", "poisoned").out
    equal(place.ok("discard", "bad", "--yes").code, 0)
    equal((effects(), count("SELECT n FROM public.total")), (1, 5))
    equal(place.ok("stats", "--json").json()["handlers"][0]["done"], 1)
    equal(place.ok("cleanup").code, 0)


@case("of many commands that start at once one creates the tables, and all succeed")
def _(place):
    for round_ in range(5):
        url = SERVER.url(schema=f"begun{round_}")
        place.configure(CONFIG.format(url=url))
        commands = [
            place.start([POSTERN, "migrate"], stdout=subprocess.DEVNULL)
            for _ in range(8)
        ]
        for command in commands:
            equal(command.process.wait(60), 0, command.stderr())


@case("two servers share the work, and each message has one effect")
def _(place):
    before = effects()
    place.configure(CONFIG.format(url=SERVER.url(user="postern_node")))
    servers = [place.serve() for _ in range(2)]
    for number in range(40):
        equal(place.send(f"shared-{number}", '{"n": 1}').out, "accepted\n")
    until(lambda: effects() == before + 40)
    until(lambda: count(
        "SELECT count(*) FROM postern.ledger WHERE state = 3") == before + 40)
    for server in servers:
        equal(server.stop(), 0)
    equal(count("SELECT count(*) FROM postern.node"), 0)
    equal(count("SELECT count(DISTINCT id) FROM public.effect"), before + 40)


@case("markers and once work from several machines, with the rights of a node")
def _(place):
    url = SERVER.url(user="postern_node")
    place.configure("")
    equal(place.ok("mark", "try", "h", "k", "--store", url).out, "first\n")
    equal(place.ok("mark", "try", "h", "k", "--store", url).out, "duplicate\n")
    equal(place.ok("mark", "forget", "h", "k", "--store", url).out, "forgotten\n")
    script = "echo ran >> out; until test -e go; do sleep 0.05; done"
    runs = [
        place.start([POSTERN, "once", "h", "k", "--store", url, "--lease", "4s",
                     "--wait", "1m", "--", "/bin/sh", "-c", script])
        for _ in range(4)
    ]
    until(lambda: place.read("out"))
    time.sleep(6)  # more than one lease
    place.fails(4, "once", "h", "k", "--store", url, "--", "true", says="now")
    place.write("go", "")
    equal([run.stop(0) for run in runs], [0] * 4, [run.stderr() for run in runs])
    equal(place.read("out"), "ran\n")
    equal(place.ok("mark", "expire", "h", "--older-than", "0", "--store", url).out,
          "expired 1\n")


@case("the printed schema, run by hand, is a usable store")
def _(place):
    SERVER.sql("CREATE DATABASE by_hand")
    place.configure(CONFIG.format(url=SERVER.url(database="by_hand")))
    printed = place.ok("migrate", "--print").out
    SERVER.sql(printed, database="by_hand")
    equal(place.send("create the object in advance").out, "accepted\n")
    equal(place.send("create the object in advance").out, "duplicate\n")
    equal(SERVER.sql("SELECT octet_length(value) FROM postern.meta"
                     " WHERE name = 'hash_key'", database="by_hand"), ["16"])


def logged(server, *parts):
    """The lines of a server's log that contain all of these parts."""
    lines = [json.loads(line) for line in server.stderr().splitlines()]
    return [line for line in lines if all(p in line["message"] for p in parts)]


def recover_from_killed(place, processing):
    """The log line of a server that recovers the deliveries of a killed
    one."""
    place.configure(f"""\
store: "{SERVER.url(schema='taken_' + processing)}"
defaults: {{node_lease: 1s, processing: {processing}}}
channels:
  orders:
    handlers:
      wait: {{exec: [/bin/sh, -c, 'test -e ${{DIR}}/go || exec sleep 60']}}
""")
    first = place.serve()
    equal(place.send("a").out, "accepted\n")
    until(lambda: place.state("a", "wait") == "leased")
    second = place.serve()
    first.stop(signal.SIGKILL)
    place.write("go", "")
    until(lambda: place.state("a", "wait") == "done")
    (line,) = logged(second, "recovered")
    equal(line["level"], "info")
    equal(second.stop(), 0)
    return line["message"]


@case("a server that recovers deliveries of a killed one logs that")
def _(place):
    equal(recover_from_killed(place, "parallel"),
          "recovered 1 delivery of expired nodes")


@case("a server that acquires the lock logs what it recovers")
def _(place):
    equal(recover_from_killed(place, "exclusive"),
          "recovered 1 delivery of the node that held the lock before")


@case("process keeps its leases, however long the handler takes")
def _(place):
    place.configure(f"""\
store: "{SERVER.url(schema='kept')}"
defaults: {{node_lease: 600ms, polling_interval: 100ms}}
channels:
  orders:
    handlers:
      wait: {{exec: [/bin/sh, -c, 'echo run >> ${{DIR}}/runs; sleep 2']}}
""")
    equal(place.send("a").out, "accepted\n")
    by_hand = place.start([POSTERN, "process"], stdout=subprocess.DEVNULL)
    until(lambda: place.read("runs"))
    server = place.serve()
    equal(by_hand.process.wait(60), 0)
    equal(place.state("a", "wait"), "done")
    equal(server.stop(), 0)
    equal(place.read("runs"), "run\n")


@case("version lists postgres among the stores")
def _(place):
    stores = place.ok("version", "--json").json()["stores"]
    assert "postgres" in stores, stores
    assert f"\nstores: {' '.join(stores)}\n" in place.ok("version").out


@case("stats list every node of a database, and which holds the lock")
def _(place):
    place.configure(
        CONFIG.format(url=SERVER.url(user="postern_node"))
        .replace("{node_lease: 2s", "{processing: exclusive, node_lease: 20s")
    )
    servers = [place.serve() for _ in range(3)]

    def nodes():
        return place.ok("stats", "--json").json()["nodes"]

    def processors():
        return [node["node"] for node in nodes() if node["processor"]]

    until(lambda: len(nodes()) == 3 and len(processors()) == 1)
    until(lambda: any(node["sleeping"] for node in nodes()))
    equal({(node["host"], node["pid"]) for node in nodes()},
          {(socket.gethostname(), server.pid) for server in servers})
    for node in nodes():
        equal((node["store"], node["own"], node["leased"]), ("default", False, 0))
        assert 0 <= node["renewed_ago_ms"] <= 20000, node
        assert 0 < node["left_ms"] <= 20000, node
        equal(node["processor"], "InboxProcessor_default" in node["locks"], node)
    lines = place.ok("stats").out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("NODE "))
    equal(len(lines) - head, 4, lines)
    (first,) = processors()
    assert any(line.startswith(first) and "processor" in line for line in lines), lines
    assert all(socket.gethostname() in line for line in lines[head + 1:]), lines
    for server in servers:
        equal(server.stop(), 0)
    equal(nodes(), [])


@case("a killed node is listed as late while no other node runs")
def _(place):
    place.configure(CONFIG.format(url=SERVER.url(schema="deserted")))
    server = place.serve()
    until(lambda: len(place.ok("stats", "--json").json()["nodes"]) == 1)

    def state():
        return place.ok("stats").out.splitlines()[-1].split()[-1]

    assert state() != "late"
    server.stop(signal.SIGKILL)
    until(lambda: state() == "late")
    (node,) = place.ok("stats", "--json").json()["nodes"]
    assert node["left_ms"] < 0 and "late" not in node, node


@case("waiting for the lock is not an error, and its loss is logged once")
def _(place):
    place.configure(
        CONFIG.format(url=SERVER.url(schema="guarded")).replace(
            "{node_lease: 2s",
            "{processing: exclusive, lock_acquire_timeout: 1ms, node_lease: 2s")
    )
    first = place.serve()
    until(lambda: logged(first, "processing lock acquired"))
    second = place.serve()
    until(lambda: logged(second, "waiting for the lock 'InboxProcessor_default'"))
    first.process.send_signal(signal.SIGSTOP)
    until(lambda: logged(second, "processing lock acquired"))
    first.process.send_signal(signal.SIGCONT)
    until(lambda: logged(first, "waiting for the lock"))
    for server in (first, second):
        equal(server.stop(), 0)
        taken = logged(server, "processing lock acquired")
        equal([line["level"] for line in taken], ["info"], server.stderr())
        waits = logged(server, "waiting for the lock")
        equal([line["level"] for line in waits], ["info"], server.stderr())
    (lost,) = logged(first, "lock", "lost")
    equal(lost["level"], "warn")
    equal(logged(second, "lost"), [])


@case("a node with another processing mode waits until the others have ended")
def _(place):
    config = """\
store: "{url}"
defaults: {{{settings}, node_lease: 2s, polling_interval: 100ms}}
channels:
  orders:
    handlers:
      wait:
        exec:
          - /bin/sh
          - -c
          - 'echo run >> ${{DIR}}/runs; while [ ! -e ${{DIR}}/go ]; do sleep 0.1; done'
"""
    regimes = ("processing: parallel", "processing: exclusive",
               "processing: exclusive, lock_name: mine")
    says = ("without a lock", "under the lock 'InboxProcessor_default'",
            "under the lock 'mine'")
    url = SERVER.url(schema="regimes")
    for number, settings in enumerate(regimes):
        other = (number + 1) % len(regimes)
        place.configure(config.format(url=url, settings=settings))
        first = place.serve()
        place.send(f"a{number}")
        until(lambda: place.read("runs").count("run") == 1)
        place.configure(config.format(url=url, settings=regimes[other]))
        second = place.serve()
        (line,) = until(lambda: logged(second, "waiting to process: node"))
        equal(line["level"], "info", line)
        assert says[number] in line["message"], line
        assert f"pid {first.pid})" in line["message"], line
        place.fails(UNREACHABLE, "process", says=says[number])
        equal(place.state(f"a{number}", "wait"), "leased")
        (busy, idle) = sorted(place.ok("stats", "--json").json()["nodes"],
                              key=lambda node: node["pid"] != first.pid)
        equal((busy["leased"], busy["sleeping"]), (1, False))
        equal((idle["leased"], idle["sleeping"]), (0, False))
        place.write("go", "")
        until(lambda: place.state(f"a{number}", "wait") == "done")
        equal(place.read("runs"), "run\n")
        # The first node runs messages that the second accepts.
        place.send(f"b{number}")
        until(lambda: place.state(f"b{number}", "wait") == "done")
        equal(first.stop(), 0)
        place.send(f"c{number}")
        until(lambda: place.state(f"c{number}", "wait") == "done")
        until(lambda: place.ok("stats", "--json").json()["nodes"][0]["sleeping"])
        equal(len(logged(second, "waiting to process")), 1, second.stderr())
        equal(logged(first, "refused") + logged(first, "recovered"), [])
        equal(second.stop(), 0)
        os.remove(place.file("go"))
        os.remove(place.file("runs"))


def get_json(place, path, *more):
    """The response of the server on its listening socket."""
    done = subprocess.run(
        ["curl", "-sS", "--unix-socket", place.file("api.sock"),
         "http://postern" + path, *more],
        stdout=subprocess.PIPE, check=True, timeout=60,
    )
    return json.loads(done.stdout)


@case("a server listens on the path of listen, and only one can")
def _(place):
    before = effects()
    place.configure(
        "listen: unix:${DIR}/api.sock\n"
        + CONFIG.format(url=SERVER.url(user="postern_node"))
    )
    server = place.serve()
    equal(os.stat(place.file("api.sock")).st_mode & 0o7777, 0o600)
    equal(server.serving()["listen"], "unix:" + place.file("api.sock"))
    until(lambda: get_json(place, "/readyz") == {"status": "ready"})
    receipt = get_json(place, "/v1/channels/orders/messages",
                  "-H", "Idempotency-Key: by-http", "--data-binary", '{"n": 1}')
    equal(receipt["status"], "accepted", receipt)
    until(lambda: effects() == before + 1)
    (node,) = get_json(place, "/v1/nodes")["items"]
    equal((node["own"], node["processor"]), (True, False), node)
    assert "a server is running and healthy" in place.ok("check").out
    # A second server is refused; the socket of a dead one is replaced.
    place.fails(4, "serve", says="another server is listening on")
    equal(get_json(place, "/healthz"), {"status": "ok"})
    server.stop(signal.SIGKILL)
    server = place.serve()
    equal(get_json(place, "/healthz"), {"status": "ok"})
    equal(server.stop(), 0)
    assert not os.path.exists(place.file("api.sock"))


@case("behind a pooler everything works, and a missing LISTEN is logged")
def _(place):
    before = effects()
    with Pooler(SERVER, ["postern_node"]) as pooler:
        url = SERVER.url(user="postern_node", port=pooler.port)
        place.configure(CONFIG.format(url=url))
        server = place.serve()
        for number in range(20):
            equal(place.send(f"pooled-{number}", '{"n": 1}').out, "accepted\n")
        equal(place.send("pooled-0", '{"n": 1}').out, "duplicate\n")
        until(lambda: effects() == before + 20)
        until(lambda: "LISTEN does not work" in server.stderr())
        assert "set listen_url" in server.stderr(), server.stderr()
        equal(place.ok("stats").code, 0)
        equal(server.stop(), 0)
    equal(count("SELECT count(DISTINCT id) FROM public.effect"), before + 20)


# Continues when that many of it run at the same time, each in a session of its
# own.
ALL_AT_ONCE = """\
DO $$ BEGIN
    WHILE (SELECT count(*) FROM pg_stat_activity
            WHERE query LIKE 'DO % all {when}%') < {sessions} LOOP
        PERFORM pg_sleep(0.01), pg_stat_clear_snapshot(); -- all {when}
    END LOOP;
END $$;
SELECT pg_backend_pid(), ARRAY(SELECT name FROM pg_prepared_statements)
"""

QUIET = """\
listen: unix:${{DIR}}/api.sock
store: "{url}"
channels: {{orders: {{handlers: {{nothing: {{exec: [/bin/true]}}}}}}}}
"""


@case("accepts neither leave nor expect prepared statements in a pooler's sessions")
def _(place):
    def names(when):
        """The prepared statements in each session of the pooler, by its
        pid."""
        sql = ALL_AT_ONCE.format(when=when, sessions=SESSIONS)
        clients = [
            place.start(["psql", "-X", "-A", "-t", "-q", "-c", sql,
                         SERVER.url(port=pooler.port)], stdout=subprocess.PIPE)
            for _ in range(SESSIONS)
        ]
        said = [client.process.communicate(timeout=60)[0] for client in clients]
        return dict(line.decode().split("|") for line in said)

    def complaints():
        with open(SERVER.log, encoding="utf-8", errors="replace") as file:
            return file.read().count("prepared statement")

    with Pooler(SERVER, in_turn=True) as pooler:
        sessions = names("before")
        equal(len(sessions), SESSIONS, sessions)
        before = complaints()
        place.configure(QUIET.format(
            url=SERVER.url(port=pooler.port, schema="nameless")))
        server = place.serve()
        for number in range(3 * SESSIONS):
            receipt = get_json(place, "/v1/channels/orders/messages",
                          "-H", f"Idempotency-Key: {number}", "-d", "body")
            equal(receipt["status"], "accepted", receipt)
        until(lambda: count("SELECT count(*) FROM nameless.ledger")
              == 3 * SESSIONS)
        equal(server.stop(), 0)
        left = names("after")
        equal((len(left), set(left.values())), (SESSIONS, {"{}\n"}), left)
        equal(complaints() - before, 0)


# Every plan is logged, and the cost limit makes JIT compile each.
EXPLAINED = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": 0,
    "auto_explain.log_analyze": "on",
    "auto_explain.log_nested_statements": "on",
    "jit_above_cost": 0,
}


@case("functions that read many rows are not JIT-compiled")
def _(place):
    with Server(settings=EXPLAINED) as server:
        place.configure(CONFIG.format(url=server.url()))
        place.ok("migrate")
        server.sql("CREATE TABLE public.effect (id text, body jsonb, kind text)")
        server.sql("CREATE TABLE public.total (n integer)")
        place.send("one", '{"n": 1}')
        place.send("one", '{"n": 1}')
        server.sql("INSERT INTO postern.gone VALUES (1)")
        place.send("two", '{"n": 2}')
        server.sql("UPDATE postern.open SET node = 1 WHERE seq = (SELECT max(seq)"
                   " FROM postern.open)")
        place.ok("process", "--ignore-failures")
        equal(server.sql("SELECT count(*) FROM postern.ledger"), ["2"])
        with open(server.log, encoding="utf-8", errors="replace") as file:
            entries = re.split(r"^(?=\d{4}-\d\d-\d\d )", file.read(), flags=re.M)
    compiled = set()
    seen = set()
    for plan, context in zip(entries, entries[1:]):
        inside = re.findall(r"PL/pgSQL function (\w+)\(", context)
        if "duration:" in plan and inside:
            seen.add(inside[0])
            if "\tJIT:" in plan:
                compiled.add(inside[0])
    wanted = {"claim_1", "meet_1", "orphans_1", "recover_1"}
    assert seen >= wanted, seen
    equal(compiled & wanted, set(), compiled)


@case("with a pooler nodes use listen_url for LISTEN")
def _(place):
    before = effects()
    with Pooler(SERVER, ["postern_node"]) as pooler:
        place.configure(
            CONFIG.format(url=SERVER.url(user="postern_node", port=pooler.port))
            .replace("polling_interval: 100ms", "polling_interval: 1h")
            .replace("{node_lease", '{listen_url: "'
                     + SERVER.url(user="postern_node") + '", node_lease')
        )
        server = place.serve()
        # The last claim has found nothing: the node waits for a notification.
        until(lambda: count("SELECT count(*) FROM postern.node_sleep WHERE sleeps") == 1)
        until(lambda: count(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'") == 1)
        equal(place.send("heard", '{"n": 1}').out, "accepted\n")
        until(lambda: effects() == before + 1)
        assert "LISTEN does not work" not in server.stderr(), server.stderr()
        equal(server.stop(), 0)


with Server() as SERVER:
    main()
