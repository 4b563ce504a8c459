# SPDX-License-Identifier: MIT
"""A TCP proxy between a node and its database that can cut connections.

    with Proxy(server.port) as proxy:
        proxy.strike(TO_SERVER, 100)
        place.run("send", …, "--store", server.url(port=proxy.port))
        assert proxy.struck

A strike waits until that many more bytes have passed in one direction, over
all connections together. Exactly these bytes arrive; then every connection
ends for both sides, or, with `hold`, stays open and passes nothing. With
`only` this happens to one connection, on which the last of these bytes passed.
Later connections are not affected. `counts` has the numbers of bytes that
passed.
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
        self.broken = False  # passes nothing any more
        self.held = False  # broken, but stays open
        self.threads = [
            threading.Thread(target=self.pump, args=(client, server, TO_SERVER)),
            threading.Thread(target=self.pump, args=(server, client, TO_CLIENT)),
        ]
        for thread in self.threads:
            thread.start()

    def pump(self, source, sink, direction):
        # Bytes that arrive after a cut are read and discarded: closing a
        # socket with unread bytes would also drop bytes it has sent.
        while True:
            try:
                data = source.recv(CHUNK)
            except OSError:
                data = b""
            if not data:
                break
            self.proxy.pass_on(self, sink, direction, data)
        if not self.held:
            shut_down_sending(sink)

    def cut(self):
        shut_down_sending(self.client)
        shut_down_sending(self.server)

    def end(self):
        """Closes both sides at once; bytes on their way are lost."""
        for side in (self.client, self.server):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed already
        for thread in self.threads:
            thread.join()
        self.client.close()
        self.server.close()


def shut_down_sending(side):
    """Ends one direction; bytes that were sent still arrive."""
    try:
        side.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # closed already


class Proxy:
    """Listens on a port of its own, `port`, for the server on another."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.lock = threading.Lock()  # protects all members below
        self.lines = []
        self.counts = {TO_SERVER: 0, TO_CLIENT: 0}
        self.direction = None  # of the next strike
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
                client.close()  # as the server itself would
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
            pass  # this side has closed; the other one is closed next
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
        """Cancels a strike; held connections end."""
        with self.lock:
            self.direction = None
            for line in self.lines:
                line.held = False
        self.cut_all()

    def stop(self):
        # close() alone does not wake a thread in accept().
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        for line in self.lines:
            line.end()
