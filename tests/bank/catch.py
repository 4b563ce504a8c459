# SPDX-License-Identifier: MIT
"""A known bug and its catches; bank.py explains them."""


class Bug:
    def __init__(self, name, story, *cases, sim=(), checker=(), strikes=(),
                 power=()):
        self.name = name
        self.story = story
        self.cases = cases  # (program, case)
        self.sim = sim  # (store, rule)
        self.checker = checker  # (store, rule)
        self.strikes = strikes  # (crash point that fails, rule)
        self.power = power  # rules, one of which is broken


def every_store(case):
    """The same case of the conformance suite, for each store."""
    return (
        ("conformance/conformance_memory", case),
        *databases(case),
    )


def local_stores(case):
    """The same for stores that live in one process."""
    return (
        ("conformance/conformance_memory", case),
        ("conformance/conformance_sqlite", case),
    )


def databases(case):
    return (
        ("conformance/conformance_sqlite", case),
        postgres_store(case),
    )


def scripted_sources(case):
    """The same case for a broker with tags and one with offsets."""
    return (
        ("conformance/source_tags", case),
        ("conformance/source_offsets", case),
    )


def sqlite_store(case):
    return ("conformance/conformance_sqlite", case)


def postgres_store(case):
    return ("conformance/conformance_postgres", case)
