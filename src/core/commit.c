/* SPDX-License-Identifier: MIT */
/*
 * Group commit. A thread that finds a free writer removes all items from the
 * commit queue and writes them in one transaction; items that arrive meanwhile
 * form the next group. There is no timer and no thread here: a blocked caller
 * also commits the items of all other callers, and a runner's writer commits
 * settlements and asynchronous accepts. The store determines how many groups
 * may be written at the same time.
 *
 * If the store refuses a group for a reason that one item may have caused, the
 * group is halved until that item is alone, so that the others commit. If the
 * store is unavailable, accepts fail (no sender has a receipt yet) and
 * settlements stay queued: a settlement is never dropped while its lease holds.
 */

#include "core/commit.h"
#include "core/accept.h"
#include "core/box.h"
#include "core/inline.h"
#include "core/run.h"
#include "core/tenure.h"

#include "base/fail.h"
#include "base/point.h"

#include <assert.h>
#include <stdlib.h>

/* How long settlements wait after a commit failed. */
#define RETRY_MS 1000

/* The working space of one commit; allocated once per writer. Settlements come
   first in `items` and `codes`. */
struct postern__group {
	bool in_use;
	struct postern_settlement settlements[POSTERN__COMMIT_ITEMS_MAX];
	struct postern_accept accepts[POSTERN__COMMIT_ITEMS_MAX];
	struct postern__item *items[2 * POSTERN__COMMIT_ITEMS_MAX];
	int codes[2 * POSTERN__COMMIT_ITEMS_MAX]; /* of each item's commit */
	size_t count;
	size_t settlement_count;
	struct postern__right right;
	int64_t duration_ms; /* of the store's calls */
	/* The store's last error; reported for every item that was refused. */
	struct postern_error refusal;
};

struct postern__group *postern__group_create(void) {
	return calloc(1, sizeof(struct postern__group));
}

void postern__group_destroy(struct postern__group *group) {
	free(group);
}

static struct postern_run *run_of(struct postern__item *item) {
	assert(item->kind == POSTERN__ITEM_SETTLE);
	return container_of(item, struct postern_run, item);
}

static struct postern__content *content_of(struct postern__item *item) {
	assert(item->kind == POSTERN__ITEM_ACCEPT);
	return container_of(item, struct postern__content, item);
}

static bool settlements_ready(const struct postern_box *box) {
	return !postern__list_empty(&box->settlements) &&
		   postern__box_now_ms(box) >= box->commit_retry_at_ms;
}

static struct postern__group *free_group(const struct postern_box *box) {
	for (size_t i = 0; i < POSTERN__WRITERS_MAX; i++) {
		if (box->groups[i] && !box->groups[i]->in_use) {
			return box->groups[i];
		}
	}
	return NULL;
}

bool postern__commit_free(const struct postern_box *box) {
	return free_group(box) != NULL;
}

bool postern__commit_ready(const struct postern_box *box) {
	if (!postern__list_empty(&box->answers)) {
		return true;
	}
	return postern__commit_free(box) &&
		   (!postern__list_empty(&box->accepts) || settlements_ready(box));
}

static size_t pop_items(struct postern__list *list, struct postern__item **out,
		size_t *bytes) {
	size_t count = 0;
	while (count < POSTERN__COMMIT_ITEMS_MAX &&
			*bytes < POSTERN__COMMIT_BYTES_MAX) {
		struct postern__list *link = postern__list_pop_front(list);
		if (!link) {
			break;
		}
		out[count] = container_of(link, struct postern__item, link);
		*bytes += out[count]->bytes;
		count++;
	}
	return count;
}

static void fill_group(struct postern_box *box, struct postern__group *group) {
	size_t bytes = 0;
	group->count = 0;
	if (settlements_ready(box)) {
		group->count = pop_items(&box->settlements, group->items, &bytes);
	}
	group->settlement_count = group->count;
	size_t accepts = pop_items(&box->accepts,
			group->items + group->settlement_count, &bytes);
	for (size_t i = 0; i < accepts; i++) {
		postern__accept_dequeued(box,
				content_of(group->items[group->count + i]));
	}
	group->count += accepts;
	group->duration_ms = 0;
	group->right = postern__right_of(box);
}

/* Call the store, and report a commit with its size and duration, which is
   added to *total_ms. */
static int apply_batch(struct postern_box *box, struct postern_batch *batch,
		size_t bytes, int64_t *total_ms, struct postern_error *error) {
	int64_t started = postern__box_now_ms(box);
	postern__point("apply.before");
	if (postern__point_fails("apply.refused")) {
		return postern__fail(error, POSTERN_E_INVALID,
				"refused by a crash point");
	}
	int r = box->store->ops->apply(box->store, batch, error);
	postern__point("apply.after");
	int64_t duration_ms = postern__box_now_ms(box) - started;
	*total_ms += duration_ms;
	if (!r &&
			postern__event_wanted(&box->subscribers, POSTERN_EVENT_COMMITTED)) {
		postern__emit(box,
				&(struct postern_event){
						.kind = POSTERN_EVENT_COMMITTED,
						.count = batch->settlement_count + batch->accept_count,
						.bytes = bytes,
						.duration_ms = duration_ms,
				});
	}
	return r;
}

static int apply_items(struct postern_box *box, struct postern__group *group,
		size_t from, size_t count, struct postern_error *error) {
	struct postern_batch batch = {
		.node = group->right.node,
		.lock = postern__right_lock(&group->right),
		.settlements = group->settlements,
		.accepts = group->accepts,
	};
	int64_t now = postern__box_now_ms(box);
	size_t bytes = 0;
	for (size_t i = from; i < from + count; i++) {
		struct postern__item *item = group->items[i];
		bytes += item->bytes;
		if (item->kind == POSTERN__ITEM_SETTLE) {
			struct postern_run *run = run_of(item);
			run->settlement.lag_ms = now - run->ended_ms;
			batch.settlements[batch.settlement_count++] = run->settlement;
		} else {
			batch.accepts[batch.accept_count++] = content_of(item)->accept;
		}
	}
	int r = apply_batch(box, &batch, bytes, &group->duration_ms, error);
	if (r) {
		return r;
	}
	size_t settled = 0;
	size_t accepted = 0;
	for (size_t i = from; i < from + count; i++) {
		struct postern__item *item = group->items[i];
		group->codes[i] = POSTERN_OK;
		if (item->kind == POSTERN__ITEM_SETTLE) {
			run_of(item)->settlement = batch.settlements[settled++];
		} else {
			content_of(item)->accept = batch.accepts[accepted++];
		}
	}
	return POSTERN_OK;
}

static bool is_store_unavailable(int code) {
	return code == POSTERN_E_UNAVAILABLE || code == POSTERN_E_TIMEOUT;
}

/*
 * Write items [from, from + count), halving the range when it is refused.
 * Returns an error only if the store is unavailable; finish_items() requeues a
 * settlement that was refused alone.
 */
static int apply_halving(struct postern_box *box, struct postern__group *group,
		size_t from, size_t count) {
	struct postern_error error = { 0 };
	int r = apply_items(box, group, from, count, &error);
	if (!r) {
		return POSTERN_OK;
	}
	if (is_store_unavailable(r) || count == 1) {
		group->refusal = error;
		for (size_t i = from; i < from + count; i++) {
			group->codes[i] = r;
		}
		return is_store_unavailable(r) ? r : POSTERN_OK;
	}
	postern__point("halve.before");
	size_t half = count / 2;
	r = apply_halving(box, group, from, half);
	if (r) {
		/* The store is unavailable: do not try the second half. */
		for (size_t i = from + half; i < from + count; i++) {
			group->codes[i] = r;
		}
		return r;
	}
	return apply_halving(box, group, from + half, count - half);
}

/* Without the mutex: fill in and pass on receipts, emit events. */
static void emit_results(struct postern_box *box,
		struct postern__group *group) {
	struct postern__closed closed = { 0 };
	for (size_t i = 0; i < group->count; i++) {
		struct postern__item *item = group->items[i];
		if (item->kind == POSTERN__ITEM_ACCEPT) {
			struct postern__content *content = content_of(item);
			bool refused = group->codes[i] == POSTERN_OK &&
						   content->accept.code == POSTERN_E_UNAVAILABLE;
			if (refused) {
				group->codes[i] = postern__closed_error(box, content, &closed);
			}
			postern__accept_decide(box, content, group->codes[i],
					refused ? &closed.error : &group->refusal);
		} else if (group->codes[i] == POSTERN_OK) {
			struct postern_run *run = run_of(item);
			if (run->settlement.code == POSTERN_OK) {
				postern__emit_settled(run);
			} else {
				postern__emit_fenced(run);
			}
		}
	}
}

/* With the mutex: release settled runs, requeue settlements that were not
   written, finish accepts. Returns how many items are no longer queued. */
static size_t finish_items(struct postern_box *box,
		struct postern__group *group) {
	size_t decided = 0;
	/* Backwards, so that requeued settlements keep their order. */
	for (size_t i = group->count; i-- > 0;) {
		struct postern__item *item = group->items[i];
		if (item->kind == POSTERN__ITEM_ACCEPT) {
			continue;
		}
		if (group->codes[i] != POSTERN_OK) {
			run_of(item)->settlement.again = true;
			postern__list_push_front(&box->settlements, &item->link);
			continue;
		}
		struct postern_run *run = run_of(item);
		if (run->settlement.code == POSTERN_OK &&
				(run->settlement.to == POSTERN_SETTLE_PENDING ||
						run->settlement.to == POSTERN_SETTLE_RETURNED)) {
			postern__claim_hint(box, run->handler, run->settlement.delay_ms);
		}
		postern__run_settled(run);
		decided++;
	}
	for (size_t i = group->settlement_count; i < group->count; i++) {
		postern__accept_finish(box, content_of(group->items[i]));
		decided++;
	}
	return decided;
}

/* Without the mutex. */
static int write_group(struct postern_box *box, struct postern__group *group) {
	int r = apply_halving(box, group, 0, group->count);
	postern__point("announce.before");
	emit_results(box, group);
	postern__point("announce.after");
	return r;
}

/* With the mutex: finish the items and record whether the store failed. */
static int finish_group(struct postern_box *box, struct postern__group *group,
		int r, size_t *decided_out, struct postern_error *error) {
	*decided_out = finish_items(box, group);
	bool refused = *decided_out < group->count;
	if (!r) {
		postern__meter_commit(box, *decided_out, group->duration_ms);
	}
	box->commit_retry_at_ms =
			refused ? postern__box_after_ms(box, RETRY_MS) : 0;
	if (!r && refused) {
		/* A settlement that cannot be written is an error of the store, even
		   if all other items were written. */
		r = group->refusal.code;
	}
	box->store_failing = r != POSTERN_OK;
	if (r && error) {
		*error = group->refusal;
	}
	return r;
}

/* With the mutex: a group was written, another thread may write the next. */
static void wake_next_writer(struct postern_box *box) {
	(void)pthread_cond_signal(&box->wake);
	if (!postern__list_empty(&box->waiters)) {
		(void)pthread_cond_signal(
				&container_of(box->waiters.next, struct postern__waiter, link)
						 ->wake);
	}
}

int postern__commit_group(struct postern_box *box, size_t *count_out,
		struct postern_error *error) {
	postern__inline_answer(box);
	struct postern__group *group = free_group(box);
	size_t decided = 0;
	int r = POSTERN_OK;
	if (group) {
		fill_group(box, group);
	}
	if (group && group->count > 0) {
		group->in_use = true;
		box->committing++;
		(void)pthread_mutex_unlock(&box->mutex);
		r = write_group(box, group);
		(void)pthread_mutex_lock(&box->mutex);
		r = finish_group(box, group, r, &decided, error);
		group->in_use = false;
		box->committing--;
		(void)pthread_cond_broadcast(&box->committed);
		wake_next_writer(box);
		postern__claim_nudge(box);
		postern__room_announce(box);
	}
	if (count_out) {
		*count_out = decided;
	}
	return r;
}

int postern_box_commit(struct postern_box *box, size_t *count_out,
		struct postern_error *error) {
	int r = postern__box_check_started(box, error);
	if (!r) {
		r = postern__check_no_transaction(box, error);
	}
	if (r) {
		return r;
	}
	size_t total = 0;
	(void)pthread_mutex_lock(&box->mutex);
	while (!r && (box->committing > 0 || postern__commit_ready(box))) {
		if (!postern__commit_ready(box)) {
			postern__wait(&box->committed, &box->mutex, -1);
			continue;
		}
		size_t count = 0;
		r = postern__commit_group(box, &count, error);
		total += count;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	if (count_out) {
		*count_out = total;
	}
	return r;
}
