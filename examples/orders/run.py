#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Two shops, one in C and one in Python, whose programs are killed all the time:

    run.py BUILD [SECONDS]

BUILD is the directory with `src/postern` and the programs in C. A RabbitMQ and a
PostgreSQL of their own are started on free ports and removed at the end. Each
shop has a database for its orders, another one for its payments, an exchange
and a queue. For SECONDS (15) one program after another is killed (SIGKILL) and
started again; so is the database, the broker is restarted, and connections to
both are cut. Then no more orders are placed, and when nothing is on its way any more,
the orders and the charges of each shop are compared in the databases. With
$LOG, a file, what the programs print is kept.
"""

import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "support"))
import postgres  # noqa: E402
import rabbitmq  # noqa: E402
from proxy import TO_CLIENT, TO_SERVER, Proxy  # noqa: E402

# How long the last orders may take, also on a busy machine.
PATIENCE_S = 120
SECONDS = 15


class Program:
    """A program that is started again when it has ended, as a supervisor
    such as systemd does."""

    def __init__(self, name, words, environment, log):
        self.name = name
        self.words = words
        self.environment = {**os.environ, **environment}
        self.log = log
        self.start()

    def start(self):
        # It ends with this program, however that ends.
        self.process = subprocess.Popen(
            self.words, env=self.environment, stdout=self.log, stderr=self.log,
            preexec_fn=lambda: postgres.die_with_parent(signal.SIGKILL))

    def supervise(self):
        if self.process.poll() is not None:
            self.start()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Net:
    """The broker, the database, and the way to them, which can be cut."""

    def __init__(self, broker, database, to_broker, to_database):
        self.broker = broker
        self.database = database
        self.to_broker = to_broker
        self.to_database = to_database

    @staticmethod
    def restart(server, number):
        server.end(number)
        time.sleep(random.uniform(0.2, 1))
        server.start()

    @staticmethod
    def cut(proxy):
        """All connections, after some thousand bytes more."""
        proxy.strike(random.choice((TO_CLIENT, TO_SERVER)), random.randrange(20000))

    def faults(self):
        # After a SIGKILL a quorum queue of RabbitMQ 3.10 sometimes answers
        # nobody until the next restart.
        return [("restart the broker",
                 lambda: self.restart(self.broker, signal.SIGTERM)),
                ("kill the database",
                 lambda: self.restart(self.database, signal.SIGKILL)),
                ("cut the connections to the broker",
                 lambda: self.cut(self.to_broker)),
                ("cut the connections to the database",
                 lambda: self.cut(self.to_database))]

    def calm(self):
        self.to_broker.calm()
        self.to_database.calm()


class Shop:
    """An order service, a payment service, and what runs beside them."""

    def __init__(self, language, build, net, log):
        self.name = f"shop_{language}"
        self.net = net
        self.log = log
        self.environment = {
            "ORDERS": self.create("orders"), "PAYMENTS": self.create("payments"),
            "BROKER": net.broker.url(port=net.to_broker.port), "SHOP": self.name}
        self.postern = os.path.join(build, "src", "postern")
        self.programs = []
        self.configure("orders")
        if language == "c":
            self.start_c(os.path.join(build, "examples", "orders"))
        else:
            self.start_python()

    def create(self, what):
        """A database with its tables; returns its URL."""
        name = f"{self.name}_{what}"
        self.net.database.sql(f"CREATE DATABASE {name}")
        with open(os.path.join(HERE, f"{what}.sql"), encoding="utf-8") as file:
            self.net.database.sql(file.read(), database=name)
        return self.net.database.url(database=name, port=self.net.to_database.port)

    def configure(self, what):
        """Creates the schema of Postern, so that its functions are there before
        its server runs."""
        config = os.path.join(HERE, f"{what}.yaml")
        subprocess.run([self.postern, "migrate", "-c", config], check=True,
                       env={**os.environ, **self.environment}, stdout=self.log,
                       stderr=self.log)
        self.start(f"postern serve -c {what}.yaml",
                   [self.postern, "serve", "-c", config])

    def start(self, name, words):
        self.programs.append(Program(name, words, self.environment, self.log))

    def start_c(self, path):
        orders, payments = self.environment["ORDERS"], self.environment["PAYMENTS"]
        self.start("payment_service", [
            os.path.join(path, "payment_service"), payments,
            self.environment["BROKER"], self.name])
        self.start("order_service", [os.path.join(path, "order_service"), orders])

    def start_python(self):
        orders, payments = self.environment["ORDERS"], self.environment["PAYMENTS"]
        self.configure("payments")
        self.start("payment_service.py",
                   [os.path.join(HERE, "payment_service.py"), payments])
        self.start("order_service.py",
                   [os.path.join(HERE, "order_service.py"), orders])

    def rows(self, what, sql):
        return self.net.database.sql(sql, database=f"{self.name}_{what}")

    def orders(self):
        return self.rows("orders", "SELECT id, cents FROM orders")

    def charges(self):
        return self.rows("payments", "SELECT order_id, cents FROM charges")

    def close(self):
        """No more orders; what was placed is still charged."""
        self.programs.pop().stop()

    def stats(self, what):
        """How many messages and deliveries Postern has that are not done."""
        words = ["stats", "--json", "--store", self.environment[what]]
        result = json.loads(subprocess.check_output([self.postern, *words]))
        return (sum(row["staged"] for row in result["channels"]) +
                sum(row["pending"] + row["leased"] for row in result["handlers"]))

    def is_idle(self):
        """Nothing is on its way: in this order, as a message goes."""
        return (self.stats("ORDERS") == 0 and
                self.net.broker.count(f"{self.name}.payments") == 0 and
                self.stats("PAYMENTS") == 0 and
                self.rows("payments", "SELECT count(*) FROM due") == ["0"])


def trouble(orders, charges):
    """Compares rows; returns a sentence for each that is not right."""
    count = collections.Counter(charges)
    found = [f"order {row} was charged {count[row]} times"
             for row in orders if count[row] != 1]
    return found + [f"charge {row} has no order" for row in set(charges) - set(orders)]


def abuse(shops, net, seconds):
    """Kills each program and each server once, in random order, then any."""
    end = time.monotonic() + seconds
    programs = [program for shop in shops for program in shop.programs]
    faults = net.faults() + [
        (f"kill {program.name}", program.kill) for program in programs]
    left = random.sample(faults, len(faults))
    while left or time.monotonic() < end:
        time.sleep(random.uniform(0.2, 1))
        name, fault = left.pop() if left else random.choice(faults)
        print(name, flush=True)
        fault()
        for program in programs:
            program.supervise()
    net.calm()


def finish(shops):
    """Waits until nothing is on its way, and stops everything."""
    for shop in shops:
        shop.close()
    end = time.monotonic() + PATIENCE_S
    while not all(shop.is_idle() for shop in shops) and time.monotonic() < end:
        for shop in shops:
            for program in shop.programs:
                program.supervise()
    for shop in shops:
        for program in shop.programs:
            program.stop()


def report(shop):
    """Prints what is in the databases; returns whether it is right."""
    orders, charges = shop.orders(), shop.charges()
    found = trouble(orders, charges)
    print(f"{shop.name}: {len(orders)} orders, {len(charges)} charges"
          f"{'' if found else ': each order was charged once'}")
    for sentence in found[:10]:
        print(f"  {sentence}")
    return not found and len(orders) > 0


@contextlib.contextmanager
def two_shops(build):
    """The shops, and what is between their services."""
    with rabbitmq.Server() as broker, postgres.Server(durable=True) as database, \
            Proxy(broker.port) as to_broker, Proxy(database.port) as to_database, \
            open(os.environ.get("LOG", os.devnull), "a", encoding="utf-8") as log:
        net = Net(broker, database, to_broker, to_database)
        yield [Shop(language, os.path.abspath(build), net, log)
               for language in ("c", "python")], net


def main(build, seconds=SECONDS):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, postgres.raise_exit)
    print("starting RabbitMQ and PostgreSQL", flush=True)
    with two_shops(build) as (shops, net):
        abuse(shops, net, float(seconds))
        finish(shops)
        return all([report(shop) for shop in shops])


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
