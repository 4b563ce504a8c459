# SPDX-License-Identifier: MIT
"""Known bugs in what is acknowledged to a broker, and what it confirms."""

from catch import Bug

BROKERS = [
    Bug(
        "rabbitmq-ack-before-commit",
        "RabbitMQ is acknowledged when a message is passed on",
        (
            "conformance/source_rabbitmq",
            "no message is acknowledged before it is durable",
        ),
    ),
    Bug(
        "confirm-wrong-tag",
        "a confirm is taken for the oldest message",
        (
            "unit/test_rabbitmq_confirms",
            "confirms come in any order, each for its own item",
        ),
    ),
    Bug(
        "confirm-of-one",
        "a confirm of several is taken for the last one",
        (
            "unit/test_rabbitmq_confirms",
            "a confirm of several is for all that is left up to its tag",
        ),
    ),
]
