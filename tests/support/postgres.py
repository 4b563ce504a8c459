#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A private PostgreSQL server, for as long as a test needs it.

As a program it runs a command beside a server and exits with its status:

    postgres.py [--durable] COMMAND [ARGUMENT...]

The command finds the server by $POSTERN_TEST_POSTGRES, the URL of an empty
database whose owner is a superuser. From Python:

    with Server() as server:
        server.sql("create role somebody login")
        place.run("stats", "--store", server.url(user="somebody"))

All files are in one temporary directory; the server listens there and on a
free port of 127.0.0.1, and trusts every user name. Unless it is durable it
does not wait for writes that only matter after a power failure.

With $POSTERN_TEST_POSTGRES_TEMPLATE, a directory, initdb creates the files of
a server there once, and each server gets a copy of them, which takes half of
the time.

However this program ends, the server ends, too, and the directory is removed:
a guard process waits for that, and the kernel signals the server.
"""

import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

BIN = os.environ.get("POSTERN_TEST_POSTGRES_BIN", "/usr/lib/postgresql/15/bin")
TEMPLATE = os.environ.get("POSTERN_TEST_POSTGRES_TEMPLATE")
USER = DATABASE = "postern"
# Longer than any step takes, also on a busy machine.
PATIENCE_S = 60
# A socket's address has 108 bytes with its final zero, and the name is long.
PATH_LEN_MAX = 80
# A port that was free may be in use a moment later.
START_TRIES = 5
PR_SET_PDEATHSIG = 1

FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
}


class ServerError(Exception):
    """A server that failed; the text has its log."""


def owner():
    """The user that runs the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise ServerError(
        "root cannot run a server, and no user 'postgres' or 'nobody' exists"
    )


def parents(durable):
    """Parents for the directory, the best one first."""
    first = os.environ.get("TMPDIR")
    rest = ["/var/tmp", "/tmp"] if durable else ["/dev/shm", "/tmp"]
    return [path for path in [first, *rest] if path and os.path.isdir(path)]


def make_directory(durable, user):
    for parent in parents(durable):
        path = tempfile.mkdtemp(prefix="postern-pg-", dir=parent)
        if user:
            os.chown(path, user.pw_uid, user.pw_gid)
        if len(path) <= PATH_LEN_MAX and can_enter(path, user):
            return path
        os.rmdir(path)
    raise ServerError("no directory is usable for a server's files")


def can_enter(path, user):
    """Whether the user may pass all parent directories."""
    done = subprocess.run(
        ["test", "-w", path], preexec_fn=lambda: become(user), check=False
    )
    return done.returncode == 0


def become(user):
    if user:
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)


def die_with_parent(number):
    """In the child: get this signal when the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise ServerError(f"{what}: not within {PATIENCE_S} s")
        time.sleep(0.01)


class Server:
    """A server, from the call on; use it in a `with`, or stop() it."""

    def __init__(self, durable=False, settings=None):
        self.user = owner()
        self.path = make_directory(durable, self.user)
        self.data = os.path.join(self.path, "data")
        self.log = os.path.join(self.path, "log")
        self.settings = {} if durable else dict(FAST)
        self.settings.update(settings or {})
        self.process = None
        self.port = None
        self.guard = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--guard", self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self.prepare()
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.stop()

    def spawn(self, command, log):
        def prepare():
            become(self.user)
            die_with_parent(signal.SIGQUIT)

        return subprocess.Popen(
            command,
            cwd=self.path,
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=prepare,
        )

    def prepare(self):
        self.create()
        self.start()
        self.sql(f"CREATE DATABASE {DATABASE}", database="postgres")

    def run_once(self, command):
        with open(self.log, "ab") as log:
            if self.spawn(command, log).wait() != 0:
                raise ServerError(f"{command[0]} failed: {self.read_log()}")

    def create(self):
        if not TEMPLATE:
            self.init_files()
            return
        made = os.path.join(TEMPLATE, "data")
        with open(os.path.join(TEMPLATE, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(made):
                self.init_files()
                # Copied under another name first, so that the final one is
                # complete.
                shutil.rmtree(made + ".new", ignore_errors=True)
                shutil.copytree(self.data, made + ".new")
                os.rename(made + ".new", made)
                return
        shutil.copytree(made, self.data)
        os.chmod(self.data, 0o700)
        if self.user:
            self.give_files()

    def give_files(self):
        """Makes the server's user the owner of the copy."""
        for folder, _, names in os.walk(self.data):
            for name in [".", *names]:
                path = os.path.join(folder, name)
                os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def init_files(self):
        command = [
            os.path.join(BIN, "initdb"),
            *("--pgdata", self.data, "--username", USER),
            *("--encoding", "UTF8", "--locale", "C", "--auth", "trust"),
            *("--no-sync", "--no-instructions"),
        ]
        self.run_once(command)

    def start(self):
        """Starts the server, or starts it again on its former port."""
        tries = 1 if self.port else START_TRIES
        for left in reversed(range(tries)):
            port = self.port or free_port()
            if self.try_start(port):
                self.port = port
                return
            if not left:
                raise ServerError(f"the server did not start: {self.read_log()}")

    def try_start(self, port):
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.path,
            # Keeps all files inside the directory.
            "dynamic_shared_memory_type": "mmap",
            **self.settings,
        }
        command = [os.path.join(BIN, "postgres"), "-D", self.data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with open(self.log, "ab") as log:
            self.process = self.spawn(command, log)
        until(self.ready_or_ended, "starting the server")
        return self.process.poll() is None

    def ready_or_ended(self):
        if self.process.poll() is not None:
            return True
        try:
            with open(os.path.join(self.data, "postmaster.pid")) as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return False
        # The last line is the status; the file may be of a former process.
        return (
            len(lines) >= 8
            and lines[0] == str(self.process.pid)
            and lines[7].strip() in ("ready", "standby")
        )

    def read_log(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read()[-4000:]
        except FileNotFoundError:
            return ""

    def end(self, number=signal.SIGINT):
        """Ends the server and keeps its files: SIGINT shuts down fast, SIGQUIT
        immediately, SIGKILL without notice. start() starts it again."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
        if self.process:
            self.process.wait(PATIENCE_S)

    def stop(self):
        """Ends the server and removes everything."""
        self.end(signal.SIGQUIT)
        # The guard removes the files when its stdin is closed.
        self.guard.stdin.close()
        self.guard.wait(PATIENCE_S)

    def url(self, user=USER, password=None, database=DATABASE, port=None, **more):
        """The URL of a store; `more` are its parameters."""
        who = urllib.parse.quote(user, safe="")
        if password is not None:
            who += ":" + urllib.parse.quote(password, safe="")
        query = "?" + urllib.parse.urlencode(more) if more else ""
        return f"postgres://{who}@127.0.0.1:{port or self.port}/{database}{query}"

    def sql(self, text, user=USER, database=DATABASE):
        """Runs statements, in one transaction if they are no schema; returns the
        rows as lines, columns with a '|'."""
        # An argument has a limit.
        how = ["-c", text] if len(text) < 100_000 else ["-f", "-"]
        done = subprocess.run(
            [
                os.path.join(BIN, "psql"),
                *("-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"),
                *("-h", self.path, "-p", str(self.port)),
                *("-U", user, "-d", database), *how,
            ],
            env=environment(),
            input="" if "-c" in how else text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode != 0:
            raise ServerError(f"{text}: {done.stderr}")
        return done.stdout.splitlines()

    def session(self, user=USER, database=DATABASE):
        """A session in which transactions stay open."""
        return Session(self, user, database)

    def demand_password(self, user):
        """From now on this user needs a password."""
        path = os.path.join(self.data, "pg_hba.conf")
        with open(path) as file:
            rules = file.read()
        with open(path, "w") as file:
            file.write(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules}")
        self.sql("SELECT pg_reload_conf()")


class Session:
    """psql, which runs statements as they come; use it in a `with`."""

    def __init__(self, server, user, database):
        self.process = subprocess.Popen(
            [os.path.join(BIN, "psql"), "-X", "-A", "-t", "-q", "-h", server.path,
             "-p", str(server.port), "-U", user, database],
            env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, bufsize=1)

    def say(self, sql):
        """Runs statements; returns their output as lines."""
        self.process.stdin.write(f"{sql};\n\\echo .\n")
        lines = []
        for line in self.process.stdout:
            if line == ".\n":
                return lines
            lines.append(line.rstrip("\n"))
        raise ServerError(f"the session ended: {lines}")

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)


class Standby(Server):
    """A standby that follows another server. Once it runs, the primary
    confirms a commit only after the standby has it, too."""

    def __init__(self, primary):
        self.primary = primary
        super().__init__(settings=primary.settings)

    def prepare(self):
        self.run_once([
            os.path.join(BIN, "pg_basebackup"),
            *("--pgdata", self.data, "--write-recovery-conf", "--no-sync"),
            *("--checkpoint", "fast", "--username", USER),
            *("--host", self.primary.path, "--port", str(self.primary.port)),
        ])
        self.start()
        self.primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.sql("SELECT pg_reload_conf()")
        until(lambda: self.primary.sql("SELECT sync_state FROM"
                                       " pg_stat_replication") == ["sync"],
              "following the primary")

    def promote(self):
        self.sql("SELECT pg_promote()")


def environment(**more):
    """This environment without the variables that set libpq's defaults."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    return {**kept, **more}


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def server_of(path):
    """The server process that uses these files, or None."""
    data = os.path.join(path, "data")
    try:
        with open(os.path.join(data, "postmaster.pid")) as file:
            pid = int(file.readline())
        # A pid may be reused, so check what the process works on.
        return pid if os.path.samefile(f"/proc/{pid}/cwd", data) else None
    except (OSError, ValueError):
        return None


def guard(path):
    """Waits until the creator of the directory closes the pipe or dies."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    pid = server_of(path)
    if pid:
        os.kill(pid, signal.SIGQUIT)
        until(lambda: not is_alive(pid), "ending the server")

    # The last child may still be writing.
    def remove_files():
        shutil.rmtree(path, ignore_errors=True)
        return not os.path.exists(path)

    until(remove_files, "removing the server's files")


def end_command(process):
    """Terminates a command, and kills it if it does not end."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def raise_exit(number, frame):
    del frame
    raise SystemExit(128 + number)


def main(words):
    durable = words[:1] == ["--durable"]
    command = words[1:] if durable else words
    if not command:
        sys.exit("usage: postgres.py [--durable] COMMAND [ARGUMENT...]")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, raise_exit)
    with Server(durable) as server:
        process = subprocess.Popen(
            command,
            env=environment(POSTERN_TEST_POSTGRES=server.url()),
            preexec_fn=lambda: die_with_parent(signal.SIGKILL),
        )
        try:
            code = process.wait()
        finally:
            end_command(process)
    # As in a shell: 128 plus the signal's number.
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--guard"]:
        guard(sys.argv[2])
    else:
        main(sys.argv[1:])
