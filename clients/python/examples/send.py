#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sends an order: send.py [ORDER]. However often it runs, the order counts once."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import postern  # noqa: E402

if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit("usage: send.py [ORDER]; $POSTERN_SERVER, $POSTERN_TOKEN_FILE")
order = sys.argv[1] if len(sys.argv) > 1 else "7"
client = postern.Client(
    os.environ.get("POSTERN_SERVER", "http://127.0.0.1:7420"),
    token_file=os.environ.get("POSTERN_TOKEN_FILE"))
try:
    receipt = client.send("orders", {"order": order, "cents": 1250},
                          id=f"order-{order}", type="order.placed")
except postern.Conflict:
    sys.exit(f"order {order} was sent before, with another body")
except postern.Unavailable as error:
    sys.exit(f"try again later: {error}")
print(f"order {order}: {receipt.status}")
