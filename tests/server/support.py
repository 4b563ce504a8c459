# SPDX-License-Identifier: MIT
"""Shared by the black-box tests: a private directory, the command, a server.

    from support import case, main

    @case("second send of the same id is a duplicate")
    def _(place):
        place.configure()
        place.send("a", code=0, out="accepted")

    main()

A case gets a new place, a directory that is removed when the case ends;
processes that were started in it are killed. The name of a case is a sentence
that states the rule. Results are TAP; arguments are parts of names to run only
some.

$POSTERN names the command, $POSTERN_HOLD a program that uses the library and
keeps a store open.
"""

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback

POSTERN = os.environ["POSTERN"]
HOLD = os.environ.get("POSTERN_HOLD")

# Longer than any step takes, also under a sanitizer on a busy machine.
PATIENCE_S = 60

CONFIG = """\
store: sqlite:box.db
channels:
  orders:
    handlers:
      log:
        exec: [/bin/sh, -c, 'cat >> ${DIR}/log.out']
"""


class Result:
    """The result of a run of the command."""

    def __init__(self, code, out, err):
        self.code = code
        self.raw = out
        self.out = out.decode("utf-8", "replace")
        self.err = err.decode("utf-8", "replace")

    @property
    def word(self):
        """The first word of the output, such as "accepted", also of a parked
        message, after which the reason follows."""
        return self.out.split()[0] if self.out else ""

    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"exit {self.code}, stdout {self.out!r}, stderr {self.err!r}"


class Process:
    """A program that runs beside the test."""

    def __init__(self, place, args, **options):
        self.stderr_path = os.path.join(place.path, f".stderr-{time.time_ns()}")
        with open(self.stderr_path, "wb") as stderr:
            self.process = subprocess.Popen(
                args,
                cwd=place.path,
                env=place.environment(options.pop("env", None)),
                stderr=stderr,
                **options,
            )
        self.pid = self.process.pid

    def stderr(self):
        with open(self.stderr_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def serving(self):
        """The line that a server logs when it serves."""
        for line in self.stderr().splitlines():
            if '"server_started"' in line:
                return json.loads(line)
        return None

    def alive(self):
        return self.process.poll() is None

    def stop(self, number=signal.SIGTERM):
        """Sends a signal unless it has ended, and returns the exit code."""
        if self.alive():
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def remove(path):
    """Removes a directory. False: a process just created a file in it, such as
    a handler whose server was killed and which is about to end."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


class Place:
    """A private directory in which the command is run."""

    def __init__(self):
        self.command = POSTERN
        self.path = tempfile.mkdtemp(prefix="postern-test-")
        self.started = []

    def close(self):
        for process in self.started:
            if process.alive():
                process.stop(signal.SIGKILL)
        # Cases change permissions.
        for parent, _, _ in os.walk(self.path):
            os.chmod(parent, 0o700)
        until(lambda: remove(self.path))

    def file(self, name):
        return os.path.join(self.path, name)

    def write(self, name, text):
        path = self.file(name)
        mode = "wb" if isinstance(text, bytes) else "w"
        with open(path, mode) as file:
            file.write(text)
        return path

    def read(self, name):
        try:
            with open(self.file(name), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def configure(self, text=CONFIG):
        return self.write("postern.yaml", text)

    def environment(self, more=None):
        kept = {
            name: value
            for name, value in os.environ.items()
            # A bug of the bank is for the command.
            if name.startswith("POSTERN_BUG")
            or (not name.startswith("POSTERN") and name != "NO_COLOR")
        }
        # Handlers run in the root directory: configurations use ${DIR}.
        kept["DIR"] = self.path
        kept.update(more or {})
        return kept

    def run(self, *args, stdin=b"", env=None, cwd=None, **options):
        """Runs the command to its end."""
        if isinstance(stdin, str):
            stdin = stdin.encode()
        options.setdefault("stdout", subprocess.PIPE)
        process = subprocess.run(
            [self.command, *args],
            input=stdin,
            stderr=subprocess.PIPE,
            cwd=cwd or self.path,
            env=self.environment(env),
            timeout=PATIENCE_S,
            check=False,
            **options,
        )
        result = Result(process.returncode, process.stdout or b"", process.stderr)
        assert "runtime error:" not in result.err, result
        return result

    def ok(self, *args, **options):
        """Runs the command, which has to succeed."""
        result = self.run(*args, **options)
        assert result.code == 0, f"{args}: {result}"
        return result

    def fails(self, code, *args, says="", **options):
        """Runs the command, which has to exit with `code` and print a text to
        stderr that contains `says`."""
        result = self.run(*args, **options)
        assert result.code == code, f"{args}: not exit {code}: {result}"
        assert result.err, f"{args}: nothing on stderr: {result}"
        assert says in result.err, f"{args}: not {says!r}: {result}"
        return result

    def start(self, args, **options):
        process = Process(self, args, **options)
        self.started.append(process)
        return process

    def serve(self, *args, ready=True, tcp=False, env=None):
        """Starts a server and waits until it serves. With `tcp` it listens on a
        free port, too, and `server.url` is its address; otherwise it does so
        only if the configuration or the arguments say where."""
        name = args[args.index("-c") + 1] if "-c" in args else "postern.yaml"
        said = re.search(r"^\s*listen:", self.read(name), re.MULTILINE)
        if tcp:
            args = ("--listen=127.0.0.1:0", *args)
        elif not said and not any(arg.startswith("--listen") for arg in args):
            args = ("--listen=none", *args)
        server = self.start([self.command, "serve", *args], env=env)

        def answers():
            assert server.alive(), f"the server ended: {server.stderr()}"
            return '"serving"' in server.stderr()

        if ready:
            until(answers)
        if tcp:
            server.url = "http://" + server.serving()["listen"]
        return server

    def hold(self, url):
        """Starts a program that embeds the library and keeps the store
        open."""
        program = self.start(
            [HOLD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        line = program.process.stdout.readline()
        assert line == b"holding\n", program.stderr()
        return program

    def send(self, message_id, body="body", *args, channel="orders", **options):
        return self.run(
            "send", channel, "--id", message_id, *args, stdin=body, **options
        )

    def process(self, *args, **options):
        """How many deliveries were run, whether they failed or not."""
        words = ("process", "--ignore-failures", "--json", *args)
        return self.ok(*words, **options).json()["processed"]

    def show(self, message_id, *args):
        return self.ok("show", message_id, "--json", *args).json()

    def delivery(self, message_id, handler):
        for row in self.show(message_id)["deliveries"]:
            if row["handler"] == handler:
                return row
        raise AssertionError(f"{message_id} has no delivery to {handler}")

    def state(self, message_id, handler):
        return self.delivery(message_id, handler)["state"]


def on_terminal(place, *args, env=None, both=False, columns=0):
    """Runs the command with a terminal as its stdout, of so many columns (0:
    unknown); returns the output."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
    process = subprocess.Popen(
        [POSTERN, *args],
        cwd=place.path,
        env=place.environment({"TERM": "xterm", **(env or {})}),
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave if both else None,
    )
    os.close(slave)
    text = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        text += piece
    os.close(master)
    assert process.wait(PATIENCE_S) == 0, text
    return text


def until(condition, seconds=PATIENCE_S):
    """Waits until a condition holds, and returns what it returned."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.01)


def equal(actual, expected, *what):
    assert actual == expected, f"{actual!r} is not {expected!r} {what or ''}"


CASES = []


def lines(server, event):
    """The lines of a server's log with this event."""
    return [line for line in map(json.loads, server.stderr().splitlines())
            if line["event"] == event]


def reload(server, event="configuration_reloaded"):
    """Sends SIGHUP and returns the line that says what became of it."""
    count = len(lines(server, event))
    os.kill(server.pid, signal.SIGHUP)
    until(lambda: len(lines(server, event)) > count or not server.alive())
    assert server.alive(), server.stderr()
    return lines(server, event)[-1]


def case(name, **arguments):
    """Registers a function as a case; it gets a place, and the arguments."""

    def register(function):
        CASES.append((name, function, arguments))
        return function

    return register


def check_sanitizers(place):
    """Checks the stderr of started processes for reports of sanitizers."""
    for process in place.started:
        for word in ("Sanitizer", "runtime error:"):
            assert word not in process.stderr(), word


def run_case(name, function, arguments):
    place = Place()
    try:
        function(place, **arguments)
        check_sanitizers(place)
        return True
    except Exception:  # the other cases still run
        print(f"failed: {name}", file=sys.stderr)
        traceback.print_exc()
        for process in place.started:
            text = process.stderr()
            print(f"  stderr of a process: {text[-4000:]}", file=sys.stderr)
        return False
    finally:
        place.close()


def main():
    wanted = sys.argv[1:]
    count = failed = 0
    for name, function, arguments in CASES:
        if wanted and not any(part in name for part in wanted):
            continue
        count += 1
        good = run_case(name, function, arguments)
        failed += not good
        print(f"{'ok' if good else 'not ok'} {count} - {name}", flush=True)
    print(f"1..{count}")
    sys.exit(1 if failed or not count else 0)
