# SPDX-License-Identifier: MIT
"""Writes a history for the checker, from Python: see checker/history.py."""

import json
import os
import time


class Writer:
    """A history that any thread may write to; a line is one call."""

    def __init__(self, path, **every):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.every = every  # the fields of each event

    def write(self, kind, **fields):
        line = {"e": kind, **self.every, **fields, "t": time.monotonic_ns()}
        os.write(self.file, json.dumps(line).encode() + b"\n")

    def close(self):
        os.close(self.file)
