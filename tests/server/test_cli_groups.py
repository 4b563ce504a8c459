#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Finding what failed, counting it and running it again, with and without a
server."""

from support import case, equal, main, until

CONFIG = """\
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
"""


def both(name):
    """Registers a case twice: alone, and beside a server."""

    def register(function):
        def alone(place):
            place.configure(CONFIG)
            fill(place)
            place.ok("process", "--ignore-failures")
            function(place)

        def served(place):
            place.configure(CONFIG)
            place.serve()
            fill(place)
            function(place)

        case(f"{name}, without a server")(alone)
        case(f"{name}, beside a server")(served)
        return function

    return register


def fill(place):
    for name in ("bad", "more0", "more1", "more2", "more3"):
        place.send(name, "x", "--type", "bad.x")
    place.send("slow", "x", "--type", "slow.x")


def wait(place):
    until(lambda: len(place.ok("list", "--json", "--state", "poisoned").json()) == 5)


@both("failures are counted by group and found by their error")
def _(place):
    wait(place)
    groups = place.ok("list", "--group-by", "error", "--handler", "bad", "--json").json()
    equal([(row["handler"], row["count"]) for row in groups], [("bad", 4), ("bad", 1)])
    group = groups[0]["group"]
    assert groups[0]["example"] and groups[0]["first_at"] <= groups[0]["last_at"], groups
    assert group in place.ok("list", "--group-by", "error").out
    rows = place.ok("list", "--group", group, "--oldest", "--json").json()
    equal([row["message_id"] for row in rows], [f"more{n}" for n in range(4)])
    equal({row["group"] for row in rows}, {group})
    text = "NO WAY"
    equal(len(place.ok("list", "--error", text, "--json").json()), 5)
    equal(place.ok("list", "--error", "%", "--json").json(), [])
    equal(place.ok("discard", "--group", group, "--limit", "2", "-n").out,
          "would discard 2 of 4 deliveries; the limit is 2\n")
    result = place.fails(2, "discard", "--error", text, "--limit", "2")
    assert "5 deliveries match; the limit is 2" in result.err, result
    place.ok("discard", "--error", text, "--oldest", "--limit", "1", "--yes")
    equal(place.state("bad", "bad"), "discarded")
    equal(place.ok("discard", "more0", "more1").out,
          "discarded bad of more0\ndiscarded bad of more1\n")
    place.fails(3, "discard", "nothing", "more2", says="id 'nothing'")
    equal(place.state("more2", "bad"), "discarded")
    groups = place.ok("list", "--group-by", "error", "--handler", "bad", "--json").json()
    equal([row["count"] for row in groups], [1])
    equal(len(place.ok("list", "--state", "poisoned", "--older-than", "0s", "--json").json()), 1)
    equal(place.ok("list", "--older-than", "1d", "--json").json(), [])


@both("a filter with a name that does not exist is an error")
def _(place):
    wait(place)
    place.fails(3, "list", "--handler", "badd", says="no handler 'badd'; did you mean 'bad'?")
    place.fails(3, "list", "--channel", "order", says="did you mean 'orders'?")
    place.fails(3, "retry", "--handler", "badd", "--yes", says="did you mean 'bad'?")
    place.fails(3, "list", "--group-by", "error", "--handler", "zzz", says="no handler 'zzz'")
    group = place.ok("list", "--group-by", "error", "--json").json()[0]["group"]
    place.fails(2, "list", "--group", group[:8], says="all 16 hexadecimal digits")
    place.fails(2, "discard", "--older-than", "30", "--yes",
                says="--older-than: '30' has no unit, write 30s, 30m, 30h or 30d")
    for words in (["--group", "xyz"], ["--group", "0"], ["--error", "x" * 201],
                  ["--group-by", "type"], ["--group-by", "error", "--limit", "1"],
                  ["--until", "1h", "--older-than", "1h"]):
        place.fails(2, "list", *words)
    place.fails(2, "retry", "--oldest", "--yes", says="specify an ID")


main()
