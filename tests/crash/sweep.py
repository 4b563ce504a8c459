# SPDX-License-Identifier: MIT
"""What the sweeps share: trials of the reference scenario, and their judge.

A trial is a folder of its own. In it lives are played one after the other on
one store: some are struck, as their environment says, and the last one plays
to the end and dumps the store. Then the checker judges what the histories
say, and the store is looked at without our code.

The store is a file in the folder; or, beside a server (postgres.py), a schema
that is named after the folder.

    story = Story("pump,runner")
    trials = [Trial("apply.before:3", story, [{"POSTERN_CRASH_AT": "apply.before:3"}])]
    report = sweep(trials)

The scenario is the one that $SCENARIO names, the library that strikes at
system calls $STRIKE. Folders are made under $TMPDIR, or in memory.
"""

import atexit
import concurrent.futures
import functools
import itertools
import json
import os
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "checker"))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import check  # noqa: E402
import history  # noqa: E402
import postgres  # noqa: E402

SCENARIO = os.environ.get("SCENARIO")
STRIKE = os.environ.get("STRIKE")
# Where the stores are; not set: in files.
DATABASE = os.environ.get("POSTERN_TEST_POSTGRES")

# Two at a time: that is what the machines of the tests have.
WORKERS = int(os.environ.get("SWEEP_WORKERS", "2"))
# Far more than a life takes, also on a busy machine.
PATIENCE_S = 120
# One in so many trials goes on after it was judged.
AGAIN = 3
# A sweep that fails everywhere has said enough.
PROBLEMS_MAX = 20
# Long work says how far it is, in seconds.
PROGRESS_S = 20

KILLED = -signal.SIGKILL


class Story:
    """What is played: the parts of the scenario, and of the life before the
    first that is struck, if there is one."""

    def __init__(self, parts, before=None):
        self.parts = parts
        self.before = before

    def rest(self):
        """To play nothing more."""
        kept = [word for word in ("clean", "shared", "pull") if word in self.parts]
        return "-".join(["rest", *kept])

    def __str__(self):
        return f"{self.before} / {self.parts}" if self.before else self.parts


# The whole life of messages; an older file; what a dead process left, and
# messages that grow old.
STORIES = [
    Story("pump,runner"),
    Story("short", before="old"),
    Story("clean", before="abandon"),
    Story("shared"),
    Story("pull"),
]
# Those whose steps are the same every time.
STEADY_STORIES = [
    Story("pump"),
    Story("short", before="old"),
    Story("clean", before="abandon"),
    Story("shared"),
]
if DATABASE:
    # There is no older schema yet, and no file.
    STORIES, STEADY_STORIES = (
        [story for story in stories
         if story.before != "old" and story.parts != "shared"]
        for stories in (STORIES, STEADY_STORIES)
    )


class Trial:
    """Lives with these environments, and one that nothing happens to."""

    def __init__(self, name, story, lives, killed=True):
        self.name = name
        self.story = story
        self.lives = lives
        self.killed = killed  # what a strike does; else a life goes on


class Outcome:
    def __init__(self, trial):
        self.name = f"{trial.name} of {trial.story}"
        self.struck = 0  # lives that were ended
        self.problems = []


class Report:
    """What came of a sweep."""

    def __init__(self):
        self.trials = 0
        self.struck = 0
        self.problems = []
        self.seconds = 0.0

    def add(self, outcome):
        self.trials += 1
        self.struck += outcome.struck
        self.problems += [f"{outcome.name}: {text}" for text in outcome.problems]

    def __str__(self):
        return (
            f"{self.trials} trials, {self.struck} struck, "
            f"{len(self.problems)} problems, {self.seconds:.0f} s"
        )


@functools.cache
def root():
    """A directory for everything, which goes when the program ends."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    where = os.environ.get("TMPDIR", memory)
    path = tempfile.mkdtemp(prefix="postern-sweep-", dir=where)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return path


def make_folder():
    return tempfile.mkdtemp(dir=root())


def remove_folder(folder):
    """Also drops the schema of the trial in a long sweep. In a short one the
    server is removed soon, and dropping schemas takes it long."""
    shutil.rmtree(folder, ignore_errors=True)
    if DATABASE and os.environ.get("SWEEP") == "all":
        sql(f"SET client_min_messages = warning;"
            f" DROP SCHEMA IF EXISTS {schema(folder)} CASCADE")


def schema(folder):
    return "run_" + os.path.basename(folder)


def sql(text):
    """Runs statements; returns the rows of the last as lists of texts."""
    done = subprocess.run(
        [os.path.join(postgres.BIN, "psql"), "-X", "-A", "-t", "-q",
         "-v", "ON_ERROR_STOP=1", "-c", text, DATABASE],
        env=postgres.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        raise OSError(done.stderr)
    return [line.split("|") for line in done.stdout.splitlines()]


def place(folder, store=None):
    """What the scenario is told of its store."""
    if DATABASE:
        return f"{DATABASE}?schema={schema(folder)}"
    return os.path.join(store or os.path.join(folder, "store"), "box.db")


def variables(folder, parts, environment=None, store=None):
    """What the environment of a life has besides that of this program."""
    mine = {
        "SCENARIO_PARTS": parts,
        "STRIKE_UNDER": store or os.path.join(folder, "store"),
    }
    if DATABASE:
        mine["SCENARIO_CLOCK"] = os.path.join(folder, "clock")
    return {**mine, **(environment or {})}


def surroundings(folder, parts, environment=None):
    """The environment of a life that is started as a program."""
    return {**os.environ, **variables(folder, parts, environment)}


class Spawner:
    """A scenario that is loaded once and forks a process for each life, as
    spawner.h explains."""

    def __init__(self, preload):
        preloaded = {"LD_PRELOAD": preload} if preload else {}
        self.process = subprocess.Popen(
            [SCENARIO, "--serve"],
            # Symbols are looked up once, and not again by each child.
            env={**os.environ, "LD_BIND_NOW": "1", **preloaded},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, log, environment, arguments):
        """Plays one life; returns its exit code."""
        settings = [f"{name}={value}" for name, value in environment.items()]
        words = [log, *settings, "", *arguments]
        request = b"".join(os.fsencode(word) + b"\0" for word in words)
        self.process.stdin.write(b"%d\n%s" % (len(request), request))
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        if not ready:
            raise subprocess.TimeoutExpired(SCENARIO, PATIENCE_S)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"{SCENARIO} --serve ended in the middle")
        return int(line)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


# Of this thread, by what is preloaded and in which process.
spawners = threading.local()


def spawn(log, environment, arguments):
    """Plays one life by a spawner of this thread."""
    mine = spawners.__dict__
    # A process that was forked must not talk to a spawner of its parent.
    key = f"{os.getpid()} {SCENARIO} {environment.get('LD_PRELOAD')}"
    if key not in mine:
        mine[key] = Spawner(environment.get("LD_PRELOAD"))
    try:
        return mine[key].run(log, environment, arguments)
    except BaseException:
        mine.pop(key).kill()
        raise


def play(folder, life, parts, environment=None, dump=False, store=None):
    """Plays one life in a folder, with its store there or elsewhere; returns
    its exit status and stderr."""
    os.makedirs(store or os.path.join(folder, "store"), exist_ok=True)
    arguments = [
        place(folder, store),
        os.path.join(folder, f"life{life}.jsonl"),
        str(life),
    ]
    if dump:
        arguments.append(os.path.join(folder, "dump.json"))
    log = os.path.join(folder, "log")
    code = spawn(log, variables(folder, parts, environment, store), arguments)
    with open(log, encoding="utf-8", errors="replace") as file:
        return code, file.read()


def note_crash(folder, life):
    """A life was killed, says the one who did it."""
    with open(os.path.join(folder, "zz-killer.jsonl"), "a") as file:
        file.write(json.dumps({"e": "crash", "node": life}) + "\n")


def sums_problems(done, sums, forgets):
    """What the sql handler wrote, of which the checker is not told."""
    # Retention removes the one and not the other.
    lost = Counter(done) - Counter(sums)
    doubled = Counter() if forgets else Counter(sums) - Counter(done)
    if lost or doubled:
        yield f"done by the sql handler: {done}, but written: {sums}"


def published_problems(database):
    """What is left of messages that another program published."""
    (tables,) = database.execute(
        "select count(*) from sqlite_schema where name = 'published'").fetchone()
    if not tables:
        return
    staged = database.execute("select id, refused from postern_staged").fetchall()
    if staged:
        yield f"left in the file: staged {staged}"
    lost = database.execute(
        "select id from published except select id from postern_message").fetchall()
    if lost:
        yield f"published, but not there: {sorted(lost)}"


def file_problems(path, forgets):
    """What is wrong with the file itself: its pages, and what is in it."""
    database = sqlite3.connect(path)
    try:
        verdict = database.execute("pragma integrity_check").fetchall()
        if verdict != [("ok",)]:
            yield f"integrity_check: {verdict[:3]}"
        done = database.execute(
            "select m.id from postern_ledger l"
            " join postern_handler h on h.id = l.handler"
            " join postern_message m on m.seq = l.seq"
            " where h.key = 'sums' and l.state = 3 order by 1"
        ).fetchall()
        sums = []
        if database.execute("select 1 from sqlite_schema where name = 'sums'").fetchall():
            sums = database.execute("select id from sums order by 1").fetchall()
        yield from sums_problems(done, sums, forgets)
        yield from published_problems(database)
    finally:
        database.close()


# What is in the tables of a store in the end that must not be there: all
# nodes have ended, and what is left is pending for a handler that is paused.
LEFT = {
    "node": "SELECT node::text FROM {0}.node",
    "pledge": "SELECT id::text FROM {0}.pledge",
    "lease": "SELECT seq::text FROM {0}.open WHERE node IS NOT NULL",
    "open and ended": "SELECT seq::text FROM {0}.open JOIN {0}.ledger"
    " USING (seq, handler)",
    "without message": "SELECT seq::text FROM {0}.open"
    " WHERE seq NOT IN (SELECT seq FROM {0}.message)",
    "staged": "SELECT id FROM {0}.staged",
    "without key": "SELECT seq::text FROM {0}.message"
    " WHERE seq NOT IN (SELECT seq FROM {0}.seen)",
}
DONE = (
    "SELECT m.id FROM {0}.ledger l JOIN {0}.handler h ON h.id = l.handler"
    " JOIN {0}.message m USING (seq) WHERE h.key = 'sums' AND l.state = 3"
)


def schema_problems(name, forgets):
    """What is wrong with the tables themselves."""
    queries = {
        **LEFT,
        "done": DONE,
        "sums": "SELECT id FROM {0}.sums",
        "stored": "SELECT id FROM {0}.message",
        "published": "SELECT id FROM {0}.published",
    }
    found = {kind: [] for kind in queries}
    for kind, value in sql(
        " UNION ALL ".join(
            f"SELECT '{kind}', q.* FROM ({query.format(name)}) AS q (value)"
            for kind, query in queries.items()
        )
    ):
        found[kind].append(value)
    for kind in LEFT:
        if found[kind]:
            yield f"left in the database: {kind} {found[kind][:5]}"
    lost = set(found["published"]) - set(found["stored"])
    if lost and not forgets:
        yield f"published, but not there: {sorted(lost)}"
    yield from sums_problems(found["done"], found["sums"], forgets)


def receipt_problems(histories):
    """Nothing is dropped in the scenario, so what is accepted has a number."""
    for event in itertools.chain(*histories):
        known = event.get("result") in ("accepted", "duplicate", "conflict")
        if event["e"] == "receipt" and known and event["seq"] <= 0:
            yield f"{event['id']} was told {event['result']} without a number"


def pull_problems(histories):
    """What a worker was told is done is never claimed again, and no fence is
    claimed twice."""
    done, claimed = set(), set()
    for event in itertools.chain(*histories):
        if event["e"] == "pulled" and event["done"]:
            done.add(event["seq"])
        if event["e"] != "pull":
            continue
        if event["seq"] in done:
            yield f"message {event['seq']} is done, and was claimed again"
        if (event["seq"], event["fence"]) in claimed:
            yield f"message {event['seq']} was claimed twice under {event['fence']}"
        claimed.add((event["seq"], event["fence"]))


def judge(folder, store=None):
    """Everything that is wrong with what a trial left."""
    try:
        histories, dump = history.read_folder(folder)
        yield from check.check(histories, dump)
        yield from receipt_problems(histories)
        yield from pull_problems(histories)
        forgets = histories[0][0]["retention"]["payload_ms"] > 0
        if DATABASE:
            yield from schema_problems(schema(folder), forgets)
        else:
            yield from file_problems(place(folder, store), forgets)
    except (history.BadHistory, OSError, LookupError, ValueError,
            sqlite3.Error) as error:
        yield f"cannot be judged: {type(error).__name__}: {error}"


def finish(folder, life, trial, store=None):
    """What is wrong with what is left once nothing is open any more; and, some
    of the time, when the client has sent everything again. A copy may mend
    what is broken, so that comes last."""
    endings = [trial.story.rest()]
    if zlib.crc32(trial.name.encode()) % AGAIN == 0:
        endings.append(trial.story.parts)
    for parts in endings:
        code, said = play(folder, life, parts, dump=True, store=store)
        if code != 0:
            return [f"the life after it ended with {code}: {said.strip()[-2000:]}"]
        problems = list(judge(folder, store))
        if problems:
            return problems
        life += 1
    return []


def play_before(folder, parts):
    code, said = play(folder, 1, parts)
    if code != 0:
        raise AssertionError(f"{parts} ended with {code}: {said}")


@functools.cache
def played_before(parts, pid):
    """A folder where these parts were played, for all trials of a process."""
    del pid
    folder = make_folder()
    play_before(folder, parts)
    return folder


def begin(folder, story):
    """Plays the life before those that are struck, if the story has one, or
    copies what it left; returns the number of the next life."""
    if not story.before:
        return 1
    if DATABASE:
        play_before(folder, story.before)
    else:
        source = played_before(story.before, os.getpid())
        shutil.copytree(source, folder, dirs_exist_ok=True)
    return 2


def attempt(trial):
    """Plays a trial and judges it."""
    outcome = Outcome(trial)
    folder = make_folder()
    story = trial.story
    life = 0
    try:
        first = begin(folder, story)
        for life, environment in enumerate(trial.lives, first):
            code, said = play(folder, life, story.parts, environment)
            if code == KILLED and trial.killed:
                outcome.struck += 1
                note_crash(folder, life)
            elif code != 0:
                outcome.problems.append(
                    f"life {life} ended with {code}: {said.strip()[-2000:]}"
                )
                return outcome
        outcome.problems += finish(folder, life + 1, trial)
    except subprocess.TimeoutExpired:
        outcome.problems.append("does not come to an end")
    finally:
        remove_folder(folder)
    return outcome


def sweep(trials, do=attempt, what="trials", workers=WORKERS):
    """Plays all trials, some at a time, and says how far it is."""
    report = Report()
    root()  # before there are others who would make their own
    started = said = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        waiting = iter(trials)
        running = set()
        while True:
            # No more than a few ahead, so that it can end early.
            while waiting is not None and len(running) < 4 * workers:
                trial = next(waiting, None)
                if trial is None or len(report.problems) > PROBLEMS_MAX:
                    waiting = None
                    break
                running.add(pool.submit(do, trial))
            if not running:
                break
            done, running = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                report.add(future.result())
            if time.monotonic() - said > PROGRESS_S:
                said = time.monotonic()
                print(f"# {report.trials} {what}", flush=True)
    report.seconds = time.monotonic() - started
    return report


def count(environment, told, story):
    """Plays a life that is not struck; returns what the file that `told`
    names says when it has ended."""
    folder = make_folder()
    try:
        path = os.path.join(folder, "told")
        life = begin(folder, story)
        code, said = play(folder, life, story.parts, {**environment, told: path})
        if code != 0:
            raise AssertionError(f"the scenario ends with {code}: {said}")
        with open(path, encoding="utf-8") as file:
            return file.read()
    finally:
        remove_folder(folder)


class Tap:
    """Cases of a program that sweeps."""

    def __init__(self):
        self.count = 0
        self.failed = 0

    def case(self, name, problems):
        problems = list(problems)
        self.count += 1
        self.failed += bool(problems)
        for problem in problems[:PROBLEMS_MAX]:
            print(f"  {problem}", file=sys.stderr, flush=True)
        good = "not ok" if problems else "ok"
        print(f"{good} {self.count} - {name}", flush=True)

    def sweep(self, name, report):
        """A case that has swept: it counts, and something was struck."""
        problems = list(report.problems)
        if report.trials == 0:
            problems.append("nothing was tried")
        print(f"# {report}", flush=True)
        self.case(name, problems)

    def finish(self):
        print(f"1..{self.count}")
        sys.exit(1 if self.failed or not self.count else 0)
