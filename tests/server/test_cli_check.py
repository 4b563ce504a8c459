#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `postern check` and `postern stats` say about a configuration."""

from support import case, equal, main


@case("check and stats list channels and handlers that left the configuration")
def _(place):
    text = "store: sqlite:box.db\nchannels:\n  %s:\n    handlers:\n      %s: {%sexec: [%s]}\n"
    place.configure(text % ("orders", "gone", "types: [wanted], ", "/bin/false"))
    place.send("1", "x", "--type", "wanted")
    place.send("2")
    place.configure(text % ("bills", "log", "timeout: 1m, ", "/bin/true"))
    says = ("channel 'orders' is not in the configuration any more: "
            "1 message is parked")
    left = ("handler 'gone' is not in the configuration any more: "
            "1 delivery is open, 0 poisoned")
    found = place.run("check", "--orphans", "hold").out
    assert says in found and "'gone': its 1 open delivery would wait" in found, found
    for serving in (False, True):
        server = place.serve("--orphans", "hold") if serving else None
        shown = place.ok("stats")
        assert says in shown.err + shown.out and left in shown.err + shown.out, shown
        stats = place.ok("stats", "--json").json()
        equal([(row.get("channel"), row.get("handler")) for row in stats["left"]],
              [("orders", None), (None, "gone")])
        equal((stats["left"][0]["parked"], stats["left"][1]["open"]), (1, 1))
        equal([row["configured"] for row in stats["channels"]],
              [False, True] if serving else [False])
        # The names still are filters.
        place.ok("list", "--channel", "orders", "--state", "done")
        if server:
            server.stop()
    place.configure((text % ("sales", "log", "legacy_keys: [gone], timeout: 1m, ",
                             "/bin/true"))
                    .replace("sales:\n", "sales:\n    former_names: [orders]\n"))
    found = place.ok("check").out
    equal(found.count("any more"), 1)
    assert "channel 'bills' is not in the configuration any more" in found, found
    equal([row.get("channel") for row in place.ok("stats", "--json").json()["left"]],
          ["bills"])


@case("check reports handlers without a timeout, and those that hold the writer")
def _(place):
    text = ("store: sqlite:box.db\nchannels:\n  orders:\n    handlers:\n"
            "      run: {exec: [/bin/true]%s}\n      row: {sql: select 1%s}\n")
    place.configure(text % ("", ""))
    place.ok("migrate")
    found = place.ok("check").out
    assert "postern.yaml:5:7: handler 'run' (exec) has no timeout" in found, found
    assert ("postern.yaml:6:7: handler 'row' (sql) has the only writer of the file "
            "while it runs (timeout: 5s)") in found, found
    equal(found.count("has no timeout"), 1)
    for own in ("none", "1m"):
        place.configure(text % (f", timeout: {own}", ", timeout: 900ms"))
        found = place.ok("check").out
        assert "has no timeout" not in found, found
        assert "(timeout: 900ms)" in found, found


main()
