#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A worker of a pull handler that records what it claims and what becomes of it:

    pull_worker.py HOST:PORT HANDLER HISTORY NODE

It works until it is killed or its standard input is closed. What it decides
depends only on the message and the attempt, so a copy of it decides the same.
"""

import http.client
import json
import os
import select
import sys
import time
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from writer import Writer  # noqa: E402

BATCH = 20
LEASE = "2s"


def outcome_of(item):
    """Some fail at first, and a few can never be done."""
    number = zlib.crc32(item["message"]["id"].encode())
    if number % 53 == 0:
        return "poison"
    return "retry" if number % 7 == 0 and item["attempt"] == 1 else "done"


class Worker:
    def __init__(self, address, handler, history, node):
        self.address = address
        self.handler = handler
        self.writer = Writer(history, node=int(node))
        self.connection = None

    def ask(self, path, body):
        """The answer, or None if there was none or the server is not ready."""
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection(self.address, timeout=20)
            self.connection.request("POST", f"/v1/{path}", json.dumps(body),
                                    {"Content-Type": "application/json"})
            response = self.connection.getresponse()
            text = response.read()
            if response.status in (429, 503):
                time.sleep(0.02)
                return None
            assert response.status == 200, (path, response.status, text)
            return json.loads(text)
        except (OSError, http.client.HTTPException, ValueError):
            if self.connection:
                self.connection.close()
            self.connection = None
            time.sleep(0.01)  # the server is away
            return None

    def begin(self, item):
        message = item["message"]
        body = item["body"] if "body" in item else "base64"
        self.writer.write(
            "run", seq=item["seq"], handler=self.handler, fence=item["fence"],
            attempt=item["attempt"], channel=message["channel"],
            source=message["source"], id=message["id"], body=body)

    def settle(self, items):
        results = [{"seq": item["seq"], "handler": self.handler, "delay": "0s",
                    "fence": item["fence"], "outcome": outcome_of(item)}
                   for item in items]
        for result in results:
            if result["outcome"] != "retry":
                del result["delay"]
            self.writer.write("ran", seq=result["seq"], handler=self.handler,
                              fence=result["fence"], outcome=result["outcome"])
        # Repeated until there is an answer: the first may have been committed.
        answer = None
        while answer is None:
            answer = self.ask("deliveries/settle", {"items": results})
        for result, told in zip(results, answer["items"]):
            self.note(result, told["status"])

    def note(self, result, status):
        where = {"seq": result["seq"], "handler": self.handler,
                 "fence": result["fence"]}
        if status == "settled":
            to = {"done": "done", "poison": "poisoned", "retry": "pending"}
            self.writer.write("settled", to=to[result["outcome"]], **where)
        else:
            assert status == "late", (result, status)
            # A repeated result that would end the lease a second time is late,
            # too, so this says nothing about the first.

    def work(self):
        while not select.select([sys.stdin], [], [], 0)[0]:
            answer = self.ask(f"handlers/{self.handler}/claim",
                              {"max": BATCH, "wait": "1s", "lease": LEASE})
            items = answer["items"] if answer else []
            for item in items:
                self.begin(item)
            if items:
                self.settle(items)


Worker(*sys.argv[1:]).work()
