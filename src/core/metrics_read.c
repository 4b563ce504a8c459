/* SPDX-License-Identifier: MIT */
/*
 * Reading the figures of a box: one copy under the mutex, so that the text is
 * written without it, and one count in the store.
 *
 * A count may read every open delivery (PostgreSQL), so its result is used
 * again for a few seconds, and for longer if counting took long: at most a
 * twentieth of the time is spent on it. One thread counts at a time; the others
 * use the last result meanwhile, so that a store that does not answer holds up
 * one collector only.
 */

#include "core/metrics.h"

#include "base/fail.h"
#include "core/breaker.h"
#include "core/reason.h"

#include <postern/inspect.h>
#include <stdlib.h>

#define READING_MS_MIN 5000
#define READING_SHARE 20

void postern__reading_destroy(struct postern__reading *reading) {
	if (reading) {
		postern_stats_destroy(reading->stats);
		free(reading);
	}
}

/* With the mutex. Returns what the caller has to destroy without it. */
static struct postern__reading *release_reading(
		struct postern__reading *reading) {
	return reading && --reading->refs == 0 ? reading : NULL;
}

/* Count in the store. NULL: that failed. */
static struct postern__reading *count_stored(struct postern_box *box) {
	struct postern__reading *reading = calloc(1, sizeof(*reading));
	int64_t began_ms = postern__box_now_ms(box);
	if (!reading || postern_box_stats(box, &reading->stats, NULL)) {
		free(reading);
		return NULL;
	}
	reading->refs = 1; /* of the box */
	reading->at_ms = postern__box_now_ms(box);
	int64_t rest_ms = (reading->at_ms - began_ms) * READING_SHARE;
	reading->next_ms =
			reading->at_ms +
			(rest_ms > READING_MS_MIN ? rest_ms : (int64_t)READING_MS_MIN);
	return reading;
}

struct postern__reading *postern__reading_acquire(struct postern_box *box) {
	struct postern__reading *former = NULL;
	(void)pthread_mutex_lock(&box->mutex);
	bool due =
			!box->reading || postern__box_now_ms(box) >= box->reading->next_ms;
	if (due && !box->reading_store) {
		box->reading_store = true;
		bool failing = box->store_failing;
		(void)pthread_mutex_unlock(&box->mutex);
		/* A store that cannot be written may not answer either. */
		struct postern__reading *next = failing ? NULL : count_stored(box);
		(void)pthread_mutex_lock(&box->mutex);
		box->reading_store = false;
		former = release_reading(box->reading);
		box->reading = next;
	}
	struct postern__reading *reading = box->reading;
	if (reading) {
		reading->refs++;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	postern__reading_destroy(former);
	return reading;
}

void postern__reading_release(struct postern_box *box,
		struct postern__reading *reading) {
	(void)pthread_mutex_lock(&box->mutex);
	struct postern__reading *unused = release_reading(reading);
	(void)pthread_mutex_unlock(&box->mutex);
	postern__reading_destroy(unused);
}

/* With the mutex. */
static void copy_figures(struct postern__figures *figures) {
	const struct postern_generation *generation = figures->generation;
	for (size_t i = 0; i < generation->channel_count; i++) {
		const struct postern__channel *channel = generation->channels[i];
		figures->channels[i] = (struct postern__channel_figures){
			.name = channel->name,
			.meter = channel->state->meter,
		};
	}
	for (size_t i = 0; i < generation->handler_count; i++) {
		const struct postern__handler *handler = generation->handlers[i];
		const struct postern__handler_state *state = handler->state;
		bool paused = postern__is_paused(figures->box, state);
		bool rests =
				postern__pause_reason(state->pause_by, state->pause_until_ms) ==
				POSTERN__REASON_RETRY_AFTER;
		figures->handlers[i] = (struct postern__handler_figures){
			.key = handler->key,
			.meter = state->meter,
			.running = state->running,
			.held = {
				[POSTERN__HELD_PAUSED] = paused && !rests,
				[POSTERN__HELD_RETRY_AFTER] = paused && rests,
				[POSTERN__HELD_BROKEN] = postern__breaker_is_open(state),
			},
		};
	}
	figures->channel_count = generation->channel_count;
	figures->handler_count = generation->handler_count;
	figures->meter = figures->box->meter;
}

/* Sources are added before the runner starts, so their number is fixed. */
static bool copy_sources(struct postern_box *box,
		struct postern__figures *figures) {
	bool ok = true;
	(void)pthread_mutex_lock(&box->sources_mutex);
	if (box->read_sources) {
		size_t count = box->read_sources(box->sources, NULL, 0);
		figures->sources = calloc(count + 1, sizeof(*figures->sources));
		ok = figures->sources;
		figures->source_count =
				ok ? box->read_sources(box->sources, figures->sources, count)
				   : 0;
	}
	(void)pthread_mutex_unlock(&box->sources_mutex);
	return ok;
}

int postern__figures_read(struct postern_box *box, const char *store,
		struct postern__figures *out, struct postern_error *error) {
	struct postern_generation *generation = postern__generation_acquire(box);
	struct postern__figures figures = {
		.box = box,
		.store = store,
		.generation = generation,
		.lock = box->options.processing == POSTERN_PROCESSING_EXCLUSIVE
						? box->lock_name
						: NULL,
		.channels = calloc(generation->channel_count + 1,
				sizeof(struct postern__channel_figures)),
		.handlers = calloc(generation->handler_count + 1,
				sizeof(struct postern__handler_figures)),
	};
	if (!figures.channels || !figures.handlers ||
			!copy_sources(box, &figures)) {
		postern__figures_finish(&figures);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	figures.reading = postern__reading_acquire(box);
	(void)pthread_mutex_lock(&box->mutex);
	copy_figures(&figures);
	if (figures.reading) {
		figures.reading_age_ms =
				postern__box_now_ms(box) - figures.reading->at_ms;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	*out = figures;
	return POSTERN_OK;
}

void postern__figures_finish(struct postern__figures *figures) {
	postern__reading_release(figures->box, figures->reading);
	postern__generation_release(figures->generation);
	free(figures->channels);
	free(figures->handlers);
	free(figures->sources);
}

void postern__sources_announce(struct postern_box *box,
		postern__read_sources *read, void *context) {
	(void)pthread_mutex_lock(&box->sources_mutex);
	box->read_sources = read;
	box->sources = context;
	(void)pthread_mutex_unlock(&box->sources_mutex);
}

void postern__sources_withdraw(struct postern_box *box, const void *context) {
	(void)pthread_mutex_lock(&box->sources_mutex);
	if (box->sources == context) {
		box->read_sources = NULL;
		box->sources = NULL;
	}
	(void)pthread_mutex_unlock(&box->sources_mutex);
}
