/* SPDX-License-Identifier: MIT */

/* To be written. */

#include "base/fail.h"
#include "store/postgres/postgres.h"

int postern__pg_recover(struct postern_store *store,
		const struct postern_recovery *recovery, struct postern_recovered *out,
		struct postern_error *error) {
	(void)store;
	(void)recovery;
	(void)out;
	return postern__fail(error, POSTERN_E_UNSUPPORTED, "not yet");
}
