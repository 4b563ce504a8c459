/* SPDX-License-Identifier: MIT */
/*
 * Inspection of a box. The store allocates a result in memory that becomes part
 * of the result, so that each result has one destroy function and no field is
 * freed on its own.
 */

#include <postern/inspect.h>

#include "base/fail.h"
#include "base/host.h"
#include "base/point.h"
#include "core/box.h"
#include "core/maintenance.h"
#include "core/reason.h"
#include "core/run.h"
#include "core/shown.h"

#include <assert.h>
#include <inttypes.h>
#include <postern/sys/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const state_names[] = {
	[POSTERN_STATE_PENDING] = "pending",
	[POSTERN_STATE_LEASED] = "leased",
	[POSTERN_STATE_DONE] = "done",
	[POSTERN_STATE_POISONED] = "poisoned",
	[POSTERN_STATE_DISCARDED] = "discarded",
	[POSTERN_STATE_PARKED] = "parked",
	[POSTERN_STATE_RETRYING] = "retrying",
	[POSTERN_STATE_WAITING] = "waiting",
	[POSTERN_STATE_HELD] = "held",
	[POSTERN_STATE_QUEUED] = "queued",
	[POSTERN_STATE_RUNNING] = "running",
	[POSTERN_STATE_STUCK] = "stuck",
};

#define STATE_COUNT (sizeof(state_names) / sizeof(state_names[0]))

const char *postern_state_name(enum postern_state state) {
	return (size_t)state < STATE_COUNT ? state_names[state] : NULL;
}

enum postern_state postern_state_parse(const char *name) {
	for (size_t i = 0; name && i < STATE_COUNT; i++) {
		if (state_names[i] && strcmp(state_names[i], name) == 0) {
			return (enum postern_state)i;
		}
	}
	return POSTERN_STATE_ANY;
}

struct postern_listing {
	struct postern_memory *memory;
	struct postern_page page;
	char cursor[POSTERN_CURSOR_LEN_MAX];
};

/* Read a decimal number without sign or leading zeroes, up to `end`: each
   cursor has only one spelling. */
static bool read_number(const char **place, char end, int64_t *out) {
	const char *digit = *place;
	int64_t number = 0;
	if (*digit == '0' && digit[1] != end) {
		return false;
	}
	while (*digit >= '0' && *digit <= '9') {
		int64_t next = *digit - '0';
		if (number > (INT64_MAX - next) / 10) {
			return false;
		}
		number = number * 10 + next;
		digit++;
	}
	if (digit == *place || *digit != end) {
		return false;
	}
	*place = end ? digit + 1 : digit;
	*out = number;
	return true;
}

/* A cursor is the position where the last page ended: "v1.SEQ.HANDLER". */
static int read_cursor(const char *cursor, struct postern_query *query,
		struct postern_error *error) {
	const char *place = cursor + 3;
	if (strncmp(cursor, "v1.", 3) == 0 &&
			read_number(&place, '.', &query->after_seq) &&
			read_number(&place, '\0', &query->after_handler) &&
			query->after_seq > 0) {
		return POSTERN_OK;
	}
	return postern__fail(error, POSTERN_E_INVALID,
			"invalid cursor '%s': use the cursor that a listing returned",
			cursor);
}

/* One page of rows as the store has them, with what is derived. */
static int list_stored(struct postern_box *box, struct postern__view *view,
		const struct postern_query *query, struct postern_listing *listing,
		struct postern_error *error) {
	int r = box->store->ops->list(box->store, query, listing->memory,
			&listing->page, error);
	return r ? r
			 : postern__view_rows(view, listing->page.rows, listing->page.count,
					   error);
}

/* Rows per call of the store, of which few may have the wanted state. */
#define SIFTED_AT_ONCE 1000

/* Keep the rows of the page that have the state; false: `max` are kept, and
   the page ends with the last of them. */
static bool sift(struct postern_page *page, enum postern_state state,
		struct postern_row *rows, size_t max, size_t *count) {
	for (size_t i = 0; i < page->count; i++) {
		if (page->rows[i].shown != state) {
			continue;
		}
		rows[(*count)++] = page->rows[i];
		if (*count == max) {
			page->more = page->more || i + 1 < page->count;
			page->last_seq = page->rows[i].seq;
			page->last_handler = page->rows[i].handler_id;
			return false;
		}
	}
	return true;
}

/* Stores know stored states only: read those and keep the rows whose derived
   state is the wanted one. */
static int list_derived(struct postern_box *box, struct postern__view *view,
		const struct postern_filter *wanted, struct postern_query *query,
		struct postern_listing *listing, struct postern_error *error) {
	struct postern_filter stored = *wanted;
	stored.state = postern__state_stored(wanted->state);
	stored.limit = SIFTED_AT_ONCE;
	query->filter = &stored;
	size_t count = 0;
	struct postern_row *rows = postern_memory_alloc(listing->memory,
			wanted->limit * sizeof(*rows));
	int r = rows ? POSTERN_OK
				 : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	for (size_t examined = 0; !r && examined < POSTERN_LIST_LIMIT_MAX;
			examined += SIFTED_AT_ONCE) {
		r = list_stored(box, view, query, listing, error);
		if (r ||
				!sift(&listing->page, wanted->state, rows, wanted->limit,
						&count) ||
				!listing->page.more) {
			break;
		}
		query->after_seq = listing->page.last_seq;
		query->after_handler = listing->page.last_handler;
	}
	query->filter = wanted;
	listing->page.rows = rows;
	listing->page.count = count;
	return r;
}

static int list_shown(struct postern_box *box, struct postern_query *query,
		struct postern_listing *listing, struct postern_error *error) {
	const struct postern_filter *filter = query->filter;
	struct postern__view *view = NULL;
	int r = postern__view_create(box, listing->memory, &view, error);
	if (!r && postern__state_stored(filter->state) != filter->state) {
		r = list_derived(box, view, filter, query, listing, error);
	} else if (!r) {
		r = list_stored(box, view, query, listing, error);
	}
	postern__view_finish(view);
	return r;
}

int postern_box_list(struct postern_box *box,
		const struct postern_filter *filter, struct postern_listing **out,
		struct postern_error *error) {
	struct postern_filter full;
	struct postern_query query = { .filter = &full };
	int r = postern__filter_check(filter, POSTERN_LIST_LIMIT_DEFAULT, &full,
			error);
	if (!r && full.cursor) {
		r = read_cursor(full.cursor, &query, error);
	}
	if (r) {
		return r;
	}
	struct postern_listing *listing = calloc(1, sizeof(*listing));
	if (listing) {
		listing->memory = postern_memory_create();
	}
	if (!listing || !listing->memory) {
		postern_listing_destroy(listing);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	r = list_shown(box, &query, listing, error);
	if (!r && listing->page.count == 0) {
		r = postern__filter_check_names(box, &full, error);
	}
	if (r) {
		postern_listing_destroy(listing);
		return r;
	}
	if (listing->page.more) {
		(void)snprintf(listing->cursor, sizeof(listing->cursor),
				"v1.%" PRId64 ".%" PRId64, listing->page.last_seq,
				listing->page.last_handler);
	}
	*out = listing;
	return POSTERN_OK;
}

size_t postern_listing_count(const struct postern_listing *listing) {
	return listing->page.count;
}

const struct postern_row *
postern_listing_get(const struct postern_listing *listing, size_t index) {
	return index < listing->page.count ? &listing->page.rows[index] : NULL;
}

const char *postern_listing_cursor(const struct postern_listing *listing) {
	return listing->cursor[0] ? listing->cursor : NULL;
}

void postern_listing_destroy(struct postern_listing *listing) {
	if (listing) {
		postern_memory_destroy(listing->memory);
		free(listing);
	}
}

/* The public struct comes first, so that its address is the object's. */
struct detail_object {
	struct postern_detail detail;
	struct postern_memory *memory;
};

static int show_deliveries(struct postern_box *box,
		struct postern_memory *memory, const struct postern_detail *detail,
		struct postern_error *error) {
	struct postern__view *view = NULL;
	int r = postern__view_create(box, memory, &view, error);
	for (size_t i = 0; !r && i < detail->delivery_count; i++) {
		/* The array belongs to the object; only its public type is const. */
		struct postern_row *row =
				(struct postern_row *)(uintptr_t)&detail->deliveries[i].row;
		r = postern__view_rows(view, row, 1, error);
	}
	postern__view_finish(view);
	return r;
}

int postern_box_get(struct postern_box *box, int64_t seq,
		struct postern_detail **out, struct postern_error *error) {
	struct detail_object *object = calloc(1, sizeof(*object));
	if (object) {
		object->memory = postern_memory_create();
	}
	int r;
	if (!object || !object->memory) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	} else {
		r = box->store->ops->get(box->store, seq, object->memory,
				&object->detail, error);
	}
	if (!r) {
		r = show_deliveries(box, object->memory, &object->detail, error);
	}
	if (r) {
		postern_detail_destroy(object ? &object->detail : NULL);
		return r;
	}
	*out = &object->detail;
	return POSTERN_OK;
}

void postern_detail_destroy(struct postern_detail *detail) {
	if (detail) {
		struct detail_object *object =
				container_of(detail, struct detail_object, detail);
		postern_memory_destroy(object->memory);
		free(object);
	}
}

int postern_box_find(struct postern_box *box, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error) {
	if (!id || id[0] == '\0') {
		return postern__fail(error, POSTERN_E_INVALID, "the id is empty");
	}
	return box->store->ops->find(box->store, id, source, channel, seqs, max,
			count_out, error);
}

struct postern_groups {
	struct postern_memory *memory;
	struct postern_group *items;
	size_t count;
};

static int read_groups(struct postern_box *box,
		const struct postern_filter *filter, struct postern_groups *groups,
		struct postern_error *error) {
	if (!box->store->ops->groups) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the store does not count errors by group");
	}
	int r = box->store->ops->groups(box->store, filter, groups->memory,
			&groups->items, &groups->count, error);
	return !r && groups->count == 0
				   ? postern__filter_check_names(box, filter, error)
				   : r;
}

int postern_box_groups(struct postern_box *box,
		const struct postern_filter *filter, struct postern_groups **out,
		struct postern_error *error) {
	struct postern_filter full;
	int r = postern__filter_check(filter, POSTERN_LIST_LIMIT_MAX, &full, error);
	if (r) {
		return r;
	}
	struct postern_groups *groups = calloc(1, sizeof(*groups));
	if (groups) {
		groups->memory = postern_memory_create();
	}
	r = groups && groups->memory
				? read_groups(box, &full, groups, error)
				: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	if (r) {
		postern_groups_destroy(groups);
		return r;
	}
	*out = groups;
	return POSTERN_OK;
}

size_t postern_groups_count(const struct postern_groups *groups) {
	return groups->count;
}

const struct postern_group *
postern_groups_get(const struct postern_groups *groups, size_t index) {
	return index < groups->count ? &groups->items[index] : NULL;
}

void postern_groups_destroy(struct postern_groups *groups) {
	if (groups) {
		postern_memory_destroy(groups->memory);
		free(groups);
	}
}

struct stats_object {
	struct postern_stats stats;
	struct postern_memory *memory;
};

static bool has_key(const struct postern__handler *handler, const char *key) {
	bool has = strcmp(handler->key, key) == 0;
	for (size_t i = 0; !has && i < handler->legacy_key_count; i++) {
		has = strcmp(handler->legacy_keys[i], key) == 0;
	}
	return has;
}

/* The handler of this process that has any key of a stored handler; NULL:
   none. */
static const struct postern__handler *
find_registered(const struct postern_generation *generation,
		const struct postern_stats *stats, const char *stored) {
	for (size_t i = 0; i < stats->key_count; i++) {
		if (strcmp(stats->keys[i].handler, stored) != 0) {
			continue;
		}
		for (size_t j = 0; j < generation->handler_count; j++) {
			if (has_key(generation->handlers[j], stats->keys[i].key)) {
				return generation->handlers[j];
			}
		}
	}
	return NULL;
}

/* Add which channels this process has, under any of their names. */
static void
add_channel_registration(const struct postern_generation *generation,
		struct postern_stats *stats) {
	for (size_t i = 0; i < stats->channel_count; i++) {
		/* As in add_registration(). */
		struct postern_channel_stats *channel =
				(struct postern_channel_stats *)(uintptr_t)&stats->channels[i];
		for (size_t j = 0; j < stats->name_count; j++) {
			if (strcmp(stats->names[j].channel, channel->name) == 0 &&
					postern__generation_channel(generation,
							stats->names[j].name)) {
				channel->registered = true;
			}
		}
	}
}

/* Add what the store does not know: which channels and handlers this process
   has registered, and what holds the handlers. */
static void add_registration(struct postern_box *box,
		struct postern_stats *stats, struct postern_memory *memory) {
	struct postern_generation *generation = postern__generation_acquire(box);
	add_channel_registration(generation, stats);
	for (size_t i = 0; i < stats->handler_count; i++) {
		/* The array belongs to the object; only its public type is const. */
		struct postern_handler_stats *handler =
				(struct postern_handler_stats *)(uintptr_t)&stats->handlers[i];
		handler->channel = "";
		const struct postern__handler *found =
				find_registered(generation, stats, handler->key);
		if (found) {
			const char *channel =
					postern_memory_text(memory, found->channel->name);
			handler->registered = true;
			handler->channel = channel ? channel : "";
		}
		(void)pthread_mutex_lock(&box->mutex);
		postern__held_describe(box, found, stats->now_ms, memory, handler);
		(void)pthread_mutex_unlock(&box->mutex);
	}
	postern__generation_release(generation);
}

/* Add host and pid, which a store that only this process has open leaves
   out. */
static void add_host(struct postern_node_stats *node,
		struct postern_memory *memory) {
	char host[POSTERN__HOST_LEN_MAX + 1];
	postern__host_name(host);
	/* Out of memory: NULL, an unknown host. */
	node->host = postern_memory_text(memory, host);
	node->pid = getpid();
}

/* Add which node belongs to this box and which holds the processing lock. */
static void add_node(struct postern_box *box, struct postern_memory *memory,
		struct postern_stats *stats) {
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t own = box->node;
	(void)pthread_mutex_unlock(&box->mutex);
	for (size_t i = 0; i < stats->node_count; i++) {
		/* As in add_registration(). */
		struct postern_node_stats *node =
				(struct postern_node_stats *)(uintptr_t)&stats->nodes[i];
		node->own = node->node == own;
		if (node->own && !node->host) {
			add_host(node, memory);
		}
		for (size_t j = 0; j < stats->lock_count; j++) {
			const struct postern_lock_stats *lock = &stats->locks[j];
			if (lock->node == node->node &&
					strcmp(lock->name, box->lock_name) == 0) {
				node->processor = true;
			}
		}
	}
}

static int add_runs(struct postern_box *box, struct postern_memory *memory,
		struct postern_stats *stats, struct postern_error *error) {
	struct postern__view *view = NULL;
	int r = postern__view_create(box, memory, &view, error);
	if (!r) {
		postern__view_stats(view, stats);
	}
	postern__view_finish(view);
	return r;
}

int postern_box_stats(struct postern_box *box, struct postern_stats **out,
		struct postern_error *error) {
	struct stats_object *object = calloc(1, sizeof(*object));
	if (object) {
		object->memory = postern_memory_create();
	}
	int r;
	if (!object || !object->memory) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	} else {
		r = box->store->ops->stats(box->store, object->memory, &object->stats,
				error);
	}
	if (!r) {
		r = add_runs(box, object->memory, &object->stats, error);
	}
	if (r) {
		postern_stats_destroy(object ? &object->stats : NULL);
		return r;
	}
	add_registration(box, &object->stats, object->memory);
	add_node(box, object->memory, &object->stats);
	*out = &object->stats;
	return POSTERN_OK;
}

void postern_stats_destroy(struct postern_stats *stats) {
	if (stats) {
		struct stats_object *object =
				container_of(stats, struct stats_object, stats);
		postern_memory_destroy(object->memory);
		free(object);
	}
}
