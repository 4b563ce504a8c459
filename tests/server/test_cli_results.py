#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What commands say about messages that do not run, and about runs that
fail; and a channel that is renamed."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from support import case, equal, main  # noqa: E402


@case("process reports failures and exits with 1, unless they are ignored")
def _(place):
    place.configure("""\
store: sqlite:box.db
channels:
  orders:
    handlers:
      good: {exec: [/bin/true], types: [good]}
      bad: {exec: [/bin/sh, -c, 'exit 65'], types: [bad]}
      weak: {exec: [/bin/false], types: [weak], backoff: [1h]}
""")
    for name in ("good", "bad", "weak"):
        place.send(name, "x", "--type", name)
    result = place.run("process")
    equal((result.code, result.out),
          (1, "processed 3: 1 done, 1 retried, 1 poisoned\n"), result)
    place.ok("retry", "--state", "poisoned", "--yes")
    result = place.ok("process", "--ignore-failures", "--json").json()
    equal((result["processed"], result["poisoned"], result["done"]), (1, 1, 0))
    place.send("again", "x", "--type", "good")
    equal(place.ok("process").out, "processed 1\n")


@case("send says that a message is parked, and why")
def _(place):
    place.configure("""\
store: sqlite:box.db
channels:
  orders:
    handlers:
      log: {exec: [/bin/true], types: [some]}
""")
    result = place.send("a", "x", "--type", "none")
    equal((result.code, result.out),
          (0, "accepted (parked: no handler wants type 'none')\n"), result)
    answer = place.send("b", "x", "--type", "none", "--json").json()
    equal((answer["status"], answer["parked"], answer["reason"]),
          ("accepted", True, "no handler wants type 'none'"))


RENAMED = """\
store: sqlite:box.db
channels:
  {name}:
    former_names: [{former}]
    handlers:
      log: {{exec: [/bin/true]}}
"""


@case("a renamed channel accepts messages by its former name")
def _(place):
    place.configure(RENAMED.format(name="orders", former=""))
    equal(place.send("a", "x").out, "accepted\n")
    place.configure(RENAMED.format(name="sales", former="orders"))
    equal(place.send("a", "x").out, "duplicate\n")
    equal(place.send("a", "x", channel="sales").out, "duplicate\n")
    equal(place.send("b", "x").out, "accepted\n")
    equal(place.process(), 2)
    for name in ("orders", "sales"):
        rows = place.ok("list", "--channel", name, "--json").json()
        equal([row["channel"] for row in rows], ["sales", "sales"])
    server = place.serve()
    equal(place.send("b", "x").out, "duplicate\n")
    equal(place.send("c", "x").out, "accepted\n")
    equal(server.stop(), 0)
    assert "former_names: [orders]" in place.ok("check", "--print").out


main()
