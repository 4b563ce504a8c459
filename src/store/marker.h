/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_MARKER_H
#define POSTERN_STORE_MARKER_H

/*
 * Markers in stores that read and write rows by themselves: the decisions of
 * postern/sys/marker.h in one place, over functions that access a row.
 */

#include <postern/sys/marker.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"

/* 8 bytes of the hash of the handler's key, so that the markers of a handler
   are neighbours, then 16 of the hash of that key and the value. */
#define POSTERN__MARK_KEY_LEN 24
#define POSTERN__MARK_HANDLER_LEN 8

struct postern__mark_keys {
	uint8_t items[POSTERN_MARK_NAME_COUNT_MAX][POSTERN__MARK_KEY_LEN];
	size_t count;
};

/* Hash the names of a marker, in ascending order, so that two transactions
   cannot deadlock. */
void postern__mark_keys_init(struct postern__mark_keys *keys,
		const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		const struct postern_mark *mark);
/* The first bytes of all markers of a handler. */
void postern__mark_handler_hash(const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		const char *handler, uint8_t out[POSTERN__MARK_HANDLER_LEN]);

struct postern__mark_row {
	uint64_t fence;
	int64_t until_ms; /* the end of the lease; 0: done */
	int64_t at_ms;    /* when it was written */
};

/*
 * Access to the rows, inside one atomic section; the caller ends it, and rolls
 * it back if a function failed.
 *
 * get  *found_out is false if there is no such row.
 */
struct postern__mark_access {
	void *context;
	int64_t now_ms;
	int (*get)(void *context, const uint8_t key[POSTERN__MARK_KEY_LEN],
			struct postern__mark_row *out, bool *found_out,
			struct postern_error *error);
	int (*put)(void *context, const uint8_t key[POSTERN__MARK_KEY_LEN],
			const struct postern__mark_row *row, struct postern_error *error);
	int (*remove)(void *context, const uint8_t key[POSTERN__MARK_KEY_LEN],
			struct postern_error *error);
};

/* As postern_marker_ops.change(). */
int postern__mark_change(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys,
		struct postern_mark_request *request, struct postern_error *error);
bool postern__mark_writes(enum postern_mark_kind kind);
int postern__mark_fail_stale(struct postern_error *error);

/* Inside a transaction that runs the function: done under this fence if it was
   unknown, else *state_out is its state and nothing changed. */
int postern__mark_take(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys, uint64_t fence,
		enum postern_mark_state *state_out, struct postern_error *error);
/* Whether all rows are done under this fence. */
int postern__mark_is_taken(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys, uint64_t fence, bool *taken_out,
		struct postern_error *error);

#endif
