#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The server over TLS: with curl, Python's ssl and the commands."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import threading
import warnings

from support import PATIENCE_S, case, equal, lines, main, reload, until

CONFIG = """\
listen: [127.0.0.1:0, unix:api.sock]
ingest_listen: 127.0.0.1:0
tls: {{cert_file: {name}.crt, key_file: {name}.key}}
store: sqlite:box.db
channels:
  orders:
    handlers: {{log: {{exec: [/bin/true], timeout: 10s}}}}
"""
PATH = "/v1/channels/orders/messages"


def certificate(place, name, *more):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=" + name,
         "-addext", "subjectAltName=IP:127.0.0.1", "-out", place.file(name + ".crt"),
         "-keyout", place.file(name + ".key"), *(more or ("-days", "30"))], check=True, stderr=subprocess.DEVNULL)
    os.chmod(place.file(name + ".key"), 0o600)


def serve(place, *args, name="one"):
    """A server with a certificate of this name, and its two addresses."""
    certificate(place, name)
    place.configure(CONFIG.format(name=name))
    server = place.serve(*args)
    parts = server.serving()["listen"].split(",")
    server.address, server.ingest = parts[0], parts[2]
    return server


def context(place, name="one"):
    return ssl.create_default_context(cafile=place.file(name + ".crt"))


def connect(place, address, name="one", trusting=None):
    host, port = address.split(":")
    plain = socket.create_connection((host, int(port)), PATIENCE_S)
    return (trusting or context(place, name)).wrap_socket(
        plain, server_hostname=host)


def read_all(client):
    answer = b""
    while piece := client.recv(65536):
        answer += piece
    return answer


def ask(place, address, text, **options):
    with connect(place, address, **options) as client:
        client.sendall(text)
        return read_all(client)


def shown(place, address):
    """The files whose certificate the server has shown."""
    with connect(place, address, trusting=ssl._create_unverified_context()) as client:
        pem = ssl.DER_cert_to_PEM_cert(client.getpeercert(binary_form=True))
    return [name for name in ("one", "two")
            if place.read(name + ".crt").strip() == pem.strip()]


@case("a message is accepted and read over TLS, on both addresses")
def _(place):
    server = serve(place)
    for address, key in ((server.address, "a"), (server.ingest, "b")):
        client = http.client.HTTPSConnection(address, context=context(place),
                                             timeout=PATIENCE_S)
        for status in (202, 200):
            client.request("POST", PATH, body=b"body", headers={"X-Message-Id": key})
            response = client.getresponse()
            equal((response.status, len(response.read()) > 0), (status, True))
        client.request("GET", "/v1/stats")
        equal(client.getresponse().status, 200 if key == "a" else 404)
        client.close()
    # The sockets are plain.
    equal(place.ok("stats", "--server", f"unix:{place.path}/api.sock").code, 0)
    equal(place.show("a")["body"], "body")
    equal(server.stop(), 0)


@case("a client that does not trust the certificate sends nothing")
def _(place):
    server = serve(place)
    certificate(place, "two")
    try:
        connect(place, server.address, name="two").close()
        raise AssertionError("trusted")
    except ssl.SSLCertVerificationError:
        pass
    equal(place.ok("list", "--json").json(), [])


@case("versions before TLS 1.2 are refused")
def _(place):
    server = serve(place)
    seen = {}
    for version in ("TLSv1", "TLSv1_1", "TLSv1_2", "TLSv1_3"):
        trusting = context(place)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trusting.minimum_version = ssl.TLSVersion.TLSv1
            trusting.maximum_version = getattr(ssl.TLSVersion, version)
            trusting.minimum_version = getattr(ssl.TLSVersion, version)
        trusting.set_ciphers("ALL:@SECLEVEL=0")
        try:
            with connect(place, server.address, trusting=trusting) as client:
                seen[version] = client.version()
        except (ssl.SSLError, OSError):
            seen[version] = None
    equal(seen, {"TLSv1": None, "TLSv1_1": None, "TLSv1_2": "TLSv1.2",
                 "TLSv1_3": "TLSv1.3"})


@case("requests that are malformed are refused over TLS, too")
def _(place):
    server = serve(place)
    line = b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
    second = b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for text in (
        line + b"X-Message-Id: a\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        line + b"X-Message-Id: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        line + b"X-Message-Id : a\r\nContent-Length: 1\r\n\r\na",
        line + b"Host: localhost\r\nX-Message-Id: a\r\nContent-Length: 1\r\n\r\na",
        line + b"X-Message-Id: a\0b\r\nContent-Length: 1\r\n\r\na",
        line + b"X-Message-Id: a\r\n b\r\nContent-Length: 1\r\n\r\na",
        line + b"X-Message-Id: a\nContent-Length: 1\r\n\r\na",
        line + b"X-Message-Id: a\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n",
    ):
        answer = ask(place, server.address, text + second)
        assert answer.startswith(b"HTTP/1.1 400 "), (text, answer)
        equal(answer.count(b"HTTP/1.1"), 1, text)
        assert b"application/problem+json" in answer, answer
    equal(place.ok("list", "--json").json(), [])


@case("a large body arrives whole over TLS, however it is cut into records")
def _(place):
    server = serve(place)
    body = bytes(range(256)) * 4000
    for i, piece in enumerate((100, 4096, 16384, 16385, 81920, len(body))):
        head = (b"POST %s HTTP/1.1\r\nHost: localhost\r\nX-Message-Id: m%d\r\n"
                b"Content-Length: %d\r\nConnection: close\r\n\r\n"
                % (PATH.encode(), i, len(body)))
        text = head + body
        with connect(place, server.address) as client:
            for at in range(0, len(text), piece):
                client.sendall(text[at:at + piece])
            assert read_all(client).startswith(b"HTTP/1.1 202 "), piece
        equal(place.ok("show", f"m{i}", "--body").raw, body)
        # So does the answer.
        answer = ask(place, server.address, b"GET /v1/messages/%d/body HTTP/1.1\r\n"
                     b"Host: localhost\r\nConnection: close\r\n\r\n" % (i + 1))
        assert answer.endswith(b"\r\n\r\n" + body), piece


@case("requests that follow each other in one record are all answered")
def _(place):
    server = serve(place)
    one = (b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
           b"X-Message-Id: m%d\r\nContent-Length: 4\r\n\r\nbody")
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    text = b"".join(one % i for i in range(60)) + last
    for cut in (len(text), 1000, 7):
        with connect(place, server.address) as client:
            for at in range(0, len(text), cut):
                client.sendall(text[at:at + cut])
            answer = read_all(client)
        equal(answer.count(b"HTTP/1.1 20"), 61, cut)
    equal(len(place.ok("list", "--json", "--limit", "1000").json()), 60)


@case("many connections at once are served over TLS")
def _(place):
    server = serve(place)
    failures = []

    def sender(number):
        client = http.client.HTTPSConnection(server.address, timeout=PATIENCE_S,
                                             context=context(place))
        for i in range(10):
            client.request("POST", PATH, body=b"x" * 5000,
                           headers={"X-Message-Id": f"{number}-{i}"})
            response = client.getresponse()
            response.read()
            if response.status != 202:
                failures.append(response.status)
        client.close()

    threads = [threading.Thread(target=sender, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(failures, [])
    equal(len(place.ok("list", "--json", "--limit", "1000").json()), 240)


@case("who does not speak TLS is told so, and others are served on")
def _(place):
    server = serve(place)
    host, port = server.address.split(":")
    open_one = connect(place, server.address)
    for text in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\0" * 5000,
                 b"\r\n" * 3000):
        with socket.create_connection((host, int(port)), PATIENCE_S) as client:
            client.sendall(text)
            answer = read_all(client)
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n"), answer
        head, problem = answer.split(b"\r\n\r\n", 1)
        equal(json.loads(problem)["detail"], "this address speaks https")
        assert b"Content-Length: %d\r\n" % len(problem) in head + b"\r\n", head
    # A record that is none, and a client that only connects.
    silent = socket.create_connection((host, int(port)), PATIENCE_S)
    with socket.create_connection((host, int(port)), PATIENCE_S) as client:
        client.sendall(b"\x16\x03\x01\xff\xff" + b"\xff" * 3000)
        try:
            answer = read_all(client)
        except ConnectionResetError:
            answer = b""
        assert not answer.startswith(b"HTTP"), answer
    open_one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert open_one.recv(100).startswith(b"HTTP/1.1 200"), server.stderr()
    silent.close()
    result = place.fails(2, "stats", "--server", "http://" + server.address,
                         says="this address speaks https")
    equal(len(result.err.splitlines()), 1, result)


@case("SIGHUP puts another certificate in place, and open connections go on")
def _(place):
    server = serve(place)
    equal(shown(place, server.address), ["one"])
    kept = connect(place, server.address)
    certificate(place, "two")
    place.configure(CONFIG.format(name="two"))
    reload(server)
    equal((shown(place, server.address), shown(place, server.ingest)),
          (["two"], ["two"]))
    kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert kept.recv(100).startswith(b"HTTP/1.1 200"), server.stderr()
    # The same names, other files.
    for end in (".crt", ".key"):
        os.replace(place.file("one" + end), place.file("two" + end))
    reload(server)
    place.write("one.crt", place.read("two.crt"))
    equal(shown(place, server.address), ["one", "two"])
    # A pair that does not belong together is refused, and the former one stays.
    certificate(place, "three")
    os.replace(place.file("three.key"), place.file("two.key"))
    reload(server, "reload_refused")
    equal([line["message"] for line in lines(server, "configuration_mistake")],
          ["postern.yaml:3:37: key_file: 'two.key' is not the key of the first "
           "certificate in 'two.crt'"])
    equal(shown(place, server.address), ["one", "two"])


@case("to begin or end TLS needs a restart")
def _(place):
    server = serve(place)
    text = CONFIG.format(name="one")
    place.configure(text.replace("tls:", "#"))
    assert "tls: to begin or end it needs a restart" in reload(
        server, "reload_refused")["why"]
    equal(shown(place, server.address), ["one"])
    equal(server.stop(), 0)
    server = place.serve()
    place.configure(text)
    assert "tls: to begin or end it needs a restart" in reload(
        server, "reload_refused")["why"]


def broken(place):
    """Pairs of files that no server can use, and what is said of them."""
    certificate(place, "good")
    certificate(place, "other")
    subprocess.run(["openssl", "pkey", "-aes128", "-passout", "pass:x", "-in",
                    place.file("good.key"), "-out", place.file("locked.key")],
                   check=True)
    os.chmod(place.file("locked.key"), 0o600)
    for name, text in (("empty.key", ""), ("text.key", "no key\n"), ("text.crt", "x\n"),
                       ("open.key", place.read("good.key"))):
        os.chmod(place.write(name, text), 0o644 if name == "open.key" else 0o600)
    os.mkdir(place.file("dir.crt"))
    return (
        ("none.crt", "good.key", "cert_file: no file 'none.crt'"),
        ("dir.crt", "good.key", "cert_file: 'dir.crt' is a directory"),
        ("text.crt", "good.key", "cert_file: 'text.crt' has no certificate in PEM"),
        ("good.key", "good.key", "cert_file: 'good.key' has no certificate in PEM"),
        ("good.crt", "none.key", "key_file: no file 'none.key'"),
        ("good.crt", "empty.key", "key_file: 'empty.key' has no private key in PEM"),
        ("good.crt", "text.key", "key_file: 'text.key' has no private key in PEM"),
        ("good.crt", "good.crt", "key_file: 'good.crt' is world-readable"),
        ("good.crt", "open.key", "key_file: 'open.key' is world-readable (mode "
         "0644): chmod o-r"),
        ("good.crt", "locked.key", "key_file: 'locked.key' has a password"),
        ("good.crt", "other.key", "key_file: 'other.key' is not the key of the "
         "first certificate in 'good.crt'"),
    )


@case("a certificate that cannot be used is one line at start and in check")
def _(place):
    for cert, key, says in broken(place):
        place.configure(CONFIG.format(name="x").replace("x.crt", cert)
                        .replace("x.key", key))
        result = place.fails(2, "serve", says="postern.yaml:3:")
        (line,) = result.err.splitlines()
        assert says in json.loads(line)["message"], (says, line)
        result = place.run("check")
        assert result.code == 2 and says in result.out, (says, result)
    place.configure(CONFIG.format(name="good").replace(", key_file: good.key", ""))
    place.fails(2, "serve", says="postern.yaml:3:18: tls: a certificate needs its key: "
                "add 'key_file'")
    place.configure(CONFIG.format(name="good"))
    # Commands other than serve and check do not read the key.
    os.chmod(place.file("good.key"), 0o000)
    equal(place.send("a").out, "accepted\n")


@case("a certificate that ends soon, or has ended, is a warning")
def _(place):
    def warnings_of(server):
        return [line["message"] for line in lines(server, "configuration_warning")]

    server = serve(place)
    equal(warnings_of(server), [])
    certificate(place, "two", "-days", "6")
    place.configure(CONFIG.format(name="two"))
    reload(server)
    (warning,) = warnings_of(server)
    assert warning.startswith("postern.yaml:3:18: tls: clients refuse the "
                              "certificate from 20"), warning
    assert "clients refuse the certificate from 20" in place.run("check").out
    subprocess.run(
        ["openssl", "x509", "-in", place.file("two.crt"), "-signkey",
         place.file("two.key"), "-days", "-1", "-out", place.file("old.crt")],
        check=True, stderr=subprocess.DEVNULL)
    os.replace(place.file("old.crt"), place.file("two.crt"))
    reload(server)
    assert "the certificate since 20" in warnings_of(server)[1], server.stderr()
    # It is used nevertheless: to refuse it would make things worse.
    equal(shown(place, server.address), ["two"])


@case("a chain of certificates is sent whole")
def _(place):
    certificate(place, "root", "-days", "30", "-addext", "keyUsage=keyCertSign")
    subprocess.run(
        ["openssl", "req", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=leaf", "-x509",
         "-CA", place.file("root.crt"), "-CAkey", place.file("root.key"),
         "-addext", "basicConstraints=critical,CA:FALSE", "-days", "2", "-addext",
         "subjectAltName=IP:127.0.0.1", "-out", place.file("leaf.crt"), "-keyout",
         place.file("leaf.key")], check=True, stderr=subprocess.DEVNULL)
    os.chmod(place.file("leaf.key"), 0o600)
    whole = place.read("leaf.crt") + "a comment\n" + place.read("root.crt")
    place.write("leaf.crt", whole)
    place.configure(CONFIG.format(name="leaf"))
    address = place.serve().serving()["listen"].split(",")[0]
    assert b"200 OK" in ask(place, address, b"GET /healthz HTTP/1.1\r\nHost: localhost"
                            b"\r\nConnection: close\r\n\r\n", name="root")
    sent = subprocess.run(["openssl", "s_client", "-connect", address, "-showcerts"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False)
    equal(sent.stdout.count(b"BEGIN CERTIFICATE"), 2)


@case("commands ask a server over TLS and trust the authorities that they are given")
def _(place):
    server = serve(place)
    certificate(place, "two")
    far = place.file("far")
    os.mkdir(far)
    url = "https://" + server.address

    def run(*args, **env):
        return place.run(*args, "--server", url, cwd=far, env=env)

    result = run("send", "orders", "--id", "a", "--body", "x", POSTERN_CA_FILE="../one.crt")
    equal((result.code, result.out), (0, "accepted\n"), result)
    equal(run("stats", "--ca-file", "../one.crt").code, 0)
    for result in (run("stats"), run("stats", "--ca-file", "../two.crt")):
        equal((result.code, result.out), (4, ""), result)
        assert f"of the server at {url} is not trusted" in result.err, result
    assert "--ca-file FILE names whom" in run("stats").err
    equal(run("stats", "--ca-file", "none.crt").code, 2)
    place.write("text.crt", "nothing\n")
    assert "no certificates in PEM" in run("stats", "--ca-file", "../text.crt").err
    # Another name than that of the certificate.
    other = url.replace("127.0.0.1", "localhost")
    result = place.run("stats", "--server", other, "--ca-file", "one.crt")
    equal(result.code, 4, result)
    assert "is for another host" in result.err, result
    equal(server.stop(), 0)
    place.configure(CONFIG.format(name="one").replace("tls:", "#"))
    server = place.serve()
    url = "https://" + server.serving()["listen"].split(",")[0]
    result = run("stats", "--ca-file", "../one.crt")
    equal(result.code, 4, result)
    until(server.alive)


main()
