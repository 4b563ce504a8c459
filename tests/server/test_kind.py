#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A handler kind that only tests/server/kind.c knows: the configuration, check
and serve use it by its row."""

import os

os.environ["POSTERN"] = os.environ["POSTERN_KIND"]

from support import case, equal, main, until  # noqa: E402

CONFIG = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      keep:
        copy: {into: '${DIR}/copies'%s}
"""


def config(more=""):
    return CONFIG % more


@case("a registered kind runs from postern.yaml, with its options")
def _(place):
    place.configure(config(", suffix: .txt, times: 2"))
    os.mkdir(place.file("copies"))
    place.ok("check")
    place.serve()
    place.send("a", "body;")
    until(lambda: place.state("a", "keep") == "done")
    equal(place.read("copies/a.txt"), "body;body;")


@case("the first option alone may be the value")
def _(place):
    place.configure(config().replace("{into: '${DIR}/copies'}", "'${DIR}/copies'"))
    os.mkdir(place.file("copies"))
    place.serve()
    place.send("a", "x")
    until(lambda: place.state("a", "keep") == "done")
    equal(place.read("copies/a.copy"), "x")


@case("check shows the options and the defaults of the kind")
def _(place):
    place.configure(config(", times: 3"))
    os.mkdir(place.file("copies"))
    lines = place.ok("check", "--print").out.splitlines()
    start = lines.index("      keep:")
    copies = place.file("copies")
    equal([line.strip() for line in lines[start + 1 : start + 12]], [
        "copy:",
        f"into: {copies}",
        "suffix: \".copy\"",
        "times: 3",
        "hold: off",
        "# wait: is not shown",
        "rest: none",
        "max_attempts: 3  # default of its kind",
        "backoff: \"50ms,100ms\"  # default of its kind",
        "timeout: 7s  # default of its kind",
        "concurrency: 2  # default of its kind",
    ])
    # What is printed can be used.
    place.configure(place.ok("check", "--print").out.split("\npostern.yaml: ")[0])
    place.ok("check")


@case("the defaults of the kind apply, and a setting replaces them")
def _(place):
    # A directory in place of the file: every attempt fails.
    os.makedirs(place.file("copies/a.copy"))
    os.makedirs(place.file("copies/b.copy"))
    place.configure(config())
    server = place.serve()
    place.send("a")
    until(lambda: place.state("a", "keep") == "poisoned")
    equal(len(place.delivery("a", "keep")["attempts"]), 3)
    server.stop()
    place.configure(config() + "        max_attempts: 1\n")
    place.serve()
    place.send("b")
    until(lambda: place.state("b", "keep") == "poisoned")
    equal(len(place.delivery("b", "keep")["attempts"]), 1)


@case("check asks the kind: a note, an error, and whether it is valid at all")
def _(place):
    place.configure(config())
    result = place.ok("check")
    assert "handler 'keep': no directory" in result.out, result
    os.mkdir(place.file("copies"))
    if os.getuid() != 0:
        os.chmod(place.file("copies"), 0o500)
        result = place.run("check")
        equal(result.code, 1)
        assert "handler 'keep': cannot write to" in result.out, result
    place.configure(config().replace("${DIR}/", ""))
    place.fails(2, "check", says="6:15: copy: not an absolute directory: 'copies'")


@case("mistakes in the options of a kind have their place")
def _(place):
    for options, text in {
        "{into: /x, sufix: y}":
            "6:26: unknown key 'sufix' in 'copy'; did you mean 'suffix'?",
        "{suffix: y}": "6:9: 'copy' needs 'into': the directory",
        "{into: /x, times: 10}": "6:33: times: '10' is out of range",
        "{into: /x, hold: maybe}": "6:32: hold: 'maybe' is not a switch",
        "{into: [/x]}": "6:22: into must be one value, not a list",
    }.items():
        place.configure(config().replace("{into: '${DIR}/copies'}", options))
        place.fails(2, "check", says=text)
    place.configure(config() + "        exec: [/bin/true]\n")
    place.fails(2, "check",
                says="7:9: handler 'keep' has two kinds, 'copy' and 'exec'")
    place.configure(config().replace("copy:", "# copy:") + "        lease: 1m\n")
    place.fails(2, "check", says="has no kind; add 'sql', 'exec', 'pull' or 'copy'")
    place.configure(config().replace("copy:", "cpoy:"))
    place.fails(2, "check", says="did you mean 'copy'?")
    place.configure(config().replace("copy:", "kafka:"))
    place.fails(2, "check", says="unknown key 'kafka' in a handler; a kind is 'sql',"
                " 'exec', 'pull' or 'copy'")


@case("a default timeout that is not less than the lease is refused")
def _(place):
    place.configure(config() + "        lease: 7s\n")
    place.fails(2, "check",
                says="timeout (7s, the default for copy) must be less than lease")


@case("a handler that is at fault shows it, and spends no attempt")
def _(place):
    place.configure(config(", hold: on"))
    server = place.serve()
    place.send("a")
    until(lambda: len(place.delivery("a", "keep")["attempts"]) == 1)
    delivery = place.delivery("a", "keep")
    equal(delivery["state"], "pending")
    equal(delivery["attempts"][0]["outcome"], "hold")
    equal(delivery["attempts"][0]["error"], "nothing is copied")
    assert "hold" in place.ok("show", "a").out
    assert "delivery held: its handler is at fault" in server.stderr()


main()
