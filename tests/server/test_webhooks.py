#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Webhook sources: requests that their sender signs."""

import json
import os

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


main()
