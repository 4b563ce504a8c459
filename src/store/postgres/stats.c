/* SPDX-License-Identifier: MIT */

/* To be written. */

#include "base/fail.h"
#include "store/postgres/postgres.h"

int postern__pg_stats(struct postern_store *store,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	(void)store;
	(void)memory;
	(void)out;
	return postern__fail(error, POSTERN_E_UNSUPPORTED, "not yet");
}
