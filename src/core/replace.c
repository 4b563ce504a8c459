/* SPDX-License-Identifier: MIT */
/*
 * Replacing the generation in place while the box works.
 *
 * The store registers the handlers of the old generations and of the new one
 * before the new one is put in place, so that no handler is an orphan for a
 * moment. From then on nothing starts under an old generation: leases of runs
 * that have not started are returned, and the new generation claims them. What
 * has started ends as it began. Once nothing uses an old generation any more,
 * it is destroyed, and the store registers only what is left.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/breaker.h"
#include "core/generation.h"
#include "core/kept_rules.h"
#include "core/maintenance.h"
#include "core/pull.h"
#include "core/run.h"

#include "base/fail.h"
#include "base/point.h"

#include <stdlib.h>
#include <string.h>

static bool has_key(const struct postern__handler *handler, const char *key) {
	if (strcmp(handler->key, key) == 0) {
		return true;
	}
	for (size_t i = 0; i < handler->legacy_key_count; i++) {
		if (strcmp(handler->legacy_keys[i], key) == 0) {
			return true;
		}
	}
	return false;
}

bool postern__handlers_share_key(const struct postern__handler *a,
		const struct postern__handler *b) {
	if (has_key(b, a->key)) {
		return true;
	}
	for (size_t i = 0; i < a->legacy_key_count; i++) {
		if (has_key(b, a->legacy_keys[i])) {
			return true;
		}
	}
	return false;
}

/* The handler of an earlier generation, the newest first, that this one
   continues; NULL: none. */
static struct postern__handler *find_predecessor(struct postern_box *box,
		const struct postern__handler *handler) {
	struct postern__handler *renamed = NULL;
	postern__list_each(link, &box->generations) {
		const struct postern_generation *generation =
				container_of(link, struct postern_generation, link);
		for (size_t i = 0; i < generation->handler_count; i++) {
			struct postern__handler *old = generation->handlers[i];
			if (strcmp(old->key, handler->key) == 0) {
				return old;
			}
			if (!renamed && postern__handlers_share_key(old, handler)) {
				renamed = old;
			}
		}
	}
	return renamed;
}

static const struct postern__channel *
find_channel(const struct postern_generation *generation,
		const struct postern__channel *wanted) {
	for (size_t i = 0; i < generation->channel_count; i++) {
		if (postern__channels_share_name(generation->channels[i], wanted)) {
			return generation->channels[i];
		}
	}
	return NULL;
}

/* With both mutexes. */
static void take_over_channel(struct postern_box *box,
		struct postern__channel *channel) {
	postern__list_each(link, &box->generations) {
		const struct postern__channel *old =
				find_channel(container_of(link, struct postern_generation,
									 link),
						channel);
		if (old) {
			free(channel->state);
			channel->state = old->state;
			channel->state->refs++;
			return;
		}
	}
}

/* With both mutexes. */
static void take_over_state(struct postern_box *box,
		struct postern__handler *handler) {
	const struct postern__handler *old = find_predecessor(box, handler);
	const struct postern__handler *heir = old ? old->state->handler : NULL;
	if (!old || (heir && heir->generation == handler->generation)) {
		return; /* new, or another handler of this generation continues it */
	}
	struct postern__handler_state *fresh = handler->state;
	handler->state = old->state;
	handler->state->refs++;
	handler->state->handler = handler;
	/* What was changed may be the cause of a hold, or the rate. */
	postern__breaker_close(handler->state);
	handler->state->rate_left = 0;
	handler->state->rate_at_ms = 0;
	free(fresh);
}

/* With the mutex. */
static void return_leases(struct postern_generation *generation) {
	for (size_t i = 0; i < generation->handler_count; i++) {
		postern__list_each(link, &generation->handlers[i]->state->queue) {
			postern__run_return_lease(
					container_of(link, struct postern_run, link));
		}
	}
}

/* With the mutex: handlers that the new generation does not continue are not
   claimed for any more. */
static void forget_due(struct postern_generation *generation) {
	for (size_t i = 0; i < generation->handler_count; i++) {
		struct postern__handler_state *state = generation->handlers[i]->state;
		if (state->handler == generation->handlers[i]) {
			state->due_at_ms = POSTERN__NEVER;
			postern__list_remove(&state->due);
			postern__pulls_abandon(generation->box, state);
		}
	}
}

/* With both mutexes: end the claims that wait for handlers which workers do not
   claim for any more. */
static void end_pulls(struct postern_generation *generation) {
	for (size_t i = 0; i < generation->handler_count; i++) {
		struct postern__handler *handler = generation->handlers[i];
		if (!postern__handler_is_pulled(handler)) {
			postern__pulls_abandon(generation->box, handler->state);
		}
	}
}

/* With `replacing`. Cannot fail. */
static void put_in_place(struct postern_box *box,
		struct postern_generation *next) {
	(void)pthread_mutex_lock(&box->mutex);
	struct postern_generation *old = box->generation;
	return_leases(old);
	for (size_t i = 0; i < next->handler_count; i++) {
		take_over_state(box, next->handlers[i]);
	}
	for (size_t i = 0; i < next->channel_count; i++) {
		take_over_channel(box, next->channels[i]);
	}
	forget_due(old);
	end_pulls(next);
	(void)pthread_mutex_lock(&box->generation_mutex);
	box->generation = next;
	(void)pthread_mutex_unlock(&box->generation_mutex);
	postern__list_push_front(&box->generations, &next->link);
	postern__claim_hint_all(box);
	if (old->pulled_count > 0) {
		postern__pulls_look(box); /* they may be of another kind now */
	}
	postern__claim_nudge(box);
	(void)pthread_mutex_unlock(&box->mutex);
	postern__generation_release(old);
}

/* With `replacing`: destroy the generations that nothing refers to. */
static void destroy_unused(struct postern_box *box) {
	postern__list_each(link, &box->generations) {
		struct postern_generation *generation =
				container_of(link, struct postern_generation, link);
		if (atomic_load(&generation->refs) == 0) {
			postern__list_remove(&generation->link);
			postern_generation_destroy(generation);
			box->registered_too_many = true;
		}
	}
}

static int reap(struct postern_box *box, struct postern_error *error) {
	destroy_unused(box);
	if (!box->registered_too_many) {
		return POSTERN_OK;
	}
	postern__point("reap.before");
	int r = postern__enrol_generations(box, NULL, true, error);
	/* A node that has expired registers anew, and then only what is left. */
	if (!r || r == POSTERN_E_STALE) {
		/* Also what an old generation parked and the one in place wants. */
		r = postern__unpark_all(box, error);
	}
	postern__point("reap.after");
	if (!r) {
		box->registered_too_many = false;
	}
	return r;
}

int postern__generations_reap(struct postern_box *box,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&box->replacing);
	int r = reap(box, error);
	(void)pthread_mutex_unlock(&box->replacing);
	return r;
}

static int replace(struct postern_box *box, struct postern_generation *next,
		struct postern_error *error) {
	int r = postern__generation_check(next, error);
	if (r) {
		return r;
	}
	(void)pthread_mutex_lock(&box->replacing);
	postern__point("replace.before");
	destroy_unused(box);
	r = postern__enrol_generations(box, next, true, error);
	if (!r) {
		r = postern__rules_keep(box, next, error);
	}
	if (!r) {
		postern__point("replace.enrolled");
		put_in_place(box, next);
		postern__point("replace.after");
	} else {
		/* The store may have it registered, if only the reply was lost. */
		box->registered_too_many = true;
	}
	(void)pthread_mutex_unlock(&box->replacing);
	if (r == POSTERN_E_STALE) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"this node's lease has expired; try again when it is "
				"registered anew");
	}
	return r;
}

int postern_box_replace_taking(struct postern_box *box,
		struct postern_generation *next, struct postern_error *error) {
	int r = postern__box_check_started(box, error);
	if (!r) {
		r = postern__check_no_transaction(box, error);
	}
	size_t handler_count = next->handler_count;
	if (!r) {
		r = replace(box, next, error);
	}
	if (r) {
		postern_generation_destroy(next);
		return r;
	}
	postern__emit(box, &(struct postern_event){
							   .kind = POSTERN_EVENT_CONFIGURED,
							   .count = handler_count,
					   });
	/* The new generation stays in place if one of these calls fails: the next
	   poll reads the pauses again, and postern__generations_reap() unparks
	   again when the old generation has ended. */
	(void)postern__pauses_refresh(box, NULL);
	(void)postern__unpark_all(box, NULL);
	return POSTERN_OK;
}
