# SPDX-License-Identifier: MIT
"""The bugs of signed webhooks, a part of the bank: see bank.py."""

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
]
