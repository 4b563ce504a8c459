/* SPDX-License-Identifier: MIT */

/* To be written. */

#include "base/fail.h"
#include "store/postgres/postgres.h"

int postern__pg_transact(struct postern_store *store, uint64_t node,
		const struct postern_lock *lock, struct postern_unit *units,
		size_t count, struct postern_error *error) {
	(void)store;
	(void)node;
	(void)lock;
	(void)units;
	(void)count;
	return postern__fail(error, POSTERN_E_UNSUPPORTED, "not yet");
}

void postern__pg_interrupt(struct postern_store *store) {
	(void)store;
}
