/* SPDX-License-Identifier: MIT */

/*
 * Boxes on PostgreSQL, through the whole engine: connections that break during
 * a transactional callback, and staged messages.
 */

#include <libpq-fe.h>
#include <postern/postern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

#define SCHEMA "boxes"

struct bench {
	struct postern_box *box;
	PGconn *link;
	struct postern_error error;
	enum postern_outcome_kind outcome;
	int breaks;
	int others;
	/* Events. */
	int accepted;
	int duplicates;
	int conflicts;
};

static void run_sql(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	ExecStatusType status = PQresultStatus(result);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
		FAIL("%s: %s", sql, PQerrorMessage(link));
	}
	PQclear(result);
}

/* The message with the id "breaks" ends the connection. */
static void run_callback(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct bench *bench = context;
	if (strcmp(message->id, "breaks") != 0) {
		bench->others++;
		return;
	}
	bench->breaks++;
	PQclear(PQexec(delivery->transaction,
			"SELECT pg_terminate_backend(pg_backend_pid())"));
	postern_outcome_set(outcome, bench->outcome, 0, NULL);
}

static void count_event(void *context, const struct postern_event *event) {
	struct bench *bench = context;
	bench->accepted += event->kind == POSTERN_EVENT_ACCEPTED;
	bench->duplicates += event->kind == POSTERN_EVENT_DUPLICATE;
	bench->conflicts += event->kind == POSTERN_EVENT_CONFLICT;
}

static bool open_box(struct bench *bench) {
	const char *base = getenv("POSTERN_TEST_POSTGRES");
	*bench = (struct bench){ .link = PQconnectdb(base ? base : "") };
	run_sql(bench->link, "SET client_min_messages = error;"
						 " DROP SCHEMA IF EXISTS " SCHEMA " CASCADE");
	struct postern_box_options options = {
		.size = sizeof options,
		.schema = SCHEMA,
	};
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.max_attempts = 1;
	struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "h",
		.callback = run_callback,
		.context = bench,
		.transactional = true,
		.policy = &policy,
	};
	struct postern_error *error = &bench->error;
	return CHECK_OK(postern_box_open(base ? base : "", &options, &bench->box,
							error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(bench->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_add_handler(bench->box, "c", &handler, error),
				   error) &&
		   CHECK_OK(postern_box_subscribe(bench->box, POSTERN_LEVEL_DEBUG,
							count_event, bench, error),
				   error) &&
		   CHECK_OK(postern_box_start(bench->box, error), error);
}

static void close_box(struct bench *bench) {
	postern_box_destroy(bench->box);
	run_sql(bench->link, "DROP SCHEMA IF EXISTS " SCHEMA " CASCADE");
	PQfinish(bench->link);
}

static int64_t accept_one(struct bench *bench, const char *id) {
	struct postern_message message = { .size = sizeof message, .id = id };
	int64_t seq = 0;
	CHECK_OK(postern_box_accept(bench->box, "c", &message, &seq, &bench->error),
			&bench->error);
	return seq;
}

static void process(struct bench *bench) {
	size_t count;
	CHECK_OK(postern_box_process(bench->box, 0, &count, &bench->error),
			&bench->error);
}

/* Check state and last error of the only delivery. */
static void expect_delivery(struct bench *bench, int64_t seq,
		enum postern_state state, const char *part) {
	struct postern_detail *detail;
	if (!CHECK_OK(postern_box_get(bench->box, seq, &detail, &bench->error),
				&bench->error)) {
		return;
	}
	const struct postern_row *row = &detail->deliveries[0].row;
	CHECK_INT(row->state, state);
	CHECK_INT(row->failures, state == POSTERN_STATE_POISONED ? 1 : 0);
	CHECK(row->last_error && strstr(row->last_error, part));
	postern_detail_destroy(detail);
}

static void retried_uncounted(void) {
	static const enum postern_outcome_kind outcomes[] = { POSTERN_DONE,
		POSTERN_RETRY, POSTERN_DISCARD };
	for (size_t i = 0; i < 3; i++) {
		struct bench bench;
		if (open_box(&bench)) {
			bench.outcome = outcomes[i];
			int64_t seq = accept_one(&bench, "breaks");
			(void)accept_one(&bench, "behind it");
			process(&bench);
			expect_delivery(&bench, seq, POSTERN_STATE_PENDING, "terminating");
			CHECK_INT(bench.breaks, 1);
			CHECK_INT(bench.others, 1);
		}
		close_box(&bench);
	}
}

static void counted_in_the_end(void) {
	struct bench bench;
	if (open_box(&bench)) {
		int64_t seq = accept_one(&bench, "breaks");
		process(&bench);
		/* Only lost connections count, not what else raises the fence. */
		run_sql(bench.link, "UPDATE " SCHEMA ".open SET fence = 100");
		for (int i = 1; i < 20; i++) {
			run_sql(bench.link, "UPDATE " SCHEMA ".open SET due_at = 0");
			process(&bench);
		}
		CHECK_INT(bench.breaks, 20);
		expect_delivery(&bench, seq, POSTERN_STATE_PENDING, "terminating");
		run_sql(bench.link, "UPDATE " SCHEMA ".open SET due_at = 0");
		process(&bench);
		expect_delivery(&bench, seq, POSTERN_STATE_POISONED,
				"whenever this runs");
	}
	close_box(&bench);
}

static void poison_is_kept(void) {
	struct bench bench;
	if (open_box(&bench)) {
		bench.outcome = POSTERN_POISON;
		int64_t seq = accept_one(&bench, "breaks");
		process(&bench);
		expect_delivery(&bench, seq, POSTERN_STATE_POISONED, "");
	}
	close_box(&bench);
}

/* The copies are in the same batch at first, in a later one then. */
static void staged_have_events(void) {
	struct bench bench;
	if (open_box(&bench)) {
		for (int i = 1; i <= 2; i++) {
			run_sql(bench.link,
					"SELECT " SCHEMA ".publish('c', 't', body, 'same') FROM"
					" unnest(ARRAY['one', 'one', 'two', 'three']) AS body");
			process(&bench);
			CHECK_INT(bench.accepted, 1);
			CHECK_INT(bench.duplicates, 2 * i - 1);
			CHECK_INT(bench.conflicts, 2 * i);
		}
		CHECK_INT(bench.others, 1);
	}
	close_box(&bench);
}

/* A batch with nothing but conflicts must not end the collection. */
static void staged_behind_conflicts(void) {
	struct bench bench;
	if (open_box(&bench)) {
		(void)accept_one(&bench, "same");
		process(&bench);
		run_sql(bench.link,
				"SELECT count(" SCHEMA ".publish('c', 't', 'other', 'same',"
				" source => 'c')) FROM generate_series(1, 1000)");
		run_sql(bench.link,
				"SELECT " SCHEMA ".publish('c', 't', 'body', 'behind them')");
		process(&bench);
		CHECK_INT(bench.conflicts, 1000);
		CHECK_INT(bench.others, 2);
	}
	close_box(&bench);
}

static const struct tap_case cases[] = {
	{ "a callback whose connection breaks is retried uncounted, whatever its "
	  "outcome",
			retried_uncounted },
	{ "a callback whose connection always breaks is counted as failed in the "
	  "end",
			counted_in_the_end },
	{ "the outcome poison counts although the connection broke",
			poison_is_kept },
	{ "every staged message that is accepted, a duplicate or a conflict emits "
	  "its event",
			staged_have_events },
	{ "a staged message behind a thousand conflicts is processed",
			staged_behind_conflicts },
};

TAP_MAIN(cases)
