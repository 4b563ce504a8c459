/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_STORES_H
#define POSTERN_SERVER_STORES_H

/*
 * The open stores of a process: a box for each, and in a server a runner. They
 * are independent of each other; a caller that needs all of them iterates over
 * the array.
 */

#include <postern/box.h>
#include <postern/guard.h>
#include <postern/runner.h>
#include <stddef.h>

#include "server/config.h"
#include "server/store_open.h"

struct postern__open_store {
	const char *name;   /* as the configuration has it; borrowed */
	char *file;         /* the real path of a store that is a file; else NULL */
	const char *scheme; /* of its URL; NULL: it has none */
	char id[POSTERN__STORE_ID_MAX]; /* see store_open.h */
	struct postern_box *box;        /* NULL: it keeps markers only */
	struct postern_runner *runner;  /* NULL: the box has no runner */
	struct postern_guard *guard;    /* its markers; NULL: it keeps none */
	/* Of a store without a box; NULL: none, which only a server has. */
	struct postern__marker_watch *watch;
};

/* Zero it to begin with. */
struct postern__stores {
	struct postern__open_store items[POSTERN__STORE_COUNT_MAX];
	size_t count;
};

/*
 * Add a store whose box is open. Takes the box, also on failure:
 * POSTERN_E_UNAVAILABLE if its file does not exist any more.
 *
 * url  names the file; "" for none.
 */
int postern__stores_take(struct postern__stores *stores, const char *name,
		const char *url, struct postern_box *box, struct postern_error *error);

/*
 * Open and add a store that keeps markers only. It has no box, so requests
 * about messages are not about this store.
 *
 * options  may be NULL.
 */
int postern__stores_open_markers(struct postern__stores *stores,
		const char *name, const char *url,
		const struct postern_guard_options *options,
		struct postern_error *error);

/* Destroy all runners and watches, then all boxes, and reset the array. */
void postern__stores_finish(struct postern__stores *stores);

/* The store with this name or this id; NULL if there is none. */
const struct postern__open_store *
postern__stores_find(const struct postern__stores *stores, const char *name);

#endif
