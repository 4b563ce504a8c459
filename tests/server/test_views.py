#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The cases of views.py on SQLite."""

from support import main
from views import register

register(lambda place, number: "sqlite:box.db")

main()
