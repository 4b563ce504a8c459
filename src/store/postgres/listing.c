/* SPDX-License-Identifier: MIT */

/* To be written. */

#include "base/fail.h"
#include "store/postgres/postgres.h"

int postern__pg_list(struct postern_store *store,
		const struct postern_query *query, struct postern_memory *memory,
		struct postern_page *out, struct postern_error *error) {
	(void)store;
	(void)query;
	(void)memory;
	(void)out;
	return postern__fail(error, POSTERN_E_UNSUPPORTED, "not yet");
}
