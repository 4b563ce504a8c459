#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""However a test ends, its private server leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "checks"))
import tap  # noqa: E402

RUNNER = os.path.join(HERE, "postgres.py")
PATIENCE_S = 30


def processes_of(path):
    """The processes that have the path in their arguments or work in it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode("utf-8", "replace")
            if path in words or path in os.readlink(f"/proc/{pid}/cwd"):
                found.append(int(pid))
        except OSError:
            pass  # the process has ended
    return found


def becomes(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def run(place, script, number=None):
    """Runs a script and sends the runner a signal once the script has started;
    without a signal the script exits with 3. Returns the problems."""
    sign = os.path.join(place, "begun")
    runner = subprocess.Popen(
        [RUNNER, "sh", "-c", f'echo "$POSTERN_TEST_POSTGRES" > {sign}; {script}'],
        cwd=place,  # processes_of() finds the script by it
        env={**os.environ, "TMPDIR": place},
        start_new_session=True,
    )
    problems = []
    if number:
        if not becomes(lambda: os.path.exists(sign) and os.path.getsize(sign) > 0):
            problems.append("the script has not started")
        if not processes_of(place):
            problems.append("no server is running")
        runner.send_signal(number)
    code = runner.wait(PATIENCE_S)
    wanted = {None: 3, signal.SIGKILL: -signal.SIGKILL}.get(number, 128 + (number or 0))
    if code != wanted:
        problems.append(f"exit {code}, not {wanted}")
    with open(sign, encoding="utf-8") as file:
        if not file.read().startswith("postgres://"):
            problems.append("the script has no URL of the server")
    if not becomes(lambda: not processes_of(place)):
        problems.append(f"left behind: {processes_of(place)}")
    if not becomes(lambda: os.listdir(place) == ["begun"]):
        problems.append(f"left behind: {os.listdir(place)}")
    return problems


def main():
    out = tap.Tap()
    wait = "exec sleep 1000"
    for name, script, number in (
        ("a runner exits with the status of its command", "exit 3", None),
        ("a runner that is terminated ends its server and removes its files",
         wait, signal.SIGTERM),
        ("a runner that is interrupted ends its server and removes its files",
         wait, signal.SIGINT),
        ("a runner that is killed ends its server and removes its files",
         wait, signal.SIGKILL),
    ):
        # The server's user has to pass through it.
        with tempfile.TemporaryDirectory(prefix="postern-test-") as place:
            os.chmod(place, 0o755)
            out.case(name, run(place, script, number))
    out.finish()


main()
