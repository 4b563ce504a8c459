# SPDX-License-Identifier: MIT
"""Shared by the tests with a broker: one for all cases of a program, a queue
for each case, and configurations that read it.

    import rabbit
    from support import case, main

    @case("…")
    def _(place):
        queue = rabbit.queue()
        queue.put(message_id="m1", type="t", body=b"x")

    rabbit.main(main)
"""

import itertools
import os
import sys

sys.path.insert(1, os.path.join(os.path.dirname(__file__), "..", "support"))
import rabbitmq  # noqa: E402
from support import until  # noqa: E402

pika = rabbitmq.pika
numbers = itertools.count(1)
server = None

LOG = "exec: [/bin/sh, -c, 'echo $CE_ID >> ${DIR}/log.out']"


class Queue:
    """A queue of its own, and a client that puts messages into it."""

    def __init__(self, **arguments):
        self.name = f"q{next(numbers)}"
        self.arguments = arguments
        with server.client() as channel:
            channel.queue_declare(self.name, durable=True, arguments=arguments)

    def put_all(self, messages):
        """Each one: the body, and properties as a dict."""
        with server.client() as channel:
            for body, properties in messages:
                channel.basic_publish(
                    "", self.name, body,
                    pika.BasicProperties(delivery_mode=2, **properties))

    def put(self, body=b"", **properties):
        self.put_all([(body, properties)])

    def count(self):
        return server.count(self.name)

    def get(self):
        """The next message, as (properties, body); None: it is empty."""
        with server.client() as channel:
            method, properties, body = channel.basic_get(self.name, True)
            return (properties, body) if method else None


def queue(**arguments):
    return Queue(**arguments)


def source(name, url=None, **more):
    """A source of a configuration, in flow style."""
    words = {"url": f'"{url or server.url()}"', "queue": name, **more}
    inner = ", ".join(f"{key}: {value}" for key, value in words.items())
    return f"{{rabbitmq: {{{inner}}}}}"


def inbox(sources, handler=LOG, store="sqlite:box.db", more=""):
    """A configuration with the channel `in`."""
    lines = "\n".join(f"      - {each}" for each in sources)
    return f"""\
store: {store}
defaults: {{restart_delay: 200ms}}
channels:
  in:
{more}    sources:
{lines}
    handlers:
      log:
        {handler}
"""


def publisher(exchange=None, url=None, name="mirror", **more):
    """A handler that publishes, in flow style."""
    words = {"url": f'"{url or server.url()}"', **more}
    if exchange:
        words["exchange"] = exchange
    inner = ", ".join(f"{key}: {value}" for key, value in words.items())
    return f"      {name}: {{publish: {{rabbitmq: {{{inner}}}}}}}\n"


def state(place, name="in.rabbitmq"):
    """The state of a source."""
    for row in place.ok("stats", "--json").json()["sources"]:
        if row["name"] == name:
            return row
    raise AssertionError(f"no source {name}")


def accepted(place, channel="in"):
    for row in place.ok("stats", "--json").json()["channels"]:
        if row["name"] == channel:
            return row["accepted"]
    raise AssertionError(f"no channel {channel}")


def await_accepted(place, count, channel="in"):
    until(lambda: accepted(place, channel) >= count)


def main(run, **options):
    global server
    with rabbitmq.Server(**options) as server:
        run()
