/* SPDX-License-Identifier: MIT */
/*
 * Starting a box: the configuration is registered in the store. Keys are
 * resolved to handler ids, leases of a former owner are recovered, parked
 * messages that a handler wants now are unparked, and orphaned handlers are
 * reported.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/maintenance.h"
#include "core/tenure.h"

#include "base/fail.h"
#include "base/point.h"
#include "base/text.h"

#include <postern/sys/memory.h>
#include <stdio.h>
#include <stdlib.h>

#define UNPARK_BATCH 1000

static void emit_remark(const struct postern_box *box, const char *text) {
	if (box->options.remark) {
		box->options.remark(box->options.remark_context, text);
	}
}

/* Check the channels against the option require_inbox. */
static int check_require_inbox(const struct postern_box *box,
		struct postern_error *error) {
	enum postern_require_inbox rule = box->options.require_inbox;
	for (size_t i = 0; i < box->channel_count; i++) {
		const struct postern__channel *channel = box->channels[i];
		if (rule == POSTERN_REQUIRE_INBOX_NONE || !channel->without_inbox ||
				channel->allow_without_inbox) {
			continue;
		}
		char text[POSTERN_ERROR_TEXT_MAX];
		(void)snprintf(text, sizeof(text),
				"channel '%s' has no inbox, but require_inbox is set; set "
				"allow_without_inbox if that is intended",
				channel->name);
		if (rule == POSTERN_REQUIRE_INBOX_FAIL) {
			return postern__fail(error, POSTERN_E_INVALID, "%s", text);
		}
		emit_remark(box, text);
	}
	return POSTERN_OK;
}

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

static void check_dedupe_horizons(const struct postern_box *box) {
	for (size_t i = 0; i < box->handler_count; i++) {
		const struct postern__handler *handler = box->handlers[i];
		char text[POSTERN_ERROR_TEXT_MAX];
		if (!postern__horizon_check(handler->channel->name,
					handler->channel->retention_dedupe_ms, handler->key,
					&handler->policy, text, sizeof(text))) {
			emit_remark(box, text);
		}
	}
}

static void fill_enrolment(const struct postern_box *box,
		struct postern_enrolment *enrolment) {
	for (size_t i = 0; i < box->channel_count; i++) {
		enrolment->channels[i].name = box->channels[i]->name;
		enrolment->channels[i].max_size = box->channels[i]->max_message_size;
	}
	for (size_t i = 0; i < box->handler_count; i++) {
		const struct postern__handler *handler = box->handlers[i];
		enrolment->handlers[i] = (struct postern_enrol_handler){
			.key = handler->key,
			.legacy_keys = (const char *const *)handler->legacy_keys,
			.legacy_key_count = handler->legacy_key_count,
			.in_process = handler->impl->ops->in_process,
			.max_crashes = handler->policy.max_crashes,
		};
	}
}

/* Ids never change, and after start they are read without the mutex. */
static void copy_ids(struct postern_box *box,
		const struct postern_enrolment *enrolment) {
	for (size_t i = 0; i < box->channel_count; i++) {
		box->channels[i]->id = enrolment->channels[i].id;
	}
	for (size_t i = 0; i < box->handler_count; i++) {
		struct postern__handler *handler = box->handlers[i];
		const struct postern_enrol_handler *from = &enrolment->handlers[i];
		handler->id = from->id;
	}
}

int postern__enrol(struct postern_box *box, bool again,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t node = box->node;
	if (!again) {
		/* A new node may not lease before postern__engage(). */
		box->engaged = !box->store->ops->engage;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	struct postern_enrolment enrolment = {
		.node = node,
		.again = again,
		.node_lease_ms = box->options.node_lease_ms,
		.channel_count = box->channel_count,
		.handler_count = box->handler_count,
	};
	enrolment.channels =
			calloc(box->channel_count + 1, sizeof(*enrolment.channels));
	enrolment.handlers =
			calloc(box->handler_count + 1, sizeof(*enrolment.handlers));
	int r;
	if (!enrolment.channels || !enrolment.handlers) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	} else {
		fill_enrolment(box, &enrolment);
		postern__point("enrol.before");
		r = box->store->ops->enrol(box->store, &enrolment, error);
		postern__point("enrol.after");
	}
	if (!r && !box->started) {
		copy_ids(box, &enrolment);
	}
	free(enrolment.channels);
	free(enrolment.handlers);
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
		char text[POSTERN_ERROR_TEXT_MAX];
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
		(void)snprintf(text, sizeof(text),
				"%llu open deliver%s to handler '%s', which no running node "
				"has configured; %s",
				(unsigned long long)orphans[i].count,
				orphans[i].count == 1 ? "y belongs" : "ies belong",
				orphans[i].key, fate);
		emit_remark(box, text);
	}
	postern_memory_destroy(memory);
	return r;
}

static size_t route_parked(void *context, int64_t channel_id, const char *type,
		struct postern_route *routes, size_t max) {
	const struct postern_box *box = context;
	size_t count = 0;
	for (size_t i = 0; i < box->handler_count && count < max; i++) {
		const struct postern__handler *handler = box->handlers[i];
		if (handler->channel->id == channel_id &&
				postern__handler_wants(handler, type)) {
			routes[count++] = (struct postern_route){
				.handler = handler->id,
			};
		}
	}
	return count;
}

static int unpark_all(struct postern_box *box, struct postern_error *error) {
	int64_t cursor = 0;
	int r = POSTERN_OK;
	do {
		uint64_t count = 0;
		postern__point("unpark.before");
		r = box->store->ops->unpark(box->store, route_parked, box, UNPARK_BATCH,
				&cursor, &count, error);
		postern__point("unpark.after");
	} while (!r && cursor != 0);
	return r;
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
	size_t recovered;
	int64_t alive_until =
			postern__box_after_ms(box, box->options.node_lease_ms);
	int r = check_require_inbox(box, error);
	check_dedupe_horizons(box);
	if (!r) {
		r = postern__enrol(box, false, error);
	}
	if (!r) {
		box->node_until_ms = alive_until;
		box->lock_wanted_since_ms = postern__box_now_ms(box);
		r = check_orphans(box, error);
	}
	if (!r) {
		r = postern__pauses_refresh(box, error);
	}
	if (!r) {
		r = postern__recover(box, &recovered, error);
	}
	if (!r) {
		r = unpark_all(box, error);
	}
	if (!r) {
		box->started = true;
		/* The store may have suspects: the first claim finds out. */
		box->suspects_waiting = true;
	}
	return r;
}
