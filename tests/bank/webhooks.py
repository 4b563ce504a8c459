# SPDX-License-Identifier: MIT
"""The bugs of webhooks, those that come in and those that are sent, a part of
the bank: see bank.py."""

from catch import Bug

WEBHOOKS = [
    Bug(
        "signature-prefix-compared",
        "only the beginning of a signature is compared",
        ("unit/test_signature",
         "a change or the end at any character makes a signature invalid"),
    ),
    Bug(
        "signature-time-ignored",
        "a webhook is accepted however old its signature is",
        ("unit/test_signature",
         "a time is valid up to the tolerance, before and after now"),
    ),
    Bug(
        "signature-of-parsed-body",
        "what is verified is the body without the blanks around its JSON",
        ("unit/test_signature",
         "a signature is of the body's bytes as they were received"),
    ),
    Bug(
        "signature-first-secret",
        "only the first of several secrets is used",
        ("unit/test_signature", "while secrets are exchanged either is valid"),
    ),
    Bug(
        "signature-header-twice",
        "of a header that is there twice the last one is verified",
        ("unit/test_signature",
         "a header that is missing, or there twice, is refused"),
    ),
    Bug(
        "webhook-redirect-followed",
        "a redirect of a receiver is followed",
        ("unit/test_webhook", "a redirect is not followed"),
    ),
    Bug(
        "webhook-signs-part",
        "the time of a request is not signed",
        ("unit/test_webhook", "what is signed is id, time and body"),
    ),
    Bug(
        "webhook-guard-by-name",
        "the address of a connection is not judged before it is opened",
        ("unit/test_webhook",
         "no message opens a socket to a forbidden address, "
         "however it is written"),
    ),
    Bug(
        "webhook-embedded-ignored",
        "an IPv4 address within an IPv6 address is not judged",
        ("unit/test_webhook",
         "no configuration opens a socket to a link-local address"),
    ),
    Bug(
        "webhook-header-as-it-is",
        "a value of a message is sent as it is",
        ("unit/test_webhook",
         "nothing in a message ends a header or begins one"),
    ),
    Bug(
        "webhook-date-ignored",
        "a receiver that says when it will be back, as a date, is asked before",
        ("unit/test_webhook", "Retry-After is seconds or a date, and at most a day"),
    ),
]
