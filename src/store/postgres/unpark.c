/* SPDX-License-Identifier: MIT */

/* To be written. */

#include "base/fail.h"
#include "store/postgres/postgres.h"

int postern__pg_unpark(struct postern_store *store, postern_router *router,
		void *context, size_t max, int64_t *cursor, uint64_t *count_out,
		struct postern_error *error) {
	(void)store;
	(void)router;
	(void)context;
	(void)max;
	(void)cursor;
	(void)count_out;
	return postern__fail(error, POSTERN_E_UNSUPPORTED, "not yet");
}
