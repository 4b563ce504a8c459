/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_GENERATION_H
#define POSTERN_CORE_GENERATION_H

/*
 * The channels and handlers of a box.
 */

#include "base/list.h"

#include <postern/box.h>
#include <postern/handler.h>
#include <postern/sys/handler.h>

struct postern__channel {
	char *name;
	enum postern_unrouted unrouted;
	enum postern_on_conflict on_conflict;
	bool without_inbox;
	bool allow_without_inbox;
	size_t max_message_size;
	int64_t retention_payload_ms;
	int64_t retention_dedupe_ms;
	struct postern_policy policy;
	int64_t id; /* assigned by the store */
	/* Indices into box->handlers. */
	size_t *handlers;
	size_t handler_count;
};

/* A registered handler. */
struct postern__handler {
	struct postern_handler *impl;
	char *key;
	char **legacy_keys;
	size_t legacy_key_count;
	char **types;
	size_t type_count;
	struct postern_policy policy;
	struct postern__channel *channel;
	int64_t id; /* assigned by the store */

	/* Guarded by the box's mutex. */
	bool paused;
	struct postern__list queue; /* of postern_run.link: leased, not started */
	size_t queued;
	size_t running; /* started, and not finished by the implementation */
	/* Leases that this process keeps in memory, and their bytes: counted from
	   the reservation before the accept is written until the settlement is
	   durable. */
	size_t held;
	size_t held_bytes;
	/* When the store may have a delivery due for this handler, by the
	   monotonic clock; POSTERN__NEVER if none is known. */
	int64_t due_at_ms;
};

#endif
