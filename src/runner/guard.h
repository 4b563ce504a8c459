/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RUNNER_GUARD_H
#define POSTERN_RUNNER_GUARD_H

/*
 * Shared by the files of the guard: guard.c runs functions, guard_watch.c
 * renews their leases and ends their transactions, mark.c is the interface to
 * single markers.
 */

#include <postern/guard.h>
#include <postern/sys/marker_kind.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/siphash.h"
#include "core/inline.h"

#define POSTERN__GUARD_BUCKET_COUNT 256

#define POSTERN__GUARD_THREAD_COUNT_MAX 8

/* Threads that serve running functions when they are due: one, and more while
   the store does not answer all of them, so that one renewal that hangs does
   not cost the others their leases. */
struct postern__guard_watch {
	struct postern_guard *guard;
	pthread_cond_t wake;
	struct postern__list watched; /* struct postern__guard_watched */
	int64_t wakes_ms;             /* when the thread looks again by itself */
	pthread_t threads[POSTERN__GUARD_THREAD_COUNT_MAX];
	unsigned thread_count;
	unsigned busy_count; /* threads that serve a function */
};

struct postern_guard {
	struct postern_store *store; /* NULL: it keeps markers only */
	struct postern_markers *markers;
	const struct postern_marker_kind *kind; /* of markers without a store */
	bool owns_store;
	int64_t wait_ms;
	int64_t lease_ms;
	int64_t timeout_ms; /* 0: none */
	const struct postern_clock *clock;
	const struct postern_random *random;
	uint8_t secret[POSTERN__SIPHASH_KEY_LEN]; /* of the table */
	atomic_bool copied;                       /* the last key was a duplicate */

	pthread_mutex_t mutex; /* protects all below */
	struct postern__list buckets[POSTERN__GUARD_BUCKET_COUNT];
	/* Two, since a renewal may wait for the writer that a transaction has which
	   is to be interrupted. */
	struct postern__guard_watch leases;
	struct postern__guard_watch timeouts;
	bool stopping;
};

/* A function that is running. */
struct postern__guard_watched {
	struct postern__list link;
	const struct postern_mark *mark; /* renew its lease; NULL: do not */
	uint64_t fence;
	const void *unit; /* interrupt its transaction; NULL: do not */
	int64_t due_ms;   /* monotonic */
	bool busy;        /* the watch is using it without the mutex */
};

/* Never due. */
#define POSTERN__GUARD_NEVER (INT64_MAX / 2)

/* guard.c */
/* Run a function whose arguments are checked; as postern_guard_run(). The mark
   outlives the call. */
int postern__guard_do(struct postern_guard *guard,
		struct postern__guarded_run *run, struct postern_error *error);

/* guard_watch.c */
void postern__guard_watch_init(struct postern_guard *guard,
		struct postern__guard_watch *watch);
/* Ends all threads. */
void postern__guard_watch_stop(struct postern_guard *guard);
/* Due after_ms from now, or POSTERN__GUARD_NEVER. POSTERN_E_NOMEM: the thread
   cannot be started. */
int postern__guard_watch_add(struct postern__guard_watch *watch,
		struct postern__guard_watched *watched, int64_t after_ms,
		struct postern_error *error);
/* Another time for what was added. */
void postern__guard_watch_set(struct postern__guard_watch *watch,
		struct postern__guard_watched *watched, int64_t after_ms);
/* Returns when the watch does not use it any more. */
void postern__guard_watch_remove(struct postern__guard_watch *watch,
		struct postern__guard_watched *watched);

/* mark.c */
/* The names of a marker, borrowed from its arguments. */
struct postern__mark_names {
	const char *handlers[POSTERN_MARK_NAME_COUNT_MAX];
	struct postern_mark mark;
};
/* key_len 0: the length of the text. */
int postern__mark_names_init(struct postern__mark_names *names,
		const char *handler, const char *const *legacy_keys,
		size_t legacy_key_count, const char *key, size_t key_len,
		struct postern_error *error);
/* Change a marker in any way; the arguments are checked. */
int postern__guard_change(struct postern_guard *guard, const char *handler,
		const char *key, struct postern_mark_request *request,
		struct postern_error *error);
int postern__guard_fail_done(const char *handler, struct postern_error *error);
int postern__guard_fail_running(const char *handler,
		struct postern_error *error);
/* A random number that is never 0. */
uint64_t postern__guard_fence(const struct postern_guard *guard);
int64_t postern__guard_now_ms(const struct postern_guard *guard);

#endif
