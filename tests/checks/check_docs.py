#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the documents agree with the sources: check_docs.py ROOT

docs/seeds.md names tests, which must exist, and links have targets. Options are
compared by check_options.py.
"""

import os
import re
import sys

import event_table
import tap

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


def event_problems(root):
    events = event_table.events_of(text_of(root, "include", "postern", "event.h"))
    lines = event_table.lines_of(text_of(root, "src", "server", "log.h"))
    document = text_of(root, "docs", "log.md")
    yield from event_table.problems(events, lines, document)
    wrong = document.replace("| `lock_lost` | warn |", "| `lock_lost` | info |")
    if not any(event_table.problems(events, lines, wrong)):
        yield "a wrong level in docs/log.md was not found"


def finds_breaches():
    """Checks that wrong texts are found."""
    tests = test_problems('"a rule", "another rule"', joined('"a"\n  " rule"'))
    found = [
        ("a seed without a row", seed_problems("| T1 | so |\n")),
        ("a test that does not exist", tests),
    ]
    for name, problems in found:
        if not list(problems):
            yield f"{name} is not found"
    if list(test_problems('"a rule"', joined('"a"\n  " rule"'))):
        yield "an existing test is reported as missing"


def main():
    root = sys.argv[1]
    seeds = text_of(root, "docs", "seeds.md")
    out = tap.Tap()
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
    out.case("docs/log.md lists every event with its level and fields",
        event_problems(root))
    out.case("a wrong document is found", finds_breaches())
    out.finish()


main()
