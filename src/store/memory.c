/* SPDX-License-Identifier: MIT */

/*
 * The memory store: the plainest implementation of the contract in
 * postern/sys/store.h, and the reference for the other stores. Everything is
 * lost with the process. It is for tests, and for programs that tolerate
 * duplicates after a restart.
 *
 * This file is the table of operations and the one mutex around them; the
 * operations are in memory_*.c, and memory.h describes the data.
 *
 * A remembered id is kept as long as retention says, by default as long as the
 * store exists. So the use of memory has a limit: once messages (some 400 bytes
 * each for one with one delivery, plus its texts and body), attempts and
 * conflicts exceed bytes_max, new messages are rejected with
 * POSTERN_E_UNAVAILABLE; messages in the store can still be processed. Attempts
 * and conflicts are limited in number and length.
 */

#include "store/memory.h"

#include <assert.h>
#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/fail.h"
#include "base/point.h"
#include "store/marker_kind.h"
#include "store/store.h"

static const struct postern_store_ops memory_ops;
static const struct postern_store_ops none_ops;

static bool is_memory(const struct postern_store *store) {
	return store->ops == &memory_ops || store->ops == &none_ops;
}

/* Returns the store behind the facade with its mutex acquired; end with
   mutex_release(). */
static struct memory_store *mutex_acquire(struct postern_store *store) {
	assert(is_memory(store));
	struct memory_store *self = container_of(store, struct memory_store, base);
	int r = pthread_mutex_lock(&self->mutex);
	assert(r == 0);
	(void)r;
	return self;
}

static int mutex_release(struct memory_store *self, int r) {
	(void)pthread_mutex_unlock(&self->mutex); /* fails only if not locked */
	return r;
}

int64_t postern__mem_now(struct memory_store *self) {
	int64_t now = self->clock->wall_ms(self->clock->context);
	if (now > self->now_max_ms) {
		self->now_max_ms = now;
	}
	return now;
}

static int memory_enrol(struct postern_store *store,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self, postern__mem_enrol(self, enrolment, error));
}

static int memory_apply(struct postern_store *store,
		struct postern_batch *batch, struct postern_error *error) {
	if (postern__point_fails("memory-apply.fails")) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"injected by a test");
	}
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self, postern__mem_apply(self, batch, error));
}

static int memory_claim(struct postern_store *store,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self,
			postern__mem_claim(self, claim, memory, out, error));
}

static int memory_transact(struct postern_store *store, uint64_t node,
		const struct postern_lock *lock_needed, struct postern_unit *units,
		size_t count, struct postern_error *error) {
	(void)store;
	(void)node;
	(void)lock_needed;
	(void)units;
	(void)count;
	return postern__fail(error, POSTERN_E_UNSUPPORTED,
			"a memory store has no transactions");
}

static void memory_interrupt(struct postern_store *store, const void *context) {
	(void)context;
	(void)store; /* no transact() can be running */
}

static int memory_recover(struct postern_store *store,
		const struct postern_recovery *recovery, struct postern_recovered *out,
		struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self,
			postern__mem_recover(self, recovery, out, error));
}

static int memory_orphans(struct postern_store *store, uint64_t node,
		const char *only, bool poison, size_t max,
		struct postern_memory *memory, struct postern_orphan **orphans_out,
		size_t *count_out, struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self,
			postern__mem_orphans(self, node, only, poison, max, memory,
					orphans_out, count_out, error));
}

static int memory_unpark(struct postern_store *store, postern_router *router,
		void *context, size_t max, int64_t *cursor, uint64_t *count_out,
		struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self, postern__mem_unpark(self, router, context, max,
									   cursor, count_out, error));
}

static int memory_edit(struct postern_store *store, struct postern_edit *edit,
		struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self, postern__mem_edit(self, edit, error));
}

static int memory_read_pauses(struct postern_store *store,
		const int64_t *handlers, size_t count, struct postern_memory *memory,
		struct postern_halt *out, struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self, postern__mem_read_pauses(self, handlers, count,
									   memory, out, error));
}

static int memory_read_closed(struct postern_store *store, int64_t channel,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self,
			postern__mem_read_closed(self, channel, memory, out, error));
}

static int memory_read_retention(struct postern_store *store,
		struct postern_memory *memory, struct postern_retention **out,
		size_t *count_out, struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self,
			postern__mem_read_retention(self, memory, out, count_out, error));
}

static int memory_list(struct postern_store *store,
		const struct postern_query *query, struct postern_memory *memory,
		struct postern_page *out, struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self,
			postern__mem_list(self, query, memory, out, error));
}

static int memory_get(struct postern_store *store, int64_t seq,
		struct postern_memory *memory, struct postern_detail *out,
		struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self, postern__mem_get(self, seq, memory, out, error));
}

static int memory_find(struct postern_store *store, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self, postern__mem_find(self, id, source, channel,
									   seqs, max, count_out, error));
}

static int memory_stats(struct postern_store *store,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self, postern__mem_stats(self, memory, out, error));
}

static int memory_renew(struct postern_store *store, uint64_t node,
		int64_t ttl_ms, bool *alive_out, struct postern_error *error) {
	(void)error; /* cannot fail */
	struct memory_store *self = mutex_acquire(store);
	postern__mem_renew(self, node, ttl_ms, alive_out);
	return mutex_release(self, POSTERN_OK);
}

static int memory_lock(struct postern_store *store, const char *name,
		uint64_t node, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self, postern__mem_lock(self, name, node, ttl_ms,
									   held_out, fence_out, error));
}

static int memory_unlock(struct postern_store *store,
		const struct postern_lock *held, uint64_t node,
		struct postern_error *error) {
	(void)error; /* cannot fail */
	struct memory_store *self = mutex_acquire(store);
	postern__mem_unlock(self, held, node);
	return mutex_release(self, POSTERN_OK);
}

static int memory_engage(struct postern_store *store, uint64_t node,
		const char *lock_name, struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self,
			postern__mem_engage(self, node, lock_name, error));
}

static int memory_clean(struct postern_store *store,
		struct postern_cleaning *cleaning, struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self, postern__mem_clean(self, cleaning, error));
}

static int memory_groups(struct postern_store *store,
		const struct postern_filter *filter, struct postern_memory *memory,
		struct postern_group **out, size_t *count_out,
		struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self,
			postern__mem_groups(self, filter, memory, out, count_out, error));
}

static int memory_read_pulls(struct postern_store *store,
		struct postern_pull_row *rows, size_t count,
		struct postern_memory *memory, struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	return mutex_release(self,
			postern__mem_read_pulls(self, rows, count, memory, error));
}

static int memory_extend(struct postern_store *store,
		struct postern_pull_row *row, int64_t lease_ms, int64_t *until_ms_out,
		struct postern_error *error) {
	struct memory_store *self = mutex_acquire(store);
	(void)error;
	postern__mem_extend(self, row, lease_ms, until_ms_out);
	return mutex_release(self, POSTERN_OK);
}

static void memory_destroy(struct postern_store *store) {
	assert(is_memory(store));
	struct memory_store *self = container_of(store, struct memory_store, base);
	if (store->marker_kind) {
		store->markers->ops->destroy(store->markers);
	}
	postern__mem_markers_finish(&self->markers);
	postern__mem_messages_finish(self);
	postern__mem_directory_finish(self);
	postern__mem_locks_finish(self);
	free(self->samples);
	(void)pthread_mutex_destroy(&self->mutex); /* no thread holds it any more */
	free(self);
}

/* clang-format off */
#define OPERATIONS \
	.version = POSTERN_STORE_OPS_VERSION, \
	.exclusive = true, \
	.enrol = memory_enrol, \
	.apply = memory_apply, \
	.claim = memory_claim, \
	.transact = memory_transact, \
	.interrupt = memory_interrupt, \
	.recover = memory_recover, \
	.orphans = memory_orphans, \
	.unpark = memory_unpark, \
	.edit = memory_edit, \
	.list = memory_list, \
	.get = memory_get, \
	.find = memory_find, \
	.stats = memory_stats, \
	.renew = memory_renew, \
	.lock = memory_lock, \
	.unlock = memory_unlock, \
	.engage = memory_engage, \
	.clean = memory_clean, \
	.destroy = memory_destroy, \
	.read_pauses = memory_read_pauses, \
	.read_closed = memory_read_closed, \
	.groups = memory_groups, \
	.read_retention = memory_read_retention, \
	.read_pulls = memory_read_pulls, \
	.extend = memory_extend
/* clang-format on */

static const struct postern_store_ops memory_ops = {
	.name = "memory",
	OPERATIONS,
};

/* Of a store that keeps no messages: the same, since it has channels and
   handlers. */
static const struct postern_store_ops none_ops = {
	.name = "none",
	OPERATIONS,
};

int postern__memory_open(size_t bytes_max,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error) {
	struct memory_store *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (pthread_mutex_init(&self->mutex, NULL) != 0) {
		free(self);
		return postern__fail(error, POSTERN_E_NOMEM, "cannot create a mutex");
	}
	self->base.ops = &memory_ops;
	self->clock = options->clock;
	self->bytes_max = bytes_max;
	uint64_t key[POSTERN__SIPHASH_KEY_LEN / sizeof(uint64_t)];
	for (size_t i = 0; i < sizeof key / sizeof key[0]; i++) {
		key[i] = options->random->next(options->random->context);
	}
	memcpy(self->hash_key, key, sizeof key);
	if (postern__mem_markers_init(&self->markers, options->clock,
				self->hash_key) != POSTERN_OK) {
		(void)pthread_mutex_destroy(&self->mutex);
		free(self);
		return postern__fail(error, POSTERN_E_NOMEM, "cannot create a mutex");
	}
	self->base.markers = &self->markers.base;
	postern__list_init(&self->leased);
	postern__list_init(&self->parked);
	postern__list_init(&self->suspects);
	*out = &self->base;
	return POSTERN_OK;
}

int postern__none_open(const char *url,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error) {
	const struct postern_marker_kind *kind =
			url ? postern__marker_kind_of(url) : NULL;
	struct postern_markers *markers = NULL;
	struct postern_store_options full;
	struct postern_store *store;
	int r = kind ? postern__markers_open(url, options, &markers, error)
				 : POSTERN_OK;
	if (r == POSTERN_OK) {
		r = postern__store_options_complete(options, &full, error);
	}
	if (r == POSTERN_OK) {
		r = postern__memory_open(0, &full, &store, error);
	}
	if (r != POSTERN_OK) {
		if (markers) {
			markers->ops->destroy(markers);
		}
		return r;
	}
	store->ops = &none_ops;
	store->markers_only = true;
	store->markers = markers;
	store->marker_kind = kind;
	*out = store;
	return POSTERN_OK;
}

static int memory_open(const char *rest,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error) {
	(void)rest;
	if (options->read_only) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"a memory store cannot be read from another process: use a "
				"store in a file or a database");
	}
	return postern__memory_open(POSTERN__MEMORY_BYTES_MAX, options, out, error);
}

static const char *memory_schema(void) {
	return "";
}

static int memory_check(const char *rest,
		const struct postern_store_options *options,
		struct postern_error *error) {
	(void)options;
	return *rest ? postern__fail(error, POSTERN_E_INVALID,
						   "unexpected text after 'memory:'")
				 : POSTERN_OK;
}

const struct postern_store_kind postern__memory_kind = {
	.name = "memory",
	.scheme = "memory",
	.form = "memory:",
	.ops = &memory_ops,
	.open = memory_open,
	.schema = memory_schema,
	.check = memory_check,
};
