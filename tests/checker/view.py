# SPDX-License-Identifier: MIT
"""A run as the rules read it: its events, indexed by message and delivery."""

from collections import defaultdict

from history import ENDS, BadHistory


def text_of(identity):
    channel, source, message_id = identity
    return f"'{message_id}' of {source} in {channel}"


class View:
    """The events and the dump of a run, indexed."""

    def __init__(self, histories, dump):
        self.dump = dump
        self.config = {}
        self.names = {}  # handler key -> the key it has now
        self.has_order = len(histories) <= 1
        events = self.put_in_order(histories)
        self.read_config(events)
        self.read_events(events)
        self.read_dump()

    def put_in_order(self, histories):
        events = [event for history in histories for event in history]
        if events and all("t" in e for e in events if e["e"] != "config"):
            events.sort(key=lambda event: event.get("t", float("-inf")))
            self.has_order = True
        return events

    def read_config(self, events):
        if not events or events[0]["e"] != "config":
            raise BadHistory("the first line of the first history is not a config")
        self.config = events[0]
        self.handlers = self.config.get("handlers", {})
        for key, handler in self.handlers.items():
            for name in [key] + handler.get("aliases", []):
                self.names[name] = key
        self.kin = defaultdict(set)  # handler key -> all keys of that handler
        for key, handler in self.handlers.items():
            self.kin[handler.get("renamed", key)].add(key)
        for key, handler in self.handlers.items():
            self.kin[key] = self.kin[handler.get("renamed", key)]
        retention = self.config.get("retention", {})
        self.payload_ms = retention.get("payload_ms", 0)
        self.dedupe_ms = retention.get("dedupe_ms", 0)

    def delivery_of(self, event):
        handler = event["handler"]
        return event["seq"], self.names.get(handler, handler)

    def read_events(self, events):
        self.sends = defaultdict(list)  # identity -> events
        self.receipts = defaultdict(list)
        self.runs = defaultdict(list)  # (seq, handler) -> events
        self.rans = defaultdict(list)
        self.settled = defaultdict(list)
        self.fenced = defaultdict(list)
        self.edits = defaultdict(list)  # None: of any delivery
        self.locked = []
        self.cleaned = []
        self.aliases = []
        self.crashes = 0
        self.last_at = None
        self.seen_at = {}  # seq -> the time of its last event
        lives = defaultdict(int)
        for place, event in enumerate(events):
            # Rules compare events only by their place and their node's life.
            event["place"] = place
            event["life"] = (event.get("node"), lives[event.get("node")])
            kind = event["e"]
            if kind in ("send", "receipt"):
                identity = (event["channel"], event["source"], event["id"])
                by = self.sends if kind == "send" else self.receipts
                by[identity].append(event)
            elif kind in ("run", "ran", "settled", "fenced"):
                by = {
                    "run": self.runs,
                    "ran": self.rans,
                    "settled": self.settled,
                    "fenced": self.fenced,
                }[kind]
                by[self.delivery_of(event)].append(event)
            elif kind == "edit":
                one = "seq" in event and "handler" in event
                self.edits[self.delivery_of(event) if one else None].append(event)
            elif kind == "locked":
                self.locked.append(event)
            elif kind == "cleaned":
                self.cleaned.append(event)
            elif kind == "alias":
                self.aliases.append(event)
            elif kind in ("crash", "start"):
                lives[event.get("node")] += 1
                self.crashes += kind == "crash"
            self.read_time(event)

    def read_time(self, event):
        at = event.get("at")
        if at is None:
            return
        if self.last_at is None or at > self.last_at:
            self.last_at = at
        if event.get("seq") and event["e"] != "receipt":
            self.seen_at[event["seq"]] = at

    def read_dump(self):
        self.messages = defaultdict(list)  # seq -> rows
        self.stored = defaultdict(list)  # identity -> rows
        self.deliveries = defaultdict(list)  # (seq, handler) -> rows
        self.delivered = defaultdict(list)  # seq -> rows
        self.effects = defaultdict(list)
        for row in self.dump.get("messages", []):
            self.messages[row["seq"]].append(row)
            self.stored[row["channel"], row["source"], row["id"]].append(row)
        for row in self.dump.get("deliveries", []):
            self.deliveries[self.delivery_of(row)].append(row)
            self.delivered[row["seq"]].append(row)
        for row in self.dump.get("effects", []):
            self.effects[self.delivery_of(row)].append(row)
        self.parked = set(self.dump.get("parked", []))
        keys = self.dump.get("keys")
        self.keys = None if keys is None else set(keys)
        self.drained = self.dump.get("drained", False)

    def handler(self, key):
        return self.handlers.get(key, {})

    def may_drop(self, channel):
        return channel in self.config.get("drops", [channel])

    def edits_of(self, delivery, *ops):
        """Edits that may have changed a delivery."""
        seq, handler = delivery
        of_it = list(self.edits.get(None, []))
        for key in self.kin.get(handler, {handler}):
            of_it += self.edits.get((seq, key), [])
        return [edit for edit in of_it if edit["op"] in ops]

    def may_reopen(self, delivery, state=None):
        """Whether it may have been reopened after it had ended."""
        if self.edits_of(delivery, "retry", "replay"):
            return True
        return state != "done" and self.handler(delivery[1]).get(
            "retry_poisoned", False
        )

    def outcomes(self, delivery, fence):
        """The outcomes that its handler returned under a fence."""
        return [
            event["outcome"]
            for event in self.rans.get(delivery, [])
            if event["fence"] == fence
        ]

    def receipts_with(self, identity, *results):
        return [
            event
            for event in self.receipts.get(identity, [])
            if event["result"] in results
        ]

    def identities_of(self, seq):
        """The messages that have this number; more than one breaks another
        rule."""
        found = {
            (row["channel"], row["source"], row["id"])
            for row in self.messages.get(seq, [])
        }
        for identity, events in self.receipts.items():
            if any(event.get("seq") == seq for event in events):
                found.add(identity)
        for (number, _), events in self.runs.items():
            if number == seq:
                found |= {(e["channel"], e["source"], e["id"]) for e in events}
        return found

    def unknown_bodies(self, identity):
        """Bodies of sends whose result is unknown."""
        bodies = [event["body"] for event in self.sends.get(identity, [])]
        for event in self.receipts.get(identity, []):
            if event["result"] != "failed" and event["body"] in bodies:
                bodies.remove(event["body"])
        return bodies

    def is_complete(self, seq):
        """Whether, by the events, all deliveries of a message had ended well.

        Then retention may have removed it.
        """
        for delivery, events in self.runs.items():
            if delivery[0] != seq:
                continue
            last = max(event["fence"] for event in events)
            ended = {"done", "discard"} & set(self.outcomes(delivery, last))
            if not ended and not self.edits_of(delivery, "discard"):
                return False
        return True

    def last_end(self, delivery):
        """The last recorded settlement that ended it."""
        ends = [e for e in self.settled.get(delivery, []) if e["to"] in ENDS]
        return max(ends, key=lambda event: event["fence"], default=None)
