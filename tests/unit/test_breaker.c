/* SPDX-License-Identifier: MIT */
/*
 * The breaker of a handler, step by step with a fake clock. The first letter of
 * a message's id says how its run ends.
 */

#include "tap.h"

#include "base/utf8.h"
#include "core/box.h"
#include "core/breaker.h"
#include "core/run.h"
#include "support/fake_clock.h"

#include <postern/event.h>
#include <postern/health.h>
#include <postern/postern.h>
#include <postern/sys/handler.h>
#include <stdio.h>
#include <string.h>

#define RUNS_MAX 512

struct bench {
	struct fake_clock clock;
	struct postern_box *box;
	struct postern_error error;
	struct postern_policy policy;
	bool broken;            /* runs of messages with 'm' end as a fault */
	bool hang;              /* runs do not end */
	char ran[RUNS_MAX][16]; /* the ids of the runs, in their order */
	int ran_count;
	const char *fault_reason;
	struct postern_run *hanging[RUNS_MAX];
	int hanging_count;
	int held;     /* events */
	int released; /* events */
	char reason[64];
};

/* m: done, or a fault while the handler is broken; f: always a fault;
   r: a failure; p: poison; d: discard; s: snooze */
static void end_run(const struct bench *bench, const char *id,
		struct postern_outcome *outcome) {
	bool fault = id[0] == 'f' || (id[0] == 'm' && bench->broken);
	postern_outcome_set(outcome,
			fault          ? POSTERN_HOLD
			: id[0] == 'r' ? POSTERN_RETRY
			: id[0] == 'p' ? POSTERN_POISON
			: id[0] == 'd' ? POSTERN_DISCARD
			: id[0] == 's' ? POSTERN_SNOOZE
						   : POSTERN_DONE,
			0,
			fault          ? bench->fault_reason
			: id[0] == 'm' ? NULL
						   : "bad message");
}

static void script_start(struct postern_handler *handler,
		struct postern_run *run);
static void script_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	(void)handler;
	(void)run;
	(void)why;
}
static void script_destroy(struct postern_handler *handler) {
	(void)handler;
}

static const struct postern_handler_ops script_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = script_start,
	.cancel = script_cancel,
	.destroy = script_destroy,
};
/* Runs end when the test finishes them. */
static const struct postern_handler_kind script_kind = {
	.size = sizeof(script_kind),
	.name = "script",
	.asynchronous = true,
	.concurrency = 16,
};

struct script {
	struct postern_handler base;
	struct bench *bench;
};
static struct script script;

static void script_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct bench *bench = container_of(handler, struct script, base)->bench;
	const char *id = postern_run_message(run)->id;
	if (bench->ran_count < RUNS_MAX) {
		(void)snprintf(bench->ran[bench->ran_count++], sizeof(bench->ran[0]),
				"%s", id);
	}
	if (bench->hang) {
		bench->hanging[bench->hanging_count++] = run;
		return;
	}
	struct postern_outcome outcome;
	end_run(bench, id, &outcome);
	postern_run_finish(run, &outcome);
}

static void finish_hanging(struct bench *bench, int index,
		enum postern_outcome_kind kind) {
	struct postern_outcome outcome;
	postern_outcome_set(&outcome, kind, 0, NULL);
	postern_run_finish(bench->hanging[index], &outcome);
}

static void listen(void *context, const struct postern_event *event) {
	struct bench *bench = context;
	if (event->kind == POSTERN_EVENT_HANDLER_HELD) {
		bench->held++;
		(void)snprintf(bench->reason, sizeof(bench->reason), "%s %s",
				event->handler, event->error);
	}
	bench->released += event->kind == POSTERN_EVENT_HANDLER_RELEASED;
}

static void bench_init(struct bench *bench) {
	memset(bench, 0, sizeof(*bench));
	fake_clock_init(&bench->clock);
	postern_policy_init(&bench->policy);
	bench->policy.max_attempts = 3;
	bench->fault_reason = "no such table";
}

static bool bench_open(struct bench *bench) {
	struct postern_error *error = &bench->error;
	const struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &bench->clock.base,
	};
	script = (struct script){
		.base = { .ops = &script_ops, .kind = &script_kind },
		.bench = bench,
	};
	const struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.policy = &bench->policy,
	};
	return CHECK_OK(postern_box_open("memory:", &options, &bench->box, error),
				   error) &&
		   CHECK_OK(postern_box_subscribe(bench->box, POSTERN_LEVEL_INFO,
							listen, bench, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(bench->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern__box_register_taking(bench->box, "c", &handler,
							&script.base, error),
				   error) &&
		   CHECK_OK(postern_box_start(bench->box, error), error);
}

static void bench_finish(struct bench *bench) {
	postern_box_destroy(bench->box);
}

static void send(struct bench *bench, const char *id) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.body = "",
	};
	CHECK_OK(postern_box_accept(bench->box, "c", &message, NULL, &bench->error),
			&bench->error);
}

static void send_many(struct bench *bench, char letter, int count) {
	char id[16];
	for (int i = 0; i < count; i++) {
		(void)snprintf(id, sizeof(id), "%c%d", letter, i);
		send(bench, id);
	}
}

static size_t claim(struct bench *bench) {
	size_t count = 0;
	CHECK_OK(postern_box_claim(bench->box, 100, &count, &bench->error),
			&bench->error);
	return count;
}

static size_t run(struct bench *bench) {
	size_t count = 0;
	CHECK_OK(postern_box_run(bench->box, 100, &count, &bench->error),
			&bench->error);
	return count;
}

static void commit(struct bench *bench) {
	CHECK_OK(postern_box_commit(bench->box, NULL, &bench->error),
			&bench->error);
}

/* Claim and run what may be run now; returns how many runs started. */
static size_t step(struct bench *bench) {
	(void)claim(bench);
	size_t count = run(bench);
	commit(bench);
	return count;
}

static const struct postern_row *row_of(struct bench *bench, const char *id,
		struct postern_listing **listing) {
	const struct postern_filter filter = {
		.size = sizeof(filter),
		.message_id = id,
	};
	CHECK_OK(postern_box_list(bench->box, &filter, listing, &bench->error),
			&bench->error);
	return postern_listing_get(*listing, 0);
}

static void check_row(struct bench *bench, const char *id,
		enum postern_state state, uint32_t failures) {
	struct postern_listing *listing = NULL;
	const struct postern_row *row = row_of(bench, id, &listing);
	if (CHECK(row)) {
		CHECK_INT(row->state, state);
		CHECK_INT(row->failures, failures);
	}
	postern_listing_destroy(listing);
}

static void a_fault_holds_the_handler(void) {
	struct bench bench;
	bench_init(&bench);
	bench.broken = true;
	if (bench_open(&bench)) {
		send_many(&bench, 'm', 5);
		CHECK_INT(claim(&bench), 5);
		CHECK_INT(run(&bench), 1); /* the leases of the others are returned */
		commit(&bench);
		CHECK_INT(bench.held, 1);
		CHECK_STR(bench.reason, "h no such table");
		CHECK_INT(claim(&bench), 0);
		fake_clock_advance(&bench.clock, 999);
		CHECK_INT(claim(&bench), 0);
		check_row(&bench, "m0", POSTERN_STATE_PENDING, 0);
		check_row(&bench, "m1", POSTERN_STATE_PENDING, 0);
		/* One delivery probes, and it is another one. */
		fake_clock_advance(&bench.clock, 1);
		CHECK_INT(step(&bench), 1);
		CHECK_STR(bench.ran[1], "m1");
		CHECK_INT(claim(&bench), 0);
		CHECK_INT(bench.held, 1);
	}
	bench_finish(&bench);
}

static void probes_are_up_to_ten_seconds_apart(void) {
	static const int64_t apart_ms[] = { 1000, 2000, 4000, 8000, 10000, 10000 };
	struct bench bench;
	bench_init(&bench);
	bench.broken = true;
	if (bench_open(&bench)) {
		send_many(&bench, 'm', 8);
		CHECK_INT(step(&bench), 1);
		for (size_t i = 0; i < sizeof(apart_ms) / sizeof(apart_ms[0]); i++) {
			fake_clock_advance(&bench.clock, apart_ms[i] - 1);
			CHECK_INT(step(&bench), 0);
			fake_clock_advance(&bench.clock, 1);
			CHECK_INT(step(&bench), 1);
		}
		for (int i = 0; i < 7; i++) {
			char id[16];
			(void)snprintf(id, sizeof(id), "m%d", i);
			CHECK_STR(bench.ran[i], id);
		}
	}
	bench_finish(&bench);
}

static void the_first_success_releases_the_handler(void) {
	struct bench bench;
	bench_init(&bench);
	bench.broken = true;
	if (bench_open(&bench)) {
		send_many(&bench, 'm', 10);
		CHECK_INT(step(&bench), 1);
		fake_clock_advance(&bench.clock, 1000);
		CHECK_INT(step(&bench), 1);
		bench.broken = false;
		fake_clock_advance(&bench.clock, 2000);
		CHECK_INT(step(&bench), 1);
		CHECK_INT(bench.released, 1);
		fake_clock_advance(&bench.clock, 1);
		CHECK_INT(step(&bench), 9);
		check_row(&bench, "m0", POSTERN_STATE_DONE, 0);
		check_row(&bench, "m9", POSTERN_STATE_DONE, 0);
		/* The next fault begins with the shortest delay. */
		bench.broken = true;
		send(&bench, "m10");
		send(&bench, "m11");
		CHECK_INT(step(&bench), 1);
		CHECK_INT(bench.held, 2);
		fake_clock_advance(&bench.clock, 1000);
		CHECK_INT(step(&bench), 1);
	}
	bench_finish(&bench);
}

static void one_that_faults_among_good_ones_is_charged(void) {
	struct bench bench;
	bench_init(&bench);
	if (bench_open(&bench)) {
		send(&bench, "f");
		send_many(&bench, 'm', 5);
		CHECK_INT(step(&bench), 1);
		check_row(&bench, "f", POSTERN_STATE_PENDING, 0);
		fake_clock_advance(&bench.clock, 1000);
		CHECK_INT(step(&bench), 1);
		CHECK_INT(bench.released, 1);
		for (int i = 0; i < 10; i++) {
			fake_clock_advance(&bench.clock, 300000);
			(void)step(&bench);
		}
		check_row(&bench, "f", POSTERN_STATE_POISONED, 3);
		CHECK_INT(bench.held, 1);
		check_row(&bench, "m4", POSTERN_STATE_DONE, 0);
		/* Retried, it begins without faults. */
		CHECK_OK(postern_box_retry(bench.box, 1, "h", NULL), NULL);
		CHECK_INT(step(&bench), 1);
		check_row(&bench, "f", POSTERN_STATE_PENDING, 0);
	}
	bench_finish(&bench);
}

/* A run that began before the fault proves nothing about what came after. */
static void a_success_that_began_earlier_charges_nothing(void) {
	struct bench bench;
	bench_init(&bench);
	if (bench_open(&bench)) {
		bench.hang = true;
		send(&bench, "m0");
		send(&bench, "f");
		CHECK_INT(step(&bench), 2);
		fake_clock_advance(&bench.clock, 10);
		finish_hanging(&bench, 1, POSTERN_HOLD);
		fake_clock_advance(&bench.clock, 10);
		finish_hanging(&bench, 0, POSTERN_DONE);
		commit(&bench);
		CHECK_INT(bench.held, 1);
		CHECK_INT(bench.released, 1);
		bench.hang = false;
		fake_clock_advance(&bench.clock, 1000);
		CHECK_INT(step(&bench), 1);
		check_row(&bench, "f", POSTERN_STATE_PENDING, 0);
		CHECK_INT(bench.held, 2);
	}
	bench_finish(&bench);
}

/* What was in progress when the handler was held is not a probe. */
static void runs_in_progress_delay_no_probe(void) {
	struct bench bench;
	bench_init(&bench);
	if (bench_open(&bench)) {
		bench.hang = true;
		send_many(&bench, 'm', 3);
		CHECK_INT(step(&bench), 3);
		/* Within the same millisecond. */
		finish_hanging(&bench, 0, POSTERN_HOLD);
		commit(&bench);
		fake_clock_advance(&bench.clock, 900);
		finish_hanging(&bench, 1, POSTERN_HOLD);
		finish_hanging(&bench, 2, POSTERN_RETRY);
		commit(&bench);
		CHECK_INT(bench.held, 1);
		bench.hang = false;
		bench.broken = true;
		fake_clock_advance(&bench.clock, 100);
		CHECK_INT(step(&bench), 1);
	}
	bench_finish(&bench);
}

static void a_probe_that_hangs_is_followed_by_another(void) {
	struct bench bench;
	bench_init(&bench);
	bench.broken = true;
	if (bench_open(&bench)) {
		send_many(&bench, 'm', 4);
		CHECK_INT(step(&bench), 1);
		bench.hang = true;
		fake_clock_advance(&bench.clock, 1000);
		CHECK_INT(step(&bench), 1);
		fake_clock_advance(&bench.clock, 999);
		CHECK_INT(step(&bench), 0);
		fake_clock_advance(&bench.clock, 1);
		CHECK_INT(step(&bench), 1);
		CHECK_STR(bench.ran[2], "m2");
		CHECK_INT(bench.box->workers_held, 0); /* asynchronous */
		finish_hanging(&bench, 0, POSTERN_DONE);
		finish_hanging(&bench, 1, POSTERN_DONE);
		commit(&bench);
		CHECK_INT(bench.released, 1);
	}
	bench_finish(&bench);
}

static void failures_in_a_row_hold_the_handler(void) {
	struct bench bench;
	bench_init(&bench);
	bench.policy.break_after = 3;
	bench.policy.max_attempts = 1;
	if (bench_open(&bench)) {
		/* A success in between starts the count again. */
		send(&bench, "r0");
		send(&bench, "p1");
		send(&bench, "m0");
		send(&bench, "r2");
		send(&bench, "r3");
		CHECK_INT(step(&bench), 5);
		CHECK_INT(bench.held, 0);
		send(&bench, "p4");
		send(&bench, "r5");
		CHECK_INT(step(&bench), 1);
		CHECK_INT(bench.held, 1);
		/* They spent their attempts, and so does the probe. */
		check_row(&bench, "p4", POSTERN_STATE_POISONED, 1);
		fake_clock_advance(&bench.clock, 1000);
		CHECK_INT(step(&bench), 1);
		check_row(&bench, "r5", POSTERN_STATE_POISONED, 1);
		send(&bench, "d6");
		fake_clock_advance(&bench.clock, 1999);
		CHECK_INT(step(&bench), 0);
		fake_clock_advance(&bench.clock, 1);
		CHECK_INT(step(&bench), 1);
		CHECK_INT(bench.released, 1);
	}
	bench_finish(&bench);
}

static void one_message_alone_does_not_hold_its_handler(void) {
	struct bench bench;
	int64_t none = 0;
	bench_init(&bench);
	bench.policy.break_after = 2;
	bench.policy.max_attempts = 10;
	bench.policy.backoff_ms = &none;
	bench.policy.backoff_count = 1;
	if (bench_open(&bench)) {
		send(&bench, "r0");
		send(&bench, "s1");
		for (int i = 0; i < 8; i++) {
			CHECK_INT(step(&bench), 2);
		}
		CHECK_INT(bench.held, 0);
		check_row(&bench, "r0", POSTERN_STATE_PENDING, 8);
	}
	bench_finish(&bench);
}

static void break_after_zero_never_holds(void) {
	struct bench bench;
	bench_init(&bench);
	bench.policy.break_after = 0;
	bench.policy.max_attempts = 1;
	if (bench_open(&bench)) {
		send_many(&bench, 'r', 50);
		CHECK_INT(step(&bench), 50);
		CHECK_INT(bench.held, 0);
	}
	bench_finish(&bench);
}

static void break_after_zero_delays_probes_that_fail(void) {
	struct bench bench;
	bench_init(&bench);
	bench.policy.break_after = 0;
	if (bench_open(&bench)) {
		send(&bench, "f0");
		CHECK_INT(step(&bench), 1);
		CHECK_INT(bench.held, 1);
		fake_clock_advance(&bench.clock, 900);
		send_many(&bench, 'r', 2);
		fake_clock_advance(&bench.clock, 99);
		CHECK_INT(step(&bench), 0);
		fake_clock_advance(&bench.clock, 1);
		CHECK_INT(step(&bench), 1);
		CHECK_STR(bench.ran[1], "r0");
		fake_clock_advance(&bench.clock, 1999);
		CHECK_INT(step(&bench), 0);
		fake_clock_advance(&bench.clock, 1);
		CHECK_INT(step(&bench), 1);
	}
	bench_finish(&bench);
}

static void a_fault_may_be_counted(void) {
	struct bench bench;
	bench_init(&bench);
	bench.broken = true;
	bench.policy.on_broken = POSTERN_ON_BROKEN_COUNT;
	if (bench_open(&bench)) {
		send_many(&bench, 'm', 5);
		CHECK_INT(step(&bench), 5);
		check_row(&bench, "m0", POSTERN_STATE_PENDING, 1);
		CHECK_INT(bench.held, 0);
	}
	bench_finish(&bench);
}

/* With a runner, deliveries are leased when they are accepted. */
static void a_held_handler_is_not_leased_at_accept(void) {
	struct bench bench;
	bench_init(&bench);
	bench.broken = true;
	if (bench_open(&bench)) {
		CHECK_INT(claim(&bench), 0); /* the node may process from now on */
		bench.box->leasing = true;
		send(&bench, "m0");
		CHECK_INT(run(&bench), 1);
		commit(&bench);
		CHECK_INT(bench.held, 1);
		send(&bench, "m1");
		send(&bench, "m2");
		check_row(&bench, "m1", POSTERN_STATE_PENDING, 0);
		fake_clock_advance(&bench.clock, 1000);
		/* It may be a copy, which runs nothing: a probe is claimed. */
		send(&bench, "m3");
		check_row(&bench, "m3", POSTERN_STATE_PENDING, 0);
		CHECK_INT(claim(&bench), 1);
		CHECK_INT(claim(&bench), 0);
		CHECK_INT(run(&bench), 1);
		commit(&bench);
		/* The claimer sleeps exactly until the next probe. */
		CHECK_INT(postern__claim_at_ms(bench.box) -
						  postern__box_now_ms(bench.box),
				2000);
		bench.box->leasing = false;
	}
	bench_finish(&bench);
}

/* A message that was routed before the handler was held is written later. */
static void a_lease_besides_the_probe_is_returned(void) {
	struct bench bench;
	struct postern_message late = { .size = sizeof(late), .body = "" };
	bench_init(&bench);
	bench.broken = true;
	if (bench_open(&bench)) {
		CHECK_INT(claim(&bench), 0);
		send(&bench, "m0");
		bench.box->leasing = true;
		send(&bench, "m1");
		late.id = "m2";
		CHECK_OK(postern_box_accept_async(bench.box, "c", &late, NULL, NULL,
						 &bench.error),
				&bench.error);
		CHECK_INT(run(&bench), 1);
		CHECK_STR(bench.ran[0], "m1");
		fake_clock_advance(&bench.clock, 1000);
		CHECK_INT(claim(&bench), 1);
		commit(&bench);
		CHECK_INT(bench.held, 1);
		CHECK_INT(run(&bench), 1);
		CHECK_STR(bench.ran[1], "m0");
		commit(&bench);
		check_row(&bench, "m2", POSTERN_STATE_PENDING, 0);
		bench.box->leasing = false;
	}
	bench_finish(&bench);
}

static void a_long_reason_is_cut_between_characters(void) {
	struct bench bench;
	char text[POSTERN_REASON_LEN_MAX];
	struct postern_health *health = NULL;
	memset(text, 0, sizeof(text));
	for (size_t i = 0; i + 2 < sizeof(text); i += 2) {
		memcpy(&text[i], "\xc3\xa9", 2);
	}
	bench_init(&bench);
	bench.broken = true;
	bench.fault_reason = text;
	if (bench_open(&bench)) {
		send(&bench, "m0");
		CHECK_INT(step(&bench), 1);
		CHECK_OK(postern_box_health(bench.box, NULL, &health, &bench.error),
				&bench.error);
		const char *reason = health->handlers[0].reason;
		CHECK(strlen(reason) > 200);
		CHECK(postern__utf8_valid(reason, strlen(reason)));
		postern_health_destroy(health);
	}
	bench_finish(&bench);
}

static void replace(struct bench *bench) {
	struct postern_error *error = &bench->error;
	struct postern_generation *next = NULL;
	const struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.policy = &bench->policy,
	};
	CHECK_OK(postern_generation_create(bench->box, &next, error), error);
	CHECK_OK(postern_generation_add_channel(next, "c", NULL, error), error);
	CHECK_OK(postern__generation_register_taking(next, "c", &handler,
					 &script.base, error),
			error);
	CHECK_OK(postern_box_replace_taking(bench->box, next, error), error);
}

/* What was at fault under the former definition may not be under this one. */
static void a_replaced_handler_charges_nothing_for_the_former(void) {
	struct bench bench;
	bench_init(&bench);
	if (bench_open(&bench)) {
		send(&bench, "f");
		send(&bench, "m0");
		CHECK_INT(step(&bench), 1);
		fake_clock_advance(&bench.clock, 999);
		CHECK_INT(step(&bench), 0);
		fake_clock_advance(&bench.clock, 1);
		CHECK_INT(step(&bench), 1);
		CHECK_INT(bench.released, 1);
		check_row(&bench, "m0", POSTERN_STATE_DONE, 0);
		replace(&bench);
		fake_clock_advance(&bench.clock, 1);
		CHECK_INT(step(&bench), 1);
		CHECK_STR(bench.ran[2], "f");
		check_row(&bench, "f", POSTERN_STATE_PENDING, 0);
		CHECK_INT(bench.held, 2);
	}
	bench_finish(&bench);
}

static void a_replaced_handler_is_not_held(void) {
	struct bench bench;
	bench_init(&bench);
	bench.broken = true;
	bench.policy.break_after = 2;
	bench.policy.max_attempts = 1;
	if (bench_open(&bench)) {
		send_many(&bench, 'm', 3);
		CHECK_INT(step(&bench), 1);
		CHECK_INT(bench.held, 1);
		bench.broken = false;
		replace(&bench);
		CHECK_INT(step(&bench), 2);
		/* Failures in a row are counted from the replacement on. */
		send(&bench, "r0");
		CHECK_INT(step(&bench), 1);
		replace(&bench);
		send(&bench, "r1");
		CHECK_INT(step(&bench), 1);
		CHECK_INT(bench.held, 1);
		send(&bench, "r2");
		CHECK_INT(step(&bench), 1);
		CHECK_INT(bench.held, 2);
	}
	bench_finish(&bench);
}

/* Broken in every even second. Probes are a second apart, so each time it is
   held a probe finds it working, and no message meets it broken twice. */
static void a_handler_that_flaps(void) {
	enum { SECONDS = 60, EACH = 3, STEP_MS = 100 };
	struct bench bench;
	bench_init(&bench);
	bench.policy.max_attempts = 1;
	if (bench_open(&bench)) {
		for (int i = 0; i < SECONDS; i++) {
			char id[16];
			bench.broken = i % 2 == 0;
			for (int j = 0; j < EACH; j++) {
				(void)snprintf(id, sizeof(id), "m%d-%d", i, j);
				send(&bench, id);
			}
			for (int ms = 0; ms < 1000; ms += STEP_MS) {
				(void)step(&bench);
				fake_clock_advance(&bench.clock, STEP_MS);
			}
		}
		for (int i = 0; i < SECONDS * EACH; i++) {
			char id[16];
			(void)snprintf(id, sizeof(id), "m%d-%d", i / EACH, i % EACH);
			check_row(&bench, id, POSTERN_STATE_DONE, 0);
		}
		/* One run in each broken second spends nothing but its time. */
		CHECK_INT(bench.held, SECONDS / 2);
		CHECK_INT(bench.released, SECONDS / 2);
		CHECK_INT(bench.ran_count, SECONDS * EACH + SECONDS / 2);
	}
	bench_finish(&bench);
}

/* Probes follow the monotonic clock, and what is due is decided by the store,
   which knows when its clock was set. */
static void a_clock_that_is_set_during_a_hold(void) {
	static const int64_t hours[] = { 24, -24, 1, -1 };
	for (size_t i = 0; i < sizeof(hours) / sizeof(hours[0]); i++) {
		struct bench bench;
		bench_init(&bench);
		bench.broken = true;
		if (bench_open(&bench)) {
			send_many(&bench, 'm', 5);
			CHECK_INT(step(&bench), 1);
			fake_clock_jump(&bench.clock, hours[i] * 3600 * 1000);
			CHECK_INT(step(&bench), 0);
			fake_clock_advance(&bench.clock, 999);
			CHECK_INT(step(&bench), 0);
			fake_clock_advance(&bench.clock, 1);
			CHECK_INT(step(&bench), 1);
			fake_clock_jump(&bench.clock, -hours[i] * 3600 * 1000);
			bench.broken = false;
			fake_clock_advance(&bench.clock, 2000);
			CHECK_INT(step(&bench), 1);
			CHECK_INT(bench.released, 1);
			fake_clock_advance(&bench.clock, 1000);
			(void)step(&bench);
			CHECK_INT(bench.ran_count, 7);
			check_row(&bench, "m0", POSTERN_STATE_DONE, 0);
		}
		bench_finish(&bench);
	}
}

static void the_policy_is_checked(void) {
	struct bench bench;
	bench_init(&bench);
	const struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.policy = &bench.policy,
	};
	if (bench_open(&bench)) {
		struct postern_policy policy = bench.policy;
		policy.break_after = POSTERN_BREAK_AFTER_MAX + 1;
		CHECK_INT(postern__policy_check(&policy, handler.key, &bench.error),
				POSTERN_E_INVALID);
		policy.break_after = POSTERN_BREAK_AFTER_MAX;
		CHECK_INT(postern__policy_check(&policy, handler.key, &bench.error),
				POSTERN_OK);
		policy.on_broken = (enum postern_on_broken)2;
		CHECK_INT(postern__policy_check(&policy, handler.key, &bench.error),
				POSTERN_E_INVALID);
	}
	bench_finish(&bench);
}

static const struct tap_case cases[] = {
	{ "a fault holds the handler, returns queued leases, counts no failure",
			a_fault_holds_the_handler },
	{ "probes are 1 to 10 s apart, each of another delivery",
			probes_are_up_to_ten_seconds_apart },
	{ "the first success releases the handler",
			the_first_success_releases_the_handler },
	{ "one delivery that faults among good ones is charged",
			one_that_faults_among_good_ones_is_charged },
	{ "a success that began before the fault charges nothing",
			a_success_that_began_earlier_charges_nothing },
	{ "runs that were in progress delay no probe",
			runs_in_progress_delay_no_probe },
	{ "a probe that hangs is followed by another",
			a_probe_that_hangs_is_followed_by_another },
	{ "failures in a row of different messages hold the handler",
			failures_in_a_row_hold_the_handler },
	{ "one message that fails alone does not hold its handler",
			one_message_alone_does_not_hold_its_handler },
	{ "break_after 0 never holds a handler", break_after_zero_never_holds },
	{ "with break_after 0, too, a probe that fails delays the next",
			break_after_zero_delays_probes_that_fail },
	{ "on_broken count makes a fault a failure", a_fault_may_be_counted },
	{ "a held handler is leased one probe at a time",
			a_held_handler_is_not_leased_at_accept },
	{ "a lease that was granted besides the probe is returned",
			a_lease_besides_the_probe_is_returned },
	{ "a handler that is replaced is not held, and begins without failures",
			a_replaced_handler_is_not_held },
	{ "a long reason is cut between two characters",
			a_long_reason_is_cut_between_characters },
	{ "a handler that is replaced charges no fault of the former one",
			a_replaced_handler_charges_nothing_for_the_former },
	{ "a handler that is broken every other second charges no message",
			a_handler_that_flaps },
	{ "a clock that is set during a hold moves no probe",
			a_clock_that_is_set_during_a_hold },
	{ "break_after and on_broken are checked", the_policy_is_checked },
};

TAP_MAIN(cases)
