/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_POSTGRES_MARKED_H
#define POSTERN_STORE_POSTGRES_MARKED_H

/* A transaction with a marker, in few round trips: texts of several statements,
   which have no parameters. */

#include "store/marker.h"
#include "store/postgres/postgres.h"

#define PG_MARK_ARRAY_LEN_MAX (POSTERN_MARK_NAME_COUNT_MAX * 40 + 3)
#define PG_NUMBER_LEN_MAX 24

/* marker_take.c: the arguments of mark_take_1 as texts; now is empty for the
   server's time. */
struct pg_mark_texts {
	char now[PG_NUMBER_LEN_MAX];
	char wait[PG_NUMBER_LEN_MAX];
	char handlers[PG_MARK_ARRAY_LEN_MAX];
	char keys[PG_MARK_ARRAY_LEN_MAX];
	char fence[PG_NUMBER_LEN_MAX];
};
void postern__pg_mark_texts(const struct pg_store *self,
		const struct postern_mark *mark, uint64_t fence, int64_t wait_ms,
		struct pg_mark_texts *out);

/* query.c: postern__pg_script() with the result of the last statement, whose
   values are texts. */
int postern__pg_run_script(struct pg_query *query, const char *sql,
		struct postern_error *error);

/* transaction.c: as postern__pg_finish_known(), by a script that ends with
   COMMIT. If it fails before that, the transaction is still open. */
int postern__pg_end_known(struct pg_connection *connection, int64_t xid,
		pg_work *confirm, void *context, const char *script,
		struct postern_error *error);

#endif
