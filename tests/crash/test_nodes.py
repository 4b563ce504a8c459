#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Three nodes on one database, and everything happens to them.

Three processes send messages, every tenth of them twice and mostly by two of
them at once, and process what falls to them. Meanwhile nodes are killed and
started again, stopped for longer than their lease and woken, their backends
terminated, and the database is restarted: in order, at once, by killing its
first process or another. Then all is left alone until nothing is open, and the
checker judges what the nodes wrote down against what is in the tables.

A dead node's leases are recovered when its lease is over and another node, the
observer, has seen no renewal of it for a whole lease. With exclusive processing
only the owner of the lock recovers. The database records when nodes renew
themselves, expire and lose their leases, and who takes the lock. The machine may
be busy and the database may be away, so no time decides: an observer that renews
itself more than three times while a recovery is due, and whose own lease never
ran out meanwhile, is late. To recover is not yet to run again: what may have
killed its process is run in groups, one after the other.

NODES_MESSAGES says how many (default 6000), SEED which faults (printed).
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict

HERE = os.path.dirname(os.path.abspath(__file__))
for room in ("checker", "server", "support"):
    sys.path.insert(0, os.path.join(HERE, "..", room))
import check  # noqa: E402
import history  # noqa: E402
import postgres_dump  # noqa: E402
from postgres import BIN, Server, ServerError, die_with_parent  # noqa: E402
from support import case, equal, main, until  # noqa: E402

NODE = os.environ["NODE"]
MESSAGES = int(os.environ.get("NODES_MESSAGES", "6000"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))

NODES = 3
LEASE_MS = 1500
LEASE_S = LEASE_MS / 1000
# One fault each, and a part of the messages.
ROUNDS = max(12, MESSAGES // 1500)
# Far more than anything takes, also on a busy machine.
PATIENCE_S = 120 + MESSAGES / 50

# As node.c has them.
CONFIG = {
    "e": "config",
    "handlers": {
        "ledger": {
            "transactional": True,
            "max_attempts": 5,
            "max_crashes": 50,
            "channel": "orders",
        },
        "mail": {
            "transactional": False,
            "max_attempts": 5,
            "max_crashes": 50,
            "channel": "orders",
        },
    },
    "retention": {"payload_ms": 0, "dedupe_ms": 0},
    "told_late": True,
}

EFFECTS = "select seq, handler, fence from public.effect"

# Who has how much, and when it was last heard of; the last row ends it.
LOOK = """
    select postern.now_ms(), coalesce(o.node, 0), o.count,
           coalesce(n.renewed_at, 0)
    from (select node, count(*) from postern.open group by node) o
    left join postern.node_term n on n.node = o.node
    union all select postern.now_ms(), -1, 0, 0
    order by 2 desc \\watch 0.2
"""


# When nodes renewed themselves, were found gone and had lost their last lease,
# and who took the processing lock from whom (first: who has it, from nobody): all
# by the clock of the database.
# One transaction each, so that nobody waits for another in a ring.
NOTE_TERMS = """
    create table public.renewed (at bigint, node bigint);
    create table public.gone (at bigint, node bigint, renewed_at bigint,
        lives_until bigint);
    create table public.freed (at bigint, node bigint);
    create table public.locked (at bigint, node bigint, former bigint,
        held_until bigint);

    create function public.note_renewed() returns trigger language plpgsql as $$
    begin
        insert into public.renewed values (new.renewed_at, new.node);
        return null;
    end $$;
    create function public.note_gone() returns trigger language plpgsql as $$
    begin
        insert into public.gone values (postern.now_ms(), old.node,
            old.renewed_at, old.lives_until);
        return null;
    end $$;
    create function public.note_freed() returns trigger language plpgsql as $$
    begin
        insert into public.freed select postern.now_ms(), old.node
            where old.node not in (select node from postern.node);
        return null;
    end $$;
    create function public.note_locked() returns trigger language plpgsql as $$
    begin
        insert into public.locked values (new.renewed_at, new.node, old.node,
            old.held_until);
        return null;
    end $$;

    create trigger note_renewed after update on postern.node_term for each row
        when (old.renewed_at <> new.renewed_at)
        execute function public.note_renewed();

    create trigger note_gone after delete on postern.node_term for each row
        execute function public.note_gone();

    create trigger note_freed after update on postern.open for each row
        when (old.node is not null and new.node is null)
        execute function public.note_freed();

    create trigger note_locked after update on postern.lock for each row
        when (old.fence <> new.fence) execute function public.note_locked();

    insert into public.locked select renewed_at, node, 0, 0 from postern.lock;
"""
# An observer looks for expired nodes as often as it renews itself. One renewal may
# pass before it first sees that a node is silent, one before it looks after the
# node's lease, and one if that look finds another transaction in progress.
RENEWALS_MAX = 3


class Monitor(threading.Thread):
    """Looks at the tables five times a second, as long as they are there."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server = server
        self.process = None
        self.ending = False
        self.looks = 0
        self.open = 0
        self.stale = False  # somebody whose time is over has leases

    def run(self):
        while not self.ending:
            self.process = subprocess.Popen(
                [
                    os.path.join(BIN, "psql"),
                    *("-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"),
                    *("-d", self.server.url()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            try:
                self.process.stdin.write(LOOK)
                self.process.stdin.close()
                self.read(self.process.stdout)
            except OSError:
                pass
            self.process.kill()
            self.process.wait()
            time.sleep(0.05)

    def read(self, lines):
        since = None  # when this look at the database began
        heard = {}
        rows = []
        for line in lines:
            words = line.strip().split("|")
            if len(words) != 4:
                continue
            now, node, count, renewed = map(int, words)
            if node >= 0:
                rows.append((node, count, renewed))
                continue
            since = since or now
            self.look(now, since, rows, heard)
            rows = []

    def look(self, now, since, rows, heard):
        longest = 0
        for node, _, renewed in rows:
            if node == 0:
                continue
            if renewed:
                heard[node] = renewed
            longest = max(longest, now - max(heard.get(node, since), since))
        self.open = sum(count for _, count, _ in rows)
        self.stale = longest > LEASE_MS
        self.looks += 1

    def stop(self):
        self.ending = True
        if self.process:
            self.process.kill()
        self.join()


class Node:
    """One of the processes, through all of its lives."""

    def __init__(self, trial, number):
        self.trial = trial
        self.number = number
        self.life = 0
        self.sent = -1
        self.locked = False
        self.long = set()  # the runs that take long, of now
        self.process = None

    def start(self):
        trial = self.trial
        self.life += 1
        self.locked = False
        self.long = set()
        self.process = trial.place.start(
            [
                NODE,
                trial.server.url(),
                trial.folder,
                *(str(self.number), str(self.life), trial.mode),
                *(str(LEASE_MS), str(SEED)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL),
        )
        threading.Thread(
            target=self.listen,
            args=(self.process.process.stdout, self.long),
            daemon=True,
        ).start()
        self.tell(f"send {trial.goal}")

    def listen(self, lines, long):
        for line in lines:
            words = line.decode().split()
            if words[0] == "sent":
                self.sent = int(words[1])
            elif words[0] == "begun":
                long.add(tuple(words[1:]))
            elif words[0] == "ended":
                long.discard(tuple(words[1:]))
            else:
                self.locked = words[0] == "locked"

    def tell(self, what):
        pipe = self.process.process.stdin
        try:
            pipe.write(what.encode() + b"\n")
            pipe.flush()
        except BrokenPipeError:
            pass  # it is seen elsewhere that it has ended

    def has_sent(self):
        assert self.process.alive(), self.process.stderr()
        return self.sent >= self.trial.goal

    def signal(self, number):
        self.process.process.send_signal(number)

    def kill(self):
        equal(self.process.stop(signal.SIGKILL), -signal.SIGKILL)
        self.trial.note("crash", node=self.number)


class Trial:
    """Three nodes on a server, and what is done to them."""

    def __init__(self, place, server, mode):
        self.place = place
        self.server = server
        self.mode = mode
        self.dice = random.Random(f"{SEED} {mode}")
        self.goal = 0
        self.folder = place.file("run")
        os.mkdir(self.folder)
        place.write("run/00-config.jsonl", json.dumps(CONFIG) + "\n")
        self.done = Counter()
        self.away = []  # when the database was, in ms since 1970
        self.monitor = Monitor(server)
        self.nodes = [Node(self, number) for number in range(NODES)]

    def note(self, kind, **more):
        """Writes down what was done, at which time of the machine."""
        line = json.dumps({"e": kind, **more, "t": time.monotonic_ns()})
        with open(os.path.join(self.folder, "zz-harm.jsonl"), "a") as file:
            file.write(line + "\n")

    def rest(self, most):
        time.sleep(self.dice.uniform(0, most))

    def victim(self):
        """Any of them; if only one processes, it is mostly that one."""
        owners = [node for node in self.nodes if node.locked]
        if owners and self.dice.random() < 0.7:
            return self.dice.choice(owners)
        return self.dice.choice(self.nodes)

    def kill(self):
        node = self.victim()
        node.kill()
        self.rest(1.5 * LEASE_S)
        node.start()

    def find_long(self):
        """A node in the middle of a long run, and which; of each handler by
        turns, if there is one."""
        handler = ("mail", "ledger")[self.done["freeze"] % 2]
        for _ in range(100):
            for node in self.nodes:
                for run in list(node.long):
                    if run[0] == handler:
                        return node, run
            time.sleep(0.02)
        return self.victim(), None

    def freeze(self):
        """Until another has taken over, and then it goes on: if possible while
        the other does the very thing that it was stopped in."""
        node, run = self.find_long()
        node.signal(signal.SIGSTOP)
        began = time.monotonic()
        if self.dice.random() < 0.3:
            self.terminate()

        def others_have_it():
            if time.monotonic() - began < 1.3 * LEASE_S:
                return False
            if any(run in other.long for other in self.nodes if other != node):
                self.done["overlap"] += 1
                return True
            looks = self.monitor.looks
            until(lambda: self.monitor.looks > looks + 1)
            return not self.monitor.stale and time.monotonic() - began > 4 * LEASE_S

        until(others_have_it)
        node.signal(signal.SIGCONT)

    def terminate(self):
        for _ in range(self.dice.randint(1, 4)):
            self.server.sql(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where backend_type = 'client backend'"
                " and application_name <> 'psql' and random() < 0.5"
            )
            self.rest(0.2)

    def restart(self, number):
        since = time.time() * 1000
        self.server.end(number)
        self.rest(LEASE_S)

        def starts():
            try:
                self.server.start()
                return True
            except ServerError:
                return False  # what is left of the former one is in the way

        until(starts)
        self.note_away(since)

    def note_away(self, since):
        # Whoever could not reach it tries again after a while that is no longer
        # than what it has waited before.
        back = time.time() * 1000
        self.away.append((since, back + (back - since)))

    def restart_in_order(self):
        self.restart(signal.SIGINT)

    def restart_at_once(self):
        self.restart(signal.SIGQUIT)

    def kill_server(self):
        self.restart(signal.SIGKILL)

    def kill_backend(self):
        """Whereupon the server ends all of them and recovers."""
        pids = self.server.sql(
            "select pid from pg_stat_activity where application_name <> 'psql'"
            " and backend_type in ('client backend', 'walwriter')"
        )
        since = time.time() * 1000
        os.kill(int(self.dice.choice(pids)), signal.SIGKILL)

        def answers():
            try:
                return self.server.sql("select 1")
            except ServerError:
                return False

        until(answers)
        self.note_away(since)

    def harm(self):
        """Each kind in turn, in an order that differs."""
        kinds = []
        while True:
            if not kinds:
                kinds = [self.kill] * 4 + [self.freeze] * 2 + [self.terminate] * 2
                kinds += [self.restart_in_order, self.restart_at_once]
                kinds += [self.kill_server, self.kill_backend]
                self.dice.shuffle(kinds)
            yield kinds.pop()

    def play(self):
        for node in self.nodes:
            node.start()
        until(lambda: all(node.has_sent() for node in self.nodes))
        for statements in NOTE_TERMS.split("\n\n"):
            self.server.sql(statements)
        self.monitor.start()
        share = MESSAGES / ROUNDS
        for number, fault in zip(range(1, ROUNDS + 1), self.harm()):
            self.goal = MESSAGES * number // ROUNDS
            for node in self.nodes:
                node.tell(f"send {self.goal}")
            self.rest(0.3)
            self.done[fault.__name__] += 1
            fault()
            until(lambda: all(node.has_sent() for node in self.nodes), PATIENCE_S)
            # Faults are for all of the work, not only for the beginning.
            until(lambda: self.monitor.open <= 4 * share, PATIENCE_S)

    def drain(self):
        until(lambda: self.server.sql("select count(*) from postern.open") == ["0"],
              PATIENCE_S)
        self.monitor.stop()
        for node in self.nodes:
            node.tell("stop")
        for node in self.nodes:
            equal(node.process.process.wait(PATIENCE_S), 0, node.process.stderr())

    def dump(self):
        return postgres_dump.dump(self.server.url(), EFFECTS, drained=True)


class Terms:
    """How soon the leases of dead nodes were recovered."""

    def __init__(self, server, exclusive):
        self.renewed = defaultdict(list)
        for at, node in self.rows(server, "select * from public.renewed order by at"):
            self.renewed[node].append(at)
        self.locked = self.rows(server, "select * from public.locked order by at")
        # Whoever ends in order is gone before its time. A number may be gone
        # twice, if its node was not told for long that it was enrolled.
        gone = self.rows(
            server,
            "select at, node, renewed_at, lives_until, (select coalesce(max(f.at),"
            " g.at) from public.freed f where f.node = g.node and f.at >= g.at and"
            " f.at < all (select n.at from public.gone n where n.node = g.node and"
            " n.at > g.at)) from public.gone g where at >= lives_until"
        )
        self.found = 0
        self.most = 0  # renewals of an observer while a recovery was due
        self.waits = []  # from the last renewal to the last lease
        self.late = []
        for _, node, renewed, until, end in gone:
            observers = set(self.renewed) - {node}
            if exclusive:
                self.judge_lock(node, until, observers)
                since, owner = self.owner(end)
                until = max(until, since)
                observers &= {owner}
            self.judge("found gone", node, renewed, until, end, observers)
            self.waits.append((renewed, end))
            self.found += 1

    @staticmethod
    def rows(server, sql):
        return [tuple(map(int, row.split("|"))) for row in server.sql(sql)]

    def due(self, observer, renewed, until, end):
        """How often the observer renewed itself before `end` while it had to expire
        a node or a lock that was last renewed at `renewed`, for a term `until`: its
        lease has not run out since a renewal that was a whole lease earlier."""
        most = count = 0
        first = last = None
        for at in self.renewed[observer]:
            if not renewed < at < end:
                continue
            if last is None or at - last > LEASE_MS:
                first, count = at, 0
            last = at
            count += at > max(until, first + LEASE_MS)
            most = max(most, count)
        return most

    def judge(self, what, node, renewed, until, end, observers):
        for observer in observers:
            count = self.due(observer, renewed, until, end)
            self.most = max(self.most, count)
            if count > RENEWALS_MAX:
                self.late.append(f"node {node} was {what} {end - until} ms after its"
                                 f" time, {count} renewals of {observer} later")

    def judge_lock(self, node, until, observers):
        """Of a node that is gone: whether another took its lock in time, if it
        had it. Before its node is expired its transactions may keep the lock."""
        for at, _, former, held_until in self.locked:
            if former == node:
                self.judge("without its lock", node, held_until - LEASE_MS,
                           max(until, held_until), at, observers)

    def owner(self, moment):
        """Who had the lock then, and since when."""
        return max(((at, node) for at, node, *_ in self.locked if at <= moment),
                   default=(0, 0))


def undisturbed(waits, away):
    """How long they were, in s, while the database was there all the time."""
    return [
        (end - begin) / 1000
        for begin, end in waits
        if not any(since < end and begin < back for since, back in away)
    ] or [0]


# What the clock of the machine says, in ms since 1970.
OFFSET_MS = time.time() * 1000 - time.monotonic_ns() / 1e6


def wall_ms(monotonic_ns):
    return monotonic_ns / 1e6 + OFFSET_MS


class Deeds:
    """What the histories say that the checker has no rule for."""

    def __init__(self, histories):
        self.results = Counter()
        self.ends = Counter()
        self.fenced = 0  # results of handlers that came too late
        self.retaken = 0  # begun by one node and run again by another
        self.waits = []  # from the death of a node to the first such run
        self.read([event for events in histories for event in events])

    def read(self, events):
        events.sort(key=lambda event: event.get("t", 0))
        begun = {}  # delivery -> who runs it
        returned = set()
        dead = {}  # node -> when it was killed, until somebody takes over
        lost = defaultdict(set)  # node -> what it had begun then
        for event in events:
            kind, node = event["e"], event.get("node")
            name = (event.get("seq"), event.get("handler"))
            if kind == "receipt":
                self.results[event["result"]] += 1
            elif kind == "run":
                former = begun.get(name)
                self.retaken += former is not None and former != node
                for one in [one for one in dead if name in lost[one]]:
                    self.waits.append((wall_ms(dead.pop(one)), wall_ms(event["t"])))
                begun[name] = node
            elif kind == "ran":
                returned.add((*name, event["fence"]))
            elif kind == "settled":
                begun.pop(name, None)
                self.ends[event["to"]] += 1
            elif kind == "fenced":
                self.fenced += (*name, event["fence"]) in returned
            elif kind == "crash":
                dead[node] = event["t"]
                lost[node] = {one for one, who in begun.items() if who == node}


def show(trial, deeds, terms):
    harm = ", ".join(f"{count} {what}" for what, count in sorted(trial.done.items()))
    print(f"# {trial.mode}: {MESSAGES} messages, seed {SEED}: {harm}")
    told = ", ".join(f"{n} {what}" for what, n in sorted(deeds.results.items()))
    ends = ", ".join(f"{n} {what}" for what, n in sorted(deeds.ends.items()))
    print(f"# told: {told}; settled: {ends}")
    print(f"# {deeds.retaken} begun by one node and run by another,"
          f" {deeds.fenced} late results refused")
    waits = undisturbed(terms.waits, trial.away)
    runs = undisturbed(deeds.waits, trial.away)
    print(f"# {terms.found} nodes found gone, at most {terms.most} renewals of an"
          " observer while that was due")
    print(f"# while the database was there: taken back {statistics.median(waits):.1f} s"
          f" after a node was last heard of, at most {max(waits):.1f} s; run again"
          f" {statistics.median(runs):.1f} s after a kill, at most {max(runs):.1f} s;"
          f" twice the lease is {2 * LEASE_S:.1f} s", flush=True)


def judge(place, mode):
    with Server(settings={"max_connections": 60}) as server:
        server.sql("create table public.effect (seq bigint, handler text, fence bigint)")
        trial = Trial(place, server, mode)
        try:
            trial.play()
            trial.drain()
        finally:
            trial.monitor.ending = True
        terms = Terms(server, mode == "exclusive")
        dump = trial.dump()
    with open(os.path.join(trial.folder, "dump.json"), "w") as file:
        json.dump(dump, file)
    histories, dump = history.read_folder(trial.folder)
    deeds = Deeds(histories)
    show(trial, deeds, terms)
    problems = check.check(histories, dump)
    assert not problems, "\n".join(problems)
    assert not terms.late, "\n".join(terms.late)
    equal(len(dump["messages"]), MESSAGES)
    equal(len(dump["deliveries"]), 2 * MESSAGES)
    assert deeds.results["duplicate"] >= MESSAGES // 10, deeds.results
    # Else nothing was shown.
    assert terms.found > 0, "no node was found gone"
    assert deeds.retaken > 0, "no node took over what another had begun"
    assert deeds.fenced > 0, "no late result was refused"


@case("three nodes in parallel lose nothing and double nothing")
def _(place):
    judge(place, "parallel")


@case("three nodes, one of which processes, lose nothing and double nothing")
def _(place):
    judge(place, "exclusive")


print(f"# seed {SEED}", flush=True)
main()
