/* SPDX-License-Identifier: MIT */
/*
 * Starting a box: the configuration is registered in the store. Keys are
 * resolved to handler ids, leases of a former owner are recovered, parked
 * messages that a handler wants now are unparked, and orphaned handlers are
 * reported; except in a process that only accepts.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/content_keys.h"
#include "core/inline.h"
#include "core/kept_rules.h"
#include "core/maintenance.h"
#include "core/tenure.h"

#include "base/fail.h"
#include "base/point.h"
#include "base/text.h"

#include <postern/sys/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNPARK_BATCH 1000

bool postern__horizon_check(const char *channel, int64_t dedupe_ms,
		const char *key, const struct postern_policy *policy, char *text,
		size_t size) {
	int64_t horizon = postern__policy_horizon_ms(policy);
	char kept[POSTERN__DURATION_TEXT_MAX];
	char needed[POSTERN__DURATION_TEXT_MAX];
	if (dedupe_ms == 0 || dedupe_ms >= horizon) {
		return true;
	}
	postern__duration_format(dedupe_ms, kept);
	postern__duration_format(horizon, needed);
	(void)snprintf(text, size,
			"channel '%.40s' forgets ids after %s (retention.dedupe), but "
			"handler '%.40s' may retry for %s: a later copy is new; set "
			"retention.dedupe to %s or more, or lower max_attempts",
			channel, kept, key, needed, needed);
	return false;
}

static void check_dedupe_horizons(const struct postern_generation *generation) {
	for (size_t i = 0; i < generation->handler_count; i++) {
		const struct postern__handler *handler = generation->handlers[i];
		char text[POSTERN_ERROR_TEXT_MAX];
		if (!postern__channel_is_inline(handler->channel) &&
				!postern__horizon_check(handler->channel->name,
						handler->channel->retention_dedupe_ms, handler->key,
						&handler->policy, text, sizeof(text))) {
			postern__emit(generation->box,
					&(struct postern_event){
							.kind = POSTERN_EVENT_RETENTION_SHORT,
							.channel = handler->channel->name,
							.handler = handler->key,
							.text = text,
					});
		}
	}
}

static void report_dedupe(const struct postern_generation *generation) {
	for (size_t i = 0; i < generation->handler_count; i++) {
		const struct postern__handler *handler = generation->handlers[i];
		if (handler->dedupe == POSTERN_DEDUPE_MEMORY) {
			postern__emit(generation->box,
					&(struct postern_event){
							.kind = POSTERN_EVENT_DEDUPE_IN_MEMORY,
							.channel = handler->channel->name,
							.handler = handler->key,
					});
		}
	}
}

int postern__generation_check(const struct postern_generation *generation,
		struct postern_error *error) {
	int r = postern__modes_check(generation, error);
	if (!r) {
		check_dedupe_horizons(generation);
		report_dedupe(generation);
	}
	return r;
}

/* What is registered: each name once, as its newest generation has it. */
struct enrolling {
	struct postern_enrolment enrolment;
	struct postern__channel **channels;
	struct postern__handler **handlers;
};

static void add_channel(struct enrolling *work,
		struct postern__channel *channel) {
	struct postern_enrolment *enrolment = &work->enrolment;
	for (size_t i = 0; i < enrolment->channel_count; i++) {
		if (work->channels[i]->generation != channel->generation &&
				postern__channels_share_name(work->channels[i], channel)) {
			return; /* the store has both as one */
		}
	}
	work->channels[enrolment->channel_count] = channel;
	enrolment->channels[enrolment->channel_count++] =
			(struct postern_enrol_channel){
				.name = channel->name,
				.former_names = (const char *const *)channel->former_names,
				.former_name_count = channel->former_name_count,
				.max_size = channel->max_message_size,
				.retention = {
					.payload_ms = channel->retention_payload_ms,
					.dedupe_ms = channel->retention_dedupe_ms > 0
										 ? channel->retention_dedupe_ms
										 : -1,
				},
			};
}

static void add_handler(struct enrolling *work,
		struct postern__handler *handler) {
	struct postern_enrolment *enrolment = &work->enrolment;
	for (size_t i = 0; i < enrolment->handler_count; i++) {
		if (work->handlers[i]->generation != handler->generation &&
				postern__handlers_share_key(work->handlers[i], handler)) {
			return; /* the store has both as one */
		}
	}
	work->handlers[enrolment->handler_count] = handler;
	enrolment->handlers[enrolment->handler_count++] =
			(struct postern_enrol_handler){
				.key = handler->key,
				.legacy_keys = (const char *const *)handler->legacy_keys,
				.legacy_key_count = handler->legacy_key_count,
				.in_process = handler->impl->kind->in_process,
				.max_crashes = handler->policy.max_crashes,
				.dedupe_ms = postern__channel_is_inline(handler->channel)
									 ? 0
									 : handler->retention_dedupe_ms,
			};
}

static void add_generation(struct enrolling *work,
		const struct postern_generation *generation) {
	for (size_t i = 0; i < generation->channel_count; i++) {
		add_channel(work, generation->channels[i]);
	}
	for (size_t i = 0; i < generation->handler_count; i++) {
		add_handler(work, generation->handlers[i]);
	}
}

static void count_generation(const struct postern_generation *generation,
		size_t *channels, size_t *handlers) {
	*channels += generation->channel_count;
	*handlers += generation->handler_count;
}

/* All generations that are in use or, if `former` is false, only the newest. */
static bool fill_enrolling(struct enrolling *work, struct postern_box *box,
		const struct postern_generation *next, bool former) {
	const struct postern_generation *newest = next ? next : box->generation;
	size_t channels = 1;
	size_t handlers = 1;
	count_generation(newest, &channels, &handlers);
	postern__list_each(link, &box->generations) {
		count_generation(container_of(link, struct postern_generation, link),
				&channels, &handlers);
	}
	struct postern_enrolment *enrolment = &work->enrolment;
	enrolment->channels = calloc(channels, sizeof(*enrolment->channels));
	enrolment->handlers = calloc(handlers, sizeof(*enrolment->handlers));
	work->channels = calloc(channels, sizeof(struct postern__channel *));
	work->handlers = calloc(handlers, sizeof(struct postern__handler *));
	if (!enrolment->channels || !enrolment->handlers || !work->channels ||
			!work->handlers) {
		return false;
	}
	add_generation(work, newest);
	postern__list_each(link, &box->generations) {
		const struct postern_generation *generation =
				container_of(link, struct postern_generation, link);
		if (former && generation != newest) {
			add_generation(work, generation);
		}
	}
	return true;
}

static void finish_enrolling(struct enrolling *work) {
	free(work->enrolment.channels);
	free(work->enrolment.handlers);
	free(work->channels);
	free(work->handlers);
}

/* Ids never change, and once the generation is in place they are read without
   the mutex. */
static void copy_ids(struct postern_generation *generation,
		const struct enrolling *work) {
	for (size_t i = 0; i < work->enrolment.channel_count; i++) {
		if (work->channels[i]->generation == generation) {
			work->channels[i]->id = work->enrolment.channels[i].id;
			memcpy(work->channels[i]->first_name,
					work->enrolment.channels[i].first_name,
					sizeof(work->channels[i]->first_name));
		}
	}
	for (size_t i = 0; i < work->enrolment.handler_count; i++) {
		if (work->handlers[i]->generation == generation) {
			work->handlers[i]->id = work->enrolment.handlers[i].id;
		}
	}
	postern__generation_sort_ids(generation);
}

static int enrol_generations(struct postern_box *box, uint64_t node,
		struct postern_generation *next, bool again, bool former,
		struct postern_error *error) {
	struct enrolling work = {
		.enrolment = {
			.node = node,
			.again = again,
			.node_lease_ms = box->options.node_lease_ms,
		},
	};
	int r;
	if (fill_enrolling(&work, box, next, former)) {
		postern__point("enrol.before");
		r = box->store->ops->enrol(box->store, &work.enrolment, error);
		postern__point("enrol.after");
	} else {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (!r && (next || !box->started)) {
		copy_ids(next ? next : box->generation, &work);
	}
	finish_enrolling(&work);
	return r;
}

int postern__enrol_generations(struct postern_box *box,
		struct postern_generation *next, bool again,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t node = box->node;
	if (!again) {
		/* A new node may not lease before postern__engage(). */
		box->engaged = !box->store->ops->engage;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	int r = enrol_generations(box, node, next, again, true, error);
	if (r == POSTERN_E_INVALID) {
		/* Two handlers of different generations may be one in the store, once
		   any node has made the key of one an alias of the other. Then what is
		   left of the former generations ends without being registered. */
		r = enrol_generations(box, node, next, again, false, error);
	}
	(void)pthread_mutex_lock(&box->mutex);
	box->shared_node = 0; /* the node is idle for no handler */
	(void)pthread_mutex_unlock(&box->mutex);
	return r;
}

int postern__enrol(struct postern_box *box, bool again,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&box->replacing);
	int r = postern__enrol_generations(box, NULL, again, error);
	(void)pthread_mutex_unlock(&box->replacing);
	return r;
}

static int check_orphans(struct postern_box *box, struct postern_error *error) {
	struct postern_memory *memory = postern_memory_create();
	if (!memory) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	struct postern_orphan *orphans = NULL;
	size_t count = 0;
	int r = box->store->ops->orphans(box->store, box->node, NULL, false, 0,
			memory, &orphans, &count, error);
	const char *fate = box->options.orphans == POSTERN_ORPHANS_HOLD
							   ? "held (orphans: hold)"
					   : box->store->ops->exclusive
							   ? "to be poisoned (orphans: poison)"
							   : "to be poisoned unless a node configures it "
								 "soon (orphans: poison)";
	for (size_t i = 0; !r && i < count; i++) {
		if (box->options.orphans == POSTERN_ORPHANS_FAIL) {
			r = postern__fail(error, POSTERN_E_INVALID,
					"%llu open deliver%s to handler '%s', which no running "
					"node has configured (orphans: fail); add it, or name it "
					"as a legacy key",
					(unsigned long long)orphans[i].count,
					orphans[i].count == 1 ? "y belongs" : "ies belong",
					orphans[i].key);
			break;
		}
		postern__emit_text(box,
				&(struct postern_event){
						.kind = POSTERN_EVENT_ORPHANED,
						.handler = orphans[i].key,
						.count = orphans[i].count,
				},
				"%llu open deliver%s to handler '%s', which no running node "
				"has configured; %s",
				(unsigned long long)orphans[i].count,
				orphans[i].count == 1 ? "y belongs" : "ies belong",
				orphans[i].key, fate);
	}
	postern_memory_destroy(memory);
	return r;
}

int postern__unpark_all(struct postern_box *box, struct postern_error *error) {
	struct postern_generation *generation = postern__generation_acquire(box);
	struct postern__parked_routes *routes =
			postern__parked_routes_create(generation);
	int64_t cursor = 0;
	int r = routes ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	while (!r) {
		uint64_t count = 0;
		postern__point("unpark.before");
		r = box->store->ops->unpark(box->store, postern__parked_route, routes,
				UNPARK_BATCH, &cursor, &count, error);
		postern__point("unpark.after");
		if (cursor == 0) {
			break;
		}
	}
	postern__parked_routes_destroy(routes);
	postern__generation_release(generation);
	return r;
}

/* What former nodes, and a former configuration, have left. */
static int take_over(struct postern_box *box, struct postern_error *error) {
	int r = check_orphans(box, error);
	if (!r) {
		r = postern__recover(box, NULL, error);
	}
	return r ? r : postern__unpark_all(box, error);
}

int postern_box_start(struct postern_box *box, struct postern_error *error) {
	if (box->options.read_only) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the box is open for reading only");
	}
	if (box->started) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the box was started before");
	}
	int64_t alive_until =
			postern__box_after_ms(box, box->options.node_lease_ms);
	int r = postern__generation_check(box->generation, error);
	if (!r) {
		r = postern__enrol(box, false, error);
	}
	if (!r) {
		box->node_until_ms = alive_until;
		box->lock_wanted_since_ms = postern__box_now_ms(box);
		r = postern__rules_keep(box, box->generation, error);
	}
	if (!r) {
		r = postern__pauses_refresh(box, error);
	}
	if (!r && !box->options.accepts_only) {
		r = take_over(box, error);
	}
	if (!r) {
		box->started = true;
		/* The store may have suspects: the first claim finds out. */
		box->suspects_waiting = true;
	}
	return r;
}
