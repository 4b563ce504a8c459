#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Who may do what: tokens, their roles, and requests of web pages."""

import contextlib
import http.client
import json
import os
import sqlite3

from support import PATIENCE_S, case, equal, main, until

TOKENS = {role: role[0] * 40 for role in ("send", "read", "operate", "admin")}
TOKENS["reader"] = "payloads" * 5
TOKENS["shop"] = "orders-only" * 4
TOKENS["mail"] = "other-channel" * 4
TOKENS["far"] = "admin-of-other" * 4

CONFIG = """\
store: sqlite:box.db
auth:
  tokens:
    - {name: send, role: send, token_file: send.token}
    - {name: read, role: read, token_file: read.token}
    - {name: operate, role: operate, token_file: operate.token}
    - {name: admin, role: admin, token_file: admin.token}
    - {name: reader, role: read, token_file: reader.token, payloads: true}
    - {name: shop, role: send, token_file: shop.token, channels: [orders]}
    - {name: mail, role: operate, token_file: mail.token, channels: [other]}
    - {name: far, role: admin, token_file: far.token, channels: [other],
       payloads: true}
channels:
  orders:
    former_names: [purchases]
    handlers:
      log:
        exec: [/bin/sh, -c, 'exit 65']
      work:
        pull: {}
  other:
    handlers:
      letters:
        exec: [/bin/true]
"""


def configure(place, text=CONFIG):
    for name, token in TOKENS.items():
        path = place.write(f"{name}.token", token + "\n")
        os.chmod(path, 0o640)
    place.configure(text)


def request(server, method, path, token=None, body=None, **headers):
    """Sends a request; returns the status, the headers and the body."""
    client = http.client.HTTPConnection(server.url[len("http://"):],
                                        timeout=PATIENCE_S)
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if body is not None and "Content-Type" not in headers:
        headers["Content-Type"] = "application/json"
    client.request(method, path, body=body,
                   headers={k.replace("_", "-"): v for k, v in headers.items()})
    response = client.getresponse()
    text = response.read().decode()
    client.close()
    return response.status, response.headers, text


def status(*args, **options):
    return request(*args, **options)[0]


def send(server, token, key, channel="orders"):
    return status(server, "POST", f"/v1/channels/{channel}/messages", token,
                  body="body", Idempotency_Key=key)


@case("each role may do what it is for, and nothing else")
def _(place):
    configure(place)
    server = place.serve(tcp=True)
    equal(send(server, TOKENS["send"], "a"), 202)
    until(lambda: place.state("a", "log") == "poisoned")
    mark = json.dumps({"handler": "h", "key": "k", "do": "has"})
    filtered = json.dumps({"filter": {"state": "poisoned"}, "dry_run": True})
    # A request, and the roles that it is not refused to.
    readers = {"read", "reader", "operate", "admin"}
    operators = {"operate", "admin"}
    rows = [
        ("POST", "/v1/channels/orders/messages", "x", {"send", "admin"}),
        ("POST", "/v1/marks", mark, {"send", "admin"}),
        ("GET", "/v1/stats", None, readers),
        ("GET", "/v1/channels", None, readers),
        ("GET", "/v1/handlers", None, readers),
        ("GET", "/v1/nodes", None, readers),
        ("GET", "/v1/sources", None, readers),
        ("GET", "/v1/deliveries", None, readers),
        ("GET", "/v1/groups", None, readers),
        ("GET", "/v1/messages?id=a", None, readers),
        ("GET", "/v1/messages/1", None, readers),
        ("GET", "/metrics", None, readers),
        ("GET", "/healthz?verbose", None, readers),
        ("GET", "/v1/messages/1/body", None, {"reader", "admin"}),
        ("POST", "/v1/deliveries/retry", filtered, operators),
        ("POST", "/v1/deliveries/discard", filtered, operators),
        ("POST", "/v1/handlers/letters/pause", "{}", operators),
        ("POST", "/v1/handlers/letters/resume", "{}", operators),
        ("POST", "/v1/channels/other/close", "{}", operators),
        ("POST", "/v1/channels/other/open", "{}", operators),
        ("POST", "/v1/deliveries/1/letters/retry", "{}", operators),
        ("POST", "/v1/deliveries/1/letters/discard", "{}", operators),
        ("POST", "/v1/deliveries/1/letters/cancel", "{}", operators),
        ("POST", "/v1/cleanup", "{}", {"admin"}),
        ("GET", "/healthz", None, {"send", *readers}),
        ("GET", "/readyz", None, {"send", *readers}),
    ]
    for method, path, body, allowed in rows:
        for name in ("send", "read", "reader", "operate", "admin"):
            code, _, text = request(server, method, path, TOKENS[name], body)
            equal(code != 403, name in allowed, method, path, name, text)
            assert code != 401, (path, name)
            if code == 403:
                assert f"of the token '{name}' does not allow this; it needs the " \
                    "role " in json.loads(text)["detail"], text
        public = path in ("/healthz", "/readyz")
        code, headers, text = request(server, method, path, None, body)
        equal(code, 200 if public else 401, path, text)
        if not public:
            equal(headers["WWW-Authenticate"], "Bearer")
            assert "--token-file" in json.loads(text)["detail"], text
    assert "body" not in json.loads(
        request(server, "GET", "/v1/messages/1", TOKENS["read"])[2])
    equal(json.loads(request(server, "GET", "/v1/messages/1",
                             TOKENS["reader"])[2])["body"], "body")


@case("only the whole token is the token")
def _(place):
    configure(place)
    server = place.serve(tcp=True)
    token = TOKENS["admin"]
    for wrong in (token[:-1], token + "a", token[:22], token.upper(), "a", "",
                  TOKENS["send"][:20] + token[20:], f"{token} {token}"):
        code, headers, text = request(server, "GET", "/v1/stats",
                                      Authorization=f"Bearer {wrong}")
        equal(code, 401, wrong)
        assert "invalid_token" in headers["WWW-Authenticate"], headers
        assert "not one of this server's" in text, text
    for wrong in (f"Basic {token}", token, f"Bearer{token}"):
        equal(status(server, "GET", "/v1/stats", Authorization=wrong), 401, wrong)
    for right in (f"Bearer {token}", f"bearer  {token}"):
        equal(status(server, "GET", "/v1/stats", Authorization=right), 200, right)


@case("no role and no route lead a token to another channel than its own")
def _(place):
    configure(place)
    server = place.serve(tcp=True)
    equal(send(server, TOKENS["send"], "a"), 202)
    until(lambda: place.state("a", "log") == "poisoned")
    result = {"seq": 1, "handler": "work", "fence": 1, "outcome": "done"}
    rows = [("GET", path, None) for path in (
        "/v1/deliveries", "/v1/deliveries?channel=orders",
        "/v1/deliveries?channel=purchases", "/v1/deliveries?handler=log",
        "/v1/deliveries?channel=other&handler=log", "/v1/deliveries?seq=1",
        "/v1/groups", "/v1/groups?channel=orders", "/v1/groups?handler=log",
        "/v1/messages?id=a", "/v1/messages?id=a&channel=orders",
        "/v1/messages/1", "/v1/messages/1/body", "/v1/stats", "/v1/channels",
        "/v1/handlers", "/v1/nodes", "/v1/sources", "/metrics",
        "/healthz?verbose")]
    rows += [("POST", path, body) for path, body in (
        ("/v1/channels/orders/messages", "x"),
        ("/v1/channels/orders/close", {}), ("/v1/channels/orders/open", {}),
        ("/v1/handlers/log/pause", {}), ("/v1/handlers/log/resume", {}),
        ("/v1/handlers/work/claim", {}),
        ("/v1/deliveries/settle", {"items": [result]}),
        ("/v1/deliveries/1/work/extend", {"fence": 1, "lease": "60s"}),
        ("/v1/deliveries/1/log/retry", {}),
        ("/v1/deliveries/1/log/discard", {}),
        ("/v1/deliveries/1/log/cancel", {}), ("/v1/deliveries/1//discard", {}),
        ("/v1/deliveries/retry", {"filter": {"handler": "log"}}),
        ("/v1/deliveries/discard", {"filter": {"seq": 1}}),
        ("/v1/marks", {"handler": "log", "key": "k", "do": "has"}),
        ("/v1/cleanup", {}))]
    for method, path, body in rows:
        body = json.dumps(body) if isinstance(body, dict) else body
        code, _, text = request(server, method, path, TOKENS["far"], body,
                                Idempotency_Key="k")
        equal(code, 403, method, path, text)
        assert '"body"' not in text and "exit 65" not in text, text
    equal(place.state("a", "log"), "poisoned")
    equal(place.state("a", "work"), "pending")


@case("a token is for its channels only")
def _(place):
    configure(place)
    server = place.serve(tcp=True)
    shop, mail = TOKENS["shop"], TOKENS["mail"]
    equal(send(server, shop, "a"), 202)
    equal(send(server, shop, "b", "purchases"), 202)
    equal(send(server, shop, "c", "other"), 403)
    equal(send(server, shop, "c", "nowhere"), 403)
    equal(send(server, TOKENS["send"], "c", "other"), 202)
    until(lambda: place.state("a", "log") == "poisoned")
    retry = "/v1/deliveries/1/log/retry"
    equal(status(server, "POST", retry, mail, "{}"), 403)
    equal(status(server, "POST", "/v1/handlers/log/pause", mail, "{}"), 403)
    equal(status(server, "POST", "/v1/handlers/letters/pause", mail, "{}"), 200)
    equal(status(server, "POST", "/v1/channels/orders/close", mail, "{}"), 403)
    equal(status(server, "GET", "/v1/deliveries?channel=other", mail), 200)
    equal(status(server, "GET", "/v1/deliveries?channel=orders", mail), 403)
    equal(status(server, "GET", "/v1/deliveries", mail), 403)
    for path in ("/v1/messages/1", "/v1/messages/1/body"):
        code, _, text = request(server, "GET", path, mail)
        assert code == 403 and "orders" not in text, text
    equal(status(server, "GET", "/v1/stats", mail), 403)
    every = json.dumps({"filter": {"state": "poisoned"}})
    equal(status(server, "POST", "/v1/deliveries/discard", mail, every), 403)
    equal(place.state("a", "log"), "poisoned")


@case("a token of one channel does not reach what its handler has of another")
def _(place):
    configure(place, CONFIG.replace("      letters:", "      moved:\n        exec: [/bin/false]\n"
                                    "        max_attempts: 1\n      letters:"))
    server = place.serve(tcp=True)
    equal(send(server, TOKENS["send"], "a", "other"), 202)
    until(lambda: place.state("a", "moved") == "poisoned")
    equal(server.stop(), 0)
    configure(place, CONFIG.replace("role: operate, token_file: mail.token, channels: [other]",
                                    "role: operate, token_file: mail.token, channels: [orders]")
              .replace("      work:", "      moved:\n        exec: [/bin/false]\n"
                       "        max_attempts: 1\n      work:"))
    server = place.serve(tcp=True)
    mail = TOKENS["mail"]
    for path in ("deliveries", "groups"):
        for token, count in ((TOKENS["operate"], 1), (mail, 0)):
            code, _, text = request(server, "GET", f"/v1/{path}?handler=moved", token)
            equal((code, len(json.loads(text)["items"])), (200, count), path)
    every = json.dumps({"filter": {"handler": "moved"}})
    code, _, text = request(server, "POST", "/v1/deliveries/discard", mail, every)
    equal((code, json.loads(text)["total"]), (200, 0))
    for verb in ("retry", "discard", "cancel"):
        equal(status(server, "POST", f"/v1/deliveries/1/moved/{verb}", mail, "{}"), 403)
    equal(place.state("a", "moved"), "poisoned")
    equal(send(server, TOKENS["send"], "b"), 202)
    until(lambda: place.state("b", "moved") == "poisoned")
    equal(status(server, "POST", "/v1/deliveries/2/moved/discard", mail, "{}"), 200)
    equal(status(server, "POST", "/v1/deliveries/9/moved/discard", mail, "{}"), 404)


@case("a token for a channel by a former name is for that channel")
def _(place):
    configure(place, CONFIG.replace("channels: [orders]", "channels: [purchases]"))
    server = place.serve(tcp=True)
    equal(send(server, TOKENS["shop"], "a"), 202)
    equal(send(server, TOKENS["shop"], "b", "purchases"), 202)
    equal(send(server, TOKENS["shop"], "c", "other"), 403)


@case("a token of one channel does not see what is left of a message that is missing")
def _(place):
    configure(place)
    server = place.serve(tcp=True)
    equal(send(server, TOKENS["send"], "a"), 202)
    until(lambda: place.state("a", "log") == "poisoned")
    equal(server.stop(), 0)
    with contextlib.closing(sqlite3.connect(place.file("box.db"))) as database, database:
        database.execute("DELETE FROM postern_message")
    server = place.serve(tcp=True)
    path = "/v1/messages/1"
    equal(status(server, "GET", path, TOKENS["operate"]), 200)
    for token in ("mail", "far"):
        code, _, text = request(server, "GET", path, TOKENS[token])
        assert code in (403, 404) and "log" not in text, text


@case("the socket beside the store needs no token, a shared one does")
def _(place):
    configure(place, "listen: [unix:own.sock, unix:all.sock]\n" + CONFIG)
    server = place.serve()
    place.send("a", channel="other")
    place.ok("stats")
    place.ok("pause", "letters")
    server.stop()
    for mode, expected in (("0600", b" 200 "), ("0660", b" 401 ")):
        server = place.serve("--listen=unix:api.sock", f"--listen-mode={mode}")
        answer = place.start(["curl", "-si", "--unix-socket", "api.sock",
                              "http://postern/v1/stats"], stdout=-1)
        assert expected in answer.process.communicate()[0], mode
        place.ok("stats")
        server.stop()


@case("neither tokens nor what is wrong with them are shown")
def _(place):
    configure(place, CONFIG.replace("token_file: send.token",
                                    f"token: {TOKENS['send']}"))
    printed = place.ok("check", "--print").out
    assert "# token: is not shown" in printed, printed
    shown = printed + place.ok("check", "--print", "--json").out
    server = place.serve("--verbose", tcp=True)
    equal(send(server, TOKENS["send"], "a"), 202)
    equal(send(server, TOKENS["send"] + "x", "a"), 401)
    equal(status(server, "POST", "/v1/handlers/log/pause", TOKENS["operate"], "{}"),
          200)
    shown += server.stderr()
    shown += place.ok("show", "a", "--json").out
    shown += request(server, "GET", "/v1/stats", TOKENS["read"])[2]
    for token in TOKENS.values():
        assert token not in shown, shown
    lines = [json.loads(line) for line in server.stderr().splitlines()]
    change = [line for line in lines if line["event"] == "operator_request"][0]
    equal(change["token"], "operate")
    assert change["client"].startswith("127.0.0.1:"), change


@case("without tokens a web page cannot reach the server")
def _(place):
    place.configure(CONFIG[:CONFIG.index("auth:")]
                    + CONFIG[CONFIG.index("channels:\n"):])
    server = place.serve("--hosts", "shop.example, inbox", tcp=True)
    here = server.url[len("http://"):]
    for host in (here, "localhost", "LOCALHOST:80", "127.0.0.1", "10.0.0.1:7420",
                 "[::1]", "[::1]:7420", "shop.example", "Shop.Example:443", "inbox"):
        equal(status(server, "GET", "/v1/stats", Host=host), 200, host)
    for host in ("evil.example", "evil.example:7420", "localhost.evil.example",
                 "127.0.0.1.evil.example", "shop.example.evil", "op.example",
                 "[::1", "[]", "", "1.2.3", "[evil.example]"):
        code, _, text = request(server, "GET", "/v1/stats", Host=host)
        equal(code, 421, host)
        assert "add it to 'hosts'" in text, text
        equal(status(server, "POST", "/v1/handlers/log/pause", body="",
                     Content_Type="text/plain", Host=host), 421)
    for origin in ("http://evil.example", "null", "http://localhost:3000", "file://",
                   f"http://{here}.evil.example"):
        equal(status(server, "POST", "/v1/handlers/log/pause", body="",
                     Content_Type="text/plain", Origin=origin), 403, origin)
    equal(place.ok("stats", "--json").json()["handlers"][0]["paused"], False)
    equal(status(server, "POST", "/v1/handlers/log/pause", Origin=f"http://{here}"),
          200)


@case("with tokens a server may be reached from other machines by any name")
def _(place):
    configure(place)
    server = place.serve("--listen=0.0.0.0:0")
    port = server.serving()["listen"].split(":")[1]
    server.url = f"http://127.0.0.1:{port}"
    equal(status(server, "GET", "/v1/stats", TOKENS["read"], Host="any.example"), 200)
    equal(status(server, "GET", "/v1/stats", Host="any.example"), 401)
    equal(status(server, "GET", "/v1/stats", Host="localhost"), 401)


@case("a refused sender does not have to be listened to")
def _(place):
    configure(place)
    server = place.serve(tcp=True)
    host = server.url[len("http://"):]
    client = http.client.HTTPConnection(host, timeout=PATIENCE_S)
    client.putrequest("POST", "/v1/channels/orders/messages")
    client.putheader("Content-Length", "1000000")
    client.putheader("Expect", "100-continue")
    client.putheader("Idempotency-Key", "a")
    client.endheaders()
    response = client.getresponse()
    equal((response.status, response.headers["Connection"]), (401, "close"))
    client.close()


@case("a mistake in the tokens is one line that says what would be right")
def _(place):
    configure(place)
    place.write("open.token", "x" * 40)
    os.chmod(place.file("open.token"), 0o644)
    place.write("short.token", "hunter2")
    os.chmod(place.file("short.token"), 0o600)
    for token, says in (
        ("{name: a, role: read, token_file: open.token}",
         "token_file: 'open.token' is world-readable (mode 0644): chmod o-r"),
        ("{name: a, role: read, token_file: none.token}", "none.token"),
        ("{name: a, role: read, token_file: short.token}",
         "a token must have 22 to 512 characters, not 7; make one with: "
         "openssl rand -hex 32"),
        ("{name: a, role: read}", "a token needs 'token_file: FILE' or 'token: TEXT'"),
        ("{name: a, role: root, token_file: read.token}",
         "one of send, read, operate, admin, not 'root'"),
        ("{name: a, token_file: read.token}",
         "a token needs a 'role', one of send, read, operate, admin"),
        ("{role: read, token_file: read.token}", "a token needs a 'name'"),
        ("{name: a, role: send, token_file: read.token, payloads: true}",
         "payloads: the role 'send' reads nothing"),
        ("{name: a, role: read, token_file: read.token, channels: [orderz]}",
         "the token 'a' is for a channel 'orderz', which is not configured"),
        ("{name: a, role: read, tokenfile: read.token}",
         "unknown key 'tokenfile' in a token; did you mean 'token_file'?"),
        ("{name: a, role: read, token_file: read.token}, "
         "{name: b, role: send, token_file: read.token}",
         "the tokens 'a' and 'b' are the same text"),
        ("{name: a, role: read, token_file: read.token}, "
         "{name: a, role: send, token_file: send.token}",
         "there are two tokens with the name 'a'"),
        ("secret", "a token must be a mapping"),
    ):
        place.configure(f"auth: {{tokens: [{token}]}}\n"
                        "channels: {orders: {handlers: {h: {exec: [/bin/true]}}}}\n")
        result = place.fails(2, "check", says=says)
        equal(len(result.err.splitlines()), 1, result)
        assert result.err.startswith("postern: postern.yaml:1:"), result
        assert "hunter2" not in result.err, result
        place.fails(2, "serve", says="configuration_mistake")


main()
