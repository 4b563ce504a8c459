/* SPDX-License-Identifier: MIT */
/*
 * Suggestions for mistyped names. The store is counted for the names that it
 * has, which is slow in a large store; that is the price of a mistake alone.
 */

#include "core/suggest.h"

#include "base/text.h"

#include <postern/sys/memory.h>
#include <stdio.h>
#include <string.h>

static void add_closest(const char *name, const char *const *names,
		size_t count, struct postern_error *error) {
	const char *near = postern__closest(name, names, count);
	size_t len = strlen(error->text);
	if (near) {
		(void)snprintf(error->text + len, sizeof(error->text) - len,
				", did you mean '%s'?", near);
	}
}

static void suggest(struct postern_box *box, const char *name, bool channel,
		struct postern_error *error) {
	struct postern_stats stats = { 0 };
	struct postern_memory *memory = error ? postern_memory_create() : NULL;
	if (!memory || box->store->ops->stats(box->store, memory, &stats, NULL) !=
						   POSTERN_OK) {
		goto out;
	}
	size_t count = channel ? stats.name_count : stats.key_count;
	const char **names =
			postern_memory_alloc(memory, (count + 1) * sizeof(*names));
	for (size_t i = 0; names && i < count; i++) {
		names[i] = channel ? stats.names[i].name : stats.keys[i].key;
	}
	if (names) {
		add_closest(name, names, count, error);
	}
out:
	postern_memory_destroy(memory);
}

void postern__suggest_handler(struct postern_box *box, const char *key,
		struct postern_error *error) {
	suggest(box, key, false, error);
}

void postern__suggest_channel(struct postern_box *box, const char *name,
		struct postern_error *error) {
	suggest(box, name, true, error);
}
