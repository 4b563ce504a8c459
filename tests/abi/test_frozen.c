/* SPDX-License-Identifier: MIT */
/*
 * A program that was compiled with the frozen headers (tests/abi/frozen) and
 * runs with the library of today. Every struct that crosses the border is
 * written or read here, arrays with more than one item, so that a member that
 * moved, or an item that grew, changes a value.
 */

#include "tap.h"

#include <postern/postern.h>
#include <stdlib.h>
#include <unistd.h>

struct seen {
	size_t poisoned;
	char message_id[32];
	char handler[32];
	char error[64];
};

static void listen_to(void *context, const struct postern_event *event) {
	struct seen *seen = context;
	if (event->kind != POSTERN_EVENT_POISONED) {
		return;
	}
	const struct postern_event_info *info = postern_event_info(event->kind);
	CHECK_STR(info->name, "delivery_poisoned");
	CHECK_INT(info->level, POSTERN_LEVEL_ERROR);
	CHECK(event->size >= sizeof(*event));
	CHECK_INT(event->state, POSTERN_STATE_POISONED);
	CHECK_STR(event->channel, "orders");
	seen->poisoned++;
	(void)snprintf(seen->message_id, sizeof seen->message_id, "%s",
			event->message_id);
	(void)snprintf(seen->handler, sizeof seen->handler, "%s", event->handler);
	(void)snprintf(seen->error, sizeof seen->error, "%s", event->error);
}

struct calls {
	unsigned count;
	unsigned attempts; /* the sum */
	char body[16];
};

static void succeed(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct calls *calls = context;
	calls->count++;
	calls->attempts += delivery->attempt;
	CHECK_STR(delivery->handler, "good");
	CHECK_STR(delivery->channel, "orders");
	CHECK_STR(message->headers[1].value, "two");
	CHECK_INT(outcome->kind, POSTERN_DONE);
	(void)snprintf(calls->body, sizeof calls->body, "%.*s",
			(int)message->body_len, (const char *)message->body);
}

static void fail(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct calls *calls = context;
	(void)message;
	calls->count++;
	calls->attempts += delivery->attempt;
	postern_outcome_set(outcome, POSTERN_RETRY_AFTER, 0, "no stock");
}

struct scene {
	struct postern_box *box;
	struct seen seen;
	struct calls good;
	struct calls bad;
};

static const int64_t backoff[] = { 0, 0 };

static bool add_handlers(struct scene *scene) {
	struct postern_error error;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.max_attempts = 2;
	policy.backoff_ms = backoff;
	policy.backoff_count = 2;
	static const char *const types[] = { "order.*", "refund" };
	struct postern_handler_options good = {
		.size = sizeof good,
		.key = "good",
		.types = types,
		.type_count = 2,
		.callback = succeed,
		.context = &scene->good,
		.policy = &policy,
	};
	static const char *const former[] = { "worse", "worst" };
	struct postern_handler_options bad = good;
	bad.key = "bad";
	bad.legacy_keys = former;
	bad.legacy_key_count = 2;
	bad.callback = fail;
	bad.context = &scene->bad;
	return CHECK_OK(postern_box_add_handler(scene->box, "orders", &good,
							&error),
				   &error) &&
		   CHECK_OK(postern_box_add_handler(scene->box, "orders", &bad, &error),
				   &error);
}

static bool scene_open(struct scene *scene) {
	struct postern_error error;
	const struct postern_box_options options = {
		.size = sizeof options,
		.max_message_size = 1000,
		.listener = listen_to,
		.listener_context = &scene->seen,
		.listener_level = POSTERN_LEVEL_DEBUG,
		.command_retries = -1,
	};
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.unrouted = POSTERN_UNROUTED_REJECT,
		.on_conflict = POSTERN_CONFLICT_REJECT,
		.max_message_size = 100,
	};
	const struct postern_channel_options parking = {
		.size = sizeof parking,
		.unrouted = POSTERN_UNROUTED_PARK,
		.retention_payload_ms = 1000,
		.retention_dedupe_ms = 2000,
	};
	return CHECK_OK(postern_box_open("memory:", &options, &scene->box, &error),
				   &error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "orders", &channel,
							&error),
				   &error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "parked", &parking,
							&error),
				   &error) &&
		   add_handlers(scene) &&
		   CHECK_OK(postern_box_start(scene->box, &error), &error);
}

static const struct postern_header headers[] = {
	{ "first", "one" },
	{ "second", "two" },
};

static struct postern_message message_of(const char *id, const char *body) {
	return (struct postern_message){
		.size = sizeof(struct postern_message),
		.id = id,
		.source = "/shop",
		.type = "order.placed",
		.subject = "s",
		.correlation_id = "c",
		.headers = headers,
		.header_count = 2,
		.body = body,
		.body_len = strlen(body),
	};
}

static void accept_all(struct scene *scene) {
	struct postern_error error;
	struct postern_message one = message_of("1", "a");
	int64_t seq = 0;
	CHECK_OK(postern_box_accept(scene->box, "orders", &one, &seq, &error),
			&error);
	CHECK_INT(seq, 1);
	struct postern_message batch[] = {
		message_of("1", "a"),
		message_of("1", "other"),
		message_of("2", "b"),
		message_of("3", "c"),
	};
	batch[3].type = "unknown";
	struct postern_receipt receipts[4];
	CHECK_OK(postern_box_accept_batch(scene->box, "orders", batch, 4, receipts,
					 &error),
			&error);
	static const int codes[] = { POSTERN_E_DUPLICATE, POSTERN_E_CONFLICT,
		POSTERN_OK, POSTERN_E_INVALID };
	for (size_t i = 0; i < 4; i++) {
		CHECK_INT(receipts[i].error.code, codes[i]);
	}
	CHECK_INT(receipts[0].seq, 1);
	batch[3].body_len = 101;
	CHECK_INT(postern_box_accept(scene->box, "orders", &batch[3], NULL, &error),
			POSTERN_E_INVALID);
	CHECK_OK(postern_box_accept(scene->box, "parked", &one, NULL, &error),
			&error);
}

static void check_listing(struct postern_box *box) {
	struct postern_error error;
	struct postern_listing *listing = NULL;
	const struct postern_filter filter = {
		.size = sizeof filter,
		.state = POSTERN_STATE_POISONED,
		.handler = "worst",
		.limit = 10,
	};
	if (!CHECK_OK(postern_box_list(box, &filter, &listing, &error), &error)) {
		return;
	}
	if (CHECK_INT(postern_listing_count(listing), 2)) {
		const struct postern_row *row = postern_listing_get(listing, 1);
		CHECK_STR(row->message_id, "1");
		CHECK_STR(row->handler, "bad");
		CHECK_INT(row->failures, 2);
		CHECK_STR(row->last_error, "no stock");
	}
	postern_listing_destroy(listing);
}

static void check_detail(struct postern_box *box) {
	struct postern_error error;
	struct postern_detail *detail = NULL;
	if (!CHECK_OK(postern_box_get(box, 1, &detail, &error), &error)) {
		return;
	}
	CHECK_STR(detail->channel, "orders");
	CHECK_STR(detail->message->source, "/shop");
	CHECK_STR(detail->message->headers[1].name, "second");
	CHECK_INT(detail->message->body_len, 1);
	CHECK_INT(detail->duplicate_count, 1);
	CHECK_INT(detail->conflicts[0].body_len, 5);
	if (CHECK_INT(detail->delivery_count, 2)) {
		const struct postern_delivery_detail *bad = &detail->deliveries[1];
		CHECK_STR(bad->row.handler, "bad");
		CHECK_INT(bad->row.state, POSTERN_STATE_POISONED);
		CHECK_INT(bad->attempt_count, 2);
		CHECK_STR(bad->attempts[1].error, "no stock");
		CHECK_STR(bad->attempts[1].outcome, "retry");
	}
	postern_detail_destroy(detail);
}

static void check_stats(struct postern_box *box) {
	struct postern_error error;
	struct postern_stats *stats = NULL;
	if (!CHECK_OK(postern_box_stats(box, &stats, &error), &error)) {
		return;
	}
	CHECK_STR(stats->store, "memory");
	CHECK_INT(stats->channel_count, 2);
	CHECK_STR(stats->channels[1].name, "parked");
	CHECK_INT(stats->channels[0].conflicts, 1);
	CHECK_INT(stats->channels[1].parked, 1);
	CHECK_INT(stats->handler_count, 2);
	CHECK_STR(stats->handlers[1].key, "bad");
	CHECK_INT(stats->handlers[0].done, 2);
	CHECK_INT(stats->handlers[1].poisoned, 2);
	CHECK_INT(stats->key_count, 4);
	CHECK_STR(stats->keys[3].key, "worst");
	CHECK_STR(stats->keys[3].handler, "bad");
	postern_stats_destroy(stats);
}

static void operate(struct scene *scene) {
	struct postern_error error;
	uint64_t count = 0;
	const struct postern_filter filter = {
		.size = sizeof filter,
		.state = POSTERN_STATE_POISONED,
		.limit = 1,
	};
	CHECK_OK(postern_box_retry_all(scene->box, &filter, true, &count, &error),
			&error);
	CHECK_INT(count, 1);
	CHECK_OK(postern_box_pause(scene->box, "bad", &error), &error);
	CHECK_OK(postern_box_retry(scene->box, 1, "bad", &error), &error);
	CHECK_OK(postern_box_discard(scene->box, 1, "bad", &error), &error);
	CHECK_OK(postern_box_resume(scene->box, "bad", &error), &error);
	struct postern_cleanup cleanup = { .size = sizeof cleanup };
	CHECK_OK(postern_box_cleanup(scene->box, &cleanup, &error), &error);
	CHECK_INT(cleanup.size, sizeof cleanup);
	CHECK(!cleanup.busy && !cleanup.stopped);
}

static void a_box_works(void) {
	struct scene scene = { 0 };
	struct postern_error error;
	size_t count = 0;
	if (scene_open(&scene)) {
		accept_all(&scene);
		CHECK_OK(postern_box_process(scene.box, 0, &count, &error), &error);
		CHECK_INT(count, 6);
		CHECK_INT(scene.good.count, 2);
		CHECK_INT(scene.bad.attempts, 6);
		CHECK_INT(scene.seen.poisoned, 2);
		CHECK_STR(scene.seen.handler, "bad");
		CHECK_STR(scene.seen.error, "no stock");
		check_listing(scene.box);
		check_detail(scene.box);
		check_stats(scene.box);
		operate(&scene);
	}
	postern_box_destroy(scene.box);
}

static void check_sources(struct postern_runner *runner) {
	struct postern_source_state states[2];
	for (int i = 0; i < 1000; i++) {
		CHECK_INT(postern_runner_sources(runner, states, sizeof states[0], 2),
				2);
		if (states[1].accepted > 0) {
			break;
		}
		(void)usleep(10000);
	}
	CHECK_STR(states[0].name, "a");
	CHECK_STR(states[1].name, "b");
	CHECK_STR(states[1].kind, "lines");
	CHECK_STR(states[1].channel, "parked");
	CHECK_INT(states[1].accepted, 1);
}

static void a_runner_and_its_sources_work(void) {
	struct scene scene = { 0 };
	struct postern_error error;
	struct postern_runner *runner = NULL;
	char path[] = "/tmp/postern-frozen-XXXXXX";
	int fd = mkstemp(path);
	static const char line[] = "{\"specversion\":\"1.0\",\"id\":\"l\","
							   "\"source\":\"/f\",\"type\":\"t\"}\n";
	CHECK_INT(write(fd, line, sizeof line - 1), sizeof line - 1);
	const struct postern_runner_options options = {
		.size = sizeof options,
		.workers = 2,
	};
	const struct postern_source_setting settings[] = {
		{ "file", path },
		{ "follow", "off" },
	};
	struct postern_source_options source = {
		.size = sizeof source,
		.name = "a",
		.channel = "orders",
		.in_flight_max = 5,
	};
	if (scene_open(&scene) && CHECK_OK(postern_runner_create(scene.box,
											   &options, &runner, &error),
									  &error)) {
		CHECK_OK(postern_runner_add_source(runner, &source, "lines", settings,
						 2, &error),
				&error);
		source.name = "b";
		source.channel = "parked";
		CHECK_OK(postern_runner_add_source(runner, &source, "lines", settings,
						 2, &error),
				&error);
		CHECK_OK(postern_runner_start(runner, &error), &error);
		check_sources(runner);
		CHECK_OK(postern_runner_health(runner, &error), &error);
		CHECK_OK(postern_runner_drain(runner, 1000, &error), &error);
	}
	postern_runner_destroy(runner);
	postern_box_destroy(scene.box);
	(void)close(fd);
	(void)unlink(path);
}

static void a_generation_is_replaced(void) {
	struct scene scene = { 0 };
	struct postern_error error;
	struct postern_generation *next = NULL;
	struct calls calls = { 0 };
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "good",
		.callback = succeed,
		.context = &calls,
	};
	struct postern_message message = message_of("9", "nine");
	if (scene_open(&scene) &&
			CHECK_OK(postern_generation_create(scene.box, &next, &error),
					&error)) {
		CHECK_OK(postern_generation_add_channel(next, "orders", NULL, &error),
				&error);
		CHECK_OK(postern_generation_add_handler(next, "orders", &handler,
						 &error),
				&error);
		CHECK_OK(postern_box_replace_taking(scene.box, next, &error), &error);
		CHECK_OK(postern_box_accept(scene.box, "orders", &message, NULL,
						 &error),
				&error);
		CHECK_OK(postern_box_process(scene.box, 0, NULL, &error), &error);
		CHECK_INT(calls.count, 1);
		CHECK_STR(calls.body, "nine");
	}
	postern_box_destroy(scene.box);
}

static const struct tap_case cases[] = {
	{ "a program compiled with the frozen headers uses a box", a_box_works },
	{ "a program compiled with the frozen headers runs sources",
			a_runner_and_its_sources_work },
	{ "a program compiled with the frozen headers replaces a generation",
			a_generation_is_replaced },
};

TAP_MAIN(cases)
