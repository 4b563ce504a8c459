/* SPDX-License-Identifier: MIT */

/*
 * The routes that count.
 */

#include <inttypes.h>
#include <postern/error.h>
#include <postern/inspect.h>
#include <postern/runner.h>
#include <postern/source.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/json_text.h"
#include "base/redact.h"
#include "runner/guard.h"
#include "server/api.h"
#include "server/config_digest.h"
#include "server/left.h"
#include "server/marker_watch.h"
#include "server/route.h"
#include "store/store.h"

/* A path as long as the system takes it. */
#define PLACE_LEN_MAX 4200

static void stats_response(struct postern__call *call) {
	call->response->status = 200;
}

/* Whether this process accepts messages for the store's channel; a store has
   all channels that it ever had. */
static bool is_configured(const struct postern__call *call, const char *store,
		const char *name) {
	const struct postern__config_channel *channel =
			call->api->config
					? postern__config_channel_named(call->api->config, name)
					: NULL;
	return channel && strcmp(channel->store->name, store) == 0;
}

/* The digest of what this process has configured; null: nothing. */
static void write_definition(struct postern__buf *buf, bool configured,
		uint32_t digest) {
	char text[9];
	(void)snprintf(text, sizeof text, "%08" PRIx32, digest);
	postern__json_pair_text(buf, "definition", configured ? text : NULL);
}

static void write_channel_definition(const struct postern__call *call,
		const char *store, const char *name) {
	bool configured = is_configured(call, store, name);
	write_definition(&call->response->body, configured,
			configured
					? postern__config_channel_digest(
							  postern__config_channel_named(call->api->config,
									  name))
					: 0);
}

static void write_handler_definition(const struct postern__call *call,
		const struct postern_handler_stats *row) {
	const struct postern__config_handler *handler =
			call->api->config && row->registered
					? postern__config_handler_named(call->api->config, row->key)
					: NULL;
	write_definition(&call->response->body, handler,
			handler ? postern__config_handler_digest(handler) : 0);
}

/* Whether messages can be staged there. */
static bool can_stage(const struct postern_stats *stats) {
	const struct postern_store_kind *kind =
			postern__store_kind_named(stats->store);
	return kind && kind->stages;
}

/* Whether running nodes record there which handlers they have. */
static bool is_shared(const struct postern_stats *stats) {
	const struct postern_store_kind *kind =
			postern__store_kind_named(stats->store);
	return kind && kind->is_shared;
}

/* Whether the store counts what becomes of messages: it has none of a channel
   in another mode, whose counts are in the metrics. */
static bool is_inbox(const struct postern__config_values *values) {
	return !values || values->mode == POSTERN_MODE_INBOX;
}

/* A count of a channel without an inbox is from a time when it had one, or
   there is none. */
static void write_count(struct postern__buf *buf, const char *name,
		uint64_t count, bool inbox) {
	if (count > 0 || inbox) {
		postern__json_pair_uint(buf, name, count);
	} else {
		postern__json_pair_null(buf, name);
	}
}

static void write_channel(const struct postern__call *call, const char *store,
		const struct postern_stats *stats, size_t index) {
	const struct postern_channel_stats *channel = &stats->channels[index];
	struct postern__buf *buf = &call->response->body;
	const struct postern__config_channel *known =
			call->api->config ? postern__config_channel_named(call->api->config,
										channel->name)
							  : NULL;
	bool inbox = is_inbox(known ? &known->values : NULL);
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "store", store);
	postern__json_pair_text(buf, "name", channel->name);
	postern__json_pair_bool(buf, "configured",
			is_configured(call, store, channel->name));
	write_channel_definition(call, store, channel->name);
	write_count(buf, "accepted", channel->accepted, inbox);
	write_count(buf, "duplicates", channel->duplicates, inbox);
	write_count(buf, "conflicts", channel->conflicts, inbox);
	write_count(buf, "dropped", channel->dropped, inbox);
	postern__json_pair_uint(buf, "parked", channel->parked);
	postern__json_pair_bool(buf, "closed", channel->closed);
	postern__json_pair_text(buf, "closed_reason", channel->closed_reason);
	postern__json_pair_text(buf, "closed_by", channel->closed_by);
	postern__write_time(buf, "closed_at", channel->closed_at_ms);
	if (can_stage(stats)) {
		postern__json_pair_uint(buf, "staged", channel->staged);
		postern__json_pair_uint(buf, "refused", channel->refused);
		postern__json_pair_uint(buf, "nodes", channel->nodes);
	}
	postern__json_close(buf, '}');
}

static void write_handler(const struct postern__call *call, const char *store,
		const struct postern_stats *stats, size_t index) {
	const struct postern_handler_stats *handler = &stats->handlers[index];
	struct postern__buf *buf = &call->response->body;
	const struct postern__config_handler *known =
			call->api->config ? postern__config_handler_named(call->api->config,
										handler->key)
							  : NULL;
	bool inbox = is_inbox(known ? &known->values : NULL);
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "store", store);
	postern__json_pair_text(buf, "key", handler->key);
	postern__json_pair_text(buf, "channel", handler->channel);
	postern__json_pair_bool(buf, "registered", handler->registered);
	write_handler_definition(call, handler);
	if (is_shared(stats)) {
		postern__json_pair_uint(buf, "nodes", handler->nodes);
	}
	postern__json_pair_bool(buf, "paused", handler->paused);
	postern__json_pair_text(buf, "held", handler->held);
	postern__json_pair_text(buf, "held_reason", handler->held_reason);
	postern__json_pair_text(buf, "held_by", handler->held_by);
	postern__write_time(buf, "held_at", handler->held_at_ms);
	postern__write_time(buf, "held_until", handler->held_until_ms);
	postern__json_pair_uint(buf, "pending", handler->pending);
	postern__json_pair_uint(buf, "retrying", handler->retrying);
	postern__json_pair_uint(buf, "leased", handler->leased);
	postern__json_pair_uint(buf, "poisoned", handler->poisoned);
	postern__json_pair_uint(buf, "waiting", handler->waiting);
	postern__json_pair_uint(buf, "queued", handler->queued);
	postern__json_pair_uint(buf, "running", handler->running);
	postern__json_pair_uint(buf, "stuck", handler->stuck);
	postern__write_time(buf, "oldest_pending_at",
			handler->oldest_pending_at_ms);
	postern__write_time(buf, "oldest_open_at", handler->oldest_open_at_ms);
	write_count(buf, "done", handler->done, inbox);
	write_count(buf, "discarded", handler->discarded, inbox);
	write_count(buf, "returned", handler->returned, inbox);
	postern__json_close(buf, '}');
}

static void write_locks(struct postern__buf *buf,
		const struct postern_stats *stats, uint64_t node) {
	postern__json_key(buf, "locks");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < stats->lock_count; i++) {
		if (stats->locks[i].node == node) {
			postern__json_text(buf, stats->locks[i].name);
		}
	}
	postern__json_close(buf, ']');
}

static void write_node(const struct postern__call *call, const char *store,
		const struct postern_stats *stats, size_t index) {
	const struct postern_node_stats *node = &stats->nodes[index];
	struct postern__buf *buf = &call->response->body;
	char id[17]; /* more digits than a JSON number can hold exactly */
	(void)snprintf(id, sizeof id, "%016" PRIx64, node->node);
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "store", store);
	postern__json_pair_text(buf, "node", id);
	postern__json_pair_bool(buf, "own", node->own);
	postern__json_pair_text(buf, "host", node->host);
	if (node->pid) {
		postern__json_pair_int(buf, "pid", node->pid);
	} else {
		postern__json_pair_null(buf, "pid");
	}
	postern__write_time(buf, "renewed_at", node->renewed_at_ms);
	postern__json_pair_int(buf, "renewed_ago_ms",
			stats->now_ms - node->renewed_at_ms);
	postern__write_time(buf, "lives_until", node->lives_until_ms);
	if (node->lives_until_ms) {
		postern__json_pair_int(buf, "left_ms",
				node->lives_until_ms - stats->now_ms);
	} else {
		postern__json_pair_null(buf, "left_ms");
	}
	postern__json_pair_uint(buf, "leased", node->leased);
	postern__json_pair_bool(buf, "sleeping", node->sleeping);
	postern__json_pair_bool(buf, "processor", node->processor);
	write_locks(buf, stats, node->node);
	postern__json_close(buf, '}');
}

/* The stats of each store; NULL for one that keeps markers only. */
struct counts {
	struct postern_stats *stats[POSTERN__STORE_COUNT_MAX];
	size_t count;
};

/* The stats of a store, empty for one that keeps markers only. */
static const struct postern_stats *stats_of(const struct counts *counts,
		size_t index) {
	static const struct postern_stats empty;
	return counts->stats[index] ? counts->stats[index] : &empty;
}

static void finish_counts(struct counts *counts) {
	for (size_t i = 0; i < counts->count; i++) {
		postern_stats_destroy(counts->stats[i]);
	}
}

/* False: refused, and nothing is left to finish. */
static bool get_counts(struct postern__call *call, struct counts *counts) {
	struct postern_error error;
	counts->count = 0;
	if (!postern__call_store_query(call)) {
		return false;
	}
	for (size_t i = 0; i < call->store_count; i++) {
		counts->stats[i] = NULL;
		if (call->stores[i]->box &&
				postern_box_stats(call->stores[i]->box, &counts->stats[i],
						&error) != POSTERN_OK) {
			finish_counts(counts);
			postern__call_fail_in(call, call->stores[i], &error);
			return false;
		}
		counts->count++;
	}
	return true;
}

/* One list of the stats: its length, and how to write an item. */
struct kind {
	size_t (*count)(const struct postern_stats *stats);
	void (*write)(const struct postern__call *call, const char *store,
			const struct postern_stats *stats, size_t index);
};

static size_t channel_count(const struct postern_stats *stats) {
	return stats->channel_count;
}

static size_t handler_count(const struct postern_stats *stats) {
	return stats->handler_count;
}

static size_t node_count(const struct postern_stats *stats) {
	return stats->node_count;
}

static const struct kind channels = { channel_count, write_channel };
static const struct kind handlers = { handler_count, write_handler };
static const struct kind nodes = { node_count, write_node };

/* Write all items of a list, of all stores, under this name. */
static void write_list(const struct postern__call *call, const char *name,
		const struct counts *counts, const struct kind *kind) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, name);
	postern__json_open(buf, '[');
	for (size_t i = 0; i < counts->count; i++) {
		const struct postern_stats *stats = stats_of(counts, i);
		for (size_t n = 0; n < kind->count(stats); n++) {
			kind->write(call, call->stores[i]->name, stats, n);
		}
	}
	postern__json_close(buf, ']');
}

static void write_source(struct postern__buf *buf, const char *store,
		const struct postern_source_state *source) {
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "store", store);
	postern__json_pair_text(buf, "name", source->name);
	postern__json_pair_text(buf, "kind", source->kind);
	postern__json_pair_text(buf, "channel",
			source->channel[0] ? source->channel : NULL);
	postern__json_pair_bool(buf, "running", source->running);
	postern__json_pair_bool(buf, "connected", source->connected);
	postern__write_time(buf, "since", source->since_ms);
	postern__json_pair_bool(buf, "paused", source->paused);
	if (source->lag >= 0) {
		postern__json_pair_int(buf, "lag", source->lag);
	} else {
		postern__json_pair_null(buf, "lag");
	}
	if (source->dead_letters >= 0) {
		postern__json_pair_int(buf, "dead_letters", source->dead_letters);
	} else {
		postern__json_pair_null(buf, "dead_letters");
	}
	postern__json_pair_text(buf, "last_error",
			source->error_at_ms ? source->error : NULL);
	postern__write_time(buf, "last_error_at", source->error_at_ms);
	postern__json_pair_uint(buf, "in_flight", source->in_flight);
	postern__json_pair_uint(buf, "accepted", source->accepted);
	postern__json_pair_uint(buf, "duplicates", source->duplicates);
	postern__json_pair_uint(buf, "conflicts", source->conflicts);
	postern__json_pair_uint(buf, "rejected", source->rejected);
	postern__json_pair_uint(buf, "quarantined", source->quarantined);
	postern__json_pair_uint(buf, "unavailable", source->unavailable);
	postern__json_pair_uint(buf, "failed", source->failed);
	postern__json_close(buf, '}');
}

struct postern_source_state *
postern__copy_source_states(const struct postern__open_store *store,
		size_t *count_out) {
	struct postern_runner *runner = store->runner;
	size_t count = runner ? postern_runner_sources(runner, NULL, 0, 0) : 0;
	struct postern_source_state *states = calloc(count + 1, sizeof *states);
	if (states && runner) {
		(void)postern_runner_sources(runner, states, sizeof *states, count);
	}
	*count_out = states ? count : 0;
	return states;
}

void postern__write_sources(const struct postern__call *call,
		const char *name) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, name);
	postern__json_open(buf, '[');
	for (size_t i = 0; i < call->store_count; i++) {
		size_t count;
		struct postern_source_state *states =
				postern__copy_source_states(call->stores[i], &count);
		if (!states) {
			buf->failed = POSTERN_E_NOMEM;
			break;
		}
		for (size_t n = 0; n < count; n++) {
			write_source(buf, call->stores[i]->name, &states[n]);
		}
		free(states);
	}
	postern__json_close(buf, ']');
}

/* Write the address of a store: its file, or its database and schema. */
static void write_place(struct postern__call *call,
		const struct postern__open_store *store) {
	struct postern__buf *buf = &call->response->body;
	const struct postern__config_store *known =
			call->api->config ? postern__config_store_named(call->api->config,
										store->name, NULL)
							  : NULL;
	char text[PLACE_LEN_MAX];
	if (store->file) {
		(void)snprintf(text, sizeof text, "%s:%s", store->scheme, store->file);
		postern__json_pair_text(buf, "url", text);
	} else if (known) {
		postern__redact(known->values.store, text, sizeof text);
		postern__json_pair_text(buf, "url", text);
		postern__config_schema_name(known, text, sizeof text);
		if (*text) {
			postern__json_pair_text(buf, "schema", text);
		}
	}
}

static void write_stores(struct postern__call *call,
		const struct counts *counts) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, "stores");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < counts->count; i++) {
		/* A kind that keeps markers only; its box, if any, keeps nothing. */
		const struct postern_guard *guard = call->stores[i]->guard;
		const struct postern_marker_kind *kind = guard ? guard->kind : NULL;
		postern__json_open(buf, '{');
		postern__json_pair_text(buf, "name", call->stores[i]->name);
		postern__json_pair_text(buf, "kind",
				kind ? kind->name : stats_of(counts, i)->store);
		write_place(call, call->stores[i]);
		if (kind) {
			postern__json_pair_bool(buf, "markers_only", true);
		}
		postern__json_close(buf, '}');
	}
	postern__json_close(buf, ']');
}

void postern__stranded_text(const struct postern_channel_stats *channel,
		char out[POSTERN__STRANDED_TEXT_MAX]) {
	(void)snprintf(out, POSTERN__STRANDED_TEXT_MAX,
			"%" PRIu64 " staged message%s wait%s in channel '%s', which no "
			"running node has; add the channel to the configuration of a node",
			channel->staged, channel->staged == 1 ? "" : "s",
			channel->staged == 1 ? "s" : "", channel->name);
}

/* Write how a store can lose markers. */
static void write_unsafe(struct postern__buf *buf,
		const struct postern__open_store *store) {
	char text[POSTERN__MARKER_WARNING_MAX] = "";
	if (store->watch) {
		postern__marker_watch_warning(store->watch, text);
	}
	if (*text) {
		postern__json_open(buf, '{');
		postern__json_pair_text(buf, "store", store->name);
		postern__json_pair_text(buf, "text", text);
		postern__json_close(buf, '}');
	}
}

/* Write the warnings: staged messages that no node accepts, markers that may be
   lost. */
static void write_warnings(struct postern__call *call,
		const struct counts *counts) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, "warnings");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < counts->count; i++) {
		const struct postern_stats *stats = stats_of(counts, i);
		write_unsafe(buf, call->stores[i]);
		for (size_t n = 0; n < stats->channel_count; n++) {
			const struct postern_channel_stats *channel = &stats->channels[n];
			char text[POSTERN__STRANDED_TEXT_MAX];
			if (!can_stage(stats) || channel->staged == 0 ||
					channel->nodes > 0) {
				continue;
			}
			postern__stranded_text(channel, text);
			postern__json_open(buf, '{');
			postern__json_pair_text(buf, "store", call->stores[i]->name);
			postern__json_pair_text(buf, "channel", channel->name);
			postern__json_pair_uint(buf, "staged", channel->staged);
			postern__json_pair_text(buf, "text", text);
			postern__json_close(buf, '}');
		}
	}
	postern__json_close(buf, ']');
}

static void open_left(struct postern__buf *buf, const char *store,
		const char *noun, const char *name) {
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "store", store);
	postern__json_pair_text(buf, noun, name);
}

/* Write what left the configuration in one store. */
static void write_left_in(const struct postern__call *call,
		const struct postern_stats *stats, const char *name) {
	struct postern__buf *buf = &call->response->body;
	const struct postern__config *config = call->api->config;
	const struct postern__config_store *store =
			config ? postern__config_store_named(config, name, NULL) : NULL;
	char text[POSTERN__LEFT_TEXT_MAX];
	for (size_t i = 0; store && i < stats->channel_count; i++) {
		const struct postern_channel_stats *channel = &stats->channels[i];
		if (postern__left_channel(config, store, stats, channel)) {
			open_left(buf, name, "channel", channel->name);
			postern__json_pair_uint(buf, "parked", channel->parked);
			postern__left_channel_text(channel, text);
			postern__json_pair_text(buf, "text", text);
			postern__json_close(buf, '}');
		}
	}
	for (size_t i = 0; store && i < stats->handler_count; i++) {
		const struct postern_handler_stats *handler = &stats->handlers[i];
		if (postern__left_handler(config, store, stats, handler)) {
			open_left(buf, name, "handler", handler->key);
			postern__json_pair_uint(buf, "open",
					handler->pending + handler->leased);
			postern__json_pair_uint(buf, "poisoned", handler->poisoned);
			postern__left_handler_text(handler, text);
			postern__json_pair_text(buf, "text", text);
			postern__json_close(buf, '}');
		}
	}
}

/* Write the channels and handlers that left the configuration. */
static void write_left(const struct postern__call *call,
		const struct counts *counts) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, "left");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < counts->count; i++) {
		write_left_in(call, stats_of(counts, i), call->stores[i]->name);
	}
	postern__json_close(buf, ']');
}

static void write_one_fixed(void *context, const char *name, uint32_t digest) {
	char text[9];
	(void)snprintf(text, sizeof text, "%08" PRIx32, digest);
	postern__json_pair_text(context, name, text);
}

/* Write digests of what a reload cannot change. */
static void write_fixed(const struct postern__call *call) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, "fixed");
	postern__json_open(buf, '{');
	if (call->api->config) {
		postern__config_fixed(call->api->config, write_one_fixed, buf);
	}
	postern__json_close(buf, '}');
}

/* An object with one list; NULL: with every list, and the stores. */
static void answer_counts(struct postern__call *call, const struct kind *kind) {
	struct counts counts;
	if (!get_counts(call, &counts)) {
		return;
	}
	postern__json_open(&call->response->body, '{');
	if (kind) {
		write_list(call, "items", &counts, kind);
	} else {
		write_stores(call, &counts);
		write_list(call, "channels", &counts, &channels);
		write_list(call, "handlers", &counts, &handlers);
		write_list(call, "nodes", &counts, &nodes);
		postern__write_sources(call, "sources");
		write_left(call, &counts);
		write_fixed(call);
		write_warnings(call, &counts);
	}
	postern__json_close(&call->response->body, '}');
	finish_counts(&counts);
	stats_response(call);
}

void postern__route_stats(struct postern__call *call) {
	answer_counts(call, NULL);
}

void postern__route_channels(struct postern__call *call) {
	answer_counts(call, &channels);
}

void postern__route_handlers(struct postern__call *call) {
	answer_counts(call, &handlers);
}

void postern__route_nodes(struct postern__call *call) {
	answer_counts(call, &nodes);
}

void postern__route_sources(struct postern__call *call) {
	if (!postern__call_store_query(call)) {
		return;
	}
	postern__json_open(&call->response->body, '{');
	postern__write_sources(call, "items");
	postern__json_close(&call->response->body, '}');
	stats_response(call);
}
