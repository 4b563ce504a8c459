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

static void write_channel(const struct postern__call *call, const char *store,
		const struct postern_channel_stats *channel) {
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
	postern__json_close(buf, '}');
}

static void write_handler(struct postern__buf *buf, const char *store,
		const struct postern_handler_stats *handler) {
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

static void write_node(struct postern__buf *buf, const char *store,
		const struct postern_stats *stats,
		const struct postern_node_stats *node) {
	char id[17]; /* more digits than a number of JSON is good for */
	(void)snprintf(id, sizeof id, "%016" PRIx64, node->node);
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "store", store);
	postern__json_pair_text(buf, "node", id);
	postern__json_pair_bool(buf, "own", node->own);
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

static void write_channels(struct postern__call *call, const char *name,
		const struct counts *counts) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, name);
	postern__json_open(buf, '[');
	for (size_t i = 0; i < counts->count; i++) {
		const struct postern_stats *stats = counts->stats[i];
		for (size_t n = 0; n < stats->channel_count; n++) {
			write_channel(call, call->stores[i]->name, &stats->channels[n]);
		}
	}
	postern__json_close(buf, ']');
}

static void write_handlers(struct postern__call *call, const char *name,
		const struct counts *counts) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, name);
	postern__json_open(buf, '[');
	for (size_t i = 0; i < counts->count; i++) {
		const struct postern_stats *stats = counts->stats[i];
		for (size_t n = 0; n < stats->handler_count; n++) {
			write_handler(buf, call->stores[i]->name, &stats->handlers[n]);
		}
	}
	postern__json_close(buf, ']');
}

static void write_nodes(struct postern__call *call, const char *name,
		const struct counts *counts) {
	struct postern__buf *buf = &call->response->body;
	postern__json_key(buf, name);
	postern__json_open(buf, '[');
	for (size_t i = 0; i < counts->count; i++) {
		const struct postern_stats *stats = counts->stats[i];
		for (size_t n = 0; n < stats->node_count; n++) {
			write_node(buf, call->stores[i]->name, stats, &stats->nodes[n]);
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

/* An object with what `write` writes into it. */
static void answer_counts(struct postern__call *call,
		void (*write)(struct postern__call *call,
				const struct counts *counts)) {
	struct counts counts;
	if (!get_counts(call, &counts)) {
		return;
	}
	postern__json_open(&call->response->body, '{');
	write(call, &counts);
	postern__json_close(&call->response->body, '}');
	finish_counts(&counts);
	answer(call);
}

static void write_all(struct postern__call *call, const struct counts *counts) {
	write_stores(call, counts);
	write_channels(call, "channels", counts);
	write_handlers(call, "handlers", counts);
	write_nodes(call, "nodes", counts);
}

static void write_channel_items(struct postern__call *call,
		const struct counts *counts) {
	write_channels(call, "items", counts);
}

static void write_handler_items(struct postern__call *call,
		const struct counts *counts) {
	write_handlers(call, "items", counts);
}

static void write_node_items(struct postern__call *call,
		const struct counts *counts) {
	write_nodes(call, "items", counts);
}

void postern__route_stats(struct postern__call *call) {
	answer_counts(call, write_all);
}

void postern__route_channels(struct postern__call *call) {
	answer_counts(call, write_channel_items);
}

void postern__route_handlers(struct postern__call *call) {
	answer_counts(call, write_handler_items);
}

void postern__route_nodes(struct postern__call *call) {
	answer_counts(call, write_node_items);
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
