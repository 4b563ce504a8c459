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
 */

#include "core/box.h"
#include "core/maintenance.h"
#include "core/run.h"

#include "base/fail.h"
#include "base/point.h"

#include <stdlib.h>

/* With the mutex. */
static void set_handler_paused(struct postern_box *box,
		struct postern__handler *handler, bool paused) {
	if (handler->state->paused == paused) {
		return;
	}
	handler->state->paused = paused;
	if (!paused) {
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
	bool *paused = calloc(count + 1, sizeof(*paused));
	if (!ids || !paused) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	for (size_t i = 0; i < count; i++) {
		ids[i] = generation->handlers[i]->id;
	}
	postern__point("pauses.before");
	r = box->store->ops->read_pauses(box->store, ids, count, paused, error);
	postern__point("pauses.after");
	if (r) {
		goto out;
	}
	(void)pthread_mutex_lock(&box->mutex);
	for (size_t i = 0; i < count; i++) {
		set_handler_paused(box, generation->handlers[i], paused[i]);
	}
	(void)pthread_mutex_unlock(&box->mutex);
out:
	postern__generation_release(generation);
	free(paused);
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
