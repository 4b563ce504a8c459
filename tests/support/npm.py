#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Packages of npm, for tests with clients that others wrote.

    import npm

    process = npm.start("publish.js", url, stdout=subprocess.PIPE)
    text = npm.run("verify.js", stdin=b"...")

The programs are in tests/npm, CommonJS that may require() what
tests/npm/package.json names. To add a package:

    npm.py add NAME@VERSION

The packages are installed once, by the first test that needs them, into the
directory $POSTERN_TEST_NPM, which is part of the build; tests that come in
meanwhile wait for it. package-lock.json has the hash of every package and no
address of a registry: npm uses the one that is configured.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import postgres

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "..", "npm")
MANIFESTS = ("package.json", "package-lock.json")
TRIES = 3
PATIENCE_S = 300
# Programs of packages are not run while they are installed.
OPTIONS = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error",
           "--prefer-offline"]


class NpmError(Exception):
    """A program that failed; the text has its output."""


def home():
    """The directory that has the packages of this build."""
    return os.environ.get("POSTERN_TEST_NPM") or os.path.join(
        tempfile.gettempdir(), f"postern-npm-{os.getuid()}")


def program(name):
    path = shutil.which(name)
    if not path:
        raise NpmError(f"{name} is missing: run tools/install-deps")
    return path


def read_manifests():
    texts = []
    for name in MANIFESTS:
        with open(os.path.join(PROGRAMS, name), encoding="utf-8") as file:
            texts.append(file.read())
    return texts


def install(folder):
    """Installs what the lock file says; the registry may need a second try."""
    for name in MANIFESTS:
        shutil.copy(os.path.join(PROGRAMS, name), folder)
    for left in reversed(range(TRIES)):
        done = subprocess.run(
            [program("npm"), "ci", *OPTIONS], cwd=folder, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=PATIENCE_S)
        if done.returncode == 0:
            return
        if not left:
            raise NpmError(done.stdout.decode("utf-8", "replace"))
        time.sleep(1)


def modules():
    """The directory of the installed packages. Installs them if need be."""
    folder = home()
    os.makedirs(folder, exist_ok=True)
    stamp = os.path.join(folder, "installed")
    wanted = json.dumps(read_manifests())
    with open(os.path.join(folder, "lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = None
        with contextlib.suppress(OSError):
            with open(stamp, encoding="utf-8") as file:
                found = file.read()
        if found != wanted:
            with contextlib.suppress(OSError):
                os.remove(stamp)
            install(folder)
            with open(stamp, "w", encoding="utf-8") as file:
                file.write(wanted)
    return os.path.join(folder, "node_modules")


def start(name, *words, **options):
    """Starts a program of tests/npm; it ends with this process."""
    environment = {**os.environ, **options.pop("env", {}),
                   "NODE_PATH": modules()}
    return subprocess.Popen(
        [program("node"), os.path.join(PROGRAMS, name), *map(str, words)],
        env=environment,
        preexec_fn=lambda: postgres.die_with_parent(signal.SIGKILL), **options)


def run(name, *words, stdin=b"", timeout=PATIENCE_S):
    """Runs a program of tests/npm; returns what it printed, as bytes."""
    process = start(name, *words, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(stdin, timeout)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode != 0:
        raise NpmError(f"{name} exited with {process.returncode}: "
                       + err.decode("utf-8", "replace"))
    return out


def add(packages):
    """Adds packages to tests/npm, without the addresses of the registry."""
    subprocess.run(
        [program("npm"), "install", "--package-lock-only", "--save-exact",
         *OPTIONS, *packages], cwd=PROGRAMS, check=True)
    path = os.path.join(PROGRAMS, "package-lock.json")
    with open(path, encoding="utf-8") as file:
        lock = json.load(file)
    for package in lock["packages"].values():
        for member in ("resolved", "funding"):
            package.pop(member, None)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(lock, file, indent=2, ensure_ascii=False)
        file.write("\n")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] != "add":
        sys.exit("usage: npm.py add NAME@VERSION...")
    add(sys.argv[2:])
