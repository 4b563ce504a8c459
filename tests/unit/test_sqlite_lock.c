/* SPDX-License-Identifier: MIT */

/*
 * The lock file of a SQLite store, removed at the worst moment: after it was
 * opened and locked, before that is checked again. Needs crash points.
 */

#include <unistd.h>

#include "base/point.h"
#include "unit/sqlite_stand.h"

struct thief {
	struct stand *stand;
	char lock[PATH_LEN_MAX + 8];
	struct postern_store *store; /* that it opened */
	int code;
	int passes;
};

/* Removes the lock file that was just locked, and opens the store itself. */
static void steal_lock_file(void *context, const char *name) {
	struct thief *thief = context;
	if (strcmp(name, "sqlite-file.locked") == 0 && thief->passes++ == 0) {
		CHECK_INT(unlink(thief->lock), 0);
		thief->code = stand_open_path(thief->stand, thief->stand->path,
				&thief->store);
	}
}

static void stolen(void) {
	struct stand stand;
	struct thief thief = { .stand = &stand, .code = POSTERN_E_INVALID };
	stand_init(&stand);
	(void)snprintf(thief.lock, sizeof thief.lock, "%s.lock", stand.path);
	postern__point_watch(steal_lock_file, &thief);
	CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
			POSTERN_E_BUSY);
	postern__point_watch(NULL, NULL);
	CHECK_INT(thief.code, POSTERN_OK);
	CHECK_CONTAINS(stand.error.text, "in use by process");
	postern_store_destroy(thief.store);
	CHECK_OK(stand_open_path(&stand, stand.path, &stand.store), &stand.error);
	stand_finish(&stand);
}

static void remove_lock_file(void *context, const char *name) {
	struct thief *thief = context;
	if (strcmp(name, "sqlite-file.locked") == 0) {
		thief->passes++;
		CHECK_INT(unlink(thief->lock), 0);
	}
}

static void vanishing(void) {
	struct stand stand;
	struct thief thief = { .stand = &stand };
	stand_init(&stand);
	(void)snprintf(thief.lock, sizeof thief.lock, "%s.lock", stand.path);
	postern__point_watch(remove_lock_file, &thief);
	CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
			POSTERN_E_UNAVAILABLE);
	postern__point_watch(NULL, NULL);
	CHECK_CONTAINS(stand.error.text, "somebody keeps removing it");
	CHECK(thief.passes > 1);
	CHECK_INT(access(stand.path, F_OK), -1);
	stand_finish(&stand);
}

static const struct tap_case cases[] = {
	{ "a lock on a removed lock file does not count", stolen },
	{ "a lock file that is always removed is an error, and nothing is created",
			vanishing },
};

TAP_MAIN(cases)
