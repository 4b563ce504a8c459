/* SPDX-License-Identifier: MIT */

/*
 * Every allocation of every operation fails once: the operation must
 * return an error and leave the store unchanged. A text of everything readable
 * in the store must be the same as before, and the operation must succeed when
 * it is repeated.
 *
 * The linker redirects the allocator to the functions below (--wrap);
 * allocations inside shared libraries are not affected.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/stand.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

/* The allocation that fails, counted from 1; 0: none. */
static size_t failing;
static size_t allocations;

static bool allocation_fails(void) {
	return failing > 0 && ++allocations == failing;
}

void *__wrap_malloc(size_t size) {
	return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
	return allocation_fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) {
	return allocation_fails() ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text) {
	return allocation_fails() ? NULL : __real_strdup(text);
}

static void enrol_both(struct stand *stand) {
	struct stand_handler handlers[] = {
		{ .key = "in", .in_process = true, .max_crashes = 2 },
		{ .key = "out" },
	};
	CHECK_OK(stand_enrol(stand, handlers, 2), &stand->error);
	stand->handlers[0] = handlers[0].id;
	stand->handlers[1] = handlers[1].id;
}

/* Messages with a delivery of handler "out": one pending, one poisoned. */
static int64_t pending_seq;
static int64_t poisoned_seq;

/* Open a store with deliveries in every state, and with leases of an expired
   node: of a solo suspect, of in-process handlers that are not suspects yet,
   and of handlers outside the process. */
static void open_populated(struct stand *stand) {
	stand_open(stand, NULL);
	enrol_both(stand);
	stand_accept_leased(stand, "alone", stand->handlers[0]);
	stand_crash(stand);
	enrol_both(stand);
	stand_recover(stand);
	CHECK_INT(stand_claim_in_process(stand, stand->handlers[0], 1).count, 1);

	poisoned_seq = stand_accept_leased(stand, "poisoned", stand->handlers[1]);
	CHECK_INT(stand_settle(stand,
					  (struct postern_settlement){
							  .seq = poisoned_seq,
							  .handler = stand->handlers[1],
							  .fence = 1,
							  .to = POSTERN_SETTLE_POISONED,
							  .outcome = "poison",
							  .error = "no way",
					  }),
			POSTERN_OK);
	int64_t seq = stand_accept(stand, "done", stand->handlers[1]);
	stand_finish(stand, seq, stand->handlers[1], POSTERN_SETTLE_DONE);
	stand_accept_leased(stand, "lost 1", stand->handlers[0]);
	stand_accept_leased(stand, "lost 2", stand->handlers[0]);
	stand_accept_leased(stand, "lost 3", stand->handlers[1]);
	stand_park(stand, "parked 1");
	stand_park(stand, "parked 2");
	pending_seq = stand_accept(stand, "pending 1", stand->handlers[1]);
	stand_accept(stand, "pending 2", stand->handlers[1]);
	stand_crash(stand);
	enrol_both(stand);
}

/* Everything readable in a store, as a text in the stand's memory. */
struct view {
	char *text;
	size_t len;
	size_t size;
};

__attribute__((format(printf, 2, 3))) static void view_print(struct view *view,
		const char *format, ...) {
	va_list args;
	va_start(args, format);
	int len = vsnprintf(view->text + view->len, view->size - view->len, format,
			args);
	va_end(args);
	if (CHECK(len >= 0 && (size_t)len < view->size - view->len)) {
		view->len += (size_t)len;
	}
}

static void print_message(struct stand *stand, struct view *view, int64_t seq) {
	struct postern_detail detail = stand_get(stand, seq);
	view_print(view, "%" PRId64 " %s %s %" PRIu64 " %" PRIu64 " %zu\n", seq,
			detail.channel, detail.message->id, detail.duplicate_count,
			detail.conflict_count, detail.conflict_kept);
	for (size_t i = 0; i < detail.delivery_count; i++) {
		const struct postern_delivery_detail *delivery = &detail.deliveries[i];
		const struct postern_row *row = &delivery->row;
		view_print(view,
				"  '%s' %d fence %" PRIu64 " %u %u %u, %" PRId64 " %" PRId64
				" %" PRId64 ", %zu attempts, %s\n",
				row->handler, (int)row->state, row->fence, row->failures,
				row->starts, row->crashes, row->next_at_ms, row->leased_at_ms,
				row->finished_at_ms, delivery->attempt_count,
				row->last_error ? row->last_error : "-");
	}
}

static const char *describe_store(struct stand *stand) {
	struct view view = { .size = 20000 };
	view.text = postern_memory_alloc(stand->memory, view.size);
	struct postern_stats stats = stand_stats(stand);
	for (size_t i = 0; i < stats.channel_count; i++) {
		const struct postern_channel_stats *channel = &stats.channels[i];
		view_print(&view,
				"%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
				channel->name, channel->accepted, channel->duplicates,
				channel->conflicts, channel->parked);
	}
	for (size_t i = 0; i < stats.handler_count; i++) {
		const struct postern_handler_stats *handler = &stats.handlers[i];
		view_print(&view,
				"%s %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
				"\n",
				handler->key, handler->paused, handler->pending,
				handler->leased, handler->poisoned, handler->done,
				handler->discarded);
	}
	int64_t last = 0;
	struct postern_page page = stand_list(stand, &(struct postern_filter){ 0 });
	for (size_t i = 0; i < page.count; i++) {
		if (page.rows[i].seq != last) {
			last = page.rows[i].seq;
			print_message(stand, &view, last);
		}
	}
	return view.text;
}

/* One operation on the store, with results in a memory of its own. */
typedef int operation(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error);

static void nothing_to_prepare(struct stand *stand) {
	(void)stand;
}

static void recover_first(struct stand *stand) {
	stand_recover(stand);
}

/* Fail the first allocation, then the second, until the operation succeeds. */
static void fail_each(operation *run, void (*prepare)(struct stand *stand)) {
	struct postern_error error;
	size_t number = 1;
	for (int r = POSTERN_E_NOMEM; r != POSTERN_OK && number < 500; number++) {
		struct stand stand;
		open_populated(&stand);
		prepare(&stand);
		const char *before = describe_store(&stand);
		struct postern_memory *memory = postern_memory_create();
		allocations = 0;
		failing = number;
		r = run(&stand, memory, &error);
		failing = 0;
		if (r != POSTERN_OK) {
			CHECK_INT(r, POSTERN_E_NOMEM);
			CHECK_STR(describe_store(&stand), before);
			CHECK_OK(run(&stand, memory, &error), &error);
		}
		postern_memory_destroy(memory);
		stand_close(&stand);
	}
	/* At least one allocation failed, except in PostgreSQL, where some
	   operations run entirely in the server. */
	CHECK(number > 2 || strcmp(conformance_target.name, "postgres") == 0);
}

static int run_enrol(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	static const char *const legacy[] = { "out", "older" };
	static const char *const in_legacy[] = { "former" };
	(void)memory;
	struct postern_enrol_channel channels[] = {
		{ .name = "orders" },
		{ .name = "a new one" },
	};
	struct postern_enrol_handler handlers[] = {
		{ .key = "renamed", .legacy_keys = legacy, .legacy_key_count = 2 },
		{ .key = "in", .legacy_keys = in_legacy, .legacy_key_count = 1 },
		{ .key = "fresh" },
	};
	struct postern_enrolment enrolment = {
		.node = stand->node + 50,
		.channels = channels,
		.channel_count = 2,
		.handlers = handlers,
		.handler_count = 3,
	};
	return stand->ops->enrol(stand->store, &enrolment, error);
}

static int run_apply(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	static const char *const ids[] = { "new", "parked 1", "done", "new",
		"new and parked" };
	struct parcel parcels[5];
	struct postern_accept accepts[5];
	const struct postern_dedupe_key key = { .value = "key", .value_len = 3 };
	(void)memory;
	for (size_t i = 0; i < 5; i++) {
		parcel_init(&parcels[i], stand, ids[i], i == 2 ? "other" : "body");
		if (i < 4) {
			parcel_add_route(&parcels[i], stand->handlers[i == 3])->lease =
					i == 0;
			parcel_add_route(&parcels[i], stand->handlers[i != 3])->key = &key;
		}
		parcel_pack(&parcels[i]);
		accepts[i] = parcels[i].accept;
	}
	struct postern_settlement settlement = {
		.seq = pending_seq,
		.handler = stand->handlers[1],
		.fence = 1,
		.to = POSTERN_SETTLE_PENDING,
		.outcome = "retry",
		.error = "no luck",
		.group = 7,
	};
	struct postern_batch batch = {
		.node = stand->node,
		.settlements = &settlement,
		.settlement_count = 1,
		.accepts = accepts,
		.accept_count = 5,
	};
	return stand->ops->apply(stand->store, &batch, error);
}

static int run_claim(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	struct postern_want wants[] = {
		{ .handler = stand->handlers[0], .max = 10, .in_process = true },
		{ .handler = stand->handlers[1], .max = 10 },
	};
	struct postern_claim claim = {
		.node = stand->node,
		.wants = wants,
		.want_count = 2,
		.max = 100,
		.bytes_max = SIZE_MAX,
	};
	struct postern_claims claims;
	return stand->ops->claim(stand->store, &claim, memory, &claims, error);
}

static int run_recover(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	(void)memory;
	struct postern_recovered recovered;
	struct postern_recovery recovery = { .node = stand->node, .max = 100 };
	return stand->ops->recover(stand->store, &recovery, &recovered, error);
}

/* Enrol only "in", so that every open delivery of "out" is an orphan. */
static void enrol_in_only(struct stand *stand) {
	struct stand_handler handler = { .key = "in", .in_process = true };
	CHECK_OK(stand_enrol(stand, &handler, 1), &stand->error);
	stand_recover(stand);
}

static int run_orphans(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	struct postern_orphan *orphans;
	size_t count;
	return stand->ops->orphans(stand->store, stand->node, NULL, true, 100,
			memory, &orphans, &count, error);
}

static size_t route_all(void *context, int64_t channel, const char *type,
		const struct postern_message *message, struct postern_route *routes,
		size_t max) {
	const struct stand *stand = context;
	(void)channel;
	(void)type;
	(void)message;
	if (max < 2) {
		return 0;
	}
	routes[0] = (struct postern_route){ .handler = stand->handlers[0] };
	routes[1] = (struct postern_route){ .handler = stand->handlers[1] };
	return 2;
}

static int run_unpark(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	(void)memory;
	int64_t cursor = 0;
	uint64_t count;
	return stand->ops->unpark(stand->store, route_all, stand, 100, &cursor,
			&count, error);
}

static int run_list(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	struct postern_filter filter = { .size = sizeof filter, .limit = 100 };
	struct postern_query query = { .filter = &filter };
	struct postern_page page;
	return stand->ops->list(stand->store, &query, memory, &page, error);
}

static int run_filter(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	static const char *const ids[] = { "1", "2", "3" };
	struct postern_filter filter = {
		.size = sizeof filter,
		.limit = 100,
		.message_ids = ids,
		.message_id_count = 3,
		.error = "x",
		.oldest = true,
	};
	struct postern_query query = { .filter = &filter };
	struct postern_page page;
	return stand->ops->list(stand->store, &query, memory, &page, error);
}

static int run_groups(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	const struct postern_filter filter = { .size = sizeof filter };
	struct postern_group *groups;
	size_t count;
	return stand->ops->groups(stand->store, &filter, memory, &groups, &count,
			error);
}

static int run_get(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	struct postern_detail detail;
	return stand->ops->get(stand->store, poisoned_seq, memory, &detail, error);
}

static int run_stats(struct stand *stand, struct postern_memory *memory,
		struct postern_error *error) {
	struct postern_stats stats;
	return stand->ops->stats(stand->store, memory, &stats, error);
}

static void claim_out(struct stand *stand) {
	stand_recover(stand);
	CHECK_INT(stand_claim(stand, stand->handlers[1], 100).count, 3);
}

static void enrol(void) {
	fail_each(run_enrol, nothing_to_prepare);
}

static void apply(void) {
	fail_each(run_apply, claim_out);
}

static void claim(void) {
	fail_each(run_claim, recover_first);
}

static void recover(void) {
	fail_each(run_recover, nothing_to_prepare);
}

static void orphans(void) {
	fail_each(run_orphans, enrol_in_only);
}

static void unpark(void) {
	fail_each(run_unpark, recover_first);
}

static void read_operations(void) {
	fail_each(run_list, nothing_to_prepare);
	fail_each(run_filter, nothing_to_prepare);
	fail_each(run_groups, nothing_to_prepare);
	fail_each(run_get, nothing_to_prepare);
	fail_each(run_stats, nothing_to_prepare);
}

static const struct tap_case cases[] = {
	{ "enrolling without memory changes nothing", enrol },
	{ "a batch without memory changes nothing", apply },
	{ "claiming without memory changes nothing", claim },
	{ "recovering without memory changes nothing", recover },
	{ "poisoning orphans without memory changes nothing", orphans },
	{ "unparking messages without memory changes nothing", unpark },
	{ "a read without memory fails and can be repeated", read_operations },
};

TAP_MAIN(cases)
