/* SPDX-License-Identifier: MIT */

/* To be written. */

#include "base/fail.h"
#include "store/postgres/postgres.h"

int postern__pg_clean(struct postern_store *store,
		struct postern_cleaning *cleaning, struct postern_error *error) {
	(void)store;
	(void)cleaning;
	return postern__fail(error, POSTERN_E_UNSUPPORTED, "not yet");
}
