#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Webhook sources: requests that their sender signs."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import signal
import sqlite3
import threading

from support import case, equal, main, until
from webhooks import GITHUB, STANDARD, STRIPE, deliver, post, sign, source

CONFIG = """\
store: sqlite:box.db
channels:
  orders:
    sources:
      - webhook: {name: shop, verify: standard, secret_file: shop.txt}
      - webhook: {name: pay, verify: stripe, secret_file: pay.txt}
      - webhook: {name: hub, verify: github, secret_file: hub.txt}
    handlers:
      log:
        exec: [/bin/sh, -c, 'cat > ${DIR}/$CE_TYPE.out']
      count:
        exec: [/bin/sh, -c, 'echo $CE_TYPE >> ${DIR}/count.out']
"""


def secret(place, name, text):
    os.chmod(place.write(name, text), 0o600)


def prepare(place, config=CONFIG):
    secret(place, "shop.txt", STANDARD + "\n")
    secret(place, "pay.txt", STRIPE + "\n")
    secret(place, "hub.txt", GITHUB)
    place.configure(config)


def stored(place):
    """How many messages the channels have accepted."""
    channels = place.ok("stats", "--json").json()["channels"]
    return sum(channel["accepted"] for channel in channels)


def done(place, count):
    """Waits until so many deliveries are done."""
    until(lambda: sum(row["done"] for row in
                      place.ok("stats", "--json").json()["handlers"]) == count)


ORDER = b'{"type":"order.placed","data":{"n":12345678901234567890,"c":"\xc3\xa9"}}'
CHARGE = b'{"id":"evt_1","object":"event","type":"charge.succeeded"}'
PUSH = b'{"ref":"refs/heads/main"}'


@case("the same webhook delivered five times is one delivery per handler")
def _(place):
    prepare(place)
    place.serve()
    webhooks = {
        "shop": ("standard", STANDARD, ORDER, {"id": "msg_1"}),
        "pay": ("stripe", STRIPE, CHARGE, {}),
        "hub": ("github", GITHUB, PUSH, {"id": "72d3162e-cc78-11e3"}),
    }
    signed = dict(zip(webhooks, sign(*webhooks.values())))
    for name, (_, _, body, _) in webhooks.items():
        answers = [deliver(place, name, body, signed[name]) for _ in range(5)]
        equal([answer.status for answer in answers], [202, 200, 200, 200, 200], answers)
        equal({answer.json["seq"] for answer in answers},
              {answers[0].json["seq"]}, answers)
    done(place, 6)
    equal(sorted(place.read("count.out").split()),
          ["charge.succeeded", "order.placed", "push"])
    for message_id, kind, body in (
            ("msg_1", "order.placed", ORDER), ("evt_1", "charge.succeeded", CHARGE),
            ("72d3162e-cc78-11e3", "push", PUSH)):
        shown = place.show(message_id)
        equal((shown["type"], shown["source"], shown["content_type"],
               shown["transport"]),
              (kind, "orders", "application/json", "webhook"))
        with open(place.file(f"{kind}.out"), "rb") as file:
            equal(file.read(), body)
    row = source(place, "orders.webhook.shop")
    equal((row["accepted"], row["duplicates"], row["rejected"], row["last_error"]),
          (1, 4, 0, None))


@case("a wrong, missing, truncated, old or future signature is 401 and stores nothing")
def _(place):
    prepare(place)
    server = place.serve()
    good, other, old, future, charge, old_charge, push = sign(
        ("standard", STANDARD, ORDER, {}),
        ("standard", "whsec_" + "A" * 32, ORDER, {}),
        ("standard", STANDARD, ORDER, {"age": 310}),
        ("standard", STANDARD, ORDER, {"age": -310}),
        ("stripe", STRIPE, CHARGE, {}),
        ("stripe", STRIPE, CHARGE, {"age": 310}),
        ("github", GITHUB, PUSH, {"id": "delivery-1"}),
    )

    def cut(headers, name):
        return {**headers, name: headers[name][:-4]}

    def without(headers, name):
        return {key: headers[key] for key in headers if key != name}

    bad = [
        ("shop", ORDER, other), ("shop", ORDER, old), ("shop", ORDER, future),
        ("shop", ORDER + b" ", good), ("shop", b"", good),
        ("shop", ORDER, cut(good, "webhook-signature")),
        ("shop", ORDER, {**good, "webhook-id": "msg_2"}),
        ("shop", ORDER, {**good, "webhook-timestamp": "0" + good["webhook-timestamp"]}),
        ("shop", ORDER, {**good, "webhook-signature": ""}),
        *[("shop", ORDER, without(good, name)) for name in good],
        *[("shop", ORDER, [*good.items(), (name, good[name])]) for name in good],
        ("shop", ORDER, {}),
        ("pay", CHARGE, old_charge), ("pay", ORDER, charge), ("pay", CHARGE, {}),
        ("pay", CHARGE, cut(charge, "Stripe-Signature")),
        ("pay", CHARGE, {"Stripe-Signature":
                         charge["Stripe-Signature"].partition(",")[2]}),
        ("hub", PUSH + b"\n", push), ("hub", PUSH, {}),
        ("hub", PUSH, cut(push, "X-Hub-Signature-256")),
        ("hub", PUSH, {**push, "X-Hub-Signature-256": "sha256="}),
        ("hub", PUSH, good), ("shop", ORDER, push),
    ]
    for name, body, headers in bad:
        answer = deliver(place, name, body, headers)
        equal(answer.status, 401, name, headers, answer)
        equal(answer.json["detail"], "the signature is not valid")
        equal(answer.headers["Content-Type"], "application/problem+json")
        assert answer.headers["WWW-Authenticate"], answer
    equal(stored(place), 0)
    rows = [source(place, f"orders.webhook.{name}") for name in ("shop", "pay", "hub")]
    equal(sum(row["rejected"] for row in rows), len(bad), rows)
    assert rows[0]["last_error"], rows
    for name, body, headers in (("shop", ORDER, good), ("pay", CHARGE, charge),
                                ("hub", PUSH, push)):
        equal(deliver(place, name, body, headers).status, 202)
    server.stop()
    log = server.stderr()
    assert "the timestamp is 31" in log and "s old; the tolerance is 300 s" in log, log
    for text in (STANDARD, STRIPE, GITHUB):
        assert text not in log, log


@case("the same id validly signed with another body is 409, and the first is kept")
def _(place):
    prepare(place)
    place.serve()
    second = ORDER.replace(b"placed", b"lost")
    first, other = sign(("standard", STANDARD, ORDER, {}),
                        ("standard", STANDARD, second, {}))
    equal(deliver(place, "shop", ORDER, first).status, 202)
    answer = deliver(place, "shop", second, other)
    equal((answer.status, answer.json["code"], answer.json["id"]),
          (409, "conflict", "msg_1"))
    equal(place.show("msg_1")["body"], ORDER.decode())
    until(lambda: source(place, "orders.webhook.shop")["conflicts"] == 1)


@case("under on_conflict: ignore another body is a duplicate, and the first is kept")
def _(place):
    prepare(place, CONFIG.replace("    sources:", "    on_conflict: ignore\n    sources:"))
    place.serve()
    second = ORDER.replace(b"placed", b"lost")
    first, other = sign(("standard", STANDARD, ORDER, {}),
                        ("standard", STANDARD, second, {}))
    equal(deliver(place, "shop", ORDER, first).status, 202)
    equal(deliver(place, "shop", second, other).status, 200)
    equal(place.show("msg_1")["body"], ORDER.decode())



def sent(place, name, webhook, **more):
    """Signs a webhook and delivers it."""
    return deliver(place, name, webhook[2], sign(webhook)[0], **more)


TOKENS = """\
auth:
  tokens:
    - {name: send, role: send, token_file: send.token}
    - {name: read, role: read, token_file: read.token}
    - {name: other, role: send, token_file: other.token, channels: [others]}
"""


@case("a signature takes the place of a token, at its own path only")
def _(place):
    for name in ("send", "read", "other"):
        secret(place, f"{name}.token", name * 10)
    prepare(place, TOKENS + CONFIG.replace(
        "    handlers:", "      - webhook: {name: open, verify: none}\n    handlers:") + "  others: {}\n")
    place.serve(tcp=True)
    webhook = ("standard", STANDARD, ORDER, {})
    signed = sign(webhook)[0]
    equal(deliver(place, "shop", ORDER, signed).status, 202)
    equal(deliver(place, "shop", ORDER, {}).status, 401)
    equal(deliver(place, "shop", ORDER,
                  {"Authorization": "Bearer " + "send" * 10}).status, 401)
    # Unsigned messages, and a webhook that verifies nothing, need the role.
    for path in ("messages", "webhooks/open"):
        headers = {**signed, "Idempotency-Key": path}
        answers = [post(place, f"/v1/channels/orders/{path}", ORDER, headers).status]
        answers += [
            post(place, f"/v1/channels/orders/{path}", ORDER,
                 {**headers, "Authorization": "Bearer " + name * 10}).status
            for name in ("nobody", "read", "other", "send")
        ]
        equal(answers, [401, 401, 403, 403, 202], path)


@case("while secrets are exchanged, a signature by either is valid")
def _(place):
    secret(place, "next.txt", "whsec_" + "B" * 32 + "\n")
    prepare(place, CONFIG.replace("secret_file: shop.txt",
                                  "secret_files: [next.txt, shop.txt]"))
    place.serve()
    old, new, third, both, none = sign(
        ("standard", STANDARD, ORDER, {"id": "a"}),
        ("standard", "whsec_" + "B" * 32, ORDER, {"id": "b"}),
        ("standard", "whsec_" + "C" * 32, ORDER, {"id": "c"}),
        ("standard", "whsec_" + "B" * 32, ORDER, {"id": "d"}),
        ("standard", "whsec_" + "C" * 32, ORDER, {"id": "d"}),
    )
    both["webhook-signature"] = (
        none["webhook-signature"] + " v2,AAAA " + both["webhook-signature"])
    equal([deliver(place, "shop", ORDER, headers).status
           for headers in (old, new, third, both)], [202, 202, 401, 202])


def digest(key, body, algorithm="sha256"):
    return hmac.new(key, body, getattr(hashlib, algorithm)).digest()


@case("other senders are described by header, algorithm, encoding and prefix")
def _(place):
    place.configure("""\
store: sqlite:box.db
channels:
  orders:
    sources:
      - webhook: {name: store, verify: hmac, secret: "${KEY:-key}", header: X-Store-Hmac-SHA256,
                  encoding: base64, id: "header:X-Store-Webhook-Id"}
        type: header:X-Store-Topic
        subject: json:/admin/id
      - webhook: {name: chat, verify: hmac, secret: 6b6579, secret_encoding: hex,
                  header: X-Hub-Signature, algorithm: sha1, prefix: "sha1=", id: "json:/n"}
      - webhook: {name: long, verify: hmac, secret: a2V5, secret_encoding: base64,
                  header: X-Sum, algorithm: sha512, id: "json:/a+json:/b",
                  source: /long}
    handlers:
      log:
        exec: [/bin/true]
""")
    place.serve()
    body = b'{"n":9007199254740993,"admin":{"id":7},"a":"x","b":true}'
    rows = (
        ("store", {"X-Store-Hmac-SHA256": base64.b64encode(digest(b"key", body)),
                   "X-Store-Webhook-Id": "w-1", "X-Store-Topic": "orders/create"},
         ("w-1", "orders/create", "7", "orders")),
        ("chat", {"X-Hub-Signature": "sha1=" + digest(b"key", body, "sha1").hex()},
         ("9007199254740993", "", None, "orders")),
        ("long", {"X-Sum": digest(b"key", body, "sha512").hex().upper()},
         ("x+true", "", None, "/long")),
    )
    for name, headers, (message_id, kind, subject, origin) in rows:
        answer = deliver(place, name, body, headers)
        equal((answer.status, answer.json.get("id")), (202, message_id), answer)
        shown = place.show(message_id)
        equal((shown["type"] or "", shown["subject"], shown["source"]),
              (kind, subject, origin), name)
        # A signature is no part of the message.
        assert not {"x-store-hmac-sha256", "x-hub-signature", "x-sum"} & {
            header["name"].lower() for header in shown["headers"]}, shown
        equal(deliver(place, name, body + b" ", headers).status, 401)


@case("a message without an id is 422, and so is one with an id that is too long")
def _(place):
    prepare(place)
    place.serve()
    for name, webhook in (
            ("pay", ("stripe", STRIPE, b'{"type":"a"}', {})),
            ("pay", ("stripe", STRIPE, b'{"id":1,"id":2}', {})),
            ("pay", ("stripe", STRIPE, b'{"id":"' + b"x" * 201 + b'"}', {})),
            ("pay", ("stripe", STRIPE, b'{"id":"a\\u0007"}', {})),
            ("pay", ("stripe", STRIPE, b"no JSON", {}))):
        answer = sent(place, name, webhook)
        equal(answer.status, 422, webhook, answer)
        assert "id" in answer.json["detail"], answer
    equal(stored(place), 0)
    row = source(place, "orders.webhook.pay")
    equal((row["rejected"], row["last_error"]), (5, answer.json["detail"]))


@case("an event in structured form has its own attributes, and ce-* headers are ignored")
def _(place):
    prepare(place)
    place.serve()
    event = json.dumps({"specversion": "1.0", "id": "e-1", "source": "/app",
                        "type": "order.paid", "data": {"a": 1}}).encode()
    form = "application/cloudevents+json"
    signed, raw, batch = sign(("standard", STANDARD, event, {}),
                              ("standard", STANDARD, ORDER, {"id": "msg_2"}),
                              ("standard", STANDARD, b"[" + event + b"]", {}))
    equal(deliver(place, "shop", event, signed, form=form).status, 202)
    shown = place.show("e-1")
    equal((shown["source"], shown["type"], shown["body"]),
          ("/app", "order.paid", '{"a": 1}'))
    equal(deliver(place, "shop", ORDER, {**raw, "ce-id": "x", "ce-type": "y",
                                         "ce-source": "z", "ce-odd": "%zz"}).status, 202)
    equal(place.show("msg_2")["type"], "order.placed")
    equal(deliver(place, "shop", b"[" + event + b"]", batch,
                  form="application/cloudevents-batch+json").status, 415)


@case("bodies and headers over the limits are refused, and nothing is stored")
def _(place):
    prepare(place, CONFIG.replace("    sources:", "    max_message_size: 64KiB\n    sources:"))
    server = place.serve(tcp=True)
    fits, long = b"x" * 65536, b"x" * 65537
    signed = sign(("standard", STANDARD, fits, {}), ("standard", STANDARD, long, {}))
    equal(deliver(place, "shop", long, signed[1]).status, 413)
    many = {**signed[0], "webhook-signature":
            "v1,AAAA " * 2000 + signed[0]["webhook-signature"]}
    huge = {**signed[0], "webhook-signature": "v1," + "A" * 200000}
    equal(deliver(place, "shop", fits, {**signed[0], "webhook-signature":
                                        " ".join(["v1," + "A" * 43 + "="] * 17)}).status, 401)
    equal(deliver(place, "shop", fits, huge).status, 431)
    equal(stored(place), 0)
    equal(deliver(place, "shop", fits, many).status, 202)
    assert server.alive()


@case("paths are of a channel and a webhook, and answer as messages do")
def _(place):
    prepare(place, CONFIG.replace("    sources:", "    former_names: [sales]\n    sources:")
            + "  other: {}\n")
    place.serve()
    webhook = ("github", GITHUB, PUSH, {"id": "d-1"})
    for name, channel in (("none", "orders"), ("hub", "other"), ("hub", "none"),
                          ("", "orders")):
        equal(sent(place, name, webhook, channel=channel).status, 404)
    equal(sent(place, "hub?x=1", webhook).status, 400)
    equal(sent(place, "hub", webhook, channel="sales").status, 202)
    equal(sent(place, "%68ub", webhook).status, 200)
    place.ok("channel", "close", "orders")
    answer = sent(place, "hub", ("github", GITHUB, PUSH, {"id": "d-2"}))
    equal((answer.status, answer.headers["Retry-After"] is not None), (503, True))


@case("a channel that answers with its handler's result does so for a webhook")
def _(place):
    prepare(place, """\
store: sqlite:box.db
channels:
  orders:
    mode: guard
    sources:
      - webhook: {name: hub, verify: github, secret_file: hub.txt}
    handlers:
      book:
        exec: [/bin/sh, -c, 'grep -q good']
""")
    place.serve()
    good = ("github", GITHUB, b"good", {"id": "a"})
    answers = [sent(place, "hub", webhook) for webhook in (
        good, good, ("github", GITHUB, b"bad", {"id": "b"}))]
    equal([answer.status for answer in answers], [200, 200, 502], answers)
    equal([answer.json["status"] for answer in answers[:2]], ["done", "duplicate"])
    until(lambda: source(place, "orders.webhook.hub")["failed"] == 1)
    row = source(place, "orders.webhook.hub")
    equal((row["accepted"], row["duplicates"], row["in_flight"]), (1, 1, 0))


@case("a webhook that comes while the server stops is kept for the next start")
def _(place):
    prepare(place, """\
store: sqlite:box.db
channels:
  orders:
    sources:
      - webhook: {name: hub, verify: github, secret_file: hub.txt}
    handlers:
      slow:
        exec: [/bin/sh, -c, 'touch ${DIR}/started; until [ -e ${DIR}/go ]; do sleep 0.1; done']
""")
    server = place.serve()
    first, second = sign(("github", GITHUB, PUSH, {"id": "a"}),
                         ("github", GITHUB, PUSH, {"id": "b"}))
    equal(deliver(place, "hub", PUSH, first).status, 202)
    until(lambda: os.path.exists(place.file("started")))
    server.process.send_signal(signal.SIGTERM)
    until(lambda: not source(place, "orders.webhook.hub")["running"])
    equal(deliver(place, "hub", PUSH, {}).status, 401)
    equal(deliver(place, "hub", PUSH, second).status, 202)
    place.write("go", "")
    equal(server.process.wait(60), 0)
    place.serve()
    until(lambda: {place.state(name, "slow") for name in "ab"} == {"done"})


@case("every webhook that was answered with 202 is there after a kill")
def _(place):
    prepare(place, """\
store: sqlite:box.db
channels:
  orders:
    sources:
      - webhook: {name: hub, verify: github, secret_file: hub.txt}
    handlers:
      ledger:
        sql: |
          create table if not exists journal(id text);
          insert into journal values (:id);
""")
    server = place.serve()
    known = []

    def push(message_id):
        body = message_id.encode()
        return deliver(place, "hub", body, {
            "X-GitHub-Delivery": message_id, "X-GitHub-Event": "push",
            "X-Hub-Signature-256": "sha256=" + digest(GITHUB.encode(), body).hex()}).status

    def send(sender):
        number = 0
        while server.alive():
            message_id = f"{sender}-{number}"
            try:
                if push(message_id) == 202:
                    known.append(message_id)
            except (OSError, http.client.HTTPException, ValueError):
                continue  # the server was killed meanwhile
            number += 1

    threads = [threading.Thread(target=send, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(known) >= 200)
    server.stop(signal.SIGKILL)
    for thread in threads:
        thread.join()
    place.serve()
    equal({push(message_id) for message_id in known}, {200})

    def journal():
        uri = "file:" + place.file("box.db") + "?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
            try:
                return [row for row, in database.execute("select id from journal")]
            except sqlite3.OperationalError:  # no handler has run yet
                return []

    until(lambda: set(known) <= set(journal()))
    equal(len(journal()), len(set(journal())))


@case("a message goes from one server to another once, with its type")
def _(place):
    secret(place, "chain.txt", "whsec_" + base64.b64encode(b"k" * 32).decode())
    place.write("b.yaml", """\
store: sqlite:b.db
channels:
  copies:
    sources:
      - webhook: {name: first, verify: standard, secret_file: chain.txt}
        type: header:ce-type
        subject: header:ce-subject
    handlers:
      log:
        exec: [/bin/true]
""")
    second = place.serve("-c", "b.yaml", tcp=True)
    place.configure(f"""\
store: sqlite:box.db
channels:
  orders:
    handlers:
      second:
        webhook:
          url: {second.url}/v1/channels/copies/webhooks/first
          secret_file: chain.txt
""")
    place.serve()
    place.send("n\u00e9 1", "body", "--type", "order.placed", "--subject", "s 1")
    until(lambda: place.state("n\u00e9 1", "second") == "done")
    until(lambda: place.ok("list", "-c", "b.yaml", "--json", "--state", "done").json())
    rows = place.ok("list", "-c", "b.yaml", "--json", "--state", "done").json()
    equal([(row["handler"], row["type"]) for row in rows], [("log", "order.placed")])
    shown = place.ok("show", "-c", "b.yaml", rows[0]["message_id"], "--json").json()
    equal((shown["body"], shown["source"], shown["transport"], shown["subject"]),
          ("body", "copies", "webhook", "s 1"))


MISTAKES = (
    ("{name: shop, verify: standard}", "a signature needs a secret; set 'secret_file'"),
    ("{verify: standard, secret: QUJD}", "needs the option 'name'"),
    ("{name: shop, secret: QUJD}", "needs the option 'verify'"),
    ("{name: shop, verify: stripes, secret: QUJD}", "did you mean 'stripe'?"),
    ("{name: a/b, verify: none}", "'a/b' is not a name of a webhook"),
    ("{name: shop, verify: standard, secret_file: none.txt}",
     "webhook 'shop': no file 'none.txt'"),
    ("{name: shop, verify: standard, secret_file: empty.txt}", "must contain one line"),
    ("{name: shop, verify: standard, secret_file: open.txt}", "chmod o-r"),
    ("{name: shop, verify: standard, secret: hunter2!}", "the secret is not base64"),
    ("{name: shop, verify: github, secret: a, secret_file: b}", "cannot be combined"),
    ("{name: shop, verify: github, secret: a, tolerance: 5m}",
     "'tolerance' is for signatures with a time"),
    ("{name: shop, verify: stripe, secret: a, tolerance: 5}", "unit"),
    ("{name: shop, verify: stripe, secret: a, header: X}", "are for verify: hmac"),
    ("{name: shop, verify: hmac, secret: a}", "verify: hmac needs 'header'"),
    ("{name: shop, verify: hmac, secret: a, header: X Y}", "not the name of a header"),
    ("{name: shop, verify: none, secret: a}", "with verify: none no secret is used"),
    ("{name: shop, verify: github, secret: a, id: id}",
     "'id' is not header:NAME or json:/POINTER"),
    ("{name: shop, verify: github, secret: a, id: 'json:x'}", "does not begin with '/'"),
    ("{name: shop, verify: github, secret: a}\n        kind: json:/a",
     "unknown key 'kind' beside a source of kind 'webhook'"),
    ("{name: shop, verify: github, secret: a, type: json:/a}\n        type: json:/b",
     "'type' is both inside and beside 'webhook'"),
    ("{name: shop, verify: github, secret: a}\n      - webhook: {name: shop, "
     "verify: none}\n        name: other", "another source 'webhook' named 'shop'"),
)


@case("each mistake of a webhook is one line with its place, and no secret")
def _(place):
    secret(place, "shop.txt", STANDARD)
    secret(place, "empty.txt", "\n")
    os.chmod(place.write("open.txt", STANDARD), 0o644)
    for text, says in MISTAKES:
        place.configure("store: sqlite:box.db\nchannels:\n  orders:\n    sources:\n"
                        f"      - webhook: {text}\n")
        result = place.fails(2, "check", says=says)
        equal(len(result.err.splitlines()), 1, result)
        assert result.err.startswith("postern: postern.yaml:"), result
        assert "hunter2" not in result.err, result
    place.configure("store: sqlite:box.db\nchannels:\n  orders:\n    sources:\n"
                    "      - webhook: {name: shop, verify: github, secret: hunter2=}\n")
    for words in (("check", "--print"), ("check", "--print", "--json")):
        assert "hunter2" not in place.ok(*words).out


main()
