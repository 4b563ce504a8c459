#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The cases of views.py on PostgreSQL."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from postgres import Server  # noqa: E402
from support import main  # noqa: E402
from views import register  # noqa: E402

if __name__ == "__main__":
    with Server() as server:
        register(lambda place, number: server.url(schema=f"views{number}"))
        main()
