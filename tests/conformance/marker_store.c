/* SPDX-License-Identifier: MIT */

/* The markers of the store that target_<name>.c opens. */

#include "conformance/marker_target.h"
#include "conformance/target.h"

static struct postern_store *open_store;

static struct postern_markers *store_open(
		const struct postern_store_options *options) {
	open_store = conformance_target.open(options);
	return open_store ? open_store->markers : NULL;
}

static struct postern_markers *store_reopen(struct postern_markers *markers,
		const struct postern_store_options *options) {
	(void)markers;
	open_store = conformance_target.reopen(open_store, options);
	return open_store ? open_store->markers : NULL;
}

static void store_close(struct postern_markers *markers) {
	(void)markers;
	conformance_target.close(open_store);
	open_store = NULL;
}

static struct postern_store *store_get(void) {
	return open_store->ops->transactional ? open_store : NULL;
}

const struct marker_target marker_target = {
	.open = store_open,
	.reopen = store_reopen,
	.close = store_close,
	.store = store_get,
	.expires = true,
};
