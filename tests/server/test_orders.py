#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/orders as its README runs it, compared once more, and judged by the
checker from the tables of its stores."""

import contextlib
import os
import sys

from support import case, equal, main

BUILD = os.environ["ORDERS_BUILD"]
SECONDS = float(os.environ.get("SECONDS", 5))

sys.path.insert(0, os.path.join(
    os.path.dirname(__file__), "..", "..", "examples", "orders"))
import run  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "checker"))
import check  # noqa: E402
import postgres_dump  # noqa: E402

# What each store did with its messages, as rows of the business. In Python
# the handler writes into `due`, and the service moves a row to `charges`.
CHARGED = "select 'charge' as handler, 'order-' || order_id as id from public.charges"


def message_of(order, channel):
    """The message of an order as it has to be in a store."""
    number, cents = order.split("|")
    return {"channel": channel, "source": "outgoing", "id": f"order-{number}",
            "body": f'{{"cents": {cents}, "order": {number}}}'}


def breaches(shop, what, channel, handler, effects=None):
    """What the checker finds in a store of which every order was accepted."""
    url = shop.net.database.url(database=f"{shop.name}_{what}")
    dump = postgres_dump.dump(url, effects, drained=True)
    seqs = {message["id"]: message["seq"] for message in dump["messages"]}
    history = [{"e": "config", "handlers": {handler: {
        "transactional": effects is not None, "channel": channel}}}]
    for order in shop.orders():
        message = message_of(order, channel)
        history += [{"e": "send", **message},
                    {"e": "receipt", **message, "result": "accepted",
                     "seq": seqs.get(message["id"], 10**9)}]
    # The programs write no history of what their handlers returned.
    return [breach for breach in check.check([history], dump)
            if not breach.startswith("ends_have_reasons:")]


@case("each order is charged once while programs and servers are killed")
def _(place):
    os.environ["LOG"] = place.file("log")
    # Its output is not TAP.
    with contextlib.redirect_stdout(sys.stderr), \
            run.two_shops(BUILD) as (shops, net):
        run.abuse(shops, net, SECONDS)
        run.finish(shops)
        for shop in shops:
            orders, charges = sorted(shop.orders()), sorted(shop.charges())
            assert charges == orders, sorted({*charges} ^ {*orders})[:20]
            # Every fifth transaction was rolled back: its number is missing.
            last = max(int(row.split("|")[0]) for row in orders)
            assert len(orders) < last, orders
            assert run.report(shop)
            equal(breaches(shop, "orders", "outgoing", "relay"), [])
            equal(breaches(shop, "payments", "orders", "charge", CHARGED), [])
            # It finds what it is here for.
            shop.rows("payments", "INSERT INTO charges SELECT * FROM charges LIMIT 1")
            assert breaches(shop, "payments", "orders", "charge", CHARGED)
    for word in ("Sanitizer", "runtime error:"):
        assert word not in place.read("log"), place.read("log")


@case("a charge that is missing, doubled, wrong or without an order is reported")
def _(place):
    orders = ["1|101", "2|102"]
    equal(run.trouble(orders, ["2|102", "1|101"]), [])
    equal(run.trouble(orders, ["1|101"]), ["order 2|102 was charged 0 times"])
    equal(run.trouble(orders, orders + ["1|101"]),
          ["order 1|101 was charged 2 times"])
    equal(len(run.trouble(orders, ["1|101", "2|103"])), 2)
    equal(run.trouble(orders, orders + ["3|1"]), ["charge 3|1 has no order"])


main()
