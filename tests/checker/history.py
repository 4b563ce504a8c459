# SPDX-License-Identifier: MIT
"""The histories and the dump of a run, and how they are read.

A run leaves histories, which clients and handlers wrote (never the engine),
and a dump of the store, made after the last recovery.

A history is a file of JSON lines. A writer appends a line and flushes it
before it continues, so every recorded event has happened. The last line of a
writer that was killed may be torn; it is ignored. One process may write the
history of many nodes, and one node may have many histories.

  {"e":"config", ...}      the first line of the first history
     "handlers": {KEY: {"transactional": bool, "max_attempts": N, more}}
     "retention": {"payload_ms": N, "dedupe_ms": N}      0 or missing: keep
  {"e":"send", MESSAGE}    before the call
  {"e":"receipt", MESSAGE, "result": R, "seq": N}      after it returned
     R: accepted, duplicate, conflict, rejected (certainly not stored), failed
     (unknown: an error, a lost connection). A send without a receipt counts
     as failed. seq: only of the first three; 0 if it was dropped.
  {"e":"run", MESSAGE, "seq", "handler", "fence", "attempt"}      it starts
  {"e":"ran", "seq", "handler", "fence", "outcome": O}      it returned
     O: done, retry, snooze, hold, poison, discard
  {"e":"settled", "seq", "handler", "fence", "to": S}      reported as durable
     S: done, poisoned, discarded, pending, returned
  {"e":"fenced", "seq", "handler", "fence"}      reported as refused
  {"e":"edit", "op": "retry"|"discard"|..., "seq", "handler"}
     before the call; without a seq: any of them
  {"e":"crash", "node"} {"e":"start", "node"} {"e":"clock", "by": MS}
  {"e":"cleaned", "messages": N, "keys": N}
  {"e":"alias", "handler": KEY, "of": KEY}
     deliveries stored for one key belong to the handler with the other one
  {"e":"locked", "node", "fence"} {"e":"unlocked", "node", "fence"}
  {"e":"dump", ...}        the dump as a line, in a stream of runs

MESSAGE is "node", "channel", "source", "id" and "body"; a body is its text if
it is short, else a digest: see body_text(). Any event may have:

  "node"   the node; required in all but sends and edits
  "t"      its position in one order of all events; without it, only events
           of one file are ordered
  "at"     the store's clock in ms, for rules about retention

The configuration of a handler may also have:

  "channel"         it wants every message of this channel
  "aliases"         keys it had before; events may name it by any of them
  "renamed"         the key it has now: deliveries are stored separately for
                    each key, and both belong to one handler
  "fewest_attempts" N: "max_attempts" changed during the run, and was never
                    below this; it is then the highest
  "max_crashes"     N
  "timeouts"        true: runs may time out
  "retry_poisoned"  true: a duplicate reopens a poisoned delivery
and that of the run: "on_conflict": "ignore" (conflicts are reported as
duplicates), "name" (of the run, for output; or "seed"), "drops": [CHANNEL]
(these may drop unrouted messages; if present, other channels must not),
"told_late": true ("t" is when a line was written; a process that was stopped
records its lock when another node has it).

A dump:

  "messages":   [{"seq", "channel", "source", "id", "body"}]
  "deliveries": [{"seq", "handler", "state", "fence", "failures", "starts"}]
     state: pending, leased, done, poisoned, discarded; "crashes" if known
  "parked":     [seq]
  "effects":    [{"seq", "handler", "fence"}]
     rows that transactional handlers wrote, one for each run that committed;
     no fence if it is not known
  "keys":       [seq]  the remembered ids, if the dump has them
  "drained":    true: the run continued until nothing was due, without faults

Other fields are ignored, so writers may add more.
"""

import glob
import hashlib
import json
import os

BODY_LEN_MAX = 200

KINDS = {
    "config",
    "send",
    "receipt",
    "run",
    "ran",
    "settled",
    "fenced",
    "edit",
    "crash",
    "start",
    "clock",
    "cleaned",
    "alias",
    "locked",
    "unlocked",
    "pull",
    "pulled",
}
RESULTS = {"accepted", "duplicate", "conflict", "rejected", "failed"}
OUTCOMES = {"done", "retry", "snooze", "hold", "poison", "discard"}
ENDS = {"done", "poisoned", "discarded"}
SETTLED_TO = ENDS | {"pending", "returned"}
STATES = ENDS | {"pending", "leased"}

NEEDED = {
    "send": ("channel", "source", "id", "body"),
    "receipt": ("channel", "source", "id", "body", "result"),
    "run": ("channel", "source", "id", "body", "seq", "handler", "fence"),
    "ran": ("seq", "handler", "fence", "outcome"),
    "settled": ("seq", "handler", "fence", "to"),
    "fenced": ("seq", "handler", "fence"),
    "edit": ("op",),
    "alias": ("handler", "of"),
    "locked": ("node", "fence"),
    "unlocked": ("node", "fence"),
    "pull": ("node", "seq", "fence"),
    "pulled": ("node", "seq", "fence", "done"),
}
CHOICES = {
    "receipt": ("result", RESULTS),
    "ran": ("outcome", OUTCOMES),
    "settled": ("to", SETTLED_TO),
}


class BadHistory(Exception):
    """The input is not a history; the run cannot be checked."""


def body_text(body):
    """A body as it is written in histories and dumps."""
    if len(body) <= BODY_LEN_MAX:
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return "sha256:" + hashlib.sha256(body).hexdigest()


def check_event(event, place):
    kind = event.get("e")
    if kind not in KINDS:
        raise BadHistory(f"{place}: unknown event {kind!r}")
    for field in NEEDED.get(kind, ()):
        if field not in event:
            raise BadHistory(f"{place}: a {kind} without {field!r}")
    if kind in CHOICES:
        field, choices = CHOICES[kind]
        if event[field] not in choices:
            raise BadHistory(f"{place}: {field!r} is {event[field]!r}")
    return event


def parse_lines(lines, name):
    """The JSON objects of a file; only the last line may be torn."""
    events = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError:
            if not line.endswith("\n"):
                break
            raise BadHistory(f"{name}:{number}: not JSON") from None
        if not isinstance(event, dict):
            raise BadHistory(f"{name}:{number}: not an object")
        events.append((event, f"{name}:{number}"))
    return events


def read_history(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        parsed = parse_lines(file, path)
    return [check_event(event, place) for event, place in parsed]


def read_dump(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_folder(path):
    """The histories (*.jsonl, in order of name) and dump.json of a run."""
    names = sorted(glob.glob(os.path.join(path, "*.jsonl")))
    if not names:
        raise BadHistory(f"{path}: no *.jsonl")
    dump = read_dump(os.path.join(path, "dump.json"))
    return [read_history(name) for name in names], dump


def read_stream(lines, name):
    """Yields (history, dump) for the runs of a file, one after the other.

    A run begins with its config line and ends with its dump.
    """
    history = []
    number = 0
    for number, line in enumerate(lines, 1):
        place = f"{name}:{number}"
        try:
            event = json.loads(line)
        except ValueError:
            raise BadHistory(f"{place}: not JSON") from None
        if event.get("e") == "dump":
            yield history, event
            history = []
        elif event.get("e") == "config" and history:
            raise BadHistory(f"{place}: the run before it has no dump")
        else:
            history.append(check_event(event, place))
    if history:
        raise BadHistory(f"{name}:{number}: the last run has no dump")
