#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Workers in both languages, on the deliveries of a pull handler of a real
server."""

import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from clients import HERE, Driver, each_language, example, words_of
from support import equal, main, until

SEED = int(os.environ.get("SEED", time.time_ns() % 1000000))
MESSAGES = int(os.environ.get("MESSAGES", 40))
CONFIG = """\
store: sqlite:box.db
defaults: {backoff: [50ms], max_attempts: 1000}
channels:
  jobs:
    handlers:
      job: {pull: {}}
"""


class Worker:
    """A worker of the tests, and what it prints."""

    def __init__(self, place, language, **options):
        name = "worker.py" if language == "Python" else "worker.mjs"
        words = words_of(language, os.path.join(HERE, name))
        options = {"wait": 1, **options}
        self.path = place.file(f"worker-{len(place.started)}")
        with open(self.path, "wb") as out:
            self.program = place.start(
                [*words, address(place), json.dumps(options)], stdout=out)

    def lines(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read().splitlines()

    def begun(self):
        return [line.split()[1] for line in self.lines() if line.startswith("begin ")]

    def await_line(self, line):
        until(lambda: line in self.lines())


def address(place):
    return "unix:" + place.file("box.db.sock")


def catches_sigterm(pid):
    """Whether a signal would be caught; a worker that stops no longer does."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        caught = next(line for line in file if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) & 1 << signal.SIGTERM - 1)


def serve(place):
    place.configure(CONFIG)
    return place.serve()


def send(place, message_id, **task):
    equal(place.send(message_id, json.dumps(task), channel="jobs").word, "accepted")


def state(place, message_id):
    return place.state(message_id, "job")


def failures(place, message_id):
    return place.delivery(message_id, "job")["failures"]


def await_done(place, count):
    """Counts are those of the handler."""
    until(lambda: place.ok("stats", "--json").json()["handlers"][0]["done"] == count)


@each_language("an outcome settles the delivery as it says")
def _(place, language):
    serve(place)
    send(place, "done")
    for word in ("fail", "retry", "snooze", "odd", "wrong", "poison", "discard"):
        send(place, word, first=word)
    worker = Worker(place, language, concurrency=2)
    await_done(place, 6)
    until(lambda: state(place, "poison") == "poisoned")
    until(lambda: state(place, "discard") == "discarded")
    for message_id, count in [
            ("done", 0), ("fail", 1), ("retry", 1), ("snooze", 0), ("odd", 1),
            ("wrong", 1)]:
        equal((state(place, message_id), failures(place, message_id)), ("done", count))
    for message_id, reason in [
            ("fail", "no terminal"), ("retry", "later"), ("wrong", "a delay of -1")]:
        text = place.delivery(message_id, "job")["attempts"][0]["error"]
        assert reason in text, text
    equal(place.delivery("poison", "job")["last_error"], "never")
    equal(worker.program.stop(), 0)
    worker.await_line("stopped")


@each_language("more results than one request takes are settled in several")
def _(place, language):
    serve(place)
    reason = "ü" * 900
    with Driver(place, language, address(place)) as driver:
        for number in range(100):
            driver.call("send", channel="jobs", body="", id=f"m{number}")
        equal(driver.call("poison_all", reason=reason), ["settled"] * 100)
        equal(driver.call("poison_all", reason=reason), [])
    equal(len(place.ok("list", "--state", "poisoned", "--json").json()), 100)
    assert place.delivery("m99", "job")["last_error"].startswith("ü" * 100)


@each_language("as many functions run at a time as concurrency says")
def _(place, language):
    serve(place)
    for number in range(5):
        send(place, f"m{number}", until=place.file("go"))
    worker = Worker(place, language, concurrency=3)
    until(lambda: len(worker.begun()) == 3)
    place.write("go", "")
    await_done(place, 5)
    lines = worker.lines()
    # The fourth began when one had ended.
    assert lines.index(f"begin {worker.begun()[3]} 1") > min(
        i for i, line in enumerate(lines) if line.startswith("end ")), lines


@each_language("a function that runs longer than its lease keeps it")
def _(place, language):
    serve(place)
    send(place, "long", until=place.file("go"))
    workers = [Worker(place, language, lease=4) for _ in range(2)]
    until(lambda: any("begin long 1" in worker.lines() for worker in workers))
    time.sleep(6)
    place.write("go", "")
    await_done(place, 1)
    equal(failures(place, "long"), 0)
    equal(sum(len(worker.begun()) for worker in workers), 1)


@each_language("SIGTERM finishes what runs, and gives back what has not begun")
def _(place, language):
    serve(place)
    for number in range(4):
        send(place, f"m{number}", until=place.file("go"))
    worker = Worker(place, language, batch=4)
    worker.await_line("begin m0 1")
    until(lambda: all(state(place, f"m{number}") == "leased" for number in range(4)))
    worker.program.process.send_signal(signal.SIGTERM)
    # Before the worker stops, the file would let it begin the others.
    until(lambda: not catches_sigterm(worker.program.process.pid))
    place.write("go", "")
    equal(worker.program.process.wait(60), 0)
    equal(worker.lines(), ["begin m0 1", "end m0", "stopped"])
    equal(state(place, "m0"), "done")
    for number in range(1, 4):
        equal((state(place, f"m{number}"), failures(place, f"m{number}")), ("pending", 0))
    Worker(place, language)
    await_done(place, 4)


@each_language("a second SIGTERM ends a worker whose function hangs")
def _(place, language):
    serve(place)
    send(place, "m", until=place.file("never"))
    worker = Worker(place, language)
    worker.await_line("begin m 1")

    def ended():
        worker.program.process.send_signal(signal.SIGTERM)
        return not worker.program.alive()

    until(ended)
    equal(worker.program.process.returncode, -signal.SIGTERM)


@each_language("workers that are killed lose nothing")
def _(place, language):
    print(f"# SEED={SEED}")
    chance = random.Random(SEED)
    serve(place)
    for number in range(MESSAGES):
        send(place, f"m{number}")
    workers = []
    for _ in range(5):
        worker = Worker(place, language, concurrency=2, batch=6, lease=1)
        workers.append(worker)
        wanted = chance.randrange(1, 8)
        until(lambda: len(worker.begun()) >= wanted
              or place.ok("stats", "--json").json()["handlers"][0]["done"] == MESSAGES)
        worker.program.stop(signal.SIGKILL)
    workers.append(Worker(place, language, concurrency=2, batch=6, lease=1))
    await_done(place, MESSAGES)
    begun = {message_id for worker in workers for message_id in worker.begun()}
    equal(begun, {f"m{number}" for number in range(MESSAGES)})
    equal(place.ok("list", "--state", "poisoned", "--json").json(), [])


@each_language("a server that is killed and started again costs no attempt")
def _(place, language):
    server = serve(place)
    send(place, "m", until=place.file("go"))
    worker = Worker(place, language)
    worker.await_line("begin m 1")
    server.stop(signal.SIGKILL)
    place.write("go", "")
    worker.await_line("end m")
    place.serve()
    await_done(place, 1)
    equal(failures(place, "m"), 0)
    # It goes on working.
    send(place, "n")
    worker.await_line("end n")
    equal(worker.program.stop(), 0)


@each_language("what was sent is done, while server and workers are killed")
def _(place, language):
    print(f"# SEED={SEED}")
    chance = random.Random(SEED)
    server = serve(place)
    wanted = [f"m{number}" for number in range(MESSAGES)]
    with Driver(place, language, address(place)) as driver:

        def send_all():
            for message_id in wanted:
                driver.call("send", channel="jobs", body={}, id=message_id)

        with ThreadPoolExecutor() as pool:
            sending = pool.submit(send_all)
            worker = Worker(place, language, lease=1, concurrency=2)
            for number in range(6):
                count = chance.randrange(len(worker.begun()), len(worker.begun()) + 5)
                until(lambda: len(worker.begun()) >= count or sending.done())
                if number % 2:
                    server.stop(signal.SIGKILL)
                    server = place.serve()
                else:
                    worker.program.stop(signal.SIGKILL)
                    worker = Worker(place, language, lease=1, concurrency=2)
            sending.result()
    await_done(place, len(wanted))


@each_language("a worker that slept past its lease learns that it is lost")
def _(place, language):
    serve(place)
    send(place, "m", until=place.file("go"))
    slow = Worker(place, language, lease=3)
    slow.await_line("begin m 1")
    slow.program.process.send_signal(signal.SIGSTOP)
    other = Worker(place, language, lease=60)
    other.await_line("begin m 2")
    slow.program.process.send_signal(signal.SIGCONT)
    slow.await_line("lost m")
    until(lambda: "late" in slow.program.stderr())
    equal(state(place, "m"), "leased")
    place.write("go", "")
    await_done(place, 1)
    equal(failures(place, "m"), 1)
    # One that lost a lease can claim again.
    equal(other.program.stop(), 0)
    send(place, "n")
    slow.await_line("end n")


@each_language("a handler that does not exist ends the worker with an error")
def _(place, language):
    place.configure(CONFIG.replace("job:", "other:"))
    place.serve()
    worker = Worker(place, language)
    assert worker.program.process.wait(60) != 0
    assert "NotFound" in worker.program.stderr(), worker.program.stderr()


@each_language("the examples send an order and charge it, over TCP")
def _(place, language):
    place.configure("""\
store: sqlite:box.db
listen: 127.0.0.1:0
channels:
  orders:
    handlers:
      charge: {types: [order.placed], pull: {}}
""")
    url = place.serve().serving()["listen"]
    server = {"POSTERN_SERVER": url if "://" in url else f"http://{url}"}
    for word in ("accepted", "duplicate"):
        sender = place.start(example(language, "send"), stdout=-1, env=server)
        equal(sender.process.stdout.read(), f"order 7: {word}\n".encode())
        equal(sender.process.wait(60), 0)
    worker = place.start(example(language, "worker"), stdout=-1, env=server)
    equal(worker.process.stdout.readline(), b"charge order-7: 1250, attempt 1\n")
    equal(worker.stop(), 0)
    equal(place.state("order-7", "charge"), "done")


main()
