#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every command on a store, with and without a server: output and exit code
are the same."""

import json
import os
import subprocess
import threading

from support import (
    CONFIG,
    PATIENCE_S,
    POSTERN,
    case,
    equal,
    main,
    on_terminal,
    until,
)

# A handler whose deliveries stay pending after a failure, one that always
# poisons, and one that is done.
SLOW = """\
store: sqlite:box.db
defaults:
  backoff: [1h]
channels:
  orders:
    handlers:
      slow:
        types: ["slow.*"]
        exec: [/bin/false]
      bad:
        types: ["bad.*"]
        max_attempts: 1
        exec: [/bin/sh, -c, 'echo "no way $CE_ID" >&2; exit 65']
      quick:
        types: ["quick.*"]
        exec: [/bin/cat]
  other: {}
  drops: {unrouted: drop}
"""

# A program that fails the first time.
FAILS_ONCE = """exec: [/bin/sh, -c, 'test $POSTERN_ATTEMPT -gt 1 || {
          echo not yet >&2; exit 1; }']"""


def both(name):
    """Registers a case twice: alone, and beside a server."""

    def register(function):
        def alone(place):
            place.configure(SLOW)
            place.ok("init")
            place.pump = lambda: place.ok("process", "--ignore-failures")
            place.server = None
            function(place)

        def served(place):
            place.configure(SLOW)
            place.server = place.serve()
            place.pump = lambda: None
            function(place)

        case(f"{name}, without a server")(alone)
        case(f"{name}, beside a server")(served)
        return function

    return register


def fill(place):
    """One delivery in each lasting state: retrying, poisoned, done and
    parked."""
    for name in ("slow", "bad", "quick", "odd"):
        result = place.send(name, f"body of {name}", "--type", f"{name}.x")
        equal((result.code, result.word), (0, "accepted"), result)
    place.pump()

    def settled():
        rows = place.ok("list", "--json").json()
        states = {row["message_id"]: row["state"] for row in rows}
        failures = {row["message_id"]: row["failures"] for row in rows}
        return states == {
            "slow": "pending",
            "bad": "poisoned",
            "quick": "done",
            "odd": "parked",
        } and failures["slow"] > 0

    until(settled)


@both("send prints accepted, duplicate or conflict")
def _(place):
    equal(place.send("a", "x").word, "accepted")
    result = place.send("a", "x")
    equal((result.code, result.out, result.err), (0, "duplicate\n", ""))
    result = place.send("a", "y")
    equal((result.code, result.out), (1, "conflict\n"))
    assert "another body" in result.err, result
    equal(place.send("a", "y", "--source", "s").word, "accepted")
    equal(place.send("a", "y", channel="other").word, "accepted")


@both("send --json prints the response of the API")
def _(place):
    first = place.send("a", "x", "--json").json()
    equal(first["status"], "accepted")
    equal((first["id"], first["source"]), ("a", "orders"))
    second = place.send("a", "x", "--json").json()
    equal((second["status"], second["seq"]), ("duplicate", first["seq"]))
    result = place.send("a", "y", "--json")
    equal((result.code, result.json()["status"]), (1, "conflict"))
    equal(result.json()["seq"], first["seq"])


@both("send without an id generates and prints one")
def _(place):
    result = place.ok("send", "orders", stdin="x")
    equal(result.word, "accepted")
    made = result.err.split()[-1]
    equal(place.show(made)["body"], "x")
    data = place.ok("send", "orders", "--json", stdin="x").json()
    equal(place.show(data["id"])["body"], "x")
    assert data["id"] != made


@both("a message is shown as it was sent, byte for byte")
def _(place):
    flags = {
        "id": ' "id" 100% ünï/co#de?& ',
        "type": "quick.type",
        "source": "urn:ü ber",
        "subject": "a b",
        "time": "2026-01-31T08:00:00Z",
        "correlation-id": "corr 1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "content-type": "application/json; charset=utf-8",
    }
    words = [word for name in flags for word in (f"--{name}", flags[name])]
    body = b"\x00\xff{}\n" + bytes(range(256))
    words += ["--header", "tenant=a=b", "-H", "X-Empty=", "-Hx-ü=1"][:4]
    equal(place.ok("send", "orders", *words, stdin=body).word, "accepted")
    data = place.show(flags["id"])
    for name, value in flags.items():
        equal(data[name.replace("-", "_")], value)
    equal(data["transport"], "cli")
    headers = {h["name"].lower(): h["value"] for h in data["headers"]}
    equal(headers["tenant"], "a=b")
    equal(headers["x-empty"], "")
    equal(place.ok("show", flags["id"], "--body").raw, body)


@both("the body comes from a file, a dash, a pipe or a flag")
def _(place):
    place.write("body.txt", "from a file")
    place.ok("send", "orders", "body.txt", "--id", "1", stdin="not this")
    place.ok("send", "orders", "-", "--id", "2", stdin="from a dash")
    place.ok("send", "orders", "--id", "3", stdin="from a pipe")
    place.ok("send", "orders", "--id", "4", "--body", "from a flag")
    place.ok("send", "orders", "--id", "5", "--body", "")
    for number, body in enumerate(
        ("from a file", "from a dash", "from a pipe", "from a flag", ""), 1
    ):
        equal(place.show(str(number))["body"], body)


@both("list filters, limits and continues where it ended")
def _(place):
    fill(place)

    def ids(*words):
        rows = place.ok("list", "--json", *words).json()
        return [row["message_id"] for row in rows]

    equal(ids(), ["odd", "quick", "bad", "slow"])
    equal(ids("--state", "poisoned"), ["bad"])
    equal(ids("--state", "done"), ["quick"])
    equal(ids("--state", "retrying"), ["slow"])
    equal(ids("--state", "pending"), ["slow"])
    equal(ids("--state", "parked"), ["odd"])
    equal(ids("--handler", "bad"), ["bad"])
    equal(ids("--type", "*.x", "--state", "done"), ["quick"])
    equal(ids("--type", "nothing"), [])
    equal(ids("--channel", "other"), [])
    equal(ids("--id", "slow"), ["slow"])
    equal(ids("--source", "orders", "--limit", "1"), ["odd"])
    equal(ids("--since", "1h"), ["odd", "quick", "bad", "slow"])
    equal(ids("--until", "1h"), [])
    equal(ids("--since", "2026-01-31T08:00:00Z", "--limit", "2"), ["odd", "quick"])
    first = place.ok("list", "--limit", "3", "--json")
    equal(len(first.json()), 3)
    cursor = json.loads(first.err)["cursor"]
    assert f"there are more deliveries: --cursor {cursor}" in place.ok(
        "list", "--limit", "3").err
    equal(ids("--cursor", cursor), ["slow"])
    text = place.ok("list").out.splitlines()
    equal(text[0].split()[:4], ["SEQ", "ID", "CHANNEL", "HANDLER"])
    equal(len(text), 5)
    assert "waiting" in text[4] and "no way bad" in text[3], text
    place.fails(2, "list", "--state", "posioned",
                says="'posioned', did you mean 'poisoned'? The states are pending")
    result = place.fails(2, "list", "--state", "nope", says="'nope'")
    assert "did you mean" not in result.err, result
    place.fails(2, "list", "--since", "yesterday", says="since")
    place.fails(2, "list", "--limit", "10001", says="limit")
    place.fails(2, "list", "--cursor", "mine", says="cursor")
    place.fails(2, "list", "--handler", "", says="empty")
    result = place.ok("list", "--channel", "other")
    equal(result.out, "")
    assert "no deliveries match" in result.err


@both("show prints the deliveries of a message and their errors")
def _(place):
    fill(place)
    data = place.show("bad")
    equal(data["body"], "body of bad")
    row = data["deliveries"][0]
    equal((row["handler"], row["state"]), ("bad", "poisoned"))
    equal(row["last_error"], "no way bad")
    equal(row["attempts"][-1]["outcome"], "poison")
    place.send("bad", "body of bad", "--type", "bad.x")
    place.send("bad", "other", "--type", "bad.x")
    text = place.ok("show", "bad").out
    for part in (
        "orders",
        "bad.x",
        "poisoned",
        "no way bad",
        "body of bad",
        "1 suppressed",
        "1 with another body",
        "attempts of bad",
    ):
        assert part in text, (part, text)
    seq = data["seq"]
    equal(place.ok("show", f"#{seq}").out.split()[:3][2], "bad")
    equal(place.ok("show", "--seq", str(seq), "--json").json()["id"], "bad")
    place.fails(3, "show", "nobody", says="nobody")
    place.fails(3, "show", "#99999")
    place.fails(3, "show", "--seq", "99999")
    place.fails(3, "show", "bad", "--channel", "other")
    place.fails(2, "show", "--seq", "x1", says="number")
    place.fails(2, "show", says="specify a message id")
    place.fails(2, "show", "bad", "--seq", "1", says="cannot be combined")


@both("an id of several messages needs a channel or source")
def _(place):
    place.send("same", "1", "--source", "s one")
    place.send("same", "2", "--source", "s two")
    place.send("same", "3", channel="other")
    result = place.fails(2, "show", "same", says="3 messages have this id")
    assert "--channel orders --source s one" in result.err, result
    place.fails(2, "retry", "same", says="choose one with")
    equal(place.show("same", "--source", "s two")["body"], "2")
    equal(place.show("same", "--channel", "other")["body"], "3")


@both("--id accepts an id that looks like a number")
def _(place):
    place.send("#1", "first", "--type", "odd.x")
    place.send("#2", "second", "--type", "odd.x")
    place.send("#1", "third", "--type", "odd.x", "--source", "s")
    equal(place.ok("show", "#2", "--body").out, "second")
    equal(place.ok("show", "--id", "#2", "--body").out, "second")
    place.fails(2, "show", "--id", "#1", says="2 messages have this id")
    equal(place.ok("show", "--id", "#1", "--source", "s", "--body").out, "third")
    place.fails(3, "show", "--id", "#3", says="'#3'")
    place.fails(2, "show", "--id", "#2", "--seq", "2", says="cannot be combined")
    place.fails(2, "show", "--id", "#2", "x", says="cannot be combined")
    equal(place.ok("discard", "--id", "#2").out, "discarded parked message\n")


@both("a done delivery shows no error, but its failed attempt is listed")
def _(place):
    place.configure(
        SLOW.replace("[1h]", "[0]").replace("exec: [/bin/cat]", FAILS_ONCE)
    )
    if place.server:
        equal(place.server.stop(), 0)
        place.serve()
    place.send("a", "x", "--type", "quick.x")
    place.pump()
    until(lambda: place.state("a", "quick") == "done")
    equal(place.delivery("a", "quick")["last_error"], "not yet")
    equal(place.ok("list", "--json").json()[0]["last_error"], "not yet")
    line = place.ok("list").out.splitlines()[1]
    assert "done" in line and "not yet" not in line, line
    table, _, attempts = place.ok("show", "a").out.partition("attempts of")
    assert "done" in table and "not yet" not in table, table
    assert "not yet" in attempts, attempts


@both("a dropped message is accepted and reported as dropped")
def _(place):
    result = place.send("a", "x", channel="drops")
    equal((result.code, result.word), (0, "accepted"))
    assert "no handler wants the message: dropped" in result.err, result
    data = place.send("b", "x", "--json", channel="drops").json()
    equal((data["status"], data["dropped"], data["seq"]), ("accepted", True, None))
    result = place.send("c", "x", "--type", "odd.x")
    equal((result.word, result.err), ("accepted", ""))


@both("a message cannot send control characters to the terminal")
def _(place):
    place.ok(
        "send",
        "orders",
        "--id",
        "evil",
        "--type",
        "bad.\u202eevil",
        stdin="\x1b]0;title\x07 \x9b31m\r",
    )
    for words in (["show", "evil"], ["list"]):
        raw = place.ok(*words).raw
        assert b"\x1b" not in raw and b"\x07" not in raw, raw
        assert "\u202e".encode() not in raw, raw
        assert b"\r" not in raw, raw
    for words in (["show", "evil", "--json"], ["list", "--json"]):
        text = on_terminal(place, *words)
        assert text.isascii(), text
        assert b"\x1b" not in text and b"\x07" not in text, text


@both("a body that is not text is shown in hex")
def _(place):
    place.ok("send", "orders", "--id", "bin", stdin=b"\x00\x01\xfeABC" * 100)
    text = place.ok("show", "bin").out
    assert "00 01 fe 41 42 43" in text, text
    assert "more bytes; --body prints all" in text, text


@both("retry reopens a poisoned delivery, with a higher fence")
def _(place):
    fill(place)
    before = place.delivery("bad", "bad")
    result = place.ok("retry", "bad")
    equal(result.out, "retried bad\n")
    place.pump()
    after = until(
        lambda: (row := place.delivery("bad", "bad"))["state"] == "poisoned"
        and row["starts"] > before["starts"]
        and row
    )
    assert after["fence"] > before["fence"], (before, after)
    result = place.fails(1, "retry", "quick", says="cannot be run again")
    equal(result.out, "")
    place.fails(1, "retry", "quick", "--handler", "quick", says="'quick': ")
    place.fails(3, "retry", "bad", "--handler", "nobody",
                says="retry: #2 has no delivery to 'nobody'; it has: bad")
    place.fails(3, "retry", "nobody")
    data = place.ok("retry", "slow", "--json").json()
    equal([row["status"] for row in data], ["retried"])
    equal(place.ok("retry", "bad", "--dry-run").out,
          "would retry 1 delivery\n")
    equal(place.state("bad", "bad"), "poisoned")


@both("discard ends an open delivery without running it")
def _(place):
    fill(place)
    equal(place.ok("discard", "bad").out, "discarded bad\n")
    equal(place.state("bad", "bad"), "discarded")
    place.fails(1, "retry", "odd", says="no handler wants the message: it is parked")
    equal(place.ok("discard", "odd").out, "discarded parked message\n")
    for verb in ("retry", "discard"):
        result = place.fails(1, verb, "odd", says="it is discarded")
        assert "''" not in result.err and "--handler" not in result.err, result
    place.fails(1, "discard", "quick", says="'quick' is done")
    place.fails(1, "retry", "bad", says="--handler")
    equal(place.ok("retry", "bad", "--handler", "bad").out, "retried bad\n")


@both("bulk edits are counted first and need confirmation")
def _(place):
    fill(place)
    for number in range(5):
        place.send(f"more{number}", "x", "--type", "bad.x")
    place.pump()
    until(lambda: len(place.ok("list", "--json", "--state", "poisoned").json()) == 6)
    equal(place.ok("discard", "--state", "poisoned", "-n").out,
          "would discard 6 deliveries\n")
    data = place.ok("discard", "--state", "poisoned", "-n", "--json").json()
    equal((data["count"], data["dry_run"]), (6, True))
    result = place.fails(2, "discard", "--state", "poisoned", says="--yes")
    assert "6 deliveries match" in result.err, result
    equal(len(place.ok("list", "--json", "--state", "poisoned").json()), 6)
    result = place.ok("discard", "--state", "poisoned", "--limit", "2", "-y")
    equal(result.out, "discarded 2\n")
    result = place.ok("discard", "--state", "poisoned", "--yes", "--json")
    equal(result.json()["count"], 4)
    equal(place.ok("discard", "--state", "poisoned", "--yes").out, "discarded 0\n")
    place.fails(2, "discard", says="specify an ID")
    place.fails(2, "retry", "--state", "nonsense", "--yes", says="nonsense")
    for verb, state, why in (
        ("retry", "done", "a delivery that is done is not run again; retry accepts pending"),
        ("retry", "leased", "a leased delivery is running"),
        ("retry", "parked", "has no handler to run"),
        ("discard", "done", "a delivery that is done has ended; discard accepts pending"),
        ("discard", "discarded", "has ended"),
        ("discard", "leased", "a leased delivery is running"),
    ):
        place.fails(2, verb, "--state", state, "--dry-run", says="--state: a ")
        place.fails(2, verb, "--state", state, "--yes", says=why)
        assert f"{state}," not in place.ok(verb, "--help").out, (verb, state)
    place.fails(2, "retry", "bad", "--state", "poisoned", says="cannot be combined with an ID")
    place.fails(2, "retry", "--state", "poisoned", "--limit", "0", says="limit")


def type_reply(place, words, text):
    """Runs the command on a terminal and types a reply."""
    master, slave = os.openpty()
    process = subprocess.Popen(
        [POSTERN, *words],
        cwd=place.path,
        env=place.environment(),
        stdin=slave,
        stderr=slave,
        stdout=subprocess.PIPE,
    )
    os.close(slave)
    seen = b""
    while b"[y/N]" not in seen:
        seen += os.read(master, 1000)
    os.write(master, text)
    out, _ = process.communicate(timeout=PATIENCE_S)
    os.close(master)
    return process.returncode, out.decode()


@both("on a terminal a bulk edit asks for confirmation")
def _(place):
    fill(place)
    words = ["discard", "--state", "poisoned"]
    equal(type_reply(place, words, b"n\n"), (1, ""))
    equal(type_reply(place, words, b"\n"), (1, ""))
    equal(place.state("bad", "bad"), "poisoned")
    equal(type_reply(place, words, b"y\n"), (0, "discarded 1\n"))
    equal(place.state("bad", "bad"), "discarded")


@both("a paused handler gets nothing until it is resumed")
def _(place):
    place.send("first", "x", "--type", "quick.x")
    place.pump()
    until(lambda: place.state("first", "quick") == "done")
    equal(place.ok("pause", "quick").out, "paused quick\n")
    equal(place.ok("pause", "quick", "--json").json()["paused"], True)
    place.send("second", "x", "--type", "quick.x")
    place.send("third", "x", "--type", "bad.x")
    place.pump()
    until(lambda: place.state("third", "bad") == "poisoned")
    equal(place.state("second", "quick"), "pending")
    assert "paused" in place.ok("stats").out
    equal(place.ok("resume", "quick").out, "resumed quick\n")
    place.pump()
    until(lambda: place.state("second", "quick") == "done")
    place.fails(3, "pause", "nobody", says="nobody")
    place.fails(3, "resume", "no/body", says="no/body")
    place.fails(2, "pause", "", says="key")


@both("stats count messages and the states of their deliveries")
def _(place):
    fill(place)
    place.send("quick", "body of quick", "--type", "quick.x")
    place.send("quick", "another", "--type", "quick.x")
    data = place.ok("stats", "--json").json()
    channel = next(c for c in data["channels"] if c["name"] == "orders")
    equal(
        [channel[n] for n in ("accepted", "duplicates", "conflicts", "parked")],
        [4, 1, 1, 1],
    )
    rows = {h["key"]: h for h in data["handlers"]}
    equal(rows["bad"]["poisoned"], 1)
    equal(rows["quick"]["done"], 1)
    equal((rows["slow"]["pending"], rows["slow"]["retrying"]), (1, 1))
    text = place.ok("stats").out
    for word in ("CHANNEL", "orders", "HANDLER", "slow", "POISONED"):
        assert word in text, text


@both("an unknown channel is not found, and the closest name is suggested")
def _(place):
    result = place.fails(3, "send", "ordres", "--id", "1", stdin="x")
    assert "did you mean 'orders'?" in result.err, result
    place.fails(3, "send", "a/b", "--id", "1", stdin="x")


@both("headers that would not be stored are refused")
def _(place):
    for pair in ("Host=x", "content-length=5", "ce-id=x", "Expect=1"):
        place.fails(2, "send", "orders", "-H", pair, says="would not be stored")
    for pair in ("novalue", "=x", "a b=c", "a=b\nc: d", "a= b", b"a=\xff"):
        place.fails(2, "send", "orders", "-H", pair, says="--header")


@both("many messages can be sent at once")
def _(place):
    results = []
    threads = [
        threading.Thread(
            # Long, because the duration does not matter here.
            target=lambda n=n: results.append(
                place.send(f"m{n}", "x", "--command-timeout", "1h")
            )
        )
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        equal((result.code, result.word), (0, "accepted"), result)
    equal(len(place.ok("list", "--json", "--limit", "100").json()), 20)


@case("process runs due deliveries, and no more than --max")
def _(place):
    place.configure()
    for number in range(5):
        place.send(str(number), f"<{number}>")
    equal(place.process("--max", "2"), 2)
    equal(place.process(), 3)
    equal(place.process(), 0)
    equal(sorted(place.read("log.out")), sorted("<0><1><2><3><4>"))
    place.fails(2, "process", "--max", "0", says="--max")
    place.fails(2, "process", "--max", "many", says="--max")


@case("with all standard streams closed nothing is printed into the store's files")
def _(place):
    place.configure()
    for number in range(3):
        line = f"exec '{POSTERN}' send orders --id {number} --body x"
        result = subprocess.run(
            ["/bin/sh", "-c", line + " <&- >&- 2>&-"],
            cwd=place.path,
            env=place.environment(),
            check=False,
        )
        equal(result.returncode, 1)
    for name in os.listdir(place.path):
        with open(place.file(name), "rb") as file:
            assert b"accepted\n" not in file.read(), name
    equal(len(place.ok("list", "--json").json()), 3)


@case("commands that do not accept messages do not create a store")
def _(place):
    place.configure()
    for words in (
        ["list"],
        ["stats"],
        ["show", "x"],
        ["retry", "x"],
        ["discard", "--state", "poisoned", "--yes"],
        ["pause", "log"],
        ["process"],
    ):
        place.fails(4, *words, says="postern migrate")
    equal(os.listdir(place.path), ["postern.yaml"])
    assert "postern migrate" in place.ok("check").out
    equal(os.listdir(place.path), ["postern.yaml"])


@case("send to an unknown channel creates no store")
def _(place):
    place.fails(3, "send", "orders", "--id", "1", says="'postern init'")
    equal(os.listdir(place.path), [])
    place.configure()
    result = place.fails(3, "send", "ordres", "--id", "1", "--json")
    assert "send: no channel 'ordres'" in result.err, result
    assert "did you mean 'orders'?" in result.err, result
    equal(os.listdir(place.path), ["postern.yaml"])


# Handlers that a box refuses, and parts of the error.
REFUSED = {
    "sql: 'select :bodi'": "postern.yaml:6:14: sql: line 1: unknown para",
    "sql: insrt into t values (1)": "6:14: sql: line 1: near",
    "sql: commit": "postern.yaml:6:14: sql: line 1: commit is not allowed",
    f"{{sql: select 1, types: [{'a' * 201}]}}": "6:33: a pattern has more than 200",
    "{sql: select 1, types: ['*********']}": "6:33: pattern '*********' has 9",
    f"exec: [/bin/true{', x' * 64}]": "6:15: 'exec' has more than 64 entries",
    f"exec: [/bin/true, {'x' * 65536}]": "6:15: exec: the arguments exceed",
    "exec: ['${DIR}/anyone']": "5:7: ",
}


@case("check, serve and send refuse the same handlers, and create nothing")
def _(place):
    os.chmod(place.write("anyone", "#!/bin/sh\n"), 0o777)
    for handler, says in REFUSED.items():
        place.configure(
            "store: sqlite:box.db\n"
            "channels:\n"
            "  orders:\n"
            "    handlers:\n"
            "      bad:\n"
            f"        {handler}\n"
        )
        place.fails(2, "serve", says=says)
        place.fails(2, "send", "orders", "--id", "1", says=says)
        result = place.run("check")
        equal(result.code, 2, handler)
        assert says in result.out + result.err, (says, result)
        equal(sorted(os.listdir(place.path)), ["anyone", "postern.yaml"])


@case("check refuses a transactional handler on a memory store")
def _(place):
    place.configure(
        """\
store: memory
channels:
  orders:
    handlers:
      bad:
        sql: select 1
"""
    )
    result = place.run("check")
    equal(result.code, 2)
    assert "postern.yaml:5:7: handler 'bad' is transactional" in result.out, result


@case("init writes a configuration and a store, and keeps existing files")
def _(place):
    result = place.ok("init")
    assert "wrote postern.yaml" in result.out, result
    assert os.path.exists(place.file("box.db")) is False
    assert "sqlite:postern.db is ready" in result.out, result
    sample = place.read("postern.yaml")
    equal(place.ok("check").out.splitlines()[-1], "ok")
    equal(place.ok("stats", "--json").json()["stores"],
          [{"name": "default", "kind": "sqlite",
            "url": "sqlite:" + place.file("postern.db")}])
    place.configure(CONFIG)
    result = place.ok("init", "--json")
    equal(result.json()["written"], False)
    equal(result.json()["store"], "sqlite:box.db")
    result = place.ok("init")
    assert "kept postern.yaml" in result.out, result
    assert "postern.yaml exists" in result.err, result
    assert "postern migrate" in result.err, result
    equal(place.read("postern.yaml"), CONFIG)
    assert "\n  # payload: how long completed messages are kept\n" in sample, sample
    assert "  # markers\n#  retention: {payload: none, dedupe: none}\n" in sample, sample
    place.ok("init", "-c", "second.yaml", "--store", "sqlite:third.db")
    equal(place.read("second.yaml"),
          sample.replace("\nstore: sqlite:postern.db", '\nstore: "sqlite:third.db"'))
    place.fails(2, "init", "-c", "fourth.yaml", "--store", "sqlite:", says="--store")
    equal(os.path.exists(place.file("fourth.yaml")), False)
    assert os.path.exists(place.file("third.db"))
    place.fails(1, "init", "-c", "no/such/dir.yaml", says="no/such")
    place.configure("bogus: 1\n")
    place.fails(2, "init", says="postern.yaml:1:1")


@case("init refuses flags that name another store than the existing file")
def _(place):
    place.configure(CONFIG)
    place.fails(2, "init", "--store", "sqlite:else.db",
                says="sets the store sqlite:box.db, not sqlite:else.db")
    equal(os.path.exists(place.file("else.db")), False)
    equal(os.path.exists(place.file("box.db")), False)
    place.ok("init", "--store", "sqlite:box.db")
    equal(place.read("postern.yaml"), CONFIG)


@case("init does not write a configuration that commands would refuse")
def _(place):
    place.fails(2, "init", "--connections", "4", says="stores on a server only")
    equal(os.path.exists(place.file("postern.yaml")), False)


@case("migrate upgrades a store and reports it")
def _(place):
    place.configure()
    place.ok("init")
    result = place.ok("migrate")
    assert "up to date" in result.out, result
    equal(place.ok("migrate", "--json").json()["status"], "current")


@case("migrate creates a store that is missing, so init is not needed")
def _(place):
    place.configure()
    assert "up to date" in place.ok("migrate").out
    equal(place.ok("stats", "--json").json()["stores"],
          [{"name": "default", "kind": "sqlite",
            "url": "sqlite:" + place.file("box.db")}])
    equal(place.read("postern.yaml"), CONFIG)
    equal(place.send("a").out, "accepted\n")


@case("check reports orphaned handlers and missing programs")
def _(place):
    place.configure(
        """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      gone:
        exec: [/bin/false]
      fine:
        exec: [/bin/cat]
"""
    )
    place.send("a")
    result = place.ok("check")
    assert "1 channel, 2 handlers" in result.out, result
    equal(result.out.splitlines()[-1], "ok")
    place.configure(
        """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      fine:
        exec: [/no/such/program]
"""
    )
    result = place.run("check")
    equal(result.code, 1)
    assert "'gone': its 1 open delivery would be poisoned" in result.out, result
    assert "cannot run '/no/such/program'" in result.out, result
    assert "postern.yaml:5:" in result.out, result
    equal(result.out.splitlines()[-1], "not ok")
    data = place.run("check", "--json").json()
    equal(data["ok"], False)
    equal([f["level"] for f in data["findings"]], ["error", "note", "error"])
    assert isinstance(data["effective"], dict), data
    text = place.run("check", "--orphans", "hold").out
    assert "would wait" in text, text
    text = place.run("check", "--orphans", "fail").out
    assert "keep the server from starting" in text, text
    assert "max_attempts" in place.run("check", "--print").out
    place.configure(
        """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      fine:
        legacy_keys: [gone]
        exec: [/bin/cat]
"""
    )
    equal(place.ok("check").out.splitlines()[-1], "ok")


@case("require_inbox is accepted and prints nothing")
def _(place):
    place.configure(CONFIG + "defaults: {require_inbox: fail}\n")
    result = place.ok("check")
    assert "inbox" not in result.out + result.err, result
    server = place.serve()
    assert "inbox" not in server.stderr(), server.stderr()
    equal(place.send("a").out, "accepted\n")
    assert "require_inbox: fail" in place.ok("check", "--print").out


@case("metrics are in the help and in check --print")
def _(place):
    for words in (["serve", "--help"], ["check", "--print"]):
        assert "metrics" in place.ok(*words).out, words
    assert "metrics: off" in place.ok("check", "--print", "--metrics", "off").out


@case("commands do not poison deliveries of handlers that they do not have")
def _(place):
    place.configure()
    place.send("a")
    place.configure(CONFIG.replace("log:", "renamed:"))
    place.send("b")
    place.ok("process", "--ignore-failures")
    place.ok("retry", "a")
    place.ok("list")
    equal(place.state("a", "log"), "pending")
    server = place.serve("--orphans", "hold")
    assert "1 open delivery belongs to handler 'log'" in server.stderr(), server
    equal(server.stop(), 0)
    place.configure(CONFIG.replace("log:", "renamed:") + "defaults: {orphans: fail}\n")
    equal(place.send("c").out, "accepted\n")
    equal(place.state("a", "log"), "pending")


main()
