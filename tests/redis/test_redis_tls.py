#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TLS: the certificate of a Redis server is checked."""

import subprocess

from scene import Server, case, contains, drive, equal, main, mark, starts


def openssl(place, *words):
    subprocess.run(["openssl", *words], cwd=place.path, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def authority(place, name):
    openssl(place, "req", "-x509", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
            f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")


def certificate(place, name, names, days="2"):
    with open(place.file("names"), "w") as file:
        file.write(f"subjectAltName={names}\n")
    openssl(place, "req", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl(place, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt",
            "-CAkey", "ca.key", "-days", days, "-extfile", "names",
            "-out", f"{name}.crt")


def server_of(place, name):
    return Server(tls={
        "tls-cert-file": place.file(f"{name}.crt"),
        "tls-key-file": place.file(f"{name}.key"),
        "tls-auth-clients": "no",
    }, requirepass="canary")


@case("a server with a certificate that is trusted is used")
def _(place):
    authority(place, "ca")
    certificate(place, "good", "IP:127.0.0.1,DNS:localhost")
    ca = place.file("ca.crt")
    with server_of(place, "good") as server:
        for host in ("127.0.0.1", "localhost"):
            url = server.url(password="canary", host=host, ca_file=ca)
            equal(mark(url, "record", "mail", host), "OK")
            equal(mark(url, "has", "mail", host), "yes")
        out = drive(url, "run", "work", 50, 16, place.file("effects"))
        equal(out.splitlines(), ["OK 50", "DUPLICATE 750"])


@case("an unknown issuer, another name and an old certificate are refused")
def _(place):
    authority(place, "ca")
    authority(place, "other")
    certificate(place, "good", "IP:127.0.0.1")
    certificate(place, "named", "DNS:cache.example,IP:127.0.0.2")
    certificate(place, "old", "IP:127.0.0.1", days="-1")
    for name, ca, wanted in (
            ("good", "other.crt", "self-signed|unable to get"),
            ("good", None, "self-signed|unable to get"),
            ("named", "ca.crt", "mismatch"),
            ("old", "ca.crt", "expired")):
        with server_of(place, name) as server:
            more = {"ca_file": place.file(ca)} if ca else {}
            out = mark(server.url(password="canary", **more), "has", "h", "k")
            starts(out, "INVALID: cannot connect to Redis at '127.0.0.1:")
            contains(out, "the certificate of the server is refused")
            assert any(part in out for part in wanted.split("|")), out
            assert "canary" not in out, out


@case("TLS and plain are not mixed up, and a ca_file must be readable")
def _(place):
    authority(place, "ca")
    certificate(place, "good", "IP:127.0.0.1")
    with server_of(place, "good") as server:
        plain = server.url(password="canary").replace("rediss", "redis")
        starts(mark(plain, "has", "h", "k"), "UNAVAILABLE: ")
        out = mark(server.url(ca_file="/nowhere"), "has", "h", "k")
        starts(out, "INVALID: the certificates of 'ca_file' cannot be read")
    with Server() as server:
        url = server.url().replace("redis://", "rediss://")
        starts(mark(url, "has", "h", "k"), "UNAVAILABLE: cannot connect")


main()
