# SPDX-License-Identifier: MIT
"""The bug bank: known bugs, and the tests that must catch them.

Each bug is one that a program of this kind has had, or nearly. It is a patch,
bugs/NAME.patch, that nobody applies but test_bank.py: to a copy of the tree,
with all the others, behind conditions postern__bug("NAME") that are true in a
process with POSTERN_BUG=NAME (bug.h, patches.py). A catch is one of:

  a case of a test program: with the bug that very case must fail, without it
  it must pass;

  a rule of the simulation, which must name it as what was broken;

  a rule of the checker, which must find it broken in histories that the
  simulation wrote without judging them;

  a strike at the crash scenario in a database, after which the checker must
  find this rule broken;

  power cuts under the crash scenario in a file, with the same end.

To add a bug:

  tests/bank/refresh edit NAME    makes a copy of src/ and says where;
  put the bug there in a line or two, behind postern__bug("NAME"), in the text
  of a statement behind postern__bug_sql("NAME"), and in the schema of
  PostgreSQL (schema/*.sql) as it is, because that part is used only if NAME
  is chosen;
  tests/bank/refresh save NAME    writes the patch;
  add it below with a catch for each store that can have it, and run
  BANK_BUILD=/tmp/bank tests/support/postgres.py tests/bank/test_bank.py NAME
  (sync-normal also needs STRIKE=BUILD/tests/crash/libstrike.so).

If no test catches it, the test is what was missing: write it first.

When the sources change, a patch may no longer apply, and its case fails.
tests/bank/refresh lists such patches and says how to write them anew.
"""


class Bug:
    def __init__(self, name, story, *cases, sim=(), checker=(), strikes=(),
                 power=None):
        self.name = name
        self.story = story
        self.cases = cases  # (program, case)
        self.sim = sim  # (store, rule)
        self.checker = checker  # (store, rule)
        self.strikes = strikes  # (where a point fails, rule)
        self.power = power  # rule


def every_store(case):
    """The same case of the conformance suite, for each store."""
    return (
        ("conformance/conformance_memory", case),
        *databases(case),
    )


def local_stores(case):
    """The same for those that are in one process."""
    return (
        ("conformance/conformance_memory", case),
        ("conformance/conformance_sqlite", case),
    )


def databases(case):
    return (
        ("conformance/conformance_sqlite", case),
        postgres_store(case),
    )


def sqlite_store(case):
    return ("conformance/conformance_sqlite", case)


def postgres_store(case):
    return ("conformance/conformance_postgres", case)


BUGS = [
    Bug(
        "acknowledge-before-commit",
        "a message is acknowledged before it is durable",
        ("unit/test_commit", "with the store down accepts fail and nothing is kept"),
        checker=[
            ("memory", "accepted_is_never_lost"),
            ("sqlite", "accepted_is_never_lost"),
        ],
    ),
    Bug(
        "sync-normal",
        "a commit does not wait for the disk",
        (
            "unit/test_sqlite_fault",
            "a commit that cannot be synced fails and reopens the file",
        ),
        power="accepted_is_never_lost",
    ),
    Bug(
        "halving-loses-one",
        "an item is lost when a refused batch is halved",
        ("unit/test_commit", "one bad item is isolated by halving and the rest commits"),
    ),
    Bug(
        "rolled-back-is-known",
        "what was rolled back is known, and told as a duplicate",
        (
            "unit/test_sqlite_fault",
            "a batch commits completely or not at all, whichever allocation fails",
        ),
    ),
    Bug(
        "conflict-told-as-duplicate",
        "another body under a known id is told as a duplicate",
        *every_store("a conflict keeps the first body and is recorded"),
        sim=[("memory", "false-duplicate")],
        checker=[("memory", "duplicate_means_known")],
    ),
    Bug(
        "second-copy-run",
        "a handler that was added later runs the second copy, not the first",
        (
            "conformance/conformance_memory",
            "a handler that was added later gets its delivery by a duplicate",
        ),
    ),
    Bug(
        "accept-waits-for-ever",
        "a caller waits for a stuck writer without end",
        ("unit/test_bounds", "an accept does not wait for a stuck writer for ever"),
    ),
    Bug(
        "legacy-key-runs-twice",
        "a handler with a new key runs again what it had done under the old one",
        *every_store("a delivery of an alias suppresses one of its handler"),
        sim=[("memory", "opened-under-both-keys")],
        checker=[("memory", "an_alias_is_one_handler")],
    ),
    Bug(
        "parked-never-woken",
        "a parked message stays parked when a handler wants it",
        ("unit/test_bounds", "a parked message is woken when a handler wants it"),
    ),
    Bug(
        "claim-keeps-fence",
        "a claim does not raise the fence",
        *every_store("fences grow by one with every claim, whatever happened between"),
        sim=[("memory", "fence-backwards")],
        checker=[("memory", "runs_hold_a_lease")],
    ),
    Bug(
        "claimed-before-due",
        "a retry is claimed before its time",
        *every_store("what is pending again is due after its delay, by the store's clock"),
        sim=[("memory", "claimed-early")],
    ),
    Bug(
        "unfenced-settle",
        "a worker that lost its lease completes another's run",
        *local_stores("a settlement by another node is stale and changes nothing"),
        postgres_store(
            "a settlement under another fence is stale and changes nothing"
        ),
        *local_stores("a lost node can settle nothing any more"),
        sim=[("memory", "stale-settle"), ("sqlite", "stale-settle")],
        checker=[
            ("memory", "late_results_are_refused"),
            ("memory", "ended_stays_ended"),
        ],
    ),
    Bug(
        "lease-given-back-twice",
        "a lease is given back though it is somebody else's by now",
        *every_store("a second settlement is stale and changes nothing"),
        sim=[("memory", "stale-settle"), ("sqlite", "stale-settle")],
        checker=[("memory", "ended_stays_ended")],
    ),
    Bug(
        "unfenced-recovery",
        "leases of a node that lives are taken back",
        *every_store("a node's own leases are not taken back"),
        sim=[("memory", "state-differs")],
    ),
    Bug(
        "fence-restarts",
        "the fence begins again when a delivery is opened again",
        *every_store("a duplicate can open a poisoned delivery again, not leased"),
    ),
    Bug(
        "crash-not-counted",
        "only errors are counted: what kills the process is run for ever",
        *every_store("only a loss while alone counts, and max_crashes poison"),
    ),
    Bug(
        "innocents-blamed",
        "a crash counts against all that were leased",
        *every_store("a lease that an in-process handler lost is a suspect"),
    ),
    Bug(
        "suspect-in-company",
        "a suspect runs beside others, so that nobody knows who crashed",
        (
            "unit/test_bounds",
            "a suspect waits for callbacks that ran before it was claimed",
        ),
    ),
    Bug(
        "attempts-unbounded",
        "what always fails is tried for ever",
        (
            "unit/test_engine",
            "one handler fails until poisoned, the other is done and not run again",
        ),
        checker=[("memory", "attempts_are_bounded")],
    ),
    Bug(
        "snooze-spends-attempt",
        "waiting counts as failing",
        ("unit/test_engine", "a snooze spends no attempt"),
        checker=[("memory", "attempts_are_bounded")],
    ),
    Bug(
        "negative-delay",
        "a delay below zero puts a message before all others",
        ("unit/test_bounds", "a delay below zero is none, and one without end has one"),
    ),
    Bug(
        "retry-keeps-failures",
        "a retry by hand finds the attempts spent",
        (
            "conformance/conformance_memory",
            "retry opens what is poisoned or discarded, with no failures",
        ),
        checker=[("memory", "attempts_are_bounded")],
    ),
    Bug(
        "late-success-counts",
        "a success after the timeout is taken for one",
        ("unit/test_engine", "a success after the timeout is a failure"),
    ),
    Bug(
        "results-dropped",
        "results are dropped while the store is down",
        ("unit/test_commit", "with the store down results wait and are not lost"),
    ),
    Bug(
        "lost-wake-up",
        "nobody is woken for a retry, which waits for the next poll",
        ("unit/test_bounds", "when a retry is due is known without asking the store"),
    ),
    Bug(
        "drain-keeps-leases",
        "a stop leaves leases behind that were never begun",
        ("unit/test_runner", "a drain returns leases of runs that have not started"),
    ),
    Bug(
        "bytes-unbounded",
        "what is held in memory is bounded in number only",
        ("unit/test_bounds", "a handler that holds its share of bytes claims no more"),
    ),
    Bug(
        "effect-without-completion",
        "a transactional effect commits without its completion",
        *databases("done commits what was written and the completion together"),
        checker=[("sqlite", "effects_happen_once")],
    ),
    Bug(
        "unfenced-transaction",
        "a transaction does not look whether its lease still holds",
        *databases("a unit whose fence is lost is not run"),
        (
            "sim/test_sim",
            "a node paused anywhere while another has leased its work is refused",
        ),
    ),
    Bug(
        "poisoned-purged",
        "cleaning removes what is poisoned",
        *every_store("a message with one poisoned delivery stays"),
        sim=[("memory", "cleaned-early")],
        checker=[("memory", "accepted_is_never_lost")],
    ),
    Bug(
        "open-key-forgotten",
        "dedupe forgets a message that is still open",
        *databases("what is open, parked or poisoned stays"),
    ),
    Bug(
        "number-given-twice",
        "the number of a message that is gone is given to another",
        sqlite_store("the number of a message that is gone is never given again"),
    ),
    Bug(
        "lock-keeps-fence",
        "the next owner of a lock has the fence of the last",
        *every_store("a lock whose time is over is taken with a higher fence"),
        sim=[("memory", "lock-fence")],
        checker=[("memory", "locks_have_one_owner")],
    ),
    Bug(
        "lost-lock-kept",
        "an owner that is late goes on writing under a lock that it lost",
        *every_store("under a lost lock nothing is settled"),
        *every_store("under a lost lock nothing is claimed"),
        *every_store("under a lost lock nothing is recovered"),
        sim=[("memory", "stale-lock")],
    ),
    Bug(
        "lock-of-another-freed",
        "a lock is let go by somebody who does not hold it any more",
        *every_store("a lock is let go by its owner under its fence only"),
    ),
    Bug(
        "late-owner-goes-on",
        "an owner whose time is over begins new runs",
        ("unit/test_tenure", "only the owner of the lock processes"),
    ),
    Bug(
        "dead-node-lives",
        "a node that was found gone is told that it lives",
        *every_store("a node that is too late loses its leases and is gone"),
        (
            "unit/test_tenure",
            "a node that does not renew loses its leases and registers again",
        ),
        sim=[("memory", "state-differs")],
    ),
    Bug(
        "gone-finds-orphans",
        "a node that is gone and does not know it poisons its own messages",
        postgres_store("a node that is gone finds no orphans"),
    ),
    # Those that only a shared database can have.
    Bug(
        "known-read-too-early",
        "what is known is read by the statement that cannot see it yet",
        (
            "unit/test_postgres_store",
            "a copy that waits for the first message is its duplicate",
        ),
    ),
    Bug(
        "claimed-by-two",
        "two nodes that claim at the same time get the same delivery",
        postgres_store("of 64 nodes no two claim the same delivery"),
    ),
    Bug(
        "living-taken-for-dead",
        "nodes that renew themselves are found gone",
        postgres_store("a node that renews itself in time keeps its leases"),
    ),
    Bug(
        "frozen-left-alone",
        "a node that stopped in a transaction holds up its own recovery",
        (
            "unit/test_postgres_store",
            "a node that stopped in a transaction does not hold up its recovery",
        ),
    ),
    Bug(
        "doubts-forgotten",
        "what was leased by a batch without an answer is never given back",
        (
            "unit/test_postgres_doubt",
            "leases of a batch that commits after its timeout are returned",
        ),
    ),
    Bug(
        "late-batch-begun",
        "a batch that was given up is carried out long after, and never run",
        (
            "unit/test_postgres_doubt",
            "a batch that the server had not started at its timeout never runs",
        ),
    ),
    Bug(
        "own-told-as-duplicate",
        "a batch that is sent again takes its own messages for duplicates",
        strikes=[("postgres-apply.unheard:2", "duplicate_means_known")],
    ),
    Bug(
        "lost-commit-believed",
        "a commit whose answer is lost is taken for done without asking",
        strikes=[("postgres-commit.unsent:8", "ended_stays_ended")],
    ),
    # What a node cached for life, or did in the thread that renews.
    Bug(
        "pause-cached",
        "a node reads which handlers are paused only when it starts",
        (
            "unit/test_runner_apart",
            "a node started while a handler is paused runs it when it is resumed",
        ),
        sim=[("memory", "not-claimed")],
    ),
    Bug(
        "leased-while-paused",
        "a message is leased at accept though its handler is paused",
        *every_store(
            "a handler that is paused in the store is not leased at accept"
        ),
        sim=[("memory", "leased-while-paused")],
    ),
    Bug(
        "alias-not-claimed",
        "what is open under a former key is claimed by nobody",
        *every_store(
            "what is open under either key is claimed by nodes of each generation"
        ),
        sim=[("memory", "not-claimed"), ("sqlite", "stuck")],
        checker=[("memory", "nothing_due_is_left")],
    ),
    Bug(
        "clock-ends-nodes",
        "a database clock that is set forward ends nodes that are well",
        (
            "unit/test_postgres_terms",
            "a clock that is set forward expires no node that renews itself",
        ),
    ),
    Bug(
        "renewal-behind-recovery",
        "a node renews itself only after a recovery, which may take long",
        (
            "unit/test_runner_apart",
            "a node is renewed while a recovery waits for the store",
        ),
    ),
    Bug(
        "node-back-from-the-dead",
        "a node that was found gone is enrolled again under its number",
        *every_store(
            "a node that is gone is not enrolled again under its number"
        ),
    ),
    Bug(
        "cleanup-by-count",
        "a cleanup batch is bounded in number only, whatever the bodies weigh",
        ("conformance/conformance_memory",
         "cleaning is bounded by the bytes of the bodies it removes"),
        postgres_store(
            "cleaning is bounded by the bytes of the bodies it removes"
        ),
    ),
]
