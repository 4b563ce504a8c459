# SPDX-License-Identifier: MIT
"""The tables of events in the sources, and the table in docs/log.md."""

import re

EVENT = re.compile(
    r"X\(([A-Z_]+), ([a-z_]+), ([A-Z]+), ([A-Z]+),\s*([A-Z_]+),\s*\"")
LINE = re.compile(r"X\(([A-Z_]+), ([a-z_]+), ([A-Z]+),\s*\"")
FIELD = re.compile(r"X\(([A-Z_]+), +([a-z_]+), +(\d+)\)")
GROUP = re.compile(r"POSTERN_(FIELDS_[A-Z_]+) = ([^,]+),")
ROW = re.compile(r"^\| `([a-z_]+)` \| ([a-z]+) \| ([^|]*) \|", re.MULTILINE)


def flat(source):
    return re.sub(r"\\\n\s*", " ", source)


def events_of(header):
    """{name: (level, fields)} of POSTERN_EVENT_MAP."""
    header = flat(header)
    fields = {f"FIELD_{name}": [member] for name, member, _ in FIELD.findall(header)}
    order = [member for _, member, _ in FIELD.findall(header)]
    fields["FIELDS_NONE"] = []
    for group, parts in GROUP.findall(re.sub(r"\s+", " ", header)):
        names = re.findall(r"POSTERN_(FIELDS?_[A-Z_]+)", parts)
        fields[group] = [member for name in names for member in fields[name]]
    return {
        name: (level.lower(), sorted(set(fields[group]), key=order.index))
        for _, name, level, _, group in EVENT.findall(header)
    }


def lines_of(header):
    """{name: level} of POSTERN__LOG_MAP."""
    return {name: level.lower() for _, name, level in LINE.findall(flat(header))}


def problems(events, lines, document):
    rows = {name: (level, re.findall(r"`([a-z_]+)`", fields))
            for name, level, fields in ROW.findall(document)}
    for name, row in events.items():
        if rows.get(name) != row:
            yield f"event {name}: {row} in the sources, {rows.get(name)} in docs/log.md"
    for name, level in lines.items():
        if rows.get(name, (None,))[0] != level:
            yield f"line {name}: {level} in the sources, not so in docs/log.md"
    for name in rows:
        if name not in events and name not in lines:
            yield f"docs/log.md has the unknown event {name}"
