# SPDX-License-Identifier: MIT
"""The rules that every run must follow.

A rule is a function that gets a view of the run and yields a sentence for each
breach. Its docstring is the rule; tests name a breach by the name of the
function. Where the result is unknown (a send without a receipt, events between
a commit and a crash) every possible one is allowed; all else is strict.
"""

from collections import Counter, defaultdict

from history import ENDS
from view import text_of


def accepted_is_never_lost(view):
    """an acknowledged message is stored, unless retention may have removed
    it"""
    for identity in view.receipts:
        for event in view.receipts_with(identity, "accepted", "duplicate", "conflict"):
            seq = event.get("seq", 0)
            if seq == 0 and not view.may_drop(identity[0]):
                yield (
                    f"{text_of(identity)} was reported as {event['result']} "
                    "without a message"
                )
            if seq == 0 or seq in view.messages:
                continue
            what = f"message {seq} ({text_of(identity)})"
            if not view.payload_ms:
                yield f"{what} was reported as {event['result']} and is not stored"
            elif not view.is_complete(seq):
                yield f"{what} was removed before it had ended"


def stored_means_delivered(view):
    """a stored message has its deliveries, or is parked"""
    for seq, rows in view.messages.items():
        what = f"message {seq} ({rows[0]['id']!r})"
        handlers = {view.delivery_of(row)[1] for row in view.delivered[seq]}
        if seq in view.parked:
            if handlers:
                yield f"{what} is parked and has deliveries"
        elif not handlers:
            yield f"{what} is stored, but neither parked nor delivered to anyone"
        for key, handler in view.handlers.items():
            wanted = handler.get("channel") == rows[0]["channel"]
            if wanted and not view.kin[key] & handlers:
                yield f"{what} has no delivery to {key}, which wants it"


def deliveries_have_messages(view):
    """an open or poisoned delivery has its message, and its key is
    remembered"""
    for (seq, handler), rows in view.deliveries.items():
        for row in rows:
            if row["state"] in ("done", "discarded"):
                continue
            what = f"message {seq}, {row['state']} for {handler},"
            if seq not in view.messages:
                yield f"{what} is not in the store"
            if view.keys is not None and seq not in view.keys:
                yield f"{what} has no key any more: it would be accepted again"


def keys_are_kept(view):
    """the dedupe memory keeps accepted ids as long as it should"""
    if view.keys is not None and not view.dedupe_ms:
        for seq in sorted(set(view.messages) - view.keys):
            yield f"message {seq} has no key, and keys are kept for ever"
    for identity in view.receipts:
        seqs = [e.get("seq", 0) for e in view.receipts_with(identity, "accepted")]
        seqs = [seq for seq in seqs if seq]
        if len(seqs) < 2:
            continue
        what = text_of(identity)
        if len(set(seqs)) < len(seqs):
            yield f"{what} was accepted twice as one message, {seqs[0]}"
        elif not view.dedupe_ms:
            yield f"{what} was accepted twice, as {seqs}"
        for seq in sorted(seqs)[:-1]:
            for row in view.delivered.get(seq, []):
                if row["state"] not in ("done", "discarded"):
                    yield (
                        f"{what} was accepted again while message {seq} was "
                        f"{row['state']} for {row['handler']}"
                    )


def duplicate_means_known(view):
    """only a message that may have been accepted with that body is a
    duplicate"""
    ignoring = view.config.get("on_conflict") == "ignore"
    for identity in view.receipts:
        for event in view.receipts_with(identity, "duplicate"):
            what = f"{text_of(identity)} with the body {event['body']!r}"
            firsts = [e["body"] for e in view.receipts_with(identity, "accepted")]
            firsts += view.unknown_bodies(identity)
            if not firsts:
                yield f"{what} was reported as duplicate, but was never accepted"
            elif event["body"] not in firsts and not ignoring:
                yield f"{what} was reported as duplicate, but another body was accepted"
            for row in view.messages.get(event.get("seq", 0), []):
                if row["body"] != event["body"] and not ignoring:
                    yield (
                        f"{what} was reported as duplicate of message {row['seq']}, "
                        f"whose body is {row['body']!r}"
                    )


def conflict_means_another_body(view):
    """a conflict means that another body was first, and that body is kept"""
    for identity in view.receipts:
        for event in view.receipts_with(identity, "conflict"):
            what = f"{text_of(identity)} with the body {event['body']!r}"
            others = [e["body"] for e in view.receipts_with(identity, "accepted")]
            others += view.unknown_bodies(identity)
            if not any(body != event["body"] for body in others):
                yield f"{what} was reported as conflict, but no other body was accepted"
            for row in view.messages.get(event.get("seq", 0), []):
                if row["body"] == event["body"]:
                    yield f"{what} was reported as conflict, and is what is stored"


def first_body_is_kept(view):
    """the accepted body is the stored one"""
    for identity in view.receipts:
        for event in view.receipts_with(identity, "accepted"):
            for row in view.messages.get(event.get("seq", 0), []):
                if row["body"] != event["body"]:
                    yield (
                        f"message {row['seq']} ({text_of(identity)}) was accepted "
                        f"as {event['body']!r} and is stored as {row['body']!r}"
                    )


def numbers_are_given_once(view):
    """a number belongs to one message for ever, and a message has one
    number"""
    owners = defaultdict(set)
    for identity, events in view.receipts.items():
        for event in events:
            if event.get("seq"):
                owners[event["seq"]].add(identity)
    for runs in view.runs.values():
        for event in runs:
            identity = (event["channel"], event["source"], event["id"])
            owners[event["seq"]].add(identity)
    for seq, rows in view.messages.items():
        if len(rows) > 1:
            yield f"message {seq} is stored {len(rows)} times"
        for row in rows:
            owners[seq].add((row["channel"], row["source"], row["id"]))
    for seq, identities in owners.items():
        if len(identities) > 1:
            names = " and ".join(sorted(text_of(i) for i in identities))
            yield f"the number {seq} was given to {names}"
    for identity, rows in view.stored.items():
        if len(rows) > 1 and not view.dedupe_ms:
            numbers = sorted(row["seq"] for row in rows)
            yield f"{text_of(identity)} is stored twice, as {numbers}"


def nothing_comes_from_nowhere(view):
    """a stored or run message was sent with that body and not rejected"""

    def was_sent(identity, body, what):
        bodies = [event["body"] for event in view.sends.get(identity, [])]
        if body not in bodies:
            others = f"; sent was {bodies[0]!r}" if bodies else ""
            yield f"{what} with the body {body!r}, which nobody sent{others}"
            return
        firsts = [e["body"] for e in view.receipts_with(identity, "accepted")]
        if body not in firsts + view.unknown_bodies(identity):
            yield f"{what} with the body {body!r}, which was never accepted"

    for identity, rows in view.stored.items():
        for row in rows:
            what = f"message {row['seq']} ({text_of(identity)}) is stored"
            yield from was_sent(identity, row["body"], what)
    for (seq, handler), runs in view.runs.items():
        for event in runs:
            identity = (event["channel"], event["source"], event["id"])
            what = f"{handler} ran message {seq} ({text_of(identity)})"
            yield from was_sent(identity, event["body"], what)
            for row in view.messages.get(seq, []):
                if row["body"] != event["body"]:
                    yield f"{what} as {event['body']!r}, stored is {row['body']!r}"
    for seq, handler in view.effects:
        if seq not in view.messages and not view.payload_ms:
            yield f"{handler} left an effect of message {seq}, which is not stored"


def one_delivery_each(view):
    """a message has one delivery to a handler, whatever key it went by"""
    for (seq, handler), rows in view.deliveries.items():
        if len(rows) > 1:
            states = " and ".join(sorted(row["state"] for row in rows))
            yield f"message {seq} is delivered to {handler} twice: {states}"


def an_alias_is_one_handler(view):
    """a copy accepted after two keys became one has no second delivery"""
    if not view.has_order:
        return
    for alias in view.aliases:
        keys = (alias["handler"], alias["of"])
        delivered = [set() for _ in keys]
        for seq, handler in [*view.deliveries, *view.runs]:
            for index, key in enumerate(keys):
                if handler == key:
                    delivered[index].add(seq)
        for seq in sorted(delivered[0] & delivered[1]):
            before = [
                event
                for identity in view.identities_of(seq)
                for event in view.sends.get(identity, [])
                if event["place"] < alias["place"]
            ]
            if len(before) < 2:
                yield (
                    f"message {seq} is delivered to {keys[0]} and {keys[1]}, but "
                    f"was sent {len(before)} times before they were one"
                )


def runs_hold_a_lease(view):
    """a fence belongs to one lease, which is run once"""
    for (seq, handler), runs in view.runs.items():
        lives = defaultdict(list)
        for event in runs:
            lives[event["fence"]].append(event["life"])
        for fence, holders in lives.items():
            what = f"{handler} ran message {seq} under fence {fence}"
            if fence < 1:
                yield f"{what}, which no lease has"
            if len(set(holders)) > 1:
                yield f"{what} in two lives of processes"
            elif len(holders) > 1 and not view.handler(handler).get("transactional"):
                yield f"{what} {len(holders)} times"


def fences_never_go_back(view):
    """no fence was higher than the one that is stored"""
    for delivery in set(view.runs) | set(view.settled):
        seq, handler = delivery
        events = view.runs.get(delivery, []) + view.settled.get(delivery, [])
        highest = max(event["fence"] for event in events)
        for row in view.deliveries.get(delivery, []):
            if row["fence"] < highest:
                yield (
                    f"message {seq} for {handler} had fence {highest} and is "
                    f"{row['state']} under fence {row['fence']}"
                )


def a_lease_ends_once(view):
    """a lease is settled once, or refused, never both"""
    for delivery, events in view.settled.items():
        seq, handler = delivery
        refused = {event["fence"] for event in view.fenced.get(delivery, [])}
        for fence, count in Counter(event["fence"] for event in events).items():
            what = f"the lease {fence} of message {seq} for {handler}"
            if count > 1:
                tos = " and ".join(e["to"] for e in events if e["fence"] == fence)
                yield f"{what} was settled {count} times, as {tos}"
            if fence in refused:
                yield f"{what} was settled and refused"


def ended_stays_ended(view):
    """an ended delivery is not run and does not end again, unless retried"""
    for delivery, events in view.settled.items():
        seq, handler = delivery
        for event in events:
            if event["to"] not in ENDS or view.may_reopen(delivery, event["to"]):
                continue
            what = f"message {seq} for {handler}, {event['to']} under {event['fence']},"
            for later in view.runs.get(delivery, []):
                if later["fence"] > event["fence"]:
                    yield f"{what} was run again under fence {later['fence']}"
            for later in events:
                if later["fence"] > event["fence"]:
                    yield f"{what} was {later['to']} again under {later['fence']}"


def late_results_are_refused(view):
    """nothing is settled under a fence after a later one was run"""
    if not view.has_order:
        return
    for delivery, rans in view.rans.items():
        seq, handler = delivery
        settled = {event["fence"]: event for event in view.settled.get(delivery, [])}
        runs = view.runs.get(delivery, [])
        timeouts = view.handler(handler).get("timeouts")
        for event in rans:
            mine = settled.get(event["fence"])
            if mine and timeouts and mine["place"] < event["place"]:
                continue  # it timed out while it ran
            for later in runs:
                if (
                    mine
                    and later["fence"] > event["fence"]
                    and later["place"] < event["place"]
                ):
                    yield (
                        f"message {seq} for {handler} was {mine['to']} under fence "
                        f"{event['fence']}, but fence {later['fence']} was running "
                        "when its run ended"
                    )
                    break


def durable_is_durable(view):
    """a delivery that was reported as ended is stored as ended"""
    for delivery in view.settled:
        seq, handler = delivery
        event = view.last_end(delivery)
        if not event or view.may_reopen(delivery, event["to"]):
            continue
        what = f"message {seq} for {handler} was reported as {event['to']}"
        rows = view.deliveries.get(delivery, [])
        edited = view.edits_of(delivery, "discard")
        kept = event["to"] == "poisoned" and not edited
        if not rows and (kept or not view.payload_ms):
            yield f"{what}, and is not stored"
        for row in rows:
            if row["state"] == event["to"] and row["fence"] == event["fence"]:
                continue
            if edited and row["state"] == "discarded":
                continue
            if row["fence"] > event["fence"] and row["state"] in ENDS:
                continue  # ended_stays_ended reports this in more detail
            yield f"{what} under {event['fence']}, and is {row['state']}"


def ends_have_reasons(view):
    """done, poisoned and discarded follow from the handler's outcome"""
    for delivery, rows in view.deliveries.items():
        for row in rows:
            if row["state"] in ENDS:
                yield from check_end(view, delivery, row)
    for delivery, events in view.settled.items():
        for event in events:
            yield from check_settlement(view, delivery, event)


def check_end(view, delivery, row):
    seq, handler = delivery
    options = view.handler(handler)
    outcomes = view.outcomes(delivery, row["fence"])
    what = f"message {seq} is {row['state']} for {handler} under {row['fence']}"
    if row["state"] == "done":
        effects = [
            effect
            for effect in view.effects.get(delivery, [])
            if effect.get("fence") in (None, row["fence"])
        ]
        if "done" not in outcomes and not (options.get("transactional") and effects):
            said = f"returned {outcomes[0]}" if outcomes else "did not return"
            yield f"{what}, but its run {said}"
    elif row["state"] == "discarded":
        if "discard" not in outcomes and not view.edits_of(delivery, "discard"):
            yield f"{what}, but nobody discarded it"
    elif options and "poison" not in outcomes:
        most = options.get("max_attempts", 0)
        worn = row.get("failures", 0) >= options.get("fewest_attempts", most)
        crashed = options.get("max_crashes") and row.get("crashes", 1) >= options[
            "max_crashes"
        ]
        if not worn and not crashed:
            yield (
                f"{what} after {row.get('failures', 0)} of "
                f"{options.get('max_attempts')} attempts, and it was no poison"
            )


def check_settlement(view, delivery, event):
    seq, handler = delivery
    options = view.handler(handler)
    if options.get("timeouts"):
        return
    allowed = {
        "done": {"done"},
        "discarded": {"discard"},
        "poisoned": {"poison", "retry"},
        "pending": {"retry", "snooze", "hold"},
    }.get(event["to"])
    outcomes = view.outcomes(delivery, event["fence"])
    if allowed and outcomes and not allowed & set(outcomes):
        # A transactional run with the outcome done may fail in its commit.
        if options.get("transactional") and event["to"] in ("pending", "poisoned"):
            return
        yield (
            f"message {seq} for {handler} was settled as {event['to']} under "
            f"{event['fence']}, but its run returned {outcomes[0]}"
        )
    if event["to"] == "done" and not outcomes and not options.get("transactional"):
        yield (
            f"message {seq} for {handler} was settled as done under "
            f"{event['fence']}, but its run did not return"
        )


def effects_happen_once(view):
    """a transactional handler has one effect for each done, and no other"""
    for delivery in set(view.effects) | set(view.deliveries):
        seq, handler = delivery
        effects = view.effects.get(delivery, [])
        if not view.handler(handler).get("transactional"):
            continue
        rows = view.deliveries.get(delivery, [])
        states = [row["state"] for row in rows]
        if not rows and seq not in view.messages and view.payload_ms:
            states = ["done"] if effects else []  # removed by retention
        what = f"message {seq} has {len(effects)} effects of {handler}"
        if "done" in states:
            if len(effects) != 1 and not view.may_reopen(delivery, "done"):
                yield f"{what}, and is done"
            for row in rows:
                for effect in effects:
                    if effect.get("fence") not in (None, row["fence"]):
                        yield (
                            f"message {seq} is done for {handler} under "
                            f"{row['fence']}, but its effect is of fence "
                            f"{effect['fence']}"
                        )
        elif effects and not (
            len(effects) == 1 and "discarded" in states
        ) and not view.may_reopen(delivery):
            yield f"{what}, and is {states[0] if states else 'not delivered to it'}"


def attempts_are_bounded(view):
    """failures are counted, each once, and at most max_attempts of them"""
    for delivery, rows in view.deliveries.items():
        most = view.handler(delivery[1]).get("max_attempts")
        for row in rows:
            if most and row.get("failures", 0) > most:
                yield (
                    f"message {delivery[0]} for {delivery[1]} has "
                    f"{row['failures']} failures, of at most {most}"
                )
    for delivery, runs in view.runs.items():
        yield from check_attempts(view, delivery, runs)


def check_attempts(view, delivery, runs):
    seq, handler = delivery
    options = view.handler(handler)
    most = options.get("max_attempts")
    reopened = view.may_reopen(delivery)
    rans = view.rans.get(delivery, [])
    failed = {e["fence"] for e in rans if e["outcome"] == "retry"}
    if options.get("transactional"):
        failed |= {e["fence"] for e in runs}  # any may fail in its commit
    holds = sorted(e["fence"] for e in rans if e["outcome"] == "hold")
    charged = set(holds[1:])  # from the second on a fault may be the message's
    kept = {e["fence"] for e in view.settled.get(delivery, []) if e["to"] == "pending"}
    for event in runs:
        attempt = event.get("attempt")
        if attempt is None:
            continue
        what = f"{handler} ran message {seq} under {event['fence']}"
        what += f" as attempt {attempt}"
        if most and attempt > most:
            yield f"{what}, of at most {most}"
        before = {fence for fence in failed if fence < event["fence"]}
        most_before = {fence for fence in failed | charged if fence < event["fence"]}
        if attempt > 1 + len(most_before) and not options.get("timeouts"):
            yield f"{what}, but only {len(most_before)} runs before it had failed"
        if options.get("transactional") or reopened:
            continue
        if attempt < 1 + len(before & kept):
            yield f"{what}, but {len(before & kept)} failures before it were kept"


def nothing_due_is_left(view):
    """nothing is open after a drained run"""
    if not view.drained:
        return
    for (seq, handler), rows in view.deliveries.items():
        for row in rows:
            if row["state"] in ENDS:
                continue
            if handler and handler not in view.handlers:
                continue  # held for an orphaned handler
            yield f"message {seq} is still {row['state']} for {handler}"
    wanted = {h.get("channel") for h in view.handlers.values()} - {None}
    for seq in sorted(view.parked):
        for row in view.messages.get(seq, []):
            if row["channel"] in wanted:
                yield f"message {seq} is still parked, though it is wanted"


def retention_waits(view):
    """no message is removed before its retention, and every removal is
    reported"""
    removed = set()
    for identity in view.receipts:
        for event in view.receipts_with(identity, "accepted"):
            seq = event.get("seq", 0)
            if seq and seq not in view.messages:
                removed.add(seq)
    for seq in sorted(removed):
        seen = view.seen_at.get(seq)
        if view.payload_ms and seen is not None and view.last_at is not None:
            age = view.last_at - seen
            if age < view.payload_ms:
                yield (
                    f"message {seq} was removed {age} ms after it last occurred"
                    f" in an event, and is to be kept for {view.payload_ms} ms"
                )
    if view.cleaned and not view.crashes:
        said = sum(event.get("messages", 0) for event in view.cleaned)
        if len(removed) > said:
            yield f"{len(removed)} messages were removed, but {said} were reported"


def locks_have_one_owner(view):
    """every owner of a lock gets a new fence"""
    owners = defaultdict(set)
    for event in view.locked:
        owners[event.get("name"), event["fence"]].add(event["life"])
    for (_, fence), lives in owners.items():
        if len(lives) > 1:
            yield f"the lock's fence {fence} was given to {len(lives)} owners"
    if view.has_order and not view.config.get("told_late"):
        last = {}
        for event in view.locked:
            name = event.get("name")
            if event["fence"] < last.get(name, 0):
                yield (
                    f"the lock was given under fence {event['fence']} after it "
                    f"was given under {last[name]}"
                )
            last[name] = max(event["fence"], last.get(name, 0))


RULES = [
    accepted_is_never_lost,
    stored_means_delivered,
    deliveries_have_messages,
    keys_are_kept,
    duplicate_means_known,
    conflict_means_another_body,
    first_body_is_kept,
    numbers_are_given_once,
    nothing_comes_from_nowhere,
    one_delivery_each,
    an_alias_is_one_handler,
    runs_hold_a_lease,
    fences_never_go_back,
    a_lease_ends_once,
    ended_stays_ended,
    late_results_are_refused,
    durable_is_durable,
    ends_have_reasons,
    effects_happen_once,
    attempts_are_bounded,
    nothing_due_is_left,
    retention_waits,
    locks_have_one_owner,
]
