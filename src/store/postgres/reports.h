/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_POSTGRES_REPORTS_H
#define POSTERN_STORE_POSTGRES_REPORTS_H

/* What the nodes tell each other: reports.c, cancel.c, share.c. */

#include "store/postgres/postgres.h"

int postern__pg_report_runs(struct postern_store *store, uint64_t node,
		const struct postern_run_report *runs, size_t count,
		struct postern_error *error);
int postern__pg_read_runs(struct postern_store *store,
		struct postern_memory *memory, struct postern_reports *out,
		struct postern_error *error);
int postern__pg_request_cancel(struct postern_store *store,
		const struct postern_cancel_request *request, bool withdraw,
		bool *leased_out, struct postern_error *error);
int postern__pg_read_cancels(struct postern_store *store, uint64_t node,
		struct postern_memory *memory, struct postern_cancel_request **out,
		size_t *count_out, struct postern_error *error);
int postern__pg_share(struct postern_store *store, uint64_t node,
		struct postern_share *handlers, size_t count,
		struct postern_error *error);

#endif
