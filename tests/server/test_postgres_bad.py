#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A PostgreSQL store that cannot be used: every command reports the reason,
and what to do, in one line without a secret."""

import os
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import Server, free_port  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SERVER = None  # one for all cases, started below

# A password that must not occur in any output.
SECRET = "canary-7d1f"

UNREACHABLE = 4
READING = (["stats"], ["list"], ["show", "a"])
# Commands that create a missing store, and commands that do not.
MAKING = (["migrate"], ["send", "orders", "--id", "a"])
WRITING = (["retry", "a"], ["process"])


def configure(place, url, timeout="30s"):
    place.configure(
        f"""\
store: "{url}"
defaults: {{command_timeout: {timeout}}}
channels:
  orders:
    handlers:
      log: {{exec: [/bin/cat]}}
"""
    )


def refused(place, url, *says, commands=READING + WRITING + MAKING, code=UNREACHABLE):
    """Every command has to fail, with one line that has all of `says`; so has
    check, unless reading commands would succeed."""
    configure(place, url)
    results = [(words, place.run(*words)) for words in commands]
    for words, result in results:
        equal((result.code, result.out), (code, ""), words, result)
        lines = [
            line
            for line in result.err.splitlines()
            if not line.startswith("postern: note: ")
        ]
        equal(len(lines), 1, words, result)
        for text in says:
            assert text in lines[0], f"{words}: not {text!r}: {result}"
    check = place.run("check", "--print")
    if ["stats"] in commands:
        equal(check.code, code, check)
    for _, result in [*results, ("check", check)]:
        assert SECRET not in result.out + result.err, result


def make_role(name, *more):
    SERVER.sql(f"CREATE ROLE {name} LOGIN {' '.join(more)}")


def migrated(place, schema):
    """Creates a store in this schema; returns its URL."""
    url = SERVER.url(schema=schema)
    configure(place, url)
    place.ok("migrate")
    return url


@case("a wrong password is reported without the password")
def _(place):
    make_role("guarded", "PASSWORD 'right'")
    SERVER.demand_password("guarded")
    url = SERVER.url(user="guarded", password=SECRET)
    refused(place, url, "guarded", "check the user and the password")


@case("a missing password is reported with the places to put it")
def _(place):
    make_role("asked", f"PASSWORD '{SECRET}'")
    SERVER.demand_password("asked")
    refused(place, SERVER.url(user="asked"), "no password", "~/.pgpass")


@case("the error for a user without LOGIN names ALTER ROLE")
def _(place):
    SERVER.sql("CREATE ROLE shut_out")
    refused(place, SERVER.url(user="shut_out"), "shut_out", "ALTER ROLE")


@case("the error for a missing user names createuser")
def _(place):
    url = SERVER.url(user="nobody_here", password=SECRET)
    refused(place, url, "nobody_here", "createuser")


@case("the error for a missing database names createdb")
def _(place):
    url = SERVER.url(password=SECRET, database="nowhere")
    refused(place, url, '"nowhere" does not exist', "createdb")


@case("the error for too many connections names the setting 'connections'")
def _(place):
    make_role("full", "CONNECTION LIMIT 0")
    refused(place, SERVER.url(user="full"), "too many connections",
            "set fewer 'connections'")


@case("the error of a role that may not connect names the missing right")
def _(place):
    make_role("outsider")
    SERVER.sql("CREATE DATABASE closed")
    SERVER.sql("REVOKE CONNECT ON DATABASE closed FROM PUBLIC")
    refused(place, SERVER.url(user="outsider", database="closed"),
            "permission denied for database", "grant CONNECT")


@case("a port without a server is reported with the address")
def _(place):
    url = SERVER.url(password=SECRET, port=free_port())
    refused(place, url, "refused", "check host and port")


@case("an unknown host is reported by its name")
def _(place):
    url = f"postgres://u:{SECRET}@nowhere.invalid/db"
    refused(place, url, "nowhere.invalid", "check the name of the host")


class Stranger:
    """A listener that is not PostgreSQL: it sends a response and closes, or
    stays silent."""

    def __init__(self, response):
        self.response = response
        self.taken = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # closed
                return
            if self.response is None:
                self.taken.append(connection)
                continue
            with connection:
                connection.recv(4096)
                connection.sendall(self.response)

    def __enter__(self):
        return self

    def __exit__(self, *what):
        # close() alone does not wake a thread in accept().
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for connection in self.taken:
            connection.close()


@case("a server that is not PostgreSQL is reported as unreachable")
def _(place):
    for response in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0" * 4096):
        with Stranger(response) as stranger:
            url = SERVER.url(password=SECRET, port=stranger.port)
            refused(place, url, "cannot be reached", commands=[["stats"]])


@case("commands wait for an unresponsive server for command_timeout")
def _(place):
    with Stranger(None) as stranger:
        url = SERVER.url(password=SECRET, port=stranger.port)
        configure(place, url, timeout="300ms")
        for words in (["stats"], ["send", "orders", "--id", "a"]):
            result = place.fails(UNREACHABLE, *words, says="did not respond")
            equal(result.out, "")
            assert SECRET not in result.err, result


@case("without the right to create the schema nothing is created")
def _(place):
    make_role("small")
    url = SERVER.url(user="small", schema="small")
    refused(place, url, "permission denied", "docs/postgresql.md", commands=MAKING)
    equal(SERVER.sql("SELECT to_regnamespace('small') IS NULL"), ["t"])


@case("without the right to use the schema a command prints what to grant")
def _(place):
    make_role("stranger")
    migrated(place, "closed")
    url = SERVER.url(user="stranger", schema="closed")
    refused(place, url, "permission denied", "docs/postgresql.md")


@case("without the right to use the tables a command prints what to grant")
def _(place):
    make_role("visitor")
    migrated(place, "looked_at")
    SERVER.sql("GRANT USAGE ON SCHEMA looked_at TO visitor")
    url = SERVER.url(user="visitor", schema="looked_at")
    refused(place, url, "permission denied", "docs/postgresql.md")


@case("a missing schema is created by commands that accept messages, not by others")
def _(place):
    configure(place, SERVER.url(schema="fresh"))
    for words in READING + WRITING:
        place.fails(UNREACHABLE, *words, says="'postern migrate' creates it")
    result = place.ok("check")
    assert "does not exist yet" in result.out, result
    equal(SERVER.sql("SELECT to_regnamespace('fresh') IS NULL"), ["t"])
    equal(place.send("a", "body").out, "accepted\n")
    equal(SERVER.sql("SELECT to_regnamespace('fresh') IS NULL"), ["f"])


@case("a schema of a newer version is not changed")
def _(place):
    url = migrated(place, "newer")
    SERVER.sql("UPDATE newer.meta SET value = '99' WHERE name = 'version'")
    refused(place, url, "version 99", "use a newer one")
    equal(SERVER.sql("SELECT value FROM newer.meta WHERE name = 'version'"), [r"\x3939"])


@case("a schema with foreign tables is not changed")
def _(place):
    SERVER.sql("CREATE SCHEMA theirs; CREATE TABLE theirs.message (letter text)")
    url = SERVER.url(schema="theirs")
    configure(place, url)
    result = place.run("migrate")
    equal(result.code != 0, True, result)
    equal(SERVER.sql("SELECT count(*) FROM theirs.message"), ["0"])
    equal(SERVER.sql("SELECT to_regclass('theirs.meta') IS NULL"), ["t"])


@case("a damaged schema is not used")
def _(place):
    url = migrated(place, "damaged")
    SERVER.sql("DELETE FROM damaged.meta WHERE name = 'hash_key'")
    refused(place, url, "corrupt", commands=READING)


@case("a database with another encoding than UTF-8 is refused")
def _(place):
    for encoding in ("LATIN1", "SQL_ASCII"):
        name = f"old_{encoding.lower()}"
        SERVER.sql(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
        refused(place, SERVER.url(database=name), "UTF-8", "createdb -E UTF8")


@case("a read-only server can only be read")
def _(place):
    make_role("reader")
    SERVER.sql("ALTER ROLE reader SET default_transaction_read_only = on")
    migrated(place, "shown")
    SERVER.sql(
        "GRANT USAGE ON SCHEMA shown TO reader;"
        "GRANT SELECT ON ALL TABLES IN SCHEMA shown TO reader"
    )
    url = SERVER.url(user="reader", schema="shown")
    refused(place, url, "read-only", "name the primary", commands=WRITING + MAKING)


@case("a server with synchronous_commit = off is refused")
def _(place):
    make_role("hasty")
    SERVER.sql("ALTER ROLE hasty SET synchronous_commit = off")
    url = SERVER.url(user="hasty")
    refused(place, url, "synchronous_commit", "ALTER ROLE", commands=WRITING + MAKING)


@case("another default isolation than read committed is refused")
def _(place):
    make_role("steady")
    SERVER.sql("ALTER ROLE steady SET default_transaction_isolation ="
               " 'repeatable read'")
    url = SERVER.url(user="steady")
    refused(place, url, "read committed", "ALTER ROLE", commands=WRITING + MAKING)


@case("an invalid URL is refused as an error in the configuration")
def _(place):
    for url, text in (
        (f"postgres://u:{SECRET}@h/d?nosuch={SECRET}", "'nosuch'"),
        (f"postgres://u:{SECRET}@h/d?shema={SECRET}", "'schema'"),
        (f"postgres://u:{SECRET}@h/d?conections=4", "'connections'"),
        (f"postgres://u:{SECRET}@h/d?schema=a&sslmod=require", "'sslmode'"),
        (f"postgres://u:{SECRET}@h/d?{SECRET}", "libpq"),
        (f"postgres://u:{SECRET}@h/d?{SECRET}=x", "libpq"),
        (f"postgres://u:{SECRET}@[::1/d", "libpq"),
        (f"postgres:hast=127.0.0.1 password={SECRET}", "'hast'"),
        (f"postgres:hast=127.0.0.1 password={SECRET}", "did you mean 'host'"),
        (f"postgres:host=h pasword={SECRET}", "did you mean 'password'"),
        (f"postgres:host = h shema = {SECRET}", "did you mean 'schema'"),
        (f"postgres:host='h'zzz={SECRET}", "'zzz', which is neither"),
        # A text that looks like a name may be the rest of a password.
        (f"postgres:host=h password=my {SECRET[:6]}=x", "after the password"),
        (f"postgres:host=h password=my hast={SECRET}", "single quotes"),
        (f"postgres:password={SECRET} host=h schema=a.b", "'a.b' is not a valid"),
        ("postgres:host=h schema=a schema=b", "twice"),
        ("postgres:host=h connections='1'", "from 2 to"),
        (f"postgres:host=h {SECRET}", "libpq"),
        (f"postgres:password='{SECRET}", "libpq"),
        (f"postgres://u:{SECRET}@h/d?schema=", "schema"),
        (f"postgres://u:{SECRET}@h/d?schema=pg_mine", "schema"),
        (f"postgres://u:{SECRET}@h/d?schema=a.b", "schema"),
        (f"postgres://u:{SECRET}@h/d?schema={'x' * 64}", "schema"),
        (f"postgres://u:{SECRET}@h/d?connections=0", "connections"),
        (f"postgres://u:{SECRET}@h/d?connections=x", "connections"),
        ("postgres:", "the database is missing"),
        (f"postgres://u:{SECRET}@h/d?schema=a&schema=b", "twice"),
        (f"postgresql://u:{SECRET}@h/d?schema=a.b", "schema"),
        ("postgresql:", "the database is missing"),
        (f"postgres://u:{SECRET}", "a port that is not a number"),
        (f"postgres://h,h:1,u:{SECRET}/d", "a port that is not a number"),
        (f"postgres:host=h port={SECRET}", "a port that is not a number"),
    ):
        configure(place, url)
        for words in (["stats"], ["migrate"], ["check"]):
            result = place.run(*words)
            equal(result.code, 2, url, words, result)
            assert text in result.err + result.out, (url, words, result)
            assert "postern.yaml:1:8: " in result.err, (url, words, result)
            assert SECRET not in result.err + result.out, (url, words, result)
            assert SECRET[:6] + "'" not in result.err, (url, words, result)
            assert "'hast'" not in result.err or "my" not in url, result


@case("a password that is not escaped is not printed as another part of the URL")
def _(place):
    # Without quotes the rest is a comment.
    place.configure(f"store: postgres://u:{SECRET} #x@h/d\n")
    for words in (["stats"], ["check"], ["serve"]):
        result = place.run(*words)
        equal(result.code, 2, result)
        assert "' #'" in result.err and SECRET not in str(result), result
    for password in (f"{SECRET}/x", f"x@{SECRET}", f"{SECRET}?x", f"x/{SECRET}@"):
        url = SERVER.url().replace("postern@", f"postern:{password}@", 1)
        refused(place, url, "%40", "%2F", commands=(["stats"], ["process"]),
                code=2)


@case("settings that contradict the URL, or do not fit the store, are refused")
def _(place):
    listen = f"postgres://u:{SECRET}@h/d"
    for url, settings, line, text in (
        ("postgres://h/d?schema=a", "schema: b", 2, "set it once"),
        ("postgres://h/d?connections=4", "connections: 5", 2, "set it once"),
        ("postgres://h/d", "schema: A", 2, "not a valid schema name"),
        ("postgres://h/d", f"listen_url: 'sqlite:{SECRET}'", 2, "not a PostgreSQL URL"),
        ("postgres://h/d", f"listen_url: '{listen}?schema=a'", 2, "own URL"),
        ("postgres://h/d", f"listen_url: 'postgres://u:{SECRET}@[x/d'", 2, "libpq"),
        ("postgres://h/d", f"listen_url: '{listen}?aplication_name=x'", 2,
         "'application_name'"),
        ("sqlite:box.db", f"listen_url: '{listen}'", 2, "PostgreSQL only"),
        ("sqlite:box.db", "schema: a", 2, "PostgreSQL only"),
        ("memory", "connections: 4", 2, "stores on a server only"),
    ):
        for where in ("stores: {{one: {{url: '{0}',\n{1}}}}}",
                      "store: '{0}'\ndefaults: {{{1}}}"):
            place.configure(where.format(url, settings))
            for words in (["stats"], ["check", "--json"], ["serve"]):
                result = place.run(*words)
                equal(result.code, 2, url, words, result)
                said = result.err + result.out
                assert text in said, (url, settings, words, result)
                assert f"postern.yaml:{line}:" in said, (url, words, result)
                assert SECRET not in said, (url, settings, words, result)


def tries(place, url, retries):
    """How many connections a command tries to open in vain."""
    place.configure(
        f"stores: {{one: {{url: '{url}', command_retries: {retries}}}}}\n"
    )
    before = refusals()
    place.fails(UNREACHABLE, "stats", says="cannot be reached")
    return refusals() - before


def refusals():
    with open(SERVER.log, encoding="utf-8", errors="replace") as file:
        return file.read().count("FATAL:")


@case("a permanent connection error is not retried")
def _(place):
    make_role("knocking", "PASSWORD 'right'")
    SERVER.demand_password("knocking")
    SERVER.sql("CREATE DATABASE walled")
    SERVER.sql("REVOKE CONNECT ON DATABASE walled FROM public")
    make_role("outside")
    for url in (
        SERVER.url(user="knocking", password=SECRET),
        SERVER.url(user="nobody_at_all"),
        SERVER.url(database="nowhere"),
        SERVER.url(user="outside", database="walled"),
    ):
        equal(tries(place, url, 5), 1, url)


@case("a transient connection error is retried command_retries times")
def _(place):
    make_role("crowded", "CONNECTION LIMIT 0")
    url = SERVER.url(user="crowded")
    for retries in (0, 1, 3):
        equal(tries(place, url, retries), retries + 1, retries)


@case("an unusable listen_url is reported, and the server continues")
def _(place):
    make_role("listener", "PASSWORD 'right'")
    SERVER.demand_password("listener")
    SERVER.sql("CREATE DATABASE elsewhere")
    for listen, says in (
        (SERVER.url(user="listener", password=SECRET), "check the user"),
        (SERVER.url(password=SECRET, port=free_port()), "check host and port"),
        (SERVER.url(password=SECRET, database="elsewhere"), "migrate"),
    ):
        place.configure(
            f"""\
stores: {{one: {{url: "{SERVER.url(schema='heard')}", listen_url: "{listen}"}}}}
channels:
  orders:
    handlers:
      log: {{exec: [/bin/cat]}}
"""
        )
        server = place.serve()
        until(lambda: "cannot wait for notifications" in server.stderr())
        assert says in server.stderr(), server.stderr()
        equal(place.send("a", "body").code, 0)
        until(lambda: place.state("a", "log") == "done")
        check = place.run("check", "--print", "--json")
        equal(check.code, 4, check)
        assert "listen_url: " in check.out, check
        with open(f"/proc/{server.pid}/cmdline", "rb") as file:
            assert SECRET.encode() not in file.read()
        equal(server.stop(), 0)
        for text in (server.stderr(), check.out, check.err):
            assert SECRET not in text, text


@case("a password on the command line is overwritten in the process list")
def _(place):
    place.configure("channels: {orders: {handlers: {log: {exec: [/bin/cat]}}}}\n")
    url = SERVER.url(password=SECRET, schema="seen")
    listen = SERVER.url(password=SECRET)
    server = place.serve("--store", url, f"--listen-url={listen}")
    with open(f"/proc/{server.pid}/cmdline", "rb") as file:
        words = file.read().decode().split("\0")
    # Its length is hidden, too.
    equal([word for word in words[2:] if word],
          ["--store", url.replace(SECRET, "***"),
           f"--listen-url={listen.replace(SECRET, '***')}"])
    equal(place.run("send", "orders", "--id", "a", "--store", url).out, "accepted\n")
    until(lambda: '"done"' in place.ok("show", "a", "--json", "--store", url).out)
    equal(server.stop(), 0)
    assert SECRET not in server.stderr(), server.stderr()


with Server() as SERVER:
    main()
