#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The server on addresses of TCP: with curl and with Python's http.client."""

import http.client
import json
import os
import socket
import subprocess

from support import CONFIG, PATIENCE_S, case, equal, main, until


def curl(url, *args):
    """Sends a request; returns the status and the body."""
    result = subprocess.run(
        ["curl", "-sS", "--max-time", str(PATIENCE_S), "-w", "\n%{http_code}",
         *args, url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert result.returncode == 0, result
    body, status = result.stdout.decode().rsplit("\n", 1)
    return int(status), body


def post(url, key, body="body"):
    return curl(f"{url}/v1/channels/orders/messages",
                "-H", f"Idempotency-Key: {key}", "--data-binary", body)


def listening():
    """A socket that listens on a free port, and its address."""
    server = socket.create_server(("127.0.0.1", 0))
    return server, f"127.0.0.1:{server.getsockname()[1]}"


@case("a message that is sent twice over TCP is accepted once")
def _(place):
    place.configure()
    server = place.serve(tcp=True)
    status, body = post(server.url, "a")
    equal((status, json.loads(body)["status"]), (202, "accepted"))
    status, body = post(server.url, "a")
    equal((status, json.loads(body)["status"]), (200, "duplicate"))
    equal(post(server.url, "a", "other")[0], 409)
    until(lambda: place.state("a", "log") == "done")
    equal(place.read("log.out"), "body")
    equal(server.stop(), 0)


@case("a connection of TCP serves many requests")
def _(place):
    place.configure()
    server = place.serve(tcp=True)
    client = http.client.HTTPConnection(server.url[len("http://"):],
                                        timeout=PATIENCE_S)
    for i in range(50):
        client.request("POST", "/v1/channels/orders/messages", body=b"x" * i,
                       headers={"X-Message-Id": f"m{i}"})
        response = client.getresponse()
        equal(response.status, 202, response.read())
        response.read()
    client.close()
    equal(place.ok("stats", "--json").code, 0)
    equal(server.stop(), 0)


@case("without a setting a server listens on port 7420 of this machine")
def _(place):
    place.configure()
    printed = place.ok("check", "--print").out
    assert "listen: 127.0.0.1:7420  # default" in printed, printed


@case("a server listens on all its addresses")
def _(place):
    place.configure("listen: [127.0.0.1:0, 'localhost:0', unix:api.sock]\n"
                    "listen_mode: 0660\n" + CONFIG)
    server = place.serve()
    one, two, path = server.serving()["listen"].split(",")
    equal(path, f"unix:{place.path}/api.sock")
    equal(os.stat(place.file("api.sock")).st_mode & 0o777, 0o660)
    equal(os.stat(place.file("box.db.sock")).st_mode & 0o777, 0o600)
    assert one != two, (one, two)
    for address in (one, two):
        equal(curl(f"http://{address}/readyz")[0], 200)
    for name in ("api.sock", "box.db.sock"):
        equal(curl("http://postern/readyz", "--unix-socket", place.file(name))[0],
              200)
    equal(server.stop(), 0)
    assert not os.path.exists(place.file("api.sock"))


@case("a variable and a flag may have several addresses")
def _(place):
    place.configure()
    server = place.serve("--listen", "127.0.0.1:0, unix:a.sock",
                         env={"POSTERN_INGEST_LISTEN": "127.0.0.1:0,unix:b.sock"})
    equal(len(server.serving()["listen"].split(",")), 4)
    equal(server.stop(), 0)


@case("an address of IPv6 is written in brackets")
def _(place):
    place.configure()
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        # A machine without IPv6 says so in one line.
        result = place.fails(4, "serve", "--listen", "[::1]:0",
                             says="cannot listen on '[::1]:0': ")
        equal(len(result.err.splitlines()), 1, result)
        return
    server = place.serve("--listen", "[::1]:0")
    address = server.serving()["listen"]
    assert address.startswith("[::1]:"), address
    equal(curl(f"http://{address}/readyz")[0], 200)


@case("ingest_listen accepts messages and shows nothing")
def _(place):
    place.configure()
    server = place.serve("--listen=none", "--ingest-listen", "127.0.0.1:0")
    url = "http://" + server.serving()["listen"]
    equal(post(url, "a")[0], 202)
    equal(curl(f"{url}/healthz")[0], 200)
    for path in ("/v1/stats", "/v1/deliveries", "/v1/messages/1",
                 "/v1/messages/1/body", "/v1/channels", "/v1/nodes", "/metrics",
                 "/readyz"):
        equal(curl(url + path)[0], 404, path)
    for path in ("/v1/handlers/log/pause", "/v1/channels/orders/close",
                 "/v1/deliveries/1/log/retry", "/v1/cleanup", "/v1/marks",
                 "/v1/deliveries/discard"):
        equal(curl(url + path, "-d", "{}", "-H",
                   "Content-Type: application/json")[0], 404, path)
    equal(place.ok("stats", "--json").json()["handlers"][0]["paused"], False)


@case("an address in use is one line, before anything runs")
def _(place):
    place.configure()
    place.send("a")
    holder, address = listening()
    result = place.fails(
        4, "serve", "--listen", address,
        says=f"cannot listen on '{address}': the port is in use by another process")
    equal([json.loads(line)["event"] for line in result.err.splitlines()],
          ["server_failed"])
    equal(place.read("log.out"), "")
    holder.close()
    server = place.serve("--listen", address)
    equal(server.serving()["listen"], address)


@case("requests that are malformed are refused on TCP, too")
def _(place):
    place.configure()
    server = place.serve(tcp=True)
    host, port = server.url[len("http://"):].split(":")
    line = "POST /v1/channels/orders/messages HTTP/1.1\r\nHost: localhost\r\n"
    for text in (
        line + "X-Message-Id: a\r\nContent-Length: 1\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        line + "X-Message-Id: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        line + "X-Message-Id : a\r\nContent-Length: 1\r\n\r\na",
        line + "Host: localhost\r\nX-Message-Id: a\r\nContent-Length: 1\r\n\r\na",
        line + "X-Message-Id: a\0b\r\nContent-Length: 1\r\n\r\na",
        line + "X-Message-Id: a\r\n b\r\nContent-Length: 1\r\n\r\na",
    ):
        second = "GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with socket.create_connection((host, int(port)), PATIENCE_S) as client:
            client.sendall((text + second).encode())
            answer = b""
            while piece := client.recv(65536):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 400 "), (text, answer)
        equal(answer.count(b"HTTP/1.1"), 1, text)
        assert b"application/problem+json" in answer, answer
    equal(place.ok("list", "--json").json(), [])


def connect(server):
    host, port = server.url[len("http://"):].split(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def first_line(client, request):
    client.sendall(f"{request} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client.recv(12)


@case("a large body arrives whole, however it is cut")
def _(place):
    place.configure()
    server = place.serve(tcp=True)
    body = bytes(range(256)) * 4000
    for i, piece in enumerate((100, 4096, 81920 - 32, 81920, 200000, len(body))):
        with connect(server) as client:
            client.sendall(b"POST /v1/channels/orders/messages HTTP/1.1\r\nHost: "
                           b"localhost\r\nX-Message-Id: m%d\r\nConnection: close"
                           b"\r\nContent-Length: %d\r\n\r\n" % (i, len(body)))
            for at in range(0, len(body), piece):
                client.sendall(body[at:at + piece])
            assert client.recv(65536).startswith(b"HTTP/1.1 202 "), piece
        equal(place.ok("show", f"m{i}", "--body").raw, body)


def memory_of(server):
    with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


# Sanitizers have memory of their own; the build sets this variable for them.
if "CUTS" not in os.environ:

    @case("a thousand idle connections cost little after a request each")
    def _(place):
        place.configure()
        server = place.serve(tcp=True)
        before = memory_of(server)
        clients = [connect(server) for _ in range(1000)]
        for client in clients:
            equal(first_line(client, "GET /healthz"), b"HTTP/1.1 200")
        # Each would keep 160 KiB; 256 of them do.
        used = memory_of(server) - before
        assert used < 80 << 20, used
        for client in clients:
            client.close()
        equal(curl(server.url + "/readyz")[0], 200)


@case("answers that nobody reads have a limit in memory")
def _(place):
    place.configure()
    server = place.serve("--memory-max", "16MiB", "--max-message-size", "8MiB",
                         tcp=True)
    sent = place.send("a", "x" * (3 << 20), "--max-message-size", "8MiB")
    equal(sent.out, "accepted\n", sent)
    clients = [connect(server) for _ in range(8)]
    answers = [first_line(client, "GET /v1/messages/1/body") for client in clients]
    equal(set(answers), {b"HTTP/1.1 200", b"HTTP/1.1 503"}, answers)
    assert 3 <= answers.count(b"HTTP/1.1 200") <= 5, answers
    with connect(server) as client:
        equal(first_line(client, "GET /healthz"), b"HTTP/1.1 200")
    for client in clients:
        client.close()
    until(lambda: curl(server.url + "/v1/messages/1/body", "-o", "/dev/null")[0]
          == 200)


main()
