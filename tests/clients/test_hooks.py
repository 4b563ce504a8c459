#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Receivers in both languages verify what a webhook handler sends."""

import base64
import os
import socket
import subprocess

from clients import each_language, example
from support import equal, main, until


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def write_secret(place, name):
    text = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    os.chmod(place.write(name, text + "\n"), 0o600)


def configure(place, port, secrets):
    place.configure(f"""\
store: sqlite:box.db
defaults: {{restart_delay: 100ms}}
channels:
  orders:
    handlers:
      shop:
        webhook: {{url: "http://127.0.0.1:{port}/hooks", secret_files: {secrets}}}
        backoff: [100ms]
""")


@each_language("a webhook of a handler is verified, also while its secret is changed")
def _(place, language):
    port = free_port()
    for name in ("old", "new", "other"):
        write_secret(place, name)
    with open(place.file("received"), "wb") as out:
        place.start([*example(language, "receiver"), str(port), place.file("old")],
                    stdout=out)

    def lines():
        return place.read("received").splitlines()

    for number, secrets in enumerate(["[old]", "[new, old]"]):
        configure(place, port, secrets)
        server = place.serve()
        equal(place.send(f"m{number}", "grüße").word, "accepted")
        until(lambda: place.state(f"m{number}", "shop") == "done")
        equal(server.stop(), 0)
        assert lines()[-1].startswith("received ") and lines()[-1].endswith(": grüße")
        assert f"m{number}" in lines()[-1], lines()
    configure(place, port, "[other]")
    place.serve()
    place.send("m9", "grüße")
    until(lambda: "refused: no signature is right for this secret" in lines())
    assert "401" in until(lambda: place.delivery("m9", "shop")["last_error"])
    equal(len([line for line in lines() if line.startswith("received ")]), 2)


@each_language("an example that is called wrongly prints how to call it")
def _(_place, language):
    for name, words in (("send", ["--help"]), ("send", ["7", "8"]), ("receiver", []),
                        ("receiver", ["1", "2", "3"]), ("worker", ["--help"])):
        result = subprocess.run([*example(language, name), *words], timeout=60,
                                capture_output=True, text=True, check=False)
        equal(result.returncode, 1, name)
        assert result.stderr.startswith(f"usage: {name}."), result
        equal(result.stderr.count("\n"), 1, result.stderr)


main()
