#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Workers that claim deliveries over HTTP and settle them.
tests/server/test_postgres_pull.py has the cases with several nodes."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from support import case, equal, main, until  # noqa: E402

CONFIG = """\
store: sqlite:shop.db
channels:
  orders:
    handlers:
      ship:
        pull: {}
        max_attempts: 3
        backoff: [0s]
"""


def request(place, path, body, check=None):
    """Returns the JSON of the response, or the status and the JSON."""
    done = subprocess.run(
        ["curl", "-sS", "-w", "\n%{http_code}", "--unix-socket",
         place.file("shop.db.sock"), f"http://postern/v1/{path}",
         "-H", "Content-Type: application/json", "--data-binary", "@-"],
        input=body if isinstance(body, bytes) else json.dumps(body).encode(),
        stdout=subprocess.PIPE, check=True, timeout=120,
    )
    text, status = done.stdout.decode().rsplit("\n", 1)
    if check is None:
        return int(status), json.loads(text)
    equal(int(status), check)
    return json.loads(text)


def claim(place, handler="ship", **body):
    body.setdefault("wait", "0s")
    return request(place, f"handlers/{handler}/claim", body, check=200)["items"]


def settle(place, *items, check=200):
    body = {"items": [dict({"handler": "ship", "outcome": "done"}, **item)
                      for item in items]}
    return [item["status"]
            for item in request(place, "deliveries/settle", body, check)["items"]]


def lease(item, **more):
    return dict({"seq": item["seq"], "fence": item["fence"]}, **more)


def serve(place, text=CONFIG):
    place.configure(text)
    return place.serve()


def row(place, key, handler="ship"):
    rows = place.ok("list", "--json").json()
    return [one for one in rows
            if one["message_id"] == key and one["handler"] == handler][0]


@case("a worker claims deliveries, with their messages, and settles them")
def _(place):
    serve(place)
    place.ok("send", "orders", "--id", "a", "--type", "order.paid",
             "--header", "X-Shop=7", stdin='{"total":9007199254740993}')
    place.ok("send", "orders", "--id", "b", stdin=b"\xff\x00\x01")
    place.ok("send", "orders", "--id", "c", stdin="")
    items = claim(place, max=10, lease="60s")
    equal([(item["fence"], item["attempt"]) for item in items], [(1, 1)] * 3)
    message = items[0]["message"]
    equal((message["id"], message["type"], message["channel"]),
          ("a", "order.paid", "orders"))
    equal(message["headers"], [{"name": "X-Shop", "value": "7"}])
    equal(items[0]["body"], '{"total":9007199254740993}')
    equal((items[1]["body_base64"], "body" in items[1]), ("/wAB", False))
    equal(items[2]["body"], "")
    equal(claim(place, max=10), [])
    shown = row(place, "a")
    equal((shown["state"], shown["shown"]), ("leased", "running"))
    assert shown["until"], shown
    equal(settle(place, lease(items[0]),
                 lease(items[1], outcome="discard", reason="not mine"),
                 lease(items[2], outcome="poison", reason="bad")),
          ["settled"] * 3)
    equal([place.state(key, "ship") for key in "abc"],
          ["done", "discarded", "poisoned"])
    equal(row(place, "c")["last_error"], "bad")


@case("a claim waits for a delivery, and answers at once when there is one")
def _(place):
    serve(place)
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(claim(place, wait="100s")))
    thread.start()
    place.ok("send", "orders", "--id", "late", stdin="x")
    thread.join(60)
    equal([item["message"]["id"] for item in answers[0]], ["late"])


@case("a claim without a delivery is answered with nothing after its wait")
def _(place):
    serve(place)
    start = time.monotonic()
    equal(claim(place, wait="1s"), [])
    assert time.monotonic() - start >= 1


@case("more claims wait than the server has threads, and other requests pass")
def _(place):
    serve(place)
    open_claims = []
    text = b'{"wait":"100s"}'
    for _ in range(40):
        one = socket.socket(socket.AF_UNIX)
        one.connect(place.file("shop.db.sock"))
        one.sendall(b"POST /v1/handlers/ship/claim HTTP/1.1\r\nHost: postern\r\n"
                    b"Content-Type: application/json\r\nContent-Length: "
                    + str(len(text)).encode() + b"\r\n\r\n" + text)
        open_claims.append(one)
    place.ok("stats")
    for n in range(40):
        place.ok("send", "orders", "--id", str(n), stdin="x")
    seen = set()
    for one in open_claims:
        one.settimeout(60)
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
            answer += one.recv(65536)
        items = json.loads(answer.split(b"\r\n\r\n", 1)[1])["items"]
        seen.update(item["message"]["id"] for item in items)
        one.close()
    equal(seen, {str(n) for n in range(40)})


@case("two workers that race get each delivery once")
def _(place):
    serve(place)
    count = 200
    place.write("feed", "".join(
        json.dumps({"specversion": "1.0", "id": str(n), "source": "s", "type": "t",
                    "data": n}) + "\n" for n in range(count)))
    place.ok("send", "orders", "--lines", "feed")
    seen = []
    lock = threading.Lock()

    def work():
        while True:
            items = claim(place, max=7, wait="1s")
            if not items:
                return
            with lock:
                seen.extend(item["message"]["id"] for item in items)
            equal(set(settle(place, *[lease(item) for item in items])),
                  {"settled"})

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(sorted(seen, key=int), [str(n) for n in range(count)])
    stats = place.ok("stats", "--json").json()["handlers"][0]
    equal((stats["done"], stats["leased"]), (count, 0))


@case("the delivery of a worker that died fails, and another worker gets it")
def _(place):
    serve(place)
    place.ok("send", "orders", "--id", "a", stdin="x")
    first = claim(place, lease="300ms")[0]
    second = claim(place, wait="100s")[0]
    equal((second["seq"], second["attempt"]), (first["seq"], 2))
    assert second["fence"] > first["fence"], second
    # What the first one says now is too late, and changes nothing.
    equal(settle(place, lease(first), check=409), ["late"])
    equal(settle(place, lease(first, outcome="retry"), check=409), ["late"])
    shown = place.ok("show", "a", "--json").json()["deliveries"][0]
    equal((shown["failures"], shown["attempts"][0]["outcome"]), (1, "lost"))
    equal(settle(place, lease(second)), ["settled"])
    equal(place.state("a", "ship"), "done")


@case("leases that end use up the attempts")
def _(place):
    serve(place)
    place.ok("send", "orders", "--id", "a", stdin="x")
    for n in range(3):
        equal(claim(place, wait="100s", lease="100ms")[0]["attempt"], n + 1)
    until(lambda: place.state("a", "ship") == "poisoned")


@case("what fails is claimed again after its delay, under a higher fence")
def _(place):
    serve(place)
    place.ok("send", "orders", "--id", "a", stdin="x")
    first = claim(place)[0]
    equal(settle(place, lease(first, outcome="retry", reason="no stock")),
          ["settled"])
    second = claim(place, wait="100s")[0]
    equal((second["attempt"], second["fence"]), (2, first["fence"] + 1))
    equal(settle(place, lease(second, outcome="snooze", delay="1h")),
          ["settled"])
    equal(claim(place), [])
    shown = row(place, "a")
    equal((shown["shown"], shown["failures"]), ("waiting", 1))


@case("a result that is repeated is settled, one that differs is late")
def _(place):
    serve(place)
    for key in "abc":
        place.ok("send", "orders", "--id", key, stdin="x")
    a, b, c = claim(place, max=3)
    results = [lease(a), lease(b, outcome="poison"), lease(c, outcome="discard")]
    equal(settle(place, *results), ["settled"] * 3)
    equal(settle(place, *results), ["settled"] * 3)
    equal(settle(place, lease(a, outcome="discard"), lease(b), lease(c)),
          ["late"] * 3)
    equal(settle(place, lease(a, outcome="retry"), check=409), ["late"])


@case("a mixed result says which items were late or unknown")
def _(place):
    serve(place)
    place.ok("send", "orders", "--id", "a", stdin="x")
    item = claim(place)[0]
    equal(settle(place, lease(item, fence=9), lease(item),
                 lease(item, seq=item["seq"] + 1),
                 lease(item, handler="nobody")),
          ["late", "settled", "unknown", "unknown"])
    equal(settle(place, lease(item, seq=77)), ["unknown"])


@case("an extended lease lasts, and a late fence extends nothing")
def _(place):
    serve(place)
    place.ok("send", "orders", "--id", "a", stdin="x")
    item = claim(place, lease="2s")[0]
    path = f"deliveries/{item['seq']}/ship/extend"
    before = row(place, "a")["until"]
    answer = request(place, path, {"fence": item["fence"], "lease": "1h"}, 200)
    assert answer["lease_until"] > before, (answer, before)
    equal(row(place, "a")["until"], answer["lease_until"])
    equal(request(place, path, {"fence": 9, "lease": "1h"})[0], 409)
    equal(request(place, "deliveries/77/ship/extend",
                  {"fence": 1, "lease": "1h"})[0], 404)
    equal(request(place, f"deliveries/{item['seq']}/nobody/extend",
                  {"fence": 1, "lease": "1h"})[0], 404)


@case("a paused handler has nothing to claim until it is resumed")
def _(place):
    serve(place)
    place.ok("send", "orders", "--id", "a", stdin="x")
    place.ok("pause", "ship")
    equal(claim(place), [])
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(claim(place, wait="100s")))
    thread.start()
    place.ok("resume", "ship")
    thread.join(60)
    equal(len(answers[0]), 1)


@case("a handler that is at fault is probed with one delivery")
def _(place):
    serve(place)
    for n in range(5):
        place.ok("send", "orders", "--id", str(n), stdin="x")
    item = claim(place)[0]
    equal(settle(place, lease(item, outcome="hold", reason="no database")),
          ["settled"])
    handler = place.ok("stats", "--json").json()["handlers"][0]
    equal((handler["held"], handler["held_reason"]), ("broken", "no database"))
    probe = claim(place, max=5, wait="100s")
    equal(len(probe), 1)
    equal(settle(place, lease(probe[0])), ["settled"])
    # The delivery that was held is due a moment later than the others.
    seen = {probe[0]["seq"]}
    until(lambda: seen.update(one["seq"] for one in claim(place, max=5))
          or len(seen) == 5)


@case("a rate limits how many deliveries are claimed")
def _(place):
    serve(place, CONFIG.replace("pull: {}", "pull: {}\n        rate: 2/h"))
    for n in range(5):
        place.ok("send", "orders", "--id", str(n), stdin="x")
    equal(len(claim(place, max=5)), 2)
    equal(claim(place, max=5, wait="500ms"), [])


@case("a cancelled delivery is taken from its worker")
def _(place):
    serve(place)
    place.ok("send", "orders", "--id", "a", stdin="x")
    first = claim(place)[0]
    place.ok("cancel", "a", "--reason", "wrong host")
    shown = place.ok("show", "a", "--json").json()["deliveries"][0]
    equal((shown["failures"], shown["attempts"][0]["outcome"]), (1, "cancelled"))
    equal(settle(place, lease(first), check=409), ["late"])
    equal(claim(place, wait="100s")[0]["attempt"], 2)


@case("a delivery that nobody waits for any more is not claimed")
def _(place):
    serve(place)
    gone = subprocess.Popen(
        ["curl", "-sS", "--unix-socket", place.file("shop.db.sock"),
         "http://postern/v1/handlers/ship/claim",
         "-H", "Content-Type: application/json", "-d", '{"wait":"100s"}'])
    # The claim of another worker, made later, is behind it.
    time.sleep(0.5)
    gone.kill()
    gone.wait()
    place.ok("send", "orders", "--id", "a", stdin="x")
    item = claim(place, wait="100s")[0]
    equal((item["attempt"], item["fence"]), (1, 1))


@case("a restart leaves the lease to its worker, a kill -9 too")
def _(place):
    server = serve(place)
    for key in "ab":
        place.ok("send", "orders", "--id", key, stdin="x")
    a, b = claim(place, max=2, lease="1h")
    until_a = row(place, "a")["until"]
    equal(server.stop(), 0)
    server = place.serve()
    equal(row(place, "a")["until"], until_a)
    equal(settle(place, lease(a)), ["settled"])
    server.stop(signal.SIGKILL)
    place.serve()
    equal(claim(place), [])
    equal(settle(place, lease(b)), ["settled"])
    equal([place.state(key, "ship") for key in "ab"], ["done", "done"])


@case("leases outlive a reload that makes the handler one of another kind")
def _(place):
    server = serve(place)
    for name in ("lost", "kept"):
        place.ok("send", "orders", "--id", name, stdin="x")
    claim(place, lease="100ms")
    kept = claim(place, lease="300s")[0]
    equal(kept["message"]["id"], "kept")
    place.configure(CONFIG.replace("pull: {}", "exec: [/bin/true]"))
    os.kill(server.pid, signal.SIGHUP)
    # The one that ended is run by the new kind, the other one by its worker.
    until(lambda: place.state("lost", "ship") == "done")
    equal(place.state("kept", "ship"), "leased")
    equal(settle(place, lease(kept)), ["settled"])
    equal(place.state("kept", "ship"), "done")


@case("leases outlive a restart that makes the handler one of another kind")
def _(place):
    server = serve(place)
    place.ok("send", "orders", "--id", "lost", stdin="x")
    claim(place, lease="100ms")
    equal(server.stop(), 0)
    serve(place, CONFIG.replace("pull: {}", "exec: [/bin/true]"))
    until(lambda: place.state("lost", "ship") == "done")


@case("a server that stops answers the claims that wait")
def _(place):
    server = serve(place)
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(claim(place, wait="250s")))
    thread.start()
    time.sleep(0.5)
    equal(server.stop(), 0)
    thread.join(60)
    equal(answers, [[]])


@case("settled deliveries stay settled and claimed ones claimed after a kill -9")
def _(place):
    server = serve(place)
    count = 60
    place.write("feed", "".join(
        json.dumps({"specversion": "1.0", "id": str(n), "source": "s", "type": "t",
                    "data": n}) + "\n" for n in range(count)))
    place.ok("send", "orders", "--lines", "feed")
    settled = set()
    stopping = threading.Event()

    def work():
        while not stopping.is_set():
            try:
                for item in claim(place, max=3, lease="2s"):
                    if settle(place, lease(item)) == ["settled"]:
                        settled.add(item["seq"])
            except (subprocess.CalledProcessError, AssertionError, ValueError):
                time.sleep(0.01)  # the server is away

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            before = len(settled)
            until(lambda: len(settled) > before + 3 or len(settled) == count)
            server.stop(signal.SIGKILL)
            server = place.serve()
        until(lambda: place.ok("stats", "--json").json()["handlers"][0]["done"]
              == count)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    rows = place.ok("list", "--state", "done", "--limit", "1000", "--json").json()
    assert settled <= {one["seq"] for one in rows}, settled


@case("a bad claim is refused with the reason")
def _(place):
    serve(place, CONFIG + """\
  bills:
    handlers:
      mail: {exec: [/bin/true]}
""")
    for body, status, says in (
            (b"{", 400, "JSON"),
            ({"max": 0}, 400, "max"), ({"max": 1001}, 400, "max"),
            ({"max": 101}, 400, "pull.max"), ({"max": "x"}, 400, "max"),
            ({"wait": "6m"}, 400, "wait"), ({"wait": 5}, 400, "wait"),
            ({"wait": "-1s"}, 400, "wait"),
            ({"lease": "99ms"}, 400, "lease"), ({"lease": "25h"}, 400, "lease"),
            ({"lease": "soon"}, 400, "lease"), ({"most": 1}, 400, "most")):
        got, answer = request(place, "handlers/ship/claim", body)
        equal((got, says in answer["detail"]), (status, True))
    got, answer = request(place, "handlers/nobody/claim", {})
    equal((got, "nobody" in answer["detail"]), (404, True))
    got, answer = request(place, "handlers/mail/claim", {})
    equal((got, "exec" in answer["detail"]), (400, True))


@case("a bad result is refused with the reason, and nothing is settled")
def _(place):
    serve(place)
    place.ok("send", "orders", "--id", "a", stdin="x")
    good = dict(lease(claim(place)[0]), handler="ship", outcome="done")
    for change, says in (
            ({"seq": 0}, "seq"), ({"seq": -1}, "seq"), ({"seq": None}, "seq"),
            ({"fence": 0}, "fence"), ({"fence": 1.5}, "fence"),
            ({"handler": 1}, "handler"), ({"outcome": "ok"}, "outcome"),
            ({"outcome": None}, "outcome"), ({"delay": "3651d"}, "delay"),
            ({"delay": 3}, "delay"), ({"reason": 5}, "reason"),
            ({"more": 1}, "more")):
        got, answer = request(place, "deliveries/settle",
                              {"items": [good, dict(good, **change)]})
        equal((got, says in answer["detail"]), (400, True))
    for body in ({}, {"items": []}, {"items": 1}, {"items": [1]},
                 {"items": [good], "more": 1}, {"items": [{}]}):
        equal(request(place, "deliveries/settle", body)[0], 400)
    for body in ({}, {"fence": 1}, {"lease": "1s"}, {"fence": 1, "lease": "0s"},
                 {"fence": 1, "lease": "1s", "more": 1}):
        equal(request(place, "deliveries/1/ship/extend", body)[0], 400)
    equal(place.state("a", "ship"), "leased")


@case("a pull handler needs an inbox")
def _(place):
    place.configure(CONFIG.replace("    handlers:", "    mode: direct\n    handlers:"))
    place.fails(2, "check", says="ship")


@case("a claim whose answer has no room in memory leases nothing")
def _(place):
    place.configure(f"memory_max: 16MiB\n{CONFIG.replace('orders:', 'orders:' + chr(10) + '    max_message_size: 4MiB')}")
    server = place.serve(tcp=True)
    for i in range(6):
        equal(place.send(f"m{i}", "x" * 3500000).code, 0)
    host, port = server.url[len("http://"):].rsplit(":", 1)
    text = json.dumps({"lease": "1h"}).encode()

    def begin():
        """Claims, and reads the status of the answer only."""
        link = socket.create_connection((host, int(port)), timeout=120)
        link.sendall(b"POST /v1/handlers/ship/claim HTTP/1.1\r\nHost: localhost\r\n"
                     b"Content-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        return link, int(link.recv(12)[9:])

    links, status = [], 200
    while status == 200 and len(links) < 6:
        link, status = begin()
        links.append(link)
    equal(status, 503)
    held = len(links) - 1
    rows = place.ok("list", "--json").json()
    equal(sum(one["state"] == "leased" for one in rows), held)
    for link in links:
        link.close()

    def claimed():
        link, status = begin()
        link.close()
        return status == 200

    until(claimed)
    rows = place.ok("list", "--json").json()
    equal((sum(one["state"] == "leased" for one in rows), {one["failures"] for one in rows}),
          (held + 1, {0}))


main()
