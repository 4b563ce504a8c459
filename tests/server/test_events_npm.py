#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CloudEvents of the SDK for JavaScript, over TCP."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                                "support"))

import npm
from support import case, equal, main

TOKEN = "a" * 40
CONFIG = f"""\
store: sqlite:box.db
auth: {{tokens: [{{name: js, role: send, token: {TOKEN}}}]}}
channels: {{events: {{}}}}
"""

LARGE = '{"n":9007199254740993,"f":1.0,"e":1e400}'
BODIES = {
    "binary": b'{"a":[1,"\xc3\xbc"]}',
    "binary text": LARGE.encode(),
    "binary bytes": bytes([0, 1, 254, 255, 0x80]),
    "structured": b'{"a":[1,"\xc3\xbc"]}',
    "structured bytes": bytes([0, 1, 254, 255, 0x80]),
    "structured text": LARGE.encode(),
    "batch 1": b'{"n":1}',
    "batch 2": b'{"n":2}',
    "batch 3": b'{"n":3}',
}


@case("events of all three forms arrive byte for byte, and count once")
def _(place):
    place.configure(CONFIG)
    server = place.serve(tcp=True)
    text = npm.run("send_events.js", f"{server.url}/v1/channels/events/messages", TOKEN)
    results = json.loads(text)
    for result in results:
        answer = result["answer"]
        items = answer["items"] if result["name"] == "batch" else [answer]
        statuses = {item["status"] for item in items}
        first = result is next(r for r in results if r["name"] == result["name"])
        equal(statuses, {"accepted" if first else "duplicate"}, result)
        equal(result["status"], 200 if result["name"] == "batch" or not first else 202,
              result)
    for name, body in BODIES.items():
        equal(place.ok("show", "--id", name, "--body").raw, body, name)
        message = place.ok("show", "--id", name, "--json").json()
        equal((message["source"], message["type"], message["subject"]),
              ("/npm", "npm.event", "Größe ✓ 漢字 \U0001f512"), name)
        headers = json.dumps(message["headers"], ensure_ascii=False)
        assert "für Ästhetik" in headers, headers
        assert TOKEN not in json.dumps(message), message


main()
