#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Invalid input: each gets an error that names the place and the right exit
code, and nothing is lost or half-written."""

import json
import os
import resource
import shutil
import signal
import sqlite3

from support import CONFIG, case, equal, main


def both(name):
    """Registers a case twice: alone, and beside a server."""

    def register(function):
        def alone(place):
            place.configure()
            place.ok("init")
            function(place)

        def served(place):
            place.configure()
            place.serve()
            function(place)

        case(f"{name}, without a server")(alone)
        case(f"{name}, beside a server")(served)
        return function

    return register


@both("an id is 1 to 200 characters without control characters")
def _(place):
    for bad, text in (
        ("", "empty"),
        ("x" * 201, "201 characters"),
        ("ü" * 201, "201 characters"),
        ("a\nb", "control"),
        ("a\x7f", "control"),
        ("a\u0085b", "control"),
        (b"\xff\xfe", "UTF-8"),
        (b"\xed\xa0\x80", "UTF-8"),
    ):
        result = place.fails(2, "send", "orders", "--id", bad, says=text)
        equal(result.out, "")
    equal(place.ok("list", "--json").json(), [])
    for good in ("x" * 200, "ü" * 200, "🙂" * 200, " ", "#1", "-"):
        result = place.ok("send", "orders", f"--id={good}", stdin="x")
        equal(result.out, "accepted\n")
    equal(len(place.ok("list", "--json").json()), 6)
    equal(place.show("🙂" * 200)["id"], "🙂" * 200)


@both("an invalid id is refused or not found")
def _(place):
    place.fails(2, "show", b"\xff", says="UTF-8")
    place.fails(2, "show", "", says="id")
    place.fails(3, "show", "x" * 300)


@both("attributes have limits")
def _(place):
    for flag in ("--type", "--source", "--subject", "--correlation-id"):
        place.fails(2, "send", "orders", flag, "x" * 1025, stdin="x")
        place.fails(2, "send", "orders", flag, "a\x01b", stdin="x")
        place.fails(2, "send", "orders", flag, b"\xff", stdin="x")
    place.fails(2, "send", "orders", "--time", "noon", stdin="x", says="time")
    place.fails(2, "send", "orders", "--content-type", "a\nb", stdin="x")
    words = [word for n in range(65) for word in ("-H", f"h{n}=x")]
    result = place.run("send", "orders", *words, stdin="x")
    assert result.code in (1, 2), result
    result = place.run("send", "orders", "-H", "a=" + "x" * 9000, stdin="x")
    assert result.code in (1, 2), result
    equal(place.ok("list", "--json").json(), [])


@both("a body over the limit is refused before it is sent")
def _(place):
    limit = 1024 * 1024
    result = place.send("big", b"x" * (limit + 1))
    equal((result.code, result.out), (1, ""))
    assert "exceeds 1MiB" in result.err, result
    place.write("big.bin", b"x" * (limit + 1))
    place.fails(1, "send", "orders", "big.bin", says="exceeds 1MiB")
    equal(place.ok("list", "--json").json(), [])
    equal(place.send("fits", b"x" * limit).out, "accepted\n")
    equal(len(place.ok("show", "fits", "--body").raw), limit)


@both("a body that never ends is refused, too")
def _(place):
    with open("/dev/zero", "rb") as zero:
        place.fails(1, "send", "orders", "/dev/zero", says="exceeds 1MiB")
    place.fails(1, "send", "orders", "no-such-file", says="no-such-file")
    place.fails(1, "send", "orders", ".", says="directory")
    place.fails(2, "send", "orders", "x", "--body", "y", says="cannot be combined")


@case("the limit of the server applies")
def _(place):
    place.configure(CONFIG + "defaults: {max_message_size: 1KiB}\n")
    place.serve()
    place.configure()
    result = place.send("a", b"x" * 1025)
    equal((result.code, result.out), (1, ""), result)
    equal(place.send("b", b"x" * 1024).out, "accepted\n")


@case("a type that no handler wants is rejected with unrouted: reject")
def _(place):
    place.configure(
        """\
store: sqlite:box.db
channels:
  strict:
    unrouted: reject
    handlers:
      only:
        types: [this]
        exec: [/bin/cat]
"""
    )
    result = place.send("a", "x", "--type", "that", channel="strict")
    equal((result.code, result.out), (1, ""), result)
    assert "that" in result.err, result
    result = place.send("a", "x", "--type", "this", channel="strict")
    equal(result.out, "accepted\n")


READING = (["list"], ["stats"], ["show", "a"])
WRITING = (
    ["send", "orders", "--id", "b"],
    ["retry", "a"],
    ["pause", "log"],
    ["process"],
    ["migrate"],
    ["serve"],
)


@case("a file that is not a database is not changed")
def _(place):
    place.configure()
    text = b"this is not a database, but somebody's letter\n" * 100
    place.write("box.db", text)
    for words in READING + WRITING + (["init"],):
        result = place.fails(4, *words, says="box.db")
        equal(result.out, "", words)
    equal(place.run("check").code, 4)
    with open(place.file("box.db"), "rb") as file:
        equal(file.read(), text)


@case("other tables in the same file are not changed")
def _(place):
    place.configure()
    with sqlite3.connect(place.file("box.db")) as database:
        database.execute("create table letters(text)")
        database.execute("insert into letters values ('dear')")
    for words in READING:
        place.fails(4, *words)
    equal(place.send("a").out, "accepted\n")
    with sqlite3.connect(place.file("box.db")) as database:
        rows = database.execute("select text from letters").fetchall()
        equal(rows, [("dear",)])


@case("a store of a newer version is not changed")
def _(place):
    def shift(by):
        database = sqlite3.connect(place.file("box.db"), isolation_level=None)
        changed = database.execute(
            "update postern_meta set value = value + ? where name = 'schema'",
            (by,),
        )
        equal(changed.rowcount, 1)
        database.close()  # the last close copies the log into the file

    place.configure()
    equal(place.send("a").out, "accepted\n")
    shift(1)
    before = open(place.file("box.db"), "rb").read()
    for words in READING + WRITING + (["init"],):
        place.fails(4, *words, says="version")
    equal(place.run("check").code, 4)
    equal(open(place.file("box.db"), "rb").read(), before)
    shift(-1)
    equal(place.send("a").out, "duplicate\n")


@case("a directory in place of the store is refused")
def _(place):
    place.configure()
    os.mkdir(place.file("box.db"))
    for words in READING + WRITING:
        place.fails(2, *words, says="'box.db' is not a regular file")
    place.configure(CONFIG.replace("box.db", "no/such/dir/box.db"))
    place.fails(4, "send", "orders", says="no/such/dir")
    place.fails(4, "init", says="no/such/dir")
    place.fails(4, "list", says="no/such/dir")


def as_nobody(place):
    """Options for run(): another user than root, who may do everything."""
    if os.getuid() != 0:
        return {}
    os.chmod(place.path, 0o755)
    for parent, directories, files in os.walk(place.path):
        for name in directories + files:
            os.chown(os.path.join(parent, name), 65534, 65534)
    return {"user": 65534, "group": 65534, "extra_groups": []}


@case("a store without read or write permission is reported")
def _(place):
    place.configure()
    equal(place.send("a").out, "accepted\n")
    who = as_nobody(place)
    os.chmod(place.file("box.db"), 0o000)
    for words in READING + WRITING:
        place.fails(4, *words, says="box.db", **who)
    os.chmod(place.file("box.db"), 0o600)
    equal(place.send("a").out, "duplicate\n")


@case("a store on a read-only disk is reported")
def _(place):
    os.mkdir(place.file("disk"))
    place.configure(CONFIG.replace("box.db", "disk/box.db"))
    equal(place.send("a").out, "accepted\n")
    who = as_nobody(place)
    os.chmod(place.file("disk/box.db"), 0o444)
    os.chmod(place.file("disk"), 0o555)
    before = sorted(os.listdir(place.file("disk")))
    for words in WRITING:
        place.fails(4, *words, says="box.db", **who)
    equal(sorted(os.listdir(place.file("disk"))), before)
    os.chmod(place.file("disk"), 0o755)
    os.chmod(place.file("disk/box.db"), 0o644)
    equal(place.send("a").out, "duplicate\n")


@case("a full disk is reported, and work continues when there is room")
def _(place):
    def small_disk():
        # No file may become longer than this. An ignored signal would stay
        # ignored.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    place.configure()
    accepted = []
    for number in range(40):
        body = bytes([number]) * 50_000
        result = place.send(str(number), body, preexec_fn=small_disk)
        if result.code != 0:
            break
        accepted.append(str(number))
    equal((result.code, result.out), (4, ""), result)
    assert "box.db" in result.err, result
    rows = place.ok("list", "--json", preexec_fn=small_disk).json()
    equal(sorted(row["message_id"] for row in rows), sorted(accepted))
    equal(place.send(str(number), body).out, "accepted\n")
    for name in accepted:
        equal(place.ok("show", name, "--body").raw, bytes([int(name)]) * 50_000)


YAML = (
    ("stor: sqlite:x\n", "1:1: ", "did you mean 'store'"),
    ("store: sqlite:box.db\nstore: memory:\n", "2:1: ", "store"),
    ("defaults:\n  lease: 5 minutes\n", "2:10: ", "5 minutes"),
    ("defaults:\n  max_attempts: many\n", "2:17: ", "many"),
    ("channels:\n  a:\n    mode: store\n", "3:", "inbox|guard|direct"),
    ("channels: [\n", ":", ""),
    ("a: " + "[" * 5000 + "\n", "1:", ""),
    ("store: \"sqlite:box.db\n", ":", ""),
    ("\tstore: x\n", "1:", ""),
    ("channels:\n  a:\n    handlers:\n      b: {}\n", "4:", ""),
    (
        "channels:\n  a:\n    handlers:\n      b: {exec: [/bin/cat]}\n"
        "  c:\n    handlers:\n      b: {exec: [/bin/cat]}\n",
        "7:7: ",
        "b",
    ),
)


@case("an error in the configuration is reported with line and column")
def _(place):
    for text, where, what in YAML:
        place.configure(text)
        for words in (["check"], ["serve"], ["list"], ["send", "a"]):
            result = place.fails(2, *words, says="postern.yaml:" + where.lstrip(":"))
            assert what in result.err, (text, result)
            equal(result.out, "", text)
    equal(os.listdir(place.path), ["postern.yaml"])


@case("an error in a flag or a variable names it")
def _(place):
    place.fails(2, "check", "--lease", "5", says="--lease")
    result = place.fails(2, "check", env={"POSTERN_LEASE": "x"}, says="POSTERN_LEASE")
    equal(result.out, "")
    place.fails(2, "check", "-c", "missing.yaml", says="missing.yaml")
    place.fails(2, "check", env={"POSTERN_CONFIG": "gone.yaml"}, says="gone.yaml")
    place.fails(2, "check", "--store", "", says="store")
    place.fails(2, "check", "--store", "sqlite:", says="sqlite:")
    place.fails(2, "list", "--listen", "127.0.0.1", says="not an address")


@both("with --json an error is JSON, and the exit code is the same")
def _(place):
    place.send("a", "body")
    for words in (
        ["show", "nothing"],
        ["list", "--nonsense"],
        ["list", "--state", "odd"],
        ["send", "nowhere", "--id", "b"],
        ["send", "orders", "--id", "a\tb"],
        ["retry", "a", "--handler", 'no"such'],
        ["retry"],
        ["stats", "--in", "elsewhere"],
        ["stats", "-c", "missing.yaml"],
        ["list", "--store", "sqlite:no/such.db"],
        ["migrate", "--store", "sqlite:no/such.db"],
    ):
        plain = place.run(*words)
        result = place.run(*words, "--json")
        equal(result.code, plain.code, words, result)
        equal((result.code != 0, result.out), (True, ""), words, result)
        lines = [json.loads(line) for line in result.err.splitlines()]
        equal(len(lines), len(plain.err.splitlines()), words, result)
        assert any("error" in line for line in lines), (words, result)
        for line in lines:
            (text,) = line.values()
            assert text in plain.err, (words, line, plain)


@case("notes and errors have different names in JSON")
def _(place):
    place.configure()
    place.send("a", "body")
    place.configure(CONFIG.replace("log:", "other:"))
    result = place.ok("process", "--ignore-failures", "--json", env={"POSTERN_LEASES": "1s"})
    result.json()
    lines = [json.loads(line) for line in result.err.splitlines()]
    assert lines and all(list(line) == ["note"] for line in lines), result


@case("a copy of a store is a store of its own")
def _(place):
    place.configure()
    equal(place.send("a").out, "accepted\n")
    shutil.copy(place.file("box.db"), place.file("copy.db"))
    result = place.send("a", "body", "--store", "sqlite:copy.db")
    equal(result.out, "duplicate\n")


# Configurations that cannot be served, and how many mistakes each has.
UNSERVED = {
    "workers: 0\nstoer: x\ndefaults: {lease: 5}\n": 3,
    "store: memory\nchannels: {c: {handlers: {h: {sql: select 1}}}}\n": 2,
    "channels: {c: {handlers: {g: {exec: [x]}, h: {sql: insrt}}}}\n": 2,
    "channels: {c: {handlers: {h: {exec: ['${DIR}/loose']}}}}\n": 1,
    "store: sqlite:a.db\nstores: {b: {url: 'sqlite:./a.db'}}\n": 1,
    "store: [\n": 1,
}


@case("check refuses whatever serve refuses, with the same mistakes")
def _(place):
    # A program that every user may change.
    os.chmod(place.write("loose", "#!/bin/sh\n"), 0o777)
    for text, count in UNSERVED.items():
        place.configure(text)
        served = place.fails(2, "serve", says="postern.yaml:")
        mistakes = [json.loads(line)["message"] for line in served.err.splitlines()]
        equal(len(mistakes), count)
        checked = place.run("check")
        equal(checked.code, 2)
        lines = [line.partition(": ")[2] for line in checked.err.splitlines()]
        lines += [
            line.partition(": ")[2]
            for line in checked.out.splitlines()
            if line.startswith("error: ")
        ]
        equal(lines, mistakes)
        equal(os.path.exists(place.file("a.db")), False)


@case("every command reports all mistakes of the configuration")
def _(place):
    place.configure("workers: 0\nstoer: x\n")
    for command in (["check"], ["list"], ["send", "c"], ["migrate"]):
        result = place.fails(2, *command, says="postern.yaml:1:10: workers")
        equal(len(result.err.splitlines()), 2)
        data = place.fails(2, *command, "--json").err.splitlines()
        equal(len([json.loads(line)["error"] for line in data]), 2)


main()
