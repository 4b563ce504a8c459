#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/orders as its README runs it, and compared once more."""

import contextlib
import os
import sys

from support import case, equal, main

BUILD = os.environ["ORDERS_BUILD"]
SECONDS = float(os.environ.get("SECONDS", 5))

sys.path.insert(0, os.path.join(
    os.path.dirname(__file__), "..", "..", "examples", "orders"))
import run  # noqa: E402


@case("each order is charged once while all programs and the broker are killed")
def _(place):
    os.environ["LOG"] = place.file("log")
    # Its output is not TAP.
    with contextlib.redirect_stdout(sys.stderr), \
            run.two_shops(BUILD) as (shops, broker):
        run.abuse(shops, broker, SECONDS)
        run.finish(shops)
        for shop in shops:
            orders, charges = sorted(shop.orders()), sorted(shop.charges())
            assert charges == orders, sorted({*charges} ^ {*orders})[:20]
            # Every fifth transaction was rolled back: its number is missing.
            last = max(int(row.split("|")[0]) for row in orders)
            assert len(orders) < last, orders
            assert run.report(shop)
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
