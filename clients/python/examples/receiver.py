#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Receives webhooks and verifies them: receiver.py PORT SECRET_FILE

The file has the line whsec_… that the handler has as its secret_file.
"""

import http.server
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import postern  # noqa: E402

if len(sys.argv) != 3:
    sys.exit("usage: receiver.py PORT SECRET_FILE")
PORT = int(sys.argv[1])
with open(sys.argv[2], encoding="utf-8") as file:
    SECRET = file.read().strip()


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            message_id = postern.verify_webhook(SECRET, self.headers, body)
        except postern.InvalidSignature as error:
            print(f"refused: {error}", flush=True)
            self.send_error(401)
            return
        print(f"received {message_id}: {body.decode()}", flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
