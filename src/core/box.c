/* SPDX-License-Identifier: MIT */
/*
 * The configuration of a box: options, channels, handlers and subscribers,
 * validated when they are added and fixed at start. Everything that changes
 * afterwards is in the other files of this directory.
 */

#include "core/box.h"
#include "core/accept.h"
#include "core/commit.h"
#include "core/inline.h"
#include "core/maintenance.h"
#include "core/metrics.h"
#include "core/run.h"
#include "core/tenure.h"

#include "base/fail.h"
#include "base/pattern.h"
#include "base/point.h"
#include "base/sized.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_SIZE_DEFAULT 100
#define BATCH_SIZE_MAX 10000
#define CLEANUP_BATCH_DEFAULT 10000
#define CLEANUP_BATCH_MAX 1000000
#define LOCK_ACQUIRE_TIMEOUT_MS_DEFAULT ((int64_t)60 * 1000)
#define COMMAND_TIMEOUT_MS_DEFAULT ((int64_t)30 * 1000)
#define RUN_QUEUE_DEFAULT 10000
#define RUN_QUEUE_MAX 1000000
#define RUN_QUEUE_BYTES_DEFAULT ((size_t)64 * 1024 * 1024)

int64_t postern__box_now_ms(const struct postern_box *box) {
	return box->clock.monotonic_ms(box->clock.context);
}

int64_t postern__time_after(int64_t ms, int64_t delay_ms) {
	return delay_ms > POSTERN__NEVER - ms ? POSTERN__NEVER : ms + delay_ms;
}

int64_t postern__box_after_ms(const struct postern_box *box, int64_t delay_ms) {
	return postern__time_after(postern__box_now_ms(box), delay_ms);
}

static bool is_duration(int64_t ms) {
	return ms >= 0 && ms <= POSTERN_DURATION_MS_MAX;
}

static int copy_lock_name(const char *given, const char *fallback, char **out,
		struct postern_error *error) {
	const char *name = given ? given : fallback;
	size_t len = strlen(name);
	if (len == 0 || len > POSTERN_LOCK_NAME_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the name of a lock must have 1 to %d bytes",
				POSTERN_LOCK_NAME_LEN_MAX);
	}
	*out = strdup(name);
	return *out ? POSTERN_OK
				: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

/* Validate node lease, lock names and cleanup, and set their defaults. */
static int set_lease_options(struct postern_box *box,
		struct postern_error *error) {
	struct postern_box_options *options = &box->options;
	if (options->node_lease_ms == 0 && !box->store->ops->exclusive) {
		options->node_lease_ms = POSTERN__NODE_LEASE_MS_DEFAULT;
	}
	if (options->lock_acquire_timeout_ms == 0) {
		options->lock_acquire_timeout_ms = LOCK_ACQUIRE_TIMEOUT_MS_DEFAULT;
	}
	if (options->cleanup_batch == 0) {
		options->cleanup_batch = CLEANUP_BATCH_DEFAULT;
	}
	if (!is_duration(options->node_lease_ms) ||
			!is_duration(options->lock_acquire_timeout_ms) ||
			options->cleanup_batch > CLEANUP_BATCH_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"node_lease, lock_acquire_timeout or cleanup_batch is out of "
				"range");
	}
	int r = copy_lock_name(options->lock_name, "InboxProcessor_default",
			&box->lock_name, error);
	if (!r) {
		r = copy_lock_name(options->cleanup_lock_name, "InboxCleanup_default",
				&box->cleanup_lock_name, error);
	}
	if (!r && strcmp(box->lock_name, box->cleanup_lock_name) == 0) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"lock_name and cleanup_lock_name must differ");
	}
	box->lock_held.name = box->lock_name;
	return r;
}

static int set_box_options(struct postern_box *box,
		const struct postern_box_options *given, struct postern_error *error) {
	struct postern_box_options *options = &box->options;
	if (given) {
		int r = postern__sized_copy(options, sizeof(*options), given,
				"struct postern_box_options", error);
		if (r) {
			return r;
		}
	}
	if (options->max_message_size == 0) {
		options->max_message_size = POSTERN_BODY_LEN_DEFAULT;
	}
	if (options->batch_size == 0) {
		options->batch_size = BATCH_SIZE_DEFAULT;
	}
	if (options->command_timeout_ms == 0) {
		options->command_timeout_ms = COMMAND_TIMEOUT_MS_DEFAULT;
	}
	if (options->run_queue_max == 0) {
		options->run_queue_max = RUN_QUEUE_DEFAULT;
	}
	if (options->run_queue_bytes_max == 0) {
		options->run_queue_bytes_max = RUN_QUEUE_BYTES_DEFAULT;
	}
	int r = set_lease_options(box, error);
	if (r) {
		return r;
	}
	if (options->max_message_size > POSTERN_BODY_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"max_message_size is %zu bytes, and the limit is %zu bytes "
				"(POSTERN_BODY_LEN_MAX)",
				options->max_message_size, POSTERN_BODY_LEN_MAX);
	}
	if (options->batch_size > BATCH_SIZE_MAX ||
			options->run_queue_max > RUN_QUEUE_MAX ||
			options->command_timeout_ms < 0 ||
			options->command_timeout_ms > POSTERN_DURATION_MS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"batch_size, run_queue_max or command_timeout is out of range");
	}
	if (options->listener) {
		struct postern__subscriber first = { options->listener,
			options->listener_context, options->listener_level };
		r = postern__subscribers_add(&box->subscribers, &first, error);
		if (r) {
			return r;
		}
	}
	box->pauses_end_ms = POSTERN__NEVER;
	box->clock = options->clock ? *options->clock : *postern_clock_system();
	box->random = options->random ? *options->random : *postern_random_system();
	return POSTERN_OK;
}

static int init_conditions(struct postern_box *box,
		struct postern_error *error) {
	int r = pthread_mutex_init(&box->mutex, NULL);
	if (!r) {
		r = pthread_mutex_init(&box->pausing, NULL);
	}
	if (!r) {
		r = pthread_mutex_init(&box->generation_mutex, NULL);
	}
	if (!r) {
		r = pthread_mutex_init(&box->replacing, NULL);
	}
	if (!r) {
		r = pthread_mutex_init(&box->sources_mutex, NULL);
	}
	if (!r) {
		r = postern__wait_init(&box->committed);
	}
	if (!r) {
		r = postern__wait_init(&box->work);
	}
	if (!r) {
		r = postern__wait_init(&box->wake);
	}
	if (!r) {
		r = postern__wait_init(&box->claim);
	}
	if (!r) {
		r = postern__wait_init(&box->watch);
	}
	/* On Linux these fail only when memory is exhausted. */
	return r ? postern__fail(error, POSTERN_E_NOMEM, "out of memory")
			 : POSTERN_OK;
}

static int make_groups(struct postern_box *box, struct postern_error *error) {
	size_t writers = box->store->ops->writers;
	writers = writers < 1 ? 1 : writers;
	for (size_t i = 0; i < writers && i < POSTERN__WRITERS_MAX; i++) {
		box->groups[i] = postern__group_create();
		if (!box->groups[i]) {
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
	}
	return POSTERN_OK;
}

int postern__box_create(struct postern_store *store,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error) {
	struct postern_box *box = calloc(1, sizeof(*box));
	if (!box) {
		store->ops->destroy(store);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	box->store = store;
	postern__subscribers_init(&box->subscribers);
	store->listener = postern__emit_from_store;
	store->listener_context = box;
	postern__list_init(&box->settlements);
	postern__list_init(&box->accepts);
	postern__list_init(&box->answers);
	postern__list_init(&box->waiters);
	postern__list_init(&box->room_waiters);
	postern__list_init(&box->running);
	postern__list_init(&box->generations);
	postern__list_init(&box->ready);
	postern__list_init(&box->due);
	postern__list_init(&box->pulls_over);
	box->pull_until_ms = POSTERN__NEVER;
	box->pull_ended_at_ms = POSTERN__NEVER;
	int r = init_conditions(box, error);
	if (!r) {
		r = make_groups(box, error);
	}
	if (!r) {
		r = postern_generation_create(box, &box->generation, error);
	}
	if (!r) {
		postern__list_push_front(&box->generations, &box->generation->link);
	}
	if (!r) {
		r = set_box_options(box, options, error);
	}
	if (r) {
		postern_box_destroy(box);
		return r;
	}
	while (box->node == 0) {
		/* Positive, so that every store can keep it in a signed column. */
		box->node = box->random.next(box->random.context) >> 1;
	}
	*out = box;
	return POSTERN_OK;
}

/* Drop queued settlements, and call the callbacks of queued asynchronous
   accepts with an error. */
static void fail_queued_items(struct postern_box *box) {
	struct postern_error closed;
	(void)postern__fail(&closed, POSTERN_E_UNAVAILABLE,
			"the box was closed before the message was stored");
	struct postern__list *link;
	while ((link = postern__list_pop_front(&box->settlements))) {
		postern__run_settled(container_of(link, struct postern_run, item.link));
	}
	while ((link = postern__list_pop_front(&box->accepts))) {
		struct postern__content *content =
				container_of(link, struct postern__content, item.link);
		postern__accept_dequeued(box, content);
		postern__accept_decide(box, content, closed.code, &closed);
		postern__accept_finish(box, content);
	}
}

/* End the node in the store, so that others need not wait for its lease to
   expire. */
static void end_node(struct postern_box *box) {
	bool alive;
	postern__point("leave.before");
	(void)box->store->ops->renew(box->store, box->node, 0, &alive, NULL);
	postern__point("leave.after");
}

static void destroy_generations(struct postern_box *box) {
	struct postern__list *link;
	while ((link = postern__list_pop_front(&box->generations))) {
		postern_generation_destroy(
				container_of(link, struct postern_generation, link));
	}
}

void postern_box_destroy(struct postern_box *box) {
	if (!box) {
		return;
	}
	postern__return_queued(box, true);
	if (box->started) {
		/* Best effort: deliveries whose settlement cannot be written are
		   recovered later. Settlements that wait after a failed commit are
		   retried once. */
		box->commit_retry_at_ms = 0;
		(void)postern_box_commit(box, NULL, NULL);
	}
	fail_queued_items(box);
	if (box->started) {
		postern__lock_release(box);
		end_node(box);
	}
	if (box->guard) {
		box->guarding->destroy(box->guard);
	}
	if (box->store) {
		box->store->ops->destroy(box->store);
	}
	destroy_generations(box);
	for (size_t i = 0; i < POSTERN__WRITERS_MAX; i++) {
		postern__group_destroy(box->groups[i]);
	}
	postern__orphans_reset(box);
	postern__reading_destroy(box->reading);
	free(box->reported);
	free(box->lock_name);
	free(box->cleanup_lock_name);
	(void)pthread_cond_destroy(&box->watch);
	(void)pthread_cond_destroy(&box->claim);
	(void)pthread_cond_destroy(&box->wake);
	(void)pthread_cond_destroy(&box->work);
	(void)pthread_cond_destroy(&box->committed);
	(void)pthread_mutex_destroy(&box->sources_mutex);
	(void)pthread_mutex_destroy(&box->replacing);
	(void)pthread_mutex_destroy(&box->generation_mutex);
	(void)pthread_mutex_destroy(&box->pausing);
	(void)pthread_mutex_destroy(&box->mutex);
	free(box);
}

static int check_configurable(const struct postern_box *box,
		struct postern_error *error) {
	if (box->started) {
		return postern__fail(error, POSTERN_E_INVALID,
				"channels, handlers and subscribers must be added before "
				"postern_box_start()");
	}
	return POSTERN_OK;
}

int postern__box_check_started(const struct postern_box *box,
		struct postern_error *error) {
	if (box->options.read_only) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the box is open for reading only");
	}
	if (!box->started) {
		return postern__fail(error, POSTERN_E_INVALID,
				"call postern_box_start() first");
	}
	return POSTERN_OK;
}

int postern_box_add_channel(struct postern_box *box, const char *name,
		const struct postern_channel_options *options,
		struct postern_error *error) {
	int r = check_configurable(box, error);
	return r ? r
			 : postern_generation_add_channel(box->generation, name, options,
					   error);
}

int postern__box_register_taking(struct postern_box *box, const char *channel,
		const struct postern_handler_options *options,
		struct postern_handler *impl, struct postern_error *error) {
	int r = check_configurable(box, error);
	if (r) {
		impl->ops->destroy(impl);
		return r;
	}
	return postern__generation_register_taking(box->generation, channel,
			options, impl, error);
}

int postern_box_subscribe(struct postern_box *box, enum postern_level level,
		postern_listener *listener, void *context,
		struct postern_error *error) {
	struct postern__subscriber subscriber = { listener, context, level };
	int r = check_configurable(box, error);
	return r ? r
			 : postern__subscribers_add(&box->subscribers, &subscriber, error);
}
