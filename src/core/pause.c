/* SPDX-License-Identifier: MIT */
/*
 * Pausing and resuming handlers.
 *
 * The state in the store is authoritative, because an operator may pause a
 * handler through any node: the store neither leases nor claims deliveries of a
 * paused handler. A box keeps a copy in memory, which is read again whenever a
 * runner polls or is woken. While a handler is paused in the copy, the box does
 * not claim for it; when it becomes paused, the leases of runs that have not
 * started are returned.
 *
 * A pause with an end is over when the store's clock says so. The copy ends by
 * the monotonic clock, as long after it was read as the store's clock had left;
 * the pauses are read again then, in case the store's clock was set.
 */

#include "core/box.h"
#include "core/maintenance.h"
#include "core/reason.h"
#include "core/run.h"

#include "base/fail.h"
#include "base/point.h"

#include <postern/sys/memory.h>
#include <stdlib.h>
#include <string.h>

bool postern__is_paused(const struct postern_box *box,
		const struct postern__handler_state *state) {
	return state->paused &&
		   (state->paused_until_ms == 0 ||
				   postern__box_now_ms(box) < state->paused_until_ms);
}

bool postern__pauses_due(const struct postern_box *box) {
	return postern__box_now_ms(box) >= box->pauses_end_ms;
}

/* NULL: there is none, or out of memory, and then it is not shown. */
static void set_text(char **text, const char *value) {
	free(*text);
	*text = value ? strdup(value) : NULL;
}

/* With the mutex. */
static void set_handler_paused(struct postern_box *box,
		struct postern__handler *handler, const struct postern_halt *pause) {
	bool before = handler->state->paused;
	handler->state->paused = pause->on;
	handler->state->paused_until_ms = 0;
	handler->state->pause_at_ms = pause->at_ms;
	handler->state->pause_until_ms = pause->until_ms;
	set_text(&handler->state->pause_reason, pause->reason);
	set_text(&handler->state->pause_by, pause->by);
	if (pause->on && pause->until_ms > 0) {
		int64_t end = postern__box_after_ms(box, pause->left_ms);
		handler->state->paused_until_ms = end;
		box->pauses_end_ms =
				end < box->pauses_end_ms ? end : box->pauses_end_ms;
	}
	if (pause->on == before) {
		return;
	}
	if (!pause->on) {
		handler->state->freed_ms = postern__box_now_ms(box);
		postern__claim_hint(box, handler, 0);
		return;
	}
	postern__list_each(link, &handler->state->queue) {
		postern__run_return_lease(container_of(link, struct postern_run, link));
	}
}

/* With the mutex `pausing`, so that an older result never replaces a newer
   one. */
static int read_pauses(struct postern_box *box, struct postern_error *error) {
	int r = POSTERN_OK;
	struct postern_generation *generation = postern__generation_acquire(box);
	size_t count = generation->handler_count;
	int64_t *ids = calloc(count + 1, sizeof(*ids));
	struct postern_halt *pauses = calloc(count + 1, sizeof(*pauses));
	struct postern_memory *memory = postern_memory_create();
	if (!ids || !pauses || !memory) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	for (size_t i = 0; i < count; i++) {
		ids[i] = generation->handlers[i]->id;
	}
	postern__point("pauses.before");
	r = box->store->ops->read_pauses(box->store, ids, count, memory, pauses,
			error);
	postern__point("pauses.after");
	if (r) {
		goto out;
	}
	(void)pthread_mutex_lock(&box->mutex);
	box->pauses_end_ms = POSTERN__NEVER;
	for (size_t i = 0; i < count; i++) {
		set_handler_paused(box, generation->handlers[i], &pauses[i]);
	}
	/* The claimer sleeps until then. */
	postern__claim_nudge(box);
	(void)pthread_mutex_unlock(&box->mutex);
out:
	postern__generation_release(generation);
	postern_memory_destroy(memory);
	free(pauses);
	free(ids);
	return r;
}

int postern__pauses_refresh(struct postern_box *box,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&box->pausing);
	int r = read_pauses(box, error);
	(void)pthread_mutex_unlock(&box->pausing);
	return r;
}
