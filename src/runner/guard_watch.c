/* SPDX-License-Identifier: MIT */

/*
 * The threads of a guard: some renew the leases of running functions, others
 * interrupt transactions that take too long.
 */

#include "runner/guard.h"

#include "base/fail.h"
#include "base/wait.h"

/* After a renewal that failed. */
#define AGAIN_MS ((int64_t)500)

static struct postern__guard_watched *
find_due(struct postern__guard_watch *watch, int64_t now, int64_t *left_out) {
	*left_out = -1;
	postern__list_each(link, &watch->watched) {
		struct postern__guard_watched *watched =
				container_of(link, struct postern__guard_watched, link);
		int64_t left = watched->due_ms - now;
		if (watched->busy) {
			continue;
		}
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

/* With the mutex. */
static void set_due(struct postern__guard_watch *watch,
		struct postern__guard_watched *watched, int64_t after_ms) {
	watched->due_ms = after_ms < POSTERN__GUARD_NEVER
							  ? postern__guard_now_ms(watch->guard) + after_ms
							  : POSTERN__GUARD_NEVER;
}

static void *watch_loop(void *context);

/* With the mutex: one thread at least has nothing to do, unless there are as
   many as there may be. The first starts with the first function: a guard that
   is used for markers only needs none. */
static int start_thread(struct postern__guard_watch *watch,
		struct postern_error *error) {
	unsigned count = watch->thread_count;
	if (watch->busy_count < count || count == POSTERN__GUARD_THREAD_COUNT_MAX) {
		return POSTERN_OK;
	}
	if (pthread_create(&watch->threads[count], NULL, watch_loop, watch) == 0) {
		watch->thread_count++;
	}
	return watch->thread_count > 0 ? POSTERN_OK
								   : postern__fail(error, POSTERN_E_NOMEM,
											 "cannot start a thread");
}

/* With the mutex, which is released meanwhile. */
static void serve(struct postern__guard_watch *watch,
		struct postern__guard_watched *watched) {
	struct postern_guard *guard = watch->guard;
	bool lost = false;
	int64_t after_ms = POSTERN__GUARD_NEVER;
	watched->busy = true;
	watch->busy_count++;
	if (watch->watched.next->next != &watch->watched) {
		(void)start_thread(watch, NULL); /* for the others */
	}
	(void)pthread_mutex_unlock(&guard->mutex);
	if (watched->mark) {
		after_ms = renew(guard, watched, &lost);
	} else if (watched->unit) {
		guard->store->ops->interrupt(guard->store, watched->unit);
	}
	(void)pthread_mutex_lock(&guard->mutex);
	watched->busy = false;
	watch->busy_count--;
	set_due(watch, watched, lost ? POSTERN__GUARD_NEVER : after_ms);
	(void)pthread_cond_broadcast(&watch->wake);
}

static void *watch_loop(void *context) {
	struct postern__guard_watch *watch = context;
	struct postern_guard *guard = watch->guard;
	(void)pthread_mutex_lock(&guard->mutex);
	while (!guard->stopping) {
		int64_t left_ms;
		int64_t now = postern__guard_now_ms(guard);
		struct postern__guard_watched *due = find_due(watch, now, &left_ms);
		if (due) {
			serve(watch, due);
		} else {
			watch->wakes_ms =
					left_ms < 0 ? POSTERN__GUARD_NEVER : now + left_ms;
			postern__wait(&watch->wake, &guard->mutex, left_ms);
			watch->wakes_ms = 0;
		}
	}
	(void)pthread_mutex_unlock(&guard->mutex);
	return NULL;
}

void postern__guard_watch_init(struct postern_guard *guard,
		struct postern__guard_watch *watch) {
	watch->guard = guard;
	/* This cannot fail on Linux. */
	(void)postern__wait_init(&watch->wake);
	postern__list_init(&watch->watched);
}

static void stop(struct postern__guard_watch *watch) {
	struct postern_guard *guard = watch->guard;
	(void)pthread_mutex_lock(&guard->mutex);
	guard->stopping = true;
	(void)pthread_cond_broadcast(&watch->wake);
	(void)pthread_mutex_unlock(&guard->mutex);
	/* No function is running: none starts another thread. */
	for (unsigned i = 0; i < watch->thread_count; i++) {
		(void)pthread_join(watch->threads[i], NULL);
	}
	(void)pthread_cond_destroy(&watch->wake);
}

void postern__guard_watch_stop(struct postern_guard *guard) {
	stop(&guard->leases);
	stop(&guard->timeouts);
}

/* With the mutex: the thread wakes if it would wake too late. */
static void wake_for(struct postern__guard_watch *watch,
		const struct postern__guard_watched *watched) {
	/* Of several threads it is not known when they wake. */
	if (watched->due_ms < watch->wakes_ms || watch->thread_count > 1) {
		(void)pthread_cond_broadcast(&watch->wake);
	}
}

int postern__guard_watch_add(struct postern__guard_watch *watch,
		struct postern__guard_watched *watched, int64_t after_ms,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&watch->guard->mutex);
	int r = start_thread(watch, error);
	if (!r) {
		set_due(watch, watched, after_ms);
		postern__list_push_back(&watch->watched, &watched->link);
		wake_for(watch, watched);
	}
	(void)pthread_mutex_unlock(&watch->guard->mutex);
	return r;
}

void postern__guard_watch_set(struct postern__guard_watch *watch,
		struct postern__guard_watched *watched, int64_t after_ms) {
	(void)pthread_mutex_lock(&watch->guard->mutex);
	set_due(watch, watched, after_ms);
	wake_for(watch, watched);
	(void)pthread_mutex_unlock(&watch->guard->mutex);
}

void postern__guard_watch_remove(struct postern__guard_watch *watch,
		struct postern__guard_watched *watched) {
	struct postern_guard *guard = watch->guard;
	(void)pthread_mutex_lock(&guard->mutex);
	while (watched->busy) {
		postern__wait(&watch->wake, &guard->mutex, -1);
	}
	postern__list_remove(&watched->link);
	(void)pthread_mutex_unlock(&guard->mutex);
}
