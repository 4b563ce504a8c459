#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every crash point that the sources name, found by searching them.

    points.py [ROOT]     prints "crash NAME" or "fail NAME", one per line

As a module: named(root) returns {name: (kind, [place, ...])}.
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

CALL = re.compile(r'\bpostern__point(_fails)?\(\s*"([^"]*)"')
NAME = re.compile(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*")


def named(root=ROOT):
    points = {}
    for folder, _, names in sorted(os.walk(os.path.join(root, "src"))):
        for name in sorted(names):
            if not name.endswith((".c", ".h")):
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for match in CALL.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                place = f"{os.path.relpath(path, root)}:{line}"
                kind = "fail" if match.group(1) else "crash"
                points.setdefault(match.group(2), (kind, []))[1].append(place)
    return points


def problems(points):
    """Names that are used twice or are malformed."""
    for name, (_, places) in sorted(points.items()):
        if not NAME.fullmatch(name):
            yield f"{places[0]}: '{name}' is not noun.where"
        if len(places) > 1:
            yield f"{places[1]}: '{name}' is also at {places[0]}"


def main():
    for name, (kind, _) in sorted(named(*sys.argv[1:2]).items()):
        print(kind, name)


if __name__ == "__main__":
    main()
