# SPDX-License-Identifier: MIT
"""The run that test_checker.py changes: its parts, and a clean one."""

import copy


class Run:
    """A run that can be changed: its events in order, and its dump."""

    def __init__(self):
        self.config = {
            "e": "config",
            "handlers": {
                "mail": {"transactional": False, "max_attempts": 3},
                "bank": {"transactional": True, "max_attempts": 3},
            },
            "retention": {"payload_ms": 0, "dedupe_ms": 0},
        }
        self.events = []
        self.dump = {
            "messages": [],
            "deliveries": [],
            "parked": [],
            "effects": [],
            "drained": True,
        }

    def add(self, kind, **fields):
        self.events.append({"e": kind, "node": 1, **fields})
        return self.events[-1]

    def send(self, name, result=None, seq=0, body=None):
        message = {"channel": "c", "source": "s", "id": name, "body": body or name}
        self.add("send", **message)
        if result:
            return self.add("receipt", **message, result=result, seq=seq)
        return None

    def run(self, seq, handler, fence, outcome=None, attempt=1, body=None, **more):
        name = more.pop("id", f"m{seq}")
        self.add(
            "run", seq=seq, channel="c", source="s", id=name, body=body or name,
            handler=handler, fence=fence, attempt=attempt, **more,
        )
        if outcome:
            self.ran(seq, handler, fence, outcome)

    def ran(self, seq, handler, fence, outcome):
        self.add("ran", seq=seq, handler=handler, fence=fence, outcome=outcome)

    def settled(self, seq, handler, fence, to):
        self.add("settled", seq=seq, handler=handler, fence=fence, to=to)

    def store(self, seq, name=None, body=None):
        name = name or f"m{seq}"
        self.dump["messages"].append(
            {"seq": seq, "channel": "c", "source": "s", "id": name, "body": body or name}
        )

    def deliver(self, seq, handler, state, fence, failures=0):
        self.dump["deliveries"].append(
            {"seq": seq, "handler": handler, "state": state, "fence": fence,
             "failures": failures, "starts": fence}
        )

    def effect(self, seq, fence, handler="bank"):
        self.dump["effects"].append({"seq": seq, "handler": handler, "fence": fence})

    def row(self, seq, handler):
        for row in self.dump["deliveries"]:
            if (row["seq"], row["handler"]) == (seq, handler):
                return row
        raise KeyError((seq, handler))

    def without(self, seq):
        """Removes message `seq` from the dump."""
        for name in ("messages", "deliveries", "effects"):
            self.dump[name] = [r for r in self.dump[name] if r["seq"] != seq]

    def drop(self, kind, **fields):
        """Removes events."""
        wanted = {"e": kind, **fields}.items()
        before = len(self.events)
        self.events = [e for e in self.events if not wanted <= e.items()]
        assert len(self.events) < before

    def find(self, kind, **fields):
        wanted = {"e": kind, **fields}.items()
        return next(e for e in self.events if wanted <= e.items())

    def histories(self):
        return [copy.deepcopy([self.config] + self.events)]


def clean_run():
    """Two messages, each done by both handlers, one after a failure."""
    run = Run()
    run.send("m1", "accepted", 1)
    run.send("m1", "duplicate", 1)
    run.send("m1", "conflict", 1, body="other")
    run.send("m2", "failed")
    run.send("m2", "duplicate", 2)
    run.send("m3")  # the result is unknown; it was not stored
    for seq in (1, 2):
        run.store(seq)
        run.run(seq, "bank", 1, "done")
        run.effect(seq, 1)
        run.settled(seq, "bank", 1, "done")
        run.deliver(seq, "bank", "done", 1)
    run.run(1, "mail", 1, "retry")
    run.settled(1, "mail", 1, "pending")
    run.run(1, "mail", 2, "snooze", attempt=2)
    run.settled(1, "mail", 2, "pending")
    run.run(1, "mail", 3, "done", attempt=2)
    run.settled(1, "mail", 3, "done")
    run.deliver(1, "mail", "done", 3, failures=1)
    run.run(2, "mail", 1)
    run.add("crash")
    run.add("start")
    run.run(2, "mail", 2, "done")
    run.deliver(2, "mail", "done", 2)
    return run
