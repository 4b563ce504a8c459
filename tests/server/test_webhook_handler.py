#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Handlers that send webhooks: what receivers get, and what their answers
do."""

import base64
import datetime
import email.utils
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import npm  # noqa: E402
from receiver import Receiver, answer, never, raw  # noqa: E402
from support import case, equal, main, until  # noqa: E402

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLw1w"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def hooks(place, handlers, more=""):
    """Serves handlers of the channel `out`: {key: text of its section}."""
    lines = "".join(f"      {key}: {{{text}}}\n"
                    for key, text in handlers.items())
    place.configure(f"store: sqlite:box.db\n{more}channels:\n  out:\n"
                    f"    handlers:\n{lines}")
    return place.serve()


def hook(url, more="", options=""):
    return f'webhook: {{url: "{url}"{options}}}{more}'


def send(place, message_id, body="body", *args):
    equal(place.send(message_id, body, *args, channel="out").code, 0)


def row(place, key):
    rows = place.ok("stats", "--json").json()["handlers"]
    return next(r for r in rows if r["key"] == key)


def ended(place, message_id, key, state):
    until(lambda: place.state(message_id, key) == state)
    return place.delivery(message_id, key)


def failed(place, message_id, key, text):
    """Waits until an attempt has failed with this text."""
    def found():
        delivery = place.delivery(message_id, key)
        return text in (delivery["last_error"] or "") and delivery
    return until(found)


@case("a message is posted as a CloudEvent in binary form, byte for byte")
def _(place):
    receiver = Receiver()
    hooks(place, {"mail": hook(receiver.url("/in?type={type}&of={subject}"))})
    body = bytes(range(256)) * 3
    place.ok("send", "out", "--lines", "-", stdin=json.dumps({
        "specversion": "1.0", "id": 'a b"%é', "type": "order placed/1",
        "source": "/shop", "subject": "ü&?", "region": "Köln",
        "time": "2024-05-01T10:00:00Z",
        "datacontenttype": "application/x-thing",
        "data_base64": base64.b64encode(body).decode()}) + "\n")
    ended(place, 'a b"%é', "mail", "done")
    (request,) = receiver.requests
    equal(request.method, "POST")
    equal(request.target, "/in?type=order%20placed%2F1&of=%C3%BC%26%3F")
    equal(request.body, body)
    headers = request.headers
    equal({n: v for n, v in headers.items() if n.startswith("ce-")}, {
        "ce-specversion": "1.0", "ce-id": "a%20b%22%25%C3%A9",
        "ce-source": "/shop", "ce-type": "order%20placed/1",
        "ce-subject": "%C3%BC&?", "ce-time": "2024-05-01T10:00:00Z",
        "ce-region": "K%C3%B6ln"})
    equal(headers["content-type"], "application/x-thing")
    equal((headers["postern-handler"], headers["postern-attempt"]),
          ("mail", "1"))
    assert int(headers["postern-fence"]) > 0
    equal(headers["content-length"], str(len(body)))
    for name in ("authorization", "expect", "webhook-signature",
                 "transfer-encoding", "traceparent"):
        assert name not in headers, name


@case("what is posted is an event for the SDK for JavaScript")
def _(place):
    receiver = Receiver()
    hooks(place, {"mail": hook(receiver.url("/in"))})
    # Not ASCII in an attribute: the SDK leaves it to its caller to decode it.
    common = {"specversion": "1.0", "source": "/shop", "type": "order.placed",
              "subject": "Größe 7", "region": "eu", "time": "2024-05-01T10:00:00Z"}
    sent = {
        "json": ({"datacontenttype": "application/json", "data": {"a": [1, "ü"]}},
                 b'{"a":[1,"\xc3\xbc"]}'),
        "bytes": ({"datacontenttype": "application/octet-stream",
                   "data_base64": "AAH+/w=="}, b"\x00\x01\xfe\xff"),
        "text": ({"datacontenttype": "text/plain", "data": "ein Größe"},
                 "ein Größe".encode()),
    }
    place.ok("send", "out", "--lines", "-", stdin="".join(
        json.dumps({**common, "id": key, **more}) + "\n"
        for key, (more, _) in sent.items()))
    for key, (more, data) in sent.items():
        ended(place, key, "mail", "done")
        request = next(r for r in receiver.requests if r.headers["ce-id"] == key)
        event = json.loads(npm.run("read_event.js", stdin=json.dumps({
            "headers": request.headers,
            "body": base64.b64encode(request.body).decode()}).encode()))
        equal(json.loads(base64.b64decode(event["data"])) if key == "json"
              else base64.b64decode(event["data"]),
              json.loads(data) if key == "json" else data)
        equal(urllib.parse.unquote(event["subject"]), common["subject"])
        equal({name: event[name] for name in ("id", "source", "type", "region")},
              {"id": key, "source": "/shop", "type": "order.placed", "region": "eu"})
        equal(event["datacontenttype"], more["datacontenttype"])
        assert event["time"].startswith("2024-05-01T10:00:00"), event


@case("other headers of a message are passed on, but none of the exchange")
def _(place):
    receiver = Receiver()
    hooks(place, {"mail": hook(
        receiver.url(), options=', headers: ["X-Own: of the handler"]')})
    send(place, "m1", "", "--header", "x-plain=a text",
         "--header", "x-word=é\u2028",
         "--header", "x-own=of the message", "--header", "x-empty=")
    ended(place, "m1", "mail", "done")
    (request,) = receiver.requests
    headers = request.headers
    equal({n: v for n, v in headers.items() if n.startswith("x-")},
          {"x-plain": "a text", "x-word": "%C3%A9%E2%80%A8", "x-empty": "",
           "x-own": "of the handler"})
    equal((headers["content-length"], headers["postern-fence"]), ("0", "1"))
    equal(headers["host"], f"127.0.0.1:{receiver.port}")
    for name in ("authorization", "te", "transfer-encoding", "content-type",
                 "accept", "ce-specversion", "ce-type"):
        assert name not in headers or name.startswith("ce-"), name
    equal(len(request.lines), len(headers))


@case("each attempt has a span of its own in the trace of the message")
def _(place):
    receiver = Receiver()
    receiver.answers["/in"] = answer(500)
    hooks(place, {"mail": hook(receiver.url("/in"), ", backoff: [1s], "
                               "max_attempts: 2")})
    send(place, "m1", "x", "--type", "t", "--traceparent", TRACE)
    ended(place, "m1", "mail", "poisoned")
    traces = [r.headers["traceparent"] for r in receiver.requests]
    equal([r.headers["postern-attempt"] for r in receiver.requests],
          ["1", "2"])
    equal({t[:36] + t[52:] for t in traces}, {TRACE[:36] + TRACE[52:]})
    equal(len({TRACE[36:52], *(t[36:52] for t in traces)}), 3)


@case("what is signed is verified by standardwebhooks, with any of its secrets")
def _(place):
    receiver = Receiver()
    place.write("old", OTHER + "\n")
    os.chmod(place.file("old"), 0o600)
    hooks(place, {"mail": hook(
        receiver.url(), options=f", secret: {SECRET}, secret_file: old")})
    for message_id, body in (("évt.1 x", '{"é": 1}'), ("m2", '"x"')):
        send(place, message_id, body, "--type", "t")
        ended(place, message_id, "mail", "done")
    for request in receiver.requests:
        equal(request.headers["webhook-id"], request.headers["ce-id"])
        text = json.dumps({
            "headers": request.headers,
            "body": base64.b64encode(request.body).decode()}).encode()
        for secret in (SECRET, OTHER):
            equal(npm.run("verify-webhook.js", secret, stdin=text), b"ok\n")
        wrong = json.dumps({
            "headers": request.headers,
            "body": base64.b64encode(request.body + b" ").decode()}).encode()
        assert b"ok" not in npm.run("verify-webhook.js", SECRET, stdin=wrong)


@case("a secret that cannot be read holds its handler until it can")
def _(place):
    receiver = Receiver()
    hooks(place, {"mail": hook(receiver.url(), options=", secret_file: s")})
    send(place, "m1")
    equal(failed(place, "m1", "mail", "secret: ")["failures"], 0)
    equal(receiver.requests, [])
    place.write("late", SECRET + "\n")
    os.chmod(place.file("late"), 0o600)
    os.rename(place.file("late"), place.file("s"))
    equal(ended(place, "m1", "mail", "done")["failures"], 0)
    assert receiver.requests[0].headers["webhook-signature"]


@case("the answer decides: done, poisoned, or another attempt")
def _(place):
    receiver = Receiver()
    statuses = {200: "done", 201: "done", 204: "done", 299: "done",
                400: "poisoned", 413: "poisoned", 415: "poisoned",
                422: "poisoned", 301: "pending", 302: "pending",
                307: "pending", 401: "pending", 404: "pending",
                408: "pending", 409: "pending", 425: "pending",
                429: "pending", 500: "pending", 503: "pending"}
    handlers = {}
    for status in statuses:
        receiver.answers[f"/{status}"] = answer(
            status, {"Location": receiver.url("/followed")},
            b"" if status == 204 else b"be\x1b[31mcause\n")
        handlers[f"h{status}"] = hook(receiver.url(f"/{status}"),
                                      ", backoff: [1h]")
    hooks(place, handlers)
    send(place, "m1")
    until(lambda: len(receiver.requests) == len(statuses))
    for status, state in statuses.items():
        delivery = ended(place, "m1", f"h{status}", state)
        if state != "done":
            delivery = failed(place, "m1", f"h{status}", f"answered {status}")
            assert delivery["last_error"].endswith(": be?[31mcause"), delivery
            equal(delivery["failures"], 1)
    equal(receiver.to("/followed"), [])


@case("Retry-After holds the whole queue of its handler, and no other")
def _(place):
    receiver = Receiver()
    date = email.utils.formatdate(time.time() + 3600, usegmt=True)
    for path, status, value in (("/busy", 429, "3600"), ("/dated", 503, date)):
        receiver.answers[path] = answer(status, {"Retry-After": value}, b"slow")
    hooks(place, {"busy": hook(receiver.url("/busy")),
                  "dated": hook(receiver.url("/dated")),
                  "fine": hook(receiver.url("/fine"))})
    send(place, "m1")
    for key in ("busy", "dated"):
        until(lambda key=key: row(place, key)["held"] == "retry-after")
        failed(place, "m1", key, "answered ")
        equal(place.delivery("m1", key)["failures"], 1)
        held = row(place, key)
        until_s = datetime.datetime.fromisoformat(held["held_until"]).timestamp()
        assert 3000 < until_s - time.time() <= 3700, held
    for number in range(2, 6):
        send(place, f"m{number}")
        ended(place, f"m{number}", "fine", "done")
    equal((len(receiver.to("/busy")), len(receiver.to("/dated"))), (1, 1))
    del receiver.answers["/busy"]
    place.ok("resume", "busy")
    ended(place, "m5", "busy", "done")
    equal(len(receiver.to("/dated")), 1)


@case("a short Retry-After ends by itself, and the queue goes on")
def _(place):
    receiver = Receiver()
    receiver.answers["/in"] = answer(
        429, {"Retry-After": "1"},
        more=lambda request: receiver.answers.pop("/in", None))
    hooks(place, {"mail": hook(receiver.url("/in"), ", backoff: [1s]")})
    for number in range(5):
        send(place, f"m{number}")
    for number in range(5):
        ended(place, f"m{number}", "mail", "done")


@case("410 pauses the handler until an operator resumes it, and spends nothing")
def _(place):
    receiver = Receiver()
    receiver.answers["/gone"] = answer(410, body=b"moved away")
    hooks(place, {"mail": hook(receiver.url("/gone"))})
    send(place, "m1")
    until(lambda: row(place, "mail")["paused"])
    held = row(place, "mail")
    equal((held["held"], held["held_by"], held["held_until"]),
          ("paused", "postern", None))
    assert held["held_reason"] == "answered 410 Gone: moved away", held
    delivery = ended(place, "m1", "mail", "pending")
    equal(delivery["failures"], 0)
    send(place, "m2")
    receiver.answers["/gone"] = answer(200)
    place.ok("resume", "mail")
    for message_id in ("m1", "m2"):
        equal(ended(place, message_id, "mail", "done")["failures"], 0)


@case("a receiver that is not there holds its handler, and costs no attempt")
def _(place):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    hooks(place, {"mail": hook(f"http://127.0.0.1:{port}/"),
                  "name": hook("http://receiver.invalid/")})
    send(place, "m1")
    for key, text in (("mail", "connect"), ("name", "resolve")):
        delivery = failed(place, "m1", key, text)
        equal(delivery["failures"], 0)
        until(lambda key=key: row(place, key)["held"] == "broken")


@case("what a message is at fault for is no fault of its handler")
def _(place):
    hooks(place, {"mail": hook("http://{subject}.invalid/",
                               options=", templated_host: true")})
    send(place, "m1", "x", "--subject", "nobody")
    equal(failed(place, "m1", "mail", "resolve")["failures"], 1)
    equal(row(place, "mail")["held"], None)


def count_of(server, kind):
    """How many threads ("task") or open files ("fd") it has."""
    return len(os.listdir(f"/proc/{server.pid}/{kind}"))


@case("bad receivers end at the deadline, and delay no other handler")
def _(place):
    receiver = Receiver()
    head = b"HTTP/1.1 200 OK\r\n"
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    receiver.answers.update({
        "/never": never,
        "/drip": raw(head + b"Content-Length: 1000\r\n\r\n", b"x", pause=0.2,
                     repeat=True),
        "/slow": raw(head, b"x: y\r\n", pause=0.2, repeat=True),
        "/early": raw(b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.2,
                      repeat=True),
        "/cut": raw(head + b"Content-Length: 1000\r\n\r\nabc"),
        "/none": raw(b""),
        "/noise": raw(b"\x00\xff\r\n\r\n\x1b[2J"),
        "/heads": raw(head, b"x: " + b"y" * 4000 + b"\r\n", repeat=True),
        "/storm": raw(b"HTTP/1.1 100 Continue\r\nx: " + b"y" * 900
                      + b"\r\n\r\n", repeat=True),
        "/endless": raw(head + b"Transfer-Encoding: chunked\r\n\r\n", chunk,
                        repeat=True),
        "/large": raw(head + b"Content-Length: 10000000000\r\n\r\n", chunk,
                      repeat=True),
        "/wrong": raw(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n",
                      chunk, repeat=True),
    })
    late = ", timeout: 2s"
    handlers = {path[1:]: hook(receiver.url(path), late)
                for path in receiver.answers}
    server = hooks(place, {**handlers, "fine": hook(receiver.url("/fine"))})
    for number in range(10):
        send(place, f"m{number}")
    for number in range(10):
        ended(place, f"m{number}", "fine", "done")
        for key in ("endless", "large"):
            ended(place, f"m{number}", key, "done")
    for key in ("never", "drip", "slow", "early"):
        equal(failed(place, "m1", key, "timed out")["failures"] > 0, True)
    for key, text in (("cut", "cannot send"), ("none", "cannot send"),
                      ("noise", "cannot send"), ("heads", "headers"),
                      ("storm", "headers"), ("wrong", "answered 500")):
        failed(place, "m1", key, text)
    with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
        size = next(int(line.split()[1]) for line in file
                    if line.startswith("VmHWM"))
    # With a sanitizer memory is another thing.
    assert size < 150000 or "asan" in os.environ["POSTERN"], size
    # Whatever there is now, more of the same needs no more of it.
    threads, files = count_of(server, "task"), count_of(server, "fd")
    for number in range(10, 20):
        send(place, f"m{number}")
    for key in ("fine", "endless", "large"):
        ended(place, "m19", key, "done")
    until(lambda: count_of(server, "task") <= threads, 30)
    until(lambda: count_of(server, "fd") <= files + 10, 30)
    equal(server.stop(), 0)


@case("connections are kept, at most as many as run at the same time")
def _(place):
    receiver = Receiver()
    hooks(place, {"mail": hook(receiver.url(), ", concurrency: 4")})
    lines = "".join(
        json.dumps({"specversion": "1.0", "id": f"m{n}", "source": "/s",
                    "type": "t"}) + "\n" for n in range(300))
    place.ok("send", "out", "--lines", "-", stdin=lines)
    until(lambda: row(place, "mail")["done"] == 300)
    equal(len(receiver.requests), 300)
    assert receiver.connections <= 5, receiver.connections


@case("`publish: {http: …}` sends the same")
def _(place):
    receiver = Receiver()
    hooks(place, {"mirror": f'publish: {{http: {{url: "{receiver.url("/p")}"}}}}'})
    send(place, "m1", "x", "--type", "t")
    ended(place, "m1", "mirror", "done")
    equal(receiver.to("/p")[0].headers["ce-id"], "m1")


@case("a stop gives the lease of a request in progress back")
def _(place):
    receiver = Receiver()
    receiver.answers["/in"] = never
    server = hooks(place, {"mail": hook(receiver.url("/in"))},
                   "shutdown_grace: 1s\n")
    send(place, "m1")
    until(lambda: receiver.requests)
    equal(server.stop(), 0)
    del receiver.answers["/in"]
    place.serve()
    equal(ended(place, "m1", "mail", "done")["failures"], 0)


def certificate(place, name, *options):
    """Makes a certificate for 127.0.0.1 that signs itself; its two files."""
    files = place.file(name + ".crt"), place.file(name + ".key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=" + name,
         "-days", "2", "-addext", "subjectAltName=IP:127.0.0.1",
         "-out", files[0], "-keyout", files[1], *options],
        check=True, stderr=subprocess.DEVNULL)
    return files


def server_of(files):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


@case("only a certificate that is trusted is sent to, with that of the handler")
def _(place):
    own = certificate(place, "server")
    client = certificate(place, "client")
    strict = server_of(own)
    strict.verify_mode = ssl.CERT_REQUIRED
    strict.load_verify_locations(client[0])
    plain, mutual = Receiver(server_of(own)), Receiver(strict)
    hooks(place, {
        "unknown": hook(plain.url()),
        "known": hook(plain.url(), options=", ca_file: server.crt"),
        "named": hook(plain.url(host="localhost"),
                      options=", ca_file: server.crt"),
        "mutual": hook(mutual.url(), options=", ca_file: server.crt, "
                       "client_cert_file: client.crt, "
                       "client_key_file: client.key"),
    })
    send(place, "m1")
    for key in ("known", "mutual"):
        ended(place, "m1", key, "done")
    for key in ("unknown", "named"):
        equal(failed(place, "m1", key, "certificate")["failures"], 0)
    equal((len(plain.requests), len(mutual.requests)), (1, 1))


@case("an old version of TLS is refused")
def _(place):
    old = server_of(certificate(place, "server"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    receiver = Receiver(old)
    hooks(place, {"mail": hook(receiver.url(), options=", ca_file: server.crt")})
    send(place, "m1")
    equal(failed(place, "m1", "mail", "cannot send")["failures"], 0)
    equal(receiver.requests, [])


@case("a message chooses no host that is not public, on no connection")
def _(place):
    receiver = Receiver()
    host = f'"http://{{subject}}:{receiver.port}/{{id}}"'
    hooks(place, {
        "free": f"webhook: {{url: {host}, templated_host: true}}",
        "own": f"webhook: {{url: {host}, templated_host: true, "
               "allow_private: [127.0.0.0/8]}",
        "fixed": hook(receiver.url("/{id}", host="localhost")),
    })
    hosts = {"m1": "localhost", "m2": "127.0.0.1", "m3": "0x7f000001",
             "m4": "2130706433", "m5": "0177.1", "m6": "0.0.0.0"}
    for message_id, subject in hosts.items():
        send(place, message_id, "x", "--subject", subject)
    for message_id in hosts:
        # A connection that another handler has opened is no way around it.
        ended(place, message_id, "fixed", "done")
        delivery = ended(place, message_id, "free", "poisoned")
        assert "not allowed" in delivery["last_error"], delivery
        if message_id != "m6":
            ended(place, message_id, "own", "done")
    ended(place, "m6", "own", "poisoned")
    keys = [r.headers["postern-handler"] for r in receiver.requests]
    equal((keys.count("free"), keys.count("own"), keys.count("fixed")),
          (0, 5, 6))


@case("a receiver that a message has chosen holds and pauses for no other message")
def _(place):
    receiver = Receiver()
    receiver.answers["/gone"] = answer(410)
    receiver.answers["/busy"] = answer(429, {"Retry-After": "3600"})
    hooks(place, {"mail": f'webhook: {{url: "http://{{subject}}:{receiver.port}/{{id}}", '
                          "templated_host: true, allow_private: [127.0.0.0/8]}"})
    for message_id in ("gone", "busy"):
        send(place, message_id, "x", "--subject", "127.0.0.1")
    ended(place, "gone", "mail", "poisoned")
    busy = failed(place, "busy", "mail", "answered 429")
    equal((busy["state"], busy["failures"]), ("pending", 1))
    next_s = datetime.datetime.fromisoformat(busy["next_at"]).timestamp()
    assert 3000 < next_s - time.time() <= 3600, busy
    send(place, "m1", "x", "--subject", "127.0.0.1")
    ended(place, "m1", "mail", "done")
    mail = row(place, "mail")
    equal((mail["paused"], mail["held"]), (False, None))


@case("proxies, cookies and .netrc of the environment are not used")
def _(place):
    receiver, proxy = Receiver(), Receiver()
    place.write(".netrc", "machine 127.0.0.1 login a password b\n")
    receiver.answers["/in"] = answer(200, {"Set-Cookie": "a=b"})
    before = dict(os.environ)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY",
                 "all_proxy"):
        os.environ[name] = proxy.url("")
    os.environ["HOME"] = place.path
    try:
        hooks(place, {"mail": hook(receiver.url("/in"))})
    finally:
        os.environ.clear()
        os.environ.update(before)
    for message_id in ("m1", "m2"):
        send(place, message_id)
        ended(place, message_id, "mail", "done")
    for request in receiver.requests:
        assert not {"authorization", "cookie"} & set(request.headers)
    equal(proxy.connections, 0)


@case("no log, error or answer has a secret of a handler")
def _(place):
    receiver = Receiver()
    receiver.answers["/k-canary1"] = answer(500)
    url = receiver.url("/k-canary1?token=canary2").replace("//", "//u:canary3@")
    secret = "whsec_" + base64.b64encode(b"canary4-canary4-canary4-").decode()
    server = hooks(place, {
        "mail": hook(url, options=f', secret: {secret}, '
                     'headers: ["Authorization: Bearer canary5"]'),
        "away": hook("http://u:canary6@127.0.0.1:1/canary7?secret=canary8"),
    })
    send(place, "m1")
    failed(place, "m1", "mail", "answered 500")
    failed(place, "m1", "away", "cannot send")
    texts = [place.ok(*words).out for words in (
        ("check", "--print"), ("show", "m1"), ("list",), ("stats", "--json"))]
    assert "canary7" in texts[0], "the path is a part of the configuration"
    text = "".join(texts[1:]) + server.stderr()
    assert "canary" not in text, text
    for word in ("canary2", "canary3", "canary5", "canary6", "canary8", secret):
        assert word not in texts[0], word
    equal(receiver.requests[0].headers["authorization"], "Bearer canary5")


@case("check names what is wrong with a webhook, one line each")
def _(place):
    place.write("open", "x" * 30 + "\n")
    os.chmod(place.file("open"), 0o644)
    place.write("short", "whsec_c2hvcnQ=\n")
    os.chmod(place.file("short"), 0o600)
    good = "http://127.0.0.1/"
    rows = (
        ("webhook: {secret_file: x}", "'webhook' needs 'url': where to post; {type},"
         " {subject} and {id} in it are replaced"),
        ("webhook: /hooks/in", "must begin with http:// or https://"),
        ("webhook: ftp://a.example/", "must begin with http:// or https://"),
        ("webhook: http://169.254.169.254/latest", "link-local"),
        ("webhook: http://0xa9fea9fe/latest", "link-local"),
        ('webhook: "http://[fe80::1]/"', "link-local"),
        ('webhook: "http://{subject}.example/"', "templated_host"),
        ('webhook: "http://a.example/{body}"', "{body}"),
        (f"webhook: {{url: {good}, secret_file: missing}}", "missing"),
        (f"webhook: {{url: {good}, secret_file: open}}", "chmod"),
        (f"webhook: {{url: {good}, secret_files: [short]}}", "24 to 64 bytes"),
        (f"webhook: {{url: {good}, secret: short}}", "24 to 64 bytes"),
        (f"webhook: {{url: {good}, ca_file: none.pem}}", "ca_file"),
        (f"webhook: {{url: {good}, client_cert_file: a}}", "client_key_file"),
        (f'webhook: {{url: {good}, headers: ["Host: a"]}}', "'Host'"),
        (f'webhook: {{url: {good}, headers: ["a"]}}', "Name: value"),
        (f"webhook: {{url: {good}, allow_private: [10.0.0.0/8]}}",
         "templated_host"),
        (f"webhook: {{url: {good}, timout: 1s}}", "unknown key 'timout'"),
        ("publish: {http: {}}", "needs 'url'"),
    )
    for text, error in rows:
        place.configure("store: sqlite:box.db\nchannels:\n  out:\n"
                        f"    handlers:\n      mail: {{{text}}}\n")
        result = place.run("check")
        assert result.code in (1, 2), (text, result)
        lines = [line for line in (result.err + result.out).splitlines()
                 if "postern.yaml:5:" in line]
        equal(len(lines), 1, text, result.err)
        assert error in lines[0], (text, lines)


main()
