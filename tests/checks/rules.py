# SPDX-License-Identifier: MIT
"""The rules that every source file follows.

A rule is a function that gets the files and yields a problem for each breach,
as a sentence that begins with the place. The first line of its docstring is
the name of its test case. test_rules.py plants a breach of every rule and
requires that it is found.
"""

import re

# A room includes only rooms of earlier rows; rooms of one row do not include
# each other.
ROOMS = [
    ["base"],
    ["core"],
    ["store", "source", "handler", "redis"],
    ["rabbitmq"],
    ["runner"],
    ["webhook"],
    ["server"],
    ["cli"],
]
PLACES = {room: place for place, rooms in enumerate(ROOMS) for room in rooms}
LIBRARY_ROOMS = [
    "base", "core", "store", "source", "handler", "redis", "rabbitmq", "runner",
    "webhook"
]

INCLUDE = r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]'

LINES_MAX = 800

# Calls that write without a limit, have hidden state, hide errors, or pass a
# string to a shell.
BANNED = """
    alloca asctime atof atoi atol atoll ctime gets getwd gmtime localtime
    mktemp popen putenv rand random scanf sprintf srand srandom sscanf stpcpy
    strcat strcpy strdupa strncat strncpy strtok system tempnam tmpnam vfork
    vsprintf
""".split()


def includes_point_one_way(files):
    """includes point one way between rooms"""
    for file in files:
        if not file.room:
            continue
        if file.room not in PLACES:
            yield f"{file.path}: src/{file.room} is not a room of the plan"
            continue
        for place, match in file.find(INCLUDE):
            if match.group(1) != '"':
                continue
            target = match.group(2).split("/")[0]
            if target not in PLACES:
                yield f"{place}: include it as \"room/{match.group(2)}\""
            elif target != file.room and PLACES[target] >= PLACES[file.room]:
                yield f"{place}: {file.room} must not include {target}"


def public_headers_are_closed(files):
    """public headers include public and standard headers only"""
    standard = re.compile(r"^(std(arg|bool|def|int)\.h|postern/.+\.h)$")
    for file in files:
        if not file.path.startswith("include/"):
            continue
        for place, match in file.find(INCLUDE):
            if match.group(1) != "<" or not standard.match(match.group(2)):
                yield f"{place}: a public header includes {match.group(2)}"


def public_functions_are_exported(files):
    """every function declared in a public header has POSTERN_EXPORT"""
    for file in files:
        if not file.path.startswith("include/"):
            continue
        for place, match in file.find(r"^[a-z][^;{}()#]*\b(postern_\w+)\("):
            if not match.group().startswith(("typedef", "static")):
                yield f"{place}: {match.group(1)}() has no POSTERN_EXPORT"


def libraries_stay_in_their_rooms(files):
    """each library is used only in its rooms"""
    allowed = {
        "sqlite3.h": r"src/(store/sqlite|handler/sql|cli/version\.c)",
        "yaml.h": r"src/(server|cli)/",
        "microhttpd.h": r"src/(server|cli)/",
        "gnutls/abstract.h": r"src/server/tls\.h",
        "gnutls/gnutls.h": r"src/server/tls\.h",
        "curl/curl.h": r"src/(webhook|server|cli)/",
        "jansson.h": r"src/(server|cli)/",
        "hiredis/hiredis.h": r"src/redis/",
        "amqp.h": r"src/rabbitmq/",
        "amqp_ssl_socket.h": r"src/rabbitmq/",
        "amqp_tcp_socket.h": r"src/rabbitmq/",
        "openssl/ssl.h": r"src/redis/",
        "openssl/core_names.h": r"src/webhook/hmac\.c",
        "openssl/crypto.h": r"src/(redis/|server/auth\.c|webhook/hmac\.c)",
        "openssl/evp.h": r"src/(redis/|server/auth\.c|webhook/hmac\.c)",
        "openssl/params.h": r"src/webhook/hmac\.c",
    }
    for file in files:
        if not file.path.startswith(("src/", "include/")):
            continue
        for place, match in file.find(INCLUDE):
            where = allowed.get(match.group(2))
            if where and not re.match(where, file.path):
                yield f"{place}: {match.group(2)} does not belong here"


def files_are_short(files):
    """no file is longer than 800 lines"""
    for file in files:
        count = file.text.count("\n")
        if count > LINES_MAX and file.path.endswith(
            (".c", ".h", ".py", ".sh", ".build")
        ):
            yield f"{file.path}: {count} lines, split it by noun"


def nothing_is_left_to_do(files):
    """nothing is left to do in the sources"""
    # Assembled here, or this file would break its own rule.
    words = r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b"
    for file in files:
        for place, match in file.find(words, file.text):
            yield f"{place}: {match.group()}"


def no_banned_calls(files):
    """banned calls are not used"""
    call = r"(?<![\w.>])(" + "|".join(BANNED) + r")[ \t]*\("
    for file in files:
        if file.is_c:
            for place, match in file.find(call):
                yield f"{place}: {match.group(1)}()"


def time_has_one_home(files):
    """time is read in src/base/clock.c only"""
    call = r"(?<![\w.>])(clock_gettime|gettimeofday|time|clock|ftime)[ \t]*\("
    for file in files:
        if file.is_c and file.room and file.path != "src/base/clock.c":
            for place, match in file.find(call):
                yield f"{place}: {match.group(1)}()"


def randomness_has_one_home(files):
    """random bytes are read in src/base only"""
    call = r"(?<![\w.>])(getrandom|getentropy|arc4random\w*)[ \t]*\("
    for file in files:
        if file.is_c and file.room and file.room != "base":
            for place, match in file.find(call):
                yield f"{place}: {match.group(1)}()"


def the_library_is_quiet(files):
    """the library neither prints nor exits nor installs signal handlers"""
    call = (
        r"(?<![\w.>])(exit|quick_exit|abort|printf|vprintf|puts|putchar"
        r"|perror|err|errx|warn|warnx|syslog|signal)[ \t]*\("
        r"|\b(stdout|stderr)\b"
    )
    for file in files:
        if file.is_c and file.room in LIBRARY_ROOMS:
            for place, match in file.find(call):
                yield f"{place}: {match.group(1) or match.group(2)}"


def one_label(files):
    """the only label is out"""
    for file in files:
        if file.is_c:
            for place, match in file.find(r"\bgoto[ \t]+(?!out\b)(\w+)"):
                yield f"{place}: goto {match.group(1)}"


def files_say_what_they_are_for(files):
    """a C file begins with its licence, and a .c then states its purpose"""
    licence = "/* SPDX-License-Identifier: MIT */\n"
    for file in files:
        if not file.is_c:
            continue
        if not file.text.startswith(licence):
            yield f"{file.path}:1: not the SPDX line"
        elif file.path.endswith(".c"):
            if not file.text[len(licence) :].lstrip("\n").startswith("/*"):
                yield f"{file.path}:2: no paragraph on its purpose"


def comments_are_of_one_kind(files):
    """C comments are between stars, and no code is commented out"""
    for file in files:
        if not file.is_c:
            continue
        # Strings are removed first: most double slashes are in them.
        text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', file.text)
        text = re.sub(
            r"/\*.*?\*/",
            lambda match: re.sub(r"[^\n]", "", match.group()),
            text,
            flags=re.DOTALL,
        )
        for place, _ in file.find(r"//", text):
            yield f"{place}: //"
        for place, _ in file.find(r"^[ \t]*#[ \t]*if[ \t]+[01]\b", text):
            yield f"{place}: code switched off by the preprocessor"


def no_banners(files):
    """no comment is a banner"""
    for file in files:
        if file.is_c:
            for place, _ in file.find(r"/\*+[ \t]*(-{3,}|={3,}|\*{3,})", file.text):
                yield f"{place}: a banner"


def cleanup_is_visible(files):
    """the attribute cleanup is not used"""
    for file in files:
        if file.is_c:
            for place, _ in file.find(r"__cleanup__|\(cleanup\("):
                yield f"{place}: attribute cleanup"


def no_machine_paths(files):
    """no path of a developer's machine is in the tree"""
    # Assembled here, or this file would break its own rule.
    paths = "|".join("/" + name + "/" for name in ["work", "home", "root"])
    for file in files:
        for place, match in file.find(rf"(?<![\w.}}])({paths})\w*", file.text):
            yield f"{place}: {match.group()}"


def no_registry_is_named(files):
    """a lock file of npm names no registry"""
    for file in files:
        if file.path.endswith("package-lock.json"):
            for place, match in file.find(r'"resolved"|https?://', file.text):
                yield f"{place}: {match.group()}, see tests/support/npm.py"


def text_is_plain(files):
    """text is UTF-8, and its lines end in LF without trailing blanks"""
    for file in files:
        if b"\0" in file.bytes or not file.bytes:
            continue
        if "\ufffd" in file.text:
            yield f"{file.path}: not UTF-8"
        if not file.bytes.endswith(b"\n"):
            yield f"{file.path}: the last line does not end"
        for place, _ in file.find(r"[ \t\r]+$", file.text):
            yield f"{place}: blanks at the end of the line"


def versions_agree(files):
    """the header and the build name the same version"""
    patterns = {
        "include/postern/version.h": r'#define POSTERN_VERSION "([^"]+)"',
        "meson.build": r"^  version: '([^']+)'",
    }
    found = {}
    for file in files:
        if file.path in patterns:
            for _, match in file.find(patterns[file.path], file.text):
                found[file.path] = match.group(1)
    if len(found) != 2 or len(set(found.values())) != 1:
        yield f"versions found: {found}"


def stores_are_not_compared_by_name(files):
    """what a store is capable of is in its row, not in its name"""
    # The rooms of the stores; and the redactor, which knows URLs of any kind.
    allowed = re.compile(r"src/(store/|redis/|base/redact\.c)")
    names = r"(sqlite|postgres|postgresql|memory|redis|rediss)"
    for file in files:
        if not file.is_c or not file.room or allowed.match(file.path):
            continue
        text = re.sub(
            r"/\*.*?\*/",
            lambda match: re.sub(r"[^\n]", "", match.group()),
            file.text,
            flags=re.DOTALL,
        )
        compared = rf'(cmp|casestr|strstr|starts?)\w*\([^;]*?"{names}:?(//)?"'
        listed = rf'(?<![\w"])"{names}:(//)?"'
        for pattern in (compared, listed):
            for place, match in file.find(pattern, text):
                yield f"{place}: {match.group()[-40:]!r}: ask the store's row"


def optional_stores_stay_in_their_rooms(files):
    """only the registries know whether PostgreSQL is built in"""
    allowed = re.compile(r"src/(store/(postgres/|registry\.c)|handler/registry\.c)")
    for file in files:
        if file.is_c and file.room and not allowed.match(file.path):
            pattern = r"^[ \t]*#[ \t]*(el)?if.*\bPOSTERN_POSTGRES\b"
            for place, _ in file.find(pattern):
                yield f"{place}: POSTERN_POSTGRES"


RULES = [
    stores_are_not_compared_by_name,
    optional_stores_stay_in_their_rooms,
    includes_point_one_way,
    public_headers_are_closed,
    public_functions_are_exported,
    libraries_stay_in_their_rooms,
    files_are_short,
    nothing_is_left_to_do,
    no_banned_calls,
    time_has_one_home,
    randomness_has_one_home,
    the_library_is_quiet,
    one_label,
    files_say_what_they_are_for,
    comments_are_of_one_kind,
    no_banners,
    cleanup_is_visible,
    no_machine_paths,
    no_registry_is_named,
    text_is_plain,
    versions_agree,
]


def name_of(rule):
    return rule.__doc__.strip().split("\n")[0]
