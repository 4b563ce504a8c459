#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Output in the words of the user who typed the command."""

import sqlite3

from support import CONFIG, case, equal, main, until


@case("init writes no file if the store is in use")
def _(place):
    holder = place.hold("sqlite:" + place.file("postern.db"))
    result = place.fails(4, "init", "--command-timeout", "10ms",
                         says=str(holder.pid))
    assert "postern.yaml was not written" in result.err, result
    equal(result.out, "")
    equal(place.read("postern.yaml"), "")
    holder.stop()
    place.ok("init")


@case("an error in a filter or an attribute names the flag")
def _(place):
    place.configure()
    place.ok("migrate")
    long = "a" * 2000
    for words, text in (
        (["list", "--since", "foo"], "list: --since: 'foo'"),
        (["list", "--until", "foo"], "list: --until: 'foo'"),
        (["list", "--type", "*" * 11], "list: --type: pattern"),
        (["list", "--limit", "0"], "list: --limit: '0'"),
        (["retry", "--since", "foo", "--yes"], "retry: --since: 'foo'"),
        (["send", "orders", "--time", "noon"], "send: --time: 'noon'"),
        (["send", "orders", "--subject", long], "send: --subject exceeds"),
        (["send", "orders", "--correlation-id", long],
         "send: --correlation-id exceeds"),
    ):
        place.fails(2, *words, says=text)
    # An error about an argument does not name a flag.
    result = place.fails(3, "send", "ordres", "--type", "x", says="ordres")
    assert "--" not in result.err, result


@case("show prints how many attempts a poisoned delivery has used")
def _(place):
    place.configure("""\
store: sqlite:box.db
channels:
  orders:
    handlers:
      stubborn: {exec: [/bin/false], max_attempts: 2, backoff: [1ms]}
      rejects: {exec: [/bin/sh, -c, 'exit 65'], max_attempts: 7}
      fine: {exec: [/bin/true]}
""")
    place.ok("migrate")
    equal(place.send("a").out, "accepted\n")
    until(lambda: place.ok("process", "--ignore-failures")
          and place.state("a", "stubborn") == "poisoned")
    shown = place.ok("show", "a").out
    assert "2 of 2 attempts used up\n" in shown, shown
    assert "1 of 7 attempts used\n" in shown, shown
    equal(shown.count("attempts used"), 2)
    equal(place.delivery("a", "fine")["max_attempts"], 5)


@case("check notes a table that is not in the store")
def _(place):
    text = CONFIG + """\
      ledger:
        sql: insert into ledgr values (:id)
      both:
        sql: create table if not exists more(id); insert into more values (:id)
"""
    place.configure(text)
    assert "no such table" not in place.ok("check").out
    place.ok("migrate")
    for server in (False, True):
        if server:
            place.serve()
        result = place.ok("check")
        equal(result.out.count("no such table"), 1)
        assert ("note: postern.yaml:7:7: handler 'ledger': sql: line 1: no such "
                "table: ledgr; the handler is held until the table exists") in result.out, result
    with sqlite3.connect(place.file("box.db")) as db:
        db.execute("create table ledgr(id)")
    assert "no such table" not in place.ok("check").out


@case("a misspelt variable is reported with the closest name")
def _(place):
    place.configure()
    result = place.ok("check", env={"POSTERN_LEESE": "5m"})
    assert "unknown variable POSTERN_LEESE; did you mean POSTERN_LEASE?" in result.err
    result = place.ok("check", env={"POSTERN_SEED": "5", "POSTERN_X": "5"})
    equal(result.err, "")


main()
