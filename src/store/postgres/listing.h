/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_POSTGRES_LISTING_H
#define POSTERN_STORE_POSTGRES_LISTING_H

/*
 * Deliveries that match a filter: as rows, as a count, or by group of errors.
 */

#include "store/postgres/postgres.h"

/* The columns of the result. */
enum {
	PG_ROW_SEQ,
	PG_ROW_HANDLER, /* the handler id; 0 for none */
	PG_ROW_STATE,
	PG_ROW_FENCE,
	PG_ROW_FAILURES,
	PG_ROW_STARTS,
	PG_ROW_CRASHES,
	PG_ROW_NEXT_AT,
	PG_ROW_LEASED_AT,
	PG_ROW_FINISHED_AT,
	PG_ROW_NODE,
	PG_ROW_GROUP,
	PG_ROW_RETURNS,
	PG_ROW_ERROR,
	PG_ROW_KEY,
	PG_ROW_ID,
	PG_ROW_SOURCE,
	PG_ROW_TYPE,
	PG_ROW_CHANNEL,
	PG_ROW_RECEIVED_AT
};

enum pg_listing_kind {
	PG_LISTING_ROWS,
	PG_LISTING_COUNT, /* one row: the number of rows */
	PG_LISTING_GROUPS /* as postern__pg_groups() reads them */
};

struct pg_listing {
	enum pg_listing_kind kind;
	const struct postern_query *query; /* its limit is ignored */
	unsigned states;                   /* a bit for each state to list */
	bool handled;                      /* omit rows without a handler */
	int64_t max;                       /* 0: no limit */
};

/* Begins and runs a query, which the caller ends. Newest message first, or
   oldest, the deliveries of one message by handler id. */
int postern__pg_listing_run(struct pg_query *query,
		struct pg_connection *connection, const struct pg_listing *listing,
		struct postern_error *error);
/* Returns false if out of memory. */
bool postern__pg_listing_read(const struct pg_query *query, int row,
		struct postern_memory *memory, struct postern_row *out);

#endif
