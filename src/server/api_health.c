/* SPDX-License-Identifier: MIT */

/*
 * What monitoring reads: the health routes, and the metrics.
 */

#include <inttypes.h>
#include <postern/error.h>
#include <postern/health.h>
#include <postern/metrics.h>
#include <postern/runner.h>
#include <postern/source.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/json_text.h"
#include "base/text.h"
#include "core/metrics.h"
#include "server/api.h"
#include "server/config.h"
#include "server/marker_watch.h"
#include "server/route.h"

/* The key of a handler or the name of a source, a reason, and words around
   them. */
#define NOTE_LEN_MAX 640

/* Whether the store can be written; false: `error` says why not. */
static bool is_writable(const struct postern__open_store *store,
		struct postern_error *error) {
	if (store->watch) {
		return postern__marker_watch_check(store->watch, error) == POSTERN_OK;
	}
	return store->runner
				   ? postern_runner_ready(store->runner, error) == POSTERN_OK
				   : postern__fail(error, POSTERN_E_UNAVAILABLE,
							 "no runner is running") == POSTERN_OK;
}

static bool is_draining(const struct postern__api *api) {
	return api->is_draining && api->is_draining(api->is_draining_context);
}

void postern__route_ready(struct postern__call *call) {
	struct postern_error error;
	if (is_draining(call->api)) {
		(void)postern__fail(&error, POSTERN_E_UNAVAILABLE,
				"the server is stopping");
		postern__call_fail(call, &error);
		return;
	}
	for (size_t i = 0; i < call->store_count; i++) {
		if (!is_writable(call->stores[i], &error)) {
			postern__call_fail_in(call, call->stores[i], &error);
			return;
		}
	}
	postern__buf_append_text(&call->response->body, "{\"status\":\"ready\"}");
	call->response->status = 200;
}

/* The health of all stores, while its parts are written. */
struct health {
	struct postern__call *call;
	struct postern_health_options options;
	/* NULL: the store keeps markers only. */
	struct postern_health *stores[POSTERN__STORE_COUNT_MAX];
	bool writable[POSTERN__STORE_COUNT_MAX];
	struct postern_source_state *sources[POSTERN__STORE_COUNT_MAX];
	size_t source_counts[POSTERN__STORE_COUNT_MAX];
	int64_t now_ms;
	struct postern_error errors[POSTERN__STORE_COUNT_MAX];
	size_t count;
	enum postern_health_status status;
};

static void finish_health(struct health *health) {
	for (size_t i = 0; i < health->count; i++) {
		postern_health_destroy(health->stores[i]);
		free(health->sources[i]);
	}
}

/* 0 in the configuration is none, and -1 in the library. */
static void fill_options(const struct postern__api *api,
		struct postern_health_options *out) {
	*out = (struct postern_health_options){ .size = sizeof *out };
	if (api->config) {
		const struct postern__config_values *values =
				postern__config_global(api->config);
		out->degraded_after_ms =
				values->health_degraded_ms ? values->health_degraded_ms : -1;
		out->unhealthy_after_ms =
				values->health_unhealthy_ms ? values->health_unhealthy_ms : -1;
	}
}

/* For how long a source has had no connection, because of an error; -1: it has
   one, or needs none. */
static int64_t disconnected_ms(const struct health *health,
		const struct postern_source_state *source) {
	if (!source->running || source->connected || source->since_ms == 0 ||
			source->error_at_ms < source->since_ms) {
		return -1;
	}
	int64_t ms = health->now_ms - source->since_ms;
	return ms > 0 ? ms : 0;
}

/* A source without a connection degrades, but the handlers have what to do. */
static void add_sources(struct health *health, size_t index) {
	int64_t after_ms = health->options.degraded_after_ms
							   ? health->options.degraded_after_ms
							   : POSTERN_HEALTH_DEGRADED_MS;
	health->sources[index] =
			postern__copy_source_states(health->call->stores[index],
					&health->source_counts[index]);
	for (size_t i = 0; i < health->source_counts[index]; i++) {
		int64_t ms = disconnected_ms(health, &health->sources[index][i]);
		if (ms >= 0 && after_ms >= 0 && ms >= after_ms &&
				health->status < POSTERN_HEALTH_DEGRADED) {
			health->status = POSTERN_HEALTH_DEGRADED;
		}
	}
}

/* False: refused, and nothing is left to finish. */
static bool read_health(struct postern__call *call, struct health *health) {
	const struct postern_clock *clock = postern_clock_system();
	*health = (struct health){ .call = call };
	health->now_ms = clock->wall_ms(clock->context);
	fill_options(call->api, &health->options);
	for (size_t i = 0; i < call->store_count; i++) {
		const struct postern__open_store *store = call->stores[i];
		struct postern_error error;
		if (store->box && postern_box_health(store->box, &health->options,
								  &health->stores[i], &error) != POSTERN_OK) {
			finish_health(health);
			postern__call_fail_in(call, store, &error);
			return false;
		}
		health->count++;
		health->writable[i] = is_writable(store, &health->errors[i]);
		enum postern_health_status status =
				!health->writable[i] ? POSTERN_HEALTH_UNHEALTHY
				: health->stores[i]  ? health->stores[i]->status
									 : POSTERN_HEALTH_OK;
		if (status > health->status) {
			health->status = status;
		}
		add_sources(health, i);
	}
	return true;
}

static void write_stores(const struct health *health) {
	struct postern__buf *buf = &health->call->response->body;
	postern__json_key(buf, "stores");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < health->count; i++) {
		postern__json_open(buf, '{');
		postern__json_pair_text(buf, "name", health->call->stores[i]->name);
		postern__json_pair_bool(buf, "writable", health->writable[i]);
		postern__json_pair_text(buf, "error",
				health->writable[i] ? NULL : health->errors[i].text);
		postern__json_close(buf, '}');
	}
	postern__json_close(buf, ']');
}

static void write_handler(struct postern__buf *buf, const char *store,
		const struct postern_handler_health *handler) {
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "store", store);
	postern__json_pair_text(buf, "key", handler->key);
	postern__json_pair_text(buf, "channel", handler->channel);
	postern__json_pair_text(buf, "status",
			postern_health_name(handler->status));
	postern__json_pair_bool(buf, "due", handler->due);
	postern__json_pair_int(buf, "inactive_ms", handler->inactive_ms);
	postern__json_pair_uint(buf, "running", handler->running);
	postern__json_pair_uint(buf, "stuck", handler->stuck);
	postern__json_pair_text(buf, "held", handler->held);
	postern__json_pair_text(buf, "reason", handler->reason);
	postern__write_time(buf, "since", handler->since_ms);
	postern__json_close(buf, '}');
}

static size_t count_handlers(const struct health *health, size_t index) {
	return health->stores[index] ? health->stores[index]->handler_count : 0;
}

static void write_handlers(const struct health *health) {
	struct postern__buf *buf = &health->call->response->body;
	postern__json_key(buf, "handlers");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < health->count; i++) {
		for (size_t n = 0; n < count_handlers(health, i); n++) {
			write_handler(buf, health->call->stores[i]->name,
					&health->stores[i]->handlers[n]);
		}
	}
	postern__json_close(buf, ']');
}

/* A sentence about a handler, for people; "" if there is nothing to report. */
static void describe(const struct postern_handler_health *handler, char *out,
		size_t size) {
	char text[POSTERN__DURATION_TEXT_MAX];
	/* Whole seconds: the text has one unit. */
	postern__duration_format(handler->inactive_ms / 1000 * 1000, text);
	*out = '\0';
	if (handler->status != POSTERN_HEALTH_OK && handler->pulled) {
		(void)snprintf(out, size,
				"handler '%s' has work due, and no worker has claimed for %s",
				handler->key, text);
	} else if (handler->status != POSTERN_HEALTH_OK) {
		(void)snprintf(out, size,
				"handler '%s' has work due, and no run has ended for %s%s",
				handler->key, text,
				handler->stuck > 0 ? "; runs are past their lease" : "");
	} else if (handler->stuck > 0) {
		(void)snprintf(out, size,
				"handler '%s': %" PRIu64 " run%s past the lease", handler->key,
				handler->stuck, handler->stuck == 1 ? " is" : "s are");
	} else if (handler->held && strcmp(handler->held, "broken") == 0) {
		(void)snprintf(out, size, "handler '%s' is held: %s", handler->key,
				handler->reason ? handler->reason : handler->held);
	} else if (handler->held) {
		(void)snprintf(out, size, "handler '%s' starts no runs: %s%s%s",
				handler->key, handler->held, handler->reason ? ": " : "",
				handler->reason ? handler->reason : "");
	}
}

static void note_sources(const struct health *health, size_t index) {
	struct postern__buf *buf = &health->call->response->body;
	for (size_t i = 0; i < health->source_counts[index]; i++) {
		const struct postern_source_state *source = &health->sources[index][i];
		char ago[POSTERN__DURATION_TEXT_MAX];
		char text[NOTE_LEN_MAX];
		int64_t ms = disconnected_ms(health, source);
		if (ms < 0) {
			continue;
		}
		postern__duration_format(ms / 1000 * 1000, ago);
		(void)snprintf(text, sizeof text,
				"source '%s' has had no connection for %s: %s", source->name,
				ago, source->error);
		postern__json_text(buf, text);
	}
}

/* Sentences about everything that is not as it should be. */
static void write_notes(const struct health *health) {
	struct postern__buf *buf = &health->call->response->body;
	postern__json_key(buf, "notes");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < health->count; i++) {
		if (!health->writable[i]) {
			postern__json_text(buf, health->errors[i].text);
		}
		for (size_t n = 0; n < count_handlers(health, i); n++) {
			char text[NOTE_LEN_MAX];
			describe(&health->stores[i]->handlers[n], text, sizeof text);
			if (*text) {
				postern__json_text(buf, text);
			}
		}
		note_sources(health, i);
	}
	postern__json_close(buf, ']');
}

/* The status is 200 whatever the health is: the process is alive, and a
   restart, which many do after a 503, makes nothing better. */
static void answer_verbose(struct postern__call *call) {
	static const char *const names[] = { "verbose", "store", NULL };
	struct postern__parameter parameters[POSTERN__PARAMETER_COUNT_MAX];
	struct postern__buf *buf = &call->response->body;
	struct health health;
	size_t count;
	if (!postern__call_query(call, names, parameters, &count)) {
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (strcmp(parameters[i].name, "store") == 0 &&
				!postern__call_choose(call, parameters[i].value)) {
			return;
		}
	}
	if (!read_health(call, &health)) {
		return;
	}
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "status", postern_health_name(health.status));
	postern__json_pair_bool(buf, "stopping", is_draining(call->api));
	write_stores(&health);
	write_handlers(&health);
	postern__write_sources(call, "sources");
	write_notes(&health);
	postern__json_close(buf, '}');
	finish_health(&health);
	call->response->status = 200;
}

/* Whether the query has this parameter; others are ignored. */
static bool is_verbose(const char *query) {
	static const char name[] = "verbose";
	size_t len = sizeof name - 1;
	for (; query; query = strchr(query, '&')) {
		query += *query == '&';
		if (strncmp(query, name, len) == 0 &&
				(query[len] == '\0' || query[len] == '=' ||
						query[len] == '&')) {
			return true;
		}
	}
	return false;
}

void postern__route_health(struct postern__call *call) {
	if (is_verbose(call->request->query)) {
		answer_verbose(call);
		return;
	}
	postern__buf_append_text(&call->response->body, "{\"status\":\"ok\"}");
	call->response->status = 200;
}

/* Read the figures of every store that keeps messages; *count_out: how many
   were read. False: refused. */
static bool read_figures(struct postern__call *call,
		struct postern__figures *figures, size_t *count_out) {
	struct postern_error error;
	*count_out = 0;
	for (size_t i = 0; i < call->store_count; i++) {
		const struct postern__open_store *store = call->stores[i];
		if (!store->box) {
			continue;
		}
		if (postern__figures_read(store->box, store->name, &figures[*count_out],
					&error) != POSTERN_OK) {
			postern__call_fail_in(call, store, &error);
			return false;
		}
		++*count_out;
	}
	return true;
}

static bool has_metrics(const struct postern__api *api) {
	return !api->config || postern__config_global(api->config)->metrics;
}

void postern__route_metrics(struct postern__call *call) {
	struct postern__figures figures[POSTERN__STORE_COUNT_MAX];
	if (!has_metrics(call->api)) {
		postern__call_refuse(call, 404,
				"metrics are off; set 'metrics: on' in the configuration");
		return;
	}
	if (!postern__call_store_query(call)) {
		return;
	}
	size_t count;
	if (read_figures(call, figures, &count)) {
		postern__metrics_write(&call->response->body, figures, count);
		call->response->content_type = POSTERN_METRICS_MEDIA_TYPE;
		call->response->status = 200;
	}
	for (size_t i = 0; i < count; i++) {
		postern__figures_finish(&figures[i]);
	}
}
