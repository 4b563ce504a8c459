/* SPDX-License-Identifier: MIT */

/*
 * Starts of handlers with a rate: one row for each handler counts what all
 * nodes have been granted.
 */

#include "core/rate.h"
#include "store/postgres/postgres.h"

static int reserve(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	struct postern_reservation *work = context;
	(void)again; /* what the first try was granted is lost */
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int4(&query, work->handler);
	postern__pg_now(&query);
	postern__pg_int8(&query, postern__rate_slot_ms(&work->rate));
	postern__pg_int8(&query, work->rate.count);
	postern__pg_int8(&query, postern__rate_slot_max(&work->rate));
	postern__pg_int8(&query, work->wanted);
	int r = postern__pg_run(&query,
			"SELECT * FROM @reserve_1($1, $2, $3, $4, $5, $6)", error);
	if (r == POSTERN_OK) {
		work->granted = (uint32_t)postern__pg_get(&query, 0, 0);
		work->wait_ms = postern__pg_get(&query, 0, 1);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_reserve(struct postern_store *store,
		struct postern_reservation *reservation, struct postern_error *error) {
	struct postern_reservation work = *reservation;
	int r = postern__pg_do(postern__pg_from_base(store), reserve, &work, error);
	if (r == POSTERN_OK) {
		*reservation = work;
	}
	return r;
}
