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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Deliveries per call of the store, so that no call takes long. */
#define POISON_BATCH 1000
/* The time between two checks while handlers are orphaned: counting their
   deliveries may take long. */
#define CHECK_INTERVAL_MS 10000
/* Room for the keys of several handlers in one notice. */
#define KEYS_LEN 400

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

/* List the keys that were not reported yet, as many as fit, and count the
   deliveries of all of them. */
static void list_unreported(struct postern_box *box, char out[KEYS_LEN],
		uint64_t *count_out) {
	const size_t rest_len = sizeof(" and 18446744073709551615 more");
	size_t len = 0;
	size_t left_out = 0;
	*count_out = 0;
	out[0] = '\0';
	for (size_t i = 0; i < box->orphaned_count; i++) {
		struct postern__orphaned *handler = &box->orphaned[i];
		size_t more = strlen(handler->key) + strlen(", ''");
		if (handler->reported) {
			continue;
		}
		handler->reported = true;
		*count_out += handler->count;
		if (left_out > 0 || len + more + rest_len > KEYS_LEN) {
			left_out++;
			continue;
		}
		len += (size_t)snprintf(out + len, KEYS_LEN - len, "%s'%s'",
				len > 0 ? ", " : "", handler->key);
	}
	if (left_out > 0) {
		(void)snprintf(out + len, KEYS_LEN - len, " and %zu more", left_out);
	}
}

static void report_orphaned(struct postern_box *box, postern_remark *notice,
		void *context) {
	char keys[KEYS_LEN];
	char text[sizeof(keys) + 200];
	uint64_t count;
	list_unreported(box, keys, &count);
	if (!keys[0] || !notice) {
		return;
	}
	(void)snprintf(text, sizeof(text),
			"no running node has configured handler %s; %llu open deliver%s "
			"will be poisoned in %d minutes unless a node configures it again",
			keys, (unsigned long long)count, count == 1 ? "y" : "ies",
			(int)(POSTERN__ORPHAN_GRACE_MS / 60000));
	notice(context, text);
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

/* Poison at most one batch; *found_out is how many orphaned deliveries there
   were before. */
static int poison_batch(struct postern_box *box, uint64_t node,
		const char *only, uint64_t *found_out, struct postern_error *error) {
	struct postern_memory *memory = postern_memory_create();
	struct postern_orphan *orphans = NULL;
	size_t count = 0;
	int r = query_orphans(box, node, only, true, memory, &orphans, &count,
			error);
	*found_out = 0;
	for (size_t i = 0; !r && i < count; i++) {
		*found_out += orphans[i].count;
	}
	postern_memory_destroy(memory);
	return r;
}

static int poison(struct postern_box *box, uint64_t node, const char *only,
		size_t *count_out, struct postern_error *error) {
	uint64_t total = 0;
	uint64_t found = UINT64_MAX;
	uint64_t before;
	int r;
	do {
		before = found;
		r = poison_batch(box, node, only, &found, error);
		/* The first count includes all of them, later ones what remains. */
		total = found > total ? found : total;
		/* A count that does not decrease is of leased deliveries, which a
		   later check finds again. */
	} while (!r && found > 0 && found < before);
	*count_out += (size_t)total;
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

int postern__poison_orphans(struct postern_box *box, postern_remark *notice,
		void *context, size_t *count_out, struct postern_error *error) {
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
		report_orphaned(box, notice, context);
		r = poison_overdue(box, node, count_out, error);
	}
	if (r) {
		postern__orphans_reset(box);
	}
	return r;
}
