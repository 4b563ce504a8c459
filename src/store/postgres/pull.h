/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_POSTGRES_PULL_H
#define POSTERN_STORE_POSTGRES_PULL_H

/* Pull leases of the PostgreSQL store. */

#include "store/postgres/postgres.h"

int postern__pg_read_pulls(struct postern_store *store,
		struct postern_pull_row *rows, size_t count,
		struct postern_memory *memory, struct postern_error *error);
int postern__pg_extend(struct postern_store *store,
		struct postern_pull_row *row, int64_t lease_ms, int64_t *until_ms_out,
		struct postern_error *error);

#endif
