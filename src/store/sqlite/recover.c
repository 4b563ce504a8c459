/* SPDX-License-Identifier: MIT */

/*
 * Recovering the leases of expired nodes.
 *
 * Leases have no index, which would slow down every accept: they are found by
 * reading all open deliveries. If one node uses the store, that is done once,
 * after a start; from then on all leases are known to be its own, until another
 * node leases something. Pull leases, which are no node's, have an index: one
 * that ended long ago is found by each recovery.
 */

#include <stdlib.h>

#include "base/point.h"
#include "core/error_group.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

struct lost {
	struct sqlite_delivery delivery;
	bool in_process;
};

struct recovery {
	struct sqlite_store *store;
	struct lost *items;
	size_t count;
	size_t cap;
	int64_t now;
	int64_t last_group;
	bool alone; /* no other node can have leases */
	struct postern_recovered out;
};

/* Deliveries that are not in-process first, then by group, and by message
   within a group. */
static int sqlite_lost_compare(const void *left, const void *right) {
	const struct lost *a = left;
	const struct lost *b = right;
	const struct sqlite_delivery *x = &a->delivery;
	const struct sqlite_delivery *y = &b->delivery;
	if (a->in_process != b->in_process) {
		return a->in_process ? 1 : -1;
	}
	if (x->suspect != y->suspect) {
		return x->suspect > y->suspect ? 1 : -1;
	}
	if (x->seq != y->seq) {
		return x->seq > y->seq ? 1 : -1;
	}
	return x->handler > y->handler ? 1 : -1;
}

static bool lost_reserve(struct recovery *recovery) {
	if (recovery->count < recovery->cap) {
		return true;
	}
	size_t cap = recovery->cap ? 2 * recovery->cap : 256;
	struct lost *items = realloc(recovery->items, cap * sizeof *items);
	if (!items) {
		return false;
	}
	recovery->items = items;
	recovery->cap = cap;
	return true;
}

static int find_lost(struct recovery *recovery,
		const struct postern_recovery *request, struct postern_error *error) {
	struct sqlite_store *self = recovery->store;
	bool memory = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT seq, handler, fence, failures, crashes, suspect, solo,"
			" since FROM postern_open"
			" WHERE node IS NOT NULL AND node <> ?1"
			" AND iif(node = -1, due_at <= ?3,"
			" ?2 OR node NOT IN (SELECT node FROM postern_node))");
	postern__sqlite_bind_int(&query, 1, (int64_t)request->node);
	postern__sqlite_bind_int(&query, 2, request->lock != NULL);
	postern__sqlite_bind_int(&query, 3,
			recovery->now - POSTERN__PULL_ABANDONED_MS);
	while (memory && postern__sqlite_row(&query)) {
		memory = lost_reserve(recovery);
		if (!memory) {
			break;
		}
		int64_t handler = postern__sqlite_int(&query, 1);
		const struct sqlite_handler *owner =
				postern__sqlite_owner(self, handler);
		recovery->items[recovery->count++] = (struct lost){
			.delivery = {
				.seq = postern__sqlite_int(&query, 0),
				.handler = handler,
				.state = POSTERN_STATE_LEASED,
				.fence = (uint64_t)postern__sqlite_int(&query, 2),
				.failures = (uint32_t)postern__sqlite_int(&query, 3),
				.crashes = (uint32_t)postern__sqlite_int(&query, 4),
				.suspect = postern__sqlite_int(&query, 5),
				.solo = postern__sqlite_int(&query, 6) != 0,
				.since = postern__sqlite_int(&query, 7),
			},
			.in_process = owner && owner->in_process,
		};
	}
	int r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !memory ? postern__sqlite_no_memory(error) : r;
}

static int lost_release(struct recovery *recovery, const struct lost *lost,
		int64_t group, struct postern_error *error) {
	const struct sqlite_delivery *delivery = &lost->delivery;
	struct sqlite_store *self = recovery->store;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_open SET node = NULL, since = ?3, due_at = ?3,"
			" suspect = ?4, solo = 0, crashes = ?5"
			" WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, delivery->seq);
	postern__sqlite_bind_int(&query, 2, delivery->handler);
	postern__sqlite_bind_int(&query, 3, recovery->now);
	postern__sqlite_bind_int(&query, 4, group);
	postern__sqlite_bind_int(&query, 5, delivery->crashes);
	postern__sqlite_count(self, delivery->handler, POSTERN_STATE_LEASED, 0, -1);
	postern__sqlite_count(self, delivery->handler, POSTERN_STATE_PENDING,
			delivery->failures, 1);
	if (group) {
		recovery->out.suspects++;
	} else {
		recovery->out.released++;
	}
	return postern__sqlite_end(&query, error);
}

static bool has_crashed(const struct lost *lost) {
	return lost->in_process && lost->delivery.solo;
}

static int crash_group_set(struct sqlite_store *self,
		const struct sqlite_delivery *delivery, uint64_t group,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_open SET error_group = ?3"
			" WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, delivery->seq);
	postern__sqlite_bind_int(&query, 2, delivery->handler);
	postern__sqlite_bind_group(&query, 3, group);
	return postern__sqlite_end(&query, error);
}

static int sqlite_crash_record(struct recovery *recovery, struct lost *lost,
		struct postern_error *error) {
	struct sqlite_store *self = recovery->store;
	struct sqlite_delivery *delivery = &lost->delivery;
	const uint64_t group = postern__error_group(POSTERN__CRASH_ERROR);
	delivery->crashes++;
	int r = postern__sqlite_attempt_insert(self, delivery->seq,
			delivery->handler, delivery->fence, delivery->since, recovery->now,
			"crash", POSTERN__CRASH_ERROR, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_sample_keep(self, group, delivery->handler,
				POSTERN__CRASH_ERROR, recovery->now, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	if (delivery->crashes <
			postern__sqlite_owner(self, delivery->handler)->max_crashes) {
		r = lost_release(recovery, lost, ++recovery->last_group, error);
		return r == POSTERN_OK ? crash_group_set(self, delivery, group, error)
							   : r;
	}
	recovery->out.poisoned++;
	return postern__sqlite_delivery_close(self, delivery,
			POSTERN_STATE_POISONED, group, recovery->now, error);
}

/* The lost members of one group become two groups: the first half, which is
   larger if the count is odd, will be run first. */
static int sqlite_group_split(struct recovery *recovery, struct lost *lost,
		size_t count, struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		if (i == 0 || i == (count + 1) / 2) {
			recovery->last_group++;
		}
		r = lost_release(recovery, &lost[i], recovery->last_group, error);
	}
	return r;
}

static int sqlite_lost_recover(struct recovery *recovery, size_t count,
		struct postern_error *error) {
	int r = postern__sqlite_number(&recovery->store->writer,
			"SELECT max(suspect) FROM postern_open"
			" INDEXED BY postern_open_suspect WHERE suspect > 0",
			&recovery->last_group, error);
	for (size_t i = 0; r == POSTERN_OK && i < count;) {
		struct lost *lost = &recovery->items[i];
		if (has_crashed(lost)) {
			r = sqlite_crash_record(recovery, lost, error);
			i++;
		} else if (!lost->in_process) {
			r = lost_release(recovery, lost, 0, error);
			i++;
		} else {
			size_t members = 1;
			while (i + members < count && !has_crashed(&lost[members]) &&
					lost[members].delivery.suspect == lost->delivery.suspect) {
				members++;
			}
			r = sqlite_group_split(recovery, lost, members, error);
			i += members;
		}
	}
	return r;
}

/* Sets `alone`: whether no other node can have leases now. */
static int others_check(struct recovery *recovery,
		const struct postern_recovery *request, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &recovery->store->writer,
			"SELECT 1 FROM postern_node WHERE node <> ?1 LIMIT 1");
	postern__sqlite_bind_int(&query, 1, (int64_t)request->node);
	recovery->alone = request->lock || !postern__sqlite_row(&query);
	return postern__sqlite_end(&query, error);
}

/* Runs inside a transaction. */
static int recover_in_transaction(struct recovery *recovery,
		const struct postern_recovery *request, struct postern_error *error) {
	int r = postern__sqlite_check_lock(recovery->store, request->node,
			request->lock, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_nodes_expire(recovery->store, request->node,
				recovery->now, error);
	}
	if (r == POSTERN_OK) {
		r = find_lost(recovery, request, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	size_t count = recovery->count;
	if (count > request->max) {
		count = request->max;
		recovery->out.more = true;
	}
	if (recovery->count > 0) {
		qsort(recovery->items, recovery->count, sizeof *recovery->items,
				sqlite_lost_compare);
	}
	postern__point("sqlite-recover.found");
	r = sqlite_lost_recover(recovery, count, error);
	postern__point("sqlite-recover.taken");
	return r == POSTERN_OK ? others_check(recovery, request, error) : r;
}

/* Whether a pull lease ended so long ago that it is recovered. */
static int find_abandoned(struct sqlite_store *self, int64_t now,
		bool *found_out, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT 1 FROM postern_open INDEXED BY postern_open_pull"
			" WHERE node = -1 AND due_at <= ?1 LIMIT 1");
	postern__sqlite_bind_int(&query, 1, now - POSTERN__PULL_ABANDONED_MS);
	*found_out = postern__sqlite_row(&query);
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_recover(struct postern_store *store,
		const struct postern_recovery *request, struct postern_recovered *out,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct recovery recovery = {
		.store = self,
		.now = postern__sqlite_now(self),
	};
	bool reads = self->only_node != request->node;
	if (!reads) {
		r = find_abandoned(self, recovery.now, &reads, error);
	}
	if (r == POSTERN_OK && reads) {
		r = postern__sqlite_begin(self, error);
		if (r == POSTERN_OK) {
			r = recover_in_transaction(&recovery, request, error);
			r = postern__sqlite_finish(self, r, error);
		}
		if (r == POSTERN_OK && !recovery.out.more && recovery.alone) {
			self->only_node = request->node;
		}
	} else if (r == POSTERN_OK) {
		r = postern__sqlite_check_lock(self, request->node, request->lock,
				error);
	}
	postern__sqlite_gate_leave(self);
	free(recovery.items);
	if (r == POSTERN_OK) {
		*out = recovery.out;
	}
	return r;
}
