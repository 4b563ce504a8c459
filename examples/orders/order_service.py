#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The order service: order_service.py postgres://orders@db.example/orders

One transaction writes the order and publishes the message about it, so there is
never one without the other. All it needs is a database driver; `postern serve
-c orders.yaml` sends the messages on.

It places orders until it is stopped. Every fifth customer changes their mind at
the last moment: the transaction is rolled back, and the message with it.
"""

import itertools
import json
import signal
import sys
import time

import psycopg2

PUBLISH = "SELECT postern.publish('outgoing', 'order.placed', %s::jsonb, %s)"


class CustomerLeft(Exception):
    pass


def place_order(database, cents, cancelled):
    # A `with` of a connection is a transaction.
    with database, database.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orders (cents) VALUES (%s) RETURNING id", [cents])
        (order,) = cursor.fetchone()
        body = json.dumps({"order": order, "cents": cents})
        # The message's id stays the same however often it is sent: with it
        # the receiver knows a copy.
        cursor.execute(PUBLISH, [body, f"order-{order}"])
        if cancelled:
            raise CustomerLeft


def main(url):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    database = psycopg2.connect(url)
    for number in itertools.count(1):
        try:
            place_order(database, 100 + number, cancelled=number % 5 == 0)
        except CustomerLeft:
            pass
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
