#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Redis as a store of a configuration: markers, and no messages."""

import http.client
import json
import os
import signal
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from redis import Server  # noqa: E402
from support import PATIENCE_S, case, equal, main, until  # noqa: E402

SAFE = {"appendonly": "yes", "appendfsync": "always"}

INBOX = """\
channels:
  orders:
    handlers:
      log: {exec: [/bin/true]}
"""


class Connection(http.client.HTTPConnection):
    def __init__(self, place, name):
        super().__init__("postern", timeout=PATIENCE_S)
        self.path = place.file(name)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        self.request(method, path, text, {"Content-Type": "application/json"})
        response = self.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None


def events(server):
    lines = [json.loads(line) for line in server.stderr().splitlines()]
    return {line["event"]: line for line in lines}


@case("a store in Redis keeps markers for every command, from the environment too")
def _(place):
    with Server() as redis:
        place.configure(f"store: {redis.url()}\n")
        equal(place.ok("mark", "try", "h", "k").out, "first\n")
        equal(place.ok("mark", "try", "h", "k").out, "duplicate\n")
        equal(place.ok("mark", "has", "h", "k").out, "done\n")
        place.ok("once", "h", "k", "--", "/bin/sh", "-c", "exit 9")
        equal(place.ok("once", "h", "new", "--", "echo", "ran").out, "ran\n")
        os.unlink(place.file("postern.yaml"))
        env = {"POSTERN_STORE": redis.url()}
        equal(place.ok("mark", "has", "h", "new", env=env).out, "done\n")
        stores = place.ok("stats", "--json", env=env).json()["stores"]
        equal([(row["name"], row["kind"], row["markers_only"]) for row in stores],
              [("default", "redis", True)])
        assert "keeps markers only" in place.ok("stats", env=env).err
        equal(os.listdir(place.path), [])


@case("commands about messages are refused, with one sentence")
def _(place):
    with Server() as redis:
        env = {"POSTERN_STORE": redis.url()}
        for words in (["list"], ["show", "1"], ["send", "orders"], ["process"],
                      ["migrate"], ["cleanup"], ["retry", "1"], ["pause", "h"],
                      ["channel", "close", "orders"], ["init"],
                      ["bench", "--store", redis.url()]):
            result = place.fails(2, *words, env=env, says="keeps markers only")
            equal(result.err.count("\n"), 1, result)


@case("a guard channel needs nothing but markers, with a server or without one")
def _(place):
    guard = INBOX.replace("    handlers:", "    mode: guard\n    handlers:")
    with Server() as redis:
        place.configure(f"store: {redis.url()}\nlisten: unix:api.sock\n{guard}")
        equal(place.send("a").out, "done\n")
        equal(place.send("a").out, "duplicate\n")
        equal(place.ok("mark", "has", "log", "a").out, "done\n")
        place.ok("check")

        def refused():
            for words in (["list"], ["show", "1"], ["retry", "1"], ["pause", "log"],
                          ["cleanup"], ["channel", "close", "orders"]):
                result = place.fails(2, *words, says="keeps markers only")
                equal(result.err.count("\n"), 1, result)
        refused()
        place.serve()
        refused()
        http_ = Connection(place, "api.sock")
        event = {"specversion": "1.0", "source": "orders", "type": "t", "data": 1}
        words = []
        for key in ("a", "b", "b"):
            http_.request("POST", "/v1/channels/orders/messages",
                          json.dumps({**event, "id": key}),
                          {"Content-Type": "application/cloudevents+json"})
            words.append(json.loads(http_.getresponse().read())["status"])
        equal(words, ["duplicate", "done", "duplicate"])
        equal(http_.ask("GET", "/readyz"), (200, {"status": "ready"}))
        mark = {"handler": "log", "key": "b", "do": "has"}
        equal(http_.ask("POST", "/v1/marks", mark)[1]["result"], "done")
        store = http_.ask("GET", "/v1/stats")[1]["stores"][0]
        equal((store["kind"], store["markers_only"]), ("redis", True))


@case("a transactional handler in Redis is refused with one sentence")
def _(place):
    place.configure("""\
store: redis://127.0.0.1:1
channels:
  orders:
    mode: guard
    handlers:
      ledger: {sql: "select 1"}
""")
    result = place.fails(2, "serve", says=(
        "handler 'ledger' is transactional, which a redis store does not support"))
    equal(result.err.count("\n"), 1, result)


@case("an inbox in Redis is refused before anything is opened")
def _(place):
    place.configure("store: redis://:canary@127.0.0.1:1\n" + INBOX)
    for words in (["serve"], ["check"], ["send", "orders"], ["mark", "has", "h", "k"]):
        result = place.fails(2, *words, says=(
            "postern.yaml:3:3: channel 'orders' is an inbox, and its store "
            "'default' (redis) keeps markers only"))
        assert "canary" not in result.err, result
    # The forms of stores are no addresses, so nothing in them is hidden.
    place.configure("store: mysql://host/shop\n")
    place.fails(2, "check", says="or for markers only redis://HOST\n")
    # Also by the variable; a flag of 'mark' concerns that command alone.
    place.configure(INBOX)
    env = {"POSTERN_STORE": "redis://127.0.0.1:1"}
    place.fails(2, "check", env=env, says="keeps markers only")
    with Server() as redis:
        place.ok("mark", "try", "h", "k", "--store", redis.url())


@case("settings that a store in Redis does not have are refused")
def _(place):
    url = "redis://:canary@127.0.0.1:1"
    for setting, says in (
        (f"stores: {{c: {{url: '{url}', schema: a}}}}\n",
         "'schema' is a setting of stores in PostgreSQL only"),
        (f"stores: {{c: {{url: '{url}', listen_url: 'postgres://h/d'}}}}\n",
         "'listen_url' is a setting of stores in PostgreSQL only"),
        (f"store: {url}?ttl=1s\n", "'ttl' must be a duration"),
        (f"store: {url}/x\n", "the database is not a number"),
        ("store: redi://127.0.0.1\n", "did you mean 'redis:'?"),
        ("store: 'redis:'\n", "does not begin with redis:// or rediss://"),
    ):
        place.configure(setting)
        result = place.fails(2, "stats", says=says)
        assert "canary" not in result.err, result


@case("check names the settings that lose markers, and how much")
def _(place):
    for settings, says in (
        ({}, "appendonly is off: a restart of Redis forgets all"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "in the last 2 seconds"),
        ({"appendonly": "yes", "appendfsync": "no"}, "about the last 30 seconds"),
        ({**SAFE, "maxmemory_policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
        (SAFE, None),
    ):
        with Server(**settings) as redis:
            place.configure(f"store: {redis.url()}\n")
            result = place.ok("check", "--json").json()
            texts = [row["text"] for row in result["findings"]]
            if says:
                equal(len(texts), 1, texts)
                assert "markers may be lost: " in texts[0] and says in texts[0], texts
            else:
                equal(texts, [])


@case("a server answers requests about markers, and logs what may be lost")
def _(place):
    with Server(requirepass="canary") as redis:
        place.configure(f"store: {redis.url(password='canary')}\n"
                        "listen: unix:api.sock\n")
        server = place.serve()
        http_ = Connection(place, "api.sock")
        mark = {"handler": "h", "key": "k", "do": "try"}
        equal(http_.ask("POST", "/v1/marks", mark)[1]["result"], "first")
        equal(http_.ask("POST", "/v1/marks", mark)[1]["result"], "duplicate")
        equal(http_.ask("GET", "/readyz"), (200, {"status": "ready"}))
        equal(http_.ask("GET", "/healthz?verbose")[1]["status"], "ok")
        equal(http_.ask("GET", "/v1/handlers"), (200, {"items": []}))
        status, problem = http_.ask("GET", "/v1/deliveries")
        equal((status, problem["detail"]),
              (501, "the store 'default' keeps markers only: it has no messages"))
        unsafe = events(server)["store_unsafe"]
        equal(unsafe["level"], "warn")
        assert "appendonly is off" in unsafe["message"], unsafe
        warning = place.ok("stats", env={}).err
        # Another setting is another line of the log.
        redis.call("CONFIG", "SET", "appendonly", "yes")
        until(lambda: "appendfsync is everysec: a power failure forgets what was "
              "done in the last 2 seconds" in server.stderr())
        stats = http_.ask("GET", "/v1/stats")[1]
        assert "everysec" in stats["warnings"][0]["text"], stats
        checked = place.ok("check")
        assert "a server is running and healthy" in checked.out, checked
        equal(server.stop(), 0)
        for text in (server.stderr(), json.dumps(stats), warning, checked.out,
                     checked.err, place.ok("check", "--print").out):
            assert "canary" not in text, text


@case("a server reports that Redis is away, and that it is back")
def _(place):
    with Server() as redis:
        place.configure(
            f"stores: {{cache: {{url: '{redis.url()}', connections: 2}}}}\n"
            "listen: unix:api.sock\n")
        server = place.serve()
        redis.end(signal.SIGKILL)
        until(lambda: "store_failed" in events(server))
        equal(events(server)["store_failed"]["level"], "error")
        http_ = Connection(place, "api.sock")
        status, problem = http_.ask("GET", "/readyz")
        equal((status, problem["code"]), (503, "unavailable"))
        equal(http_.ask("GET", "/healthz")[0], 200)
        redis.start()
        until(lambda: "store_available" in events(server))
        equal(http_.ask("GET", "/readyz")[0], 200)
        equal(server.stop(), 0)


@case("Redis beside a file: each request is about the stores that have it")
def _(place):
    with Server() as redis:
        place.configure("store: sqlite:box.db\n"
                        f"stores: {{cache: {{url: '{redis.url()}'}}}}\n" + INBOX)

        def all_ways():
            place.ok("send", "orders", "--id", "1", stdin="x")
            equal([row["message_id"] for row in place.ok("list", "--json").json()],
                  ["1"])
            place.fails(2, "list", "--in", "cache", says="'cache'")
            equal(place.ok("mark", "try", "h", "k", "--in", "cache").code, 0)
            names = [row["name"] for row in place.ok("stats", "--json").json()["stores"]]
            equal(names, ["default", "cache"])
            place.ok("cleanup")

        all_ways()
        equal(place.ok("mark", "has", "h", "k", "--in", "cache").out, "done\n")
        # Markers of the file, without --in.
        equal(place.run("mark", "has", "h", "k").out, "unknown\n")
        server = place.serve()
        all_ways()
        http_ = Connection(place, "box.db.sock")
        status, problem = http_.ask("GET", "/v1/deliveries?store=cache")
        equal((status, "keeps markers only" in problem["detail"]), (501, True))
        equal(http_.ask("GET", "/v1/deliveries")[0], 200)
        equal(http_.ask("POST", "/v1/marks?store=cache", {
            "handler": "h", "key": "k", "do": "has"})[1]["result"], "done")
        equal(server.stop(), 0)


@case("a password that is missing or wrong, a replica and no server: each has its exit status")
def _(place):
    with Server(requirepass="canary") as redis, Server(
            replicaof="127.0.0.1 1") as replica:
        for url, code, says in (
            (redis.url(), 2, "requires a password"),
            (redis.url(password="canary-2"), 2, "refuses the user or the password"),
            (replica.url(), 4, "is a read-only replica; use the address of the primary"),
            ("redis://:canary@127.0.0.1:1", 4, "Connection refused"),
        ):
            env = {"POSTERN_STORE": url}
            for words in (["mark", "has", "h", "k"], ["stats"], ["serve"], ["check"],
                          ["once", "h", "k", "--", "true"]):
                result = place.run(*words, env=env)
                equal(result.code, code, words, result)
                said = result.out + result.err
                assert says in said, (words, result)
                assert "canary" not in said, (words, result)


@case("version names Redis, and the libraries that it needs")
def _(place):
    text = place.ok("version").out
    assert "stores: sqlite memory" in text and " redis\n" in text, text
    libraries = place.ok("version", "--json").json()["libraries"]
    assert libraries["hiredis"] and libraries["openssl"], libraries


main()
