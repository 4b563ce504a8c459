#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""RabbitMQ over TLS: sources and publishers by amqps://, and certificates that
are not trusted."""

import os
import subprocess
import sys
import tempfile

import rabbit
from support import case, equal, main, until

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from proxy import TO_CLIENT, TO_SERVER, Proxy  # noqa: E402
from rabbitmq import quiet_port  # noqa: E402

LARGE = b"x" * 40000  # longer than a record of TLS

TLS_CONFIG = """\
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {path}/ca.crt
ssl_options.certfile = {path}/broker.crt
ssl_options.keyfile = {path}/broker.key
ssl_options.verify = verify_none
ssl_options.fail_if_no_peer_cert = false
"""

PORT = quiet_port()
FILES = tempfile.TemporaryDirectory(prefix="postern-tls-")


def openssl(*words):
    subprocess.run(["openssl", *words], cwd=FILES.name, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def authority(name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
            f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")


def certificate():
    with open(os.path.join(FILES.name, "names"), "w", encoding="utf-8") as file:
        file.write("subjectAltName=DNS:localhost\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-subj", "/CN=broker", "-keyout", "broker.key",
            "-out", "broker.csr")
    openssl("x509", "-req", "-in", "broker.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-days", "2", "-extfile", "names", "-out", "broker.crt")


def ca_file(name="ca"):
    return os.path.join(FILES.name, f"{name}.crt")


def url(host="localhost", port=None, scheme="amqps"):
    return f"{scheme}://guest:guest@{host}:{port or PORT}/"


@case("a source and a publisher use amqps, with messages of any size")
def _(place):
    queue, target = rabbit.queue(), rabbit.queue()
    text = rabbit.inbox([rabbit.source(queue.name, url(), ca_file=ca_file())])
    place.configure(text + rabbit.publisher(
        url=url(), ca_file=ca_file(), routing_key=target.name))
    place.serve()
    queue.put_all([(LARGE if i % 10 == 0 else b"x", {"message_id": f"m{i}"})
                   for i in range(300)])
    until(lambda: target.count() == 300)
    until(lambda: queue.count() == 0)
    bodies = {}
    for _ in range(300):
        properties, body = target.get()
        bodies[properties.message_id] = len(body)
    equal(bodies, {f"m{i}": len(LARGE) if i % 10 == 0 else 1 for i in range(300)})
    equal(place.started[0].stop(), 0)


@case("a connection of TLS that is cut anywhere loses no message")
def _(place):
    queue = rabbit.queue()
    queue.put_all([(b"x" * 1000, {"message_id": f"m{i}"}) for i in range(600)])
    with Proxy(PORT) as proxy:
        place.configure(rabbit.inbox(
            [rabbit.source(queue.name, url(port=proxy.port), ca_file=ca_file(),
                           prefetch=50)], "sql: select 1"))
        # In the handshake, while logging in, and in the middle of messages.
        cuts = [(TO_CLIENT, 700), (TO_SERVER, 900), (TO_CLIENT, 20000),
                (TO_SERVER, 1500), (TO_CLIENT, 70000)]
        proxy.strike(*cuts[0])
        place.serve()
        for cut in cuts[1:]:
            until(lambda: proxy.struck)
            proxy.strike(*cut)
        until(lambda: proxy.struck)
        rabbit.await_accepted(place, 600)
        until(lambda: queue.count() == 0)
        equal(rabbit.accepted(place), 600)
        equal(place.started[0].stop(), 0)


@case("a certificate that is not trusted is refused, and nothing is read")
def _(place):
    authority("other")
    queue, target = rabbit.queue(), rabbit.queue()
    queue.put(message_id="m1")
    sources = [
        ("issuer", url(), {"ca_file": ca_file("other")}),
        ("system", url(), {}),
        ("name", url("127.0.0.1"), {"ca_file": ca_file()}),
        ("plain", url(port=rabbit.server.port), {"ca_file": ca_file()}),
        ("mixed", url(scheme="amqp"), {}),
        ("nofile", url(), {"ca_file": "/nowhere/ca.crt"}),
    ]
    place.configure(rabbit.inbox([
        f"{{name: {name}, {rabbit.source(queue.name, where, **more)[1:]}"
        for name, where, more in sources]) + rabbit.publisher(
            url=url(), ca_file=ca_file("other"), routing_key=target.name))
    server = place.serve()
    for name, _, _ in sources:
        until(lambda: rabbit.state(place, name)["last_error"])
        text = rabbit.state(place, name)["last_error"]
        print(f"# {name}: {text}")
        assert "RabbitMQ at '" in text or "/nowhere/ca.crt" in text, text
        assert "guest" not in text, text
        assert not rabbit.state(place, name)["connected"], name
    place.send("m2", "x", channel="in")
    until(lambda: place.delivery("m2", "mirror")["last_error"])
    print(f"# publisher: {place.delivery('m2', 'mirror')['last_error']}")
    equal(place.delivery("m2", "mirror")["failures"], 0)
    equal((queue.count(), target.count()), (1, 0))
    equal(server.stop(), 0)


with FILES:
    authority("ca")
    certificate()
    rabbit.main(main, config=TLS_CONFIG.format(port=PORT, path=FILES.name))
