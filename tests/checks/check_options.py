#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that documents agree with the option table.

    check_options.py ROOT COMMAND           compares
    check_options.py ROOT COMMAND --write   writes the part of the manual page

The command prints the table: `postern help options --json`. The tables of
docs/configuration.md have its names, defaults, places, limits and choices; the
options of man/postern.1 are made from it.
"""

import json
import os
import re
import subprocess
import sys

import tap

ROW = re.compile(
    r"^\| `([^`]+)` \| `([^`]+)` \| ([a-z, ]+) \| (.*) \|$", re.MULTILINE
)
LATER_HEADING = "## What is not in this version"
MAN_PART = re.compile(r"^\.SH OPTIONS\n.*?(?=^\.SH )", re.MULTILINE | re.DOTALL)
MAN_HEAD = """.SH OPTIONS
Every option of the configuration that applies to the whole process is also a
flag of every command, and a variable: \\-\\-max\\-attempts is
POSTERN_MAX_ATTEMPTS. In brackets: the default.
"""
UNITS = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)]


def rows_of(command):
    result = subprocess.run(
        [command, "help", "options", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(result.stdout)


def size_text(number):
    unit, factor = next(u for u in UNITS if number % u[1] == 0)
    return f"{number // factor}{unit}"


def wanted_words(row):
    """What the meaning of an option says about its values."""
    if row["later"]:
        return []
    if row["form"] == "COUNT":
        return [f"count, {row['min']} to {row['max']}"]
    if row["form"] == "SIZE":
        return [f"size, {size_text(row['min'])} to {size_text(row['max'])}"]
    if row["form"] == "DURATION":
        return ["duration"]
    if row["form"] == "on|off":
        return ["switch"]
    if "|" in row["form"]:
        return [f"`{word}`" for word in row["form"].split("|")]
    return []


def document_problems(rows, document):
    now, _, later = document.partition(LATER_HEADING)
    found = {name: (rest, False) for name, *rest in ROW.findall(now)}
    found.update({name: (rest, True) for name, *rest in ROW.findall(later)})
    for row in rows:
        name = row["name"]
        if name not in found:
            yield f"{name} is not in docs/configuration.md"
            continue
        (default, where, meaning), is_later = found.pop(name)
        for what, have, want in (
            ("default", default, row["default"]),
            ("where", where, ", ".join(row["where"])),
            ("later", is_later, row["later"]),
        ):
            if have != want:
                yield f"{name}: {what} is {have!r} in the document, not {want!r}"
        for word in wanted_words(row):
            if word not in meaning:
                yield f"{name}: the meaning lacks {word!r}"
    for name in found:
        yield f"{name} is not in the option table"


def man_text(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def man_part(rows):
    part = MAN_HEAD
    for row in rows:
        if row["later"] or not {"top", "defaults"} & set(row["where"]):
            continue
        flag = re.sub(r"[_.]", "-", row["name"])
        part += f'.TP\n.BI {man_text("--" + flag)} " {man_text(row["form"])}"\n'
        part += f'{man_text(row["help"])} [{man_text(row["default"])}]\n'
    return part


def man_problems(rows, page):
    found = MAN_PART.search(page)
    if not found or found.group() != man_part(rows):
        yield (
            "the options of man/postern.1 are not those of the table: run "
            "check_options.py with --write"
        )


def finds_breaches():
    row = {
        "name": "lease",
        "form": "COUNT",
        "default": "5",
        "where": ["top"],
        "help": "so",
        "later": False,
        "min": 1,
        "max": 9,
    }
    good = "| `lease` | `5` | top | count, 1 to 9: so |\n"
    page = man_part([row]) + ".SH NEXT\n"
    found = [
        ("a missing option", document_problems([row], "")),
        ("an option that does not exist", document_problems([], good)),
        ("another default", document_problems([row], good.replace("`5`", "`6`"))),
        ("another place", document_problems([row], good.replace("top", "store"))),
        ("another limit", document_problems([row], good.replace("9", "8"))),
        ("a later option", document_problems([row], LATER_HEADING + "\n" + good)),
        ("another help", man_problems([row], page.replace("so", "no"))),
        ("a page without options", man_problems([row], ".SH NEXT\n")),
    ]
    for name, problems in found:
        if not list(problems):
            yield f"{name} is not found"
    if list(document_problems([row], good)) or list(man_problems([row], page)):
        yield "a correct document is reported as wrong"


def main():
    root, command = sys.argv[1:3]
    rows = rows_of(command)
    page = os.path.join(root, "man", "postern.1")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    if sys.argv[3:] == ["--write"]:
        with open(page, "w", encoding="utf-8") as file:
            file.write(MAN_PART.sub(lambda _: man_part(rows), text))
        return
    with open(
        os.path.join(root, "docs", "configuration.md"), encoding="utf-8"
    ) as file:
        document = file.read()
    out = tap.Tap()
    out.case(
        "docs/configuration.md agrees with the option table",
        document_problems(rows, document),
    )
    out.case("man/postern.1 has the options of the table", man_problems(rows, text))
    out.case("a wrong document is found", finds_breaches())
    out.finish()


main()
