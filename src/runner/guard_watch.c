/* SPDX-License-Identifier: MIT */

/*
 * The thread of a guard: it renews the leases of running functions, and
 * interrupts transactions that take too long.
 */

#include "runner/guard.h"

#include "base/fail.h"
#include "base/wait.h"

/* After a renewal that failed. */
#define AGAIN_MS ((int64_t)500)

static struct postern__guard_watched *find_due(struct postern_guard *guard,
		int64_t now, int64_t *left_out) {
	*left_out = -1;
	postern__list_each(link, &guard->watched) {
		struct postern__guard_watched *watched =
				container_of(link, struct postern__guard_watched, link);
		int64_t left = watched->due_ms - now;
		if (left <= 0) {
			return watched;
		}
		*left_out = *left_out < 0 || left < *left_out ? left : *left_out;
	}
	return NULL;
}

/* Without the mutex. Returns after how long it is due again. */
static int64_t renew(struct postern_guard *guard,
		struct postern__guard_watched *watched, bool *lost_out) {
	struct postern_mark_request request = {
		.kind = POSTERN_MARK_EXTEND,
		.fence = watched->fence,
		.lease_ms = guard->lease_ms,
	};
	int r = guard->markers->ops->change(guard->markers, watched->mark, &request,
			NULL);
	*lost_out = r == POSTERN_E_STALE;
	return r ? AGAIN_MS : guard->lease_ms / 3;
}

/* With the mutex, which is released meanwhile. */
static void serve(struct postern_guard *guard,
		struct postern__guard_watched *watched) {
	bool lost = false;
	int64_t after_ms = INT64_MAX / 2;
	watched->busy = true;
	(void)pthread_mutex_unlock(&guard->mutex);
	if (watched->mark) {
		after_ms = renew(guard, watched, &lost);
	} else if (watched->unit) {
		guard->store->ops->interrupt(guard->store, watched->unit);
	}
	(void)pthread_mutex_lock(&guard->mutex);
	watched->busy = false;
	watched->lost = watched->lost || lost;
	watched->interrupted = watched->interrupted || watched->unit;
	watched->due_ms = watched->lost ? INT64_MAX / 2
									: postern__guard_now_ms(guard) + after_ms;
	(void)pthread_cond_broadcast(&guard->wake);
}

static void *watch_loop(void *context) {
	struct postern_guard *guard = context;
	(void)pthread_mutex_lock(&guard->mutex);
	while (!guard->stopping) {
		int64_t left_ms;
		struct postern__guard_watched *due =
				find_due(guard, postern__guard_now_ms(guard), &left_ms);
		if (due) {
			serve(guard, due);
		} else {
			postern__wait(&guard->wake, &guard->mutex, left_ms);
		}
	}
	(void)pthread_mutex_unlock(&guard->mutex);
	return NULL;
}

/* With the mutex. The thread starts with the first function: a guard that is
   used for markers only needs none. */
static int start_thread(struct postern_guard *guard,
		struct postern_error *error) {
	guard->started = guard->started || pthread_create(&guard->thread, NULL,
											   watch_loop, guard) == 0;
	return guard->started ? POSTERN_OK
						  : postern__fail(error, POSTERN_E_NOMEM,
									"cannot start a thread");
}

void postern__guard_watch_stop(struct postern_guard *guard) {
	if (!guard->started) {
		return;
	}
	(void)pthread_mutex_lock(&guard->mutex);
	guard->stopping = true;
	(void)pthread_cond_broadcast(&guard->wake);
	(void)pthread_mutex_unlock(&guard->mutex);
	(void)pthread_join(guard->thread, NULL);
}

int postern__guard_watch_add(struct postern_guard *guard,
		struct postern__guard_watched *watched, int64_t after_ms,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&guard->mutex);
	int r = start_thread(guard, error);
	if (!r) {
		watched->due_ms = postern__guard_now_ms(guard) + after_ms;
		postern__list_push_back(&guard->watched, &watched->link);
		(void)pthread_cond_broadcast(&guard->wake);
	}
	(void)pthread_mutex_unlock(&guard->mutex);
	return r;
}

void postern__guard_watch_remove(struct postern_guard *guard,
		struct postern__guard_watched *watched) {
	(void)pthread_mutex_lock(&guard->mutex);
	while (watched->busy) {
		postern__wait(&guard->wake, &guard->mutex, -1);
	}
	postern__list_remove(&watched->link);
	(void)pthread_mutex_unlock(&guard->mutex);
}
