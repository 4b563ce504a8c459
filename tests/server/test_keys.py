#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Key rules of a configuration, through the command line and the API."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from support import case, equal, main  # noqa: E402

CONFIG = """\
store: sqlite:shop.db
channels:
  orders:
    key: {order.placed: "json:/order/id", default: id}
    handlers:
      mail: {exec: ["/bin/true"], timeout: 5s}
      welcome: {key: "json:/customer", exec: ["/bin/true"], timeout: 5s}
  raw:
    key: json:/id
    missing_key: process
    handlers:
      audit: {exec: ["/bin/true"], timeout: 5s}
  strict:
    key: json:/id
    on_conflict: reject
"""


def order(number, customer="anna", **more):
    return json.dumps({"order": {"id": number}, "customer": customer, **more})


def post(place, channel, body, *headers):
    """Returns the status and the JSON of the response."""
    more = [word for header in headers for word in ("-H", header)]
    done = subprocess.run(
        ["curl", "-sS", "-w", "\n%{http_code}", "--unix-socket",
         place.file("shop.db.sock"), *more, "--data-binary", body,
         f"http://postern/v1/channels/{channel}/messages"],
        stdout=subprocess.PIPE, check=True, timeout=60,
    )
    text, status = done.stdout.decode().rsplit("\n", 1)
    return int(status), json.loads(text)


def send(place, body, kind="order.placed"):
    return place.ok("send", "orders", "--type", kind, "--json",
                    stdin=body).json()


def finds(place, says):
    """check reports a problem that contains this text."""
    found = place.run("check")
    equal(found.code, 1, found)
    assert says in found.out, found


def states(place, seq, handler):
    rows = place.ok("show", "--seq", str(seq), "--json").json()["deliveries"]
    return [(r["state"], r["last_error"]) for r in rows if r["handler"] == handler]


@case("a business key is found in the body, and a handler has one of its own")
def business_key(place):
    place.configure(CONFIG)
    place.ok("init")
    first = send(place, order(7))
    equal(first["status"], "accepted")
    again = send(place, order("7", time=2))
    equal((again["status"], again["seq"]), ("duplicate", first["seq"]))
    text = place.ok("send", "orders", "--type", "order.placed",
                    stdin=order(7))
    equal((text.out, f"a copy of #{first['seq']}" in text.err),
          ("duplicate\n", True))
    other = send(place, order(8))
    equal(other["status"], "accepted")
    equal(states(place, other["seq"], "welcome"),
          [("discarded", f"suppressed by #{first['seq']}")])
    place.ok("process")
    equal(states(place, other["seq"], "mail"), [("done", None)])
    # Found by its key, though its id is another one.
    equal(place.ok("show", "7", "--json").json()["seq"], first["seq"])
    place.fails(1, "send", "orders", "--type", "order.placed", stdin="{}",
                says="json:/order/id is missing")
    equal(send(place, order(7), "order.paid")["status"], "accepted")


@case("over HTTP a message under another rule needs no id")
def over_http(place):
    place.configure(CONFIG)
    place.ok("init")
    place.serve()
    status, first = post(place, "raw", '{"id": 1}')
    equal((status, first["status"], len(first["id"])), (202, "accepted", 32))
    status, again = post(place, "raw", '{"id": 1, "t": 1}')
    # The id that was generated for it is that of no message.
    equal((status, again["status"], again["seq"], "id" in again),
          (200, "duplicate", first["seq"], False))
    status, again = post(place, "raw", '{"id": 1}', "Idempotency-Key: mine")
    equal((status, again["id"]), (200, "mine"))
    # missing_key: process
    equal(post(place, "raw", "{}")[0], 202)
    equal(post(place, "raw", "{}")[0], 202)
    # Under the rule id, raw messages of this channel need one.
    equal(post(place, "orders", "{}")[0], 422)
    equal(post(place, "strict", "{}")[0], 422)
    equal(post(place, "strict", '{"id": 1}')[0], 202)
    status, conflict = post(place, "strict", '{"id": 1, "t": 1}')
    equal((status, "id" in conflict), (409, False))
    event = ["ce-specversion: 1.0", "ce-source: shop", "ce-type: order.placed"]
    equal(post(place, "orders", order(9), *event, "ce-id: a")[0], 202)
    equal(post(place, "orders", order(9), *event, "ce-id: b")[0], 200)
    equal(post(place, "orders", "{}", *event, "ce-id: c")[0], 422)
    text = subprocess.run(
        ["curl", "-sS", "--unix-socket", place.file("shop.db.sock"),
         "http://postern/metrics"], stdout=subprocess.PIPE, check=True,
    ).stdout.decode()
    found = [line for line in text.splitlines()
             if line.startswith("postern_missing_key_total") and "orders" in line]
    equal([line.split()[-1] for line in found], ["1"])


@case("key test prints the rule and the key of a message for each handler")
def key_test(place):
    place.configure(CONFIG)
    event = {"specversion": "1.0", "id": "e", "source": "shop",
             "type": "order.placed", "data": json.loads(order(42))}
    answer = place.ok("key", "test", "orders", "-", "--json",
                      stdin=json.dumps(event)).json()
    equal(answer["type"], "order.placed")
    equal([(k["handler"], k["rule"], k["key"]) for k in answer["keys"]],
          [(None, "json:/order/id", "42"), ("mail", None, None),
           ("welcome", "json:/customer", "anna")])
    event["type"] = "order.paid"
    text = place.ok("key", "test", "orders", "-", stdin=json.dumps(event)).out
    equal("id" in text and "e of source shop" in text, True)
    # A body by itself, without the key of one handler.
    done = place.fails(1, "key", "test", "orders", "--raw", "--type",
                       "order.placed", "-", stdin='{"order": {"id": 1}}')
    equal("json:/customer is missing" in done.out, True)
    place.fails(1, "key", "test", "orders", "-", stdin="{}",
                says="not a CloudEvent in JSON")
    place.fails(2, "key", "test", "orders", "--id", "7", "-", stdin="{}",
                says="--id is for --raw")
    place.fails(2, "key", "rest", "orders", "-", says="it is 'test'")
    place.fails(3, "key", "test", "nothing", "-", says="no channel 'nothing'")
    equal(os.path.exists(place.file("shop.db")), False)


@case("check notes rules that make copies of what is none")
def noted(place):
    place.configure(CONFIG.replace("key: json:/id\n    missing_key",
                                   "key: correlation-id\n    missing_key")
                    .replace("key: \"json:/customer\"",
                             "key: \"header:X-Correlation-Id\""))
    text = place.ok("check").out
    equal("channel 'raw': by its key 'correlation-id' two messages" in text, True)
    equal("use the rule correlation-id" in text, True)
    joined = CONFIG.replace("audit: {", "audit: {types: [order.placed, "
                            "order.shipped], ")
    place.configure(joined)
    equal("channel 'raw': by its key 'json:/id' messages of the types "
          "'order.placed' and 'order.shipped'" in place.ok("check").out, True)
    place.configure(joined.replace(
        "key: json:/id\n    missing_key",
        "key: {order.placed: json:/id, default: json:/id}\n    missing_key"))
    equal("by its key" in place.ok("check").out, False)
    place.configure(CONFIG)
    text = place.ok("check").out
    equal("by its key" in text or "is not stored" in text, False)


@case("a changed rule is refused until it is confirmed")
def changed(place):
    place.configure(CONFIG)
    place.ok("init")
    place.configure(CONFIG.replace("json:/id", "json:/n"))
    place.ok("process")  # nothing was accepted yet
    place.configure(CONFIG.replace("json:/id", "json:/id"))
    place.ok("process")
    send(place, order(7))
    place.ok("process")
    place.configure(CONFIG.replace("json:/customer", "json:/order/id"))
    says = "migrate --accept-key-change orders"
    finds(place, "the key of handler 'welcome' was 'json:/customer' and is "
          "'json:/order/id' now")
    place.fails(1, "process", says=says)
    place.fails(1, "send", "orders", stdin=order(8), says=says)
    place.fails(3, "migrate", "--accept-key-change", "nothing",
                says="no channel 'nothing'")
    place.fails(1, "migrate", "--accept-key-change", "raw", says=says)
    text = place.ok("migrate", "--accept-key-change", "orders").out
    equal("orders" in text, True)
    place.ok("check")
    place.ok("process")
    place.configure(CONFIG)
    place.fails(1, "process", says=says)
    finds(place, says)
    # Under new names, too.
    place.configure(CONFIG.replace("  orders:", "  sales:\n    former_names: "
                                   "[orders]").replace(
        "welcome: {", "hello: {legacy_keys: [welcome], "))
    says = says.replace("orders", "")
    finds(place, says)
    place.fails(1, "process", says=says)
    place.configure(CONFIG.replace("json:/customer", "json:/order/id"))
    place.ok("check")


@case("a changed rule of a guard is refused as soon as there are markers")
def changed_guard(place):
    config = """\
store: sqlite:shop.db
channels:
  pay:
    mode: guard
    KEY
    handlers:
      mail: {exec: ["/bin/true"], timeout: 5s OWN}
"""
    first = config.replace("KEY", "").replace("OWN", "")
    by_body = config.replace("KEY", "key: json:/id").replace("OWN", "")
    own = config.replace("KEY", "").replace("OWN", ", key: json:/id")
    says = "migrate --accept-key-change pay"

    def pay():
        return place.ok("send", "pay", "--id", "1", stdin=order(7)).out

    place.configure(first)
    equal([pay(), pay()], ["done\n", "duplicate\n"])
    # A copy would not be found by its new key.
    for changed_rule in (by_body, own):
        place.configure(changed_rule)
        place.fails(1, "send", "pay", "--id", "1", stdin=order(7), says=says)
        finds(place, says)
    place.configure(first)
    place.ok("check")
    equal(pay(), "duplicate\n")


@case("a handler with a key beside it leaves the markers of a guard as they are")
def another_handler(place):
    config = """\
store: sqlite:shop.db
channels:
  pay:
    mode: guard
    handlers:
      mail: {exec: ["/bin/sh", "-c", "echo ran >> ${DIR}/ran"], timeout: 5s}
"""
    place.configure(config)
    equal(place.ok("send", "pay", "--id", "1", stdin='{"n": 1}').out, "done\n")
    place.configure(config + """\
      other: {key: "json:/n", exec: ["/bin/true"], timeout: 5s}
""")
    # The other handler is new and runs.
    equal(place.ok("send", "pay", "--id", "1", stdin='{"n": 1}').out, "done\n")
    equal(place.read("ran"), "ran\n")
    equal(place.ok("send", "pay", "--id", "1", stdin='{"n": 1}').out,
          "duplicate\n")


# The body, and the reason: there is no key, or one that cannot be stored.
NO_KEY = (
    ("", "needs a body in JSON"),
    ("[1", "needs a body in JSON"),
    ('{"id": 1} x', "needs a body in JSON"),
    ('{"id": "\\ud800"}', "needs a body in JSON"),
    ("{}", "is missing"),
    ("[]", "is missing"),
    ('{"id": null}', "is null"),
    ('{"id": {}}', "is an object"),
    ('{"id": []}', "is an array"),
    ('{"id": ""}', "is empty"),
    ('{"id": 1, "id": 1}', "is there twice"),
    ("[" * 2000 + "]" * 2000, "needs a body in JSON"),
)
BAD_KEY = (
    ('{"id": "a\\u0000b"}', "without control characters"),
    ('{"id": "a\\nb"}', "without control characters"),
    (json.dumps({"id": "k" * 1001}), "longer than 1000 bytes"),
    ('{"id": ' + "1" * 1001 + "}", "longer than 1000 bytes"),
)
BAD_CONFIG = """\
store: sqlite:shop.db
channels:
  inbox: {key: json:/id}
  guard:
    mode: guard
    key: json:/id
    handlers: {mail: {exec: ["/bin/true"], timeout: 5s}}
  all:
    key: json:/id
    missing_key: process
  header: {key: "header:X-Key"}
  steps:
    key: composite
    handlers: {step: {exec: ["/bin/true"], timeout: 5s}}
"""


@case("each bad key is answered with 422 and its reason")
def bad_keys(place):
    place.configure(BAD_CONFIG)
    place.ok("init")
    place.serve()

    def check(channel, body, reason, *headers):
        status, answer = post(place, channel, body, *headers)
        equal((channel, body[:40], status, reason in answer["detail"]),
              (channel, body[:40], 422, True))

    for channel in ("inbox", "guard"):
        for body, reason in NO_KEY + BAD_KEY:
            check(channel, body, reason)
    # missing_key: process is about messages without a key.
    for body, reason in BAD_KEY:
        check("all", body, reason)
    for body, _ in NO_KEY:
        equal(post(place, "all", body)[0], 202)
    check("header", "{}", "is missing")
    check("header", "{}", "is there twice", "X-Key: a", "X-Key: a")
    check("header", "{}", "is empty", "X-Key;")
    check("header", "{}", "longer than 1000 bytes", "X-Key: " + "k" * 1001)
    # It is the handler that has no key then.
    status, answer = post(place, "steps", "{}", "Idempotency-Key: 1")
    equal(status, 202)
    equal(states(place, answer["seq"], "step"),
          [("poisoned", "the message has no key: composite needs a correlation id")])
    equal(post(place, "header", "{}", "X-Key: {a}%")[0], 202)
    equal(post(place, "header", "{}", "X-Key: {a}%")[0], 200)


GUARDED = """\
store: sqlite:shop.db
channels:
  pay:
    mode: guard
    KEY
    handlers:
      charge: {exec: ["/bin/sh", "-c", "echo ran >> ${DIR}/ran"], timeout: 5s}
"""


@case("a rule for one type leaves the markers of other types as they are")
def rule_added(place):
    def pay(kind, name, body='{"x": 1, "y": 1}'):
        return place.ok("send", "pay", "--type", kind, "--id", name,
                        stdin=body).out

    def change(rules):
        place.configure(GUARDED.replace("KEY", f"key: {rules}"))
        place.ok("migrate", "--accept-key-change", "pay")

    place.configure(GUARDED.replace("KEY", ""))
    equal(pay("b", "1"), "done\n")
    change('{a: "json:/x"}')
    equal([pay("b", "1"), pay("a", "2")], ["duplicate\n", "done\n"])
    # Nor does another rule for the rest change the keys of a type.
    change('{a: "json:/x", b: id, default: "json:/y"}')
    equal([pay("b", "1"), pay("a", "3"), pay("c", "4")],
          ["duplicate\n", "duplicate\n", "done\n"])
    change('"json:/y"')
    equal(pay("c", "5"), "duplicate\n")
    equal(place.read("ran"), "ran\nran\nran\n")


@case("key test prints the marker of each key as a word for mark")
def marker_words(place):
    place.configure(GUARDED.replace(
        "KEY", "key: {payment.made: json:/id, t.*: 'json:/id', "
        "'hash.*': 'hash:body', plain: id, sourced: id, default: json:/id}"))
    place.ok("migrate")
    body = json.dumps({"id": "it's \\ 17"})
    for kind, given, marker in (
            ("payment.made", [], "payment.made\n\nit's \\ 17"),
            ("t.a", [], "t.*\n\nit's \\ 17"),
            ("plain", ["--id", "m-1"], "m-1"),
            ("sourced", ["--id", "m-1", "--source", "/a b"], "/a b\nm-1"),
            ("other", [], "\nit's \\ 17"),
            ("hash.a", [], None)):
        words = ["--type", kind, *given]
        with open(place.file("body"), "w", encoding="utf-8") as file:
            file.write(body)
        test = ["key", "test", "pay", "--raw", *words, "body"]
        row = place.ok(*test, "--json").json()["keys"][0]
        equal(row.get("marker"), marker)
        header, line = place.ok(*test).out.splitlines()[:2]
        word = line[header.index("MARKER"):].strip()
        equal(place.ok("send", "pay", *words, stdin=body).out, "done\n")
        if marker is None:
            equal(word, "-")
            continue
        shell = subprocess.run(["bash", "-c", f"printf %s {word}"],
                               stdout=subprocess.PIPE, check=True, timeout=60)
        equal(shell.stdout.decode(), marker)
        equal(place.ok("mark", "has", "charge", marker).out, "done\n")
        place.ok("mark", "forget", "charge", marker)
        equal(place.ok("send", "pay", *words, stdin=body).out, "done\n")
    # In an inbox there are no markers.
    place.configure(CONFIG)
    with open(place.file("order"), "w", encoding="utf-8") as file:
        file.write(order(7))
    equal("MARKER" in place.ok("key", "test", "orders", "--raw", "--type",
                               "order.placed", "order").out, False)


@case("check prints and refuses rules")
def checked(place):
    for rules, says in (
            ("{a: json:/x, a: json:/y}", "duplicate key 'a'"),
            ('"json:/a~2"', "is not followed by 0 or 1"),
            ('"json:/a~"', "is not followed by 0 or 1"),
            ('"header:a b"', "is not the name of a header"),
            ('"id+json:/a"', "cannot be joined"),
            ('"body"', "unknown key rule")):
        place.configure(CONFIG.replace(
            '{order.placed: "json:/order/id", default: id}', rules))
        place.fails(2, "check", says=says)
    place.configure(CONFIG)
    text = place.ok("check", "--print").out
    equal("key: {order.placed: \"json:/order/id\", default: id}" in text
          or "key: {order.placed: json:/order/id, default: id}" in text, True)
    place.configure(CONFIG.replace("json:/order/id", "json:order"))
    place.fails(2, "check", says="does not begin with '/'")


main()
