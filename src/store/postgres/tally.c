/* SPDX-License-Identifier: MIT */

/*
 * Counters that only grow. Each count appends a row, because nodes that updated
 * one row would wait for each other; now and then many rows are replaced by
 * their sum, in one statement, so that a reader sees either the rows or the
 * sum.
 */

#include "store/postgres/postgres.h"

/* Summing fewer rows than this is faster than replacing them. */
#define FOLD_MIN 1000
/* Limits how long one call takes. */
#define FOLD_MAX 100000

/* Deletes the rows that are to be replaced: none if there are few. Rows that
   another node has locked are skipped. */
#define FOLDED(table)                                         \
	"(DELETE FROM " table " WHERE ctid = ANY (ARRAY("         \
	"SELECT ctid FROM " table " WHERE (SELECT count(*) >= $1" \
	" FROM (SELECT 1 FROM " table " LIMIT $1) AS few)"        \
	" LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING *)"
#define FOLDED_CHANNELS FOLDED("@channel_tally")
#define FOLDED_HANDLERS FOLDED("@handler_tally")

int postern__pg_fold_tallies(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, FOLD_MIN);
	postern__pg_int8(&query, FOLD_MAX);
	int r = postern__pg_run(&query,
			"WITH c AS " FOLDED_CHANNELS ", h AS " FOLDED_HANDLERS
			", channels AS (INSERT INTO @channel_tally (channel, accepted,"
			" duplicates, conflicts, dropped) SELECT channel, sum(accepted),"
			" sum(duplicates), sum(conflicts), sum(dropped)"
			" FROM c GROUP BY channel)"
			" INSERT INTO @handler_tally (handler, done, discarded, returned)"
			" SELECT handler, sum(done), sum(discarded), sum(returned)"
			" FROM h GROUP BY handler",
			error);
	postern__pg_end(&query);
	return r;
}
