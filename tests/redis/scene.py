# SPDX-License-Identifier: MIT
"""Shared by the tests of markers in Redis: servers, and the driver."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("server", "support"):
    sys.path.insert(1, os.path.join(HERE, "..", folder))

from proxy import TO_CLIENT, Proxy  # noqa: E402, F401
from redis import ReplyError, Server  # noqa: E402, F401
from support import (  # noqa: E402, F401
    PATIENCE_S, POSTERN as DRIVER, case, equal, main)
from support import until as until_true  # noqa: E402

SAFE = {"appendonly": "yes", "appendfsync": "always"}


def until(condition, what):
    try:
        return until_true(condition)
    except AssertionError as problem:
        raise AssertionError(f"{what}: {problem}") from None


def environment(**settings):
    return {**os.environ,
            **{"DRIVER_" + name.upper(): str(value)
               for name, value in settings.items()}}


def start(url, *words, **settings):
    return subprocess.Popen(
        [DRIVER, url, *map(str, words)], env=environment(**settings),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def drive(url, *words, **settings):
    """Runs the driver to its end; returns its output."""
    out, _ = start(url, *words, **settings).communicate(timeout=PATIENCE_S)
    return out.strip()


def mark(url, *words, **settings):
    return drive(url, "mark", *words, **settings)


def starts(text, begin):
    assert text.startswith(begin), f"{text!r} does not start with {begin!r}"


def contains(text, part):
    assert part in text, f"{part!r} is not in {text!r}"
