#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Calls clients/python/postern.py as each line of stdin says, a JSON object, and
prints a line of JSON: {"result": …}, or {"error": the class, "status": …}.
driver.mjs does the same with the client for Node.js."""

import json
import os
import sys

sys.path.insert(0, os.path.join(
    os.path.dirname(__file__), "..", "..", "clients", "python"))
import postern  # noqa: E402

NAMES = ("id", "type", "source", "subject", "time", "content_type",
         "correlation_id", "traceparent", "headers")


def send(client, call):
    body = bytes.fromhex(call["hex"]) if "hex" in call else call["body"]
    options = {name: call[name] for name in NAMES if name in call}
    return client.send(call["channel"], body, **options)._asdict()


def poison_all(client, call):
    deliveries = client.claim("job", max=100, wait=0)
    return client.settle([(each, postern.Poison(call["reason"]))
                          for each in deliveries])


def verify(_, call):
    return postern.verify_webhook(call["secrets"], call["headers"], call["body"],
                                  now=call["now"])


def main(address, options):
    client = postern.Client(address, **json.loads(options))
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = {"result": globals()[call["do"]](client, call)}
        except postern.Error as error:
            answer = {"error": type(error).__name__, "status": error.status,
                      "text": str(error)}
        except ValueError as error:
            answer = {"error": "mistake", "text": str(error)}
        print(json.dumps(answer), flush=True)


main(*sys.argv[1:])
