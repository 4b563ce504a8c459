/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_POSTGRES_APPLY_H
#define POSTERN_STORE_POSTGRES_APPLY_H

/*
 * A batch while it is applied.
 */

#include <postern/sys/store.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "core/identity.h"
#include "store/postgres/postgres.h"

struct arrival {
	struct pg_key key;
	uint8_t digest[POSTERN__DIGEST_LEN];
	int64_t seq;
	struct postern_accept *accept;
};

/* The key of a route whose handler has one. The positions, from 1, are those in
   the arrays of messages and of routes. */
struct route_key {
	struct pg_key key;
	int64_t message;
	int64_t route;
};

struct work {
	struct postern_batch *batch;
	struct postern_settlement *
			*settlements; /* sorted by lease, each lease once */
	size_t settlement_count;
	struct arrival *arrivals; /* in the order of the batch */
	struct arrival **by_key;
	int64_t *seqs; /* in the order of the batch; NULL: not yet allocated */
	struct postern_route **routes;
	size_t route_count;
	struct route_key *keys;
	size_t key_count;
	struct postern__buf headers;
	bool unanswered; /* the response to one try was lost */
};

/* Fill in the outputs of the batch. Returns whether nothing was accepted
   because some of the messages are for closed channels: these have the code
   POSTERN_E_UNAVAILABLE, the others POSTERN_OK, and are to be applied. */
bool postern__pg_read_applied(const struct pg_query *query, struct work *work);

#endif
