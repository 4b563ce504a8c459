#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Relative paths: those in the configuration start at its directory, those of
flags and variables at the working directory, for every command alike."""

import os

from support import CONFIG, case, equal, main

# The configuration and the working directory are different directories.
MORE = """\
store: sqlite:box.db
listen: unix:api.sock
channels:
  orders:
    handlers:
      log:
        exec: [/bin/true]
"""


def lay_out(place, text=CONFIG):
    os.mkdir(place.file("etc"))
    os.mkdir(place.file("work"))
    place.write("etc/app.yaml", text)
    return place.file("work")


def names(place, directory):
    return sorted(os.listdir(place.file(directory)))


@case("a store in the configuration is relative to it, whatever the working directory")
def _(place):
    work = lay_out(place)
    place.ok("migrate", "-c", "../etc/app.yaml", cwd=work)
    equal(names(place, "work"), [])
    assert "box.db" in names(place, "etc"), names(place, "etc")
    place.ok("send", "orders", "--id", "a", "-c", place.file("etc/app.yaml"),
             cwd="/", stdin="x")
    rows = place.ok("list", "--json", "-c", "etc/app.yaml").json()
    equal([row["message_id"] for row in rows], ["a"])
    rows = place.ok("list", "--json", cwd=work,
                    env={"POSTERN_CONFIG": "../etc/app.yaml"}).json()
    equal([row["message_id"] for row in rows], ["a"])
    equal(names(place, "work"), [])


@case("the default store is relative to the configuration, too")
def _(place):
    work = lay_out(place, "workers: 2\n")
    place.ok("migrate", "-c", "../etc/app.yaml", cwd=work)
    equal(names(place, "work"), [])
    assert "postern.db" in names(place, "etc"), names(place, "etc")


@case("a server and the commands find each other from every directory")
def _(place):
    work = lay_out(place, MORE)
    place.serve("-c", "etc/app.yaml")
    for name in ("box.db", "box.db.sock", "api.sock"):
        assert name in names(place, "etc"), names(place, "etc")
    result = place.ok("send", "orders", "--id", "a", "-c", "../etc/app.yaml",
                      cwd=work, stdin="x")
    equal(result.out, "accepted\n")
    said = place.ok("check", "-c", "../etc/app.yaml", cwd=work).out
    assert "a server is running" in said, said
    equal(names(place, "work"), [])


@case("flags and variables are relative to the working directory")
def _(place):
    work = lay_out(place)
    place.ok("migrate", "-c", "../etc/app.yaml", "--store", "sqlite:flag.db",
             cwd=work)
    place.ok("migrate", "-c", "../etc/app.yaml", cwd=work,
             env={"POSTERN_STORE": "sqlite:variable.db"})
    for name in ("flag.db", "variable.db"):
        assert name in names(place, "work"), names(place, "work")
    equal(names(place, "etc"), ["app.yaml"])


@case("a file that the configuration names is relative to it")
def _(place):
    work = lay_out(place, "store_file: secret\n")
    place.write("etc/secret", "sqlite:from-secret.db\n")
    os.chmod(place.file("etc/secret"), 0o600)
    place.ok("migrate", "-c", "../etc/app.yaml", cwd=work)
    assert "from-secret.db" in names(place, "etc"), names(place, "etc")
    place.write("work/mine", "sqlite:mine.db\n")
    os.chmod(place.file("work/mine"), 0o600)
    place.ok("migrate", "-c", "../etc/app.yaml", "--store-file", "mine", cwd=work)
    assert "mine.db" in names(place, "work"), names(place, "work")


@case("the stores of a list are relative to the configuration")
def _(place):
    work = lay_out(place, "stores: {a: {url: sqlite:a.db}, b: {url: sqlite:b.db}}\n")
    place.ok("migrate", "-c", "../etc/app.yaml", cwd=work)
    equal(names(place, "work"), [])
    for name in ("a.db", "b.db"):
        assert name in names(place, "etc"), names(place, "etc")


@case("init writes the store of a flag so that it names the same file")
def _(place):
    work = lay_out(place)
    place.ok("init", "-c", "../etc/new.yaml", "--store", "sqlite:mine.db", cwd=work)
    assert "mine.db" in names(place, "work"), names(place, "work")
    place.ok("list", "-c", place.file("etc/new.yaml"), cwd="/")
    equal(names(place, "etc"), ["app.yaml", "new.yaml"])


@case("the output of check --print means the same in the configuration")
def _(place):
    work = lay_out(place, MORE)
    shown = place.ok("check", "--print", "-c", "../etc/app.yaml", cwd=work).out
    line = next(l for l in shown.splitlines() if l.startswith("store: "))
    equal(line.split()[1], "sqlite:" + place.file("etc/box.db"))
    shown = place.ok("check", "--print", "-c", "../etc/app.yaml", "--store",
                     "sqlite:flag.db", cwd=work).out
    assert "sqlite:" + place.file("work/flag.db") + "  # --store" in shown, shown
    shown = place.ok("check", "--print", "-c", "app.yaml",
                     cwd=place.file("etc")).out
    assert "store: sqlite:box.db " in shown, shown


@case("init writes no configuration for a store that cannot be created")
def _(place):
    result = place.fails(4, "init", "--store", f"sqlite:{place.file('no/x.db')}",
                         says="postern.yaml was not written")
    assert "'postern migrate'" not in result.err, result
    assert not os.path.exists(place.file("postern.yaml"))
    place.ok("init", "--store", f"sqlite:{place.file('x.db')}")
    # A file that existed stays.
    text = place.read("postern.yaml").replace("x.db", "no/x.db")
    place.configure(text)
    place.fails(4, "init", says="no/x.db")
    equal(place.read("postern.yaml"), text)


main()
