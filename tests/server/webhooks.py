# SPDX-License-Identifier: MIT
"""Webhooks for tests: signed by the libraries of those who send them, and sent
to a server."""

import base64
import http.client
import json
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import npm  # pylint: disable=wrong-import-position

# A secret of Standard Webhooks, of Stripe, of GitHub.
STANDARD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STRIPE = "whsec_2f5dX7kQ0aVb"
GITHUB = "It's a Secret to Everybody"


def sign(*webhooks):
    """Signs webhooks, each (scheme, secret, body) and, if they matter, `id` and
    `age` in seconds; returns their headers."""
    now = int(time.time())
    wanted = [
        {
            "scheme": scheme,
            "secret": secret,
            "body": base64.b64encode(body).decode(),
            "id": more.get("id", "msg_1"),
            "time": now - more.get("age", 0),
        }
        for scheme, secret, body, more in webhooks
    ]
    return json.loads(npm.run("sign_webhooks.js", stdin=json.dumps(wanted).encode()))


class Local(http.client.HTTPConnection):
    """A connection to the socket of a server."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.socket_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.socket_path)


class Answer:
    """The response to a request."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode()
        self.json = json.loads(self.text)

    def __repr__(self):
        return f"{self.status} {self.text}"


def connect(place):
    """To the address of TCP that the last server serves, or to its socket."""
    url = getattr(place.started[-1], "url", None)
    if url:
        return http.client.HTTPConnection(url[len("http://"):], timeout=60)
    return Local(place.file("box.db.sock"))


def post(place, path, body, headers, form="application/json"):
    """Sends one request; `headers` is an object, or a list of pairs."""
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    if form and not any(name.lower() == "content-type" for name, _ in pairs):
        pairs.append(("Content-Type", form))
    connection = connect(place)
    connection.putrequest("POST", path)
    for name, value in pairs:
        connection.putheader(name, value)
    connection.putheader("Content-Length", str(len(body)))
    try:
        connection.endheaders(body)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has answered before it read the body
    answer = Answer(connection.getresponse())
    connection.close()
    return answer


def deliver(place, name, body, headers, channel="orders", **more):
    return post(place, f"/v1/channels/{channel}/webhooks/{name}", body, headers,
                **more)


def source(place, name):
    """What is shown of a source."""
    for row in place.ok("stats", "--json").json()["sources"]:
        if row["name"] == name:
            return row
    raise AssertionError(f"no source {name}")
