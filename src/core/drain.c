/* SPDX-License-Identifier: MIT */
/* Draining: returns the leases of runs that have not started and cancels those
   that have. Neither counts as a failure. */

#include "core/accept.h"
#include "core/box.h"
#include "core/inline.h"
#include "core/run.h"

#define CANCEL_BATCH 64

static bool is_inline(const struct postern__handler_state *state) {
	return postern__channel_is_inline(state->handler->channel);
}

void postern__return_queued(struct postern_box *box, bool inline_too) {
	(void)pthread_mutex_lock(&box->mutex);
	postern__list_each(ready, &box->ready) {
		struct postern__handler_state *state =
				container_of(ready, struct postern__handler_state, ready);
		if (is_inline(state) && !inline_too) {
			continue;
		}
		postern__list_each(link, &state->queue) {
			postern__run_return_lease(
					container_of(link, struct postern_run, link));
		}
	}
	postern__inline_answer(box);
	(void)pthread_mutex_unlock(&box->mutex);
}

void postern__cancel_running(struct postern_box *box, bool inline_too) {
	struct postern_run *runs[CANCEL_BATCH];
	size_t count;
	do {
		bool in_unit = false;
		count = 0;
		(void)pthread_mutex_lock(&box->mutex);
		postern__list_each(link, &box->running) {
			struct postern_run *run =
					container_of(link, struct postern_run, link);
			if (!run->stopping && count < CANCEL_BATCH &&
					(inline_too || !run->content->is_inline)) {
				run->stopping = true;
				in_unit = in_unit || run->in_unit;
				run->content->refs++;
				runs[count++] = run;
			}
		}
		(void)pthread_mutex_unlock(&box->mutex);
		if (in_unit) {
			/* The transaction is rolled back and its leases are returned. */
			box->store->ops->interrupt(box->store, NULL);
		}
		for (size_t i = 0; i < count; i++) {
			struct postern_handler *impl = runs[i]->handler->impl;
			impl->ops->cancel(impl, runs[i], POSTERN_CANCEL_STOP);
		}
		(void)pthread_mutex_lock(&box->mutex);
		for (size_t i = 0; i < count; i++) {
			postern__content_release(runs[i]->content);
		}
		(void)pthread_mutex_unlock(&box->mutex);
	} while (count == CANCEL_BATCH);
}
