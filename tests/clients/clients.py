# SPDX-License-Identifier: MIT
"""Shared by the tests of the clients: both languages, and a scripted server.

    @each_language("a second send of the same id is a duplicate")
    def _(place, language):
        with Driver(place, language, address) as driver:
            driver.call("send", channel="orders", body="x")
"""

import http.server
import json
import os
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS = os.path.join(HERE, "..", "..", "clients")
for folder in (os.path.join(HERE, "..", "server"), os.path.join(HERE, "..", "support")):
    sys.path.insert(0, folder)
import npm  # noqa: E402
from support import case  # noqa: E402

LANGUAGES = {"Python": "driver.py", "Node.js": "driver.mjs"}


def each_language(name):
    """A case for each of the clients."""

    def register(function):
        for language in LANGUAGES:
            case(f"{language}: {name}", language=language)(function)
        return function

    return register


def words_of(language, path):
    """The command line that runs a program."""
    return [sys.executable if language == "Python" else npm.program("node"), path]


def driver_words(language):
    return words_of(language, os.path.join(HERE, LANGUAGES[language]))


def example(language, name):
    """The command line of an example in clients/."""
    folder, end = ("python", "py") if language == "Python" else ("node", "mjs")
    return words_of(language, os.path.join(CLIENTS, folder, "examples", f"{name}.{end}"))


class Driver:
    """A program that calls the client."""

    def __init__(self, place, language, address, **options):
        self.process = place.start(
            [*driver_words(language), address, json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE).process

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.process.stdin.close()
        assert self.process.wait(60) == 0

    def ask(self, do, **call):
        """The answer, also if it is an error."""
        line = json.dumps({"do": do, **call}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def call(self, do, **call):
        answer = self.ask(do, **call)
        assert "result" in answer, answer
        return answer["result"]


class Peer:
    """A server that answers as scripted: each answer is a status, headers and a
    body, or None to close the connection without one. Requests are kept."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        peer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                peer.requests.append((self.path, self.headers, body))
                answer = peer.answers.pop(0) if len(peer.answers) > 1 \
                    else peer.answers[0]
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, text = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *what):
        self.server.shutdown()
        self.server.server_close()
