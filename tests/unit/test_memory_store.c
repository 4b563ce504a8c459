/* SPDX-License-Identifier: MIT */

/*
 * Behaviour of the memory store alone; tests/conformance tests what every store
 * does.
 */

#include <postern/sys/memory.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/identity.h"
#include "store/store.h"
#include "support/fake_clock.h"
#include "tap.h"

struct bench {
	struct fake_clock clock;
	struct fake_random random;
	struct postern_store *store;
	struct postern_error error;
	int64_t channel;
	int64_t handler;
};

static bool bench_open(struct bench *bench, size_t bytes_max) {
	*bench = (struct bench){ 0 };
	fake_clock_init(&bench->clock);
	fake_random_init(&bench->random, 1);
	struct postern_store_options options = {
		.size = sizeof options,
		.clock = &bench->clock.base,
		.random = &bench->random.base,
	};
	if (!CHECK_OK(postern__memory_open(bytes_max, &options, &bench->store,
						  &bench->error),
				&bench->error)) {
		return false;
	}
	struct postern_enrol_channel channel = { .name = "c" };
	struct postern_enrol_handler handler = { .key = "h" };
	struct postern_enrolment enrolment = {
		.node = 1,
		.channels = &channel,
		.channel_count = 1,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(bench->store->ops->enrol(bench->store, &enrolment, &bench->error),
			&bench->error);
	bench->channel = channel.id;
	bench->handler = handler.id;
	return true;
}

/* Send `count` messages from number `first` on in one batch. */
static int send_batch(struct bench *bench, size_t first, size_t count,
		size_t body_len, int *code_out) {
	struct postern_accept *accepts = calloc(count, sizeof *accepts);
	struct postern_message *messages = calloc(count, sizeof *messages);
	struct postern_route *routes = calloc(count, sizeof *routes);
	char(*ids)[24] = calloc(count, sizeof *ids);
	char *body = calloc(1, body_len + 1);
	for (size_t i = 0; i < count; i++) {
		(void)snprintf(ids[i], sizeof ids[i], "%zu", first + i);
		messages[i] = (struct postern_message){
			.size = sizeof messages[i],
			.id = ids[i],
			.source = "s",
			.type = "t",
			.body = body,
			.body_len = body_len,
		};
		routes[i].handler = bench->handler;
		accepts[i] = (struct postern_accept){
			.message = &messages[i],
			.key = postern__dedupe_key_by_id(&messages[i]),
			.channel = bench->channel,
			.routes = &routes[i],
			.route_count = 1,
		};
	}
	struct postern_batch batch = {
		.node = 1,
		.accepts = accepts,
		.accept_count = count,
	};
	int r = bench->store->ops->apply(bench->store, &batch, &bench->error);
	if (code_out) {
		*code_out = accepts[0].code;
	}
	free(accepts);
	free(messages);
	free(routes);
	free(ids);
	free(body);
	return r;
}

/* Claim up to `max` deliveries and settle them as done; returns how many. */
static size_t claim_and_finish(struct bench *bench, uint32_t max) {
	struct postern_memory *memory = postern_memory_create();
	struct postern_want want = { .handler = bench->handler, .max = max };
	struct postern_claim claim = {
		.node = 1,
		.wants = &want,
		.want_count = 1,
		.max = max,
		.bytes_max = SIZE_MAX,
	};
	struct postern_claims claims = { 0 };
	CHECK_OK(bench->store->ops->claim(bench->store, &claim, memory, &claims,
					 &bench->error),
			&bench->error);
	struct postern_settlement *settlements =
			calloc(claims.count + 1, sizeof *settlements);
	for (size_t i = 0; i < claims.count; i++) {
		settlements[i] = (struct postern_settlement){
			.seq = claims.items[i].seq,
			.handler = claims.items[i].handler,
			.fence = claims.items[i].fence,
			.outcome = "done",
		};
	}
	struct postern_batch batch = {
		.node = 1,
		.settlements = settlements,
		.settlement_count = claims.count,
	};
	CHECK_OK(bench->store->ops->apply(bench->store, &batch, &bench->error),
			&bench->error);
	free(settlements);
	postern_memory_destroy(memory);
	return claims.count;
}

static void is_bounded(void) {
	struct bench bench;
	if (!bench_open(&bench, 100000)) {
		return;
	}
	size_t count = 0;
	int r;
	while ((r = send_batch(&bench, count, 1, 1000, NULL)) == POSTERN_OK &&
			count < 1000) {
		count++;
	}
	CHECK_INT(r, POSTERN_E_UNAVAILABLE);
	CHECK_CONTAINS(bench.error.text, "full");
	CHECK(count > 30);
	CHECK(count < 100);
	/* Small messages are refused too once the store is full; copies are still
	   duplicates. */
	CHECK_INT(send_batch(&bench, 2000, 100, 10, NULL), POSTERN_E_UNAVAILABLE);
	int code = POSTERN_OK;
	CHECK_OK(send_batch(&bench, 0, 1, 1000, &code), &bench.error);
	CHECK_INT(code, POSTERN_E_DUPLICATE);
	/* Refused messages were not stored, and the stored ones can be
	   processed. */
	CHECK_INT(claim_and_finish(&bench, 2000), count);
	postern_store_destroy(bench.store);
}

/* Exceeds the timeout of the test if the time is quadratic. */
static void many_messages(void) {
	enum { COUNT = 100000, BATCH = 1000 };
	struct bench bench;
	if (!bench_open(&bench, POSTERN__MEMORY_BYTES_MAX)) {
		return;
	}
	for (size_t i = 0; i < COUNT; i += BATCH) {
		CHECK_OK(send_batch(&bench, i, BATCH, 10, NULL), &bench.error);
	}
	size_t count = 0;
	for (size_t taken = 1; taken > 0; count += taken) {
		taken = claim_and_finish(&bench, 100);
	}
	CHECK_INT(count, COUNT);
	int code = POSTERN_OK;
	CHECK_OK(send_batch(&bench, COUNT - 1, 1, 10, &code), &bench.error);
	CHECK_INT(code, POSTERN_E_DUPLICATE);
	postern_store_destroy(bench.store);
}

static const struct tap_case cases[] = {
	{ "a full store refuses new messages and processes the stored ones",
			is_bounded },
	{ "a hundred thousand messages take linear time", many_messages },
};

TAP_MAIN(cases)
