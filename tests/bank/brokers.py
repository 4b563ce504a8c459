# SPDX-License-Identifier: MIT
"""Known bugs in what is acknowledged to a broker, what it confirms, and where
messages go from store to store."""

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
    Bug(
        "rabbitmq-stale-tag",
        "a message is acknowledged on another connection than its own",
        (
            "server/test_rabbitmq_hostile.py",
            "what was delivered on a connection is never acknowledged on another one",
        ),
    ),
    Bug(
        "rabbitmq-multiple-over-gap",
        "an acknowledgement of several covers messages that are not done",
        (
            "server/test_rabbitmq_hostile.py",
            "an acknowledgement of several never covers a message that is not done",
        ),
    ),
    Bug(
        "rabbitmq-outage-rejected",
        "RabbitMQ dead-letters what the store could not take",
        (
            "conformance/source_rabbitmq",
            "a message that the store could not take is sent again",
        ),
    ),
    Bug(
        "retry-returned-is-moved",
        "a delivery is acknowledged whose copy for the retry queue was returned",
        (
            "unit/test_rabbitmq_retry",
            "a copy that the broker returns moves nothing, though it is confirmed",
        ),
    ),
    Bug(
        "retry-of-another-tag",
        "any confirm is taken for the last copy for the retry queue",
        ("unit/test_rabbitmq_retry", "a confirm of another copy moves nothing"),
    ),
    Bug(
        "quarantine-is-forgotten",
        "a source is told that a message is kept which is not",
        (
            "unit/test_quarantine",
            "what can never be accepted is kept by a source that quarantines",
        ),
    ),
    Bug(
        "quarantine-under-the-id",
        "a conflict is quarantined under the id that another message has",
        (
            "unit/test_quarantine",
            "what can never be accepted is kept by a source that quarantines",
        ),
    ),
    Bug(
        "elsewhere-done-when-queued",
        "a message for another store is done before that store has it",
        (
            "server/test_publish_stores.py",
            "a message that the other channel can never accept is poisoned, and no other",
        ),
    ),
    Bug(
        "store-not-retested",
        "a store that failed is not tested while nobody writes",
        (
            "unit/test_runner_apart",
            "a store that failed for a moment is ready again, though nobody writes",
        ),
    ),
]
