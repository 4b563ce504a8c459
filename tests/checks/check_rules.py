#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the source tree given as the argument against every rule."""

import sys

import rules
import tap
import tree


def main():
    files = tree.read(sys.argv[1])
    out = tap.Tap()
    for rule in rules.RULES:
        out.case(rules.name_of(rule), rule(files))
    out.finish()


main()
