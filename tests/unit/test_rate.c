/* SPDX-License-Identifier: MIT */
/*
 * The rate of a handler: what is granted by itself, for many rates and times,
 * and deliveries that wait for it, with a fake clock.
 */

#include "tap.h"

#include "core/box.h"
#include "core/rate.h"
#include "core/reason.h"
#include "core/run.h"
#include "support/fake_clock.h"
#include "support/temp_dir.h"
#include "unit/dice.h"

#include <limits.h>
#include <postern/postern.h>
#include <stdio.h>
#include <string.h>

#define LOG_MAX 100000

/* When each start was granted. */
static int64_t granted_at[LOG_MAX];

static size_t most_in_a_period(size_t count, int64_t period_ms) {
	size_t most = 0;
	size_t first = 0;
	for (size_t i = 0; i < count; i++) {
		while (granted_at[i] - granted_at[first] >= period_ms) {
			first++;
		}
		most = i - first + 1 > most ? i - first + 1 : most;
	}
	return most;
}

/* Ask for as many as possible at random times; returns how many were granted
   from start_ms to end_ms. */
static size_t ask(const struct postern_rate *rate, struct dice *dice,
		int64_t start_ms, int64_t end_ms, int64_t pause_ms) {
	struct postern_rate_slots slots = { 0 };
	size_t count = 0;
	int64_t now = start_ms;
	while (now < end_ms) {
		int64_t wait;
		uint32_t got = postern__rate_grant(&slots, now, rate,
				1 + (uint32_t)dice_below(dice, 50), &wait);
		CHECK(got > 0 ? wait == 0 : wait > 0);
		for (uint32_t i = 0; i < got && count < LOG_MAX; i++) {
			granted_at[count++] = now;
		}
		now += 1 + (int64_t)dice_below(dice, (uint64_t)pause_ms);
	}
	return count;
}

static void no_period_has_more_than_the_rate(void) {
	static const struct postern_rate rates[] = {
		{ 100, 100, 1000 },
		{ 100, 1, 1000 },
		{ 1, 1, 1000 },
		{ 10, 10, 60000 },
		{ 7, 3, 1000 },
		{ 5000, 5000, 1000 },
		{ 5, 5, 3600000 },
	};
	struct dice dice = { 1 };
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		const struct postern_rate *rate = &rates[i];
		int64_t start = FAKE_CLOCK_START_MS + (int64_t)dice_below(&dice, 1000);
		int64_t end = start + 8 * rate->period_ms;
		size_t count = ask(rate, &dice, start, end, rate->period_ms / 100);
		CHECK(most_in_a_period(count, rate->period_ms) <= rate->count);
		/* Ten elevenths of it, except for the slots at the end. */
		CHECK(count >= (size_t)rate->count * 7 * 10 / 11);
	}
}

static void periods_of_any_length_have_no_more(void) {
	static const int64_t periods_ms[] = { 1, 19, 21, 39, 59, 999, 1999 };
	struct dice dice = { 4 };
	for (size_t i = 0; i < sizeof(periods_ms) / sizeof(periods_ms[0]); i++) {
		const struct postern_rate rate = { 10, 10, periods_ms[i] };
		int64_t start = FAKE_CLOCK_START_MS + (int64_t)dice_below(&dice, 1000);
		size_t count =
				ask(&rate, &dice, start, start + 100 * rate.period_ms, 1);
		CHECK(most_in_a_period(count, rate.period_ms) <= rate.count);
		CHECK(count > 0);
	}
}

static void waiting_as_long_as_told_is_enough(void) {
	struct dice dice = { 2 };
	for (int i = 0; i < 2000; i++) {
		const struct postern_rate rate = {
			.count = 1 + (uint32_t)dice_below(&dice, 30),
			.burst = 1 + (uint32_t)dice_below(&dice, 30),
			.period_ms = 1 + (int64_t)dice_below(&dice, 5000),
		};
		struct postern_rate_slots slots = { 0 };
		int64_t now = FAKE_CLOCK_START_MS + i;
		int64_t wait = 0;
		while (postern__rate_grant(&slots, now, &rate, 1000, &wait) > 0) {
		}
		struct postern_rate_slots early = slots;
		int64_t ignored;
		if (wait > 1 && !CHECK_INT(postern__rate_grant(&early, now + wait - 1,
										   &rate, 1, &ignored),
								0)) {
			return;
		}
		if (!CHECK_INT(postern__rate_grant(&slots, now + wait, &rate, 1,
							   &ignored),
					1)) {
			return;
		}
	}
}

static void a_clock_set_back_grants_no_more(void) {
	const struct postern_rate rate = { 10, 10, 1000 };
	struct postern_rate_slots slots = { 0 };
	int64_t now = FAKE_CLOCK_START_MS;
	int64_t wait;
	CHECK_INT(postern__rate_grant(&slots, now, &rate, 6, &wait), 6);
	now -= 3600000;
	CHECK_INT(postern__rate_grant(&slots, now, &rate, 6, &wait), 4);
	CHECK_INT(postern__rate_grant(&slots, now, &rate, 6, &wait), 0);
	CHECK(wait > 0 && wait <= 1100);
	CHECK_INT(postern__rate_grant(&slots, now + wait, &rate, 6, &wait), 6);
}

static void a_burst_bounds_what_starts_at_once(void) {
	const struct postern_rate rate = { 100, 20, 1000 };
	struct postern_rate_slots slots = { 0 };
	int64_t now = FAKE_CLOCK_START_MS;
	int64_t wait;
	CHECK_INT(postern__rate_grant(&slots, now, &rate, 100, &wait), 20);
	CHECK_INT(postern__rate_grant(&slots, now, &rate, 100, &wait), 0);
	CHECK(wait > 0 && wait <= 50);
	CHECK_INT(postern__rate_grant(&slots, now + wait, &rate, 100, &wait), 20);
}

struct bench {
	struct fake_clock clock;
	struct postern_box *box;
	struct postern_error error;
	int runs;
	int64_t run_ms; /* how long a run takes */
};

static void count_run(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)message;
	(void)delivery;
	(void)outcome;
	struct bench *bench = context;
	bench->runs++;
	fake_clock_advance(&bench->clock, bench->run_ms);
}

static bool bench_open(struct bench *bench, uint32_t count, int64_t period_ms) {
	*bench = (struct bench){ 0 };
	fake_clock_init(&bench->clock);
	struct postern_error *error = &bench->error;
	const struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &bench->clock.base,
	};
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.rate_count = count;
	policy.rate_period_ms = period_ms;
	const struct postern_handler_options limited = {
		.size = sizeof(limited),
		.key = "limited",
		.callback = count_run,
		.context = bench,
		.policy = &policy,
	};
	return CHECK_OK(postern_box_open("memory:", &options, &bench->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(bench->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_add_handler(bench->box, "c", &limited, error),
				   error) &&
		   CHECK_OK(postern_box_start(bench->box, error), error);
}

static void send_many(struct bench *bench, int count) {
	for (int i = 0; i < count; i++) {
		char id[16];
		(void)snprintf(id, sizeof(id), "m%d", i);
		const struct postern_message message = {
			.size = sizeof(message),
			.id = id,
			.body = "",
		};
		CHECK_OK(postern_box_accept(bench->box, "c", &message, NULL,
						 &bench->error),
				&bench->error);
	}
}

static int process(struct bench *bench) {
	int before = bench->runs;
	CHECK_OK(postern_box_process(bench->box, 0, NULL, &bench->error),
			&bench->error);
	return bench->runs - before;
}

static void deliveries_wait_for_their_rate(void) {
	struct bench bench;
	if (bench_open(&bench, 10, 1000)) {
		send_many(&bench, 25);
		CHECK_INT(process(&bench), 10);
		CHECK_INT(process(&bench), 0);
		fake_clock_advance(&bench.clock, 1100);
		CHECK_INT(process(&bench), 10);
		fake_clock_advance(&bench.clock, 1100);
		CHECK_INT(process(&bench), 5);
	}
	postern_box_destroy(bench.box);
}

/* Starts are reserved only for what can start now, so none are lost. */
static void slow_runs_use_the_rate(void) {
	struct bench bench;
	if (bench_open(&bench, 100, 1000)) {
		bench.run_ms = 50;
		send_many(&bench, 200);
		int64_t begun = fake_clock_now(&bench.clock);
		for (int i = 0; i < 200 && bench.runs < 200; i++) {
			(void)process(&bench);
			fake_clock_advance(&bench.clock, 1);
		}
		CHECK_INT(bench.runs, 200);
		CHECK(fake_clock_now(&bench.clock) - begun < 11000);
	}
	postern_box_destroy(bench.box);
}

/* All deliveries of a transaction start at once. */
static void a_transaction_has_no_more_than_the_rate(void) {
	struct temp_dir directory;
	char url[PATH_MAX];
	struct bench bench = { 0 };
	struct postern_error *error = &bench.error;
	size_t count = 0;
	fake_clock_init(&bench.clock);
	const struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &bench.clock.base,
	};
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.rate_count = 10;
	policy.rate_period_ms = 1000;
	policy.commit_batch = 100;
	const struct postern_handler_options batched = {
		.size = sizeof(batched),
		.key = "batched",
		.sql = "SELECT :id",
		.policy = &policy,
	};
	temp_dir_create(&directory);
	temp_dir_name(&directory, "sqlite:", "rate.db", url, sizeof(url));
	if (CHECK_OK(postern_box_open(url, &options, &bench.box, error), error) &&
			CHECK_OK(postern_box_add_channel(bench.box, "c", NULL, error),
					error) &&
			CHECK_OK(postern_box_add_handler(bench.box, "c", &batched, error),
					error) &&
			CHECK_OK(postern_box_start(bench.box, error), error)) {
		send_many(&bench, 25);
		CHECK_OK(postern_box_process(bench.box, 0, &count, error), error);
		CHECK_INT(count, 10);
	}
	postern_box_destroy(bench.box);
	temp_dir_destroy(&directory);
}

static void reserved_starts_expire(void) {
	struct bench bench;
	size_t count = 0;
	if (bench_open(&bench, 10, 1000)) {
		send_many(&bench, 20);
		bench.box->workers = 8;
		bench.box->workers_max = 16;
		CHECK_OK(postern_box_claim(bench.box, 100, &count, &bench.error),
				&bench.error);
		CHECK_INT(count, 20);
		struct postern__handler *handler = bench.box->generation->handlers[0];
		CHECK_INT(postern__rate_left(bench.box, handler), 8);
		CHECK_OK(postern_box_run(bench.box, 3, &count, &bench.error),
				&bench.error);
		CHECK_INT(count, 3);
		/* The rest is not used in time, and does not come back. */
		fake_clock_advance(&bench.clock, 50);
		CHECK_OK(postern_box_run(bench.box, 100, &count, &bench.error),
				&bench.error);
		CHECK_INT(count, 0);
		CHECK_INT(postern__why_not_start(bench.box, handler),
				POSTERN__REASON_RATE);
		CHECK_STR(postern__reason_name(POSTERN__REASON_RATE), "rate");
		bench.box->workers = 0;
	}
	postern_box_destroy(bench.box);
}

static int64_t ticking_ms(void *context) {
	struct bench *bench = context;
	fake_clock_advance(&bench->clock, 1);
	return bench->clock.base.monotonic_ms(bench->clock.base.context);
}

/* Whether a delivery may start and its start are two looks at the clock. */
static void a_start_that_expires_meanwhile_is_used(void) {
	for (int64_t at = 40; at < 50; at++) {
		struct bench bench;
		size_t count = 0;
		if (bench_open(&bench, 10, 1000)) {
			send_many(&bench, 5);
			CHECK_OK(postern_box_claim(bench.box, 100, &count, &bench.error),
					&bench.error);
			fake_clock_advance(&bench.clock, at);
			bench.box->clock.monotonic_ms = ticking_ms;
			bench.box->clock.context = &bench;
			bench.box->clock.wall_ms = ticking_ms;
			(void)postern__run_one(bench.box, 100, &count);
			CHECK(count <= 1);
			bench.box->clock = bench.clock.base;
		}
		postern_box_destroy(bench.box);
	}
}

static void another_rate_holds_at_once(void) {
	struct bench bench;
	struct postern_generation *next = NULL;
	if (bench_open(&bench, 1, 3600000)) {
		send_many(&bench, 3);
		CHECK_INT(process(&bench), 1);
		CHECK_INT(process(&bench), 0);
		struct postern_policy policy;
		postern_policy_init(&policy);
		policy.rate_count = 100;
		policy.rate_period_ms = 1000;
		const struct postern_handler_options faster = {
			.size = sizeof(faster),
			.key = "limited",
			.callback = count_run,
			.context = &bench,
			.policy = &policy,
		};
		CHECK_OK(postern_generation_create(bench.box, &next, &bench.error),
				&bench.error);
		CHECK_OK(postern_generation_add_channel(next, "c", NULL, &bench.error),
				&bench.error);
		CHECK_OK(postern_generation_add_handler(next, "c", &faster,
						 &bench.error),
				&bench.error);
		CHECK_OK(postern_box_replace_taking(bench.box, next, &bench.error),
				&bench.error);
		fake_clock_advance(&bench.clock, 5000);
		CHECK_INT(process(&bench), 2);
	}
	postern_box_destroy(bench.box);
}

/* Other deliveries wait for a suspect, which may be as long as the rate says.
 */
static void a_suspect_waits_for_no_rate(void) {
	struct bench bench;
	size_t count = 0;
	if (bench_open(&bench, 1, 3600000)) {
		send_many(&bench, 2);
		CHECK_INT(process(&bench), 1);
		CHECK_OK(postern_box_claim(bench.box, 100, &count, &bench.error),
				&bench.error);
		struct postern__handler *handler = bench.box->generation->handlers[0];
		struct postern_run *run =
				container_of(postern__list_first(&handler->state->queue),
						struct postern_run, link);
		CHECK_INT(postern__why_not_start(bench.box, handler),
				POSTERN__REASON_RATE);
		/* As a claim after a crash queues it. */
		run->suspicion = POSTERN_SUSPECT_GROUP;
		bench.box->suspects_held++;
		CHECK_INT(postern__why_not_start(bench.box, handler),
				POSTERN__REASON_NONE);
		CHECK_OK(postern_box_run(bench.box, 100, &count, &bench.error),
				&bench.error);
		CHECK_INT(count, 1);
		CHECK_OK(postern_box_commit(bench.box, NULL, &bench.error),
				&bench.error);
	}
	postern_box_destroy(bench.box);
}

static void rates_are_checked(void) {
	static const struct {
		uint32_t count;
		int64_t period_ms;
		uint32_t burst;
		int code;
	} rows[] = {
		{ POSTERN_RATE_COUNT_MAX, 1000, 0, POSTERN_OK },
		{ POSTERN_RATE_COUNT_MAX + 1, 1000, 0, POSTERN_E_INVALID },
		{ 1, 0, 0, POSTERN_E_INVALID },
		{ 1, POSTERN_RATE_PERIOD_MS_MAX, 0, POSTERN_OK },
		{ 1, POSTERN_RATE_PERIOD_MS_MAX + 1, 0, POSTERN_E_INVALID },
		{ 1, 1000, POSTERN_RATE_COUNT_MAX + 1, POSTERN_E_INVALID },
		{ 0, -5, 0, POSTERN_OK },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct postern_error error;
		struct postern_policy policy;
		postern_policy_init(&policy);
		policy.rate_count = rows[i].count;
		policy.rate_period_ms = rows[i].period_ms;
		policy.rate_burst = rows[i].burst;
		CHECK_INT(postern__policy_check(&policy, "h", &error), rows[i].code);
	}
}

static const struct tap_case cases[] = {
	{ "no period has more starts than the rate, and few have less",
			no_period_has_more_than_the_rate },
	{ "a period of any length has no more starts than the rate",
			periods_of_any_length_have_no_more },
	{ "after the wait that was returned a start is granted, not before",
			waiting_as_long_as_told_is_enough },
	{ "a clock that is set back grants no more",
			a_clock_set_back_grants_no_more },
	{ "a burst bounds what starts at once",
			a_burst_bounds_what_starts_at_once },
	{ "deliveries wait for the rate of their handler",
			deliveries_wait_for_their_rate },
	{ "a transaction has no more deliveries than the rate allows",
			a_transaction_has_no_more_than_the_rate },
	{ "reserved starts that are not used soon are lost",
			reserved_starts_expire },
	{ "slow runs use the whole rate", slow_runs_use_the_rate },
	{ "a start that expires while it is made is used",
			a_start_that_expires_meanwhile_is_used },
	{ "another rate holds as soon as it is in place",
			another_rate_holds_at_once },
	{ "a suspect waits for no rate", a_suspect_waits_for_no_rate },
	{ "rates of a policy are checked", rates_are_checked },
};

TAP_MAIN(cases)
