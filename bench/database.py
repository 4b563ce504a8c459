# SPDX-License-Identifier: MIT
"""A private PostgreSQL server to measure on: with default settings, durable, its
files in the same directory as those of the other rows."""

import json
import os
import subprocess
import sys

from place import PATIENCE_S, Failure

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "tests", "support"))

import postgres  # noqa: E402

# The database of a round, and the templates that it is copied from.
NAME = "bench"
EMPTY = "bench_empty"
FILLED = "bench_filled"

# As if so many messages had been accepted DAYS ago and removed since. With this
# fillfactor, an index that is built at once is as full as one into which random
# keys were inserted one by one. Message numbers continue after theirs.
FILL = """
SET synchronous_commit = off;
SET maintenance_work_mem = '1GB';
SET search_path = postern;
ALTER TABLE seen DROP CONSTRAINT seen_pkey;
INSERT INTO seen (k0, k1, k2, seq, at, digest, channel)
    SELECT hashint8extended(i, 1), hashint8extended(i, 2),
        hashint8extended(i, 3), i, now_ms() - {days} * 86400000::bigint,
        gen_random_uuid(), 1
    FROM generate_series(1, {count}) AS i;
ALTER TABLE seen ADD PRIMARY KEY (k0, k1, k2) WITH (fillfactor = 69);
ALTER INDEX seen_pkey RESET (fillfactor);
SELECT setval('message_seq', ({count} / 1000 + 1) * 1000 + 1, false);
"""


class Database:
    """The server. It starts with the first use; stop() it."""

    def __init__(self, place):
        self.place = place
        self.server = None
        self.bare = os.path.join(os.path.dirname(os.path.dirname(
            place.postern)), "bench", "bare_postgres")

    def start(self):
        if self.server:
            return
        if not os.path.exists(self.bare):
            raise Failure("this build has no PostgreSQL")
        before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = self.place.folder
        try:
            # Not durable only when the benchmark itself is tested.
            self.server = postgres.Server(
                durable="BENCH_NOT_DURABLE" not in os.environ)
        except (OSError, postgres.ServerError) as error:
            raise Failure(f"no PostgreSQL: {error}") from error
        finally:
            del os.environ["TMPDIR"]
            if before is not None:
                os.environ["TMPDIR"] = before
        self.sql(f"CREATE DATABASE {EMPTY}", "postgres")
        self.place.output([self.place.postern, "migrate",
                           "--store", self.url(EMPTY)])

    def stop(self):
        if self.server:
            self.server.stop()
            self.server = None

    def version(self):
        """Returns the version of the server that would be started."""
        try:
            text = self.place.output(
                [os.path.join(postgres.BIN, "postgres"), "--version"])
        except OSError:
            return "no PostgreSQL"
        return f"PostgreSQL {text.split()[2]}"

    def url(self, database=NAME):
        return self.server.url(database=database)

    def sql(self, text, database=NAME):
        """Runs statements without a transaction; returns the rows as lines."""
        command = [
            os.path.join(postgres.BIN, "psql"), "-X", "-A", "-t", "-q", "-v",
            "ON_ERROR_STOP=1", "-h", self.server.path, "-p",
            str(self.server.port), "-U", postgres.USER, "-d", database,
        ]
        result = subprocess.run(
            command, input=text, env=postgres.environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=PATIENCE_S, check=False,
        )
        if result.returncode != 0:
            raise Failure(f"{text}: {result.stderr.strip()}")
        return result.stdout.splitlines()

    def run_guarded(self, way, count):
        """Runs a guard, or the same writes without one, on a new database."""
        self.create()
        result = json.loads(self.place.output(
            [f"{self.place.guarded}_postgres", way, self.url(), str(count)]))
        self.remove()
        return result

    def remove(self, name=NAME):
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", "postgres")

    def create(self, of=EMPTY):
        """Creates a new database for a round, and writes all that the last round
        has left in memory."""
        self.start()
        self.remove()
        self.sql(f"CREATE DATABASE {NAME} TEMPLATE {of}"
                 " STRATEGY file_copy;\nCHECKPOINT;", "postgres")

    def remembering(self, count, days=0):
        """Creates the template database that remembers so many ids."""
        self.start()
        self.place.progress(f"making {count:,} ids")
        self.remove(FILLED)
        self.sql(f"CREATE DATABASE {FILLED} TEMPLATE {EMPTY}", "postgres")
        self.sql(FILL.format(count=count, days=days), FILLED)
        self.sql("VACUUM (FREEZE, ANALYZE) postern.seen;\nCHECKPOINT;", FILLED)

    def run_postern(self, *args, of=EMPTY, inspect=None):
        """Runs a job through Postern; returns its result. inspect() is called with
        the database before it is removed."""
        self.create(of)
        result = self.bench(*args)
        if inspect:
            inspect(self)
        self.remove()
        return result

    def bench(self, *args):
        command = [self.place.postern, "bench", "--store", self.url(),
                   "--json", *map(str, args)]
        return json.loads(self.place.output(command))

    def run_bare(self, *args, of=EMPTY):
        """Runs the same writes without Postern; returns the result."""
        self.create(of)
        command = [self.bare, self.url(), *map(str, args)]
        result = json.loads(self.place.output(command))
        self.remove()
        return result

    def start_bench(self, *args):
        """Starts a job in the background; returns its process."""
        command = [self.place.postern, "bench", "--store", self.url(),
                   "--json", *map(str, args)]
        return subprocess.Popen(
            command, cwd=self.place.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )


def finish(process):
    """Waits for a job that start_bench() started; returns its result."""
    out, err = process.communicate(timeout=PATIENCE_S)
    if process.returncode != 0:
        raise Failure(f"postern bench: {err.strip()}")
    return json.loads(out)
