#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What monitoring reads of a server. Metrics are read by a parser and by the tool
of Prometheus."""

import http.client
import json
import os
import re
import socket

from prometheus import Metrics, promtool
from support import case, equal, main, until

HEADER = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "operations.md")

CONFIG = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      good:
        types: [order.*]
        exec: [/bin/true]
      bad:
        types: [order.bad]
        max_attempts: 1
        exec: [/bin/false]
"""


def request(place, path, name="box.db"):
    connection = http.client.HTTPConnection("postern", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    connection.sock.connect(place.file(f"{name}.sock"))
    connection.request("GET", path)
    response = connection.getresponse()
    return response, response.read().decode("utf-8")


def metrics(place, name="box.db"):
    response, text = request(place, "/metrics", name)
    equal(response.status, 200, text)
    equal(response.getheader("Content-Type"),
          "text/plain; version=0.0.4; charset=utf-8")
    promtool(text)
    return Metrics(text)


def send(place, number, kind, channel="orders"):
    return place.send(str(number), "body", "--type", kind, channel=channel)


@case("metrics have the values of known traffic")
def _(place):
    place.configure(CONFIG)
    place.serve()
    for number in range(5):
        send(place, number, "order.placed")
    for number in range(5, 8):
        send(place, number, "order.bad")
    send(place, 0, "order.placed")
    place.send("0", "another", "--type", "order.placed")
    send(place, 9, "other")
    until(lambda: place.ok("stats", "--json").json()["handlers"][0]["done"] == 8)
    until(lambda: metrics(place).get("postern_poisoned", store="default",
                                     handler="bad") == 3)
    found = metrics(place)
    for name, value in [("messages_accepted", 9), ("duplicates", 1),
                        ("conflicts", 1), ("unrouted", 1)]:
        equal(found.get(f"postern_{name}_total", channel="orders"), value, name)
    for handler, outcome, value in [("good", "done", 8), ("good", "poison", 0),
                                    ("bad", "poison", 3), ("bad", "done", 0)]:
        equal(found.get("postern_deliveries_total", handler=handler,
                        outcome=outcome), value, handler, outcome)
    for name in ("duration", "lag"):
        equal(found.get(f"postern_delivery_{name}_seconds_count", handler="good"), 8)
        equal(found.get(f"postern_delivery_{name}_seconds_count", handler="bad"), 3)
    for handler in ("good", "bad"):
        equal(found.get("postern_pending", store="default", handler=handler), 0)
        equal(found.get("postern_oldest_pending_age_seconds", store="default",
                        handler=handler), 0)
        equal(found.get("postern_running", handler=handler), 0)
    assert found.get("postern_commit_duration_seconds_count", store="default") > 0
    assert found.get("postern_batch_size_sum", store="default") >= 20
    equal(len(found.series("postern_build_info")), 1)


@case("metrics show what waits, runs and is held")
def _(place):
    place.configure("""\
store: sqlite:box.db
channels:
  orders:
    handlers:
      slow:
        concurrency: 1
        exec: [/bin/sh, -c, 'until test -e ${DIR}/go; do sleep 0.02; done']
      gone:
        exec: [/bin/sh, -c, 'exit 69']
      off:
        exec: [/bin/true]
""")
    place.serve()
    place.ok("pause", "off")
    for number in range(3):
        send(place, number, "t")

    def shown():
        found = metrics(place)
        return found if all([
            found.get("postern_running", handler="slow") == 1,
            found.get("postern_handler_held", handler="gone", reason="broken") == 1,
            found.get("postern_handler_held", handler="off", reason="paused") == 1,
            found.get("postern_pending", store="default", handler="off") == 3,
            found.get("postern_leased", store="default", handler="slow") >= 1,
            found.get("postern_oldest_open_age_seconds", store="default",
                      handler="slow") > 0,
        ]) else None
    found = until(shown)
    equal(found.get("postern_handler_held", handler="slow", reason="paused"), 0)
    equal(found.get("postern_handler_held", handler="off", reason="broken"), 0)
    assert found.get("postern_oldest_pending_age_seconds", store="default",
                     handler="off") > 0
    place.write("go", "")
    until(lambda: metrics(place).get("postern_deliveries_total", handler="slow",
                                     outcome="done") == 3)


@case("several stores make one text, in which every series is unique")
def _(place):
    place.configure("""\
stores:
  one: {url: 'sqlite:one.db'}
  two: {url: 'sqlite:two.db'}
channels:
  first: {store: one, handlers: {a: {exec: [/bin/true]}}}
  second: {store: two, handlers: {b: {exec: [/bin/true]}}}
""")
    server = place.serve()
    send(place, 1, "t", channel="first")
    until(lambda: metrics(place, "one.db").get(
        "postern_deliveries_total", handler="a", outcome="done") == 1)
    server.stop()
    # The channel moves: both stores know its handler.
    place.configure(place.read("postern.yaml").replace(
        "first: {store: one", "first: {store: two"))
    place.serve()
    send(place, 2, "t", channel="first")
    found = metrics(place, "one.db")
    for store in ("one", "two"):
        equal(found.get("postern_pending", store=store, handler="a") is None, False)
    _, text = request(place, "/metrics?store=two", "one.db")
    equal({row["store"] for row in Metrics(text).series("postern_pending")}, {"two"})


@case("sources are in the metrics, with names that need escapes")
def _(place):
    place.configure("""\
store: sqlite:box.db
channels:
  orders:
    sources:
      - lines: {file: events.jsonl}
        name: 'a "b" \\ c'
    handlers:
      log:
        exec: [/bin/true]
""")
    place.write("events.jsonl", "")
    place.serve()
    source = {"store": "default", "source": 'a "b" \\ c'}
    until(lambda: metrics(place).get("postern_source_connected", **source) == 1)
    equal(metrics(place).get("postern_source_lag", **source), 0)


@case("with metrics off there are none")
def _(place):
    place.configure("metrics: off\n" + CONFIG)
    place.serve()
    response, text = request(place, "/metrics")
    equal(response.status, 404)
    assert "metrics: on" in text, text
    equal(request(place, "/healthz")[0].status, 200)


@case("the manual lists every metric, with its type and labels")
def _(place):
    place.configure("""\
store: sqlite:box.db
defaults: {processing: exclusive}
channels:
  orders:
    sources:
      - lines: {file: events.jsonl}
    handlers:
      log:
        exec: [/bin/true]
""")
    place.write("events.jsonl", "")
    place.serve()
    until(lambda: metrics(place).series("postern_source_lag"))
    found = metrics(place)
    served = {}
    for family, kind in found.types.items():
        rows = found.series(family) or found.series(family + "_count")
        served[family] = (kind, sorted(rows[0]))
    with open(HEADER, encoding="utf-8") as file:
        table = re.findall(r"^\| `(postern_\w+)` \| (\w+) \| ([^|]*) \|", file.read(),
                           re.MULTILINE)
    written = {name: (kind, sorted(re.findall(r"`(\w+)`", labels)))
               for name, kind, labels in table}
    # Only of a queue that a source has declared: test_rabbitmq.py.
    equal(written.pop("postern_source_dead_letters"),
          ("gauge", ["source", "store"]))
    equal(written, served)


HEALTH = """\
store: sqlite:box.db
health: {degraded_after: 1s, unhealthy_after: 2s}
channels:
  orders:
    sources:
      - lines: {file: events.jsonl}
    handlers:
      slow:
        concurrency: 1
        exec: [/bin/sh, -c, 'until test -e ${DIR}/go; do sleep 0.02; done']
      off:
        exec: [/bin/true]
      gone:
        exec: [/bin/sh, -c, 'echo no licence >&2; exit 69']
"""


def health(place, name="box.db"):
    response, text = request(place, "/healthz?verbose", name)
    equal(response.status, 200, text)
    return json.loads(text)


def handler_health(found, key):
    return next(row for row in found["handlers"] if row["key"] == key)


@case("health degrades while work is due and no run ends, and is never 503")
def _(place):
    place.configure(HEALTH)
    place.write("events.jsonl", "")
    place.serve()
    equal(health(place)["status"], "ok")
    for number in range(3):
        send(place, number, "t")

    def unhealthy():
        found = health(place)
        inactive = handler_health(found, "slow")["inactive_ms"]
        equal(found["status"], "ok" if inactive < 1000 else
              "degraded" if inactive < 2000 else "unhealthy", inactive)
        return found if found["status"] == "unhealthy" else None
    found = until(unhealthy)
    slow = handler_health(found, "slow")
    equal((slow["status"], slow["due"], slow["running"], slow["held"]),
          ("unhealthy", True, 1, None))
    assert slow["inactive_ms"] >= 2000, slow
    assert any("'slow' has work due" in note for note in found["notes"]), found
    equal(request(place, "/healthz")[1], '{"status":"ok"}')
    equal(request(place, "/readyz")[0].status, 200)
    result = place.run("check")
    equal(result.code, 5)
    assert "'slow' has work due" in result.out, result
    place.write("go", "")
    until(lambda: health(place)["status"] == "ok")
    place.ok("check")


@case("what is paused or held is named and not due")
def _(place):
    place.configure(HEALTH)
    place.write("events.jsonl", "")
    place.write("go", "")
    place.serve()
    place.ok("pause", "off")
    for number in range(3):
        send(place, number, "t")
    until(lambda: handler_health(health(place), "gone")["held"] == "broken")
    # Longer than the thresholds.
    until(lambda: metrics(place).get("postern_oldest_pending_age_seconds",
                                     store="default", handler="off") > 3)
    found = health(place)
    equal(found["status"], "ok")
    off, gone = handler_health(found, "off"), handler_health(found, "gone")
    equal((off["status"], off["due"], off["held"]), ("ok", False, "paused"))
    equal((gone["status"], gone["due"], gone["held"], gone["reason"]),
          ("ok", False, "broken", "no licence"))
    assert gone["since"], gone
    for words in ("'off' starts no runs: paused", "'gone' is held: no licence"):
        assert any(words in note for note in found["notes"]), found["notes"]
    equal({source["name"]: source["connected"] for source in found["sources"]},
          {"staged": True, "orders.lines": True})
    equal([(row["name"], row["writable"]) for row in found["stores"]],
          [("default", True)])
    place.ok("check")
    place.ok("resume", "off")
    until(lambda: metrics(place).get("postern_deliveries_total", handler="off",
                                     outcome="done") == 3)


@case("a source without a connection is named, and degrades health after a while")
def _(place):
    place.configure("""\
store: sqlite:box.db
health: {degraded_after: 1s, unhealthy_after: 1s}
channels:
  orders:
    sources:
      - lines: {file: gone/events.jsonl}
    handlers:
      good:
        exec: [/bin/true]
""")
    place.serve()
    note = r"source 'orders\.lines' has had no connection for \d+\w+: .*gone/events"

    def noted(status):
        found = health(place)
        return found["status"] == status and len(found["notes"]) == 1 and re.match(
            note, found["notes"][0])
    until(lambda: noted("degraded"))
    result = place.ok("check")
    assert re.search(note, result.out), result
    assert "a server is running and degraded" in result.out, result
    os.mkdir(place.file("gone"))
    place.write("gone/events.jsonl", "")
    until(lambda: health(place)["status"] == "ok")
    equal(health(place)["notes"], [])


@case("a pull handler is unhealthy while work waits that no worker claims")
def _(place):
    place.configure("""\
store: sqlite:box.db
health: {degraded_after: 1s, unhealthy_after: 2s}
channels:
  orders:
    handlers:
      good:
        exec: [/bin/true]
      idle:
        types: [wanted]
        pull: {}
""")
    place.serve()
    send(place, 1, "t")
    until(lambda: handler_health(health(place), "good")["status"] == "ok")
    # Longer than the thresholds: the age of a message that waits for no claim.
    send(place, 2, "wanted")
    found = until(lambda: [found for found in [health(place)]
                           if found["status"] == "unhealthy"])[0]
    equal([row["key"] for row in found["handlers"] if row["due"]], ["idle"])
    assert re.match(r"handler 'idle' has work due, and no worker has claimed for \d+s$",
                    found["notes"][0]), found
    result = place.run("check")
    equal(result.code, 5)
    row = place.ok("list", "--handler", "idle", "--json").json()[0]
    equal((row["state"], row["shown"], row["reason"]), ("pending", "pending", "pull"))
    assert "pull: no worker has claimed at this node" in place.ok("list").out
    place.ok("discard", "2", "--handler", "idle")
    # Nothing is pending any more, and nobody claims for as long.
    until(lambda: not handler_health(health(place), "idle")["due"])
    equal(health(place)["status"], "ok")
    place.ok("check")


@case("health without verbose responds in any case, and other queries are ignored")
def _(place):
    place.configure(CONFIG)
    place.serve()
    for query in ("", "?x=1", "?verbosely", "?"):
        equal(request(place, f"/healthz{query}")[1], '{"status":"ok"}')
    for query in ("?verbose", "?verbose=1", "?store=default&verbose"):
        assert "handlers" in request(place, f"/healthz{query}")[1], query
    equal(request(place, "/healthz?verbose&x=1")[0].status, 400)
    equal(request(place, "/healthz?verbose&store=none")[0].status, 404)


@case("check exits with 5 if a limit for monitoring is exceeded")
def _(place):
    place.configure(CONFIG)
    for number in range(3):
        send(place, number, "order.bad")
    place.run("process")
    place.ok("check", "--max-poisoned", "3", "--max-age", "1h")
    result = place.run("check", "--max-poisoned", "2")
    equal(result.code, 5)
    assert "3 deliveries are poisoned, and --max-poisoned is 2" in result.out, result
    assert "'bad' (3)" in result.out, result
    place.ok("pause", "good")
    send(place, 9, "order.placed")
    result = place.run("check", "--max-age", "0", "--json")
    equal(result.code, 5)
    texts = [row["text"] for row in result.json()["findings"]]
    assert any("handler 'good'" in text and "--max-age is 0; the handler is paused"
               in text for text in texts), texts
    place.ok("check", "--max-age", "5m")
    for words in (["--max-poisoned", "-1"], ["--max-poisoned", "many"],
                  ["--max-age", "5"], ["--max-age", "old"]):
        place.fails(2, "check", *words, says=words[0])


@case("limits are not kept by a store that does not exist")
def _(place):
    place.configure()
    place.ok("check")
    for words in (["--max-poisoned", "0"], ["--max-age", "1h"]):
        result = place.run("check", *words)
        equal(result.code, 4, result)
        assert "box.db does not exist" in result.out, result


main()
