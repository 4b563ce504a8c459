# SPDX-License-Identifier: MIT
"""The bugs of what a server listens on, a part of the bank: see bank.py."""

from catch import Bug

LISTENERS = [
    Bug(
        "token-prefix",
        "only the beginning of a token is compared",
        ("server/test_api_auth", "only the whole token is the token"),
    ),
    Bug(
        "ingest-serves-all",
        "an address for messages serves what operators do, too",
        ("server/test_api_auth", "an address for messages serves nothing else"),
    ),
    Bug(
        "host-suffix",
        "a host is one of this server's if it begins like one",
        ("server/test_api_auth", "without tokens a request must name this machine"),
    ),
]
