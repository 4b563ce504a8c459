#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles every header alone: check_headers.py ROOT [--server] [--postgres]
    [--rabbitmq] [--redis]

Public headers as C17 and as C++17, with gcc and with clang; internal ones as
C17 with gcc, so that a file can include them in any order. Headers of the
command's rooms need its libraries and are left out without --server, those of
the PostgreSQL store need libpq and are left out without --postgres, and those
of RabbitMQ and Redis need librabbitmq, or hiredis and OpenSSL, and are left out
without --rabbitmq or --redis.
"""

import os
import subprocess
import sys

sys.path.insert(1, os.path.join(os.path.dirname(__file__), "..", "checks"))
import tap  # noqa: E402
import tree  # noqa: E402

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
COMPILERS = [
    ("C17 by gcc", ["gcc", "-std=c17", "-Wstrict-prototypes", "-xc"]),
    ("C17 by clang", ["clang", "-std=c17", "-Wstrict-prototypes", "-xc"]),
    ("C++17 by gcc", ["g++", "-std=c++17", "-xc++"]),
    ("C++17 by clang", ["clang++", "-std=c++17", "-xc++"]),
]


def compile_alone(compiler, root, include, folders):
    """Compiles a file that includes the header twice; yields errors."""
    result = subprocess.run(
        compiler
        + WARNINGS
        + [f"-I{os.path.join(root, folder)}" for folder in folders]
        + ["-"],
        input=f"#include {include}\n" * 2 + "extern int alone;\n",
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        yield result.stderr.strip()


def main():
    root = sys.argv[1]
    rooms = ["base", "core", "store", "source", "handler", "runner"]
    if "--server" in sys.argv:
        rooms += ["server", "cli"]
    if "--rabbitmq" in sys.argv:
        rooms += ["rabbitmq"]
    if "--redis" in sys.argv:
        rooms += ["redis"]
    out = tap.Tap()
    headers = [f for f in tree.read(root) if f.path.endswith(".h")]
    for file in headers:
        if file.path.startswith("include/"):
            name = file.path[len("include/") :]
            for kind, compiler in COMPILERS:
                out.case(
                    f"{name} compiles alone as {kind}",
                    compile_alone(compiler, root, f"<{name}>", ["include"]),
                )
    internal = COMPILERS[0][1] + ["-D_GNU_SOURCE"]
    with_postgres = "--postgres" in sys.argv
    if with_postgres:
        internal += subprocess.check_output(
            ["pkg-config", "--cflags", "libpq"], text=True
        ).split()
    for file in headers:
        if "/postgres/" in file.path and not with_postgres:
            continue
        if file.room in rooms:
            name = file.path[len("src/") :]
            out.case(
                f"{name} compiles alone",
                compile_alone(
                    internal, root, f'"{name}"', ["include", "src"]
                ),
            )
    out.case(
        "a header that does not compile alone is reported",
        []
        if any(compile_alone(COMPILERS[0][1], root, "<nowhere.h>", []))
        else ["a missing header was not reported"],
    )
    out.finish()


main()
