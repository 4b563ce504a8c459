/* SPDX-License-Identifier: MIT */

/*
 * Checks of a filter. Its limits are checked before the store is asked. Whether
 * the names in it exist is checked only if nothing was found: a name of which
 * there are deliveries exists, and reading all names costs more than most
 * listings.
 */

#include <postern/inspect.h>

#include "base/fail.h"
#include "base/sized.h"
#include "base/text.h"
#include "core/box.h"
#include "core/maintenance.h"

#include <inttypes.h>
#include <postern/sys/memory.h>
#include <string.h>

static int check_ids(const struct postern_filter *filter,
		struct postern_error *error) {
	if (filter->message_id_count > POSTERN_FILTER_ID_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the filter has %zu ids; at most %d are allowed",
				filter->message_id_count, POSTERN_FILTER_ID_COUNT_MAX);
	}
	for (size_t i = 0; i < filter->message_id_count; i++) {
		const char *id = filter->message_ids[i];
		if (!id || !*id || strlen(id) > POSTERN_ID_LEN_MAX) {
			return postern__fail(error, POSTERN_E_INVALID,
					"id %zu of the filter is empty or over %d bytes", i + 1,
					POSTERN_ID_LEN_MAX);
		}
	}
	return POSTERN_OK;
}

int postern__filter_check(const struct postern_filter *filter,
		uint32_t fallback, struct postern_filter *out,
		struct postern_error *error) {
	*out = (struct postern_filter){ .size = sizeof(*out) };
	if (filter) {
		int r = postern__sized_copy(out, sizeof(*out), filter,
				"struct postern_filter", error);
		if (r) {
			return r;
		}
	}
	if (out->limit == 0) {
		out->limit = fallback;
	}
	if (out->limit > POSTERN_LIST_LIMIT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"limit %" PRIu32 " is too large: it is at most %d", out->limit,
				POSTERN_LIST_LIMIT_MAX);
	}
	if (out->error && (!*out->error || strlen(out->error) >
											   POSTERN_FILTER_ERROR_LEN_MAX)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the text to find in errors must have 1 to %d bytes",
				POSTERN_FILTER_ERROR_LEN_MAX);
	}
	return check_ids(out, error);
}

/* Names that a filter may have, in the memory of the check. */
struct names {
	const char **items;
	size_t count;
};

static bool names_have(const struct names *names, const char *name) {
	for (size_t i = 0; i < names->count; i++) {
		if (strcmp(names->items[i], name) == 0) {
			return true;
		}
	}
	return false;
}

static void add_name(struct names *names, const char *name) {
	if (!names_have(names, name)) {
		names->items[names->count++] = name;
	}
}

static int check_name(const char *kind, const char *name,
		const struct names *names, struct postern_error *error) {
	if (!name || names_have(names, name)) {
		return POSTERN_OK;
	}
	const char *near = postern__closest(name, names->items, names->count);
	return postern__fail(error, POSTERN_E_NOTFOUND, "no %s '%s'%s%s%s", kind,
			name, near ? "; did you mean '" : "", near ? near : "",
			near ? "'?" : "");
}

/* The names that are stored, and those that this process has. */
static int compare_names(const struct postern_generation *generation,
		const struct postern_stats *stats, struct postern_memory *memory,
		const struct postern_filter *filter, struct postern_error *error) {
	struct names handlers = {
		.items = postern_memory_alloc(memory,
				(stats->key_count + generation->handler_count + 1) *
						sizeof(const char *)),
	};
	struct names channels = {
		.items = postern_memory_alloc(memory,
				(stats->name_count + generation->channel_count + 1) *
						sizeof(const char *)),
	};
	if (!handlers.items || !channels.items) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (size_t i = 0; i < generation->handler_count; i++) {
		add_name(&handlers, generation->handlers[i]->key);
	}
	for (size_t i = 0; i < stats->key_count; i++) {
		add_name(&handlers, stats->keys[i].key);
	}
	for (size_t i = 0; i < generation->channel_count; i++) {
		add_name(&channels, generation->channels[i]->name);
	}
	for (size_t i = 0; i < stats->name_count; i++) {
		add_name(&channels, stats->names[i].name);
	}
	int r = check_name("handler", filter->handler, &handlers, error);
	return r ? r : check_name("channel", filter->channel, &channels, error);
}

int postern__filter_check_names(struct postern_box *box,
		const struct postern_filter *filter, struct postern_error *error) {
	struct postern_stats stats = { 0 };
	if (!filter->handler && !filter->channel) {
		return POSTERN_OK;
	}
	struct postern_memory *memory = postern_memory_create();
	if (!memory) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = box->store->ops->stats(box->store, memory, &stats, error);
	if (!r) {
		struct postern_generation *generation =
				postern__generation_acquire(box);
		r = compare_names(generation, &stats, memory, filter, error);
		postern__generation_release(generation);
	}
	postern_memory_destroy(memory);
	return r;
}
