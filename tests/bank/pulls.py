# SPDX-License-Identifier: MIT
"""The bugs of pull leases, a part of the bank: see bank.py."""

from catch import Bug, local_stores, sqlite_store

PULLS = [
    Bug(
        "late-fence-extends",
        "a worker extends a lease that another worker has by now",
        *local_stores("a pull lease is extended under its fence"),
    ),
    Bug(
        "reopening-releases-pull",
        "opening a file takes deliveries from the workers that have them",
        sqlite_store("a pull lease survives the death of the process"),
    ),
    Bug(
        "ended-pull-costs-nothing",
        "a worker that dies again and again uses up no attempts",
        ("server/test_pull.py", "leases that end use up the attempts"),
    ),
    Bug(
        "late-told-as-settled",
        "a worker is told that its late result counts",
        ("server/test_pull.py",
         "a mixed result says which items were late or unknown"),
    ),
]
