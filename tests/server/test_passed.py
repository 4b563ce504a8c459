#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sockets that a service manager listens on and passes to the server."""

import os
import signal
import socket
import subprocess
import threading

from support import PATIENCE_S, case, equal, main, until

CONFIG = """\
listen: systemd
store: sqlite:box.db
channels: {orders: {handlers: {log: {exec: [/bin/sh, -c, 'env > ${DIR}/env']}}}}
"""
# systemd knows the number of the process before the program starts.
SHELL = ["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh"]


def listener(address=("127.0.0.1", 0), family=socket.AF_INET):
    made = socket.socket(family, socket.SOCK_STREAM)
    made.bind(address)
    made.listen(64)
    return made


def url_of(passed):
    return "http://%s:%d" % passed.getsockname()


def activated(passed, names=None):
    """How a process is started that gets these sockets."""
    env = {"LISTEN_FDS": str(len(passed))}
    if names:
        env["LISTEN_FDNAMES"] = names
    kept = [os.dup(one.fileno()) for one in passed]

    def arrange():
        # Out of the way first, so that none is overwritten.
        high = [os.dup2(fd, 200 + i) for i, fd in enumerate(kept)]
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i)

    return {"env": env, "preexec_fn": arrange,
            "pass_fds": range(3, 3 + len(passed))}


def serve(place, passed, names=None):
    place.configure(place.read("postern.yaml") or CONFIG)
    server = place.start([*SHELL, place.command, "serve"],
                         **activated(passed, names))
    until(lambda: server.serving() or not server.alive())
    assert server.alive(), server.stderr()
    return server


def refused(place, passed, names, says):
    result = subprocess.run(
        [*SHELL, place.command, "serve"], cwd=place.path, stderr=subprocess.PIPE,
        timeout=PATIENCE_S, check=False,
        **{**(how := activated(passed, names)), "env": place.environment(how["env"])})
    text = result.stderr.decode()
    equal(result.returncode, 2, text)
    assert says in text, text
    equal(sum("server_failed" in line for line in text.splitlines()), 1)


def post(place, url, key, *args):
    return subprocess.run(
        ["curl", "-sS", "--max-time", str(PATIENCE_S), "-o", "/dev/null", "-w",
         "%{http_code}", "-H", f"Idempotency-Key: {key}", "-d", "x", *args,
         url + "/v1/channels/orders/messages"], cwd=place.path,
        stdout=subprocess.PIPE, check=False).stdout.decode()


@case("a server serves on the sockets that it is passed, and its programs do not get them")
def _(place):
    passed = listener()
    server = serve(place, [passed])
    equal(server.serving()["listen"], "%s:%d" % passed.getsockname())
    equal(post(place, url_of(passed), "a"), "202")
    until(lambda: "CE_ID" in place.read("env"))
    assert "LISTEN" not in place.read("env"), place.read("env")
    equal(server.stop(), 0)


@case("a request that is sent while no server runs is answered by the next one")
def _(place):
    passed = listener()
    for i in range(3):
        results = []
        thread = threading.Thread(
            target=lambda i=i: results.append(post(place, url_of(passed), f"m{i}")))
        thread.start()
        server = serve(place, [passed])
        thread.join()
        equal(results, ["202"])
        equal(server.stop(), 0)
    equal(len(place.ok("list", "--json").json()), 3)


@case("a unix socket that is passed stays when the server stops")
def _(place):
    path = place.file("passed.sock")
    passed = listener(path, socket.AF_UNIX)
    os.chmod(path, 0o600)
    server = serve(place, [passed])
    equal(server.serving()["listen"], "unix:" + path)
    equal(post(place, "http://postern", "a", "--unix-socket", path), "202")
    equal(server.stop(), 0)
    assert os.path.exists(path)
    server = serve(place, [passed])
    equal(post(place, "http://postern", "b", "--unix-socket", path), "202")


@case("names say which socket only accepts messages")
def _(place):
    place.configure("ingest_listen: systemd:public\n" + CONFIG)
    admin, ingest = listener(), listener()
    server = serve(place, [ingest, admin], "public:postern.socket")
    for passed, status in ((admin, "200"), (ingest, "404")):
        equal(post(place, url_of(passed), passed.fileno()), "202")
        stats = subprocess.run(
            ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}",
             url_of(passed) + "/v1/stats"], stdout=subprocess.PIPE, check=True)
        equal(stats.stdout.decode(), status)
    equal(server.stop(), 0)


@case("a socket that others may use needs a token once there are some")
def _(place):
    place.configure("auth: {tokens: [{name: a, role: admin, token: %s}]}\n" % ("a" * 40)
                    + CONFIG)
    path = place.file("passed.sock")
    passed = listener(path, socket.AF_UNIX)
    os.chmod(path, 0o666)
    server = serve(place, [passed])
    equal(post(place, "http://postern", "a", "--unix-socket", path), "401")
    equal(post(place, "http://postern", "a", "--unix-socket", path, "-H",
               "Authorization: Bearer " + "a" * 40), "202")
    equal(server.stop(), 0)


@case("a socket that another user may use alone needs a token, too")
def _(place):
    place.configure("auth: {tokens: [{name: a, role: admin, token: %s}]}\n" % ("a" * 40)
                    + CONFIG)
    path = place.file("passed.sock")
    passed = listener(path, socket.AF_UNIX)
    os.chmod(path, 0o600)
    if os.getuid() != 0:
        return  # only root can give it away
    os.chown(path, 65534, -1)
    server = serve(place, [passed])
    equal(post(place, "http://postern", "a", "--unix-socket", path), "401")
    equal(server.stop(), 0)


@case("no reload takes the tokens from an address that other machines can reach")
def _(place):
    auth = "auth: {tokens: [{name: a, role: admin, token: %s}]}\n" % ("a" * 40)
    place.configure(auth + CONFIG)
    passed = listener(("0.0.0.0", 0))
    url = "http://127.0.0.1:%d" % passed.getsockname()[1]
    server = serve(place, [passed])
    place.configure(CONFIG)
    os.kill(server.pid, signal.SIGHUP)
    until(lambda: "configuration_reloaded" in server.stderr()
          or "reload_refused" in server.stderr())
    equal(post(place, url, "a"), "401")
    assert "add 'auth'" in server.stderr(), server.stderr()
    equal(server.stop(), 0)


@case("what was passed and what is configured must fit")
def _(place):
    place.configure(CONFIG)
    result = place.fails(2, "serve", says="listen: 'systemd' stands for a socket")
    equal(result.err.count('"server_failed"'), 1, result)
    # Meant for another process.
    place.fails(2, "serve", env={"LISTEN_PID": "1", "LISTEN_FDS": "1"},
                says="there is none: start the server by its socket unit")
    refused(place, [listener(("0.0.0.0", 0))], None,
            "which the service manager has passed, and which needs tokens")
    refused(place, [socket.socket(socket.AF_INET, socket.SOCK_DGRAM)], None,
            "descriptor 3 of $LISTEN_FDS is not a socket that listens")
    refused(place, [socket.socket()], None, "descriptor 3 of $LISTEN_FDS")
    place.configure(CONFIG.replace("systemd", "systemd:api"))
    refused(place, [listener()], "other",
            "the service manager has passed a socket 'other': add 'systemd'")
    place.configure(CONFIG.replace("systemd", "127.0.0.1:0"))
    refused(place, [listener()], None, "the service manager has passed a socket ''")
    place.configure(CONFIG.replace("systemd", "systemd, systemd"))
    place.fails(2, "serve", says="the address 'systemd' is given twice")
    assert not os.path.exists(place.file("box.db.sock"))


main()
