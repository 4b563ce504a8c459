# SPDX-License-Identifier: MIT
"""Every state that people are shown of a delivery, and every reason, read from
`list`, `show`, `stats`, the API, the metrics and the health of a server, which
must agree.

The cases are functions of a place and of a store, so that test_views.py and
test_postgres_views.py have the same ones. A case brings a delivery into a state
in which it stays, and compares() reads all views of it.
"""

import json
import os
import re
import signal
import subprocess

from prometheus import Metrics
from support import case, equal, until

STORED = {
    "waiting": "pending", "held": "pending", "queued": "leased",
    "running": "leased", "stuck": "leased",
}
DERIVED = sorted(STORED)
# What may differ between two readings of the same row by this many seconds: a
# time that is the sum of two clocks, or the time of the reading.
CLOSE_S = 1.5
READING = ("reported_at",)
SUMS = ("until", "held_until", "since")
# What holds a handler on one node; only that node's server shows it.
OF_ONE_NODE = ("broken", "rate", "suspects")

CONFIG = """\
listen: unix:${DIR}/api.sock
store: "%s"
defaults: {polling_interval: 100ms, node_lease: 3s, %s}
channels:
  orders:
    handlers:
      work: {types: ["order.*"], %s}
"""

HANG = ("exec: [/bin/sh, -c, "
        "'until test -e ${DIR}/go; do sleep 0.05; done']")


def seconds(text):
    """The time of a row as seconds of its day."""
    hours, minutes, rest = text[11:-1].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


def close(left, right):
    if left is None or right is None:
        return left == right
    apart = abs(seconds(left) - seconds(right))
    return min(apart, 86400 - apart) <= CLOSE_S


def same_row(left, right, *what):
    """Two readings of one object of the API."""
    equal(sorted(left), sorted(right), *what)
    for name, value in left.items():
        if name in READING:
            equal(value is None, right[name] is None, name, *what)
        elif name in SUMS:
            assert close(value, right[name]), (name, left, right, what)
        else:
            equal(value, right[name], name, *what)


def table(text, first):
    """The rows of the table whose first column has this title, by title."""
    rows = []
    titles = None
    for line in text.splitlines():
        cells = re.split(r"  +", line.strip())
        if cells[0] == first:
            titles = cells
        elif not line:
            titles = None
        elif titles:
            rows.append(dict(zip(titles, cells)))
    return rows


class Shop:
    """A server, and what it and the command show."""

    def __init__(self, place, store, handler, more="lease: 5m"):
        self.place = place
        self.store = store
        self.write(handler, more)
        self.socket = place.file("api.sock")
        self.server = place.serve()

    def write(self, handler, more="lease: 5m"):
        self.place.configure(CONFIG % (self.store, more, handler))

    def restart(self, number=signal.SIGTERM):
        self.server.stop(number)
        self.server = self.place.serve()

    def text(self, path, *words):
        done = subprocess.run(
            ["curl", "-sS", "--unix-socket", self.socket, *words,
             f"http://postern{path}"],
            stdout=subprocess.PIPE, check=True, timeout=60)
        return done.stdout.decode()

    def call(self, path, *words):
        return json.loads(self.text(path, *words))

    def send(self, name, kind="order.placed"):
        answer = self.call(
            "/v1/channels/orders/messages", "-H", f"ce-id: {name}", "-H",
            "ce-specversion: 1.0", "-H", "ce-source: test", "-H",
            f"ce-type: {kind}", "--data-binary", "body")
        equal(answer["status"], "accepted")
        return answer["seq"]

    def rows(self, query=""):
        return self.call(f"/v1/deliveries?limit=1000{query}")["items"]

    def row(self, seq):
        return [row for row in self.rows() if row["seq"] == seq][0]

    def command_row(self, seq):
        rows = self.place.ok("list", "--json", "--limit", "1000").json()
        return [row for row in rows if row["seq"] == seq][0]

    def handler(self):
        rows = [row for row in self.call("/v1/handlers")["items"]
                if row["key"] == "work"]
        return rows[0] if rows else None

    def shown(self, seq, state, reason=None):
        """Waits until the delivery is shown like this, and compares."""
        def reached():
            row = self.row(seq)
            return (row["shown"], row["reason"]) == (state, reason)
        until(reached)
        return self.compare(seq, state, reason)

    def compare(self, seq, state, reason):
        """Compares all views of a delivery that was in this state before and
        after they were read; what moves meanwhile is read again."""
        if "postgres" in self.store and state in ("running", "stuck"):
            # The command reads what the server reports with each renewal.
            until(lambda: self.command_row(seq)["shown"] == state)
        while True:
            before = self.rows()
            handler = self.handler()
            views = Views(self, seq)
            after = self.rows()
            if facts(before) == facts(after) and stable(handler, self.handler()):
                break
        row = [row for row in before if row["seq"] == seq][0]
        if (row["shown"], row["reason"]) != (state, reason):
            return self.shown(seq, state, reason)
        views.check(row, handler, before)
        return row


def facts(rows):
    """What must not change while the views are read."""
    kept = ("seq", "handler", "state", "shown", "reason", "fence", "failures",
            "next_at")
    return [[row[name] for name in kept] for row in rows]


def stable(before, after):
    if before is None or after is None:
        return before == after
    return all(close(before[name], after[name]) if name in SUMS
               else before[name] == after[name] for name in before)


class Views:
    """Everything that shows a delivery, read one after the other."""

    def __init__(self, shop, seq):
        place = shop.place
        self.seq = seq
        self.remote = "postgres" in shop.store
        self.message = shop.call(f"/v1/messages/{seq}")
        self.by_state = {state: shop.rows(f"&state={state}")
                         for state in (*DERIVED, "pending", "leased", "done",
                                       "poisoned", "discarded", "parked")}
        self.stats = shop.call("/v1/stats")
        self.health = shop.call("/healthz?verbose")
        self.metrics = Metrics(shop.text("/metrics"))
        self.list_json = place.ok("list", "--json", "--limit", "1000").json()
        self.list_text = place.ok("list", "--limit", "1000").out
        self.show_json = place.ok("show", "--seq", str(seq), "--json").json()
        self.show_text = place.ok("show", "--seq", str(seq)).out
        self.stats_json = place.ok("stats", "--json").json()
        self.stats_text = place.ok("stats").out

    def check(self, row, handler, rows):
        self.check_states(row)
        self.check_rows(row)
        self.check_texts(row)
        if handler:
            self.check_handler(row, handler, rows)
        equal([found["parked"] for found in self.stats["channels"]],
              [sum(one["state"] == "parked" for one in rows)])

    def check_states(self, row):
        """The filters by state: the shown and the stored one have the row."""
        shown = row["shown"]
        equal(STORED.get(shown, shown), row["state"])
        for state, listed in self.by_state.items():
            found = [one["seq"] for one in listed if one["seq"] == self.seq]
            equal(len(found), int(state in (shown, row["state"])), state, row)

    def check_rows(self, row):
        delivery = [one for one in self.message["deliveries"]
                    if one["handler"] == row["handler"]] or [row]
        found = {name: value for name, value in delivery[0].items()
                 if name != "attempts"}
        same_row(row, found, "list", "show")
        same_row(self.message, self.show_json | {
            "deliveries": self.message["deliveries"]}, "show of the command")
        for one in ([listed for listed in self.list_json
                     if listed["seq"] == self.seq] +
                    [shown for shown in self.show_json["deliveries"]
                     if shown["handler"] == row["handler"]]):
            one = {name: value for name, value in one.items()
                   if name != "attempts"}
            if self.remote and row["reason"] in OF_ONE_NODE:
                equal(one["state"], row["state"])
            else:
                same_row(row, one, "the command")

    def check_texts(self, row):
        listed = [one for one in table(self.list_text, "SEQ")
                  if one["SEQ"] == str(self.seq)][0]
        shown = [one for one in table(self.show_text, "HANDLER")
                 if one["HANDLER"] == row["handler"]]
        for one in [listed, *shown]:
            if self.remote and row["reason"] in OF_ONE_NODE:
                continue
            equal(one["STATE"], row["shown"])
            if row["max_attempts"] and row["attempt"]:
                equal(one["ATTEMPT"], f"{row['attempt']} of {row['max_attempts']}")
            self.check_detail(one["DETAIL"], row)

    def check_detail(self, text, row):
        if row["shown"] == "waiting":
            assert re.match(r"in \d+|now|\d+s ago", text), text
        elif row["shown"] in ("running", "stuck"):
            assert re.match(rf"started \w+( ago)? on {row['host']}:{row['pid']}",
                            text), text
        elif row["shown"] == "queued":
            assert f" on {row['host']}:{row['pid']}" in text, text
        elif not row["reason"]:
            equal(text, "-", row)
        if row["reason"]:
            self.check_words(text, row["reason"], row)

    def check_words(self, text, name, row):
        """The words about what holds something, the same everywhere."""
        assert name in text, (text, row)
        if row["held_by"]:
            assert f"by {row['held_by']}" in text, (text, row)
        else:
            assert " by " not in text, text
        if row["held_reason"]:
            assert f": {row['held_reason']}" in text, (text, row)
        if name == "paused" and row.get("until"):
            assert f"paused until {row['until']}" in text, (text, row)

    def check_handler(self, row, handler, rows):
        mine = [one for one in rows if one["handler"] == "work"]
        stats = [one for one in self.stats["handlers"] if one["key"] == "work"]
        by_command = [one for one in self.stats_json["handlers"]
                      if one["key"] == "work"]
        same_row(stats[0], handler, "stats", "handlers")
        if not (self.remote and handler["held"] in OF_ONE_NODE):
            # The command has no node of its own, and knows no channel.
            one_node = ("registered", "channel", "definition") if self.remote else ()
            same_row(*({name: value for name, value in one.items()
                        if name not in one_node}
                       for one in (handler, by_command[0])), "stats")
        self.check_counts(handler, mine)
        if row["reason"]:
            equal(handler["held"], row["reason"])
            for ours, theirs in (("held_reason",) * 2, ("held_by",) * 2,
                                 ("held_at",) * 2, ("held_until", "until")):
                if theirs == "until":
                    assert close(handler[ours], row[theirs]), (handler, row)
                else:
                    equal(handler[ours], row[theirs], ours)
        self.check_stats_text(handler)
        self.check_metrics(handler, mine)
        self.check_health(handler, mine)

    def check_counts(self, handler, mine):
        for state in ("pending", "leased", "poisoned"):
            equal(handler[state], sum(one["state"] == state for one in mine),
                  state)
        for state in ("waiting", "queued", "running", "stuck"):
            equal(handler[state], sum(one["shown"] == state for one in mine),
                  state)
        for state in ("done", "discarded"):
            assert handler[state] >= sum(one["state"] == state for one in mine)

    def check_stats_text(self, handler):
        line = [one for one in table(self.stats_text, "HANDLER")
                if one["HANDLER"] == "work"][0]
        for title in ("PENDING", "QUEUED", "RUNNING", "STUCK", "POISONED"):
            equal(line[title], str(handler[title.lower()]), title)
        if self.remote and handler["held"] in OF_ONE_NODE:
            return
        equal(line["WAITING"], str(handler["waiting"]), "WAITING")
        if handler["held"]:
            self.check_words(line["HELD"], handler["held"], handler)
        else:
            equal(line["HELD"], "-")

    def check_metrics(self, handler, mine):
        """Those of the node; what is counted in the store may be older."""
        equal(self.metrics.get("postern_running", handler="work"),
              sum(one["shown"] in ("running", "stuck") for one in mine))
        for reason in ("paused", "broken"):
            equal(self.metrics.get("postern_handler_held", handler="work",
                                   reason=reason),
                  int(handler["held"] == reason), reason)

    def check_health(self, handler, mine):
        found = [one for one in self.health["handlers"]
                 if one["key"] == "work"][0]
        held = handler["held"]
        equal(found["held"], None if held == "suspects" else held)
        equal((found["running"], found["stuck"]),
              (handler["running"] + handler["stuck"], handler["stuck"]))
        if held in ("paused", "retry-after", "broken"):
            equal((found["reason"], found["since"]),
                  (handler["held_reason"], handler["held_at"]))


CASES = []


def shown(name):
    def register(function):
        CASES.append((name, function))
        return function
    return register


def register(store_of):
    """Registers all cases, with the store that this function makes."""
    for number, (name, function) in enumerate(CASES):
        def run(place, function, number):
            function(place, store_of(place, number))
        case(name, function=function, number=number)(run)


@shown("a retry is shown as waiting, with its attempt and when it is due")
def _(place, store):
    shop = Shop(place, store, "backoff: [1h], exec: [/bin/sh, -c, "
                "'echo no mail >&2; exit 1']")
    seq = shop.send("a")
    row = shop.shown(seq, "waiting")
    equal((row["attempt"], row["max_attempts"], row["failures"],
           row["last_error"]), (2, 5, 1, "no mail"))
    assert row["next_at"] > row["received_at"], row
    equal(shop.handler()["retrying"], 1)


@shown("a pause is shown with its reason, its end and its author")
def _(place, store):
    shop = Shop(place, store, "exec: [/bin/true]")
    place.ok("pause", "work", "--for", "2h", "--reason", "smtp down",
             "--by", "anna")
    seq = shop.send("a")
    row = shop.shown(seq, "held", "paused")
    equal((row["held_reason"], row["held_by"]), ("smtp down", "anna"))
    assert row["until"] > row["held_at"], row
    # Replaced, without an end; kept by a restart.
    place.ok("pause", "work", "--by", "bob")
    shop.restart()
    row = shop.shown(seq, "held", "paused")
    equal((row["held_reason"], row["held_by"], row["until"]), (None, "bob", None))
    place.ok("resume", "work")
    shop.shown(seq, "done")


@shown("a closed channel is shown with its reason, and holds no delivery")
def _(place, store):
    shop = Shop(place, store, HANG)
    seq = shop.send("a")
    place.ok("channel", "close", "orders", "--reason", "moving", "--by", "anna")
    shop.shown(seq, "running")
    views = Views(shop, seq)
    for channels in (views.stats["channels"], views.stats_json["channels"],
                     shop.call("/v1/channels")["items"]):
        equal([(row["closed"], row["closed_reason"], row["closed_by"])
               for row in channels], [(True, "moving", "anna")])
        equal(channels[0]["closed_at"], views.stats["channels"][0]["closed_at"])
    assert "closed by anna: moving" in views.stats_text, views.stats_text


@shown("a handler at fault holds what is due, with its error and the next probe")
def _(place, store):
    shop = Shop(place, store, "exec: [/bin/sh, -c, 'echo no licence >&2; "
                "exit 69']")
    for number in range(3):
        seq = shop.send(f"m{number}")
    until(lambda: shop.handler()["held"])

    def one_held():
        held = [row for row in shop.rows() if row["shown"] == "held"]
        return held[0]["seq"] if held else None
    seq = until(one_held)
    row = shop.shown(seq, "held", "broken")
    equal((row["held_reason"], row["held_by"]), ("no licence", None))
    assert row["until"] and row["held_at"], row
    equal((row["failures"], shop.handler()["poisoned"]), (0, 0))


@shown("what waits for the rate of its handler is shown with the time")
def _(place, store):
    shop = Shop(place, store, "rate: 1/h, exec: [/bin/true]")
    seqs = [shop.send(f"m{number}") for number in range(4)]
    until(lambda: shop.handler()["done"] == 1)
    until(lambda: shop.handler()["held"] == "rate")
    waiting = [row for row in shop.rows() if row["state"] != "done"]
    equal({row["reason"] for row in waiting}, {"rate"})
    equal(len(waiting), len(seqs) - 1)
    for state in {row["shown"] for row in waiting}:
        seq = [row["seq"] for row in waiting if row["shown"] == state][0]
        row = shop.shown(seq, state, "rate")
        assert row["until"] and row["held_by"] is None, row


@shown("a running, a queued, a stuck and a done delivery agree in all views")
def _(place, store):
    shop = Shop(place, store, "concurrency: 1, timeout: none, " + HANG,
                "lease: 15s")
    # Short runs first, so that a node leases more than it runs at once.
    place.write("go", "")
    for number in range(10):
        shop.send(f"m{number}")
    until(lambda: shop.handler()["done"] == 10)
    os.remove(place.file("go"))
    first = shop.send("first")
    second = shop.send("second")
    row = shop.shown(first, "running")
    equal((row["pid"], row["attempt"]), (shop.server.pid, 1))
    assert row["host"] and row["node"] and row["since"], row
    row = shop.shown(second, "queued")
    equal((row["pid"], row["reason"]), (shop.server.pid, None))
    row = shop.shown(first, "stuck")
    equal(row["pid"], shop.server.pid)
    place.write("go", "")
    shop.shown(first, "done")
    shop.shown(second, "done")


@shown("what has ended or has no handler is shown as its state")
def _(place, store):
    shop = Shop(place, store, "max_attempts: 1, exec: [/bin/sh, -c, "
                "'echo no mail >&2; exit 1']")
    seq = shop.send("a")
    row = shop.shown(seq, "poisoned")
    equal((row["attempt"], row["max_attempts"]), (1, 1))
    place.ok("discard", "a", "--reason", "an old test", "--by", "anna")
    shop.shown(seq, "discarded")
    shop.shown(shop.send("b", "bill.sent"), "parked")


@shown("a handler that asked not to be called for a while is held until then")
def _(place, store):
    place.command = os.environ["POSTERN_KIND"]
    os.mkdir(place.file("copies"))
    shop = Shop(place, store, "copy: {into: '${DIR}/copies', rest: 2h}")
    seq = shop.send("a")
    row = shop.shown(seq, "held", "retry-after")
    equal((row["held_by"], row["held_reason"]), ("postern", "called too often"))
    assert row["until"] > row["held_at"], row


@shown("what waits for a suspect is shown as held by it")
def _(place, store):
    place.command = os.environ["POSTERN_KIND"]
    os.mkdir(place.file("copies"))
    shop = Shop(place, store, "copy: {into: '${DIR}/copies', "
                "wait: '${DIR}/go'}, timeout: none")
    first = shop.send("a")
    shop.shown(first, "running")
    shop.restart(signal.SIGKILL)
    # On PostgreSQL when the lease of the killed one has expired.
    until(lambda: shop.row(first)["pid"] == shop.server.pid)
    shop.shown(first, "running")
    second = shop.send("b")
    row = shop.shown(second, "held", "suspects")
    assert "crashed" in row["held_reason"], row
    place.write("go", "")
    shop.shown(second, "done")
    shop.shown(first, "done")


@shown("the leases of a server that was killed are shown as leased")
def _(place, store):
    shop = Shop(place, store, HANG)
    seq = shop.send("a")
    row = shop.shown(seq, "running")
    shop.server.stop(signal.SIGKILL)
    place.write("go", "")
    listed = place.ok("list", "--json").json()[0]
    shown = place.show("a")["deliveries"][0]
    equal({name: shown[name] for name in listed}, listed)
    equal((listed["state"], listed["seq"]), ("leased", seq))
    assert listed["shown"] in ("leased", "running"), listed
    if listed["shown"] == "leased":
        equal(listed["pid"], None)
    else:
        # Its lease in the database has not expired yet.
        equal((listed["pid"], listed["node"]), (row["pid"], row["node"]))
    stats = place.ok("stats", "--json").json()["handlers"][0]
    equal((stats["leased"], stats["pending"]), (1, 0))
