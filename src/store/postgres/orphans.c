/* SPDX-License-Identifier: MIT */

/* To be written. */

#include "base/fail.h"
#include "store/postgres/postgres.h"

int postern__pg_orphans(struct postern_store *store, uint64_t node, bool poison,
		size_t max, struct postern_memory *memory,
		struct postern_orphan **orphans_out, size_t *count_out,
		struct postern_error *error) {
	(void)store;
	(void)node;
	(void)poison;
	(void)max;
	(void)memory;
	(void)orphans_out;
	(void)count_out;
	return postern__fail(error, POSTERN_E_UNSUPPORTED, "not yet");
}
