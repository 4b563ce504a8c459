/* SPDX-License-Identifier: MIT */

/*
 * One accept and one settlement, as the engine requests them of a store: a
 * message with a delivery that is leased at accept; the delivery ends as done,
 * or has failed and is pending again.
 */

#include <postern/sys/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/identity.h"
#include "crash/cuts.h"
#include "tap.h"

#define NODE 42
#define NODE_TEXT "42"
#define PATIENCE_MS 60000

struct own {
	struct postern_store *store;
	int64_t channel;
	int64_t handler;
	struct postern_route route; /* of the last accept */
	long duplicates;            /* that were reported */
};

static struct own *own_of(struct cuts_stand *stand) {
	return stand->own;
}

static void enrol(struct cuts_stand *stand) {
	struct own *own = own_of(stand);
	struct postern_enrol_channel channel = { .name = "orders" };
	struct postern_enrol_handler handler = { .key = "a" };
	struct postern_enrolment enrolment = {
		.node = NODE,
		.node_lease_ms = INT64_C(24) * 3600 * 1000,
		.channels = &channel,
		.channel_count = 1,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(own->store->ops->enrol(own->store, &enrolment, &stand->error),
			&stand->error);
	own->channel = channel.id;
	own->handler = handler.id;
}

static void open_store(struct cuts_stand *stand) {
	static struct own own;
	const struct postern_store_options options = {
		.size = sizeof options,
		.command_timeout_ms = PATIENCE_MS,
		.command_retries = stand->retries,
	};
	own = (struct own){ 0 };
	stand->own = &own;
	if (!CHECK_OK(postern_store_open(stand->url, &options, &own.store,
						  &stand->error),
				&stand->error)) {
		exit(1);
	}
	enrol(stand);
}

static void close_store(struct cuts_stand *stand) {
	postern_store_destroy(own_of(stand)->store);
}

/* Returns the result of the batch; *code_out is that of the message. */
static int accept_one(struct cuts_stand *stand, struct cuts_trial *trial,
		int *code_out) {
	struct own *own = own_of(stand);
	const struct postern_message message = {
		.size = sizeof message,
		.id = trial->id,
		.source = "shop",
		.type = "order.paid",
		.body = "body",
		.body_len = 4,
	};
	own->route = (struct postern_route){
		.handler = own->handler,
		.lease = true,
	};
	struct postern_accept accept = {
		.message = &message,
		.key = postern__dedupe_key_by_id(&message),
		.channel = own->channel,
		.routes = &own->route,
		.route_count = 1,
	};
	struct postern_batch batch = {
		.node = NODE,
		.accepts = &accept,
		.accept_count = 1,
	};
	int r = own->store->ops->apply(own->store, &batch, &stand->error);
	if (r == POSTERN_OK) {
		trial->seq = accept.seq;
		*code_out = accept.code;
		own->duplicates += accept.code == POSTERN_E_DUPLICATE;
	}
	return r;
}

/* Counts of messages, keys, open deliveries, the fence under which the node
   leases them, counts of done deliveries, attempts and duplicates. */
static const char *read_state(struct cuts_stand *stand,
		const struct cuts_trial *trial) {
	return cuts_query(stand,
			"WITH m AS (SELECT seq FROM cuts.message WHERE id = $1)"
			" SELECT concat_ws(' ', (SELECT count(*) FROM m),"
			" (SELECT count(*) FROM cuts.seen JOIN m USING (seq)),"
			" (SELECT count(*) FROM cuts.open JOIN m USING (seq)),"
			" (SELECT coalesce(sum(fence), 0) FROM cuts.open JOIN m USING (seq)"
			"  WHERE node = " NODE_TEXT "),"
			" (SELECT count(*) FROM cuts.ledger JOIN m USING (seq)"
			"  WHERE state = 3 AND fence = 1),"
			" (SELECT count(*) FROM cuts.attempt JOIN m USING (seq)),"
			" (SELECT coalesce(sum(duplicates), 0) FROM cuts.duplicate"
			"  JOIN m USING (seq)))",
			trial->id);
}

static bool is_stored(struct cuts_stand *stand,
		const struct cuts_trial *trial) {
	return strcmp(read_state(stand, trial), "0 0 0 0 0 0 0") != 0;
}

/* More connections than the store has. */
#define LINES_MAX 100

static int try_recover(struct own *own, struct postern_error *error) {
	const struct postern_recovery recovery = { .node = NODE, .max = 10 };
	struct postern_recovered recovered;
	return own->store->ops->recover(own->store, &recovery, &recovered, error);
}

/* What a node does at intervals: it returns its uncertain leases. Twice,
   because a statement that was in progress the first time may have leased
   since. */
static void recover(struct cuts_stand *stand) {
	for (int i = 0; i < 2; i++) {
		CHECK_OK(try_recover(own_of(stand), &stand->error), &stand->error);
		cuts_wait_quiet(stand);
	}
}

static void apply_nothing(struct cuts_stand *stand) {
	struct own *own = own_of(stand);
	struct postern_batch batch = { .node = NODE };
	CHECK_OK(own->store->ops->apply(own->store, &batch, &stand->error),
			&stand->error);
}

/* On a new connection the first batch is sent as text, and the second prepares
   the statement. */
static void prepare_accept(struct cuts_stand *stand, struct cuts_trial *trial) {
	(void)trial;
	apply_nothing(stand);
	apply_nothing(stand);
}

/* The end of a session may still be on its way through the cutter: a call that
   uses that connection fails, and the next one gets another. */
static void prepare_first(struct cuts_stand *stand, struct cuts_trial *trial) {
	struct own *own = own_of(stand);
	int tries = 0;
	(void)trial;
	(void)cuts_query(stand,
			"SELECT count(pg_terminate_backend(pid, $1)) FROM pg_stat_activity"
			" WHERE application_name = 'postern'",
			"60000");
	while (try_recover(own, NULL) != POSTERN_OK && tries++ < LINES_MAX) {
	}
	recover(stand);
}

static void prepare_second(struct cuts_stand *stand, struct cuts_trial *trial) {
	prepare_first(stand, trial);
	apply_nothing(stand);
}

static void act_accept(struct cuts_stand *stand, struct cuts_trial *trial) {
	int code = POSTERN_OK;
	trial->r = accept_one(stand, trial, &code);
	/* The message must not be a duplicate of its own first attempt. */
	CHECK_INT(code, POSTERN_OK);
}

/* The accept succeeded: the message is stored, and leased if that was
   reported. */
static void check_accepted(struct cuts_stand *stand, struct cuts_trial *trial) {
	const struct own *own = own_of(stand);
	int code = POSTERN_OK;
	CHECK(own->route.opened);
	CHECK_INT(own->route.fence, own->route.leased);
	bool leased = own->route.leased;
	CHECK_STR(read_state(stand, trial),
			leased ? "1 1 1 1 0 0 0" : "1 1 1 0 0 0 0");
	int64_t seq = trial->seq;
	CHECK_OK(accept_one(stand, trial, &code), &stand->error);
	CHECK_INT(code, POSTERN_E_DUPLICATE);
	CHECK_INT(trial->seq, seq);
	CHECK_STR(read_state(stand, trial),
			leased ? "1 1 1 1 0 0 1" : "1 1 1 0 0 0 1");
}

/* The accept failed: the message is stored or not, but no lease of it stays;
   sent again, it is stored. */
static void check_failed(struct cuts_stand *stand, struct cuts_trial *trial) {
	const struct own *own = own_of(stand);
	int code = POSTERN_OK;
	CHECK_INT(trial->r, POSTERN_E_UNAVAILABLE);
	recover(stand);
	bool stored = is_stored(stand, trial);
	if (stored) {
		CHECK_STR(read_state(stand, trial), "1 1 1 0 0 0 0");
	}
	CHECK_OK(accept_one(stand, trial, &code), &stand->error);
	CHECK_INT(code, stored ? POSTERN_E_DUPLICATE : POSTERN_OK);
	CHECK_INT(own->route.leased, !stored);
	CHECK_STR(read_state(stand, trial),
			stored ? "1 1 1 0 0 0 1" : "1 1 1 1 0 0 0");
}

static void check_accept(struct cuts_stand *stand, struct cuts_trial *trial) {
	if (trial->r == POSTERN_OK) {
		check_accepted(stand, trial);
	} else {
		CHECK(stand->retries < 0);
		check_failed(stand, trial);
	}
}

/* The counters over all trials. */
static void check_totals_accept(struct cuts_stand *stand) {
	char expected[64];
	(void)snprintf(expected, sizeof expected, "%ld %ld", stand->trial_count,
			own_of(stand)->duplicates);
	CHECK_STR(cuts_query(stand,
					  "SELECT concat_ws(' ', sum(accepted), sum(duplicates))"
					  " FROM cuts.channel_tally",
					  NULL),
			expected);
}

static void prepare_settle(struct cuts_stand *stand, struct cuts_trial *trial) {
	int code = POSTERN_OK;
	CHECK_OK(accept_one(stand, trial, &code), &stand->error);
	CHECK_INT(code, POSTERN_OK);
	CHECK(own_of(stand)->route.leased);
}

static int settle(struct cuts_stand *stand, const struct cuts_trial *trial,
		bool done, int *code_out) {
	struct own *own = own_of(stand);
	struct postern_settlement settlement = {
		.seq = trial->seq,
		.handler = own->handler,
		.fence = 1,
		.to = done ? POSTERN_SETTLE_DONE : POSTERN_SETTLE_PENDING,
		.failures = done ? 0 : 1,
		.outcome = done ? "done" : "retry",
		.error = done ? NULL : "not today",
	};
	struct postern_batch batch = {
		.node = NODE,
		.settlements = &settlement,
		.settlement_count = 1,
	};
	int r = own->store->ops->apply(own->store, &batch, &stand->error);
	*code_out = settlement.code;
	return r;
}

static void act_settle(struct cuts_stand *stand, struct cuts_trial *trial,
		bool done) {
	int code = POSTERN_OK;
	trial->r = settle(stand, trial, done, &code);
	CHECK(trial->r != POSTERN_OK || code == POSTERN_OK);
}

/* A settlement repeated after a failure is stale if the first one took
   effect. */
static void check_settle(struct cuts_stand *stand, struct cuts_trial *trial,
		bool done) {
	const char *settled = done ? "1 1 0 0 1 0 0" : "1 1 1 0 0 1 0";
	int code = POSTERN_OK;
	if (trial->r == POSTERN_OK) {
		CHECK_STR(read_state(stand, trial), settled);
		CHECK_OK(settle(stand, trial, done, &code), &stand->error);
		CHECK_INT(code, POSTERN_E_STALE);
	} else {
		CHECK(stand->retries < 0);
		CHECK_INT(trial->r, POSTERN_E_UNAVAILABLE);
		CHECK_OK(settle(stand, trial, done, &code), &stand->error);
		CHECK(code == POSTERN_OK || code == POSTERN_E_STALE);
	}
	CHECK_STR(read_state(stand, trial), settled);
}

static void act_done(struct cuts_stand *stand, struct cuts_trial *trial) {
	act_settle(stand, trial, true);
}

static void check_done(struct cuts_stand *stand, struct cuts_trial *trial) {
	check_settle(stand, trial, true);
}

static void check_totals_done(struct cuts_stand *stand) {
	char expected[64];
	(void)snprintf(expected, sizeof expected, "%ld", stand->trial_count);
	CHECK_STR(cuts_query(stand, "SELECT sum(done) FROM cuts.handler_tally",
					  NULL),
			expected);
}

static void act_retry(struct cuts_stand *stand, struct cuts_trial *trial) {
	act_settle(stand, trial, false);
}

static void check_retry(struct cuts_stand *stand, struct cuts_trial *trial) {
	check_settle(stand, trial, false);
}

static void check_totals_retry(struct cuts_stand *stand) {
	char expected[64];
	(void)snprintf(expected, sizeof expected, "%ld 1 1", stand->trial_count);
	CHECK_STR(cuts_query(stand,
					  "SELECT concat_ws(' ', count(*), min(failures),"
					  " max(failures)) FROM cuts.open",
					  NULL),
			expected);
}

const struct cuts_action cuts_accept = {
	.name = "accept",
	.open = open_store,
	.close = close_store,
	.prepare = prepare_accept,
	.act = act_accept,
	.check = check_accept,
	.check_totals = check_totals_accept,
};

const struct cuts_action cuts_accept_first = {
	.name = "the first accept on a connection",
	.slow = true,
	.open = open_store,
	.close = close_store,
	.prepare = prepare_first,
	.act = act_accept,
	.check = check_accept,
	.check_totals = check_totals_accept,
};

const struct cuts_action cuts_accept_second = {
	.name = "the second accept on a connection",
	.slow = true,
	.open = open_store,
	.close = close_store,
	.prepare = prepare_second,
	.act = act_accept,
	.check = check_accept,
	.check_totals = check_totals_accept,
};

const struct cuts_action cuts_settle_done = {
	.name = "settle as done",
	.open = open_store,
	.close = close_store,
	.prepare = prepare_settle,
	.act = act_done,
	.check = check_done,
	.check_totals = check_totals_done,
};

const struct cuts_action cuts_settle_again = {
	.name = "settle as failed",
	.open = open_store,
	.close = close_store,
	.prepare = prepare_settle,
	.act = act_retry,
	.check = check_retry,
	.check_totals = check_totals_retry,
};
