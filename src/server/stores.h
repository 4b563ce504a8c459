/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_STORES_H
#define POSTERN_SERVER_STORES_H

/*
 * The stores that a process has open: a box for each, and in a server a
 * runner. They know nothing of each other; who asks for all of them goes
 * through the array.
 */

#include <postern/box.h>
#include <postern/runner.h>
#include <stddef.h>

#include "server/config.h"
#include "server/take.h"

struct postern__open_store {
	const char *name; /* as the configuration has it; borrowed */
	char *file;       /* the real path of an SQLite file; else NULL */
	char id[POSTERN__STORE_ID_MAX]; /* see take.h */
	struct postern_box *box;
	struct postern_runner *runner; /* NULL: nobody pumps the box */
};

/* Zero it to begin with. */
struct postern__stores {
	struct postern__open_store items[POSTERN__STORE_COUNT_MAX];
	size_t count;
};

/*
 * Add a store whose box is open. Takes the box, also on failure:
 * POSTERN_E_UNAVAILABLE if its file is not there any more.
 *
 * url  tells the file; "" for none.
 */
int postern__stores_take(struct postern__stores *stores, const char *name,
		const char *url, struct postern_box *box, struct postern_error *error);

/* End all runners, then all boxes, and forget them. */
void postern__stores_finish(struct postern__stores *stores);

/* The one with this name or this id; NULL if there is none. */
const struct postern__open_store *
postern__stores_find(const struct postern__stores *stores, const char *name);

#endif
