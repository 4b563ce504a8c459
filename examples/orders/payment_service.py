#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The payment service: payment_service.py postgres://payments@db.example/payments

It charges every order once. `postern serve -c payments.yaml` reads the queue and
puts each order into the table `due` exactly once, in the transaction that
completes the delivery. Here one transaction takes an order from there and
charges it. All it needs is a database driver.
"""

import signal
import sys
import time

import psycopg2

# SKIP LOCKED: any number of these services can run side by side.
TAKE = """
    DELETE FROM due WHERE ctid =
        (SELECT ctid FROM due LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING order_id, cents
"""
CHARGE = "INSERT INTO charges (order_id, cents) VALUES (%s, %s)"


def charge_one(database):
    """Charges an order; False: none is due."""
    # A `with` of a connection is a transaction: taken and charged, or neither.
    with database, database.cursor() as cursor:
        cursor.execute(TAKE)
        order = cursor.fetchone()
        if order:
            cursor.execute(CHARGE, order)
        return order is not None


def main(url):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    database = psycopg2.connect(url)
    while True:
        if not charge_one(database):
            time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
