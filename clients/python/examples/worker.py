#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Charges orders until it is stopped (SIGTERM, control-C): worker.py

The configuration of the server has a handler that is pulled:

    charge: {types: [order.placed], pull: {}}
"""

import logging
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import postern  # noqa: E402


def charge(delivery):
    """Returns: done. An exception: tried again later, with the handler's
    backoff. May run twice for an order, if the worker dies in between: pass the
    message's id on as idempotency key, or see clients/receiver."""
    order = delivery.json()
    if order["cents"] <= 0:
        raise postern.Poison(f"{order['cents']} is no amount")
    print(f"charge {delivery.id}: {order['cents']}, attempt {delivery.attempt}",
          flush=True)


if len(sys.argv) > 1:
    sys.exit("usage: worker.py; $POSTERN_SERVER, $POSTERN_TOKEN_FILE")
logging.basicConfig(level=logging.INFO)
client = postern.Client(
    os.environ.get("POSTERN_SERVER", "http://127.0.0.1:7420"),
    token_file=os.environ.get("POSTERN_TOKEN_FILE"))
client.work("charge", charge, concurrency=4)
