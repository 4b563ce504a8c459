/* SPDX-License-Identifier: MIT */

/*
 * Runs of a handler inside a transaction of the database: its effect and its
 * completion commit together, once, or not at all. One message per commit, or
 * three; by SQL or by a callback.
 *
 * The bytes of one run are not always the same: the first runs on a connection
 * prepare statements, and after a failed run the store does not send ahead for
 * a while. So before each trial other deliveries are run until a run takes as
 * many bytes as at first; or the connection is new, and the trial is its first
 * or second run.
 *
 * The test calls each step of the box itself and advances a fake clock, because
 * a handler waits for seconds after a failure.
 */

#include <libpq-fe.h>
#include <postern/postern.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash/cuts.h"
#include "support/fake_clock.h"
#include "tap.h"

#define CHANNEL "orders"
#define BATCH_MAX 3
#define PATIENCE_MS 60000
/* Longer than any delay of the engine or a handler. */
#define RETRY_MS 6000
/* Far more tries than needed. */
#define TRIES 200
/* Runs until all statements are prepared on a connection. */
#define WARM_RUNS 5

enum kind { KIND_SQL, KIND_CALLBACK };

struct own {
	struct postern_box *box;
	size_t batch;
	enum kind kind;
	int runs_before; /* before the trial, on a new connection; -1: on an old one
					  */
	struct fake_clock clock;
	struct postern_random random;
	_Atomic uint64_t drawn;
	/* Events of the messages of this trial. */
	int64_t seqs[BATCH_MAX];
	int done[BATCH_MAX];
	int refused[BATCH_MAX];
	/* Other deliveries that were run; how many bytes each way the last batch of
	   them took, and one on a warm connection takes. */
	long others;
	uint64_t last[2];
	uint64_t warm[2];
};

static struct own *own_of(struct cuts_stand *stand) {
	return stand->own;
}

/* Numbers that have the same length in every format. */
static uint64_t next_number(void *context) {
	struct own *own = context;
	return UINT64_C(1) << 63 | atomic_fetch_add(&own->drawn, 2);
}

static void count_event(void *context, const struct postern_event *event) {
	struct own *own = context;
	for (size_t i = 0; i < own->batch; i++) {
		if (event->seq != own->seqs[i]) {
			continue;
		}
		own->done[i] += event->state == POSTERN_STATE_DONE;
		own->refused[i] += event->kind == POSTERN_EVENT_FENCED;
	}
}

static void write_effect(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	PGresult *result = PQexecParams(delivery->transaction,
			"INSERT INTO " CUTS_SCHEMA ".effect VALUES ($1)", 1, NULL,
			&message->id, NULL, NULL, 0);
	if (PQresultStatus(result) != PGRES_COMMAND_OK) {
		postern_outcome_set(outcome, POSTERN_SNOOZE, 1, "cut off");
	}
	PQclear(result);
}

static int add_all(struct cuts_stand *stand) {
	struct own *own = own_of(stand);
	struct postern_policy policy;
	postern_policy_init(&policy);
	struct postern_handler_options options = {
		.size = sizeof options,
		.key = "row",
		.policy = &policy,
	};
	if (own->kind == KIND_SQL) {
		policy.commit_batch = (uint32_t)own->batch;
		options.sql = "INSERT INTO " CUTS_SCHEMA ".effect VALUES (:id)";
	} else {
		options.callback = write_effect;
		options.transactional = true;
	}
	int r = postern_box_add_channel(own->box, CHANNEL, NULL, &stand->error);
	if (r == POSTERN_OK) {
		r = postern_box_add_handler(own->box, CHANNEL, &options, &stand->error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_subscribe(own->box, POSTERN_LEVEL_DEBUG, count_event,
				own, &stand->error);
	}
	return r == POSTERN_OK ? postern_box_start(own->box, &stand->error) : r;
}

/* Accepts a batch of messages and leases them. */
static void accept_and_claim(struct cuts_stand *stand, const char *name) {
	struct own *own = own_of(stand);
	for (size_t i = 0; i < own->batch; i++) {
		char id[40];
		(void)snprintf(id, sizeof id, "%s-%zu", name, i);
		const struct postern_message message = {
			.size = sizeof message,
			.id = id,
			.type = "order.paid",
			.body = "body",
			.body_len = 4,
		};
		own->done[i] = 0;
		own->refused[i] = 0;
		CHECK_OK(postern_box_accept(own->box, CHANNEL, &message, &own->seqs[i],
						 &stand->error),
				&stand->error);
	}
	size_t count = 0;
	CHECK_OK(postern_box_claim(own->box, own->batch, &count, &stand->error),
			&stand->error);
	CHECK_INT(count, own->batch);
}

static void run_others(struct cuts_stand *stand) {
	struct own *own = own_of(stand);
	char name[16];
	/* As long as the id of a trial. */
	(void)snprintf(name, sizeof name, "o-%08ld", own->others++);
	accept_and_claim(stand, name);
	own->last[0] = cutter_count(stand->cutter, 0);
	own->last[1] = cutter_count(stand->cutter, 1);
	CHECK_OK(postern_box_run(own->box, own->batch, NULL, &stand->error),
			&stand->error);
	own->last[0] = cutter_count(stand->cutter, 0) - own->last[0];
	own->last[1] = cutter_count(stand->cutter, 1) - own->last[1];
}

/* Runs others until a run takes as many bytes as a warm one. */
static void warm_up(struct cuts_stand *stand) {
	struct own *own = own_of(stand);
	int tries = 0;
	do {
		run_others(stand);
	} while (memcmp(own->last, own->warm, sizeof own->warm) != 0 &&
			 ++tries < TRIES);
	CHECK(tries < TRIES);
}

static void renew_connection(struct cuts_stand *stand) {
	struct own *own = own_of(stand);
	cutter_arm(stand->cutter, CUTTER_TO_SERVER, 0, CUTTER_CLOSE);
	(void)postern_box_sweep(own->box, NULL,
			NULL); /* the result does not matter */
	CHECK(cutter_wait(stand->cutter));
}

static void open_box(struct cuts_stand *stand, enum kind kind, size_t batch,
		int runs_before) {
	static struct own own;
	own = (struct own){
		.batch = batch,
		.kind = kind,
		.runs_before = runs_before,
		.random = { .context = &own, .next = next_number },
	};
	fake_clock_init(&own.clock);
	stand->own = &own;
	const struct postern_box_options options = {
		.size = sizeof options,
		.command_timeout_ms = PATIENCE_MS,
		.command_retries = stand->retries,
		/* The test does not renew the node, and advances the clock all the
		   time. */
		.node_lease_ms = POSTERN_DURATION_MS_MAX,
		.clock = &own.clock.base,
		.random = &own.random,
	};
	int r = postern_box_open(stand->url, &options, &own.box, &stand->error);
	cuts_exec(stand, "CREATE TABLE " CUTS_SCHEMA ".effect (id text)");
	if (!CHECK_OK(r, &stand->error) ||
			!CHECK_OK(add_all(stand), &stand->error)) {
		exit(1);
	}
	for (int i = 0; i < WARM_RUNS; i++) {
		run_others(stand);
	}
	memcpy(own.warm, own.last, sizeof own.warm);
}

static void open_for_one(struct cuts_stand *stand) {
	open_box(stand, KIND_SQL, 1, -1);
}

static void open_for_first(struct cuts_stand *stand) {
	open_box(stand, KIND_SQL, 1, 0);
}

static void open_for_second(struct cuts_stand *stand) {
	open_box(stand, KIND_SQL, 1, 1);
}

static void open_for_three(struct cuts_stand *stand) {
	open_box(stand, KIND_SQL, BATCH_MAX, -1);
}

static void open_for_callback(struct cuts_stand *stand) {
	open_box(stand, KIND_CALLBACK, 1, -1);
}

static void close_box(struct cuts_stand *stand) {
	postern_box_destroy(own_of(stand)->box);
}

static void prepare(struct cuts_stand *stand, struct cuts_trial *trial) {
	const struct own *own = own_of(stand);
	warm_up(stand);
	if (own->runs_before >= 0) {
		renew_connection(stand);
	}
	for (int i = 0; i < own->runs_before; i++) {
		run_others(stand);
	}
	accept_and_claim(stand, trial->id);
}

static void act(struct cuts_stand *stand, struct cuts_trial *trial) {
	struct own *own = own_of(stand);
	trial->r = postern_box_run(own->box, own->batch, NULL, &stand->error);
}

/* Counts of effects, done deliveries, ended ones and open ones, and whether
   attempts failed. A broken connection is no failure of a message; within the
   handler's own statement it may be recorded as an uncounted attempt. */
static const char *read_state(struct cuts_stand *stand,
		const struct cuts_trial *trial, size_t index) {
	char id[sizeof trial->id + 24];
	(void)snprintf(id, sizeof id, "%s-%zu", trial->id, index);
	return cuts_query(stand,
			"WITH m AS (SELECT seq FROM cuts.message WHERE id = $1)"
			" SELECT concat_ws(' ',"
			" (SELECT count(*) FROM cuts.effect WHERE id = $1),"
			" (SELECT count(*) FROM cuts.ledger JOIN m USING (seq)"
			"  WHERE state = 3 AND crashes = 0 AND failures = 0),"
			" (SELECT count(*) FROM cuts.ledger JOIN m USING (seq)),"
			" (SELECT count(*) FROM cuts.open JOIN m USING (seq)),"
			" (SELECT count(*) > 1 OR coalesce(max(outcome), 'snooze') <>"
			"  'snooze' FROM cuts.attempt JOIN m USING (seq)))",
			id);
}

static const char is_done[] = "1 1 1 0 f";

static size_t count_done(const struct own *own) {
	size_t count = 0;
	for (size_t i = 0; i < own->batch; i++) {
		count += own->done[i] > 0;
	}
	return count;
}

/* Deliveries that were reported as done are done; the others become done
   later. */
static void check(struct cuts_stand *stand, struct cuts_trial *trial) {
	struct own *own = own_of(stand);
	for (size_t i = 0; i < own->batch; i++) {
		if (own->done[i] > 0) {
			CHECK_STR(read_state(stand, trial, i), is_done);
		}
	}
	for (int i = 0; count_done(own) < own->batch && i < TRIES; i++) {
		fake_clock_advance(&own->clock, RETRY_MS);
		(void)postern_box_run(own->box, own->batch, NULL, NULL);
		(void)postern_box_commit(own->box, NULL, NULL);
		if (count_done(own) < own->batch) {
			(void)postern_box_sweep(own->box, NULL, NULL);
			(void)postern_box_claim(own->box, own->batch, NULL, NULL);
		}
	}
	for (size_t i = 0; i < own->batch; i++) {
		CHECK_INT(own->done[i], 1);
		CHECK_INT(own->refused[i], 0);
		CHECK_STR(read_state(stand, trial, i), is_done);
	}
}

static void check_totals(struct cuts_stand *stand) {
	char expected[64];
	(void)snprintf(expected, sizeof expected, "%ld",
			(stand->trial_count + own_of(stand)->others) *
					(long)own_of(stand)->batch);
	CHECK_STR(cuts_query(stand, "SELECT sum(done) FROM cuts.handler_tally",
					  NULL),
			expected);
	CHECK_STR(cuts_query(stand, "SELECT count(*) FROM cuts.effect", NULL),
			expected);
	CHECK_STR(cuts_query(stand, "SELECT count(*) FROM cuts.pledge", NULL), "0");
	(void)printf("# of %s runs %s were retried uncounted\n", expected,
			cuts_query(stand, "SELECT count(*) FROM cuts.attempt", NULL));
}

const struct cuts_action cuts_run_one = {
	.name = "a run in a transaction",
	.open = open_for_one,
	.close = close_box,
	.prepare = prepare,
	.act = act,
	.check = check,
	.check_totals = check_totals,
};

const struct cuts_action cuts_run_first = {
	.name = "the first run on a connection",
	.slow = true,
	.open = open_for_first,
	.close = close_box,
	.prepare = prepare,
	.act = act,
	.check = check,
	.check_totals = check_totals,
};

const struct cuts_action cuts_run_second = {
	.name = "the second run on a connection",
	.slow = true,
	.open = open_for_second,
	.close = close_box,
	.prepare = prepare,
	.act = act,
	.check = check,
	.check_totals = check_totals,
};

const struct cuts_action cuts_run_three = {
	.name = "three runs in a transaction",
	.slow = true,
	.open = open_for_three,
	.close = close_box,
	.prepare = prepare,
	.act = act,
	.check = check,
	.check_totals = check_totals,
};

const struct cuts_action cuts_run_callback = {
	.name = "a callback in a transaction",
	.slow = true,
	.open = open_for_callback,
	.close = close_box,
	.prepare = prepare,
	.act = act,
	.check = check,
	.check_totals = check_totals,
};
