/* SPDX-License-Identifier: MIT */
/*
 * The box on the memory store with a fake clock, processed on the caller's
 * thread: which messages are accepted, which handlers run them, how often, and
 * what is recorded.
 */

#include "tap.h"

#include "support/fake_clock.h"

#include <postern/postern.h>
#include <postern/sys/store.h>
#include <stdlib.h>
#include <string.h>

#define RUNS_MAX 64

/* What a handler did, and its next outcome. */
struct script {
	struct postern_outcome next;
	int calls;
	uint32_t attempts[RUNS_MAX];
	uint64_t fences[RUNS_MAX];
	char last_body[64];
	struct fake_clock *clock; /* advanced by takes_ms in each run */
	int64_t takes_ms;
};

static void run_script(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct script *script = context;
	if (script->calls < RUNS_MAX) {
		script->attempts[script->calls] = delivery->attempt;
		script->fences[script->calls] = delivery->fence;
	}
	script->calls++;
	(void)snprintf(script->last_body, sizeof(script->last_body), "%.*s",
			(int)message->body_len, (const char *)message->body);
	if (script->clock) {
		fake_clock_advance(script->clock, script->takes_ms);
	}
	*outcome = script->next;
}

struct bench {
	struct fake_clock clock;
	struct fake_random random;
	struct postern_box *box;
	struct postern_error error;
	char notices[1000];
};

static void record_notice(void *context, const struct postern_event *event) {
	struct bench *bench = context;
	size_t len = strlen(bench->notices);
	(void)snprintf(bench->notices + len, sizeof(bench->notices) - len, "%s\n",
			postern_event_text(event));
}

static bool open_box(struct bench *bench, const char *channel) {
	*bench = (struct bench){ 0 };
	fake_clock_init(&bench->clock);
	fake_random_init(&bench->random, 42);
	struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &bench->clock.base,
		.random = &bench->random.base,
		.listener = record_notice,
		.listener_context = bench,
	};
	return CHECK_OK(postern_box_open("memory:", &options, &bench->box,
							&bench->error),
				   &bench->error) &&
		   CHECK_OK(postern_box_add_channel(bench->box, channel, NULL,
							&bench->error),
				   &bench->error);
}

static int add_handler_with(struct bench *bench, const char *key,
		struct script *script, const struct postern_policy *policy,
		const char *type) {
	const char *const types[] = { type };
	struct postern_handler_options options = {
		.size = sizeof(options),
		.key = key,
		.callback = run_script,
		.context = script,
		.policy = policy,
		.types = type ? types : NULL,
		.type_count = type ? 1 : 0,
	};
	return postern_box_add_handler(bench->box, "orders", &options,
			&bench->error);
}

static bool add_handler(struct bench *bench, const char *key,
		struct script *script) {
	return CHECK_OK(add_handler_with(bench, key, script, NULL, NULL),
			&bench->error);
}

static bool start(struct bench *bench) {
	return CHECK_OK(postern_box_start(bench->box, &bench->error),
			&bench->error);
}

static int send_typed(struct bench *bench, const char *id, const char *type,
		const char *body) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = type,
		.body = body,
		.body_len = strlen(body),
	};
	return postern_box_accept(bench->box, "orders", &message, NULL,
			&bench->error);
}

static int send(struct bench *bench, const char *id, const char *body) {
	return send_typed(bench, id, "order.placed", body);
}

static size_t process(struct bench *bench) {
	size_t count = 0;
	CHECK_OK(postern_box_process(bench->box, 0, &count, &bench->error),
			&bench->error);
	return count;
}

/* The state of the delivery of a message to a handler. */
static enum postern_state state_of(struct bench *bench, int64_t seq,
		const char *handler) {
	struct postern_detail *detail;
	enum postern_state state = POSTERN_STATE_ANY;
	if (CHECK_OK(postern_box_get(bench->box, seq, &detail, &bench->error),
				&bench->error)) {
		for (size_t i = 0; i < detail->delivery_count; i++) {
			if (strcmp(detail->deliveries[i].row.handler, handler) == 0) {
				state = detail->deliveries[i].row.state;
			}
		}
		postern_detail_destroy(detail);
	}
	return state;
}

static void close_box(struct bench *bench) {
	postern_box_destroy(bench->box);
}

static void accepted_once(void) {
	struct bench bench;
	struct script script = { 0 };
	if (!open_box(&bench, "orders") ||
			!add_handler(&bench, "charge", &script) || !start(&bench)) {
		return;
	}
	CHECK_INT(send(&bench, "a", "one"), POSTERN_OK);
	CHECK_INT(send(&bench, "a", "one"), POSTERN_E_DUPLICATE);
	CHECK_INT(send(&bench, "a", "two"), POSTERN_E_CONFLICT);
	CHECK_INT(process(&bench), 1);
	CHECK_INT(script.calls, 1);
	CHECK_STR(script.last_body, "one");
	CHECK_INT(send(&bench, "a", "one"), POSTERN_E_DUPLICATE);
	CHECK_INT(process(&bench), 0);
	CHECK_INT(state_of(&bench, 1, "charge"), POSTERN_STATE_DONE);
	close_box(&bench);
}

static void one_fails_other_completes(void) {
	struct bench bench;
	struct script good = { 0 };
	struct script bad = { 0 };
	postern_outcome_set(&bad.next, POSTERN_RETRY, 0, "card declined");
	if (!open_box(&bench, "orders") || !add_handler(&bench, "good", &good) ||
			!add_handler(&bench, "bad", &bad) || !start(&bench)) {
		return;
	}
	CHECK_INT(send(&bench, "a", "x"), POSTERN_OK);
	for (int i = 0; i < 10; i++) {
		(void)process(&bench);
		fake_clock_advance(&bench.clock, 300000);
	}
	CHECK_INT(good.calls, 1);
	CHECK_INT(bad.calls, 5);
	for (uint32_t i = 0; i < 5; i++) {
		CHECK_INT(bad.attempts[i], i + 1);
		CHECK_INT(bad.fences[i], i + 1);
	}
	CHECK_INT(state_of(&bench, 1, "good"), POSTERN_STATE_DONE);
	CHECK_INT(state_of(&bench, 1, "bad"), POSTERN_STATE_POISONED);

	struct postern_detail *detail;
	if (CHECK_OK(postern_box_get(bench.box, 1, &detail, &bench.error),
				&bench.error)) {
		for (size_t i = 0; i < detail->delivery_count; i++) {
			const struct postern_delivery_detail *one = &detail->deliveries[i];
			if (strcmp(one->row.handler, "bad") == 0) {
				CHECK_STR(one->row.last_error, "card declined");
				CHECK_INT(one->attempt_count, 5);
			}
		}
		postern_detail_destroy(detail);
	}
	/* An operator retries it: the fence continues. */
	postern_outcome_set(&bad.next, POSTERN_DONE, 0, NULL);
	CHECK_OK(postern_box_retry(bench.box, 1, "bad", &bench.error),
			&bench.error);
	CHECK_INT(process(&bench), 1);
	CHECK_INT(bad.fences[5], 6);
	CHECK_INT(bad.attempts[5], 1);
	CHECK_INT(good.calls, 1);
	CHECK_INT(state_of(&bench, 1, "bad"), POSTERN_STATE_DONE);
	CHECK_INT(postern_box_retry(bench.box, 1, "good", &bench.error),
			POSTERN_E_INVALID);
	close_box(&bench);
}

static void no_attempts_means_one(void) {
	struct bench bench;
	struct script bad = { 0 };
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.max_attempts = 0;
	postern_outcome_set(&bad.next, POSTERN_RETRY, 0, "no");
	if (!open_box(&bench, "orders") ||
			!CHECK_INT(add_handler_with(&bench, "bad", &bad, &policy, NULL),
					POSTERN_OK) ||
			!start(&bench)) {
		return;
	}
	CHECK_INT(send(&bench, "a", "x"), POSTERN_OK);
	CHECK_INT(process(&bench), 1);
	CHECK_INT(state_of(&bench, 1, "bad"), POSTERN_STATE_POISONED);
	close_box(&bench);
}

static void retry_waits_for_its_time(void) {
	struct bench bench;
	struct script bad = { 0 };
	postern_outcome_set(&bad.next, POSTERN_RETRY, 0, "no");
	if (!open_box(&bench, "orders") || !add_handler(&bench, "bad", &bad) ||
			!start(&bench)) {
		return;
	}
	CHECK_INT(send(&bench, "a", "x"), POSTERN_OK);
	CHECK_INT(process(&bench), 1);
	fake_clock_advance(&bench.clock, 999);
	CHECK_INT(process(&bench), 0);
	fake_clock_advance(&bench.clock, 1001);
	CHECK_INT(process(&bench), 1);
	postern_outcome_set(&bad.next, POSTERN_RETRY_AFTER, 7000, "later");
	fake_clock_advance(&bench.clock, 4000);
	CHECK_INT(process(&bench), 1);
	fake_clock_advance(&bench.clock, 6999);
	CHECK_INT(process(&bench), 0);
	fake_clock_advance(&bench.clock, 1);
	CHECK_INT(process(&bench), 1);
	close_box(&bench);
}

static void snooze_spends_no_attempt(void) {
	struct bench bench;
	struct script lazy = { 0 };
	postern_outcome_set(&lazy.next, POSTERN_SNOOZE, 500, "not yet");
	if (!open_box(&bench, "orders") || !add_handler(&bench, "lazy", &lazy) ||
			!start(&bench)) {
		return;
	}
	CHECK_INT(send(&bench, "a", "x"), POSTERN_OK);
	for (int i = 0; i < 20; i++) {
		CHECK_INT(process(&bench), 1);
		CHECK_INT(process(&bench), 0);
		fake_clock_advance(&bench.clock, 500);
	}
	CHECK_INT(lazy.calls, 20);
	CHECK_INT(lazy.attempts[19], 1);
	CHECK_INT(state_of(&bench, 1, "lazy"), POSTERN_STATE_PENDING);
	close_box(&bench);
}

static void poison_and_discard_end_at_once(void) {
	struct bench bench;
	struct script poison = { 0 };
	struct script discard = { 0 };
	postern_outcome_set(&poison.next, POSTERN_POISON, 0, "bad \x01 data\xff");
	postern_outcome_set(&discard.next, POSTERN_DISCARD, 0, "old news");
	if (!open_box(&bench, "orders") ||
			!add_handler(&bench, "poison", &poison) ||
			!add_handler(&bench, "discard", &discard) || !start(&bench)) {
		return;
	}
	CHECK_INT(send(&bench, "a", "x"), POSTERN_OK);
	CHECK_INT(process(&bench), 2);
	CHECK_INT(state_of(&bench, 1, "poison"), POSTERN_STATE_POISONED);
	CHECK_INT(state_of(&bench, 1, "discard"), POSTERN_STATE_DISCARDED);
	fake_clock_advance(&bench.clock, 86400000);
	CHECK_INT(process(&bench), 0);
	close_box(&bench);
}

static void late_success_is_a_failure(void) {
	struct bench bench;
	struct script slow = { .clock = &bench.clock, .takes_ms = 100 };
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.timeout_ms = 100;
	policy.max_attempts = 1;
	if (!open_box(&bench, "orders") ||
			!CHECK_INT(add_handler_with(&bench, "slow", &slow, &policy, NULL),
					POSTERN_OK) ||
			!start(&bench)) {
		return;
	}
	CHECK_INT(send(&bench, "a", "x"), POSTERN_OK);
	CHECK_INT(process(&bench), 1);
	CHECK_INT(state_of(&bench, 1, "slow"), POSTERN_STATE_POISONED);
	struct postern_detail *detail;
	if (CHECK_OK(postern_box_get(bench.box, 1, &detail, &bench.error),
				&bench.error)) {
		CHECK_STR(detail->deliveries[0].row.last_error,
				"timed out after 100ms");
		if (CHECK_INT(detail->deliveries[0].attempt_count, 1)) {
			CHECK_STR(detail->deliveries[0].attempts[0].outcome, "timeout");
		}
		postern_detail_destroy(detail);
	}
	slow.takes_ms = 99;
	CHECK_OK(postern_box_retry(bench.box, 1, "slow", &bench.error),
			&bench.error);
	CHECK_INT(process(&bench), 1);
	CHECK_INT(state_of(&bench, 1, "slow"), POSTERN_STATE_DONE);
	close_box(&bench);
}

struct order {
	char text[64];
};

static void record_event(void *context, const struct postern_event *event) {
	struct order *order = context;
	char letter = event->kind == POSTERN_EVENT_STARTED ? 's' : 'e';
	size_t len = strlen(order->text);
	if ((event->kind == POSTERN_EVENT_STARTED ||
				event->state != POSTERN_STATE_ANY) &&
			len + 1 < sizeof(order->text)) {
		order->text[len] = letter;
	}
}

static void slow_results_are_kept_at_once(void) {
	struct bench bench;
	struct script slow = { .clock = &bench.clock, .takes_ms = 1000 };
	struct order order = { "" };
	if (!open_box(&bench, "orders") || !add_handler(&bench, "slow", &slow) ||
			!CHECK_OK(postern_box_subscribe(bench.box, POSTERN_LEVEL_DEBUG,
							  record_event, &order, &bench.error),
					&bench.error) ||
			!start(&bench)) {
		return;
	}
	for (int i = 0; i < 3; i++) {
		char id[8];
		(void)snprintf(id, sizeof(id), "m%d", i);
		CHECK_INT(send(&bench, id, "x"), POSTERN_OK);
	}
	CHECK_INT(process(&bench), 3);
	CHECK_STR(order.text, "sesese");
	/* Each attempt has its own time. */
	struct postern_listing *listing;
	if (CHECK_OK(postern_box_list(bench.box, NULL, &listing, &bench.error),
				&bench.error)) {
		CHECK_INT(postern_listing_get(listing, 0)->finished_at_ms -
						  postern_listing_get(listing, 1)->finished_at_ms,
				1000);
		postern_listing_destroy(listing);
	}
	close_box(&bench);
}

static void timeout_keeps_the_reason(void) {
	struct bench bench;
	struct script slow = { .clock = &bench.clock, .takes_ms = 100 };
	postern_outcome_set(&slow.next, POSTERN_RETRY, 0, "killed: half done");
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.timeout_ms = 100;
	policy.max_attempts = 1;
	if (!open_box(&bench, "orders") ||
			!CHECK_INT(add_handler_with(&bench, "slow", &slow, &policy, NULL),
					POSTERN_OK) ||
			!start(&bench)) {
		return;
	}
	CHECK_INT(send(&bench, "a", "x"), POSTERN_OK);
	CHECK_INT(process(&bench), 1);
	struct postern_detail *detail;
	if (CHECK_OK(postern_box_get(bench.box, 1, &detail, &bench.error),
				&bench.error)) {
		CHECK_STR(detail->deliveries[0].row.last_error, "killed: half done");
		CHECK_STR(detail->deliveries[0].attempts[0].outcome, "timeout");
		postern_detail_destroy(detail);
	}
	close_box(&bench);
}

static void types_route(void) {
	struct bench bench;
	struct script exact = { 0 };
	struct script star = { 0 };
	struct script all = { 0 };
	if (!open_box(&bench, "orders") ||
			!CHECK_INT(add_handler_with(&bench, "exact", &exact, NULL,
							   "order.placed"),
					POSTERN_OK) ||
			!CHECK_INT(add_handler_with(&bench, "star", &star, NULL, "order.*"),
					POSTERN_OK) ||
			!add_handler(&bench, "all", &all) || !start(&bench)) {
		return;
	}
	CHECK_INT(send_typed(&bench, "a", "order.placed", "x"), POSTERN_OK);
	CHECK_INT(send_typed(&bench, "b", "order.paid", "x"), POSTERN_OK);
	CHECK_INT(send_typed(&bench, "c", "other", "x"), POSTERN_OK);
	CHECK_INT(send_typed(&bench, "d", NULL, "x"), POSTERN_OK);
	CHECK_INT(process(&bench), 7);
	CHECK_INT(exact.calls, 1);
	CHECK_INT(star.calls, 2);
	CHECK_INT(all.calls, 4);
	close_box(&bench);
}

static void paused_handler_waits(void) {
	struct bench bench;
	struct script one = { 0 };
	struct script two = { 0 };
	if (!open_box(&bench, "orders") || !add_handler(&bench, "one", &one) ||
			!add_handler(&bench, "two", &two) || !start(&bench)) {
		return;
	}
	CHECK_OK(postern_box_pause(bench.box, "one", &bench.error), &bench.error);
	CHECK_INT(send(&bench, "a", "x"), POSTERN_OK);
	CHECK_INT(process(&bench), 1);
	CHECK_INT(one.calls, 0);
	CHECK_OK(postern_box_resume(bench.box, "one", &bench.error), &bench.error);
	CHECK_INT(process(&bench), 1);
	CHECK_INT(one.calls, 1);
	CHECK_INT(two.calls, 1);
	CHECK_INT(postern_box_pause(bench.box, "nobody", &bench.error),
			POSTERN_E_NOTFOUND);
	close_box(&bench);
}

static void process_stops_at_max(void) {
	struct bench bench;
	struct script script = { 0 };
	if (!open_box(&bench, "orders") || !add_handler(&bench, "h", &script) ||
			!start(&bench)) {
		return;
	}
	for (int i = 0; i < 250; i++) {
		char id[16];
		(void)snprintf(id, sizeof(id), "m%d", i);
		CHECK_INT(send(&bench, id, "x"), POSTERN_OK);
	}
	size_t count = 0;
	CHECK_OK(postern_box_process(bench.box, 120, &count, &bench.error),
			&bench.error);
	CHECK_INT(count, 120);
	CHECK_INT(script.calls, 120);
	CHECK_INT(process(&bench), 130);
	CHECK_INT(script.calls, 250);
	close_box(&bench);
}

static void batch_has_a_receipt_each(void) {
	struct bench bench;
	struct script script = { 0 };
	if (!open_box(&bench, "orders") || !add_handler(&bench, "h", &script) ||
			!start(&bench)) {
		return;
	}
	struct postern_message messages[5] = {
		{ .size = sizeof(messages[0]), .id = "a", .body = "1", .body_len = 1 },
		{ .size = sizeof(messages[0]), .id = "" },
		{ .size = sizeof(messages[0]), .id = "a", .body = "1", .body_len = 1 },
		{ .size = sizeof(messages[0]), .id = "a", .body = "2", .body_len = 1 },
		{ .size = sizeof(messages[0]), .id = "b", .body = "1", .body_len = 1 },
	};
	struct postern_receipt receipts[5];
	CHECK_OK(postern_box_accept_batch(bench.box, "orders", messages, 5,
					 receipts, &bench.error),
			&bench.error);
	CHECK_INT(receipts[0].error.code, POSTERN_OK);
	CHECK_INT(receipts[1].error.code, POSTERN_E_INVALID);
	CHECK_CONTAINS(receipts[1].error.text, "id");
	CHECK_INT(receipts[2].error.code, POSTERN_E_DUPLICATE);
	CHECK_INT(receipts[2].seq, receipts[0].seq);
	CHECK_INT(receipts[3].error.code, POSTERN_E_CONFLICT);
	CHECK_INT(receipts[4].error.code, POSTERN_OK);
	CHECK(receipts[4].seq > receipts[0].seq);
	CHECK_INT(process(&bench), 2);
	close_box(&bench);
}

struct async_result {
	int calls;
	int code;
	int64_t seq;
};

static void record_receipt(void *context,
		const struct postern_receipt *receipt) {
	struct async_result *result = context;
	result->calls++;
	result->code = receipt->error.code;
	result->seq = receipt->seq;
}

static void async_called_after_commit(void) {
	struct bench bench;
	struct script script = { 0 };
	if (!open_box(&bench, "orders") || !add_handler(&bench, "h", &script) ||
			!start(&bench)) {
		return;
	}
	struct async_result results[3] = { 0 };
	struct postern_message message = { .size = sizeof(message), .id = "a" };
	for (int i = 0; i < 2; i++) {
		CHECK_OK(postern_box_accept_async(bench.box, "orders", &message,
						 record_receipt, &results[i], &bench.error),
				&bench.error);
	}
	CHECK_INT(results[0].calls, 0);
	size_t count = 0;
	CHECK_OK(postern_box_commit(bench.box, &count, &bench.error), &bench.error);
	CHECK_INT(count, 2);
	CHECK_INT(results[0].calls, 1);
	CHECK_INT(results[0].code, POSTERN_OK);
	CHECK_INT(results[1].calls, 1);
	CHECK_INT(results[1].code, POSTERN_E_DUPLICATE);
	message.id = "late";
	CHECK_OK(postern_box_accept_async(bench.box, "orders", &message,
					 record_receipt, &results[2], &bench.error),
			&bench.error);
	CHECK_INT(results[2].calls, 0);
	close_box(&bench);
	/* Closing the box commits what is queued. */
	CHECK_INT(results[2].calls, 1);
	CHECK_INT(results[2].code, POSTERN_OK);
}

static void note_receipt(void *context, const struct postern_receipt *receipt) {
	*(struct postern_receipt *)context = *receipt;
}

static void parked_receipt(void) {
	struct bench bench;
	if (!open_box(&bench, "other")) {
		return;
	}
	CHECK_OK(postern_box_add_channel(bench.box, "orders", NULL, &bench.error),
			&bench.error);
	if (!start(&bench)) {
		return;
	}
	struct postern_receipt receipt = { 0 };
	struct postern_message message = {
		.size = sizeof(message),
		.id = "a",
		.type = "strange",
	};
	CHECK_OK(postern_box_accept_async(bench.box, "orders", &message,
					 note_receipt, &receipt, &bench.error),
			&bench.error);
	CHECK_OK(postern_box_commit(bench.box, NULL, &bench.error), &bench.error);
	CHECK_INT(receipt.error.code, POSTERN_OK);
	CHECK_STR(receipt.error.text, "no handler wants type 'strange'");
	postern_box_destroy(bench.box);
}

static void unrouted_policies(void) {
	static const struct {
		enum postern_unrouted policy;
		int code;
		bool kept;
	} rows[] = { { POSTERN_UNROUTED_PARK, POSTERN_OK, true },
		{ POSTERN_UNROUTED_DROP, POSTERN_OK, false },
		{ POSTERN_UNROUTED_REJECT, POSTERN_E_INVALID, false } };
	for (size_t i = 0; i < 3; i++) {
		struct bench bench;
		if (!open_box(&bench, "other")) {
			return;
		}
		struct postern_channel_options options = {
			.size = sizeof(options),
			.unrouted = rows[i].policy,
		};
		CHECK_OK(postern_box_add_channel(bench.box, "orders", &options,
						 &bench.error),
				&bench.error);
		if (!start(&bench)) {
			return;
		}
		CHECK_INT(send(&bench, "a", "x"), rows[i].code);
		int64_t seq;
		size_t count = 9;
		CHECK_OK(postern_box_find(bench.box, "a", NULL, NULL, &seq, 1, &count,
						 &bench.error),
				&bench.error);
		CHECK_INT(count, rows[i].kept ? 1 : 0);
		close_box(&bench);
	}
}

static void configuration_is_checked(void) {
	struct bench bench;
	struct script script = { 0 };
	if (!open_box(&bench, "orders") || !add_handler(&bench, "a", &script)) {
		return;
	}
	CHECK_INT(add_handler_with(&bench, NULL, &script, NULL, NULL),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(bench.error.text, "stable key");
	CHECK_INT(add_handler_with(&bench, "a", &script, NULL, NULL),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(bench.error.text, "already used");
	static const char *const legacy[] = { "old", "a" };
	struct postern_handler_options options = {
		.size = sizeof(options),
		.key = "b",
		.callback = run_script,
		.legacy_keys = legacy,
		.legacy_key_count = 2,
	};
	CHECK_INT(postern_box_add_handler(bench.box, "orders", &options,
					  &bench.error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(bench.error.text, "'a' is already used");
	options.legacy_key_count = 1;
	CHECK_INT(postern_box_add_handler(bench.box, "nowhere", &options,
					  &bench.error),
			POSTERN_E_NOTFOUND);
	CHECK_OK(postern_box_add_handler(bench.box, "orders", &options,
					 &bench.error),
			&bench.error);
	CHECK_INT(add_handler_with(&bench, "old", &script, NULL, NULL),
			POSTERN_E_INVALID);
	options.key = "c";
	options.legacy_key_count = 0;
	options.sql = "select 1";
	CHECK_INT(postern_box_add_handler(bench.box, "orders", &options,
					  &bench.error),
			POSTERN_E_INVALID);
	options.callback = NULL;
	CHECK_INT(postern_box_add_handler(bench.box, "orders", &options,
					  &bench.error),
			POSTERN_E_UNSUPPORTED);
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.timeout_ms = policy.lease_ms;
	CHECK_INT(add_handler_with(&bench, "d", &script, &policy, NULL),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(bench.error.text, "must be less than lease");
	CHECK_INT(postern_box_add_channel(bench.box, "orders", NULL, &bench.error),
			POSTERN_E_INVALID);
	CHECK_INT(send(&bench, "x", "x"), POSTERN_E_INVALID);
	CHECK_CONTAINS(bench.error.text, "postern_box_start");
	close_box(&bench);
}

static void require_inbox_is_checked(void) {
	for (int rule = 0; rule < 3; rule++) {
		for (int allowed = 0; allowed < 2; allowed++) {
			struct bench bench = { 0 };
			struct postern_box_options options = {
				.size = sizeof(options),
				.require_inbox = (enum postern_require_inbox)rule,
				.listener = record_notice,
				.listener_context = &bench,
			};
			struct postern_channel_options channel = {
				.size = sizeof(channel),
				.without_inbox = true,
				.allow_without_inbox = allowed,
			};
			CHECK_OK(postern_box_open("memory:", &options, &bench.box,
							 &bench.error),
					&bench.error);
			CHECK_OK(postern_box_add_channel(bench.box, "orders", &channel,
							 &bench.error),
					&bench.error);
			bool refused = rule == POSTERN_REQUIRE_INBOX_FAIL && !allowed;
			bool warned = rule == POSTERN_REQUIRE_INBOX_WARN && !allowed;
			CHECK_INT(postern_box_start(bench.box, &bench.error),
					refused ? POSTERN_E_INVALID : POSTERN_OK);
			CHECK_INT(bench.notices[0] != '\0', warned);
			if (!refused) {
				/* It has no handler, and what is not stored is not parked. */
				CHECK_INT(send(&bench, "a", "x"), POSTERN_E_INVALID);
			}
			close_box(&bench);
		}
	}
}

static void bad_messages_are_refused(void) {
	struct bench bench;
	struct script script = { 0 };
	if (!open_box(&bench, "orders") || !add_handler(&bench, "h", &script) ||
			!start(&bench)) {
		return;
	}
	char long_id[POSTERN_ID_LEN_MAX + 2];
	memset(long_id, 'x', 201);
	long_id[201] = '\0';
	CHECK_INT(send(&bench, long_id, "x"), POSTERN_E_INVALID);
	CHECK_CONTAINS(bench.error.text, "201 characters");
	long_id[200] = '\0';
	CHECK_INT(send(&bench, long_id, "x"), POSTERN_OK);
	CHECK_INT(send(&bench, "", "x"), POSTERN_E_INVALID);
	CHECK_INT(send(&bench, NULL, "x"), POSTERN_E_INVALID);
	CHECK_INT(send(&bench, "a\nb", "x"), POSTERN_E_INVALID);
	CHECK_CONTAINS(bench.error.text, "control character");
	CHECK_INT(send(&bench, "a\xff", "x"), POSTERN_E_INVALID);
	CHECK_CONTAINS(bench.error.text, "UTF-8");
	CHECK_INT(send(&bench, " a ", "x"), POSTERN_OK);
	CHECK_INT(send(&bench, "a", "x"), POSTERN_OK);
	CHECK_INT(send(&bench, "A", "x"), POSTERN_OK);
	struct postern_message message = {
		.size = sizeof(message),
		.id = "t",
		.time = "yesterday",
	};
	CHECK_INT(postern_box_accept(bench.box, "orders", &message, NULL,
					  &bench.error),
			POSTERN_E_INVALID);
	message.time = "2026-11-15T21:09:24+01:00";
	CHECK_INT(postern_box_accept(bench.box, "orders", &message, NULL,
					  &bench.error),
			POSTERN_OK);
	CHECK_INT(postern_box_accept(bench.box, "nowhere", &message, NULL,
					  &bench.error),
			POSTERN_E_NOTFOUND);
	char *big = calloc(1, POSTERN_BODY_LEN_DEFAULT + 1);
	message.id = "big";
	message.body = big;
	message.body_len = POSTERN_BODY_LEN_DEFAULT + 1;
	CHECK_INT(postern_box_accept(bench.box, "orders", &message, NULL,
					  &bench.error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(bench.error.text, "max_message_size");
	message.body_len = POSTERN_BODY_LEN_DEFAULT;
	CHECK_INT(postern_box_accept(bench.box, "orders", &message, NULL,
					  &bench.error),
			POSTERN_OK);
	free(big);
	close_box(&bench);
}

static const struct tap_case cases[] = {
	{ "a message is accepted once, then a duplicate, with another body a "
	  "conflict",
			accepted_once },
	{ "one handler fails until poisoned, the other is done and runs once",
			one_fails_other_completes },
	{ "max_attempts 0 means one attempt", no_attempts_means_one },
	{ "a retry is not run before it is due", retry_waits_for_its_time },
	{ "a snooze does not count as an attempt", snooze_spends_no_attempt },
	{ "poison and discard end a delivery at once",
			poison_and_discard_end_at_once },
	{ "a success after the timeout is a failure", late_success_is_a_failure },
	{ "a slow run is settled before the next one starts",
			slow_results_are_kept_at_once },
	{ "the reason of a run that timed out is kept", timeout_keeps_the_reason },
	{ "each handler gets the types it wants", types_route },
	{ "a paused handler waits and the other continues", paused_handler_waits },
	{ "process stops at its maximum and returns the other leases",
			process_stops_at_max },
	{ "every message of a batch has a receipt", batch_has_a_receipt_each },
	{ "an asynchronous accept gets its receipt after the commit",
			async_called_after_commit },
	{ "the receipt of a parked message says why", parked_receipt },
	{ "unrouted messages are parked, dropped or rejected", unrouted_policies },
	{ "invalid channels and handlers are refused", configuration_is_checked },
	{ "require_inbox warns or fails, unless the channel opts out",
			require_inbox_is_checked },
	{ "messages that exceed a limit are rejected with the name of the limit",
			bad_messages_are_refused },
};

TAP_MAIN(cases)
