#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The clients send messages, to a real server and to a scripted one."""

import json
import os
import ssl
import subprocess
import time

from clients import Driver, Peer, driver_words, each_language
from support import equal, main

CONFIG = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      log: {exec: [/bin/cat], types: [order.*]}
"""

ACCEPTED = (202, {}, json.dumps(
    {"status": "accepted", "id": "1", "source": "orders", "seq": 1}))


def problem(status, **headers):
    text = json.dumps({"title": "a title", "detail": f"because of {status}"})
    return status, headers, text


def serve(place):
    place.configure(CONFIG)
    place.serve()
    return "unix:" + place.file("box.db.sock")


@each_language("a message is accepted, a second one is a duplicate, another a conflict")
def _(place, language):
    with Driver(place, language, serve(place)) as driver:
        first = driver.call("send", channel="orders", body={"n": 1}, id="a")
        equal((first["status"], first["id"], first["source"], first["parked"]),
              ("accepted", "a", "orders", True))
        again = driver.call("send", channel="orders", body={"n": 1}, id="a")
        equal((again["status"], again["seq"]), ("duplicate", first["seq"]))
        other = driver.ask("send", channel="orders", body={"n": 2}, id="a")
        equal((other["error"], other["status"]), ("Conflict", 409))
        # Each call without an id is a message of its own.
        ids = {driver.call("send", channel="orders", body="x")["id"] for _ in range(3)}
        equal(len(ids), 3)


@each_language("attributes, headers and the body arrive as they were sent")
def _(place, language):
    sent = {"id": 'ü "7" 100%', "type": "order.placed", "source": "/shop ✓",
            "subject": "grüße, \U0001f600", "time": "2026-01-31T10:00:00Z",
            "correlation_id": "c 1"}
    with Driver(place, language, serve(place)) as driver:
        driver.call("send", channel="orders", hex="00ff0d0a7b", **sent,
                    content_type="application/x-odd", headers={"X-Tenant": "münchen"})
    shown = place.show(sent["id"])
    for name in ("id", "type", "source", "subject", "time"):
        equal(shown[name], sent[name])
    equal(shown["content_type"], "application/x-odd")
    equal(shown["correlation_id"], "c 1")
    assert {"name": "x-tenant", "value": "münchen"} in [
        {"name": row["name"].lower(), "value": row["value"]} for row in shown["headers"]
    ], shown
    equal(place.ok("show", sent["id"], "--body").raw, bytes.fromhex("00ff0d0a7b"))


@each_language("a token of the role send sends over TCP; without one nothing goes")
def _(place, language):
    token = "0123456789abcdefghijklmn"
    os.chmod(place.write("shop.token", token + "\n"), 0o600)
    place.configure("""\
listen: 127.0.0.1:0
auth: {tokens: [{name: shop, role: send, token_file: shop.token}]}
""" + CONFIG)
    url = "http://" + place.serve().serving()["listen"]
    with Driver(place, language, url, token_file=place.file("shop.token")) as driver:
        equal(driver.call("send", channel="orders", body="x")["status"], "accepted")
    for options in ({}, {"token": token[1:] + "x"}):
        with Driver(place, language, url, **options) as driver:
            answer = driver.ask("send", channel="orders", body="x")
            equal((answer["error"], answer["status"]), ("NotAllowed", 401))
            assert token[1:] not in answer["text"], answer


@each_language("a large body arrives, if the server takes it")
def _(place, language):
    place.configure(CONFIG + "    max_message_size: 8MiB\n")
    place.serve()
    with Driver(place, language, "unix:" + place.file("box.db.sock")) as driver:
        for size in (1100000, 8 * 1024 * 1024):
            driver.call("send", channel="orders", body="x" * size, id=f"m{size}")
            equal(len(place.ok("show", f"m{size}", "--body").raw), size)


@each_language("what cannot be accepted is an error of its own class")
def _(place, language):
    with Driver(place, language, serve(place)) as driver:
        for words, kind, status in [
                ({"channel": "nope", "body": ""}, "NotFound", 404),
                ({"channel": "orders", "body": "", "id": "x" * 300}, "Invalid", 422),
                ({"channel": "orders", "body": "x" * 1100000}, "Invalid", 413),
                # The server does not read it to the end.
                ({"channel": "orders", "body": "x" * 20000000}, "Invalid", 413)]:
            answer = driver.ask("send", **words)
            equal((answer["error"], answer["status"]), (kind, status))
            assert len(answer["text"]) > 10, answer
        for headers in ({"Authorization": "x"}, {"ce-id": "x"}):
            answer = driver.ask("send", channel="orders", body="", headers=headers)
            equal(answer["error"], "mistake")


@each_language("each status is an error of its class, with the server's words")
def _(place, language):
    for status, kind in [(400, "Invalid"), (401, "NotAllowed"), (403, "NotAllowed"),
                         (404, "NotFound"), (409, "Conflict"), (413, "Invalid"),
                         (415, "Invalid"), (422, "Invalid"), (302, None),
                         (418, None), (503, "Unavailable")]:
        with Peer(problem(status)) as peer, \
                Driver(place, language, peer.address, retry_for=0) as driver:
            answer = driver.ask("send", channel="orders", body="x")
            equal(answer["error"], kind or (
                "Error" if language == "Python" else "PosternError"))
            equal((answer["status"], answer["text"]), (status, f"because of {status}"))
            equal(len(peer.requests), 1)


@each_language("every try has the same id, and Retry-After is honoured")
def _(place, language):
    with Peer(problem(503), None, problem(429, **{"Retry-After": "1"}), problem(500),
              ACCEPTED) as peer, \
            Driver(place, language, peer.address, token="geheim") as driver:
        begun = time.monotonic()
        equal(driver.call("send", channel="a/b", body="x")["status"], "accepted")
        assert time.monotonic() - begun >= 1
        ids = {headers["ce-id"] for _, headers, _ in peer.requests}
        equal((len(ids), len(peer.requests)), (1, 5))
        for path, headers, body in peer.requests:
            equal((path, body), ("/v1/channels/a%2Fb/messages", b"x"))
            equal(headers["Authorization"], "Bearer geheim")


@each_language("a server that stays away is reported when the time is up")
def _(place, language):
    with Peer(problem(503, **{"Retry-After": "3600"})) as peer:
        with Driver(place, language, peer.address, retry_for=60) as driver:
            # It would be later than the tries may last: there is no use in waiting.
            equal(driver.ask("send", channel="a", body="")["error"], "Unavailable")
            equal(len(peer.requests), 1)
    for address in (peer.address, "unix:" + place.file("none.sock")):
        with Driver(place, language, address, retry_for=0.5) as driver:
            answer = driver.ask("send", channel="a", body="")
            equal((answer["error"], answer["status"]), ("Unavailable", None))


@each_language("a connection that the server has closed meanwhile is no error")
def _(place, language):
    with Peer(ACCEPTED, None, ACCEPTED) as peer, \
            Driver(place, language, peer.address, retry_for=0) as driver:
        for _ in range(2):
            driver.call("send", channel="orders", body="x")
        equal(len(peer.requests), 3)


@each_language("https is verified with the file of the certificate")
def _(place, language):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", place.file("key.pem"),
         "-out", place.file("cert.pem")], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place.file("cert.pem"), place.file("key.pem"))
    place.write("token", "geheim\n")
    with Peer(ACCEPTED) as peer:
        peer.server.socket = context.wrap_socket(peer.server.socket, server_side=True)
        address = peer.address.replace("http:", "https:") + "/behind/a/proxy/"
        with Driver(place, language, address, ca_file=place.file("cert.pem"),
                    token_file=place.file("token")) as driver:
            driver.call("send", channel="orders", body="x")
        path, headers, _ = peer.requests[0]
        equal(path, "/behind/a/proxy/v1/channels/orders/messages")
        equal(headers["Authorization"], "Bearer geheim")
        # It is not tried again: nobody waits an hour for this answer.
        with Driver(place, language, address, retry_for=3600) as driver:
            answer = driver.ask("send", channel="orders", body="x")
        equal(answer["error"], "Error" if language == "Python" else "PosternError")
        assert "certificate is not trusted" in answer["text"], answer
        equal(len(peer.requests), 1)


# Signed by `openssl dgst -sha256 -hmac`, not by the code that is tested.
NOW = 1700000000
SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
BODY = '{"a":"ü"}'


def sign(secret_text, message_id, sent_at, body):
    signed = f"{message_id}.{sent_at}.{body}".encode()
    digest = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", secret_text, "-binary"],
        input=signed, capture_output=True, check=True).stdout
    text = subprocess.run(["openssl", "base64", "-A"], input=digest,
                          capture_output=True, check=True).stdout.decode()
    return {"Webhook-Id": message_id, "webhook-timestamp": str(sent_at),
            "webhook-signature": f"v1a,xyz v1,{text}"}


@each_language("a webhook is verified as Standard Webhooks says")
def _(place, language):
    good = sign("secret-secret-secret", "m1", NOW, BODY)
    other = "whsec_" + "b3RoZXI="
    with Driver(place, language, "unix:none") as driver:

        def verify(secrets=SECRET, headers=good, body=BODY, now=NOW):
            return driver.ask("verify", secrets=secrets, headers=headers, body=body,
                              now=now)

        for words in [{}, {"secrets": [other, SECRET]}, {"now": NOW + 299},
                      {"now": NOW - 299}, {"secrets": SECRET[len("whsec_"):]}]:
            equal(verify(**words), {"result": "m1"})
        wrong = [
            {"secrets": other}, {"secrets": []}, {"body": BODY + " "},
            {"now": NOW + 301}, {"now": NOW - 301},
            {"headers": {**good, "Webhook-Id": "m2"}},
            {"headers": {**good, "webhook-timestamp": str(NOW + 1)}},
            {"headers": {**good, "webhook-timestamp": "now"}},
            {"headers": {**good, "webhook-timestamp": "-1"}},
            {"headers": {**good, "webhook-timestamp": "9" * 400}},
            {"headers": {**good, "webhook-timestamp": "9" * 5000}},
            {"headers": {**good, "webhook-signature": ""}},
            {"headers": {**good, "webhook-signature": "v1,ü"}},
            {"headers": {"Webhook-Id": "m1", "webhook-timestamp": str(NOW)}},
        ]
        for words in wrong:
            equal(verify(**words).get("error"), "InvalidSignature", words)
        equal(verify(secrets="whsec_?")["error"], "mistake")
        # What anybody can sign with is no secret.
        for empty in ("", "whsec_", "whsec_="):
            for secrets in (empty, [SECRET, empty]):
                equal(verify(secrets=secrets, headers=sign("", "m1", NOW, BODY))["error"],
                      "mistake")


@each_language("an address of another kind is refused at once")
def _(place, language):
    for address in ("localhost:7420", "ftp://host", "https:"):
        process = place.start([*driver_words(language), address, "{}"],
                              stdin=subprocess.DEVNULL)
        assert process.process.wait(60) != 0
        assert address in process.stderr(), process.stderr()


main()
