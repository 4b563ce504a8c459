# SPDX-License-Identifier: MIT
"""Reads the text format of Prometheus, and rejects what it does not allow.

Written from the description of the format, independently of the library.
"""

import re
import subprocess

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
SUFFIXES = ("_bucket", "_sum", "_count")


class Metrics:
    """values: {(name, frozenset of labels): number}; types: {family: type}."""

    def __init__(self, text):
        self.values = {}
        self.types = {}
        self.helps = {}
        self.family = None
        self.ended = set()
        assert text.endswith("\n"), text[-80:]
        for line in text[:-1].split("\n"):
            self.read(line)
        for family, kind in self.types.items():
            if kind == "histogram":
                self.check_histogram(family)

    def read(self, line):
        if line.startswith("# HELP "):
            _, _, name, text = line.split(" ", 3)
            assert name not in self.helps and text, line
            self.helps[name] = text
            self.begin(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == self.family and name not in self.types, line
            assert kind in ("counter", "gauge", "histogram"), line
            self.types[name] = kind
        else:
            self.read_value(line)

    def begin(self, family):
        """All lines of a family are together."""
        self.ended.add(self.family)
        assert family not in self.ended, family
        self.family = family

    def read_value(self, line):
        name = NAME.match(line).group()
        labels, rest = {}, line[len(name):]
        if rest.startswith("{"):
            while not rest.startswith("}"):
                match = LABEL.match(rest, 1)
                assert match and match.group(1) not in labels, line
                labels[match.group(1)] = re.sub(
                    r"\\(.)", lambda c: "\n" if c[1] == "n" else c[1], match.group(2))
                rest = rest[match.end():]
                assert rest[0] in ",}", line
            rest = rest[1:]
        assert re.fullmatch(r" \d+(\.\d+)?", rest), line
        family = name
        if self.types[self.family] == "histogram":
            family = re.sub("(%s)$" % "|".join(SUFFIXES), "", name)
        assert family == self.family, line
        key = (name, frozenset(labels.items()))
        assert key not in self.values, f"twice: {line}"
        self.values[key] = float(rest)

    def get(self, name, **labels):
        """One value; None if there is no such series."""
        return self.values.get((name, frozenset(labels.items())))

    def series(self, name):
        return [dict(labels) for found, labels in self.values if found == name]

    def check_histogram(self, family):
        """Buckets are cumulative, in order, and the last one has all."""
        for labels in self.series(family + "_count"):
            bounds = [row["le"] for row in self.series(family + "_bucket")
                      if {**row, "le": ""} == {**labels, "le": ""}]
            numbers = [float(bound) for bound in bounds]
            assert numbers == sorted(numbers) and bounds[-1] == "+Inf", bounds
            counts = [self.get(family + "_bucket", **labels, le=bound)
                      for bound in bounds]
            assert counts == sorted(counts), counts
            assert counts[-1] == self.get(family + "_count", **labels), labels
            assert self.get(family + "_sum", **labels) is not None, labels


def promtool(text):
    """The verdict of Prometheus' own tool: prints nothing if all is well."""
    done = subprocess.run(["promtool", "check", "metrics"], input=text,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr and not done.stdout, (
        done.stdout, done.stderr)
