#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the packages of tests/npm are there for the tests."""

import json
import multiprocessing
import os
import sys
import tempfile

import npm

PROGRAM = """
for (const name of Object.keys(require(process.argv[2]).dependencies)) {
	require(name);
	console.log(name);
}
"""


def required(folder):
    """The packages that a program of Node.js can require."""
    path = os.path.join(folder, "all.js")
    with open(path, "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    manifest = os.path.abspath(os.path.join(npm.PROGRAMS, "package.json"))
    return npm.run(path, manifest).decode().split()


def install_in_a_process(_):
    return os.stat(npm.modules()).st_ino


def main():
    with open(os.path.join(npm.PROGRAMS, "package.json"),
              encoding="utf-8") as file:
        names = list(json.load(file)["dependencies"])
    with multiprocessing.Pool(4) as pool:
        # Each of them would have replaced what the one before it installed.
        once = len(set(pool.map(install_in_a_process, range(4)))) == 1
    with tempfile.TemporaryDirectory() as folder:
        found = required(folder)
    results = {
        "four tests that start together install the packages once": once,
        "a program can require every package of package.json": found == names,
    }
    for number, (name, good) in enumerate(results.items(), 1):
        print("ok" if good else "not ok", number, "-", name)
    print(f"1..{len(results)}")
    sys.exit(0 if all(results.values()) else 1)


if __name__ == "__main__":
    main()
