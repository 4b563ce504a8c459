# SPDX-License-Identifier: MIT
"""A receiver of webhooks on this machine, polite or not.

    from receiver import Receiver, answer, drip

    receiver = Receiver()
    receiver.answers["/busy"] = answer(429, {"Retry-After": "60"})
    … receiver.url("/busy") …
    request = receiver.wait("/busy")[0]

Every request is kept. Its path, without the query, chooses the answer, a
function that writes to the connection; the default is 200. What a function
returns says whether the connection goes on.
"""

import socket
import ssl
import threading
import time


class Request:
    """A request as it was on the wire."""

    def __init__(self, connection, head, body):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ")
        self.path = self.target.split("?")[0]
        self.lines = lines[1:]
        self.headers = {}
        for line in self.lines:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        self.body = body
        self.connection = connection


def answer(status, headers=None, body=b"", more=None):
    """A complete answer; `more` is called first."""

    def write(connection, request):
        if more:
            more(request)
        lines = [f"HTTP/1.1 {status} Text", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return True

    return write


def raw(*pieces, pause=0.0, repeat=False):
    """Writes these bytes, the last one for ever if `repeat`, and closes."""

    def write(connection, request):
        del request
        for piece in pieces:
            connection.sendall(piece)
        while repeat:
            time.sleep(pause)
            connection.sendall(pieces[-1])
        return False

    return write


def never(connection, request):
    """Reads until the other side gives up."""
    del request
    connection.recv(1)
    return False


class Receiver:
    def __init__(self, tls=None, address="127.0.0.1"):
        self.answers = {}
        self.requests = []
        self.connections = 0
        self.tls = tls
        self.listener = socket.create_server((address, 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def url(self, path="/", host="127.0.0.1"):
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{host}:{self.port}{path}"

    def to(self, path):
        return [r for r in list(self.requests) if r.path == path]

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            self.connections += 1
            threading.Thread(target=self.serve, daemon=True,
                             args=(connection, self.connections)).start()

    def serve(self, connection, number):
        try:
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection:
                self.converse(connection, number)
        except (OSError, ssl.SSLError):
            pass  # the other side gave up

    def converse(self, connection, number):
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                piece = connection.recv(65536)
                if not piece:
                    return
                data += piece
            head, _, data = data.partition(b"\r\n\r\n")
            request = Request(number, head, b"")
            length = int(request.headers.get("content-length", 0))
            while len(data) < length:
                data += connection.recv(65536)
            request.body, data = data[:length], data[length:]
            self.requests.append(request)
            write = self.answers.get(request.path, answer(200, body=b"ok"))
            if not write(connection, request):
                return
