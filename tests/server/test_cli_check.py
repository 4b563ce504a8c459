#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `postern check` and `postern stats` say about a configuration."""

import os
import re

from support import case, equal, main, until


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


@case("a handler that left is silent once nothing of it is open or poisoned")
def _(place):
    text = ("store: sqlite:box.db\nchannels:\n  orders:\n    handlers:\n"
            "      %s: {timeout: 1m, max_attempts: 1, exec: [%s]}\n")
    place.configure(text % ("gone", "/bin/false"))
    place.send("1")
    place.run("process")
    place.configure(text % ("log", "/bin/true"))
    left = "handler 'gone' is not in the configuration any more"
    assert left + ": 0 deliveries are open, 1 poisoned" in place.ok("check").out
    place.ok("discard", "1", "--handler", "gone")
    assert left not in place.ok("check").out
    shown = place.ok("stats")
    assert left not in shown.out + shown.err, shown
    equal(place.ok("stats", "--json").json()["left"], [])


@case("what a program's file or a run finds names the handler")
def _(place):
    tool = place.write("tool", "#!/bin/sh\nexit 69\n")
    text = ("store: sqlite:box.db\nchannels:\n  orders:\n    handlers:\n"
            f"      log: {{timeout: 1m, exec: [{tool}]}}\n")
    place.configure(text)
    os.chmod(tool, 0o777)
    assert f"handler 'log': '{tool}' can be changed" in place.run("check").out
    os.chmod(tool, 0o755)
    place.send("1")
    found = place.run("process").err
    assert re.search(r"note: handler held on this node: .* probes it: handler 'log': "
                     "exit code 69", found), found


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


@case("check refuses former_names that serve refuses, and suspects a rename")
def _(place):
    text = ("store: sqlite:box.db\nchannels:\n  %s:\n%s    handlers:\n"
            "      log: {timeout: 1m, exec: [/bin/true]}\n")
    for channel in ("orders", "sales"):
        place.configure(text % (channel, ""))
        place.send("1", channel=channel)
    place.configure(text % ("sales", "    former_names: [orders]\n"))
    result = place.fails(2, "serve")
    assert "both have identities of their own" in result.err, result
    found = place.run("check")
    equal(found.code, 2, found)
    assert ("channel 'sales' cannot continue 'orders' (former_names): both have "
            "identities of their own in the store") in found.out, found
    # A third name is new: it may be either of them.
    place.configure(text % ("invoices", ""))
    found = place.ok("check").out
    for name in ("orders", "sales"):
        assert (f"channel 'invoices' is new, and '{name}' with 1 accepted message "
                "is not in the configuration any more: if it was renamed, add "
                f"former_names: [{name}] to 'invoices'") in found, found
    place.configure(text % ("invoices", "    former_names: [sales]\n"))
    assert "is new" not in place.ok("check").out


@case("in a directory without a configuration commands say so")
def _(place):
    missing = "no configuration was found (./postern.yaml, /etc/postern/postern.yaml)"
    assert f"note: {missing}\n" in place.ok("check").out
    for words in ["list"], ["stats"], ["show", "1"], ["retry", "--id", "1"]:
        assert missing in place.fails(4, *words).err, words
    # What was named is not missing.
    store = ["--store", "sqlite:other.db"]
    assert missing not in place.ok("check", *store).out
    place.fails(4, "list", *store, says="'postern migrate' creates it")


SERVED = """\
store: sqlite:box.db
defaults: {timeout: 1m}
channels:
  orders:
    unrouted: park
    handlers:
      log: {exec: [/bin/sh, -c, "exit 0"]}
"""


@case("check notices changed settings beside a running server")
def _(place):
    listens = "listen: unix:api.sock\n" + SERVED
    place.configure(listens)
    place.serve()
    os.mkdir(place.file("below"))
    elsewhere = place.ok("check", "-c", "../postern.yaml", cwd=place.file("below"))
    assert "a server is running and healthy\n" in elsewhere.out, elsewhere
    assert "a server is running and healthy\n" in place.ok("check").out
    for old, new, what in [
            ("exit 0", "exit 1", "handler 'log'"),
            ("timeout: 1m", "timeout: 2m", "handler 'log'"),
            ("log: {", "log: {key: 'header:a', ", "handler 'log'"),
            ("log: {", "log: {types: [a], ", "handler 'log'"),
            ("orders:\n", "orders:\n    key: correlation-id\n", "channel 'orders'"),
            ("unrouted: park", "unrouted: drop", "channel 'orders'")]:
        place.configure(listens.replace(old, new))
        found = place.run("check").out
        assert (f"with another configuration: it has other settings of the {what}; "
                "reload it (kill -HUP) or restart it") in found, (new, found)
    for new, what in [
            ("listen_mode: '0660'\nstore:", "listen_mode"),
            ("memory_max: 1GiB\nstore:", "memory_max"),
            ("workers: 9\nstore:", "workers"),
            ("ingest_listen: unix:${DIR}/in.sock\nstore:", "ingest_listen")]:
        place.configure(listens.replace("store:", new))
        found = place.run("check").out
        assert (f"with another configuration: it has another '{what}'; "
                "restart it, because a reload is refused") in found, (new, found)
    place.configure(listens.replace("api.sock", "other.sock"))
    found = place.run("check").out
    assert "it has another 'listen'; restart it" in found, found
    place.configure(listens.replace(
        "store:", "shutdown_grace: 9s\nhosts: shop.example\nstore:"))
    assert "a server is running and healthy\n" in place.ok("check").out
    # A key rule that the store refuses helps neither a reload nor a restart.
    place.configure(listens)
    place.ok("send", "orders", "--id", "1", stdin="{}")
    place.configure(listens.replace("orders:\n", "orders:\n    key: json:/a\n"))
    result = place.run("check")
    equal(result.code, 1, result)
    found = result.out
    assert ("channel 'orders'; a reload and a restart are refused for the "
            "changed key") in found, found
    # Another place in the file is no other setting.
    place.configure("# a comment\n" + listens.replace(
        "{timeout: 1m}", "{}").replace("log: {", "log: {timeout: 60s, "))
    assert "a server is running and healthy\n" in place.ok("check").out


@case("check says that a server is degraded")
def _(place):
    place.configure(SERVED.replace("store:", "health: {degraded_after: 1s}\nstore:")
                    .replace("exit 0", "until test -e ${DIR}/go; do sleep 0.05; done")
                    .replace("log: {", "log: {concurrency: 1, "))
    place.serve()
    for number in range(3):
        place.send(str(number))
    found = until(lambda: [line for line in place.ok("check").out.splitlines()
                           if "running and degraded" in line])
    equal(found, ["note: a server is running and degraded"])
    place.write("go", "")
    until(lambda: "running and healthy" in place.ok("check").out)


main()
