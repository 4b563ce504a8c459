# SPDX-License-Identifier: MIT
"""A broker of RabbitMQ that does what a test says: a publisher or a consumer of
Postern cannot tell it from a real one until it lies."""

import socket
import threading


class FakeBroker:
    """Speaks enough of AMQP to accept a publisher or a consumer.

    script   called with the socket and the number of messages published so
             far, after each one; what it returns is sent
    consume  called with the number of the connection when a consumer starts;
             what it returns is sent
    ends     so many of the first connections end after that
    frame    the longest frame that it agrees to

    `settled` has what consumers said: the number of the connection, "ack" or
    "reject", the tag, and whether it was for several. `flags` has the flags of
    the properties of each message that was published."""

    def __init__(self, script=None, consume=None, ends=0, frame=131072):
        self.script = script
        self.consume = consume
        self.ends = ends
        self.frame_max = frame
        self.settled = []
        self.flags = []
        self.links = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.connections = 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def url(self):
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def run(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.links.append(link)
            threading.Thread(target=self.serve, args=(link, self.connections),
                             daemon=True).start()

    def serve(self, link, number):
        with link, link.makefile("rb") as file:
            try:
                self.talk(link, file, number)
            except (OSError, ValueError, EOFError):
                pass

    @staticmethod
    def method(channel, class_id, method_id, arguments=b""):
        body = class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + arguments
        return (b"\x01" + channel.to_bytes(2, "big") +
                len(body).to_bytes(4, "big") + body + b"\xce")

    @classmethod
    def ack(cls, tag, multiple=False, nack=False):
        bits = bytes([1 if multiple else 0])
        return cls.method(1, 60, 120 if nack else 80, tag.to_bytes(8, "big") + bits)

    @staticmethod
    def frame(kind, payload, size=None):
        """size: what the frame says of itself."""
        size = len(payload) if size is None else size
        return bytes([kind]) + b"\x00\x01" + size.to_bytes(4, "big") + payload + b"\xce"

    @classmethod
    def deliver(cls, tag):
        return cls.method(1, 60, 60, b"\x07postern" + tag.to_bytes(8, "big") +
                          b"\x00" + b"\x00" + b"\x01q")

    @classmethod
    def header(cls, size, message_id=b"", extra=b"", flags=0):
        """The properties message-id and whatever is given."""
        flags |= 0x0080 if message_id else 0
        properties = bytes([len(message_id)]) + message_id if message_id else b""
        return cls.frame(2, b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") +
                         flags.to_bytes(2, "big") + extra + properties)

    @classmethod
    def message(cls, tag, message_id, body=b"x"):
        return (cls.deliver(tag) + cls.header(len(body), message_id.encode()) +
                cls.frame(3, body))

    def settle(self, number, body):
        what = {80: "ack", 90: "reject"}.get(body[3])
        if body[1] == 60 and what:
            self.settled.append((number, what, int.from_bytes(body[4:12], "big"),
                                 bool(body[12] & 1) and what == "ack"))

    def talk(self, link, file, number):
        if file.read(8) != b"AMQP\x00\x00\x09\x01":
            raise ValueError("no AMQP")
        link.sendall(self.method(0, 10, 10, b"\x00\x09" + b"\x00" * 4 +
                                 b"\x00\x00\x00\x05PLAIN" +
                                 b"\x00\x00\x00\x05en_US"))
        published = 0
        publishes = False
        while True:
            head = file.read(7)
            if len(head) < 7:
                raise EOFError
            body = file.read(int.from_bytes(head[3:7], "big"))
            file.read(1)
            if publishes and head[0] == 1:
                raise ValueError("a method between publish and its header")
            publishes = head[0] == 1 and (body[1], body[3]) == (60, 40)
            if head[0] == 1:
                answer = {
                    (10, 11): self.method(0, 10, 30, b"\x07\xff" +
                                          self.frame_max.to_bytes(4, "big") + b"\x00\x00"),
                    (10, 40): self.method(0, 10, 41, b"\x00"),
                    (20, 10): self.method(1, 20, 11, b"\x00" * 4),
                    (85, 10): self.method(1, 85, 11),
                    (10, 50): self.method(0, 10, 51),
                    (60, 10): self.method(1, 60, 11),
                    (60, 20): self.method(1, 60, 21, b"\x07postern"),
                    (50, 10): self.method(1, 50, 11, b"\x01q" + b"\x00" * 8),
                }.get((body[1], body[3]))
                if answer:
                    link.sendall(answer)
                self.settle(number, body)
                if (body[1], body[3]) == (60, 20) and self.consume:
                    link.sendall(self.consume(number) or b"")
                    if number <= self.ends:
                        return
            if head[0] == 2:
                self.flags.append(int.from_bytes(body[12:14], "big"))
            ends = head[0] == 3 or (
                head[0] == 2 and int.from_bytes(body[4:12], "big") == 0)
            if ends:
                published += 1
                answer = self.script(link, published)
                if answer:
                    link.sendall(answer)

    def cut(self):
        """Ends the last connection."""
        self.links[-1].shutdown(socket.SHUT_RDWR)

    def stop(self):
        self.listener.close()
