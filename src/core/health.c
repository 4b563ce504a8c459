/* SPDX-License-Identifier: MIT */
/*
 * Health: work that is due while no run ends.
 *
 * Work is due in the queue of a handler, in the store, or in a run that is past
 * its lease. What waits in the store is known without asking it while the
 * handler has room: then it would be claimed. A handler without room is not
 * asked for, so there the last count in the store decides (metrics_read.c). The
 * same is so for a pull handler while no claim waits: nobody asks the store.
 */

#include <postern/health.h>

#include "base/fail.h"
#include "base/sized.h"
#include "core/accept.h"
#include "core/metrics.h"
#include "core/pull.h"
#include "core/rate.h"
#include "core/reason.h"
#include "core/run.h"

#include <postern/inspect.h>
#include <postern/sys/memory.h>
#include <stdlib.h>
#include <string.h>

const char *postern_health_name(enum postern_health_status status) {
	static const char *const names[] = { "ok", "degraded", "unhealthy" };
	return (size_t)status < sizeof(names) / sizeof(names[0]) ? names[status]
															 : NULL;
}

struct health_object {
	struct postern_health health;
	struct postern_memory *memory;
};

/* What is read, with the mutex. */
struct reading_health {
	struct postern_box *box;
	const struct postern_health_options *options;
	const struct postern__reading *reading; /* NULL: the store fails */
	struct postern_memory *memory;
	int64_t now;
};

/* What the runs in progress of a handler show. */
struct progress {
	uint64_t stuck;
	int64_t stuck_since; /* the start of the longest of them */
	int64_t first_start; /* of all runs; POSTERN__NEVER: none */
};

static struct progress progress_of(const struct postern_box *box,
		const struct postern__handler *handler, int64_t now) {
	struct progress progress = {
		.stuck = handler->state->lost,
		.stuck_since = POSTERN__NEVER,
		.first_start = POSTERN__NEVER,
	};
	postern__list_each(link, &box->running) {
		const struct postern_run *run =
				container_of(link, struct postern_run, link);
		if (run->handler->state != handler->state) {
			continue;
		}
		if (run->started_ms < progress.first_start) {
			progress.first_start = run->started_ms;
		}
		if (now >= run->lease_end_ms) {
			progress.stuck++;
			if (run->started_ms < progress.stuck_since) {
				progress.stuck_since = run->started_ms;
			}
		}
	}
	return progress;
}

/* What the store counted last of the handler; NULL: that is not known. */
static const struct postern_handler_stats *
counted_of(const struct reading_health *work,
		const struct postern__handler *handler) {
	const struct postern_stats *stats =
			work->reading ? work->reading->stats : NULL;
	for (size_t i = 0; stats && i < stats->handler_count; i++) {
		if (strcmp(stats->handlers[i].key, handler->key) == 0) {
			return &stats->handlers[i];
		}
	}
	return NULL;
}

/* When the oldest pending delivery was received, by the monotonic clock. */
static int64_t oldest_received(const struct reading_health *work,
		const struct postern_handler_stats *row) {
	return work->reading->at_ms -
		   (work->reading->stats->now_ms - row->oldest_pending_at_ms);
}

/* Since when a delivery waits in the store for a handler without room; NEVER:
   none does. Those that failed before wait for their delay, so they are left
   out. */
static int64_t stored_since(const struct reading_health *work,
		const struct postern__handler *handler, int64_t first_start) {
	const struct postern_handler_stats *row = counted_of(work, handler);
	if (!row || row->pending <= row->retrying ||
			first_start == POSTERN__NEVER) {
		return POSTERN__NEVER;
	}
	int64_t received = oldest_received(work, row);
	return received > first_start ? received : first_start;
}

/* Since when a delivery of a pull handler waits for a worker; NEVER: none does.
   While a worker has one leased, here or at another node, work is in progress.
   The oldest may have waited for a retry, whose time is known as a hint. */
static int64_t unclaimed_since(const struct reading_health *work,
		const struct postern__handler *handler) {
	const struct postern_handler_stats *row = counted_of(work, handler);
	if (!row || row->pending <= row->waiting || row->leased > 0) {
		return POSTERN__NEVER;
	}
	int64_t since = oldest_received(work, row);
	int64_t hinted = handler->state->due_at_ms;
	return hinted > since && hinted < work->now ? hinted : since;
}

/* Since when work is due; NEVER: none is. */
static int64_t due_since(const struct reading_health *work,
		const struct postern__handler *handler,
		const struct progress *progress) {
	const struct postern__handler_state *state = handler->state;
	int64_t since = progress->stuck_since;
	if (state->queued > 0 && state->queued_ms < since) {
		since = state->queued_ms;
	}
	int64_t stored = state->due_at_ms;
	if (postern__handler_is_pulled(handler) &&
			postern__list_empty(&state->pulls)) {
		stored = unclaimed_since(work, handler);
	} else if (!postern__handler_has_room(work->box, handler, 0)) {
		stored = stored_since(work, handler, progress->first_start);
	} else if (!work->box->leasing || stored >= work->now) {
		stored = POSTERN__NEVER;
	}
	return stored < since ? stored : since;
}

/* How long nothing has ended although work was due. A handler with a rate may
   start all that a period allows at once, and then nothing for as long. */
static int64_t inactive_ms(const struct reading_health *work,
		const struct postern__handler *handler, int64_t since) {
	const struct postern__handler_state *state = handler->state;
	if (state->ended_ms > since) {
		since = state->ended_ms;
	}
	if (state->freed_ms > since) {
		since = state->freed_ms;
	}
	if (state->pulled_ms > since) {
		since = state->pulled_ms;
	}
	if (work->box->freed_ms > since) {
		since = work->box->freed_ms;
	}
	if (postern__rate_is_set(&handler->policy)) {
		since += 2 * handler->policy.rate_period_ms;
	}
	return work->now > since ? work->now - since : 0;
}

static enum postern_health_status status_after(int64_t ms,
		const struct postern_health_options *options) {
	if (options->unhealthy_after_ms >= 0 && ms >= options->unhealthy_after_ms) {
		return POSTERN_HEALTH_UNHEALTHY;
	}
	return options->degraded_after_ms >= 0 && ms >= options->degraded_after_ms
				   ? POSTERN_HEALTH_DEGRADED
				   : POSTERN_HEALTH_OK;
}

/* What holds the handler; false: out of memory. */
static bool read_hold(const struct reading_health *work,
		const struct postern__handler *handler,
		struct postern_handler_health *out) {
	struct postern_box *box = work->box;
	struct postern__hold hold;
	/* Not its end, so the clock makes no difference. */
	postern__hold_find(box, handler, 0, &hold);
	out->since_ms = hold.at_ms;
	if (hold.text && hold.text[0]) {
		out->reason = postern_memory_text(work->memory, hold.text);
	}
	return out->reason || !hold.text || !hold.text[0];
}

static bool read_handler(const struct reading_health *work,
		const struct postern__handler *handler,
		struct postern_handler_health *out) {
	struct progress progress = progress_of(work->box, handler, work->now);
	enum postern__reason held = postern__why_held(work->box, handler);
	*out = (struct postern_handler_health){
		.key = postern_memory_text(work->memory, handler->key),
		.channel = postern_memory_text(work->memory, handler->channel->name),
		.running = handler->state->running,
		.stuck = progress.stuck,
		.held = held ? postern__reason_name(held) : NULL,
		.pulled = postern__handler_is_pulled(handler),
	};
	int64_t since =
			held ? progress.stuck_since : due_since(work, handler, &progress);
	if (since != POSTERN__NEVER) {
		out->due = true;
		out->inactive_ms = inactive_ms(work, handler, since);
		out->status = status_after(out->inactive_ms, work->options);
	}
	return out->key && out->channel && (!held || read_hold(work, handler, out));
}

static int read_handlers(const struct reading_health *work,
		const struct postern_generation *generation, struct postern_health *out,
		struct postern_error *error) {
	size_t count = generation->handler_count;
	struct postern_handler_health *handlers =
			postern_memory_alloc(work->memory, count * sizeof(*handlers));
	bool ok = handlers;
	(void)pthread_mutex_lock(&work->box->mutex);
	out->store_failing = work->box->store_failing;
	out->status =
			out->store_failing ? POSTERN_HEALTH_UNHEALTHY : POSTERN_HEALTH_OK;
	for (size_t i = 0; ok && i < count; i++) {
		ok = read_handler(work, generation->handlers[i], &handlers[i]);
		if (handlers[i].status > out->status) {
			out->status = handlers[i].status;
		}
	}
	(void)pthread_mutex_unlock(&work->box->mutex);
	out->handlers = handlers;
	out->handler_count = count;
	return ok ? POSTERN_OK
			  : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

static int read_options(const struct postern_health_options *given,
		struct postern_health_options *out, struct postern_error *error) {
	*out = (struct postern_health_options){ .size = sizeof(*out) };
	int r = given ? postern__sized_copy(out, sizeof(*out), given,
							"struct postern_health_options", error)
				  : POSTERN_OK;
	if (out->degraded_after_ms == 0) {
		out->degraded_after_ms = POSTERN_HEALTH_DEGRADED_MS;
	}
	if (out->unhealthy_after_ms == 0) {
		out->unhealthy_after_ms = POSTERN_HEALTH_UNHEALTHY_MS;
	}
	return r;
}

int postern_box_health(struct postern_box *box,
		const struct postern_health_options *given, struct postern_health **out,
		struct postern_error *error) {
	struct postern_health_options options;
	int r = postern__box_check_started(box, error);
	if (!r) {
		r = read_options(given, &options, error);
	}
	if (r) {
		return r;
	}
	struct health_object *object = calloc(1, sizeof(*object));
	if (object) {
		object->memory = postern_memory_create();
	}
	if (!object || !object->memory) {
		free(object);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	struct postern_generation *generation = postern__generation_acquire(box);
	struct postern__reading *reading = postern__reading_acquire(box);
	struct reading_health work = {
		.box = box,
		.options = &options,
		.reading = reading,
		.memory = object->memory,
		.now = postern__box_now_ms(box),
	};
	r = read_handlers(&work, generation, &object->health, error);
	postern__reading_release(box, reading);
	postern__generation_release(generation);
	if (r) {
		postern_health_destroy(&object->health);
		return r;
	}
	*out = &object->health;
	return POSTERN_OK;
}

void postern_health_destroy(struct postern_health *health) {
	if (health) {
		struct health_object *object =
				container_of(health, struct health_object, health);
		postern_memory_destroy(object->memory);
		free(object);
	}
}
