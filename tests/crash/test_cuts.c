/* SPDX-License-Identifier: MIT */

/*
 * The line to the database is cut after every byte of an accept, of a settle,
 * and of a run inside a transaction, in both directions: nothing is lost,
 * nothing is doubled, and what was told is true.
 *
 * A store is open all the time and has all that it needs, so that the bytes of
 * the deed are all there are. How many that is, is measured first. CUTS says
 * after how many of them the line is cut, evenly spread (default 20), 0: after
 * every one.
 */

#include "crash/cuts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"

#define CUTS_DEFAULT 20
/* As command_retries says it. */
#define NO_RETRIES (-1)
#define RETRIES 3
/* Longer than anything takes, in ms. */
#define PATIENCE_MS 60000
/* Undisturbed, to know how many bytes it is. */
#define MEASURES 3
/* How often something is tried that was not the deed alone. */
#define MEASURES_MAX 30
/* Of one sweep; enough to say what is wrong. */
#define FAILURES_MAX 20

void cuts_do(struct cuts_stand *stand, const char *sql) {
	PGresult *result = PQexec(stand->link, sql);
	if (PQresultStatus(result) != PGRES_COMMAND_OK) {
		FAIL("%s: %s", sql, PQerrorMessage(stand->link));
	}
	PQclear(result);
}

const char *cuts_ask(struct cuts_stand *stand, const char *sql,
		const char *parameter) {
	static char text[1024]; /* there is one who asks */
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
	while (strcmp(cuts_ask(stand, sql, NULL), "t") == 0 &&
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

static void stand_open(struct cuts_stand *stand, const struct cuts_deed *deed,
		int retries) {
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
	cuts_do(stand, "SET client_min_messages = error;"
				   " DROP SCHEMA IF EXISTS " CUTS_SCHEMA " CASCADE");
	deed->open(stand);
	cuts_do(stand, "CREATE INDEX ON " CUTS_SCHEMA ".message (id)");
}

static void stand_close(struct cuts_stand *stand,
		const struct cuts_deed *deed) {
	deed->close(stand);
	cutter_destroy(stand->cutter);
	cuts_do(stand, "DROP SCHEMA " CUTS_SCHEMA " CASCADE");
	PQfinish(stand->link);
}

static void begin(struct cuts_stand *stand, const struct cuts_deed *deed,
		struct cuts_trial *trial) {
	*trial = (struct cuts_trial){ 0 };
	(void)snprintf(trial->id, sizeof trial->id, "m-%08ld",
			stand->trial_count++);
	deed->prepare(stand, trial);
}

/* Message numbers come in blocks; taking the next one is no part of it. */
static const char *last_number(struct cuts_stand *stand) {
	return cuts_ask(stand, "SELECT last_value FROM " CUTS_SCHEMA ".message_seq",
			NULL);
}

/* How many bytes it is in this direction if nobody disturbs it: always the
   same number, else nobody could say that each was reached. */
static uint64_t measure(struct cuts_stand *stand, const struct cuts_deed *deed,
		enum cutter_way way) {
	uint64_t len = 0;
	int measured = 0;
	for (int i = 0; measured <= MEASURES && i < MEASURES_MAX; i++) {
		struct cuts_trial trial;
		char before[32];
		begin(stand, deed, &trial);
		(void)snprintf(before, sizeof before, "%s", last_number(stand));
		uint64_t start = cutter_count(stand->cutter, way);
		deed->act(stand, &trial);
		uint64_t passed = cutter_count(stand->cutter, way) - start;
		if (strcmp(before, last_number(stand)) == 0) {
			/* The first one is to warm up. */
			CHECK(measured < 2 || passed == len);
			len = passed;
			measured++;
		}
		deed->judge(stand, &trial);
	}
	CHECK(measured > MEASURES);
	return len;
}

/* False: it was not the deed alone that was cut. */
static bool cut_once(struct cuts_stand *stand, const struct cuts_deed *deed,
		enum cutter_way way, uint64_t after, enum cutter_end end) {
	struct cuts_trial trial;
	char before[32];
	begin(stand, deed, &trial);
	(void)snprintf(before, sizeof before, "%s", last_number(stand));
	unsigned failures = atomic_load(&tap_failures);
	cutter_arm(stand->cutter, way, after, end);
	deed->act(stand, &trial);
	CHECK(cutter_wait(stand->cutter));
	deed->judge(stand, &trial);
	if (atomic_load(&tap_failures) != failures) {
		(void)fprintf(stderr, "  %s, cut %s after %llu bytes, message %s\n",
				deed->name, way == CUTTER_TO_SERVER ? "to server" : "to client",
				(unsigned long long)after, trial.id);
	}
	return strcmp(before, last_number(stand)) == 0;
}

static uint64_t cuts_wanted(void) {
	const char *text = getenv("CUTS");
	return text ? strtoull(text, NULL, 10) : CUTS_DEFAULT;
}

/* How lines end in a sweep: all the same way, or by turns. */
enum ends { ENDS_CLOSED, ENDS_RESET, ENDS_BY_TURNS };

static const char *const ends_names[] = { "closed", "reset",
	"closed or reset" };

static enum cutter_end end_of(enum ends ends, uint64_t after) {
	bool reset = ends == ENDS_RESET || (ends == ENDS_BY_TURNS && after % 2);
	return reset ? CUTTER_RESET : CUTTER_CLOSE;
}

static void sweep(struct cuts_stand *stand, const struct cuts_deed *deed,
		enum cutter_way way, enum ends ends) {
	uint64_t len = measure(stand, deed, way);
	uint64_t wanted = cuts_wanted();
	/* Before the first byte and behind the last one, too. */
	uint64_t count = wanted == 0 || wanted > len ? len + 1 : wanted;
	uint64_t cuts = 0;
	CHECK(len > 0);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t after = count == 1 ? len : i * len / (count - 1);
		bool alone = false;
		for (int j = 0; !alone && j < MEASURES_MAX; j++) {
			alone = cut_once(stand, deed, way, after, end_of(ends, after));
		}
		cuts += CHECK(alone);
		if (atomic_load(&tap_failures) > FAILURES_MAX) {
			break;
		}
	}
	CHECK_INT(cuts, count);
	(void)printf("# %s, %s, %s: %llu bytes, %llu cuts, %d retries\n",
			deed->name, way == CUTTER_TO_SERVER ? "to server" : "to client",
			ends_names[ends], (unsigned long long)len, (unsigned long long)cuts,
			stand->retries < 0 ? 0 : stand->retries);
}

static void sweep_both_ways(struct cuts_stand *stand,
		const struct cuts_deed *deed, enum ends ends) {
	sweep(stand, deed, CUTTER_TO_SERVER, ends);
	sweep(stand, deed, CUTTER_TO_CLIENT, ends);
}

static void sweep_deed(const struct cuts_deed *deed, int retries) {
	struct cuts_stand stand;
	stand_open(&stand, deed, retries);
	if (deed->slow || retries > 0) {
		sweep_both_ways(&stand, deed, ENDS_BY_TURNS);
	} else {
		sweep_both_ways(&stand, deed, ENDS_CLOSED);
		sweep_both_ways(&stand, deed, ENDS_RESET);
	}
	deed->conclude(&stand);
	stand_close(&stand, deed);
}

static void accept_told(void) {
	sweep_deed(&cuts_accept, NO_RETRIES);
}

static void accept_retried(void) {
	sweep_deed(&cuts_accept, RETRIES);
}

static void accept_first(void) {
	sweep_deed(&cuts_accept_first, NO_RETRIES);
}

static void accept_second(void) {
	sweep_deed(&cuts_accept_second, NO_RETRIES);
}

static void accept_second_retried(void) {
	sweep_deed(&cuts_accept_second, RETRIES);
}

static void settle_told(void) {
	sweep_deed(&cuts_settle_done, NO_RETRIES);
}

static void settle_retried(void) {
	sweep_deed(&cuts_settle_done, RETRIES);
}

static void again_told(void) {
	sweep_deed(&cuts_settle_again, NO_RETRIES);
}

static void again_retried(void) {
	sweep_deed(&cuts_settle_again, RETRIES);
}

static void run_one(void) {
	sweep_deed(&cuts_run_one, NO_RETRIES);
}

static void run_three(void) {
	sweep_deed(&cuts_run_three, NO_RETRIES);
}

static void run_three_retried(void) {
	sweep_deed(&cuts_run_three, RETRIES);
}

static void run_first(void) {
	sweep_deed(&cuts_run_first, NO_RETRIES);
}

static void run_second(void) {
	sweep_deed(&cuts_run_second, NO_RETRIES);
}

static void run_callback(void) {
	sweep_deed(&cuts_run_callback, NO_RETRIES);
}

static const struct tap_case cases[] = {
	{ "an accept whose line is cut, and that is sent again, is there once",
			accept_told },
	{ "an accept whose line is cut is there once, and is told as new",
			accept_retried },
	{ "the first accept on a new line is there once if it is cut",
			accept_first },
	{ "the second accept on a new line is there once if it is cut",
			accept_second },
	{ "the second accept on a new line is there once if it is cut, and is told "
	  "as new",
			accept_second_retried },
	{ "a settlement whose line is cut, and that is sent again, is there once",
			settle_told },
	{ "a settlement whose line is cut is there once", settle_retried },
	{ "a failure whose line is cut, and that is sent again, counts once",
			again_told },
	{ "a failure whose line is cut counts once", again_retried },
	{ "a run in a transaction whose line is cut is done once", run_one },
	{ "three runs in a transaction whose line is cut are done once",
			run_three },
	{ "three runs in a transaction whose line is cut and that may try again "
	  "are done once",
			run_three_retried },
	{ "the first run on a new line is done once if it is cut", run_first },
	{ "the second run on a new line is done once if it is cut", run_second },
	{ "a callback in a transaction whose line is cut is done once",
			run_callback },
};

TAP_MAIN(cases)
