/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_TARGET_H
#define POSTERN_TESTS_TARGET_H

/*
 * The store under test. A program of the suite is linked with one file that
 * defines conformance_target; to test another store, write such a file and
 * name it in meson.build.
 */

#include <postern/sys/store.h>
#include <stdbool.h>
#include <stdint.h>

struct conformance_target {
	const char *name; /* as in the table of operations */
	bool shared;      /* several nodes can share it: it has engage() */
	bool apart;       /* in processes of their own: it has share() */

	/* Open a new, empty store; NULL if it cannot be opened. */
	struct postern_store *(*open)(const struct postern_store_options *options);

	/*
	 * The process that had the store open died without closing it, and another
	 * one opens it: destroy and open it again, with no cleanup in between. A
	 * store that does not outlive its process returns its argument.
	 */
	struct postern_store *(*reopen)(struct postern_store *store,
			const struct postern_store_options *options);

	/* Destroy the store, and delete its files or schema. */
	void (*close)(struct postern_store *store);

	/*
	 * What a transactional handler might do with the transaction. NULL if the
	 * store has none. write() adds a row to a table of its own (creating it if
	 * it is missing), count() returns the number of rows. commit() and
	 * roll_back() are what a handler must not do; the store may refuse them.
	 */
	void (*write)(void *transaction);
	int64_t (*count)(void *transaction);
	void (*commit)(void *transaction);
	void (*roll_back)(void *transaction);
};

extern const struct conformance_target conformance_target;

#endif
