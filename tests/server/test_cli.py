#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The command line itself: commands, flags, help, streams. No store is
needed."""

import os
import re
import subprocess

from support import POSTERN, case, equal, main, on_terminal

COMMANDS = """serve init check migrate send process list show retry cancel discard
    pause resume cleanup stats once mark bench version help""".split()
LATER = """explain replay retry-plan top
    verify""".split()


@case("without a command the help is on stderr and the exit is 2")
def _(place):
    result = place.fails(2)
    equal(result.out, "")
    for name in COMMANDS:
        assert f"\n  {name} " in result.err, name


@case("help is on stdout and names every command and exit code")
def _(place):
    for words in (["help"], ["--help"], ["-h"]):
        result = place.ok(*words)
        equal(result.err, "")
        for name in COMMANDS:
            assert f"\n  {name} " in result.out, name
        for code in range(6):
            assert re.search(rf"^  {code}  \w", result.out, re.M), code


@case("every command has a help with its flags and an example")
def _(place):
    for name in COMMANDS:
        result = place.ok(name, "--help")
        equal(result.err, "")
        equal(result.out, place.ok("help", name).out)
        assert result.out.startswith(f"usage: postern {name}"), name
        assert re.search(rf"^  .*postern {name}", result.out, re.M), name
        for flag in ("--json", "-c, --config FILE"):
            assert flag in result.out, (name, flag)
        for line in result.out.splitlines():
            assert len(line) <= 100, line


@case("a command that does not exist suggests the one that was meant")
def _(place):
    place.fails(2, "lsit", says="did you mean 'list'?")
    place.fails(2, "help", "sedn", says="did you mean 'send'?")
    place.fails(2, "xyzzyx", says="no command 'xyzzyx'")


@case("a command of a later version is refused as such")
def _(place):
    for name in LATER:
        place.fails(2, name, says=f"'{name}' is not in this version")
        place.fails(2, name, "--json", says="not in this version")
        place.fails(2, "help", name, says="not in this version")


@case("an unknown flag suggests the one that was meant")
def _(place):
    place.fails(2, "list", "--lmit", "5", says="did you mean '--limit'?")
    place.fails(2, "list", "--max-atempts", "5", says="'--max-attempts'?")
    place.fails(2, "list", "-z", says="unknown flag '-z'")
    place.fails(2, "list", "--limit", says="'--limit' needs N")
    place.fails(2, "list", "--json=yes", says="takes no value")
    place.fails(2, "list", "--limit", "1", "--limit=2", says="given twice")


@case("too many and too few operands are refused")
def _(place):
    place.fails(2, "list", "what", says="unexpected argument 'what'")
    place.fails(2, "send", says="usage: postern send CHANNEL")
    place.fails(2, "pause", says="usage: postern pause HANDLER")
    place.fails(2, "show", "a", "b", says="unexpected argument 'b'")
    place.fails(2, "--json", "list", says="a command is required before flags")


@case("version needs nothing and prints what is built in")
def _(place):
    result = place.ok("version", cwd="/")
    assert result.out.startswith("postern 0."), result
    for word in ("sqlite 3.", "stores: sqlite memory", "handlers: ",
                 "callback", "exec", "sql", "sources: lines"):
        assert word in result.out, word
    equal(place.ok("--version").out, result.out)
    equal(place.ok("-V").out, result.out)
    data = place.ok("version", "--json").json()
    equal(result.out.split()[1], data["version"])
    equal(data["stores"][:2], ["sqlite", "memory"])
    equal(data["sources"][0], "lines")
    assert data["libraries"]["sqlite"].startswith("3."), data


@case("the schema can be printed without a store")
def _(place):
    result = place.ok("migrate", "--print")
    assert "create table" in result.out.lower(), result
    equal(os.listdir(place.path), [])
    assert result.out.startswith("-- The whole schema of a new store"), result
    equal(place.ok("migrate", "--print", "--json").json()["schema"], result.out)


@case("commands refuse a store that lives in one process")
def _(place):
    for words in (
        ["list"],
        ["show", "x"],
        ["stats"],
        ["send", "orders"],
        ["retry", "x"],
        ["process"],
        ["migrate"],
    ):
        place.fails(2, *words, "--store", "memory:", says="memory:")


@case("the list of options is in the help of commands that use them")
def _(place):
    for words in (["help", "options"], ["serve", "--help"]):
        assert "--polling-interval DURATION" in place.ok(*words).out, words
    for name in ("send", "pause", "version", "help"):
        result = place.ok(name, "--help")
        assert "--polling-interval" not in result.out, result
        equal("postern help options" in result.out, name != "version", name)


@case("a reader that closes the pipe is neither a failure nor a crash")
def _(place):
    for words in (["help"], ["version", "--json"], ["migrate", "--print"]):
        reader, writer = os.pipe()
        os.close(reader)
        result = place.run(*words, stdout=writer)
        os.close(writer)
        equal((result.code, result.err), (0, ""), words)


@case("stdout on a full disk is a failure")
def _(place):
    with open("/dev/full", "wb") as full:
        result = place.run("version", stdout=full)
    equal(result.code, 1)
    assert "No space left" in result.err, result


@case("a closed stdout is a failure, and no file of the store is used for it")
def _(place):
    line = f"exec '{POSTERN}' version >&-"
    result = subprocess.run(
        ["/bin/sh", "-c", line], stderr=subprocess.PIPE, check=False
    )
    equal(result.returncode, 1)
    assert b"standard output" in result.stderr, result


@case("colours are printed only to terminals that support them")
def _(place):
    assert b"\x1b[" in on_terminal(place, "help")
    assert b"\x1b[" not in on_terminal(place, "help", env={"NO_COLOR": "1"})
    assert b"\x1b[" not in on_terminal(place, "help", env={"TERM": "dumb"})
    assert "\x1b" not in place.ok("help", env={"TERM": "xterm"}).out


@case("the manual page names every command and flag")
def _(place):
    page = os.path.join(os.path.dirname(__file__), "../../man/postern.1")
    with open(page, encoding="utf-8") as file:
        text = file.read().replace("\\-", "-")
    for name in COMMANDS:
        assert f"\n.SS {name}\n" in text, name
        flags = place.ok(name, "--help").out.split("Options of")[0]
        for flag in re.findall(r"--[a-z-]+", flags.split("Flags")[1]):
            assert flag in text, (name, flag)
    for name in LATER:
        assert name in text, name


main()
