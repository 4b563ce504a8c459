#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the linked files: check_library.py ROOT LIBRARY [COMMAND [OTHER...]]

The shared library exports exactly the functions that the public headers mark,
has its SONAME and needs nothing but SQLite and libpq; another one exports what
its header marks, and needs its own libraries only. All are hardened.
"""

import os
import re
import subprocess
import sys

import tap
import tree

# Libraries that the compiler itself adds, sanitizers included.
RUNTIME = re.compile(
    r"^(libc|libm|ld-linux-x86-64|libgcc_s|libasan|libubsan|libtsan)\.so\."
)


def output(*command):
    return subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout


# Libraries beside libpostern: what each needs but that.
OTHERS = {
    "rabbitmq": {"librabbitmq.so.4"},
    "redis": {"libhiredis.so.0.14", "libssl.so.3", "libcrypto.so.3"},
}


def marked(files, other=None):
    """Names that POSTERN_EXPORT marks in the public headers, or in that of
    another library."""
    of_others = {f"include/postern/{name}.h": name for name in OTHERS}
    names = set()
    for file in files:
        if file.path.startswith("include/") and of_others.get(file.path) == other:
            code = re.sub(r"^[ \t]*#(.*\\\n)*.*", "", file.code, flags=re.M)
            for match in re.finditer(r"\bPOSTERN_EXPORT\b([^;{]*)", code):
                names.add(re.search(r"(\w+)[ \t]*(\(|\[|$)", match[1])[1])
    return names


def exported(library):
    lines = output("nm", "-D", "--defined-only", library).splitlines()
    names = [line.split()[1:] for line in lines]
    # The version node itself is listed as an absolute symbol.
    return {name.split("@")[0] for kind, name in names if kind != "A"}


def differences(wanted, found):
    for name in sorted(wanted - found):
        yield f"{name} is public but not in the library"
    for name in sorted(found - wanted):
        yield f"{name} is in the library but not public"


def dynamic(path, tag):
    text = output("readelf", "-dW", path)
    return re.findall(rf"\({tag}\).*\[(.*)\]", text)


def hardening_gaps(path):
    header = output("readelf", "-hW", path)
    segments = output("readelf", "-lW", path)
    flags = output("readelf", "-dW", path)
    if "DYN" not in header:
        yield f"{path}: loaded at a fixed address"
    if "GNU_RELRO" not in segments or "NOW" not in flags:
        yield f"{path}: relocations stay writable"
    if not re.search(r"GNU_STACK.* RW +0x", segments):
        yield f"{path}: the stack is executable"


def is_sanitized(path):
    return any("san.so" in name for name in dynamic(path, "NEEDED"))


def other_cases(out, root, library):
    name = os.path.basename(library).split(".")[0]
    other = name[len("libpostern-") :]
    out.case(
        f"{name} exports exactly its public functions",
        differences(marked(tree.read(root), other), exported(library)),
    )
    wanted = {"libpostern.so.0", *OTHERS[other]}
    found = {n for n in dynamic(library, "NEEDED") if not RUNTIME.match(n)}
    out.case(
        f"{name} needs libpostern and its own libraries only",
        [] if found <= wanted else [f"it needs {sorted(found)}"],
    )
    soname = dynamic(library, "SONAME")
    out.case(
        f"{name} has a SONAME",
        [] if soname == [f"{name}.so.0"] else [f"it is {soname}"],
    )


def main():
    root, library = sys.argv[1:3]
    built = [path for path in sys.argv[2:] if os.path.exists(path)]
    out = tap.Tap()
    wanted = marked(tree.read(root))
    out.case(
        "the library exports exactly the public functions",
        differences(wanted, exported(library)),
    )
    out.case(
        "a missing or superfluous symbol is found",
        []
        if len(list(differences({"a", "b"}, {"b", "c"}))) == 2
        else ["it is not"],
    )
    soname = dynamic(library, "SONAME")
    out.case(
        "the library has a SONAME",
        [] if soname == ["libpostern.so.0"] else [f"it is {soname}"],
    )
    out.case(
        "the library needs SQLite, libpq and the C library only",
        (
            name
            for name in dynamic(library, "NEEDED")
            if not RUNTIME.match(name)
            and name not in ("libsqlite3.so.0", "libpq.so.5")
        ),
    )
    for other in sys.argv[4:]:
        other_cases(out, root, other)
    if not is_sanitized(library):
        out.case(
            "the library and the command are hardened",
            (gap for path in built for gap in hardening_gaps(path)),
        )
    out.finish()


main()
