/* SPDX-License-Identifier: MIT */

/*
 * The memory store as a target of the suite. It does not outlive its process,
 * so a crash is only a change of nodes.
 */

#include <stdio.h>

#include "conformance/target.h"

static struct postern_store *memory_open(
		const struct postern_store_options *options) {
	struct postern_store *store = NULL;
	struct postern_error error;
	if (postern_store_open("memory:", options, &store, &error) != POSTERN_OK) {
		(void)fprintf(stderr, "%s\n", error.text);
		return NULL;
	}
	return store;
}

static struct postern_store *memory_reopen(struct postern_store *store,
		const struct postern_store_options *options) {
	(void)options;
	return store;
}

const struct conformance_target conformance_target = {
	.name = "memory",
	.shared = true,
	.open = memory_open,
	.reopen = memory_reopen,
	.close = postern_store_destroy,
};
