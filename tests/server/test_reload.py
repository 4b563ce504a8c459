#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A server that reads its configuration again at SIGHUP."""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading

from support import PATIENCE_S, case, equal, lines, main, reload, until

CONFIG = """\
store: sqlite:box.db
auth: {{tokens: [{{name: a, role: admin, token: {token}}}]}}
channels:
  orders:
    handlers:
      {key}:
        {more}
        exec: [/bin/sh, -c, 'echo {word} $CE_ID >> "${{DIR}}/log.out"']
"""


# Messages of each sender; the build sets CUTS for sanitizers.
EACH = 40 if "CUTS" in os.environ else 200


def config(key="log", word="one", more="", token="a" * 40):
    return CONFIG.format(key=key, word=word, more=more or "timeout: 30s",
                         token=token)


def status(server, token):
    result = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H",
         f"Authorization: Bearer {token}", server.url + "/v1/stats"],
        stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S)
    return int(result.stdout)


@case("SIGHUP puts changed channels, handlers and tokens in place")
def _(place):
    place.configure(config())
    server = place.serve(tcp=True)
    place.send("a")
    until(lambda: place.read("log.out") == "one a\n")
    equal(status(server, "a" * 40), 200)
    place.configure(config(word="two", token="b" * 40)
                    + "  more:\n    handlers: {other: {exec: [/bin/true]}}\n")
    line = reload(server)
    equal((line["channels"], line["handlers"]), (2, 2))
    place.send("b")
    until(lambda: place.read("log.out") == "one a\ntwo b\n")
    equal(place.send("c", channel="more").out, "accepted\n")
    equal((status(server, "a" * 40), status(server, "b" * 40)), (401, 200))
    # As the server and the command see it, nothing differs.
    assert "another configuration" not in place.ok("check").out
    equal(server.stop(), 0)


@case("a renamed handler continues, and a removed one gets nothing more")
def _(place):
    place.configure(config())
    server = place.serve()
    place.ok("pause", "log")
    place.send("a")
    place.configure(config(key="journal", more="legacy_keys: [log]"))
    reload(server)
    place.ok("resume", "journal")
    until(lambda: place.read("log.out") == "one a\n")
    place.configure("store: sqlite:box.db\n"
                    f"auth: {{tokens: [{{name: a, role: admin, token: {'a' * 40}}}]}}\n"
                    "channels: {orders: {}}\n")
    reload(server)
    assert "parked" in place.send("b").out
    equal(place.read("log.out"), "one a\n")


@case("a configuration with a mistake is refused whole, and the reason logged")
def _(place):
    place.configure(config())
    server = place.serve()
    place.configure(config(word="two").replace("timeout", "timeoot"))
    reload(server, "reload_refused")
    mistakes = [line["message"] for line in lines(server, "configuration_mistake")]
    equal(mistakes, ["postern.yaml:7:9: unknown key 'timeoot' in a handler; did you "
                     "mean 'timeout'?"])
    place.configure("{")
    reload(server, "reload_refused")
    os.remove(place.file("postern.yaml"))
    place.write("postern.yaml", config(word="two"))
    os.chmod(place.file("postern.yaml"), 0o644)
    place.send("a")
    until(lambda: place.read("log.out") == "one a\n")
    reload(server)
    place.send("b")
    until(lambda: place.read("log.out") == "one a\ntwo b\n")


@case("what needs a restart is named, and nothing else is changed either")
def _(place):
    place.configure(config())
    server = place.serve()
    for text, says in (
        ("workers: 7\n" + config(word="two"),
         "postern.yaml:1:10: workers: a change needs a restart of the server"),
        (config(word="two").replace("box.db", "other.db"),
         "postern.yaml:1:8: store: a change needs a restart of the server"),
        ("memory_max: 64MiB\n" + config(word="two"), "memory_max: a change needs"),
        (config(word="two") + "stores: {x: {url: 'sqlite:x.db'}}\n",
         "stores: a change needs a restart of the server"),
        (config(word="two") + "defaults: {polling_interval: 7s}\n",
         "polling_interval: a change needs a restart"),
        (config(word="two").replace("    handlers:", "    sources: [{lines: in.txt}]\n"
                                    "    handlers:"),
         "sources: a change needs a restart of the server"),
    ):
        place.configure(text)
        why = reload(server, "reload_refused")["why"]
        assert says in why, why
    place.send("a")
    until(lambda: place.read("log.out") == "one a\n")
    assert not os.path.exists(place.file("other.db"))


@case("a source with another setting needs a restart, the same source none")
def _(place):
    def with_source(rule, word):
        return config(word=word).replace(
            "    handlers:", "    sources:\n      - webhook: {name: shop, verify: none, "
            f"type: json:/{rule}}}\n    handlers:")

    place.configure(with_source("a", "one"))
    server = place.serve()
    place.configure(with_source("b", "two"))
    why = reload(server, "reload_refused")["why"]
    assert "sources: a change in the channel orders needs a restart" in why, why
    place.configure(with_source("a", "two"))
    reload(server)


@case("nothing is lost or run twice by reloads under load")
def _(place):
    place.configure(config(word="0"))
    server = place.serve(tcp=True)
    sent = []

    def send(first):
        client = http.client.HTTPConnection(server.url[len("http://"):],
                                            timeout=PATIENCE_S)
        for i in range(first, first + EACH):
            client.request("POST", "/v1/channels/orders/messages", body="x", headers={
                "Authorization": f"Bearer {'a' * 40}", "X-Message-Id": f"m{i}"})
            response = client.getresponse()
            equal(response.status, 202, response.read())
            response.read()
            sent.append(f"m{i}")

    threads = [threading.Thread(target=send, args=(n * 1000,)) for n in range(3)]
    for thread in threads:
        thread.start()
    count = 0
    while count < 8 or any(thread.is_alive() for thread in threads):
        count += 1
        place.configure(config(word=str(count), key=f"log{count % 2}",
                               more=f"legacy_keys: [log, log{1 - count % 2}]"))
        reload(server)
        place.configure("broken")
        reload(server, "reload_refused")
    place.configure(config(key="log0", more="legacy_keys: [log, log1]"))
    for thread in threads:
        thread.join()
    equal(len(sent), 3 * EACH)
    until(lambda: len(place.read("log.out").splitlines()) >= 3 * EACH)
    ran = sorted(line.split()[1] for line in place.read("log.out").splitlines())
    equal(ran, sorted(sent))
    equal(place.ok("list", "--state", "pending", "--json").json(), [])
    equal(server.stop(), 0)


@case("a service manager is told when the server is ready, alive and stopping")
def _(place):
    place.configure(config())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(PATIENCE_S)
        manager.bind(place.file("notify"))
        server = place.serve(env={"NOTIFY_SOCKET": place.file("notify")})
        equal(manager.recv(100), b"READY=1")
        equal(place.send("a").out, "accepted\n")
        equal(manager.recv(100), b"WATCHDOG=1")
        equal(server.stop(), 0)
        told = b"WATCHDOG=1"
        while told == b"WATCHDOG=1":
            told = manager.recv(100)
        equal(told, b"STOPPING=1")


main()
