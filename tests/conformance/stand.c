/* SPDX-License-Identifier: MIT */

/*
 * Helpers of the suite: each calls one operation of the contract and checks
 * that the operation as a whole did not fail.
 */

#include "conformance/stand.h"
#include "core/error_group.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/identity.h"

#define LEGACY_KEY_MAX 8
#define KEY_TEXT_MAX 256
#define LIST_LIMIT 1000

static struct postern_store_options options_of(struct stand *stand) {
	return (struct postern_store_options){
		.size = sizeof(struct postern_store_options),
		.command_timeout_ms = 10000,
		.clock = &stand->clock.base,
		.random = &stand->random.base,
	};
}

/* No case can continue without its store. */
static void set_store(struct stand *stand, struct postern_store *store) {
	if (!store) {
		(void)fprintf(stderr, "cannot open the store under test\n");
		abort();
	}
	stand->store = store;
	stand->ops = store->ops;
}

void stand_open(struct stand *stand, ...) {
	struct stand_handler handlers[STAND_HANDLER_MAX] = { 0 };
	size_t count = 0;

	*stand = (struct stand){ .node = 1001 };
	fake_clock_init(&stand->clock);
	fake_random_init(&stand->random, 42);
	struct postern_store_options options = options_of(stand);
	set_store(stand, conformance_target.open(&options));
	stand->memory = postern_memory_create();

	va_list keys;
	va_start(keys, stand);
	for (const char *key; (key = va_arg(keys, const char *)); count++) {
		handlers[count].key = key;
		handlers[count].max_crashes = 3;
	}
	va_end(keys);
	CHECK_OK(stand_enrol(stand, handlers, count), &stand->error);
	for (size_t i = 0; i < count; i++) {
		stand->handlers[i] = handlers[i].id;
	}
}

void stand_close(struct stand *stand) {
	conformance_target.close(stand->store);
	postern_memory_destroy(stand->memory);
}

void stand_crash(struct stand *stand) {
	struct postern_store_options options = options_of(stand);
	set_store(stand, conformance_target.reopen(stand->store, &options));
	/* A store that was not reopened does not know that its node died. */
	bool alive;
	CHECK_OK(stand->ops->renew(stand->store, stand->node, 0, &alive,
					 &stand->error),
			&stand->error);
	stand->node++;
}

int64_t stand_now(struct stand *stand) {
	return fake_clock_now(&stand->clock);
}

/* Splits a text at its blanks, in place. */
static size_t split_keys(char *text, const char **out) {
	size_t count = 0;
	for (char *word = text; word && *word; count++) {
		char *blank = strchr(word, ' ');
		if (blank) {
			*blank++ = '\0';
		}
		out[count] = word;
		word = blank;
	}
	return count;
}

int stand_enrol(struct stand *stand, struct stand_handler *handlers,
		size_t count) {
	struct postern_enrol_channel channels[] = {
		{ .name = "orders" },
		{ .name = "bills" },
	};
	struct postern_enrol_handler items[STAND_HANDLER_MAX];
	char texts[STAND_HANDLER_MAX][KEY_TEXT_MAX];
	const char *keys[STAND_HANDLER_MAX][LEGACY_KEY_MAX];

	memset(items, 0, sizeof items);
	for (size_t i = 0; i < count; i++) {
		const char *legacy = handlers[i].legacy_keys;
		(void)snprintf(texts[i], KEY_TEXT_MAX, "%s", legacy ? legacy : "");
		items[i].key = handlers[i].key;
		items[i].legacy_keys = keys[i];
		items[i].legacy_key_count = split_keys(texts[i], keys[i]);
		items[i].in_process = handlers[i].in_process;
		items[i].max_crashes = handlers[i].max_crashes;
		items[i].dedupe_ms = handlers[i].dedupe_ms;
	}
	struct postern_enrolment enrolment = {
		.node = stand->node,
		.channels = channels,
		.channel_count = 2,
		.handlers = items,
		.handler_count = count,
	};
	int r = stand->ops->enrol(stand->store, &enrolment, &stand->error);
	if (r != POSTERN_OK) {
		return r;
	}
	stand->orders = channels[0].id;
	stand->bills = channels[1].id;
	for (size_t i = 0; i < count; i++) {
		handlers[i].id = items[i].id;
		struct postern_halt pause;
		r = stand->ops->read_pauses(stand->store, &items[i].id, 1, NULL, &pause,
				&stand->error);
		handlers[i].paused = r == POSTERN_OK && pause.on;
		if (r != POSTERN_OK) {
			return r;
		}
	}
	return r;
}

int64_t stand_enrol_one(struct stand *stand, const char *key,
		const char *legacy_keys) {
	struct stand_handler handler = {
		.key = key,
		.legacy_keys = legacy_keys,
		.max_crashes = 3,
	};
	CHECK_OK(stand_enrol(stand, &handler, 1), &stand->error);
	return handler.id;
}

void stand_enrol_in_process(struct stand *stand, uint32_t max_crashes, ...) {
	struct stand_handler handlers[STAND_HANDLER_MAX] = { 0 };
	size_t count = 0;
	va_list keys;
	va_start(keys, max_crashes);
	for (const char *key; (key = va_arg(keys, const char *)); count++) {
		handlers[count].key = key;
		handlers[count].in_process = true;
		handlers[count].max_crashes = max_crashes;
	}
	va_end(keys);
	CHECK_OK(stand_enrol(stand, handlers, count), &stand->error);
	for (size_t i = 0; i < count; i++) {
		stand->handlers[i] = handlers[i].id;
	}
}

void parcel_init(struct parcel *parcel, const struct stand *stand,
		const char *id, const char *body) {
	*parcel = (struct parcel){
		.message = {
			.size = sizeof(struct postern_message),
			.id = id,
			.source = "shop",
			.type = "order.paid",
			.body = body,
			.body_len = strlen(body),
		},
		.accept = {
			.channel = stand->orders,
			.fate = POSTERN_FATE_PARK,
		},
	};
}

struct postern_route *parcel_add_route(struct parcel *parcel, int64_t handler) {
	struct postern_route *route = &parcel->routes[parcel->accept.route_count];
	parcel->accept.route_count++;
	parcel->accept.fate = POSTERN_FATE_KEEP;
	*route = (struct postern_route){ .handler = handler };
	return route;
}

void parcel_pack(struct parcel *parcel) {
	parcel->accept.message = &parcel->message;
	parcel->accept.routes = parcel->routes;
	parcel->accept.key = parcel->key
								 ? *parcel->key
								 : postern__dedupe_key_by_id(&parcel->message);
}

void parcel_send_all(struct stand *stand, struct parcel *parcels,
		size_t count) {
	struct postern_accept *accepts =
			calloc(count + 1, sizeof(struct postern_accept));
	for (size_t i = 0; i < count; i++) {
		parcel_pack(&parcels[i]);
		accepts[i] = parcels[i].accept;
		accepts[i].code = -99;
	}
	struct postern_batch batch = {
		.node = stand->node,
		.accepts = accepts,
		.accept_count = count,
	};
	CHECK_OK(stand->ops->apply(stand->store, &batch, &stand->error),
			&stand->error);
	for (size_t i = 0; i < count; i++) {
		parcels[i].accept = accepts[i];
	}
	free(accepts);
}

int parcel_send(struct stand *stand, struct parcel *parcel) {
	parcel_send_all(stand, parcel, 1);
	return parcel->accept.code;
}

static int64_t accept_one(struct stand *stand, const char *id, int64_t handler,
		bool lease) {
	struct parcel parcel;
	parcel_init(&parcel, stand, id, "body");
	parcel_add_route(&parcel, handler)->lease = lease;
	CHECK_INT(parcel_send(stand, &parcel), POSTERN_OK);
	return parcel.accept.seq;
}

int64_t stand_accept(struct stand *stand, const char *id, int64_t handler) {
	return accept_one(stand, id, handler, false);
}

int64_t stand_accept_leased(struct stand *stand, const char *id,
		int64_t handler) {
	return accept_one(stand, id, handler, true);
}

int64_t stand_accept_many(struct stand *stand, size_t count, int64_t handler) {
	char(*ids)[24] = calloc(count, sizeof *ids);
	struct parcel *parcels = calloc(count, sizeof *parcels);
	for (size_t i = 0; i < count; i++) {
		(void)snprintf(ids[i], sizeof ids[i], "m%zu", i);
		parcel_init(&parcels[i], stand, ids[i], "body");
		parcel_add_route(&parcels[i], handler);
	}
	parcel_send_all(stand, parcels, count);
	int64_t first = parcels[0].accept.seq;
	free(parcels);
	free(ids);
	return first;
}

int64_t stand_park(struct stand *stand, const char *id) {
	struct parcel parcel;
	parcel_init(&parcel, stand, id, "body");
	CHECK_INT(parcel_send(stand, &parcel), POSTERN_OK);
	return parcel.accept.seq;
}

int stand_settle(struct stand *stand, struct postern_settlement settlement) {
	settlement.code = -99;
	settlement.group = postern__error_group(settlement.error);
	struct postern_batch batch = {
		.node = stand->node,
		.settlements = &settlement,
		.settlement_count = 1,
	};
	CHECK_OK(stand->ops->apply(stand->store, &batch, &stand->error),
			&stand->error);
	return settlement.code;
}

int stand_settle_to(struct stand *stand, int64_t seq, int64_t handler,
		uint64_t fence, enum postern_settle_to to) {
	static const char *const outcomes[] = {
		[POSTERN_SETTLE_DONE] = "done",
		[POSTERN_SETTLE_POISONED] = "poison",
		[POSTERN_SETTLE_DISCARDED] = "discard",
		[POSTERN_SETTLE_PENDING] = "retry",
		[POSTERN_SETTLE_RETURNED] = "returned",
	};
	return stand_settle(stand, (struct postern_settlement){
									   .seq = seq,
									   .handler = handler,
									   .fence = fence,
									   .to = to,
									   .outcome = outcomes[to],
							   });
}

void stand_finish(struct stand *stand, int64_t seq, int64_t handler,
		enum postern_settle_to to) {
	struct postern_claims claims = stand_claim(stand, handler, 100);
	bool found = false;
	for (size_t i = 0; i < claims.count; i++) {
		const struct postern_claimed *item = &claims.items[i];
		bool meant = item->seq == seq;
		found = found || meant;
		CHECK_INT(stand_settle_to(stand, item->seq, handler, item->fence,
						  meant ? to : POSTERN_SETTLE_RETURNED),
				POSTERN_OK);
	}
	CHECK(found);
}

struct postern_claims stand_claim_full(struct stand *stand,
		const struct postern_claim *claim) {
	struct postern_claims claims = { 0 };
	CHECK_OK(stand->ops->claim(stand->store, claim, stand->memory, &claims,
					 &stand->error),
			&stand->error);
	return claims;
}

struct postern_claims stand_claim_wants(struct stand *stand,
		const struct postern_want *wants, size_t count, size_t max) {
	struct postern_claim claim = {
		.node = stand->node,
		.wants = wants,
		.want_count = count,
		.max = max,
		.bytes_max = SIZE_MAX,
	};
	return stand_claim_full(stand, &claim);
}

struct postern_claims stand_claim(struct stand *stand, int64_t handler,
		uint32_t max) {
	struct postern_want want = { .handler = handler, .max = max };
	return stand_claim_wants(stand, &want, 1, max);
}

struct postern_claims stand_claim_in_process(struct stand *stand,
		int64_t handler, uint32_t max) {
	struct postern_want want = {
		.handler = handler,
		.max = max,
		.in_process = true,
	};
	return stand_claim_wants(stand, &want, 1, max);
}

struct postern_recovered stand_recover(struct stand *stand) {
	struct postern_recovered recovered = { 0 };
	struct postern_recovery recovery = { .node = stand->node, .max = 100000 };
	CHECK_OK(stand->ops->recover(stand->store, &recovery, &recovered,
					 &stand->error),
			&stand->error);
	CHECK(!recovered.more);
	return recovered;
}

struct postern_detail stand_get(struct stand *stand, int64_t seq) {
	struct postern_detail detail = { 0 };
	CHECK_OK(stand->ops->get(stand->store, seq, stand->memory, &detail,
					 &stand->error),
			&stand->error);
	return detail;
}

const struct postern_delivery_detail *stand_delivery(struct stand *stand,
		int64_t seq, const char *key) {
	struct postern_detail detail = stand_get(stand, seq);
	for (size_t i = 0; i < detail.delivery_count; i++) {
		if (strcmp(detail.deliveries[i].row.handler, key) == 0) {
			return &detail.deliveries[i];
		}
	}
	return NULL;
}

struct postern_row stand_row(struct stand *stand, int64_t seq,
		const char *key) {
	const struct postern_delivery_detail *delivery =
			stand_delivery(stand, seq, key);
	return delivery ? delivery->row : (struct postern_row){ 0 };
}

enum postern_state stand_state(struct stand *stand, int64_t seq,
		const char *key) {
	return stand_row(stand, seq, key).state;
}

struct postern_page stand_list(struct stand *stand,
		const struct postern_filter *filter) {
	struct postern_page page = { 0 };
	struct postern_filter limited = *filter;
	limited.size = sizeof limited;
	limited.limit = limited.limit ? limited.limit : LIST_LIMIT;
	struct postern_query query = { .filter = &limited };
	CHECK_OK(stand->ops->list(stand->store, &query, stand->memory, &page,
					 &stand->error),
			&stand->error);
	return page;
}

struct postern_stats stand_stats(struct stand *stand) {
	struct postern_stats stats = { 0 };
	CHECK_OK(stand->ops->stats(stand->store, stand->memory, &stats,
					 &stand->error),
			&stand->error);
	return stats;
}

struct postern_handler_stats stand_handler_stats(struct stand *stand,
		const char *key) {
	struct postern_stats stats = stand_stats(stand);
	for (size_t i = 0; i < stats.handler_count; i++) {
		if (strcmp(stats.handlers[i].key, key) == 0) {
			return stats.handlers[i];
		}
	}
	return (struct postern_handler_stats){ 0 };
}

struct postern_channel_stats stand_channel_stats(struct stand *stand,
		const char *name) {
	struct postern_stats stats = stand_stats(stand);
	for (size_t i = 0; i < stats.channel_count; i++) {
		if (strcmp(stats.channels[i].name, name) == 0) {
			return stats.channels[i];
		}
	}
	return (struct postern_channel_stats){ 0 };
}

int stand_edit(struct stand *stand, enum postern_change_kind kind, int64_t seq,
		const char *key, uint64_t *count_out) {
	struct postern_edit edit = { .kind = kind, .seq = seq, .handler = key };
	int r = stand->ops->edit(stand->store, &edit, &stand->error);
	if (count_out) {
		*count_out = edit.count;
	}
	return r;
}

int stand_edit_all(struct stand *stand, enum postern_change_kind kind,
		const struct postern_filter *filter, bool dry_run,
		uint64_t *count_out) {
	struct postern_filter limited = *filter;
	limited.size = sizeof limited;
	limited.limit = limited.limit ? limited.limit : LIST_LIMIT;
	struct postern_edit edit = {
		.kind = kind,
		.filter = &limited,
		.dry_run = dry_run,
	};
	int r = stand->ops->edit(stand->store, &edit, &stand->error);
	*count_out = edit.count;
	return r;
}

void stand_pause(struct stand *stand, const char *key) {
	CHECK_OK(stand_edit(stand, POSTERN_CHANGE_PAUSE, 0, key, NULL),
			&stand->error);
}

void stand_resume(struct stand *stand, const char *key) {
	CHECK_OK(stand_edit(stand, POSTERN_CHANGE_RESUME, 0, key, NULL),
			&stand->error);
}
