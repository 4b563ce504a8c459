/* SPDX-License-Identifier: MIT */

/*
 * An array of stores.
 */

#include "server/stores.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "server/marker_watch.h"
#include "store/store.h"

int postern__stores_take(struct postern__stores *stores, const char *name,
		const char *url, struct postern_box *box, struct postern_error *error) {
	assert(stores->count < POSTERN__STORE_COUNT_MAX);
	struct postern__open_store store = { .name = name, .box = box };
	char file[POSTERN__STORE_FILE_MAX] = "";
	bool is_file = postern__store_file(url, file);
	store.scheme = postern__store_scheme(url);
	if (is_file) {
		store.file = realpath(file, NULL);
	}
	if (!postern__store_id(url, name, store.id) || (is_file && !store.file)) {
		free(store.file);
		postern_box_destroy(box);
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot find '%s', which was just opened", file);
	}
	int r = postern_guard_create(box, NULL, &store.guard, error);
	if (r != POSTERN_OK && r != POSTERN_E_UNSUPPORTED) {
		free(store.file);
		postern_box_destroy(box);
		return r;
	}
	stores->items[stores->count++] = store;
	return POSTERN_OK;
}

int postern__stores_open_markers(struct postern__stores *stores,
		const char *name, const char *url,
		const struct postern_guard_options *options,
		struct postern_error *error) {
	assert(stores->count < POSTERN__STORE_COUNT_MAX);
	struct postern__open_store store = {
		.name = name,
		.scheme = postern__store_scheme(url),
	};
	(void)postern__store_id(url, name, store.id);
	int r = postern_guard_open(url, options, &store.guard, error);
	if (r == POSTERN_OK) {
		stores->items[stores->count++] = store;
	}
	return r;
}

void postern__stores_finish(struct postern__stores *stores) {
	for (size_t i = 0; i < stores->count; i++) {
		postern_runner_destroy(stores->items[i].runner);
		postern__marker_watch_destroy(stores->items[i].watch);
	}
	for (size_t i = 0; i < stores->count; i++) {
		postern_guard_destroy(stores->items[i].guard);
		postern_box_destroy(stores->items[i].box);
		free(stores->items[i].file);
	}
	*stores = (struct postern__stores){ .count = 0 };
}

const struct postern__open_store *
postern__stores_find(const struct postern__stores *stores, const char *name) {
	for (size_t i = 0; i < stores->count; i++) {
		const struct postern__open_store *store = &stores->items[i];
		if (strcmp(store->name, name) == 0 || strcmp(store->id, name) == 0) {
			return store;
		}
	}
	return NULL;
}
