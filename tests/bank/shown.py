# SPDX-License-Identifier: MIT
"""Known bugs in what people and monitoring see, and in what they cancel."""

from catch import Bug

SHOWN = [
    Bug(
        "lag-of-later-runs",
        "a delivery that is snoozed or retried counts its waiting as a lag",
        ("unit/test_metrics", "a delivery that is run again has no lag"),
    ),
    Bug(
        "fault-outlives-poison",
        "a delivery that an operator retries is charged for a former fault",
        (
            "unit/test_breaker",
            "one delivery that faults among good ones is charged",
        ),
    ),
    Bug(
        "shown-running-always",
        "every leased delivery is shown as running",
        (
            "unit/test_shown",
            "a delivery is shown as pending, queued, running, stuck, done",
        ),
    ),
    Bug(
        "queued-without-reason",
        "a delivery that waits for the rate of its handler does not say so",
        (
            "unit/test_shown",
            "a queued delivery has the reason why it does not start",
        ),
    ),
    Bug(
        "pause-told-without-author",
        "deliveries of a paused handler do not show who paused it",
        (
            "unit/test_shown",
            "a pause is shown with its reason, its author and its end",
        ),
    ),
    Bug(
        "parked-not-explained",
        "the receipt of a parked message does not say that no handler wants it",
        ("unit/test_engine", "the receipt of a parked message says why"),
    ),
    Bug(
        "paused-work-is-due",
        "a handler that was paused makes its node unhealthy",
        ("unit/test_health", "work of a paused handler is not due"),
    ),
    Bug(
        "label-not-escaped",
        "a name with a quote makes the whole text of the metrics invalid",
        ("unit/test_metrics", "label values are escaped"),
    ),
    Bug(
        "counts-lost-with-generation",
        "the counters of a handler begin anew when its generation is replaced",
        (
            "unit/test_metrics",
            "counts survive a replaced generation and a renamed handler",
        ),
    ),
    Bug(
        "cancel-believes-run",
        "a cancelled run that says it is done counts as done",
        ("unit/test_cancel", "a cancelled run has failed, whatever it says"),
    ),
    Bug(
        "cancel-counts-uncounted",
        "an uncounted cancel spends an attempt",
        (
            "unit/test_cancel",
            "an uncounted cancel counts no failure and waits the backoff",
        ),
    ),
    Bug(
        "failure-told-as-snooze",
        "a failed run is reported as snoozed, which the log does not show",
        ("unit/test_event", "an event has the kind, level and state of its settlement"),
    ),
    Bug(
        "workers-of-all-counted",
        "runs of other handlers that hang use up the share of a handler",
        sim=[("memory", "waits")],
    ),
]
