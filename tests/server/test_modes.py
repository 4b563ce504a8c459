#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Channels in the modes guard and direct, through the command line and the API:
the result of the handlers is the answer, and no message is stored."""

import json
import os
import sqlite3
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
from support import PATIENCE_S, case, equal, main, until  # noqa: E402

# The body is a word that decides what the handler does.
RUN = """\
#!/bin/sh
word=$(cat)
echo "$word" >> "$0.ran"
case $word in
fail) echo no money >&2; exit 1;;
poison) echo no such account >&2; exit 65;;
wait) while ! [ -e "$0.go" ]; do sleep 0.02; done;;
esac
"""

CONFIG = """\
store: sqlite:shop.db
channels:
  pay:
    mode: guard
    guard_wait: 0s
    handlers:
      charge: {exec: ["${DIR}/run"], timeout: 1m}
  prices:
    mode: direct
    handlers:
      watch: {exec: ["${DIR}/run"], timeout: 1m}
  mixed:
    mode: guard
    guard: {types: [payment.*]}
    handlers:
      book: {exec: ["${DIR}/run"], timeout: 1m}
  ledger:
    mode: guard
    handlers:
      enter: {sql: "INSERT INTO entry VALUES (:id)"}
"""


def stats_of(place, name):
    stats = place.ok("stats", "--json").json()
    return next(row for row in stats["channels"] + stats["handlers"]
                if row.get("name", row.get("key")) == name)


def prepare(place, config=CONFIG):
    place.write("run", RUN)
    os.chmod(place.file("run"), 0o755)
    place.configure(config)


def ran(place):
    return place.read("run.ran").split()


def post(place, channel, key, body, kind="note"):
    """Returns the status, the headers and the JSON of the response."""
    done = subprocess.run(
        ["curl", "-sS", "-i", "--unix-socket", place.file("shop.db.sock"),
         "-H", f"ce-id: {key}", "-H", "ce-source: /shop",
         "-H", f"ce-type: {kind}", "-H", "ce-specversion: 1.0",
         "--data-binary", body,
         f"http://postern/v1/channels/{channel}/messages"],
        stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S,
    )
    head, text = done.stdout.decode().split("\r\n\r\n", 1)
    lines = head.lower().split("\r\n")
    return int(lines[0].split()[1]), lines[1:], json.loads(text)


@case("stats has no counts of a channel without an inbox, instead of wrong ones")
def _(place):
    prepare(place)
    place.ok("migrate")
    for serving in (False, True):
        if serving:
            place.serve()
        place.send("1", "fine", channel="pay")
        for channel in ("pay", "prices"):
            found = stats_of(place, channel)
            equal([found[name] for name in
                   ("accepted", "duplicates", "conflicts", "dropped")], [None] * 4)
        found = stats_of(place, "charge")
        equal([found[name] for name in ("done", "discarded", "returned")], [None] * 3)
        assert "nodes" not in found, found
        lines = [line.split() for line in place.ok("stats").out.splitlines()]
        assert ["charge", "-", "-", "-"] in [line[:4] for line in lines], lines
        assert ["pay", "-", "-", "-", "-"] in [line[:5] for line in lines], lines

@case("a guarded message runs once, without a server too")
def without_server(place):
    prepare(place)
    equal(place.send("a", "ok", channel="pay").out, "done\n")
    equal(place.send("a", "ok", channel="pay").out, "duplicate\n")
    place.fails(1, "send", "pay", "--id", "b", stdin="fail",
                says="handler 'charge': no money")
    equal(place.send("b", "ok", channel="pay").out, "done\n")
    equal(ran(place), ["ok", "fail", "ok"])
    equal(place.ok("list", "--json").json(), [])


IN_MEMORY = """\
store: sqlite:shop.db
channels:
  views:
    mode: guard
    handlers:
      count: {exec: ["${DIR}/run"], dedupe: memory, retention: {dedupe: 5m}}
  few:
    mode: guard
    dedupe: memory
    dedupe_max: 1
    handlers:
      last: {exec: ["${DIR}/run"]}
"""


@case("keys in memory are forgotten by a restart, and nothing is stored")
def keys_in_memory(place):
    prepare(place, IN_MEMORY)
    server = place.serve()
    equal(post(place, "views", "a", "ok")[2]["status"], "done")
    equal(post(place, "views", "a", "ok")[2]["status"], "duplicate")
    equal(ran(place), ["ok"])
    for key in ("1", "2", "1", "2"):
        equal(post(place, "few", key, "few")[2]["status"], "done")
    server.stop()
    log = [json.loads(line) for line in server.stderr().splitlines()]
    in_memory = [line for line in log if line["event"] == "dedupe_in_memory"]
    equal(sorted(line["handler"] for line in in_memory), ["count", "last"])
    full = [line for line in log if line["event"] == "dedupe_full"]
    equal([line["handler"] for line in full], ["last"])
    with sqlite3.connect(place.file("shop.db")) as database:
        equal(database.execute("SELECT count(*) FROM postern_marker")
              .fetchone(), (0,))
    server = place.serve()
    equal(post(place, "views", "a", "ok")[2]["status"], "done")
    server.stop()


@case("keys in memory are refused where a store has to remember")
def keys_in_memory_refused(place):
    for more, handler, why in [
        ("", "exec: [/bin/true]", "an inbox stores each message in any case"),
        ("mode: direct, ", "exec: [/bin/true]", "is for channels in the mode"),
        ("mode: guard, ", "sql: 'delete from x'", "not for transactional"),
        ("mode: guard, marker: m, ", "exec: [/bin/true]", "share a marker"),
    ]:
        place.configure(
            "store: sqlite:shop.db\n"
            f"channels: {{a: {{{more}handlers: {{h: {{{handler},"
            " dedupe: memory}}}}\n")
        place.fails(2, "check", says=why)


@case("a direct message runs each time")
def direct(place):
    prepare(place)
    for _ in range(2):
        equal(place.send("a", "ok", channel="prices").out, "done\n")
    equal(ran(place), ["ok", "ok"])


@case("the API answers with the result of the handlers")
def answers(place):
    prepare(place)
    place.serve()
    status, _, reply = post(place, "pay", "a", "ok")
    equal((status, reply["status"], "seq" in reply), (200, "done", False))
    status, _, reply = post(place, "pay", "a", "ok")
    equal((status, reply["status"]), (200, "duplicate"))
    status, _, reply = post(place, "pay", "b", "fail")
    equal((status, reply["detail"]), (502, "handler 'charge': no money"))
    status, _, reply = post(place, "pay", "c", "poison")
    equal((status, reply["detail"]), (422, "handler 'charge': no such account"))
    equal(ran(place), ["ok", "fail", "poison"])


@case("a copy of a message that is running is answered busy")
def busy(place):
    prepare(place)
    place.serve()
    first = []
    thread = threading.Thread(
        target=lambda: first.append(post(place, "pay", "a", "wait")))
    thread.start()
    until(lambda: ran(place) == ["wait"])
    status, headers, reply = post(place, "pay", "a", "wait")
    equal((status, reply["detail"]), (503, "handler 'charge': a copy is running"))
    assert "retry-after: 1" in headers, headers
    place.write("run.go", "")
    thread.join()
    equal((first[0][0], first[0][2]["status"]), (200, "done"))
    equal(ran(place), ["wait"])


@case("types that are guarded run once, the others each time")
def types(place):
    prepare(place)
    place.serve()
    for kind, words in (("payment.made", ["done", "duplicate"]),
                        ("price.seen", ["done", "done"])):
        equal([post(place, "mixed", kind, "ok", kind)[2]["status"]
               for _ in range(2)], words)


@case("a sql handler commits with its marker, and check names the writer")
def sql(place):
    prepare(place)
    place.ok("init")
    store = sqlite3.connect(place.file("shop.db"))
    store.execute("CREATE TABLE entry (id TEXT)")
    store.commit()
    store.close()
    note = "handler 'enter' (sql) has the only writer of the file"
    assert note in place.ok("check").out
    place.serve()
    equal([post(place, "ledger", "a", "ok")[2]["status"] for _ in range(3)],
          ["done", "duplicate", "duplicate"])
    store = sqlite3.connect(f"file:{place.file('shop.db')}?mode=ro", uri=True)
    equal(store.execute("SELECT id FROM entry").fetchall(), [("a",)])
    store.close()
    key = "/shop\na"
    equal(place.ok("mark", "has", "enter", key).out, "done\n")


@case("many copies of many messages at once run once each")
def many(place):
    prepare(place, CONFIG.replace("guard_wait: 0s", "guard_wait: 1m"))
    place.serve()
    statuses = []

    def send(key):
        statuses.append(post(place, "pay", key, key)[2]["status"])

    threads = [threading.Thread(target=send, args=(f"k{n % 5}",))
               for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(sorted(statuses), ["done"] * 5 + ["duplicate"] * 15)
    equal(sorted(ran(place)), [f"k{n}" for n in range(5)])


@case("require_inbox refuses or reports channels without an inbox")
def required(place):
    channel = "store: sqlite:a.db\ndefaults: {require_inbox: %s}\n" \
        "channels: {c: {mode: %s, %s handlers: {h: {exec: [/bin/true]}}}}\n"
    for mode in ("guard", "direct"):
        prepare(place, channel % ("fail", mode, ""))
        says = "channel 'c' has no inbox, but require_inbox is set"
        assert says in place.fails(2, "check").err
        prepare(place, channel % ("warn", mode, ""))
        assert says in place.ok("check").out
        server = place.serve()
        assert '"channel_without_inbox"' in server.stderr(), server.stderr()
        server.stop()
        prepare(place, channel % ("fail", mode, "allow_without_inbox: yes,"))
        assert "require_inbox" not in place.ok("check").out
    prepare(place, channel % ("fail", "inbox", ""))
    assert "require_inbox" not in place.ok("check").out


@case("lines are sent to a channel that answers with results")
def lines(place):
    prepare(place)
    events = [{"specversion": "1.0", "id": n, "source": "s", "type": "t",
               "data": "x"} for n in ("a", "b", "a")]
    place.write("in", "".join(json.dumps(e) + "\n" for e in events))
    reply = place.ok("send", "pay", "--lines", "in", "--json").json()
    equal((reply["accepted"], reply["duplicate"]), (2, 1))


@case("a source sends what failed again, gives it up, and that is published")
def faults(place):
    prepare(place, CONFIG.replace("guard_wait: 0s", """\
guard_wait: 0s
    fault_channel: faults
    sources: [{lines: {file: "${DIR}/in", max_attempts: 3}}]""").replace(
        "  prices:", """\
  faults:
    handlers:
      note: {exec: [/bin/true], timeout: 1m}
  prices:""") + "defaults: {restart_delay: 50ms}\n")
    place.write("in", "".join(json.dumps(
        {"specversion": "1.0", "id": word, "source": "s", "type": "t",
         "datacontenttype": "text/plain", "data": word}) + "\n"
        for word in ("ok", "fail", "poison")))
    place.serve()
    until(lambda: len(place.ok("list", "--json").json()) == 2)
    for word, attempts, reason in (("fail", "3", "no money"),
                                   ("poison", "1", "no such account")):
        event = place.show(word)
        equal((event["channel"], event["type"]), ("faults", "postern.fault"))
        told = event["headers"]
        told = told if isinstance(told, dict) else {
            header["name"]: header["value"] for header in told}
        equal(told, {"postern-fault-channel": "pay", "postern-fault-type": "t",
                     "postern-fault-attempts": attempts,
                     "postern-fault-reason": f"handler 'charge': {reason}"})
    equal(sorted(ran(place)), ["fail"] * 3 + ["ok", "poison"])


main()
