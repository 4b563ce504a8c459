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
    Bug(
        "tls-old-versions",
        "versions of TLS that were broken long ago are spoken",
        ("server/test_tls.py", "versions before TLS 1.2 are refused"),
    ),
    Bug(
        "tls-certificate-kept",
        "new connections get the certificate of the start after a reload",
        ("server/test_tls.py",
         "SIGHUP puts another certificate in place, and open connections go on"),
    ),
    Bug(
        "tls-any-key",
        "a key that belongs to another certificate is accepted",
        ("server/test_tls.py",
         "a certificate that cannot be used is one line at start and in check"),
    ),
    Bug(
        "tls-key-for-all",
        "a key that every user may read is accepted",
        ("server/test_tls.py",
         "a certificate that cannot be used is one line at start and in check"),
    ),
    Bug(
        "passed-without-token",
        "a socket that a service manager passes needs no token for other machines",
        ("server/test_passed.py", "what was passed and what is configured must fit"),
    ),
    Bug(
        "passed-is-private",
        "a unix socket that is passed needs no token, whoever may connect to it",
        ("server/test_passed.py",
         "a socket that others may use needs a token once there are some"),
    ),
    Bug(
        "exec-sender-names",
        "the name of a header becomes the name of a variable as it is",
        ("unit/test_handler_exec", "the environment is exactly as documented"),
    ),
    Bug(
        "trace-one-span",
        "all attempts of a message have the span of its sender",
        ("unit/test_handler_exec",
         "each attempt passes on the trace with a span of its own"),
    ),
]
