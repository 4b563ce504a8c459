# SPDX-License-Identifier: MIT
"""The bug bank: known bugs, and the tests that must catch them.

Each bug is one that a program of this kind has had, or nearly had. It is a
patch, bugs/NAME.patch, that only test_bank.py applies: to a copy of the tree,
with all the others, behind conditions postern__bug("NAME") that are true in a
process with POSTERN_BUG=NAME (bug.h, patches.py). A catch is one of:

  a case of a test program, or of a test of the command (server/NAME.py): it
  must fail with the bug and pass without it;

  a rule of the simulation, which must report this rule as broken;

  a rule of the checker, which must find it broken in histories that the
  simulation wrote without checking them;

  a failing crash point in the scenario on a database, after which the checker
  must find this rule broken;

  power cuts during the scenario on a file, with the same result.

To add a bug:

  tests/bank/refresh edit NAME    makes a copy of src/ and prints its path;
  put the bug there in a line or two, behind postern__bug("NAME"), in the text
  of a statement behind postern__bug_sql("NAME"), and in the schema of
  PostgreSQL (schema/*.sql) without a condition, because that part is used
  only if NAME is chosen;
  tests/bank/refresh save NAME    writes the patch;
  add it below with a catch for each store that can have it, and run
  BANK_BUILD=/tmp/bank tests/support/postgres.py tests/bank/test_bank.py NAME
  (sync-normal also needs STRIKE=BUILD/tests/crash/libstrike.so).

If no test catches the bug, write that test first.

When the sources change, a patch may no longer apply, and its case fails.
tests/bank/refresh lists such patches and documents how to update them.
"""

from brokers import BROKERS
from catch import (
    Bug,
    databases,
    every_store,
    local_stores,
    postgres_store,
    scripted_sources,
    sqlite_store,
)
from keys import KEYS
from listeners import LISTENERS
from pulls import PULLS
from shown import SHOWN
from webhooks import WEBHOOKS

BUGS = [
    *BROKERS,
    *LISTENERS,
    *PULLS,
    *SHOWN,
    *WEBHOOKS,
    Bug(
        "acknowledge-before-commit",
        "a message is acknowledged before it is durable",
        ("unit/test_commit", "with the store down accepts fail and nothing is stored"),
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
        # Which one depends on what the cuts fall into.
        power=("accepted_is_never_lost", "a_lease_ends_once"),
    ),
    Bug(
        "kind-default-ignored",
        "the default timeout of a handler kind is not used",
        (
            "unit/test_kinds",
            "a handler has the defaults of its kind, unless it sets its own",
        ),
    ),
    Bug(
        "kind-registered-twice",
        "a second handler kind of the same name is registered",
        ("unit/test_kinds", "a second kind of the same name is refused"),
    ),
    Bug(
        "hold-spends-attempt",
        "a handler that is at fault spends the attempts of its messages",
        (
            "unit/test_bounds",
            "a hold waits for the handler, spends no attempt and is recorded",
        ),
        sim=[("memory", "unexplained")],
        checker=[("memory", "attempts_are_bounded")],
    ),
    Bug(
        "fault-charged-early",
        "a delivery is charged for a fault because of a success before it",
        (
            "unit/test_breaker",
            "a success that began before the fault charges nothing",
        ),
    ),
    Bug(
        "fault-never-charged",
        "a message that looks like a fault of its handler holds it for ever",
        (
            "unit/test_breaker",
            "one delivery that faults among good ones is charged",
        ),
    ),
    Bug(
        "held-queue-kept",
        "a held handler keeps leases that another node could run",
        (
            "unit/test_breaker",
            "a fault holds the handler, returns queued leases, counts no "
            "failure",
        ),
    ),
    Bug(
        "held-probe-unpaced",
        "all deliveries of a held handler probe it at once",
        (
            "unit/test_breaker",
            "a held handler is leased one probe at a time",
        ),
    ),
    Bug(
        "failures-of-one-message",
        "one message that fails again and again holds its handler",
        (
            "unit/test_breaker",
            "one message that fails alone does not hold its handler",
        ),
    ),
    Bug(
        "rate-by-period",
        "starts at the edge of a period are forgotten too early",
        (
            "unit/test_rate",
            "no period has more starts than the rate, and few have less",
        ),
    ),
    Bug(
        "rate-saved-up",
        "reserved starts are used in a later period",
        ("unit/test_rate", "reserved starts that are not used soon are lost"),
    ),
    Bug(
        "window-of-share",
        "a node leases all slow work, and other nodes sleep",
        (
            "unit/test_window",
            "the window is a second of work by the latest runs",
        ),
    ),
    Bug(
        "halving-loses-one",
        "an item is lost when a refused batch is halved",
        ("unit/test_commit", "one bad item is isolated by halving and the others commit"),
    ),
    Bug(
        "rolled-back-is-known",
        "a rolled-back message is remembered and reported as a duplicate",
        (
            "unit/test_sqlite_fault",
            "a batch commits completely or not at all, whichever allocation fails",
        ),
    ),
    Bug(
        "conflict-told-as-duplicate",
        "another body under a remembered id is reported as a duplicate",
        *every_store("a conflict keeps the first body and is recorded"),
        sim=[("memory", "false-duplicate")],
        checker=[("memory", "duplicate_means_known")],
    ),
    Bug(
        "second-copy-run",
        "a handler that was added later runs the second copy, not the first",
        (
            "conformance/conformance_memory",
            "a duplicate makes the delivery of a handler that was added later",
        ),
    ),
    Bug(
        "accept-waits-for-ever",
        "a caller waits for ever for a stuck writer",
        ("unit/test_bounds", "an accept does not wait forever for a stuck writer"),
    ),
    Bug(
        "nobody-writes-next",
        "no caller that waits is woken to write the next group",
        ("unit/test_bounds", "a caller that waited behind a commit writes the next one"),
    ),
    Bug(
        "old-generation-runs",
        "what an old generation has leased and not started runs under it",
        (
            "unit/test_generations",
            "what is leased and not started is run by the next generation",
        ),
    ),
    Bug(
        "replaced-goes-on",
        "runs of a generation that was replaced start",
        (
            "unit/test_generations",
            "what is leased and not started is run by the next generation",
        ),
        sim=[("memory", "old-generation"), ("sqlite", "old-generation")],
    ),
    Bug(
        "late-lease-queued",
        "a lease granted to a generation after it was replaced is queued",
        (
            "unit/test_generations",
            "a lease that is granted to an old generation late is returned",
        ),
        sim=[("memory", "wrong-handler")],
    ),
    Bug(
        "former-not-registered",
        "the handlers of an old generation are not registered until it has ended",
        sim=[("memory", "not-registered"), ("sqlite", "not-registered")],
    ),
    Bug(
        "former-stays-registered",
        "the handlers of an old generation stay registered after it has ended",
        (
            "unit/test_generations",
            "a failed replacement that took effect is registered no longer",
        ),
        sim=[("memory", "still-registered"), ("sqlite", "still-registered")],
    ),
    Bug(
        "generations-count-apart",
        "each generation counts the runs of a handler for itself",
        (
            "unit/test_generations",
            "a run that has started ends as it began, and counts",
        ),
    ),
    Bug(
        "legacy-key-runs-twice",
        "a handler with a new key runs deliveries that are done under the old key",
        *every_store("a delivery of an alias suppresses one of its owner"),
        sim=[("memory", "opened-under-both-keys")],
        checker=[("memory", "an_alias_is_one_handler")],
    ),
    Bug(
        "parked-never-woken",
        "a parked message stays parked when a handler wants it",
        ("unit/test_bounds", "a parked message is unparked when a handler wants it"),
    ),
    Bug(
        "claim-keeps-fence",
        "a claim does not raise the fence",
        *every_store("the fence grows by one with every claim, however the lease ended"),
        sim=[("memory", "fence-backwards")],
        checker=[("memory", "runs_hold_a_lease")],
    ),
    Bug(
        "claimed-before-due",
        "a retry is claimed before it is due",
        *every_store("a retried delivery is due after its delay, by the store's clock"),
        sim=[("memory", "claimed-early")],
    ),
    Bug(
        "unfenced-settle",
        "a worker that lost its lease settles the run of another",
        *local_stores("a settlement by another node is stale and changes nothing"),
        postgres_store(
            "a settlement under another fence is stale and changes nothing"
        ),
        *local_stores("an expired node can no longer settle"),
        sim=[("memory", "stale-settle"), ("sqlite", "stale-settle")],
        checker=[
            ("memory", "late_results_are_refused"),
            ("memory", "ended_stays_ended"),
        ],
    ),
    Bug(
        "lease-given-back-twice",
        "a lease is returned although another node has it",
        *every_store("a second settlement is stale and changes nothing"),
        sim=[("memory", "stale-settle"), ("sqlite", "stale-settle")],
        checker=[("memory", "ended_stays_ended")],
    ),
    Bug(
        "unfenced-recovery",
        "leases of a live node are recovered",
        *every_store("a node does not recover its own leases"),
        sim=[("memory", "state-differs")],
    ),
    Bug(
        "fence-restarts",
        "the fence starts again when a delivery is reopened",
        *every_store("a duplicate can reopen a poisoned delivery, not leased"),
    ),
    Bug(
        "crash-not-counted",
        "only errors are counted: a message that kills the process is run for ever",
        *every_store("only a solo suspect counts crashes, and max_crashes poison it"),
    ),
    Bug(
        "innocents-blamed",
        "a crash counts against all leased deliveries",
        *every_store("a lease that an in-process handler lost is a suspect"),
    ),
    Bug(
        "suspect-in-company",
        "a suspect runs beside others, so that the cause of a crash is unknown",
        (
            "unit/test_bounds",
            "a suspect waits for callbacks that started before it was claimed",
        ),
    ),
    Bug(
        "attempts-unbounded",
        "a delivery that always fails is retried for ever",
        (
            "unit/test_engine",
            "one handler fails until poisoned, the other is done and runs once",
        ),
        checker=[("memory", "attempts_are_bounded")],
    ),
    Bug(
        "snooze-spends-attempt",
        "a snooze counts as a failure",
        ("unit/test_engine", "a snooze does not count as an attempt"),
        checker=[("memory", "attempts_are_bounded")],
    ),
    Bug(
        "negative-delay",
        "a negative delay makes a message due before all others",
        ("unit/test_bounds", "a negative delay becomes zero, and a huge one is limited"),
    ),
    Bug(
        "retry-keeps-failures",
        "a retry by an operator does not reset the failures",
        (
            "conformance/conformance_memory",
            "retry reopens a poisoned or discarded delivery without failures",
        ),
        checker=[("memory", "attempts_are_bounded")],
    ),
    Bug(
        "late-success-counts",
        "a success after the timeout counts as a success",
        ("unit/test_engine", "a success after the timeout is a failure"),
    ),
    Bug(
        "results-dropped",
        "settlements are dropped while the store is unavailable",
        ("unit/test_commit", "with the store down settlements wait and are not lost"),
    ),
    Bug(
        "lost-wake-up",
        "no thread is woken for a retry, which waits for the next poll",
        ("unit/test_bounds", "the box knows when a retry is due without reading the store"),
    ),
    Bug(
        "drain-keeps-leases",
        "a stop does not return leases of runs that have not started",
        ("unit/test_runner", "a drain returns leases of runs that have not started"),
    ),
    Bug(
        "bytes-unbounded",
        "deliveries in memory are limited in number, not in bytes",
        ("unit/test_bounds", "a handler that has used its share of bytes claims no more"),
    ),
    Bug(
        "effect-without-completion",
        "a transactional effect commits without its completion",
        *databases("done commits what was written and the completion together"),
        checker=[("sqlite", "effects_happen_once")],
    ),
    Bug(
        "unfenced-transaction",
        "a transaction does not check that its lease is still valid",
        *databases("a unit whose fence is stale is not run"),
        (
            "sim/test_sim",
            "a node paused anywhere is refused if another has leased its deliveries",
        ),
    ),
    Bug(
        "poisoned-purged",
        "cleanup removes poisoned deliveries",
        *every_store("a message with one poisoned delivery is kept"),
        sim=[("memory", "cleaned-early")],
        checker=[("memory", "accepted_is_never_lost")],
    ),
    Bug(
        "number-given-twice",
        "the number of a removed message is given to another",
        sqlite_store("the number of a removed message is never reused"),
    ),
    Bug(
        "lock-keeps-fence",
        "the next owner of a lock gets the fence of the last one",
        *every_store("an expired lock is acquired with a higher fence"),
        sim=[("memory", "lock-fence")],
        checker=[("memory", "locks_have_one_owner")],
    ),
    Bug(
        "lost-lock-kept",
        "a late owner continues to write under a lock that it lost",
        *every_store("under a lost lock nothing is settled"),
        *every_store("under a lost lock nothing is claimed"),
        *every_store("under a lost lock nothing is recovered"),
        sim=[("memory", "stale-lock")],
    ),
    Bug(
        "lock-of-another-freed",
        "a lock is released by a node that does not own it any more",
        *every_store("a lock is released only by its owner under its fence"),
    ),
    Bug(
        "late-owner-goes-on",
        "an owner whose lock has expired starts new runs",
        ("unit/test_tenure", "only the owner of the lock processes"),
    ),
    Bug(
        "dead-node-lives",
        "the renewal of an expired node reports it as live",
        *every_store("a late node loses its leases to recovery and is expired"),
        (
            "unit/test_tenure",
            "a node that does not renew loses its leases and registers again",
        ),
        sim=[("memory", "not-replaced")],
    ),
    Bug(
        "gone-finds-orphans",
        "an expired node poisons its own deliveries as orphaned",
        postgres_store("an expired node finds no orphans"),
    ),
    # Bugs that only a shared database can have.
    Bug(
        "known-read-too-early",
        "remembered ids are read by a statement whose snapshot is too old",
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
        "return-not-left-to-others",
        "a node claims at once what it returned to idle nodes",
        postgres_store(
            "what a node returns to idle nodes is due at once for others only"),
    ),
    Bug(
        "returned-to-busy",
        "leases are returned to nodes that are asleep and have no room",
        postgres_store("a node learns how many others are idle for a handler"),
    ),
    Bug(
        "returned-for-ever",
        "a delivery goes back and forth between nodes without an end",
        ("unit/test_share", "suspects and what was returned twice stay"),
    ),
    Bug(
        "living-taken-for-dead",
        "nodes that renew their lease are expired",
        postgres_store("a node that renews in time keeps its leases"),
    ),
    Bug(
        "frozen-left-alone",
        "a node that stopped in a transaction blocks its own recovery",
        (
            "unit/test_postgres_store",
            "a node that stopped in a transaction does not block its recovery",
        ),
    ),
    Bug(
        "doubts-forgotten",
        "leases of a batch without a reply are never returned",
        (
            "unit/test_postgres_doubt",
            "leases of a batch that commits after its timeout are returned",
        ),
    ),
    Bug(
        "late-batch-begun",
        "a batch that timed out commits much later, and its leases are never run",
        (
            "unit/test_postgres_doubt",
            "a batch that the server had not started at its timeout never runs",
        ),
    ),
    Bug(
        "own-told-as-duplicate",
        "a batch that is sent again reports its own messages as duplicates",
        strikes=[("postgres-apply.unheard:2", "duplicate_means_known")],
    ),
    Bug(
        "lost-commit-believed",
        "a commit whose reply is lost counts as done without a check",
        # One of these passes is the first transaction of a unit.
        strikes=[("postgres-commit.unsent:7-13", "ended_stays_ended")],
    ),
    # State that a node cached, or work in the thread that renews.
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
            "a delivery of a paused handler is not leased at accept"
        ),
        sim=[("memory", "leased-while-paused")],
    ),
    Bug(
        "pause-never-ends",
        "a pause with an end lasts until somebody resumes the handler",
        *local_stores(
            "a pause with an end is over when the store's clock reaches it"
        ),
        sim=[("memory", "pause-forgotten")],
    ),
    Bug(
        "closed-accepts-copies",
        "a closed channel still answers and counts copies",
        *local_stores(
            "a closed channel refuses every message and remembers none"
        ),
        sim=[("memory", "accepted-while-closed")],
    ),
    Bug(
        "hold-replaces-operator",
        "a service's retry-after replaces the pause of an operator",
        *every_store(
            "a hold by postern neither shortens nor replaces a pause by an operator"
        ),
    ),
    Bug(
        "alias-not-claimed",
        "deliveries open under a legacy key are not claimed",
        *every_store(
            "deliveries under either key are claimed by nodes of each generation"
        ),
        sim=[("memory", "not-claimed"), ("sqlite", "stuck")],
        checker=[("memory", "nothing_due_is_left")],
    ),
    Bug(
        "clock-ends-nodes",
        "a database clock that is set forward expires live nodes",
        (
            "unit/test_postgres_terms",
            "a clock that is set forward expires no node that renews itself",
        ),
    ),
    Bug(
        "renewal-behind-recovery",
        "a node renews its lease only after a recovery, which may take long",
        (
            "unit/test_runner_apart",
            "a node is renewed while a recovery waits for the store",
        ),
    ),
    Bug(
        "node-back-from-the-dead",
        "an expired node is enrolled again under its node id",
        *every_store(
            "an expired node cannot enrol again under its node id"
        ),
    ),
    Bug(
        "cleanup-by-count",
        "a cleanup batch is limited in number, not in bytes",
        ("conformance/conformance_memory",
         "a cleanup batch is bounded by the bytes of its bodies"),
        postgres_store(
            "a cleanup batch is bounded by the bytes of its bodies"
        ),
    ),
    Bug(
        "acknowledged-on-receipt",
        "a source acknowledges a message when the box has queued it",
        *scripted_sources("no message is acknowledged before it is durable"),
    ),
    Bug(
        "source-not-resumed",
        "a source that was paused by its own limit is not resumed",
        ("unit/test_source", "a source with too many messages in flight is paused"),
        ("unit/test_source", "a source with too many bytes in flight is paused"),
    ),
    Bug(
        "resume-forgotten",
        "a source that waited for room in the box is not resumed",
        ("unit/test_source", "a source is resumed when a full box has room"),
    ),
    Bug(
        "stop-does-not-wait",
        "a stop does not wait for the completions of what is in flight",
        *scripted_sources(
            "a stop waits for what is in flight, and acknowledges it"
        ),
    ),
    Bug(
        "stop-drops-completions",
        "messages that the store did not answer before a stop are not completed",
        (
            "unit/test_source",
            "a stop completes what the store did not answer as unavailable",
        ),
    ),
    Bug(
        "outage-told-as-rejected",
        "while the store is unavailable, sources are told to drop their messages",
        *scripted_sources("a message that the store could not take is sent again"),
    ),
    Bug(
        "prefix-over-gap",
        "an offset is acknowledged while an earlier message is not durable",
        ("unit/test_completions", "a prefix ends at the first position that is not done"),
    ),
    Bug(
        "one-file-two-stores",
        "two stores with different paths of one file are opened side by side",
        ("unit/test_registry", "two URLs of one file or schema are the same place"),
    ),
    Bug(
        "limit-ignored",
        "a duration or size over its limit is stored",
        ("unit/test_option", "a refused value is explained and changes nothing"),
    ),
    Bug(
        "last-worker-taken",
        "a handler that hangs takes the last thread that others could use",
        ("unit/test_isolation", "a handler that holds workers does not get the last one"),
        sim=[("memory", "over-share")],
    ),
    Bug(
        "first-ready-only",
        "a handler that may not start a run keeps those behind it from it",
        sim=[("memory", "waits")],
    ),
    Bug(
        "rate-per-node",
        "each node has the whole rate of a handler",
        (
            "unit/test_postgres_rate",
            "boxes on one database start no more runs than the rate together",
        ),
    ),
    Bug(
        "missing-table-charged",
        "a missing table poisons every message of its handler",
        ("unit/test_sqlstate", "each class of SQLSTATEs has one cause"),
        ("unit/test_handler_sql", "a changed schema is detected"),
    ),
    Bug(
        "missing-program-charged",
        "a missing program spends the attempts of every message",
        (
            "unit/test_handler_exec",
            "a program that cannot be run is a hold with its path and the reason",
        ),
    ),
    Bug(
        "neighbours-blamed",
        "the neighbours of a delivery that failed its commit are blamed, too",
        (
            "unit/test_sqlite_transact",
            "one failing unit among many is rolled back, the others are done once",
        ),
        (
            "unit/test_postgres_handler",
            "a constraint that fails at the commit affects no other handler",
        ),
    ),
    Bug(
        "group-kept-on-retry",
        "a delivery that is reopened is still counted with its old error",
        *local_stores("a delivery that is reopened or discarded has no group"),
    ),
    Bug(
        "error-is-a-pattern",
        "a percent sign in the text to find stands for anything",
        postgres_store("a text in the last error is found regardless of case"),
    ),
    Bug(
        "samples-without-cap",
        "every error text is kept as an example",
        sqlite_store("errors beyond the limit of examples are counted in group 0"),
    ),
    Bug(
        "mark-in-breaks-transaction",
        "a marker that is held makes the caller's transaction fail",
        (
            "unit/test_postgres_mark",
            "a marker that another transaction holds is busy, and nothing is lost",
        ),
    ),
    Bug(
        "mark-in-any-store",
        "a marker is written into whatever store the connection leads to",
        ("unit/test_postgres_mark", "a connection to another store is refused"),
    ),
    *(Bug(name, story, ("unit/test_sqlite_shared", case)) for name, story, case in (
        ("shared-closes-file", "closing a shared file releases locks of others",
         "closing the store keeps the locks of other connections"),
        ("shared-reader-cannot-repair",
         "a reader cannot roll back what a killed process left",
         "what a killed process left is rolled back by a reader"),
        ("shared-accepts-log", "a shared file with a log has two writers",
         "a log that somebody adds is refused"),
    )),
    Bug(
        "index-stays-short",
        "an index that was truncated never gets the length that it had",
        ("unit/test_sqlite_bus", "an index that grew unnoticed becomes longer"),
    ),
    Bug(
        "mark-in-leaves-sandbox",
        "a function that marked another key may commit by itself",
        (
            "conformance/markers_sqlite",
            "a unit that marks another key and ends its transaction leaves neither",
        ),
    ),
    *(Bug(name, story, ("unit/test_publish_in",
                        "what is published commits or vanishes with the transaction"))
      for name, story in (
        ("staged-not-accepted", "a staged message is removed and not accepted"),
        ("id-when-collected", "an id is generated when the message is collected"),
        ("published-at-once", "a message is published before its transaction ends"),
    )),
    *(Bug(name, story, ("unit/test_modes", case)) for name, story, case in (
        ("inline-first-answer", "the first handler's result is the answer for all",
         "each handler has a marker, and only what failed runs again"),
        ("guard-forgets-types", "types that are to be guarded are direct",
         "types that are guarded run once, the rest each time"),
        ("fault-repeated", "a message given up twice is published twice",
         "a message that is given up is published once, with why and how often"),
    )),
    *(Bug(name, story, ("conformance/markers_redis", case)) for name, story, case in (
        ("redis-fence", "every lease in Redis has the same fence",
         "the first that begins has the marker, a second learns how long"),
        ("redis-scope", "handlers share their markers in Redis",
         "a marker belongs to its handler and its key"),
        ("redis-names", "a change in Redis is made under the first name only",
         "a former name of the handler counts, in both directions"),
        ("redis-done-at-begin", "a marker in Redis is done before its function has run",
         "the first that begins has the marker, a second learns how long"),
        ("redis-stale-ignored", "a lease in Redis that another one has is ended",
         "a released marker is unknown, and its former fence is refused"),
    )),
    Bug(
        "former-name-is-new",
        "a channel that names a former one is created anew",
        (
            "unit/test_rename",
            "a renamed channel keeps identities and open deliveries",
        ),
        *every_store("a renamed channel keeps its id and its messages"),
    ),
    Bug(
        "left-rules-forgotten",
        "the retention of a channel that left the configuration is forgotten",
        (
            "unit/test_rename",
            "a channel that left is cleaned up by its last rules",
        ),
    ),
    *KEYS,
]
