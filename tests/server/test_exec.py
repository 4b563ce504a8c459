#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs with variables, a directory and a user of their own."""

import os
import pwd
import subprocess

from support import PATIENCE_S, case, equal, main, until

CONFIG = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      log:
        exec: [/bin/sh, -c, 'env > out.new; id >> out.new; mv out.new "${DIR}/out"']
        cwd: work
        timeout: 30s
"""


def configure(place, more="", text=CONFIG):
    os.mkdir(place.file("work"))
    return place.configure(text.replace("        cwd:", more + "        cwd:"))


@case("a program gets the variables of its handler, and headers of the message")
def _(place):
    configure(place, "        env: {SHOP: '${NAME:-none} 1', API_KEY: '${NAME}', "
              "PATH: /bin}\n")
    server = place.start([place.command, "serve", "--listen=none"],
                         env={"NAME": "secret"})
    until(server.serving)
    place.send("a", "x", "--header", "X-Shop-Id=7", "--header", "ld_preload=x",
               env={"NAME": "secret"})
    until(lambda: "uid=" in place.read("out"))
    seen = place.read("out").splitlines()
    for line in ("SHOP=secret 1", "API_KEY=secret", "PATH=/bin", "CE_ID=a",
                 "CE_HEADER_X_SHOP_ID=7", "CE_HEADER_LD_PRELOAD=x",
                 f"PWD={place.path}/work", "LANG=C.UTF-8"):
        assert line in seen, (line, seen)
    assert not any(line.startswith(("NAME=", "HOME=")) for line in seen), seen
    # Secrets are not printed.
    printed = place.ok("check", "--print", env={"NAME": "secret"}).out
    assert "secret" not in printed and "cwd: " in printed, printed
    equal(server.stop(), 0)


@case("a program runs as the user that its handler names")
def _(place):
    user = pwd.getpwnam("nobody" if os.geteuid() == 0 else pwd.getpwuid(
        os.geteuid()).pw_name)
    configure(place, f"        user: {user.pw_name}\n",
              CONFIG.replace("out.new; mv out.new", "out.new; cp out.new"))
    for name in ("", "work"):
        os.chmod(place.file(name), 0o777 if name else 0o755)
    os.chmod(place.write("out", ""), 0o666)
    server = place.serve()
    place.send("a", "x")
    until(lambda: "uid=" in place.read("out"))
    seen = place.read("out")
    assert f"uid={user.pw_uid}({user.pw_name})" in seen, seen
    assert f"USER={user.pw_name}\n" in seen and f"HOME={user.pw_dir}\n" in seen, seen
    if os.geteuid() == 0:
        assert "(root)" not in seen, seen
    until(lambda: place.state("a", "log") == "done")
    equal(server.stop(), 0)


@case("a server without the right to change users says so at start")
def _(place):
    configure(place, "        user: root\n")
    os.chmod(place.path, 0o777)
    os.chmod(place.file("postern.yaml"), 0o644)
    other = {"user": pwd.getpwnam("nobody").pw_uid} if os.geteuid() == 0 else {}
    for words in (["serve"], ["check"]):
        result = subprocess.run(
            [place.command, *words], cwd=place.path, env=place.environment(),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=PATIENCE_S, **other)
        equal(result.returncode, 2, result)
        assert b"user: only a server that runs as root can run a program as 'root'" \
            in result.stdout, result


@case("a program that is cancelled ends, whoever runs it")
def _(place):
    os.mkdir(place.file("work"))
    os.chmod(place.path, 0o777)
    name = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    place.configure(f"""\
store: sqlite:box.db
channels:
  orders:
    handlers:
      log:
        exec: [/bin/sh, -c, 'echo $$ > "${{DIR}}/pid"; exec sleep 600']
        user: {name}
        timeout: 200s
""")
    server = place.serve()
    place.send("a", "x")
    until(lambda: place.read("pid").strip())
    pid = int(place.read("pid"))
    place.ok("cancel", "a")
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    place.ok("retry", "a")
    until(lambda: place.read("pid").strip() not in ("", str(pid)))
    pid = int(place.read("pid"))
    # Nor does it outlive a server that is killed.
    server.stop(9)
    until(lambda: not os.path.exists(f"/proc/{pid}"))


@case("mistakes are one line, with what would be right")
def _(place):
    for more, says in (
        ("env: [A=b]", "postern.yaml:6:14: env: must be a mapping of at most 64 "
         "entries, as in {NAME: value}"),
        ("env: {A-B: c}", "env: 'A-B' is not a name of a variable"),
        ("env: {CE_ID: c}", "env: 'CE_ID' is set by the message"),
        ("user: no-such-user", "user: there is no user 'no-such-user'"),
        ("directory: /tmp", "postern.yaml:6:9: unknown key 'directory' in a handler"),
        ("usr: a", "unknown key 'usr' in a handler; did you mean 'user'?"),
    ):
        place.configure(f"""\
store: sqlite:box.db
channels:
  orders:
    handlers:
      log:
        {more}
        exec: [/bin/true]
""")
        result = place.run("check")
        equal(result.code, 2, result)
        assert says in result.out + result.err, (says, result)
    place.configure("channels: {c: {handlers: {a: {sql: 'select 1', env: {A: b}}}}}\n")
    assert "'env' is not an option of handlers of the kind 'sql'" in \
        place.run("check").err
    place.configure("channels: {c: {cwd: /tmp, handlers: {a: {sql: 'select 1'}}}}\n")
    assert "'cwd' is not allowed in a channel; it belongs to a handler" in \
        place.run("check").err


main()
