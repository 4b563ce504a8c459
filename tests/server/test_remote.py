#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Commands that ask a server by its address: --server, --token-file."""

import os
import socket

from support import case, equal, main, until

CONFIG = """\
store: sqlite:box.db
auth:
  tokens:
    - {name: ops, role: admin, token_file: ops.token}
    - {name: shop, role: send, token_file: shop.token}
    - {name: graf, role: read, token_file: graf.token}
channels:
  orders:
    handlers:
      log:
        exec: [/bin/sh, -c, 'test -e "${DIR}/good" || exit 65']
"""


class Far:
    """A directory without a configuration, from where a server is asked."""

    def __init__(self, place):
        self.place = place
        self.path = place.file("far")
        os.mkdir(self.path)
        for name in ("ops", "shop", "graf"):
            place.write(f"{name}.token", name * 10)
            os.chmod(place.file(f"{name}.token"), 0o600)
        place.configure(CONFIG)
        self.server = place.serve("--listen=127.0.0.1:0,unix:api.sock",
                                  "--listen-mode=0660")
        url = "http://" + self.server.serving()["listen"].split(",")[0]
        self.env = {"POSTERN_SERVER": url, "POSTERN_TOKEN_FILE": "../ops.token"}

    def ok(self, *args, **options):
        result = self.run(*args, **options)
        equal(result.code, 0, args, result)
        return result

    def run(self, *args, env=None, **options):
        return self.place.run(*args, env={**self.env, **(env or {})},
                              cwd=self.path, **options)


@case("every command that talks to a server does so at an address")
def _(place):
    far = Far(place)
    equal(far.ok("send", "orders", "--id", "a", "--body", "x").out, "accepted\n")
    equal(far.ok("send", "orders", "--id", "a", "--body", "x").out, "duplicate\n")
    equal(far.run("send", "orders", "--id", "a", "--body", "y").code, 1)
    until(lambda: far.ok("list", "--state", "poisoned", "--json").json())
    message = far.ok("show", "a", "--json").json()
    equal((message["body"], message["deliveries"][0]["state"]), ("x", "poisoned"))
    equal(far.ok("show", "a", "--body").out, "x")
    equal(len(far.ok("list", "--group-by", "error", "--json").json()), 1)
    far.ok("pause", "log", "--reason", "why")
    equal(far.ok("stats", "--json").json()["handlers"][0]["paused"], True)
    place.write("good", "")
    far.ok("retry", "a")
    far.ok("resume", "log")
    until(lambda: far.ok("show", "a", "--json").json()["deliveries"][0]["state"]
          == "done")
    equal(far.run("cancel", "a").code, 1)
    far.ok("channel", "close", "orders")
    equal(far.run("send", "orders", "--id", "b", "--body", "x").code, 4)
    far.ok("channel", "open", "orders")
    os.remove(place.file("good"))
    lines = place.write("lines", '{"specversion":"1.0","id":"l1","source":"s",'
                        '"type":"t","data":1}\n' * 2)
    assert "1 accepted" in far.ok("send", "orders", "--lines", lines).out
    until(lambda: far.ok("list", "--state", "poisoned", "--json").json())
    far.ok("discard", "l1")
    far.ok("mark", "record", "handler", "key")
    equal(far.ok("mark", "has", "handler", "key").out, "done\n")
    assert far.ok("cleanup").out.startswith("removed 0 messages")
    equal(os.listdir(far.path), [])


@case("a token that may not read bodies shows everything else of a message")
def _(place):
    far = Far(place)
    far.ok("send", "orders", "--id", "a", "--body", "private")
    weak = {"POSTERN_TOKEN_FILE": "../graf.token"}
    shown = far.ok("show", "a", env=weak)
    assert "message #1  a\n" in shown.out and "\nlog " in shown.out, shown
    assert "body\n  not shown: the token may not read bodies" in shown.out, shown
    assert "private" not in shown.out, shown
    result = far.run("show", "a", "--body", env=weak)
    equal((result.code, result.out), (1, ""))
    assert "cannot read the body: the token may not" in result.err, result
    assert "private" in far.ok("show", "a").out


@case("the flag is stronger than the variable, and a unix socket is a server, too")
def _(place):
    far = Far(place)
    gone = {"POSTERN_SERVER": "http://127.0.0.1:9"}
    far.ok("stats", "--server", far.env["POSTERN_SERVER"] + "/", env=gone)
    far.ok("stats", "--server", f"unix:{place.path}/api.sock", env=gone)
    equal(far.run("stats", env=gone).code, 4)
    # The configuration that a flag names is meant.
    place.ok("stats", "-c", "postern.yaml", env=gone)
    place.ok("stats", "--store", "sqlite:box.db", env=gone)


@case("a server that is not there is exit code 4, and nothing is stored here")
def _(place):
    holder = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{holder.getsockname()[1]}"
    holder.close()
    for words in (["send", "orders", "--body", "x"], ["list"], ["show", "a"],
                  ["retry", "a"], ["stats"], ["pause", "h"], ["cleanup"],
                  ["mark", "has", "h", "k"]):
        place.fails(4, *words, "--server", url,
                    says=f"no server is listening on {url}")
    place.fails(4, "stats", "--server", "http://nowhere.invalid:7420",
                says="the host of http://nowhere.invalid:7420 is not known")
    place.fails(4, "stats", "--server", "unix:no.sock", says="no.sock")
    equal(os.listdir(place.path), [])


@case("a token that is missing, unknown or too weak is exit code 1")
def _(place):
    far = Far(place)
    place.write("other.token", "x" * 40)
    os.chmod(place.file("other.token"), 0o600)
    for file, says in (
        ("", "a token is needed"),
        ("../other.token", "the token is not one of this server's"),
        ("../shop.token", "the role 'send' of the token 'shop' does not allow this; "
         "it needs the role read or operate or admin"),
    ):
        result = far.run("stats", env={"POSTERN_TOKEN_FILE": file})
        equal(result.code, 1, result)
        assert says in result.err, result
    far.ok("send", "orders", "--body", "x", "--token-file", "../shop.token")


@case("a mistake in --server or --token-file is a usage error")
def _(place):
    place.write("open.token", "secret" * 10)
    os.chmod(place.file("open.token"), 0o644)
    for url in ("127.0.0.1:7420", "ftp://h", "http://", "http://h:1/v1", "h", "unix",
                "http://h:1?q", "http:///x"):
        place.fails(2, "stats", "--server", url, says="is not the URL of a server; "
                    "write http://127.0.0.1:7420, https://HOST or unix:PATH")
    result = place.fails(2, "stats", "--server", "http://me:hunter2@h:1",
                         says="--server: a URL with a user is refused")
    assert "hunter2" not in result.err, result
    url = "http://127.0.0.1:9"
    place.fails(2, "stats", "--server", url, "--token-file", "open.token",
                says="--token-file: 'open.token' is world-readable (mode 0644): "
                "chmod o-r")
    place.fails(2, "stats", "--server", url, "--token-file", "none.token",
                says="none.token")
    place.fails(2, "stats", "--server", url, "-c", "x.yaml", says="combined with -c")
    place.fails(2, "process", "--server", url, says="--server")
    place.fails(2, "stats", env={"POSTERN_SERVER": "h"}, says="$POSTERN_SERVER: 'h'")


@case("a token is not sent to a proxy of the environment")
def _(place):
    far = Far(place)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        names = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
        far.ok("stats", env={**{name: proxy for name in names}, "no_proxy": ""})


main()
