/* SPDX-License-Identifier: MIT */
/*
 * Cancelled runs, step by step with a fake clock and in one thread.
 */

#include "tap.h"

#include "core/box.h"
#include "core/cancel.h"
#include "core/run.h"
#include "support/fake_clock.h"

#include <postern/postern.h>
#include <postern/sys/handler.h>
#include <string.h>

struct bench {
	struct fake_clock clock;
	struct postern_box *box;
	struct postern_error error;
	struct postern_policy policy;
	struct postern_run *run; /* the last that has started */
	int cancelled;           /* calls of cancel() */
	int64_t remaining_ms;    /* of the run, in cancel() */
	bool asked;              /* postern_delivery_cancelled() in cancel() */
};

static void hang_start(struct postern_handler *handler,
		struct postern_run *run);
static void hang_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why);
static void hang_destroy(struct postern_handler *handler) {
	(void)handler;
}

static const struct postern_handler_ops hang_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = hang_start,
	.cancel = hang_cancel,
	.destroy = hang_destroy,
};
/* Runs hang until they are cancelled, or the test finishes them. */
static const struct postern_handler_kind hang_kind = {
	.size = sizeof(hang_kind),
	.name = "hang",
	.asynchronous = true,
	.concurrency = 1,
};

struct hang {
	struct postern_handler base;
	struct bench *bench;
};
static struct hang hang;

static void hang_start(struct postern_handler *handler,
		struct postern_run *run) {
	container_of(handler, struct hang, base)->bench->run = run;
}

static void finish(struct bench *bench, enum postern_outcome_kind kind) {
	struct postern_outcome outcome;
	postern_outcome_set(&outcome, kind, 0, NULL);
	postern_run_finish(bench->run, &outcome);
}

/* The run ends as done: what it says does not count any more. */
static void hang_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	struct bench *bench = container_of(handler, struct hang, base)->bench;
	CHECK_INT(why, POSTERN_CANCEL_TIMEOUT);
	bench->cancelled++;
	bench->remaining_ms = postern_run_remaining_ms(run);
	bench->asked = postern_delivery_cancelled(postern_run_delivery(run));
	finish(bench, POSTERN_DONE);
}

static bool bench_open(struct bench *bench) {
	struct postern_error *error = &bench->error;
	memset(bench, 0, sizeof(*bench));
	fake_clock_init(&bench->clock);
	postern_policy_init(&bench->policy);
	bench->policy.max_attempts = 2;
	bench->policy.concurrency = 1;
	const struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &bench->clock.base,
	};
	hang = (struct hang){
		.base = { .ops = &hang_ops, .kind = &hang_kind },
		.bench = bench,
	};
	const struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.policy = &bench->policy,
	};
	return CHECK_OK(postern_box_open("memory:", &options, &bench->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(bench->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern__box_register_taking(bench->box, "c", &handler,
							&hang.base, error),
				   error) &&
		   CHECK_OK(postern_box_start(bench->box, error), error);
}

static int64_t send(struct bench *bench, const char *id) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.body = "",
	};
	int64_t seq = 0;
	CHECK_OK(postern_box_accept(bench->box, "c", &message, &seq, &bench->error),
			&bench->error);
	return seq;
}

static void claim(struct bench *bench) {
	CHECK_OK(postern_box_claim(bench->box, 100, NULL, &bench->error),
			&bench->error);
}

static void start(struct bench *bench) {
	claim(bench);
	CHECK_OK(postern_box_run(bench->box, 1, NULL, &bench->error),
			&bench->error);
}

static int cancel(struct bench *bench, int64_t seq, const char *handler,
		bool uncounted) {
	struct postern_change change = {
		.size = sizeof(change),
		.kind = POSTERN_CHANGE_CANCEL,
		.seq = seq,
		.handler = handler,
		.uncounted = uncounted,
		.reason = "it hangs",
	};
	return postern_box_change(bench->box, &change, &bench->error);
}

static void check_row(struct bench *bench, int64_t seq,
		enum postern_state shown, uint32_t failures, const char *outcome) {
	struct postern_detail *detail;
	if (!CHECK_OK(postern_box_get(bench->box, seq, &detail, &bench->error),
				&bench->error)) {
		return;
	}
	const struct postern_delivery_detail *delivery = &detail->deliveries[0];
	CHECK_INT(delivery->row.shown, shown);
	CHECK_INT(delivery->row.failures, failures);
	CHECK_INT(delivery->attempt_count, outcome ? 1 : 0);
	if (outcome && delivery->attempt_count > 0) {
		CHECK_STR(delivery->attempts[0].outcome, outcome);
		CHECK_CONTAINS(delivery->attempts[0].error, "it hangs");
	}
	postern_detail_destroy(detail);
}

static void a_cancelled_run_has_failed(void) {
	struct bench bench;
	if (bench_open(&bench)) {
		int64_t seq = send(&bench, "1");
		start(&bench);
		CHECK(!postern_delivery_cancelled(postern_run_delivery(bench.run)));
		CHECK_OK(cancel(&bench, seq, "h", false), &bench.error);
		CHECK_INT(bench.cancelled, 1);
		CHECK_INT(bench.remaining_ms, 0);
		CHECK(bench.asked);
		check_row(&bench, seq, POSTERN_STATE_WAITING, 1, "cancelled");
	}
	postern_box_destroy(bench.box);
}

static void the_last_attempt_poisons(void) {
	struct bench bench;
	if (bench_open(&bench)) {
		int64_t seq = send(&bench, "1");
		for (int i = 0; i < 2; i++) {
			start(&bench);
			CHECK_OK(cancel(&bench, seq, "h", false), &bench.error);
			fake_clock_advance(&bench.clock, 10000);
		}
		struct postern_detail *detail;
		CHECK_OK(postern_box_get(bench.box, seq, &detail, &bench.error),
				&bench.error);
		CHECK_INT(detail->deliveries[0].row.state, POSTERN_STATE_POISONED);
		postern_detail_destroy(detail);
	}
	postern_box_destroy(bench.box);
}

static void uncounted_waits_its_backoff(void) {
	struct bench bench;
	if (bench_open(&bench)) {
		int64_t seq = send(&bench, "1");
		start(&bench);
		CHECK_OK(cancel(&bench, seq, "h", true), &bench.error);
		check_row(&bench, seq, POSTERN_STATE_WAITING, 0, "cancelled");
	}
	postern_box_destroy(bench.box);
}

static void what_does_not_run_is_stale(void) {
	struct bench bench;
	if (bench_open(&bench)) {
		int64_t first = send(&bench, "1");
		int64_t second = send(&bench, "2");
		CHECK_INT(cancel(&bench, first, "h", false), POSTERN_E_STALE);
		CHECK_CONTAINS(bench.error.text, "is pending");
		start(&bench);
		CHECK_INT(cancel(&bench, second, "h", false), POSTERN_E_STALE);
		CHECK_CONTAINS(bench.error.text, "is queued");
		check_row(&bench, second, POSTERN_STATE_QUEUED, 0, NULL);
		CHECK_INT(bench.cancelled, 0);
		CHECK_INT(cancel(&bench, first, "other", false), POSTERN_E_NOTFOUND);
		CHECK_INT(cancel(&bench, first + 9, "h", false), POSTERN_E_NOTFOUND);
		CHECK_INT(cancel(&bench, 0, "h", false), POSTERN_E_INVALID);
		CHECK_INT(cancel(&bench, first, NULL, false), POSTERN_E_INVALID);
		CHECK_INT(cancel(&bench, first, "", false), POSTERN_E_INVALID);

		/* What another operator discarded a moment ago. */
		finish(&bench, POSTERN_POISON);
		CHECK_OK(postern_box_commit(bench.box, NULL, &bench.error),
				&bench.error);
		CHECK_OK(postern_box_discard(bench.box, first, "h", &bench.error),
				&bench.error);
		CHECK_INT(cancel(&bench, first, "h", false), POSTERN_E_STALE);
		CHECK_CONTAINS(bench.error.text, "is discarded");
	}
	postern_box_destroy(bench.box);
}

static void a_success_that_came_first_stays(void) {
	struct bench bench;
	if (bench_open(&bench)) {
		int64_t seq = send(&bench, "1");
		start(&bench);
		finish(&bench, POSTERN_DONE); /* not durable yet */
		CHECK_INT(cancel(&bench, seq, "h", false), POSTERN_E_STALE);
		CHECK_CONTAINS(bench.error.text, "is done");
		CHECK_INT(bench.cancelled, 0);
		check_row(&bench, seq, POSTERN_STATE_DONE, 0, NULL);
	}
	postern_box_destroy(bench.box);
}

static void a_callback_may_ask(void) {
	struct bench bench;
	if (bench_open(&bench)) {
		(void)send(&bench, "1");
		start(&bench);
		const struct postern_delivery *delivery =
				postern_run_delivery(bench.run);
		CHECK(!postern_delivery_cancelled(NULL));
		CHECK(!postern_delivery_cancelled(delivery));
		fake_clock_advance(&bench.clock, bench.policy.lease_ms - 1);
		CHECK(!postern_delivery_cancelled(delivery));
		fake_clock_advance(&bench.clock, 1);
		CHECK(postern_delivery_cancelled(delivery));
		finish(&bench, POSTERN_DONE);
	}
	postern_box_destroy(bench.box);
}

static const struct tap_case cases[] = {
	{ "a cancelled run has failed, whatever it says",
			a_cancelled_run_has_failed },
	{ "a cancelled last attempt poisons", the_last_attempt_poisons },
	{ "an uncounted cancel counts no failure and waits the backoff",
			uncounted_waits_its_backoff },
	{ "what does not run is not cancelled, and the error says what it is",
			what_does_not_run_is_stale },
	{ "a success that came first stays, also before it is durable",
			a_success_that_came_first_stays },
	{ "a callback can ask whether it should end, also past its lease",
			a_callback_may_ask },
};

TAP_MAIN(cases)
