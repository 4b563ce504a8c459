/* SPDX-License-Identifier: MIT */

/*
 * Recovering the leases of expired nodes.
 *
 * First, in a short transaction, nodes whose lease is over are expired. Then
 * their leases are recovered, which may take long: leases have no index, which
 * every accept would have to maintain, so all open deliveries are read. That is
 * done when a node was found expired; by the owner of a lock once for each
 * acquisition: from then on no other node can lease; and once by each process,
 * a while after it started, for leases of nodes that are not recorded any more;
 * and when a pull lease was found that ended long ago: those have an index.
 */

#include <string.h>

#include "base/fail.h"
#include "base/point.h"
#include "core/error_group.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

struct work {
	const struct postern_recovery *recovery;
	bool all; /* read every lease */
	struct postern_recovered out;
};

/* Whether all leases under this lock have been read before. */
static bool is_known(struct pg_store *self, const struct postern_lock *lock) {
	(void)pthread_mutex_lock(&self->mutex);
	bool known = lock && self->scanned_fence == lock->fence &&
				 strcmp(self->scanned_lock, lock->name) == 0;
	(void)pthread_mutex_unlock(&self->mutex);
	return known;
}

static void remember(struct pg_store *self, const struct postern_lock *lock) {
	(void)pthread_mutex_lock(&self->mutex);
	self->scanned_fence = lock->fence;
	memcpy(self->scanned_lock, lock->name, strlen(lock->name) + 1);
	(void)pthread_mutex_unlock(&self->mutex);
}

/* Whether every lease is to be read: from the third recovery of the process on,
   until that was done. Short commands do not get so far. */
static bool is_thorough(struct pg_store *self) {
	(void)pthread_mutex_lock(&self->mutex);
	self->recoveries += self->recoveries < 3;
	bool thorough = self->recoveries == 3 && !self->scanned_all;
	(void)pthread_mutex_unlock(&self->mutex);
	return thorough;
}

static int recover_leases(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	const struct postern_recovery *request = work->recovery;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, request->node);
	postern__pg_now(&query);
	postern__pg_lock_of(&query, request->lock);
	postern__pg_bool(&query, work->all);
	postern__pg_int4(&query,
			request->max < INT32_MAX ? (int64_t)request->max : INT32_MAX - 1);
	postern__pg_int4(&query, POSTERN_ATTEMPTS_KEPT);
	postern__pg_text(&query, POSTERN__CRASH_ERROR);
	postern__pg_group(&query, postern__error_group(POSTERN__CRASH_ERROR));
	postern__pg_int8(&query, POSTERN__PULL_ABANDONED_MS);
	postern__point("postgres-recover.before");
	int r = postern__pg_run(&query,
			"SELECT * FROM @recover_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
			error);
	postern__point("postgres-recover.after");
	if (r == POSTERN_OK) {
		work->out = (struct postern_recovered){
			.released = (uint64_t)postern__pg_get(&query, 0, 1),
			.suspects = (uint64_t)postern__pg_get(&query, 0, 2),
			.poisoned = (uint64_t)postern__pg_get(&query, 0, 3),
			.more = postern__pg_get(&query, 0, 4) != 0,
		};
		if (!postern__pg_get(&query, 0, 0)) {
			r = postern__pg_lost_lock(request->lock, error);
		}
	}
	postern__pg_end(&query);
	return r;
}

/* Sets `all` if a pull lease ended so long ago that it is recovered. */
static int find_abandoned(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	postern__pg_int8(&query, POSTERN__PULL_ABANDONED_MS);
	int r = postern__pg_run(&query, "SELECT @abandoned_1($1, $2)", error);
	if (r == POSTERN_OK) {
		work->all = postern__pg_get(&query, 0, 0) != 0;
	}
	postern__pg_end(&query);
	return r;
}

static int recover(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	struct work *work = context;
	(void)again;
	bool lost = false;
	/* Return uncertain leases of the node; if it fails, a later recovery does.
	 */
	(void)postern__pg_return_uncertain_leases(connection, work->recovery->node,
			false, NULL);
	int r = postern__pg_expire_nodes(connection, work->recovery->node, &lost,
			error);
	if (r == POSTERN_OK && !work->all) {
		r = find_abandoned(connection, work, error);
	}
	if (r == POSTERN_OK && (lost || work->all || work->recovery->lock)) {
		r = recover_leases(connection, work, error);
	}
	if (r == POSTERN_OK) {
		/* Every node gets here now and then; if it fails, a later recovery does
		   it. */
		(void)postern__pg_fold_tallies(connection, NULL);
	}
	return r;
}

int postern__pg_recover(struct postern_store *store,
		const struct postern_recovery *recovery, struct postern_recovered *out,
		struct postern_error *error) {
	struct pg_store *self = postern__pg_from_base(store);
	struct work work = {
		.recovery = recovery,
		.all = is_thorough(self) ||
			   (recovery->lock && !is_known(self, recovery->lock)),
	};
	struct postern_error trouble = { 0 };
	int r = postern__pg_do(self, recover, &work, &trouble);
	if (r == POSTERN_E_BUSY) {
		/* Another node is recovering; the next call reports what is left. */
		*out = (struct postern_recovered){ 0 };
		return POSTERN_OK;
	}
	if (r == POSTERN_OK) {
		*out = work.out;
		if (recovery->lock && !work.out.more) {
			remember(self, recovery->lock);
		}
		if (work.all && !work.out.more) {
			(void)pthread_mutex_lock(&self->mutex);
			self->scanned_all = true;
			(void)pthread_mutex_unlock(&self->mutex);
		}
	} else if (error) {
		*error = trouble;
	}
	return r;
}
