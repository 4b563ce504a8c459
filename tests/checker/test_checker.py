#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shows that the checker finds breaches of its rules, and nothing else.

There is one clean run; every case below changes it a little and names the rule
that must find the change, with a part of its sentence, or no rule if nothing
may be found.
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "checks"))
from check import check  # noqa: E402
from clean_run import clean_run  # noqa: E402
from history import BadHistory, body_text  # noqa: E402
from rules import RULES  # noqa: E402
from tap import Tap  # noqa: E402

CASES = []


def case(name, rule=None, sentence=""):
    """A case changes the clean run; `rule` must find it, None: nothing."""

    def add(change):
        CASES.append((name, rule, sentence, change))
        return change

    return add


@case("a clean run passes")
def _(run):
    pass


@case("an accepted message that is not stored is lost",
      "accepted_is_never_lost", "message 1 ('m1' of s in c) was reported as accepted")
def _(run):
    run.without(1)


@case("a message reported as duplicate that is not stored is lost",
      "accepted_is_never_lost", "was reported as duplicate and is not stored")
def _(run):
    run.without(2)


@case("a dropped message need not be stored")
def _(run):
    run.send("m9", "accepted", 0)


@case("a message is not dropped in a channel that does not drop",
      "accepted_is_never_lost",
      "'m9' of s in c was reported as accepted without a message")
def _(run):
    run.config["drops"] = ["d"]
    run.send("m9", "accepted", 0)


@case("a message without a receipt may be stored or not")
def _(run):
    run.store(3)
    run.deliver(3, "mail", "done", 1)
    run.run(3, "mail", 1, "done")


@case("retention may remove a complete message")
def _(run):
    run.config["retention"]["payload_ms"] = 1000
    run.without(1)


@case("retention does not remove a message with an open delivery",
      "accepted_is_never_lost", "was removed before it had ended")
def _(run):
    run.config["retention"]["payload_ms"] = 1000
    run.without(1)
    run.drop("ran", seq=1, handler="mail", fence=3)
    run.drop("settled", seq=1, handler="mail", fence=3)


@case("a stored message without deliveries is found",
      "stored_means_delivered", "neither parked nor delivered")
def _(run):
    run.send("m4", "accepted", 4)
    run.store(4)


@case("a parked message has no deliveries")
def _(run):
    run.send("m4", "accepted", 4)
    run.store(4)
    run.dump["parked"].append(4)


@case("a parked message with deliveries is found",
      "stored_means_delivered", "is parked and has deliveries")
def _(run):
    run.dump["parked"].append(1)


@case("a handler that wants all of a channel has all of it",
      "stored_means_delivered", "has no delivery to mail")
def _(run):
    run.config["handlers"]["mail"]["channel"] = "c"
    run.dump["deliveries"].remove(run.row(2, "mail"))


def poison(run):
    run.send("m4", "accepted", 4)
    run.store(4)
    run.run(4, "mail", 1, "poison")
    run.settled(4, "mail", 1, "poisoned")
    run.deliver(4, "mail", "poisoned", 1, failures=1)


@case("a delivery may be poisoned by its first attempt")
def _(run):
    poison(run)


@case("a poisoned delivery keeps its message",
      "deliveries_have_messages", "poisoned for mail, is not in the store")
def _(run):
    poison(run)
    run.config["retention"]["payload_ms"] = 1000
    run.dump["messages"].pop()


@case("a poisoned delivery is never removed",
      "durable_is_durable", "was reported as poisoned, and is not stored")
def _(run):
    poison(run)
    run.config["retention"]["payload_ms"] = 1000
    run.without(4)


@case("a poisoned delivery that was discarded may be removed")
def _(run):
    poison(run)
    run.config["retention"]["payload_ms"] = 1000
    run.add("edit", op="discard", seq=4, handler="mail")
    run.without(4)


@case("the key of an open delivery does not expire",
      "deliveries_have_messages", "has no key any more")
def _(run):
    run.config["retention"]["dedupe_ms"] = 1000
    run.dump["drained"] = False
    run.send("m4", "accepted", 4)
    run.store(4)
    run.deliver(4, "mail", "pending", 0)
    run.dump["keys"] = [1, 2]


@case("keys that are kept for ever are stored", "keys_are_kept", "message 2 has no key")
def _(run):
    run.dump["keys"] = [1]


@case("a message is not accepted twice",
      "keys_are_kept", "was accepted twice, as [1, 4]")
def _(run):
    run.send("m1", "accepted", 4)
    run.store(4, "m1")
    run.deliver(4, "mail", "done", 1)
    run.run(4, "mail", 1, "done", id="m1")


@case("a message whose key may have expired can be accepted again")
def _(run):
    run.config["retention"]["dedupe_ms"] = 1000
    run.send("m1", "accepted", 4)
    run.store(4, "m1")
    run.deliver(4, "mail", "done", 1)
    run.run(4, "mail", 1, "done", id="m1")


@case("the key of an open message must not expire",
      "keys_are_kept", "was accepted again while message 1 was pending for mail")
def _(run):
    run.config["retention"]["dedupe_ms"] = 1000
    run.dump["drained"] = False
    run.send("m1", "accepted", 4)
    run.store(4, "m1")
    run.deliver(4, "mail", "done", 1)
    run.run(4, "mail", 1, "done", id="m1")
    run.row(1, "mail")["state"] = "pending"
    run.drop("settled", seq=1, handler="mail", fence=3)


@case("a message that was never accepted is not a duplicate",
      "duplicate_means_known", "was reported as duplicate, but was never accepted")
def _(run):
    run.send("m4", "duplicate", 4)
    run.store(4)
    run.deliver(4, "mail", "done", 1)
    run.run(4, "mail", 1, "done")


@case("a message with another body is not a duplicate",
      "duplicate_means_known", "whose body is 'm1'")
def _(run):
    run.send("m1", "duplicate", 1, body="third")


@case("conflicts may be reported as duplicates if so configured")
def _(run):
    run.config["on_conflict"] = "ignore"
    run.send("m1", "duplicate", 1, body="third")


@case("a message with the same body is not a conflict",
      "conflict_means_another_body", "no other body was accepted")
def _(run):
    run.send("m2", "conflict", 2)


@case("a conflict does not replace the body",
      "conflict_means_another_body", "reported as conflict, and is what is stored")
def _(run):
    run.dump["messages"][0]["body"] = "other"


@case("the accepted body is the stored one",
      "first_body_is_kept", "accepted as 'm1' and is stored as 'm2'")
def _(run):
    run.dump["messages"][0]["body"] = "m2"


@case("a number is given to one message only",
      "numbers_are_given_once", "the number 1 was given to 'm1'")
def _(run):
    run.send("m4", "accepted", 1)


@case("a number is stored once",
      "numbers_are_given_once", "message 2 is stored 2 times")
def _(run):
    run.store(2)


@case("a message is stored once",
      "numbers_are_given_once", "is stored twice, as [2, 4]")
def _(run):
    run.store(4, "m2")
    run.deliver(4, "mail", "done", 1)
    run.run(4, "mail", 1, "done", id="m2")


@case("a handler runs only messages that were sent",
      "nothing_comes_from_nowhere", "mail ran message 7 ('m7' of s in c) with")
def _(run):
    run.run(7, "mail", 1, "done")


@case("a handler gets the body byte for byte",
      "nothing_comes_from_nowhere", "with the body 'm1\\n', which nobody sent")
def _(run):
    run.find("run", seq=1, handler="mail", fence=3)["body"] = "m1\n"


@case("a handler gets the first body",
      "nothing_comes_from_nowhere", "'other', which was never accepted")
def _(run):
    run.find("run", seq=1, handler="mail", fence=3)["body"] = "other"


@case("a rejected message is not stored",
      "nothing_comes_from_nowhere", "is stored with the body 'm4', which was never")
def _(run):
    run.send("m4", "rejected")
    run.store(4)
    run.deliver(4, "mail", "done", 1)
    run.run(4, "mail", 1, "done")


@case("an effect belongs to a stored message",
      "nothing_comes_from_nowhere", "left an effect of message 9")
def _(run):
    run.effect(9, 1)


@case("a handler with an alias has one delivery of a message",
      "one_delivery_each", "message 1 is delivered to mail twice")
def _(run):
    run.config["handlers"]["mail"]["aliases"] = ["post"]
    run.deliver(1, "post", "done", 1)


def rename(run, sends):
    """Gives mail a former key, with a delivery of message 4 under each."""
    run.config["handlers"]["post"] = {"max_attempts": 3, "renamed": "mail"}
    for index in range(sends):
        run.send("m4", "duplicate" if index else "accepted", 4)
    run.add("alias", handler="post", of="mail")
    run.send("m4", "duplicate" if sends else "accepted", 4)
    run.store(4)
    for key in ("mail", "post"):
        run.run(4, key, 1, "done")
        run.deliver(4, key, "done", 1)


@case("a copy sent before two keys became one has a delivery for each")
def _(run):
    rename(run, 2)


@case("a copy sent after two keys became one has no second delivery",
      "an_alias_is_one_handler", "but was sent 1 times before they were one")
def _(run):
    rename(run, 1)


@case("a wanted message may be delivered under the legacy key")
def _(run):
    rename(run, 2)
    run.config["handlers"]["mail"]["channel"] = "c"
    run.dump["deliveries"] = [
        row for row in run.dump["deliveries"]
        if (row["seq"], row["handler"]) != (4, "mail")
    ]
    run.drop("run", seq=4, handler="mail")
    run.drop("ran", seq=4, handler="mail")


@case("an edit by one key may change a delivery stored under the other")
def _(run):
    rename(run, 2)
    run.add("edit", op="discard", seq=4, handler="mail")
    run.row(4, "post")["state"] = "discarded"


@case("a lease is run once",
      "runs_hold_a_lease", "mail ran message 1 under fence 3 2 times")
def _(run):
    run.events.insert(0, dict(run.find("run", seq=1, handler="mail", fence=3)))


@case("a transactional lease may be run again by the same process")
def _(run):
    run.events.insert(0, dict(run.find("run", seq=1, handler="bank")))


@case("a transactional lease is not run by two processes",
      "runs_hold_a_lease", "under fence 1 in two lives")
def _(run):
    run.run(1, "bank", 1, node=2)


@case("a run has a lease", "runs_hold_a_lease", "under fence 0, which no lease has")
def _(run):
    run.run(1, "mail", 0, attempt=1)


@case("the stored fence is the highest",
      "fences_never_go_back", "had fence 3 and is done under fence 2")
def _(run):
    run.row(1, "mail")["fence"] = 2
    run.ran(1, "mail", 2, "done")


@case("a lease is settled or returned once",
      "a_lease_ends_once", "was settled 2 times, as pending and returned")
def _(run):
    run.settled(1, "mail", 2, "returned")


@case("a lease is not settled and refused",
      "a_lease_ends_once", "lease 2 of message 1 for mail was settled and refused")
def _(run):
    run.add("fenced", seq=1, handler="mail", fence=2)


@case("a done delivery is not run again",
      "ended_stays_ended", "done under 3, was run again under fence 4")
def _(run):
    run.run(1, "mail", 4, attempt=2)
    run.row(1, "mail")["fence"] = 4
    run.ran(1, "mail", 4, "done")


@case("a done delivery is not done again",
      "ended_stays_ended", "done under 1, was done again under 2")
def _(run):
    run.settled(2, "mail", 1, "done")
    run.ran(2, "mail", 1, "done")
    run.settled(2, "mail", 2, "done")


def retry_poisoned(run):
    poison(run)
    run.run(4, "mail", 2, "done")
    run.settled(4, "mail", 2, "done")
    run.row(4, "mail").update(state="done", fence=2, failures=0)


@case("a poisoned delivery is not run again by itself",
      "ended_stays_ended", "poisoned under 1, was run again under fence 2")
def _(run):
    retry_poisoned(run)


@case("a poisoned delivery may run again after a retry by an operator")
def _(run):
    retry_poisoned(run)
    run.add("edit", op="retry", seq=4, handler="mail")


@case("a poisoned delivery may run again after a duplicate with retry_poisoned")
def _(run):
    retry_poisoned(run)
    run.config["handlers"]["mail"]["retry_poisoned"] = True


def overtaken(run):
    run.send("m4", "accepted", 4)
    run.store(4)
    run.run(4, "mail", 1)
    run.run(4, "mail", 2, node=2)
    run.ran(4, "mail", 1, "retry")


@case("a late settlement that was refused passes")
def _(run):
    overtaken(run)
    run.add("fenced", seq=4, handler="mail", fence=1)
    run.ran(4, "mail", 2, "done")
    run.deliver(4, "mail", "done", 2)


@case("a late settlement must be refused",
      "late_results_are_refused", "was pending under fence 1, but fence 2 was running")
def _(run):
    overtaken(run)
    run.settled(4, "mail", 1, "pending")
    run.ran(4, "mail", 2, "done")
    run.deliver(4, "mail", "done", 2)


@case("a run that timed out may end after it was settled")
def _(run):
    run.config["handlers"]["mail"]["timeouts"] = True
    run.send("m4", "accepted", 4)
    run.store(4)
    run.run(4, "mail", 1)
    run.settled(4, "mail", 1, "pending")
    run.run(4, "mail", 2, node=2, attempt=2)
    run.ran(4, "mail", 1, "done")
    run.ran(4, "mail", 2, "done")
    run.deliver(4, "mail", "done", 2, failures=1)


@case("a delivery reported as done stays done",
      "durable_is_durable", "was reported as done under 3, and is pending")
def _(run):
    run.row(1, "mail")["state"] = "pending"
    run.dump["drained"] = False


@case("done means that a run returned done",
      "ends_have_reasons", "done for mail under 2, but its run did not return")
def _(run):
    run.drop("ran", seq=2, handler="mail", fence=2)


@case("done means that a run returned done under the stored fence",
      "ends_have_reasons", "is done for mail under 4, but its run did not return")
def _(run):
    run.row(2, "mail")["fence"] = 4


@case("a failure is not settled as done",
      "ends_have_reasons", "settled as done under 3, but its run returned retry")
def _(run):
    run.find("ran", seq=1, handler="mail", fence=3)["outcome"] = "retry"


@case("discarded means that a handler or an operator discarded it",
      "ends_have_reasons", "but nobody discarded it")
def _(run):
    run.row(2, "mail")["state"] = "discarded"


@case("poisoned means that the attempts are used up",
      "ends_have_reasons", "after 1 of 3 attempts, and it was no poison")
def _(run):
    poison(run)
    run.find("ran", seq=4)["outcome"] = "retry"


@case("a max_attempts that changed may have been the lower one")
def _(run):
    poison(run)
    run.find("ran", seq=4)["outcome"] = "retry"
    run.config["handlers"]["mail"]["fewest_attempts"] = 1


@case("a done transactional delivery has its effect",
      "effects_happen_once", "message 1 has 0 effects of bank, and is done")
def _(run):
    run.dump["effects"].pop(0)


@case("a done transactional delivery has its effect once",
      "effects_happen_once", "message 1 has 2 effects of bank, and is done")
def _(run):
    run.effect(1, 1)


@case("an effect belongs to the run that is done",
      "effects_happen_once", "but its effect is of fence 2")
def _(run):
    run.dump["effects"][0]["fence"] = 2


@case("an effect does not exist without its completion",
      "effects_happen_once", "message 1 has 1 effects of bank, and is pending")
def _(run):
    run.row(1, "bank")["state"] = "pending"
    run.dump["drained"] = False
    run.drop("settled", seq=1, handler="bank")


@case("a delivery has at most max_attempts failures",
      "attempts_are_bounded", "has 4 failures, of at most 3")
def _(run):
    run.row(1, "mail")["failures"] = 4


@case("no attempt is above the limit",
      "attempts_are_bounded", "as attempt 4, of at most 3")
def _(run):
    run.find("run", seq=1, handler="mail", fence=3)["attempt"] = 4


@case("a snooze or a crash spends no attempt",
      "attempts_are_bounded", "as attempt 3, but only 1 runs before it had failed")
def _(run):
    run.find("run", seq=1, handler="mail", fence=3)["attempt"] = 3


@case("a hold spends no attempt",
      "attempts_are_bounded", "as attempt 3, but only 1 runs before it had failed")
def _(run):
    run.find("ran", seq=1, handler="mail", fence=2)["outcome"] = "hold"
    run.find("run", seq=1, handler="mail", fence=3)["attempt"] = 3


@case("a hold makes a delivery wait")
def _(run):
    run.find("ran", seq=1, handler="mail", fence=2)["outcome"] = "hold"


@case("a failure that was settled is counted",
      "attempts_are_bounded", "as attempt 1, but 1 failures before it were kept")
def _(run):
    run.find("run", seq=1, handler="mail", fence=3)["attempt"] = 1


@case("nothing is pending after a drained run",
      "nothing_due_is_left", "message 4 is still pending for mail")
def _(run):
    run.send("m4", "accepted", 4)
    run.store(4)
    run.deliver(4, "mail", "pending", 0)


@case("nothing is leased after a drained run",
      "nothing_due_is_left", "message 4 is still leased for mail")
def _(run):
    run.send("m4", "accepted", 4)
    run.store(4)
    run.deliver(4, "mail", "leased", 1)


@case("a delivery may be open if the run was not drained")
def _(run):
    run.dump["drained"] = False
    run.send("m4", "accepted", 4)
    run.store(4)
    run.deliver(4, "mail", "pending", 0)


@case("a parked message that a handler wants is unparked",
      "nothing_due_is_left", "message 4 is still parked, though it is wanted")
def _(run):
    run.config["handlers"]["bank"]["channel"] = "c"
    run.send("m4", "accepted", 4)
    run.store(4)
    run.dump["parked"].append(4)


@case("no message is removed before its retention",
      "retention_waits", "message 1 was removed 400 ms after it last occurred")
def _(run):
    run.config["retention"]["payload_ms"] = 1000
    for at, event in enumerate(run.events):
        event["at"] = 100
    run.add("clock", by=400, at=500)
    run.without(1)


@case("a message may be removed after its retention")
def _(run):
    run.config["retention"]["payload_ms"] = 1000
    for at, event in enumerate(run.events):
        event["at"] = 100
    run.add("cleaned", messages=1, keys=0, at=1100)
    run.without(1)


@case("every removed message is reported",
      "retention_waits", "1 messages were removed, but 0 were reported")
def _(run):
    run.config["retention"]["payload_ms"] = 1000
    run.drop("crash")
    run.drop("start")
    run.add("cleaned", messages=0, keys=0)
    run.without(1)


@case("a lock has one owner", "locks_have_one_owner", "fence 2 was given to 2 owners")
def _(run):
    run.add("locked", fence=2)
    run.add("locked", fence=2, node=2)


@case("a lock's fence never goes back",
      "locks_have_one_owner", "under fence 1 after it was given under 2")
def _(run):
    run.add("locked", fence=2)
    run.add("locked", fence=1, node=2)


@case("a stopped process may report its lock late")
def _(run):
    run.config["told_late"] = True
    run.add("locked", fence=2)
    run.add("locked", fence=1, node=2)


def check_case(rule, sentence, change):
    run = clean_run()
    change(run)
    breaches = check(run.histories(), run.dump)
    if rule is None:
        return [f"found {breach}" for breach in breaches]
    if any(b.startswith(rule + ":") and sentence in b for b in breaches):
        return []
    return [f"{rule} did not report {sentence!r}"] + [f"found {b}" for b in breaches]


def program(*arguments, text=""):
    result = subprocess.run(
        [sys.executable, os.path.join(HERE, "check.py"), *arguments],
        input=text, capture_output=True, text=True, check=False,
    )
    return result.returncode, result.stdout, result.stderr


def write_folder(folder, run, torn=""):
    lines = [json.dumps(event) + "\n" for event in run.histories()[0]]
    half = len(lines) // 2
    for name, part in (("a", lines[:half]), ("b", lines[half:])):
        with open(os.path.join(folder, f"{name}.jsonl"), "w", encoding="utf-8") as file:
            file.write("".join(part) + torn)
    with open(os.path.join(folder, "dump.json"), "w", encoding="utf-8") as file:
        json.dump(run.dump, file)


def check_program(tap):
    bad = clean_run()
    bad.without(1)
    bad.config["name"] = "the bad one"
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder, clean_run(), torn='{"e":"run","se')
        code, out, err = program(folder)
        tap.case("the last line of a history may be torn",
                 [out + err] if code != 0 else [])
        write_folder(folder, clean_run(), torn='{"e":"run","se\n')
        code, out, err = program(folder)
        tap.case("no other line of a history may be torn",
                 [] if code == 2 and "not JSON" in err else [out + err])
        write_folder(folder, bad)
        code, out, err = program(folder)
        tap.case("the exit code reports a broken run in a folder",
                 [] if code == 1 and "accepted_is_never_lost" in out else [out + err])
    stream = ""
    for run in (clean_run(), bad, clean_run()):
        for event in run.histories()[0] + [{"e": "dump", **run.dump}]:
            stream += json.dumps(event) + "\n"
    code, out, err = program("--stream", "-", text=stream)
    found = code == 1 and "the bad one: accepted_is_never_lost" in out
    tap.case("the broken run of a stream is named",
             [] if found and "3 runs" in out and "1 broken" in out else [out + err])
    code, out, err = program("--stream", "-", text=stream.rsplit("\n", 2)[0])
    tap.case("a stream that ends in the middle is refused",
             [] if code == 2 and "has no dump" in err else [out + err])


def check_input(tap):
    for name, event in [
        ("an unknown event is refused", {"e": "sent"}),
        ("an event without a required field is refused", {"e": "ran", "seq": 1}),
        ("an unknown result is refused",
         {"e": "receipt", "channel": "c", "source": "s", "id": "i", "body": "b",
          "result": "ok"}),
    ]:
        text = json.dumps({"e": "config"}) + "\n" + json.dumps(event) + "\n"
        code, out, err = program("--stream", "-", text=text)
        tap.case(name, [] if code == 2 and "stdin:2" in err else [out + err])
    try:
        check([[{"e": "start"}]], {})
        problems = ["it was not refused"]
    except BadHistory:
        problems = []
    tap.case("a history that does not begin with its config is refused", problems)
    texts = (body_text(b"short"), body_text(b"\xff")[:7], body_text(b"x" * 999)[:7])
    tap.case("a body is its text if it is short, else a digest",
             [] if texts == ("short", "sha256:", "sha256:") else [str(texts)])


def main():
    tap = Tap()
    for name, rule, sentence, change in CASES:
        tap.case(name, check_case(rule, sentence, change))
    broken = {rule for _, rule, _, _ in CASES}
    tap.case("every rule has a case that breaks it",
             [rule.__name__ for rule in RULES if rule.__name__ not in broken])
    check_input(tap)
    check_program(tap)
    tap.finish()


main()
