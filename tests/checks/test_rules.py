#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shows that every rule finds its breaches.

For each rule a breach is planted in a small clean tree, and the rule must name
the file; text that only resembles a breach must pass.
"""

import os
import tempfile

import rules
import tap
import tree

SPDX = "/* SPDX-License-Identifier: MIT */\n"
C = SPDX + "\n/*\n * Says why.\n */\n\n"

CLEAN = {
    "meson.build": "project('postern', 'c',\n  version: '1.2.3',\n)\n",
    "include/postern/version.h": SPDX + '#define POSTERN_VERSION "1.2.3"\n',
    "src/base/text.h": SPDX + "#include <stddef.h>\n",
    "src/core/box.c": C + '#include "base/text.h"\n',
}

# rule: files that each break it
BREACHES = {
    rules.includes_point_one_way: [
        ("src/base/a.c", C + '#include "core/box.h"\n'),
        ("src/store/a.c", C + '#include "handler/sql.h"\n'),
        ("src/runner/a.c", C + '#  include "server/http.h"\n'),
        ("src/core/a.c", C + '#include "box.h"\n'),
        ("src/attic/a.c", C),
    ],
    rules.public_headers_are_closed: [
        ("include/postern/a.h", SPDX + "#include <sqlite3.h>\n"),
        ("include/postern/sys/a.h", SPDX + '#include "base/text.h"\n'),
    ],
    rules.public_functions_are_exported: [
        ("include/postern/a.h", SPDX + "int postern_a_do(int value);\n"),
        ("include/postern/a.h", SPDX + "const char *\npostern_a_get(void);\n"),
    ],
    rules.libraries_stay_in_their_rooms: [
        ("src/core/a.c", C + "#include <sqlite3.h>\n"),
        ("src/store/memory.c", C + "#include <sqlite3.h>\n"),
        ("src/runner/a.c", C + "#include <curl/curl.h>\n"),
    ],
    rules.stores_are_not_compared_by_name: [
        ("src/server/a.c", C + 'if (strcmp(name, "postgres") == 0) {\n}\n'),
        ("src/cli/a.c", C + 'if (strncmp(url, "sqlite:", 7) == 0) {\n}\n'),
        ("src/core/a.c", C + 'static const char head[] = "memory:";\n'),
        ("src/runner/a.c", C + 'int r = strcmp(box->name,\n\t\t"sqlite");\n'),
    ],
    rules.optional_stores_stay_in_their_rooms: [
        ("src/server/a.c", C + "#ifdef POSTERN_POSTGRES\n#endif\n"),
        ("src/handler/a.c", C + "#  if defined(POSTERN_POSTGRES)\n#endif\n"),
        ("src/store/memory.c", C + "#ifndef POSTERN_POSTGRES\n#endif\n"),
    ],
    rules.files_are_short: [("src/base/a.h", SPDX + "int a;\n" * 800)],
    rules.nothing_is_left_to_do: [
        ("src/base/a.h", SPDX + "/* TO" + "DO: all of it */\n"),
        ("a.md", "FIX" + "ME\n"),
    ],
    rules.no_banned_calls: [
        ("src/base/a.c", C + f"int f(void) {{\n\t{call}(a);\n}}\n")
        for call in rules.BANNED
    ],
    rules.time_has_one_home: [
        ("src/core/a.c", C + "clock_gettime(CLOCK_REALTIME, &now);\n"),
        ("src/base/text.c", C + "now = time(NULL);\n"),
    ],
    rules.randomness_has_one_home: [
        ("src/core/a.c", C + "getrandom(bytes, 16, 0);\n"),
    ],
    rules.the_library_is_quiet: [
        ("src/core/a.c", C + 'fprintf(stderr, "no");\n'),
        ("src/handler/a.c", C + "exit(1);\n"),
        ("src/runner/a.c", C + "signal(SIGTERM, stop);\n"),
    ],
    rules.one_label: [("src/core/a.c", C + "goto fail;\n")],
    rules.files_say_what_they_are_for: [
        ("src/core/a.c", SPDX + "\nint a;\n"),
        ("src/core/a.h", "#include <stddef.h>\n"),
    ],
    rules.comments_are_of_one_kind: [
        ("src/core/a.c", C + "int a; // b\n"),
        ("src/core/a.c", C + "#if 0\nint a;\n#endif\n"),
    ],
    rules.no_banners: [
        ("src/core/a.c", C + "/* --- here it comes --- */\n"),
        ("src/core/a.c", C + "/*************\n * Here */\n"),
    ],
    rules.cleanup_is_visible: [
        ("src/core/a.c", C + "__attribute__((cleanup(end))) int a;\n"),
        ("src/core/a.c", C + "__attribute__((__cleanup__(end))) int a;\n"),
    ],
    rules.no_machine_paths: [
        ("docs/a.md", "See /ho" + "me/somebody/file.\n"),
        ("src/core/a.h", SPDX + '#define PATH "/wo' + 'rk/a"\n'),
    ],
    rules.no_registry_is_named: [
        ("tests/npm/package-lock.json", '{"resolved": "a"}\n'),
        ("tests/npm/package-lock.json", '{"url": "https://a/b"}\n'),
    ],
    rules.text_is_plain: [
        ("a.md", "blank \n"),
        ("a.md", "carriage return\r\n"),
        ("a.md", "no end"),
    ],
    rules.versions_agree: [
        ("include/postern/version.h", '#define POSTERN_VERSION "1.2.4"\n'),
    ],
}

# Files that break no rule.
HARMLESS = [
    ("src/server/a.c", C + '#include <yaml.h>\n#include "runner/run.h"\n'),
    ("src/store/sqlite_open.c", C + "#include <sqlite3.h>\n"),
    ("src/base/clock.c", C + "clock_gettime(CLOCK_REALTIME, &now);\n"),
    ("src/core/a.c", C + "/* strcpy() and exit() are not for us */\n"),
    ("src/core/a.c", C + 'say("system(1) at http://a//b");\n'),
    ("src/core/a.c", C + "store->time(store); run_system(1); goto out;\n"),
    ("src/cli/a.c", C + 'printf("%d", 1);\n'),
    ("src/cli/a.c", C + 'say("use sqlite:FILE"); line("memory", 1);\n'),
    ("src/store/a.c", C + 'if (strcmp(name, "postgres") == 0) {\n}\n'),
    ("src/store/registry.c", C + "#ifdef POSTERN_POSTGRES\n#endif\n"),
    ("include/postern/a.h", SPDX + "POSTERN_EXPORT int postern_a(int b);\n"),
    ("include/postern/a.h", SPDX + "typedef void postern_f(int a);\n"),
    ("include/postern/a.h", SPDX + "struct postern_a {\n\tint (*f)(int);\n};\n"),
]


def problems_with(rule, planted):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**CLEAN, **dict([planted] if planted else [])}.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8", newline="") as file:
                file.write(text)
        return list(rule(tree.read(root)))


def missed_breaches(rule):
    for path, text in BREACHES.get(rule, []):
        found = problems_with(rule, (path, text))
        if not any(path in problem for problem in found):
            yield f"{path} is not found: {text[-60:]!r}"
    if not BREACHES.get(rule):
        yield "no breach is planted for this rule"


def main():
    out = tap.Tap()
    for rule in rules.RULES:
        out.case(f"a breach is found: {rules.name_of(rule)}", missed_breaches(rule))
    out.case(
        "files that break no rule pass",
        (
            problem
            for rule in rules.RULES
            for planted in [None] + HARMLESS
            for problem in problems_with(rule, planted)
        ),
    )
    out.finish()


main()
