/* SPDX-License-Identifier: MIT */

/*
 * Transactional handlers on SQLite that do what they must not: end the
 * transaction, write to the store's tables, leave statements open, never
 * return. The behaviour of all stores with transactions is tested in
 * tests/conformance/.
 */

#include <pthread.h>
#include <semaphore.h>

#include "unit/sqlite_stand.h"

/* What one unit does, in SQL, and its result. */
struct script {
	const char *sql;
	enum postern_outcome_kind kind;
	int runs;
	int result;         /* of the SQL when it last ran */
	sqlite3_stmt *left; /* a statement that was not run to its end */
	bool leave;
	uint64_t epoch;
};

static void run_script(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct script *script = context;
	script->runs++;
	script->epoch = epoch;
	if (script->leave) {
		script->result = sqlite3_prepare_v2(transaction, script->sql, -1,
				&script->left, NULL);
		(void)sqlite3_step(script->left);
	} else {
		script->result =
				sqlite3_exec(transaction, script->sql, NULL, NULL, NULL);
	}
	outcome->kind = script->kind;
}

static struct postern_unit make_unit(const struct stand *stand, int64_t seq,
		struct script *script) {
	return (struct postern_unit){
		.seq = seq,
		.handler = stand->handler,
		.fence = 1,
		.context = script,
		.run = run_script,
	};
}

static bool transact_open(struct stand *stand) {
	stand_init(stand);
	(void)file_exec(stand->path,
			"CREATE TABLE effect (n INTEGER UNIQUE);"
			"CREATE TABLE parent (n INTEGER PRIMARY KEY);"
			"CREATE TABLE child (n INTEGER REFERENCES parent"
			" DEFERRABLE INITIALLY DEFERRED)");
	return stand_open(stand);
}

static int transact(struct stand *stand, struct postern_unit *units,
		size_t count) {
	return stand->store->ops->transact(stand->store, NODE, NULL, units, count,
			&stand->error);
}

/* How many effects are in the file; no write may be in progress. */
static int64_t count_effects(const struct stand *stand) {
	return file_number(stand->path, "SELECT count(*) FROM effect");
}

#define INSERT(n) "INSERT INTO effect VALUES (" #n ");"

static void forbidden(void) {
	static const struct {
		const char *sql;
		const char *reason;
	} rows[] = {
		{ "COMMIT", "ended the transaction" },
		{ "END", "ended the transaction" },
		{ "ROLLBACK", "ended the transaction" },
		{ "BEGIN", "ended the transaction" },
		{ "INSERT OR ROLLBACK INTO effect VALUES (9)",
				"ended the transaction" },
		{ "RELEASE postern_unit", "savepoint" },
		{ "ROLLBACK TO postern_unit", "savepoint" },
		{ "SAVEPOINT Postern_Unit", "savepoint" },
		{ "UPDATE postern_open SET fence = 7", "table of postern" },
		{ "DELETE FROM postern_seen", "table of postern" },
		{ "INSERT INTO postern_meta VALUES ('a', 1)", "table of postern" },
		{ "DROP TABLE POSTERN_LEDGER", "table of postern" },
		{ "ALTER TABLE postern_open RENAME TO x", "table of postern" },
		{ "CREATE INDEX x ON postern_open (fence)", "table of postern" },
		{ "CREATE TRIGGER x AFTER INSERT ON postern_ledger"
		  " BEGIN DELETE FROM effect; END",
				"table of postern" },
		{ "CREATE TABLE postern_mine (n)", "table of postern" },
		{ "CREATE TEMP TABLE mine (n)", "temporary" },
		{ "CREATE TEMP TRIGGER x AFTER DELETE ON postern_open"
		  " BEGIN DELETE FROM effect; END",
				"temporary" },
		{ "ATTACH ':memory:' AS other", "attached" },
		{ "DETACH main", "attached" },
		{ "PRAGMA synchronous = OFF", "pragma" },
		{ "PRAGMA journal_mode = DELETE", "pragma" },
		{ "PRAGMA writable_schema = ON", "pragma" },
		{ "PRAGMA foreign_keys = OFF", "pragma" },
		{ "PRAGMA wal_checkpoint", "pragma" },
	};
	struct stand stand;
	if (!transact_open(&stand)) {
		return;
	}
	CHECK(file_exec(stand.path, INSERT(9)));
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char id[32];
		char sql[256];
		(void)snprintf(id, sizeof id, "m%zu", i);
		(void)snprintf(sql, sizeof sql, INSERT(1) "%s", rows[i].sql);
		int64_t seq = stand_accept(&stand, id);
		struct script script = { .sql = sql };
		struct postern_unit unit = make_unit(&stand, seq, &script);
		CHECK_OK(transact(&stand, &unit, 1), &stand.error);
		bool ok = CHECK_INT(unit.code, POSTERN_E_INVALID);
		ok = CHECK(!unit.committed) && ok;
		ok = CHECK_CONTAINS(unit.outcome.reason, rows[i].reason) && ok;
		ok = CHECK_INT(stand_state(&stand, seq), POSTERN_STATE_LEASED) && ok;
		ok = CHECK_INT(count_effects(&stand), 1) && ok;
		if (!ok) {
			FAIL("with \"%s\"", rows[i].sql);
		}
	}
	stand_finish(&stand);
}

static void allowed(void) {
	static const char *const rows[] = {
		"SAVEPOINT s; DELETE FROM effect; ROLLBACK TO s; RELEASE s",
		"SAVEPOINT left_open",
		"CREATE TABLE own (n); DROP TABLE own",
		"PRAGMA table_info (effect)",
		"SELECT count(*) FROM postern_open",
		"ALTER TABLE effect ADD COLUMN more",
		"CREATE INDEX own_index ON effect (n)",
	};
	struct stand stand;
	if (!transact_open(&stand)) {
		return;
	}
	size_t count = sizeof rows / sizeof rows[0];
	for (size_t i = 0; i < count; i++) {
		char id[32];
		char sql[256];
		(void)snprintf(id, sizeof id, "m%zu", i);
		(void)snprintf(sql, sizeof sql,
				"INSERT INTO effect (n) VALUES (%zu);%s", i, rows[i]);
		struct script script = { .sql = sql };
		struct postern_unit unit =
				make_unit(&stand, stand_accept(&stand, id), &script);
		CHECK_OK(transact(&stand, &unit, 1), &stand.error);
		bool ok = CHECK_INT(script.result, SQLITE_OK);
		if (!CHECK(unit.committed) || !ok) {
			FAIL("with \"%s\": %s", rows[i], unit.outcome.reason);
		}
		CHECK_INT(stand_state(&stand, unit.seq), POSTERN_STATE_DONE);
	}
	CHECK_INT(count_effects(&stand), (int64_t)count);
	stand_finish(&stand);
}

/* A write after the end of the transaction would commit by itself. */
static void run_after_rollback(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	int *result = context;
	(void)epoch;
	(void)sqlite3_exec(transaction, "INSERT OR ROLLBACK INTO effect VALUES (9)",
			NULL, NULL, NULL);
	*result = sqlite3_exec(transaction, INSERT(10), NULL, NULL, NULL);
	outcome->kind = POSTERN_DONE;
}

static void no_commit_of_its_own(void) {
	struct stand stand;
	int result = SQLITE_OK;
	if (!transact_open(&stand)) {
		return;
	}
	CHECK(file_exec(stand.path, INSERT(9)));
	struct postern_unit unit = {
		.seq = stand_accept(&stand, "a"),
		.handler = stand.handler,
		.fence = 1,
		.context = &result,
		.run = run_after_rollback,
	};
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK_INT(unit.code, POSTERN_E_INVALID);
	CHECK_INT(result, SQLITE_CONSTRAINT_COMMITHOOK);
	CHECK_INT(count_effects(&stand), 1);
	stand_finish(&stand);
}

/* Three units, the second of which does what it must not. */
static void run_three(struct stand *stand, const char *bad_sql,
		struct postern_unit units[3], struct script scripts[3]) {
	static const char *const good[] = { INSERT(1), NULL, INSERT(3) };
	static const char *const ids[] = { "a", "b", "c" };
	for (size_t i = 0; i < 3; i++) {
		scripts[i] = (struct script){ .sql = good[i] ? good[i] : bad_sql };
		units[i] = make_unit(stand, stand_accept(stand, ids[i]), &scripts[i]);
	}
	CHECK_OK(transact(stand, units, 3), &stand->error);
	CHECK(units[0].committed);
	CHECK_INT(units[1].code, POSTERN_E_INVALID);
	CHECK(!units[1].committed);
	CHECK(units[2].committed);
	CHECK_INT(stand_state(stand, units[0].seq), POSTERN_STATE_DONE);
	CHECK_INT(stand_state(stand, units[1].seq), POSTERN_STATE_LEASED);
	CHECK_INT(stand_state(stand, units[2].seq), POSTERN_STATE_DONE);
}

static void refused_commit(void) {
	struct stand stand;
	struct postern_unit units[3];
	struct script scripts[3];
	if (!transact_open(&stand)) {
		return;
	}
	run_three(&stand, INSERT(2) "COMMIT", units, scripts);
	/* A refused COMMIT has no effect, so no unit has to run twice. */
	CHECK_INT(scripts[0].runs, 1);
	CHECK_INT(count_effects(&stand), 2);
	stand_finish(&stand);
}

static void rolled_back_neighbours(void) {
	struct stand stand;
	struct postern_unit units[3];
	struct script scripts[3];
	if (!transact_open(&stand)) {
		return;
	}
	run_three(&stand, INSERT(2) "INSERT OR ROLLBACK INTO effect VALUES (2)",
			units, scripts);
	CHECK_INT(scripts[0].runs, 2);
	CHECK_INT(scripts[1].runs, 1);
	CHECK_INT(scripts[2].runs, 1);
	CHECK_INT(count_effects(&stand), 2);
	stand_finish(&stand);
}

/* More units than share a savepoint; the one at index `bad` fails. */
#define MANY 40

static void run_many(struct stand *stand, size_t bad,
		struct postern_unit units[MANY], struct script scripts[MANY]) {
	static char sql[MANY][64];
	char id[8];
	for (size_t i = 0; i < MANY; i++) {
		(void)snprintf(sql[i], sizeof sql[i], "INSERT INTO effect VALUES (%d)",
				(int)i);
		(void)snprintf(id, sizeof id, "%d", (int)i);
		scripts[i] = (struct script){
			.sql = sql[i],
			.kind = i == bad ? POSTERN_RETRY : POSTERN_DONE,
		};
		units[i] = make_unit(stand, stand_accept(stand, id), &scripts[i]);
	}
	CHECK_OK(transact(stand, units, MANY), &stand->error);
}

static void failure_among_many(void) {
	struct stand stand;
	struct postern_unit units[MANY];
	struct script scripts[MANY];
	if (!transact_open(&stand)) {
		return;
	}
	size_t bad = MANY / 2;
	run_many(&stand, bad, units, scripts);
	for (size_t i = 0; i < MANY; i++) {
		CHECK_INT(units[i].code, POSTERN_OK);
		CHECK(units[i].committed == (i != bad));
		CHECK(scripts[i].runs == 1 || (scripts[i].runs == 2 && i < bad));
		CHECK_INT(stand_state(&stand, units[i].seq),
				i == bad ? POSTERN_STATE_LEASED : POSTERN_STATE_DONE);
	}
	CHECK_INT(units[bad].outcome.kind, POSTERN_RETRY);
	/* It was not the first of those that share a savepoint, so others were
	   rolled back. */
	CHECK_INT(scripts[bad - 1].runs, 2);
	CHECK_INT(count_effects(&stand), MANY - 1);
	/* Units that ran twice count once. */
	CHECK_INT(file_number(stand.path, "SELECT done FROM postern_handler"),
			MANY - 1);
	CHECK_INT(file_number(stand.path, "SELECT leased FROM postern_handler"), 1);
	stand_finish(&stand);
}

static void deferred_key_of_one(void) {
	struct stand stand;
	struct postern_unit units[3];
	struct script scripts[3];
	if (!transact_open(&stand)) {
		return;
	}
	run_three(&stand, INSERT(2) "INSERT INTO child VALUES (5)", units, scripts);
	CHECK_CONTAINS(units[1].outcome.reason, "FOREIGN KEY");
	CHECK_INT(count_effects(&stand), 2);
	CHECK_INT(file_number(stand.path, "SELECT count(*) FROM child"), 0);
	stand_finish(&stand);
}

static void deferred_key_satisfied(void) {
	struct stand stand;
	if (!transact_open(&stand)) {
		return;
	}
	struct script script = {
		.sql = "INSERT INTO child VALUES (5); INSERT INTO parent VALUES (5)",
	};
	struct postern_unit unit =
			make_unit(&stand, stand_accept(&stand, "a"), &script);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK(unit.committed);
	CHECK_INT(file_number(stand.path, "SELECT count(*) FROM child"), 1);
	stand_finish(&stand);
}

static void unfinished_statement(void) {
	struct stand stand;
	if (!transact_open(&stand)) {
		return;
	}
	CHECK(file_exec(stand.path, INSERT(1) INSERT(2)));
	struct script script = {
		.sql = "INSERT INTO effect SELECT n + 10 FROM effect RETURNING n",
		.leave = true,
	};
	struct postern_unit unit =
			make_unit(&stand, stand_accept(&stand, "a"), &script);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK(unit.committed);
	CHECK(!sqlite3_stmt_busy(script.left));
	CHECK_INT(count_effects(&stand), 4);
	/* The statement is never finalized; closing must handle that. */
	stand_finish(&stand);
}

static void epoch_stays(void) {
	struct stand stand;
	uint64_t epoch = 0;
	if (!transact_open(&stand)) {
		return;
	}
	for (int i = 0; i < 2; i++) {
		struct script script = { .sql = "SELECT 1" };
		struct postern_unit unit =
				make_unit(&stand, stand_accept(&stand, i ? "b" : "a"), &script);
		CHECK_OK(transact(&stand, &unit, 1), &stand.error);
		CHECK(i == 0 || script.epoch == epoch);
		epoch = script.epoch;
	}
	CHECK(epoch > 0);
	stand_finish(&stand);
}

static void reading_costs_no_commit(void) {
	struct stand stand;
	if (!transact_open(&stand)) {
		return;
	}
	struct script script = { .sql = INSERT(1), .kind = POSTERN_RETRY };
	struct postern_unit unit =
			make_unit(&stand, stand_accept(&stand, "a"), &script);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK_INT(unit.code, POSTERN_OK);
	CHECK(!unit.committed);
	CHECK_INT(unit.outcome.kind, POSTERN_RETRY);
	CHECK_INT(count_effects(&stand), 0);
	stand_finish(&stand);
}

#define FOREVER                                                        \
	"WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)" \
	" INSERT INTO effect SELECT n FROM c"

struct endless {
	sem_t started;
	int result;
	sqlite3 *db;
};

static int progress(void *context) {
	struct endless *endless = context;
	sqlite3_progress_handler(endless->db, 0, NULL, NULL);
	(void)sem_post(&endless->started);
	return 0;
}

static void run_endless(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct endless *endless = context;
	(void)epoch;
	endless->db = transaction;
	/* Reports that the statement has started. */
	sqlite3_progress_handler(transaction, 1000, progress, endless);
	endless->result = sqlite3_exec(transaction, FOREVER, NULL, NULL, NULL);
	outcome->kind = POSTERN_DONE;
}

struct thread_job {
	struct stand *stand;
	struct postern_unit *units;
	size_t count;
	int result;
	struct postern_error error;
};

static void *run_job(void *context) {
	struct thread_job *job = context;
	struct postern_store *store = job->stand->store;
	job->result = store->ops->transact(store, NODE, NULL, job->units,
			job->count, &job->error);
	return NULL;
}

static void interrupted(void) {
	struct stand stand;
	struct endless endless = { .result = SQLITE_OK };
	pthread_t thread;
	if (!transact_open(&stand)) {
		return;
	}
	(void)sem_init(&endless.started, 0, 0);
	struct script script = { .sql = INSERT(-1) };
	struct postern_unit units[2] = {
		make_unit(&stand, stand_accept(&stand, "a"), &script),
		{
				.seq = stand_accept(&stand, "b"),
				.handler = stand.handler,
				.fence = 1,
				.context = &endless,
				.run = run_endless,
		},
	};
	struct thread_job job = { .stand = &stand, .units = units, .count = 2 };
	/* Nothing runs yet, so this interrupts nothing. */
	stand.store->ops->interrupt(stand.store, NULL);
	CHECK_INT(pthread_create(&thread, NULL, run_job, &job), 0);
	(void)sem_wait(&endless.started);

	/* Another write times out meanwhile. */
	int code;
	int64_t seq;
	CHECK_INT(stand_send(&stand, "c", 4, &code, &seq), POSTERN_E_TIMEOUT);
	CHECK_CONTAINS(stand.error.text, "busy");

	stand.store->ops->interrupt(stand.store, NULL);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK_OK(job.result, &job.error);
	CHECK_INT(endless.result, SQLITE_INTERRUPT);
	CHECK_INT(units[1].code, POSTERN_E_TIMEOUT);
	CHECK(!units[1].committed);
	CHECK(units[0].committed);
	CHECK_INT(count_effects(&stand), 1);
	CHECK(stand_accept(&stand, "d") > 0);
	(void)sem_destroy(&endless.started);
	stand_finish(&stand);
}

static void run_accepting(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct stand *stand = context;
	int code;
	int64_t seq;
	(void)transaction;
	(void)epoch;
	CHECK_INT(stand_send(stand, "inner", 4, &code, &seq), POSTERN_E_BUSY);
	outcome->kind = POSTERN_DONE;
}

static void accepting_inside(void) {
	struct stand stand;
	if (!transact_open(&stand)) {
		return;
	}
	struct postern_unit unit = {
		.seq = stand_accept(&stand, "a"),
		.handler = stand.handler,
		.fence = 1,
		.context = &stand,
		.run = run_accepting,
	};
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK(unit.committed);
	stand_finish(&stand);
}

static const struct tap_case cases[] = {
	{ "a unit that does what it must not is rolled back with the reason",
			forbidden },
	{ "a unit may use savepoints, its own tables and pragmas that only read",
			allowed },
	{ "a unit cannot commit after it has rolled back", no_commit_of_its_own },
	{ "a refused commit does not affect other units", refused_commit },
	{ "other units of a transaction that one unit rolled back run again",
			rolled_back_neighbours },
	{ "one failing unit among many is rolled back, the others are done once",
			failure_among_many },
	{ "a violated deferred foreign key fails the unit that violated it",
			deferred_key_of_one },
	{ "a unit may satisfy a deferred foreign key before its end",
			deferred_key_satisfied },
	{ "a statement that was not run to its end is reset",
			unfinished_statement },
	{ "the epoch stays with the connection", epoch_stays },
	{ "an outcome other than done writes nothing", reading_costs_no_commit },
	{ "an interrupted unit is rolled back and the others commit", interrupted },
	{ "writing from inside a transaction is busy at once", accepting_inside },
};

TAP_MAIN(cases)
