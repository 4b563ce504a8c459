/* SPDX-License-Identifier: MIT */
/*
 * The states that people are shown, step by step with a fake clock: each is
 * read from a listing, from a listing of this state alone, from the message and
 * from the stats, which must agree.
 */

#include "tap.h"

#include "core/box.h"
#include "core/rate.h"
#include "core/run.h"
#include "core/shown.h"
#include "support/fake_clock.h"

#include <postern/postern.h>
#include <postern/sys/handler.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RUNS_MAX 64
#define LEASE_MS 60000
#define HOUR_MS ((int64_t)3600 * 1000)

struct bench {
	struct fake_clock clock;
	struct postern_box *box;
	struct postern_error error;
	struct postern_policy policy;
	struct postern_run *runs[RUNS_MAX]; /* that have started */
	int run_count;
};

static void hang_start(struct postern_handler *handler,
		struct postern_run *run);
static void hang_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	(void)handler;
	(void)run;
	(void)why;
}
static void hang_destroy(struct postern_handler *handler) {
	(void)handler;
}

static const struct postern_handler_ops hang_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = hang_start,
	.cancel = hang_cancel,
	.destroy = hang_destroy,
};
/* Runs end when the test finishes them. */
static const struct postern_handler_kind hang_kind = {
	.size = sizeof(hang_kind),
	.name = "hang",
	.asynchronous = true,
	.concurrency = 16,
};

struct hang {
	struct postern_handler base;
	struct bench *bench;
};
static struct hang hang;

static void hang_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct bench *bench = container_of(handler, struct hang, base)->bench;
	bench->runs[bench->run_count++] = run;
}

static void finish(struct bench *bench, int index,
		enum postern_outcome_kind kind) {
	struct postern_outcome outcome;
	postern_outcome_set(&outcome, kind, 5000, "why");
	postern_run_finish(bench->runs[index], &outcome);
	CHECK_OK(postern_box_commit(bench->box, NULL, &bench->error),
			&bench->error);
}

/* rate: starts per hour of the handler; 0: any number. */
static bool bench_open_rated(struct bench *bench, uint32_t rate) {
	struct postern_error *error = &bench->error;
	memset(bench, 0, sizeof(*bench));
	fake_clock_init(&bench->clock);
	postern_policy_init(&bench->policy);
	bench->policy.max_attempts = 3;
	bench->policy.lease_ms = LEASE_MS;
	bench->policy.concurrency = 2;
	bench->policy.rate_count = rate;
	bench->policy.rate_period_ms = rate > 0 ? HOUR_MS : 0;
	const struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &bench->clock.base,
	};
	hang = (struct hang){
		.base = { .ops = &hang_ops, .kind = &hang_kind },
		.bench = bench,
	};
	static const char *const types[] = { "wanted" };
	const struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.types = types,
		.type_count = 1,
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

static bool bench_open(struct bench *bench) {
	return bench_open_rated(bench, 0);
}

static int64_t send_type(struct bench *bench, const char *id,
		const char *type) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = type,
		.body = "",
	};
	int64_t seq = 0;
	CHECK_OK(postern_box_accept(bench->box, "c", &message, &seq, &bench->error),
			&bench->error);
	return seq;
}

static int64_t send(struct bench *bench, const char *id) {
	return send_type(bench, id, "wanted");
}

static void claim(struct bench *bench) {
	CHECK_OK(postern_box_claim(bench->box, 100, NULL, &bench->error),
			&bench->error);
}

static void run(struct bench *bench) {
	CHECK_OK(postern_box_run(bench->box, 100, NULL, &bench->error),
			&bench->error);
}

static size_t list_count(struct bench *bench, enum postern_state state,
		int64_t seq) {
	const struct postern_filter filter = {
		.size = sizeof(filter),
		.state = state,
	};
	struct postern_listing *listing;
	size_t found = 0;
	if (!CHECK_OK(postern_box_list(bench->box, &filter, &listing,
						  &bench->error),
				&bench->error)) {
		return 0;
	}
	for (size_t i = 0; i < postern_listing_count(listing); i++) {
		const struct postern_row *row = postern_listing_get(listing, i);
		CHECK_INT(row->shown, state);
		found += row->seq == seq;
	}
	postern_listing_destroy(listing);
	return found;
}

/* How many of them the stats count; the shown state `pending` is what is left
   of the stored one. */
static uint64_t stats_count(struct bench *bench, enum postern_state state) {
	struct postern_stats *stats;
	uint64_t count = 0;
	if (!CHECK_OK(postern_box_stats(bench->box, &stats, &bench->error),
				&bench->error)) {
		return 0;
	}
	const struct postern_handler_stats *handler = &stats->handlers[0];
	switch (state) {
	case POSTERN_STATE_PENDING:
	case POSTERN_STATE_HELD: count = handler->pending - handler->waiting; break;
	case POSTERN_STATE_WAITING: count = handler->waiting; break;
	case POSTERN_STATE_QUEUED: count = handler->queued; break;
	case POSTERN_STATE_RUNNING: count = handler->running; break;
	case POSTERN_STATE_STUCK: count = handler->stuck; break;
	case POSTERN_STATE_DONE: count = handler->done; break;
	case POSTERN_STATE_POISONED: count = handler->poisoned; break;
	case POSTERN_STATE_DISCARDED: count = handler->discarded; break;
	case POSTERN_STATE_PARKED: count = stats->channels[0].parked; break;
	default: CHECK(false);
	}
	postern_stats_destroy(stats);
	return count;
}

/* The row as it is in the message, after comparing it with the other views.
   The texts are valid until *detail is destroyed. */
static struct postern_row check_shown(struct bench *bench, int64_t seq,
		enum postern_state state, struct postern_detail **detail) {
	struct postern_row row = { 0 };
	if (CHECK_OK(postern_box_get(bench->box, seq, detail, &bench->error),
				&bench->error)) {
		row = (*detail)->deliveries[0].row;
		CHECK_INT(row.shown, state);
	}
	if (state != POSTERN_STATE_PENDING) {
		CHECK_INT(list_count(bench, state, seq), 1);
	}
	CHECK(stats_count(bench, state) > 0);
	return row;
}

static void is_shown(struct bench *bench, int64_t seq,
		enum postern_state state) {
	struct postern_detail *detail = NULL;
	(void)check_shown(bench, seq, state, &detail);
	postern_detail_destroy(detail);
}

static void from_accept_to_done(void) {
	struct bench bench;
	struct postern_detail *detail = NULL;
	if (bench_open(&bench)) {
		int64_t seq = send(&bench, "1");
		is_shown(&bench, seq, POSTERN_STATE_PENDING);
		claim(&bench);
		struct postern_row row =
				check_shown(&bench, seq, POSTERN_STATE_QUEUED, &detail);
		CHECK_INT(row.state, POSTERN_STATE_LEASED);
		CHECK_INT(row.started_at_ms, 0);
		CHECK_INT(row.node, bench.box->node);
		CHECK_INT(row.pid, getpid());
		CHECK(row.host && row.host[0]);
		postern_detail_destroy(detail);

		run(&bench);
		int64_t started = bench.clock.wall_ms;
		fake_clock_advance(&bench.clock, 700);
		row = check_shown(&bench, seq, POSTERN_STATE_RUNNING, &detail);
		CHECK_INT(row.started_at_ms, started);
		CHECK_INT(row.reported_at_ms, started + 700);
		CHECK_INT(row.attempt, 1);
		CHECK_INT(row.max_attempts, 3);
		postern_detail_destroy(detail);

		fake_clock_advance(&bench.clock, LEASE_MS - 701);
		is_shown(&bench, seq, POSTERN_STATE_RUNNING);
		fake_clock_advance(&bench.clock, 1);
		is_shown(&bench, seq, POSTERN_STATE_STUCK);
		finish(&bench, 0, POSTERN_DONE);
		is_shown(&bench, seq, POSTERN_STATE_DONE);
	}
	postern_box_destroy(bench.box);
}

static void failures_wait_and_poison(void) {
	struct bench bench;
	struct postern_detail *detail = NULL;
	if (bench_open(&bench)) {
		int64_t seq = send(&bench, "1");
		for (int i = 0; i < 3; i++) {
			claim(&bench);
			run(&bench);
			struct postern_row row =
					check_shown(&bench, seq, POSTERN_STATE_RUNNING, &detail);
			CHECK_INT(row.attempt, (uint32_t)i + 1);
			postern_detail_destroy(detail);
			finish(&bench, i, POSTERN_RETRY_AFTER);
			if (i < 2) {
				row = check_shown(&bench, seq, POSTERN_STATE_WAITING, &detail);
				CHECK_INT(row.next_at_ms, bench.clock.wall_ms + 5000);
				CHECK_INT(row.attempt, (uint32_t)i + 2);
				postern_detail_destroy(detail);
				fake_clock_advance(&bench.clock, 5000);
				is_shown(&bench, seq, POSTERN_STATE_PENDING);
			}
		}
		struct postern_row row =
				check_shown(&bench, seq, POSTERN_STATE_POISONED, &detail);
		CHECK_INT(row.attempt, 3);
		postern_detail_destroy(detail);
		CHECK_OK(postern_box_discard(bench.box, seq, "h", &bench.error),
				&bench.error);
		is_shown(&bench, seq, POSTERN_STATE_DISCARDED);
		is_shown(&bench, send_type(&bench, "2", "other"), POSTERN_STATE_PARKED);
	}
	postern_box_destroy(bench.box);
}

/* Whether the row and the statistics of the handler say the same about what
   holds it. */
static void check_hold(struct bench *bench, const struct postern_row *row) {
	struct postern_stats *stats;
	if (!CHECK_OK(postern_box_stats(bench->box, &stats, &bench->error),
				&bench->error)) {
		return;
	}
	const struct postern_handler_stats *handler = &stats->handlers[0];
	CHECK_STR(handler->held, row->reason);
	CHECK_STR(handler->held_reason, row->held_reason);
	CHECK_STR(handler->held_by, row->held_by);
	CHECK_INT(handler->held_at_ms, row->held_at_ms);
	CHECK_INT(handler->held_until_ms, row->until_ms);
	postern_stats_destroy(stats);
}

static void a_pause_has_its_words(void) {
	struct bench bench;
	struct postern_detail *detail = NULL;
	if (bench_open(&bench)) {
		struct postern_change change = {
			.size = sizeof(change),
			.kind = POSTERN_CHANGE_PAUSE,
			.handler = "h",
			.for_ms = HOUR_MS,
			.reason = "smtp down",
			.by = "anna",
		};
		int64_t seq = send(&bench, "1");
		CHECK_OK(postern_box_change(bench.box, &change, &bench.error),
				&bench.error);
		struct postern_row row =
				check_shown(&bench, seq, POSTERN_STATE_HELD, &detail);
		CHECK_STR(row.held_reason, "smtp down");
		CHECK_STR(row.held_by, "anna");
		CHECK_INT(row.held_at_ms, bench.clock.wall_ms);
		CHECK_INT(row.until_ms, bench.clock.wall_ms + HOUR_MS);
		check_hold(&bench, &row);
		postern_detail_destroy(detail);
		fake_clock_advance(&bench.clock, HOUR_MS);
		is_shown(&bench, seq, POSTERN_STATE_PENDING);
	}
	postern_box_destroy(bench.box);
}

static void a_queued_one_has_a_reason(void) {
	struct bench bench;
	struct postern_detail *detail = NULL;
	if (bench_open_rated(&bench, 1)) {
		int64_t first = send(&bench, "1");
		int64_t second = send(&bench, "2");
		claim(&bench);
		CHECK_OK(postern__rates_reserve(bench.box, &bench.error), &bench.error);
		run(&bench);
		is_shown(&bench, first, POSTERN_STATE_RUNNING);
		CHECK_OK(postern__rates_reserve(bench.box, &bench.error), &bench.error);
		bench.box->leasing = true; /* as with a runner */
		struct postern_row row =
				check_shown(&bench, second, POSTERN_STATE_QUEUED, &detail);
		CHECK_STR(row.reason, "rate");
		CHECK(row.held_reason);
		CHECK(row.until_ms > bench.clock.wall_ms);
		check_hold(&bench, &row);
		bench.box->leasing = false;
		postern_detail_destroy(detail);
		finish(&bench, 0, POSTERN_DONE);
	}
	postern_box_destroy(bench.box);
}

static void a_paused_handler_holds(void) {
	struct bench bench;
	struct postern_detail *detail = NULL;
	if (bench_open(&bench)) {
		int64_t seq = send(&bench, "1");
		CHECK_OK(postern_box_pause(bench.box, "h", &bench.error), &bench.error);
		struct postern_row row =
				check_shown(&bench, seq, POSTERN_STATE_HELD, &detail);
		CHECK_STR(row.reason, "paused");
		postern_detail_destroy(detail);
		CHECK_OK(postern_box_resume(bench.box, "h", &bench.error),
				&bench.error);
		is_shown(&bench, seq, POSTERN_STATE_PENDING);
	}
	postern_box_destroy(bench.box);
}

static void a_broken_handler_holds(void) {
	struct bench bench;
	struct postern_detail *detail = NULL;
	if (bench_open(&bench)) {
		int64_t first = send(&bench, "1");
		claim(&bench);
		run(&bench);
		int64_t seq = send(&bench, "2");
		finish(&bench, 0, POSTERN_HOLD);
		bench.box->leasing = true; /* as with a runner */
		struct postern_detail *later = NULL;
		struct postern_row waits =
				check_shown(&bench, first, POSTERN_STATE_HELD, &later);
		CHECK(waits.next_at_ms > bench.clock.wall_ms);
		CHECK_STR(waits.reason, "broken");
		postern_detail_destroy(later);
		CHECK_INT(list_count(&bench, POSTERN_STATE_WAITING, first), 0);
		CHECK_INT(stats_count(&bench, POSTERN_STATE_WAITING), 0);
		struct postern_row row =
				check_shown(&bench, seq, POSTERN_STATE_HELD, &detail);
		CHECK_STR(row.reason, "broken");
		CHECK_INT(row.until_ms, bench.clock.wall_ms + 1000);
		CHECK_STR(row.held_reason, "why");
		check_hold(&bench, &row);
		bench.box->leasing = false;
		postern_detail_destroy(detail);
	}
	postern_box_destroy(bench.box);
}

/* Pages of one row each: every delivery is returned once. */
static void a_derived_state_has_pages(void) {
	struct bench bench;
	if (bench_open(&bench)) {
		for (int i = 0; i < 5; i++) {
			char id[8];
			(void)snprintf(id, sizeof(id), "%d", i);
			(void)send(&bench, id);
		}
		claim(&bench);
		run(&bench); /* two of them: the concurrency of the handler */
		CHECK_INT(bench.run_count, 2);
		char cursor[POSTERN_CURSOR_LEN_MAX + 1] = "";
		struct postern_filter filter = {
			.size = sizeof(filter),
			.state = POSTERN_STATE_QUEUED,
			.limit = 1,
		};
		int64_t last = INT64_MAX;
		for (int i = 0; i < 3; i++) {
			struct postern_listing *listing;
			filter.cursor = cursor[0] ? cursor : NULL;
			if (!CHECK_OK(postern_box_list(bench.box, &filter, &listing,
								  &bench.error),
						&bench.error)) {
				break;
			}
			if (CHECK_INT(postern_listing_count(listing), 1)) {
				CHECK(postern_listing_get(listing, 0)->seq < last);
				last = postern_listing_get(listing, 0)->seq;
			}
			if (CHECK(postern_listing_cursor(listing))) {
				(void)snprintf(cursor, sizeof(cursor), "%s",
						postern_listing_cursor(listing));
			}
			postern_listing_destroy(listing);
		}
		/* Behind the last one there are only runs. */
		filter.cursor = cursor;
		struct postern_listing *listing;
		CHECK_OK(postern_box_list(bench.box, &filter, &listing, &bench.error),
				&bench.error);
		CHECK_INT(postern_listing_count(listing), 0);
		CHECK(!postern_listing_cursor(listing));
		postern_listing_destroy(listing);
		finish(&bench, 0, POSTERN_DONE);
		finish(&bench, 1, POSTERN_DONE);
	}
	postern_box_destroy(bench.box);
}

static void changes_of_many_refuse_it(void) {
	struct bench bench;
	if (bench_open(&bench)) {
		const struct postern_filter filter = {
			.size = sizeof(filter),
			.state = POSTERN_STATE_WAITING,
		};
		uint64_t count;
		CHECK_INT(postern_box_retry_all(bench.box, &filter, false, &count,
						  &bench.error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(bench.error.text, "'waiting'");
		CHECK_CONTAINS(bench.error.text, "'pending'");
	}
	postern_box_destroy(bench.box);
}

static const struct tap_case cases[] = {
	{ "a delivery is shown as pending, queued, running, stuck, done",
			from_accept_to_done },
	{ "failures are shown as waiting, with the attempt, and then as poisoned",
			failures_wait_and_poison },
	{ "due deliveries of a paused handler are shown as held",
			a_paused_handler_holds },
	{ "a pause is shown with its reason, its author and its end",
			a_pause_has_its_words },
	{ "a queued delivery has the reason why it does not start",
			a_queued_one_has_a_reason },
	{ "deliveries of a broken handler are held, also those that are due later",
			a_broken_handler_holds },
	{ "a listing of a derived state has pages", a_derived_state_has_pages },
	{ "changes of many deliveries refuse a derived state",
			changes_of_many_refuse_it },
};

TAP_MAIN(cases)
