/* SPDX-License-Identifier: MIT */

/*
 * The routes that count, and those that say how the server is.
 */

#include <inttypes.h>
#include <postern/error.h>
#include <postern/inspect.h>
#include <postern/runner.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json_text.h"
#include "server/api.h"
#include "server/route.h"

static void answer(struct postern__call *call) {
	call->response->status = 200;
}

/* Whether the store's channel is one that this process takes messages for; a
   store remembers all that it ever had. */
static bool is_configured(const struct postern__call *call, const char *store,
		const char *name) {
	const struct postern__config_channel *channel =
			call->api->config
					? postern__config_channel_named(call->api->config, name)
					: NULL;
	return channel && strcmp(channel->store->name, store) == 0;
}

/* Whether messages can be staged there. */
static bool can_stage(const struct postern_stats *stats) {
	return strcmp(stats->store, "postgres") == 0;
}

static void write_channel(const struct postern__call *call, const char *store,
		const struct postern_stats *stats, size_t index) {
	const struct postern_channel_stats *channel = &stats->channels[index];
	struct postern__buf *buf = &call->response->body;
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "store", store);
	postern__json_pair_text(buf, "name", channel->name);
	postern__json_pair_bool(buf, "configured",
			is_configured(call, store, channel->name));
	postern__json_pair_uint(buf, "accepted", channel->accepted);
	postern__json_pair_uint(buf, "duplicates", channel->duplicates);
	postern__json_pair_uint(buf, "conflicts", channel->conflicts);
	postern__json_pair_uint(buf, "dropped", channel->dropped);
	postern__json_pair_uint(buf, "parked", channel->parked);
	if (can_stage(stats)) {
		postern__json_pair_uint(buf, "staged", channel->staged);
		postern__json_pair_uint(buf, "refused", channel->refused);
	}
	postern__json_close(buf, '}');
}

static void write_handler(const struct postern__call *call, const char *store,
		const struct postern_stats *stats, size_t index) {
	const struct postern_handler_stats *handler = &stats->handlers[index];
	struct postern__buf *buf = &call->response->body;
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "store", store);
	postern__json_pair_text(buf, "key", handler->key);
	postern__json_pair_text(buf, "channel", handler->channel);
	postern__json_pair_bool(buf, "registered", handler->registered);
	postern__json_pair_bool(buf, "paused", handler->paused);
	postern__json_pair_uint(buf, "pending", handler->pending);
	postern__json_pair_uint(buf, "retrying", handler->retrying);
	postern__json_pair_uint(buf, "leased", handler->leased);
	postern__json_pair_uint(buf, "poisoned", handler->poisoned);
	postern__write_time(buf, "oldest_pending_at",
			handler->oldest_pending_at_ms);
	postern__json_pair_uint(buf, "done", handler->done);
	postern__json_pair_uint(buf, "discarded", handler->discarded);
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
	char id[17]; /* more digits than a number of JSON is good for */
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

/* What each of the stores counts. */
struct counts {
	struct postern_stats *stats[POSTERN__STORE_COUNT_MAX];
	size_t count;
};

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
		if (postern_box_stats(call->stores[i]->box, &counts->stats[i],
					&error) != POSTERN_OK) {
			finish_counts(counts);
			postern__call_fail_in(call, call->stores[i], &error);
			return false;
		}
		counts->count++;
	}
	return true;
}

/* One of the things that a store counts: how many it has, and writing one. */
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

/* All of a kind, of all stores, as a list of this name. */
static void write_list(const struct postern__call *call, const char *name,
		const struct counts *counts, const struct kind *kind) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, name);
	postern__json_open(buf, '[');
	for (size_t i = 0; i < counts->count; i++) {
		const struct postern_stats *stats = counts->stats[i];
		for (size_t n = 0; n < kind->count(stats); n++) {
			kind->write(call, call->stores[i]->name, stats, n);
		}
	}
	postern__json_close(buf, ']');
}

static void write_stores(struct postern__call *call,
		const struct counts *counts) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, "stores");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < counts->count; i++) {
		postern__json_open(buf, '{');
		postern__json_pair_text(buf, "name", call->stores[i]->name);
		postern__json_pair_text(buf, "kind", counts->stats[i]->store);
		postern__json_close(buf, '}');
	}
	postern__json_close(buf, ']');
}

/* An object with the lists of a kind; NULL: of every kind, and the stores. */
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
	}
	postern__json_close(&call->response->body, '}');
	finish_counts(&counts);
	answer(call);
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

void postern__route_health(struct postern__call *call) {
	postern__buf_append_text(&call->response->body, "{\"status\":\"ok\"}");
	answer(call);
}

void postern__route_ready(struct postern__call *call) {
	const struct postern__api *api = call->api;
	struct postern_error error;

	if (api->is_draining && api->is_draining(api->is_draining_context)) {
		(void)postern__fail(&error, POSTERN_E_UNAVAILABLE,
				"the server is stopping");
		postern__call_fail(call, &error);
		return;
	}
	for (size_t i = 0; i < call->store_count; i++) {
		const struct postern__open_store *store = call->stores[i];
		int r = store->runner ? postern_runner_health(store->runner, &error)
							  : postern__fail(&error, POSTERN_E_UNAVAILABLE,
										"nothing is run");
		if (r != POSTERN_OK) {
			postern__call_fail_in(call, store, &error);
			return;
		}
	}
	postern__buf_append_text(&call->response->body, "{\"status\":\"ready\"}");
	answer(call);
}
