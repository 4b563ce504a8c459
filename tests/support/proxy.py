# SPDX-License-Identifier: MIT
"""A line that can be cut: a TCP proxy between a node and its database.

    with Proxy(server.port) as proxy:
        proxy.strike(TO_SERVER, 100)
        place.run("send", …, "--store", server.url(port=proxy.port))
        assert proxy.struck

A strike waits until so many bytes more have passed in one direction, over all
connections together. Exactly these bytes arrive; then every connection there
is ends for both sides, or, with `hold`, stays open and lets nothing through.
With `only` this happens to one connection, on which the last of these bytes
passed. Connections that come later are whole. Counts say how many bytes passed.
"""

import socket
import threading

TO_SERVER = "to server"
TO_CLIENT = "to client"
CHUNK = 65536


class Line:
    """One connection: two sockets, and a thread for each direction."""

    def __init__(self, proxy, client, server):
        self.proxy = proxy
        self.client = client
        self.server = server
        self.broken = False  # nothing passes any more
        self.held = False  # the same, and it stays open
        self.threads = [
            threading.Thread(target=self.pump, args=(client, server, TO_SERVER)),
            threading.Thread(target=self.pump, args=(server, client, TO_CLIENT)),
        ]
        for thread in self.threads:
            thread.start()

    def pump(self, source, sink, direction):
        # What comes after a cut is read and thrown away: a socket that is
        # closed with something unread takes back what it has sent before.
        while True:
            try:
                data = source.recv(CHUNK)
            except OSError:
                data = b""
            if not data:
                break
            self.proxy.pass_on(self, sink, direction, data)
        if not self.held:
            hang_up(sink)

    def cut(self):
        hang_up(self.client)
        hang_up(self.server)

    def end(self):
        """Whatever is on its way: no more of it."""
        for side in (self.client, self.server):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has gone by itself
        for thread in self.threads:
            thread.join()
        self.client.close()
        self.server.close()


def hang_up(side):
    """Nothing more comes, but what was sent arrives."""
    try:
        side.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it has gone by itself


class Proxy:
    """Listens on a port of its own, `port`, for the server on another."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.lock = threading.Lock()  # of all below
        self.lines = []
        self.counts = {TO_SERVER: 0, TO_CLIENT: 0}
        self.direction = None  # of the strike that is to come
        self.left = 0
        self.hold = False
        self.only = False
        self.struck = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.accept)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.stop()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:  # closed
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.server_port))
            except OSError:
                client.close()  # as the server would, were it asked directly
                continue
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.lines.append(Line(self, client, server))

    def pass_on(self, line, sink, direction, data):
        with self.lock:
            if line.broken:
                return
            due = self.direction == direction and len(data) >= self.left
            if due:
                data = data[: self.left]
            elif self.direction == direction:
                self.left -= len(data)
            self.counts[direction] += len(data)
            if due:
                self.break_lines([line] if self.only else self.lines)
        try:
            sink.sendall(data)
        except OSError:
            pass  # it has hung up, and the other side will hear of it
        if due:
            self.cut_all()

    def break_lines(self, lines):
        for line in lines:
            line.broken = True
            line.held = self.hold
        self.direction = None
        self.struck = True

    def cut_all(self):
        with self.lock:
            lines = [line for line in self.lines if line.broken and not line.held]
        for line in lines:
            line.cut()

    def strike(self, direction, after, hold=False, only=False):
        """Strike when `after` more bytes have passed in this direction."""
        with self.lock:
            self.direction = direction
            self.left = after
            self.hold = hold
            self.only = only
            self.struck = False

    def calm(self):
        """No strike any more; what is held ends."""
        with self.lock:
            self.direction = None
            for line in self.lines:
                line.held = False
        self.cut_all()

    def stop(self):
        # A close alone does not wake who waits for the next one.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        for line in self.lines:
            line.end()
