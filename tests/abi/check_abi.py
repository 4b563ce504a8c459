#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the public interface with the one that was frozen.

Usage: check_abi.py ROOT LIBRARY            the test
       check_abi.py ROOT LIBRARY --write    writes the baseline anew

abidiff compares libpostern.abi, the frozen interface, with the library. Of its
report only what the frozen headers declare is of interest: sys/ has versions of
its own (`size`, `ops->version`). The headers allow new functions; members at the
end of a struct that has a size or is allocated by the library; and members in the
place of `reserved`. The suppressions of abidiff cannot express that, so the report
is read here. The test also plants changes in a small library of its own, to see
that they are found.
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(__file__), "..", "checks"))
import tap  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BASELINE = os.path.join(HERE, "libpostern.abi")
FROZEN_HEADERS = os.path.join(HERE, "frozen", "postern")

# Structs that may become longer.
SIZED = """
    box_options channel_options cleanup delivery detail event event_info filter
    handler_options message policy runner_options source_options source_state stats
""".split()

PLANTED = """
#include <stddef.h>
struct postern_box_options { size_t size; int first; int second; };
struct postern_receipt { long seq; int code; };
struct postern_row { long seq; unsigned long reserved[4]; };
struct postern_delivery_detail { struct postern_row row; long count; };
int postern_box_open(const struct postern_box_options *options);
int postern_box_open(const struct postern_box_options *options) {
	return options->second;
}
long postern_box_accept(struct postern_receipt *receipt);
long postern_box_accept(struct postern_receipt *receipt) {
	return receipt->seq;
}
long postern_detail_get(struct postern_delivery_detail *detail);
long postern_detail_get(struct postern_delivery_detail *detail) {
	return detail->count;
}
long postern_listing_get(struct postern_row *row);
long postern_listing_get(struct postern_row *row) {
	return row->seq;
}
"""

# name of the case, a text of PLANTED, what replaces it, whether that is allowed
CHANGES = [
    ("a member at the end of a struct with a size is allowed",
     "int second; };", "int second; int third; };", True),
    ("a member in the place of reserved is allowed",
     "unsigned long reserved[4];", "long more; unsigned long reserved[3];", True),
    ("a longer row inside another struct is found",
     "unsigned long reserved[4];", "unsigned long reserved[4]; long more;", False),
    ("a new function is allowed",
     "long postern_box_accept(struct postern_receipt *receipt);",
     "long postern_box_accept(struct postern_receipt *receipt);\n"
     "int postern_box_new(void);\n"
     "int postern_box_new(void) {\n\treturn 0;\n}", True),
    ("a member in the middle of a struct is found",
     "int first;", "int first; long middle;", False),
    ("a member whose type changed is found",
     "int first;", "long first;", False),
    ("a longer receipt is found",
     "int code; };", "int code; long more; };", False),
    ("a removed function is found",
     "postern_listing_get", "postern_listing_fetch", False),
    ("a parameter more is found",
     "postern_box_open(const struct postern_box_options *options",
     "postern_box_open(int more, const struct postern_box_options *options",
     False),
]


def abidw(library, headers=None):
    command = ["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs"]
    if headers:
        command += ["--headers-dir", headers, "--drop-private-types"]
        command += ["--no-elf-needed", "--exported-interfaces-only"]
    result = subprocess.run(
        command + [library], capture_output=True, text=True, check=True
    )
    return result.stdout


def read_frozen():
    """The names of the structs and functions of the frozen headers."""
    structs, functions = set(), set()
    for name in os.listdir(FROZEN_HEADERS):
        with open(os.path.join(FROZEN_HEADERS, name), encoding="utf-8") as file:
            text = file.read()
        structs.update(re.findall(r"^struct (\w+) \{", text, re.M))
        for declaration in re.findall(r"^POSTERN_EXPORT ([^;]*);", text, re.M):
            functions.add(re.search(r"(postern_\w+)\(", declaration).group(1))
    return structs, functions


def is_growth(name, lines):
    """Whether the changes of a struct are what its header allows."""
    report = "\n".join(lines)
    size = re.search(r"^  type size changed from (\d+) to (\d+)", report, re.M)
    offsets = re.findall(r"', at offset (\d+) \(in bits\)", report)
    changed = re.findall(r"^    (.*'.*'.*) changed", report, re.M)
    if "data member deletion" in report:
        return False
    if name[len("postern_"):] in SIZED:
        at_end = size and all(int(at) >= int(size.group(1)) for at in offsets)
        return bool(at_end and offsets and not changed)
    # The place of `reserved`: the struct has the same size. A struct that is a
    # member is reported by itself, too.
    nested = r"type 'struct postern_\w+' of "
    return not size and all(
        "reserved" in member or re.match(nested, member) for member in changed
    )


def problems_of(report, structs, functions):
    """Yields the changes in a report of abidiff that are not allowed."""
    blocks = re.split(r"\n(?= *\[|'struct )", report)
    for block in blocks:
        text = block.strip()
        struct = re.match(r"'struct (\w+)[^']*' changed:", text)
        function = re.match(r"\[([DC])\] '(?:function|method) [^']*?(\w+)\(", text)
        if "details were reported earlier" in text:
            continue  # another way to the same struct
        if struct and struct.group(1) in structs:
            if not is_growth(struct.group(1), text.split("\n")):
                yield text
        elif function and function.group(2) in functions:
            yield text


def abidiff(old, new, structs, functions):
    """Yields what changed and is not allowed to."""
    result = subprocess.run(
        ["abidiff", "--leaf-changes-only", "--no-added-syms", "--no-show-locs",
         old, new],
        capture_output=True,
        text=True,
    )
    # 4: something changed, 8: and is incompatible.
    if result.returncode & ~12:
        yield f"abidiff failed: {result.stderr.strip()}"
    yield from problems_of(result.stdout, structs, functions)


def compile_library(folder, name, source):
    path = os.path.join(folder, f"{name}.so")
    subprocess.run(
        ["gcc", "-g", "-shared", "-fPIC", "-xc", "-", "-o", path],
        input=source, text=True, check=True,
    )
    return path


def check_planted(out, folder):
    frozen = os.path.join(folder, "frozen.abi")
    with open(frozen, "w", encoding="utf-8") as file:
        file.write(abidw(compile_library(folder, "frozen", PLANTED)))
    for name, old, new, allowed in CHANGES:
        assert old in PLANTED
        changed = compile_library(folder, "changed", PLANTED.replace(old, new))
        reports = list(
            abidiff(
                frozen,
                changed,
                set(re.findall(r"^struct (\w+) \{", PLANTED, re.M)),
                set(re.findall(r"(postern_\w+)\(", PLANTED)),
            )
        )
        if not allowed:
            reports = [] if reports else ["abidiff reported nothing"]
        out.case(name, reports)


def main():
    root, library = sys.argv[1:3]
    if sys.argv[3:] == ["--write"]:
        with open(BASELINE, "w", encoding="utf-8") as file:
            file.write(abidw(library, os.path.join(root, "include", "postern")))
        return
    out = tap.Tap()
    with tempfile.TemporaryDirectory() as folder:
        check_planted(out, folder)
    structs, functions = read_frozen()
    out.case(
        "the library has the interface that was frozen",
        abidiff(BASELINE, library, structs, functions),
    )
    missing = [
        f"{name} is not in include/postern"
        for name in sorted(os.listdir(FROZEN_HEADERS))
        if not os.path.exists(os.path.join(root, "include", "postern", name))
    ]
    out.case("every frozen header is still there", missing)
    out.finish()


main()
