#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the documents agree with the sources: check_docs.py ROOT

Options have one home, the table in config_options.c; docs/configuration.md is
compared with it row by row. docs/seeds.md names tests, which must exist.
"""

import os
import re
import sys

import tap

OPTION = re.compile(
    r'^\t\{ "([a-z_.]+)", [A-Z]+, [^,]+, ([A-Z |]+), ([A-Z0-9 |]+),'
    r' .*, "([^"]*)", "[^"]*", [^,]+, [^,]+ \},$',
    re.MULTILINE,
)
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| ([a-z, ]+) \|", re.MULTILINE)
SCOPES = {
    "ROOT": ["top"],
    "DEFAULTS": ["defaults"],
    "STORES": ["store"],
    "CHANNEL": ["channel"],
    "HANDLER": ["handler"],
    "BOX": ["defaults", "store"],
    "POLICY": ["defaults", "store", "channel", "handler"],
}
LATER_HEADING = "## What is not in this version"
# Groups, and the number of rows of each in docs/seeds.md.
SEEDS = {
    "ID": 38,
    "GU": 12,
    "AC": 13,
    "PR": 19,
    "RP": 13,
    "IS": 5,
    "LK": 7,
    "RT": 15,
    "CF": 11,
    "ST": 12,
    "MO": 9,
    "OB": 6,
    "OP": 6,
    "TE": 3,
    "MH": 3,
    "T": 17,
    "AD": 8,
}


def text_of(root, *path):
    with open(os.path.join(root, *path), encoding="utf-8") as file:
        return file.read()


def options_of(source):
    """(name, default, places, later) of every row of the option table."""
    for name, scopes, flags, fallback in OPTION.findall(source):
        words = scopes.split(" | ")
        places = [place for word in words for place in SCOPES[word]]
        yield name, fallback, ", ".join(places), "LATER" in flags


def missed_options(source):
    """Rows of the table that the pattern does not match."""
    table = source.partition("options[] = {")[2].partition("\n};")[0]
    count = table.count('\n\t{ "')
    read = len(list(options_of(source)))
    if count == 0 or count != read:
        yield f"only {read} of {count} rows of the option table match the pattern"


def option_problems(source, document):
    """Differences between the table in the source and those in the
    document."""
    now, _, later = document.partition(LATER_HEADING)
    wanted = set(options_of(source))
    found = {(*row, False) for row in ROW.findall(now)}
    found |= {(*row, True) for row in ROW.findall(later)}
    for row in sorted(wanted - found):
        yield f"missing or different in docs/configuration.md: {row}"
    for row in sorted(found - wanted):
        yield f"missing or different in the option table: {row}"


def seed_problems(document):
    """Every seed has one row, in order."""
    for group, count in SEEDS.items():
        dash, width = ("", 1) if group == "T" else ("-", 2)
        wanted = [f"{group}{dash}{n:0{width}}" for n in range(1, count + 1)]
        row = rf"^\| ({group}{dash}\d+) \|"
        found = re.findall(row, document, re.MULTILINE)
        if found != wanted:
            yield f"{group}: found {found}"


def joined(source):
    """The source with adjacent string literals joined."""
    return re.sub(r'"\s+f?"', "", source)


def test_problems(document, sources):
    """Names of tests, in double quotes, that no source has."""
    for name in re.findall(r'"([^"\n]+)"', document):
        if f'"{name}"' not in sources:
            yield f'there is no test "{name}"'


def anchors_of(document):
    for heading in re.findall(r"^#+ (.*)$", document, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def link_problems(root, path):
    fenced = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    document = fenced.sub("", text_of(root, path))
    for target in re.findall(r"\]\(([^)\s]+)\)", document):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        folder = os.path.dirname(path)
        file = os.path.normpath(os.path.join(folder, name)) if name else path
        if not os.path.exists(os.path.join(root, file)):
            yield f"{path}: the target of the link '{target}' does not exist"
        elif anchor and anchor not in anchors_of(text_of(root, file)):
            yield f"{path}: the link '{target}' names a missing heading"


def test_sources(root):
    texts = []
    for folder, _, names in os.walk(os.path.join(root, "tests")):
        texts += [
            joined(text_of(folder, name))
            for name in names
            if name.endswith((".c", ".py"))
        ]
    return "\n".join(texts)


def documents_of(root):
    names = [name for name in os.listdir(root) if name.endswith(".md")]
    docs = [f"docs/{name}" for name in os.listdir(os.path.join(root, "docs"))]
    return sorted(names + docs)


def finds_breaches():
    """Checks that wrong texts are found."""
    row = '\t{ "lease", DURATION, AT(x), BOX, 0, 1, 2, NULL, "5m", "so", NULL, NULL },\n'
    good = "| `lease` | `5m` | defaults, store | so |\n"
    tests = test_problems('"a rule", "another rule"', joined('"a"\n  " rule"'))
    found = [
        ("a missing option", option_problems(row, "")),
        ("an option that does not exist", option_problems("", good)),
        ("another default", option_problems(row, good.replace("5", "6"))),
        ("another place", option_problems(row, good.replace(", store", ""))),
        ("a later option", option_problems(row, LATER_HEADING + good)),
        ("a row that does not match", missed_options("options[] = {\n\t{ \"x\" }")),
        ("a seed without a row", seed_problems("| T1 | so |\n")),
        ("a test that does not exist", tests),
    ]
    for name, problems in found:
        if not list(problems):
            yield f"{name} is not found"
    if list(option_problems(row, good)):
        yield "a correct document is reported as wrong"
    if list(test_problems('"a rule"', joined('"a"\n  " rule"'))):
        yield "an existing test is reported as missing"


def main():
    root = sys.argv[1]
    source = text_of(root, "src", "server", "config_options.c")
    seeds = text_of(root, "docs", "seeds.md")
    out = tap.Tap()
    out.case(
        "docs/configuration.md has exactly the options of the option table",
        option_problems(source, text_of(root, "docs", "configuration.md")),
    )
    out.case("every row of the option table is read", missed_options(source))
    out.case("every seed has a row in docs/seeds.md", seed_problems(seeds))
    out.case(
        "every test that docs/seeds.md names exists",
        test_problems(seeds, test_sources(root)),
    )
    out.case(
        "every link in a document has a target",
        (
            problem
            for path in documents_of(root)
            for problem in link_problems(root, path)
        ),
    )
    out.case("a wrong document is found", finds_breaches())
    out.finish()


main()
