/* SPDX-License-Identifier: MIT */
/*
 * Poisoning orphaned deliveries: those of handlers that no running node has
 * configured.
 *
 * In a store that several nodes share, a handler is orphaned while the only
 * node that has it restarts. So its deliveries are poisoned only after the
 * handler has been orphaned for POSTERN__ORPHAN_GRACE_MS, counted for each
 * handler, as observed by this node without interruption: while this node
 * could not query the store, another node may have had the handler.
 */

#include "core/box.h"
#include "core/maintenance.h"

#include "base/fail.h"
#include "base/point.h"

#include <postern/sys/memory.h>
#include <stdlib.h>
#include <string.h>

/* Deliveries per call of the store, so that no call takes long. */
#define POISON_BATCH 1000
/* The time between two checks while handlers are orphaned: counting their
   deliveries may take long. */
#define CHECK_INTERVAL_MS 10000

struct postern__orphaned {
	char *key;
	int64_t poison_at_ms; /* when its deliveries are poisoned */
	uint64_t count;       /* of its open deliveries */
	bool seen;            /* found by the check in progress */
	bool reported;
};

void postern__orphans_reset(struct postern_box *box) {
	for (size_t i = 0; i < box->orphaned_count; i++) {
		free(box->orphaned[i].key);
	}
	free(box->orphaned);
	box->orphaned = NULL;
	box->orphaned_count = 0;
}

/* Report each orphaned handler once. */
static void report_orphaned(struct postern_box *box) {
	for (size_t i = 0; i < box->orphaned_count; i++) {
		struct postern__orphaned *handler = &box->orphaned[i];
		if (handler->reported) {
			continue;
		}
		handler->reported = true;
		postern__emit_text(box,
				&(struct postern_event){
						.kind = POSTERN_EVENT_ORPHANED,
						.handler = handler->key,
						.count = handler->count,
				},
				"no running node has configured handler '%s'; %llu open "
				"deliver%s will be poisoned in %d minutes unless a node "
				"configures it again",
				handler->key, (unsigned long long)handler->count,
				handler->count == 1 ? "y" : "ies",
				(int)(POSTERN__ORPHAN_GRACE_MS / 60000));
	}
}

static int record_orphaned(struct postern_box *box,
		const struct postern_orphan *orphan, struct postern_error *error) {
	struct postern__orphaned *handler = NULL;
	for (size_t i = 0; !handler && i < box->orphaned_count; i++) {
		if (strcmp(box->orphaned[i].key, orphan->key) == 0) {
			handler = &box->orphaned[i];
		}
	}
	if (!handler) {
		struct postern__orphaned *more = realloc(box->orphaned,
				(box->orphaned_count + 1) * sizeof(*more));
		char *key = strdup(orphan->key);
		box->orphaned = more ? more : box->orphaned;
		if (!more || !key) {
			free(key);
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
		handler = &more[box->orphaned_count++];
		*handler = (struct postern__orphaned){
			.key = key,
			.poison_at_ms =
					postern__box_after_ms(box, POSTERN__ORPHAN_GRACE_MS),
		};
	}
	handler->count = orphan->count;
	handler->seen = true;
	return POSTERN_OK;
}

/* Remove the handlers that were not seen: a node has them again, or they have
   no open deliveries left. */
static void drop_unseen(struct postern_box *box) {
	size_t kept = 0;
	for (size_t i = 0; i < box->orphaned_count; i++) {
		if (box->orphaned[i].seen) {
			box->orphaned[kept] = box->orphaned[i];
			box->orphaned[kept++].seen = false;
		} else {
			free(box->orphaned[i].key);
		}
	}
	box->orphaned_count = kept;
}

/* Query the store. `memory` may be NULL: POSTERN_E_NOMEM. */
static int query_orphans(struct postern_box *box, uint64_t node,
		const char *only, bool poison, struct postern_memory *memory,
		struct postern_orphan **orphans_out, size_t *count_out,
		struct postern_error *error) {
	if (!memory) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	postern__point("orphans.before");
	int r = box->store->ops->orphans(box->store, node, only, poison,
			poison ? POISON_BATCH : 0, memory, orphans_out, count_out, error);
	postern__point("orphans.after");
	return r;
}

static int find_orphaned_handlers(struct postern_box *box, uint64_t node,
		struct postern_error *error) {
	struct postern_memory *memory = postern_memory_create();
	struct postern_orphan *orphans = NULL;
	size_t count = 0;
	int r = query_orphans(box, node, NULL, false, memory, &orphans, &count,
			error);
	for (size_t i = 0; !r && i < count; i++) {
		r = record_orphaned(box, &orphans[i], error);
	}
	postern_memory_destroy(memory);
	return r;
}

/* One batch: what was orphaned before it. */
struct poisoning {
	struct postern_memory *memory;
	struct postern_orphan *orphans;
	size_t count;
	uint64_t found; /* the deliveries of all of them */
};

static void poisoning_finish(struct poisoning *batch) {
	postern_memory_destroy(batch->memory);
	*batch = (struct poisoning){ 0 };
}

static int poison_batch(struct postern_box *box, uint64_t node,
		const char *only, struct poisoning *out, struct postern_error *error) {
	*out = (struct poisoning){ .memory = postern_memory_create() };
	int r = query_orphans(box, node, only, true, out->memory, &out->orphans,
			&out->count, error);
	for (size_t i = 0; !r && i < out->count; i++) {
		out->found += out->orphans[i].count;
	}
	return r;
}

/* Report how many deliveries of a handler were poisoned; returns that. */
static uint64_t report_poisoned(struct postern_box *box,
		const struct postern_orphan *orphan, const struct poisoning *left) {
	uint64_t count = orphan->count;
	for (size_t i = 0; i < left->count; i++) {
		if (strcmp(left->orphans[i].key, orphan->key) == 0) {
			count -= left->orphans[i].count < count ? left->orphans[i].count
													: count;
		}
	}
	if (count > 0) {
		postern__emit_text(box,
				&(struct postern_event){
						.kind = POSTERN_EVENT_ORPHANS_POISONED,
						.handler = orphan->key,
						.count = count,
				},
				"poisoned %llu orphaned deliver%s: no running node has the "
				"handler '%s' configured",
				(unsigned long long)count, count == 1 ? "y" : "ies",
				orphan->key);
	}
	return count;
}

static int poison(struct postern_box *box, uint64_t node, const char *only,
		size_t *count_out, struct postern_error *error) {
	struct poisoning first;
	struct poisoning last = { 0 };
	int r = poison_batch(box, node, only, &first, error);
	uint64_t before = first.found;
	bool more = !r && before > 0;
	while (more) {
		poisoning_finish(&last);
		r = poison_batch(box, node, only, &last, error);
		/* A count that does not decrease is of leased deliveries, which a
		   later check finds again. */
		more = !r && last.found > 0 && last.found < before;
		before = last.found;
	}
	for (size_t i = 0; !r && i < first.count; i++) {
		*count_out += (size_t)report_poisoned(box, &first.orphans[i], &last);
	}
	poisoning_finish(&first);
	poisoning_finish(&last);
	return r;
}

static int poison_overdue(struct postern_box *box, uint64_t node,
		size_t *count_out, struct postern_error *error) {
	int64_t now = postern__box_now_ms(box);
	int r = POSTERN_OK;
	for (size_t i = 0; !r && i < box->orphaned_count; i++) {
		if (now >= box->orphaned[i].poison_at_ms) {
			r = poison(box, node, box->orphaned[i].key, count_out, error);
		}
	}
	return r;
}

int postern__poison_orphans(struct postern_box *box, size_t *count_out,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t node = box->node;
	bool expired = box->node_expired;
	(void)pthread_mutex_unlock(&box->mutex);
	*count_out = 0;
	if (expired || node != box->orphaned_node) {
		/* The node expired: its observation was interrupted. */
		postern__orphans_reset(box);
		box->orphaned_node = node;
	}
	if (expired) {
		/* No live node has this node's own handlers at the moment. */
		return POSTERN_OK;
	}
	if (box->store->ops->exclusive) {
		return poison(box, node, NULL, count_out, error);
	}
	if (box->orphaned_count > 0 &&
			postern__box_now_ms(box) < box->orphaned_check_at_ms) {
		return POSTERN_OK;
	}
	int r = find_orphaned_handlers(box, node, error);
	box->orphaned_check_at_ms = postern__box_after_ms(box, CHECK_INTERVAL_MS);
	if (!r) {
		drop_unseen(box);
		report_orphaned(box);
		r = poison_overdue(box, node, count_out, error);
	}
	if (r) {
		postern__orphans_reset(box);
	}
	return r;
}
