/* SPDX-License-Identifier: MIT */

/*
 * The connection to the database is cut after every byte of an accept, of a
 * settlement, and of a run inside a transaction, in both directions: nothing is
 * lost, nothing is doubled, and every reported result is true.
 *
 * The store stays open and connected, so that only bytes of the action pass.
 * Their number is measured first. CUTS is the number of cuts, evenly spread
 * over them (default 20); 0: after every byte.
 */

#include "crash/cuts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"

#define CUTS_DEFAULT 20
/* Values of command_retries. */
#define NO_RETRIES (-1)
#define RETRIES 3
/* Longer than any step takes. */
#define PATIENCE_MS 60000
/* Uncut trials that measure the number of bytes. */
#define MEASURES 3
/* How often a trial is repeated in which other bytes passed as well. */
#define MEASURES_MAX 30
/* After so many failures a sweep ends. */
#define FAILURES_MAX 20

void cuts_exec(struct cuts_stand *stand, const char *sql) {
	PGresult *result = PQexec(stand->link, sql);
	if (PQresultStatus(result) != PGRES_COMMAND_OK) {
		FAIL("%s: %s", sql, PQerrorMessage(stand->link));
	}
	PQclear(result);
}

const char *cuts_query(struct cuts_stand *stand, const char *sql,
		const char *parameter) {
	static char text[1024]; /* only one thread calls this */
	PGresult *result = PQexecParams(stand->link, sql, parameter ? 1 : 0, NULL,
			&parameter, NULL, NULL, 0);
	text[0] = '\0';
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1) {
		(void)snprintf(text, sizeof text, "%s", PQgetvalue(result, 0, 0));
	} else {
		FAIL("%s: %s", sql, PQerrorMessage(stand->link));
	}
	PQclear(result);
	return text;
}

void cuts_wait_quiet(struct cuts_stand *stand) {
	static const char sql[] = "SELECT count(*) > 1 FROM pg_stat_activity"
							  " WHERE application_name = 'postern'";
	int waited = 0;
	while (strcmp(cuts_query(stand, sql, NULL), "t") == 0 &&
			waited++ < PATIENCE_MS) {
		(void)usleep(1000);
	}
	CHECK(waited < PATIENCE_MS);
}

static int port_of(const char *url) {
	PQconninfoOption *options = PQconninfoParse(url, NULL);
	int port = 0;
	for (const PQconninfoOption *o = options; o && o->keyword; o++) {
		if (strcmp(o->keyword, "port") == 0 && o->val) {
			port = (int)strtol(o->val, NULL, 10);
		}
	}
	PQconninfoFree(options);
	return port;
}

static void stand_open(struct cuts_stand *stand,
		const struct cuts_action *action, int retries) {
	const char *base = getenv("POSTERN_TEST_POSTGRES");
	base = base ? base : "";
	*stand = (struct cuts_stand){
		.cutter = cutter_create(port_of(base)),
		.link = PQconnectdb(base),
		.retries = retries,
	};
	if (!CHECK(stand->cutter) ||
			!CHECK_INT(PQstatus(stand->link), CONNECTION_OK)) {
		exit(1);
	}
	(void)snprintf(stand->url, sizeof stand->url,
			"postgres://%s@127.0.0.1:%d/%s?schema=" CUTS_SCHEMA,
			PQuser(stand->link), cutter_port(stand->cutter), PQdb(stand->link));
	cuts_exec(stand, "SET client_min_messages = error;"
					 " DROP SCHEMA IF EXISTS " CUTS_SCHEMA " CASCADE");
	action->open(stand);
	cuts_exec(stand, "CREATE INDEX ON " CUTS_SCHEMA ".message (id)");
}

static void stand_close(struct cuts_stand *stand,
		const struct cuts_action *action) {
	action->close(stand);
	cutter_destroy(stand->cutter);
	cuts_exec(stand, "DROP SCHEMA " CUTS_SCHEMA " CASCADE");
	PQfinish(stand->link);
}

static void begin_trial(struct cuts_stand *stand,
		const struct cuts_action *action, struct cuts_trial *trial) {
	*trial = (struct cuts_trial){ 0 };
	(void)snprintf(trial->id, sizeof trial->id, "m-%08ld",
			stand->trial_count++);
	action->prepare(stand, trial);
}

/* Stores reserve message numbers in blocks; a trial in which the next block is
   reserved does not count. */
static const char *last_number(struct cuts_stand *stand) {
	return cuts_query(stand,
			"SELECT last_value FROM " CUTS_SCHEMA ".message_seq", NULL);
}

/* How many bytes the uncut action sends in this direction. The number must be
   constant, or the cuts would not cover every byte. */
static uint64_t measure(struct cuts_stand *stand,
		const struct cuts_action *action, enum cutter_way way) {
	uint64_t len = 0;
	int measured = 0;
	for (int i = 0; measured <= MEASURES && i < MEASURES_MAX; i++) {
		struct cuts_trial trial;
		char before[32];
		begin_trial(stand, action, &trial);
		(void)snprintf(before, sizeof before, "%s", last_number(stand));
		uint64_t start = cutter_count(stand->cutter, way);
		action->act(stand, &trial);
		uint64_t passed = cutter_count(stand->cutter, way) - start;
		if (strcmp(before, last_number(stand)) == 0) {
			/* The first one warms up. */
			CHECK(measured < 2 || passed == len);
			len = passed;
			measured++;
		}
		action->check(stand, &trial);
	}
	CHECK(measured > MEASURES);
	return len;
}

/* Returns false if other bytes than those of the action passed as well. */
static bool cut_once(struct cuts_stand *stand, const struct cuts_action *action,
		enum cutter_way way, uint64_t after, enum cutter_end end) {
	struct cuts_trial trial;
	char before[32];
	begin_trial(stand, action, &trial);
	(void)snprintf(before, sizeof before, "%s", last_number(stand));
	unsigned failures = atomic_load(&tap_failures);
	cutter_arm(stand->cutter, way, after, end);
	action->act(stand, &trial);
	CHECK(cutter_wait(stand->cutter));
	action->check(stand, &trial);
	if (atomic_load(&tap_failures) != failures) {
		(void)fprintf(stderr, "  %s, cut %s after %llu bytes, message %s\n",
				action->name,
				way == CUTTER_TO_SERVER ? "to server" : "to client",
				(unsigned long long)after, trial.id);
	}
	return strcmp(before, last_number(stand)) == 0;
}

static uint64_t cuts_wanted(void) {
	const char *text = getenv("CUTS");
	return text ? strtoull(text, NULL, 10) : CUTS_DEFAULT;
}

/* How connections end in a sweep: all the same way, or alternating. */
enum ends { ENDS_CLOSED, ENDS_RESET, ENDS_BY_TURNS };

static const char *const ends_names[] = { "closed", "reset",
	"closed or reset" };

static enum cutter_end end_of(enum ends ends, uint64_t after) {
	bool reset = ends == ENDS_RESET || (ends == ENDS_BY_TURNS && after % 2);
	return reset ? CUTTER_RESET : CUTTER_CLOSE;
}

static void sweep(struct cuts_stand *stand, const struct cuts_action *action,
		enum cutter_way way, enum ends ends) {
	uint64_t len = measure(stand, action, way);
	uint64_t wanted = cuts_wanted();
	/* Also before the first byte and after the last one. */
	uint64_t count = wanted == 0 || wanted > len ? len + 1 : wanted;
	uint64_t cuts = 0;
	CHECK(len > 0);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t after = count == 1 ? len : i * len / (count - 1);
		bool counts = false;
		for (int j = 0; !counts && j < MEASURES_MAX; j++) {
			counts = cut_once(stand, action, way, after, end_of(ends, after));
		}
		cuts += CHECK(counts);
		if (atomic_load(&tap_failures) > FAILURES_MAX) {
			break;
		}
	}
	CHECK_INT(cuts, count);
	(void)printf("# %s, %s, %s: %llu bytes, %llu cuts, %d retries\n",
			action->name, way == CUTTER_TO_SERVER ? "to server" : "to client",
			ends_names[ends], (unsigned long long)len, (unsigned long long)cuts,
			stand->retries < 0 ? 0 : stand->retries);
}

static void sweep_both_ways(struct cuts_stand *stand,
		const struct cuts_action *action, enum ends ends) {
	sweep(stand, action, CUTTER_TO_SERVER, ends);
	sweep(stand, action, CUTTER_TO_CLIENT, ends);
}

static void sweep_action(const struct cuts_action *action, int retries) {
	struct cuts_stand stand;
	stand_open(&stand, action, retries);
	if (action->slow || retries > 0) {
		sweep_both_ways(&stand, action, ENDS_BY_TURNS);
	} else {
		sweep_both_ways(&stand, action, ENDS_CLOSED);
		sweep_both_ways(&stand, action, ENDS_RESET);
	}
	action->check_totals(&stand);
	stand_close(&stand, action);
}

static void accept_repeated(void) {
	sweep_action(&cuts_accept, NO_RETRIES);
}

static void accept_retried(void) {
	sweep_action(&cuts_accept, RETRIES);
}

static void accept_first(void) {
	sweep_action(&cuts_accept_first, NO_RETRIES);
}

static void accept_second(void) {
	sweep_action(&cuts_accept_second, NO_RETRIES);
}

static void accept_second_retried(void) {
	sweep_action(&cuts_accept_second, RETRIES);
}

static void settle_repeated(void) {
	sweep_action(&cuts_settle_done, NO_RETRIES);
}

static void settle_retried(void) {
	sweep_action(&cuts_settle_done, RETRIES);
}

static void failure_repeated(void) {
	sweep_action(&cuts_settle_again, NO_RETRIES);
}

static void failure_retried(void) {
	sweep_action(&cuts_settle_again, RETRIES);
}

static void run_one(void) {
	sweep_action(&cuts_run_one, NO_RETRIES);
}

static void run_three(void) {
	sweep_action(&cuts_run_three, NO_RETRIES);
}

static void run_three_retried(void) {
	sweep_action(&cuts_run_three, RETRIES);
}

static void run_first(void) {
	sweep_action(&cuts_run_first, NO_RETRIES);
}

static void run_second(void) {
	sweep_action(&cuts_run_second, NO_RETRIES);
}

static void run_callback(void) {
	sweep_action(&cuts_run_callback, NO_RETRIES);
}

static const struct tap_case cases[] = {
	{ "an accept that is cut and sent again is stored once", accept_repeated },
	{ "an accept that is cut and retried by the store is stored once, as new",
			accept_retried },
	{ "the first accept on a new connection is stored once if it is cut",
			accept_first },
	{ "the second accept on a new connection is stored once if it is cut",
			accept_second },
	{ "the second accept on a new connection, cut and retried by the store, is "
	  "stored once, as new",
			accept_second_retried },
	{ "a settlement that is cut and sent again is stored once",
			settle_repeated },
	{ "a settlement that is cut and retried by the store is stored once",
			settle_retried },
	{ "a failure that is cut and sent again counts once", failure_repeated },
	{ "a failure that is cut and retried by the store counts once",
			failure_retried },
	{ "a run in a transaction is done once if its connection is cut", run_one },
	{ "three runs in a transaction are done once if their connection is cut",
			run_three },
	{ "three runs in a transaction are done once if cut and retried by the "
	  "store",
			run_three_retried },
	{ "the first run on a new connection is done once if it is cut",
			run_first },
	{ "the second run on a new connection is done once if it is cut",
			run_second },
	{ "a callback in a transaction is done once if its connection is cut",
			run_callback },
};

TAP_MAIN(cases)
