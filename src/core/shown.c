/* SPDX-License-Identifier: MIT */
/*
 * The states that people are shown. A store knows which deliveries are pending
 * and which are leased; whether a leased one runs is known to the node that has
 * the lease, and why a pending one does not start depends on its handler:
 *
 *   pending   waiting   due later
 *             held      due, and its handler is held; or due later, and its
 *                       handler is broken, which is why it waits
 *             pending   due: a node will lease it soon
 *   leased    running   its node runs it
 *             stuck     and has done so for longer than the lease of a run
 *             queued    its node does not, as of the node's last report
 *             leased    its node is not known: it has ended, or this process
 *                       only reads the file of another one
 *
 * What this box runs it knows itself. What other nodes run is in their reports
 * (runs.c), which are a few seconds old; a run is matched by node and fence, so
 * an old report cannot show a run of a lease that has ended.
 */

#include "core/shown.h"

#include "base/fail.h"
#include "base/host.h"
#include "base/text.h"
#include "core/maintenance.h"
#include "core/pull.h"
#include "core/reason.h"
#include "core/run.h"

#include <postern/sys/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Words, and a duration. */
#define UNCLAIMED_TEXT_MAX 96

struct known_run {
	uint64_t node;
	int64_t seq;
	int64_t handler;
	uint64_t fence;
	int64_t started_at_ms;
	bool stuck;
};

/* Why the deliveries of a handler do not start. */
struct known_handler {
	int64_t id;
	struct postern__hold hold; /* reason NONE: they start */
};

struct postern__view {
	struct postern_box *box;
	struct postern_memory *memory;
	struct postern_generation *generation;
	int64_t now_ms;
	uint64_t own; /* 0: this box has no node */
	const char *host;
	struct postern_reports reports;
	struct known_run *runs; /* sorted */
	size_t run_count;
	struct known_handler *handlers;
	size_t handler_count;
	size_t handler_cap;
};

enum postern_state postern__state_stored(enum postern_state state) {
	switch (state) {
	case POSTERN_STATE_WAITING:
	case POSTERN_STATE_HELD: return POSTERN_STATE_PENDING;
	case POSTERN_STATE_QUEUED:
	case POSTERN_STATE_RUNNING:
	case POSTERN_STATE_STUCK: return POSTERN_STATE_LEASED;
	default: return state;
	}
}

static int run_compare(const void *a, const void *b) {
	const struct known_run *left = a;
	const struct known_run *right = b;
	if (left->node != right->node) {
		return left->node < right->node ? -1 : 1;
	}
	if (left->seq != right->seq) {
		return left->seq < right->seq ? -1 : 1;
	}
	if (left->handler != right->handler) {
		return left->handler < right->handler ? -1 : 1;
	}
	if (left->fence != right->fence) {
		return left->fence < right->fence ? -1 : 1;
	}
	return 0;
}

static void add_run(struct postern__view *view, uint64_t node,
		const struct postern_run_report *run) {
	view->runs[view->run_count++] = (struct known_run){
		.node = node,
		.seq = run->seq,
		.handler = run->handler,
		.fence = run->fence,
		.started_at_ms = view->now_ms - run->age_ms,
		.stuck = run->age_ms >= run->lease_ms,
	};
}

/* Copy what this box runs; NULL: out of memory. */
static struct postern_run_report *copy_own(struct postern__view *view,
		size_t *count_out) {
	struct postern_box *box = view->box;
	(void)pthread_mutex_lock(&box->mutex);
	size_t max =
			box->running_count + 64; /* more may start until it is copied */
	view->own = box->started ? box->node : 0;
	(void)pthread_mutex_unlock(&box->mutex);
	struct postern_run_report *own =
			postern_memory_alloc(view->memory, max * sizeof(*own));
	(void)pthread_mutex_lock(&box->mutex);
	*count_out = own && view->own ? postern__runs_copy(box, 0, own, max) : 0;
	(void)pthread_mutex_unlock(&box->mutex);
	return own;
}

static int read_runs(struct postern__view *view, struct postern_error *error) {
	struct postern_box *box = view->box;
	int r = POSTERN_OK;
	if (box->store->ops->read_runs) {
		r = box->store->ops->read_runs(box->store, view->memory, &view->reports,
				error);
	} else {
		view->reports.now_ms = box->clock.wall_ms(box->clock.context);
	}
	if (r) {
		return r;
	}
	view->now_ms = view->reports.now_ms;
	size_t own_count;
	struct postern_run_report *own = copy_own(view, &own_count);
	size_t total = own_count;
	for (size_t i = 0; i < view->reports.node_count; i++) {
		total += view->reports.nodes[i].run_count;
	}
	view->runs = postern_memory_alloc(view->memory,
			(total + 1) * sizeof(*view->runs));
	if (!own || !view->runs) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (size_t i = 0; i < own_count; i++) {
		add_run(view, view->own, &own[i]);
	}
	for (size_t i = 0; i < view->reports.node_count; i++) {
		const struct postern_node_report *node = &view->reports.nodes[i];
		for (size_t j = 0; node->node != view->own && j < node->run_count;
				j++) {
			add_run(view, node->node, &node->runs[j]);
		}
	}
	qsort(view->runs, view->run_count, sizeof(*view->runs), run_compare);
	return POSTERN_OK;
}

int postern__view_create(struct postern_box *box, struct postern_memory *memory,
		struct postern__view **out, struct postern_error *error) {
	struct postern__view *view = postern_memory_alloc(memory, sizeof(*view));
	if (!view) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	char host[POSTERN__HOST_LEN_MAX + 1];
	postern__host_name(host);
	view->box = box;
	view->memory = memory;
	view->host = postern_memory_text(memory, host);
	view->generation = postern__generation_acquire(box);
	int r = read_runs(view, error);
	if (r) {
		postern__view_finish(view);
		return r;
	}
	*out = view;
	return POSTERN_OK;
}

void postern__view_finish(struct postern__view *view) {
	if (view) {
		postern__generation_release(view->generation);
		free(view->handlers);
	}
}

/* The handler of this process with this key; NULL: none. */
static const struct postern__handler *
own_handler(const struct postern__view *view, const char *key) {
	for (size_t i = 0; i < view->generation->handler_count; i++) {
		if (strcmp(view->generation->handlers[i]->key, key) == 0) {
			return view->generation->handlers[i];
		}
	}
	return NULL;
}

/* With the mutex. Deliveries of a pull handler wait for a claim, if none waits
   for them: this holds nothing, but nothing else would show it. The text has
   room for UNCLAIMED_TEXT_MAX bytes. */
static void find_claims(const struct postern__view *view,
		const struct postern__handler *handler, char *text,
		struct postern__hold *out) {
	const struct postern__handler_state *state = handler->state;
	if (out->reason || !postern__handler_is_pulled(handler) ||
			!postern__list_empty(&state->pulls)) {
		return;
	}
	int64_t ms = postern__box_now_ms(view->box) - state->pulled_ms;
	char since[POSTERN__DURATION_TEXT_MAX];
	/* Whole seconds: the text has one unit. */
	postern__duration_format(ms / 1000 * 1000, since);
	(void)snprintf(text, UNCLAIMED_TEXT_MAX,
			"no worker has claimed at this node%s%s",
			state->pulled_ms > 0 ? " for " : "",
			state->pulled_ms > 0 ? since : "");
	*out = (struct postern__hold){
		.reason = POSTERN__REASON_PULL,
		.text = text,
	};
}

/* Why this node does not start deliveries of one of its handlers, if that is
   the handler: the lock, or the end of this node, does not hold it on others.
 */
static void find_hold_here(const struct postern__view *view,
		const struct postern__handler *handler, struct postern__hold *out) {
	struct postern_box *box = view->box;
	char text[UNCLAIMED_TEXT_MAX];
	(void)pthread_mutex_lock(&box->mutex);
	postern__hold_find(box, handler, view->now_ms, out);
	if (out->reason == POSTERN__REASON_LOCK ||
			out->reason == POSTERN__REASON_DRAINING) {
		*out = (struct postern__hold){ 0 };
	}
	find_claims(view, handler, text, out);
	postern__hold_copy(out, view->memory);
	(void)pthread_mutex_unlock(&box->mutex);
}

static struct known_handler *find_handler(const struct postern__view *view,
		int64_t id) {
	for (size_t i = 0; i < view->handler_count; i++) {
		if (view->handlers[i].id == id) {
			return &view->handlers[i];
		}
	}
	return NULL;
}

static bool reserve_handlers(struct postern__view *view, size_t count) {
	size_t cap = view->handler_count + count;
	if (cap > view->handler_cap) {
		struct known_handler *handlers =
				reallocarray(view->handlers, cap, sizeof(*handlers));
		if (!handlers) {
			return false;
		}
		view->handlers = handlers;
		view->handler_cap = cap;
	}
	return true;
}

/* Whether a hold of its handler may concern it: it is pending, or in a queue
   here. */
static bool may_be_held(const struct postern__view *view,
		const struct postern_row *row) {
	return row->state == POSTERN_STATE_PENDING ||
		   (row->state == POSTERN_STATE_LEASED && row->node == view->own);
}

/* Read from the store which of the handlers that were added are paused. In a
   store that only this process has open, its own copy is as good, and a listing
   must not wait for the writer. */
static int read_handler_pauses(struct postern__view *view, size_t first,
		struct postern_error *error) {
	struct postern_box *box = view->box;
	size_t count = view->handler_count - first;
	if (box->store->ops->exclusive && box->started) {
		return POSTERN_OK;
	}
	int64_t *ids = calloc(count + 1, sizeof(*ids));
	struct postern_halt *pauses = calloc(count + 1, sizeof(*pauses));
	int r = ids && pauses
					? POSTERN_OK
					: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	for (size_t i = 0; !r && i < count; i++) {
		ids[i] = view->handlers[first + i].id;
	}
	if (!r && count > 0) {
		r = box->store->ops->read_pauses(box->store, ids, count, view->memory,
				pauses, error);
	}
	for (size_t i = 0; !r && i < count; i++) {
		struct postern__hold *hold = &view->handlers[first + i].hold;
		if (pauses[i].on) {
			*hold = (struct postern__hold){
				.reason =
						postern__pause_reason(pauses[i].by, pauses[i].until_ms),
				.text = pauses[i].reason,
				.by = pauses[i].by,
				.at_ms = pauses[i].at_ms,
				.until_ms = pauses[i].until_ms,
			};
		} else if (hold->reason == POSTERN__REASON_PAUSED ||
				   hold->reason == POSTERN__REASON_RETRY_AFTER) {
			/* Resumed since this node read it. */
			*hold = (struct postern__hold){ 0 };
		}
	}
	free(pauses);
	free(ids);
	return r;
}

/* Find out why the handlers of these rows are held, if they are. */
static int read_handlers(struct postern__view *view,
		const struct postern_row *rows, size_t count,
		struct postern_error *error) {
	size_t first = view->handler_count;
	for (size_t i = 0; i < count; i++) {
		if (!may_be_held(view, &rows[i]) ||
				find_handler(view, rows[i].handler_id)) {
			continue;
		}
		if (!reserve_handlers(view, 1)) {
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
		const struct postern__handler *own = own_handler(view, rows[i].handler);
		struct known_handler *handler = &view->handlers[view->handler_count++];
		*handler = (struct known_handler){ .id = rows[i].handler_id };
		if (own && view->box->started) {
			find_hold_here(view, own, &handler->hold);
		}
	}
	return read_handler_pauses(view, first, error);
}

/* What is known to hold its handler. */
static enum postern__reason hold_of(const struct postern__view *view,
		const struct postern_row *row) {
	const struct known_handler *handler = find_handler(view, row->handler_id);
	return handler ? handler->hold.reason : POSTERN__REASON_NONE;
}

/* Show what holds its handler, if anything does. */
static void show_hold(const struct postern__view *view,
		struct postern_row *row) {
	const struct known_handler *handler = find_handler(view, row->handler_id);
	if (!handler || !handler->hold.reason) {
		return;
	}
	row->reason = postern__reason_name(handler->hold.reason);
	row->until_ms = handler->hold.until_ms;
	row->held_reason = handler->hold.text;
	row->held_by = handler->hold.by;
	row->held_at_ms = handler->hold.at_ms;
}

static void show_pending(const struct postern__view *view,
		struct postern_row *row) {
	enum postern__reason reason = hold_of(view, row);
	if (row->next_at_ms > view->now_ms && reason != POSTERN__REASON_BROKEN) {
		row->shown = POSTERN_STATE_WAITING;
		return;
	}
	show_hold(view, row);
	if (reason && reason != POSTERN__REASON_PULL) {
		row->shown = POSTERN_STATE_HELD;
	}
}

/* Set who has the lease; false: the node is not known. */
static bool show_node(const struct postern__view *view,
		struct postern_row *row) {
	if (row->node == view->own) {
		row->host = view->host;
		row->pid = getpid();
		row->reported_at_ms = view->now_ms;
		return true;
	}
	for (size_t i = 0; i < view->reports.node_count; i++) {
		const struct postern_node_report *node = &view->reports.nodes[i];
		if (node->node == row->node) {
			row->host = node->host;
			row->pid = node->pid;
			row->reported_at_ms = node->reported_at_ms;
			return true;
		}
	}
	return false;
}

/* A worker has it, on no node: `next_at_ms` is the end of its lease. */
static void show_pulled(const struct postern__view *view,
		struct postern_row *row) {
	row->shown = row->next_at_ms > view->now_ms ? POSTERN_STATE_RUNNING
												: POSTERN_STATE_STUCK;
	row->until_ms = row->next_at_ms;
	row->started_at_ms = row->leased_at_ms;
	row->next_at_ms = 0;
	row->node = 0;
}

static void show_leased(const struct postern__view *view,
		struct postern_row *row) {
	const struct known_run key = {
		.node = row->node,
		.seq = row->seq,
		.handler = row->handler_id,
		.fence = row->fence,
	};
	if (row->node == POSTERN_NODE_PULL) {
		show_pulled(view, row);
		return;
	}
	if (!show_node(view, row)) {
		return;
	}
	const struct known_run *run = bsearch(&key, view->runs, view->run_count,
			sizeof(key), run_compare);
	row->shown = !run         ? POSTERN_STATE_QUEUED
				 : run->stuck ? POSTERN_STATE_STUCK
							  : POSTERN_STATE_RUNNING;
	row->started_at_ms = run ? run->started_at_ms : 0;
	if (!run && row->node == view->own) {
		show_hold(view, row);
	}
}

static void show_row(const struct postern__view *view,
		struct postern_row *row) {
	const struct postern__handler *own = own_handler(view, row->handler);
	bool failed = row->state == POSTERN_STATE_POISONED ||
				  row->state == POSTERN_STATE_DISCARDED;
	row->shown = row->state;
	row->attempt = row->failures + (failed ? 0 : 1);
	if (own) {
		uint32_t most = own->policy.max_attempts;
		row->max_attempts = most > 0 ? most : 1;
	}
	if (row->state == POSTERN_STATE_PENDING) {
		show_pending(view, row);
	} else if (row->state == POSTERN_STATE_LEASED) {
		show_leased(view, row);
	} else if (row->state == POSTERN_STATE_PARKED) {
		row->attempt = 0;
	}
}

int postern__view_rows(struct postern__view *view, struct postern_row *rows,
		size_t count, struct postern_error *error) {
	int r = read_handlers(view, rows, count, error);
	for (size_t i = 0; !r && i < count; i++) {
		show_row(view, &rows[i]);
	}
	return r;
}

/* The handler with this key; NULL: none. The array belongs to the result; only
   its public type is const. */
static struct postern_handler_stats *
find_stats(const struct postern_stats *stats, const char *key) {
	for (size_t i = 0; key && i < stats->handler_count; i++) {
		if (strcmp(stats->handlers[i].key, key) == 0) {
			return (struct postern_handler_stats *)(uintptr_t)&stats
					->handlers[i];
		}
	}
	return NULL;
}

static void count_run(struct postern_handler_stats *handler, bool stuck) {
	if (handler) {
		handler->running += !stuck;
		handler->stuck += stuck;
	}
}

static void count_own_runs(struct postern_box *box,
		const struct postern_stats *stats) {
	const char *key = NULL;
	struct postern_handler_stats *handler = NULL;
	(void)pthread_mutex_lock(&box->mutex);
	int64_t now = postern__box_now_ms(box);
	postern__list_each(link, &box->running) {
		const struct postern_run *run =
				container_of(link, struct postern_run, link);
		if (run->handler->key != key) {
			key = run->handler->key;
			handler = find_stats(stats, key);
		}
		count_run(handler,
				now - run->started_ms >= run->handler->policy.lease_ms);
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

/* What workers have claimed is in no queue, and no node runs it. */
static void count_pulled(struct postern_handler_stats *handler) {
	handler->running = handler->leased;
}

/* Leases are counted in the store, runs by the nodes, perhaps a moment
   earlier. */
static void balance(struct postern_handler_stats *handler) {
	if (handler->stuck > handler->leased) {
		handler->stuck = handler->leased;
	}
	if (handler->running > handler->leased - handler->stuck) {
		handler->running = handler->leased - handler->stuck;
	}
	handler->queued = handler->leased - handler->stuck - handler->running;
}

void postern__view_stats(struct postern__view *view,
		struct postern_stats *stats) {
	count_own_runs(view->box, stats);
	for (size_t i = 0; i < view->reports.node_count; i++) {
		const struct postern_node_report *node = &view->reports.nodes[i];
		for (size_t j = 0; node->node != view->own && j < node->run_count;
				j++) {
			const struct postern_run_report *run = &node->runs[j];
			count_run(find_stats(stats, run->key),
					run->age_ms >= run->lease_ms);
		}
	}
	for (size_t i = 0; i < stats->handler_count; i++) {
		const struct postern__handler *own =
				own_handler(view, stats->handlers[i].key);
		if (own && postern__handler_is_pulled(own)) {
			count_pulled((struct postern_handler_stats *)(uintptr_t)&stats
								 ->handlers[i]);
		}
		balance((struct postern_handler_stats *)(uintptr_t)&stats->handlers[i]);
	}
}
