/* SPDX-License-Identifier: MIT */
/*
 * `postern check`: reports problems before they happen.
 *
 * The configuration is read as every command reads it. Then the store is
 * checked, read-only, even while another process owns it, for what this
 * configuration would do to it; and a running server is asked for its health.
 * Every finding is a line; the worst of them is the exit status.
 */

#include <inttypes.h>
#include <jansson.h>
#include <libgen.h>
#include <postern/event.h>
#include <postern/guard.h>
#include <postern/health.h>
#include <postern/inspect.h>
#include <postern/sys/source.h>
#include <postern/sys/store.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/text.h"
#include "cli/check_limits.h"
#include "cli/check_names.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/own_store.h"
#include "cli/remote.h"
#include "cli/reply.h"
#include "cli/server_config.h"
#include "core/kept_rules.h"
#include "handler/kinds.h"
#include "server/api.h"
#include "server/config.h"
#include "server/config_section.h"
#include "server/left.h"
#include "server/marker_watch.h"
#include "server/server_check.h"
#include "server/socket.h"
#include "server/store_open.h"
#include "store/common.h"
#include "store/store.h"

#define TEXT_MAX 512
/* 8 MiB are enough for any configuration. */
#define PRINTED_LEN_MAX ((size_t)8 * 1024 * 1024)

struct check {
	struct postern__cli *cli;
	json_t *findings;
	const char *store; /* the store that is being checked; NULL: none, or the
						  only one */
	struct postern__limits limits;
	int status;         /* the exit status so far */
	bool hindered;      /* the store cannot be created or used */
	bool rules_changed; /* serve refuses a key rule */
};

/* status POSTERN__EXIT_OK: a note, no problem. */
static void report(struct check *check, int status, const char *format, ...)
		__attribute__((format(printf, 3, 4)));

static void report(struct check *check, int status, const char *format, ...) {
	char text[TEXT_MAX];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof text, format, args);
	va_end(args);
	(void)json_array_append_new(check->findings,
			json_pack("{s:s, s:s?, s:s}", "level", status ? "error" : "note",
					"store", check->store, "text", text));
	if (status > check->status) {
		check->status = status;
	}
}

static void on_event(void *context, const struct postern_event *event) {
	report(context, POSTERN__EXIT_OK, "%s", postern_event_text(event));
}

/* Report a warning that serve would log. */
static void on_warning(void *context, const char *text) {
	report(context, POSTERN__EXIT_FAILED, "%s", text);
}

/* Report a limit of --max-poisoned or --max-age that is exceeded. */
static void on_limit(void *context, const char *text) {
	report(context, POSTERN__EXIT_UNHEALTHY, "%s", text);
}

static void on_note(void *context, const char *text) {
	report(context, POSTERN__EXIT_OK, "%s", text);
}

static void on_mistake(void *context, const char *text) {
	report(context, POSTERN__EXIT_USAGE, "%s", text);
}

/* Report what the kind of a handler finds. */
static void check_kind(struct check *check,
		const struct postern__config_handler *handler) {
	struct postern_handler_setup setup;
	struct postern_error error;
	char file[POSTERN__STORE_FILE_MAX];
	postern__config_handler_setup(handler, &setup);
	if (postern__store_file(handler->values.store, file)) {
		setup.store_file = file;
	}
	int r = postern__kind_check(&setup, &error);
	if (r != POSTERN_OK) {
		report(check,
				r == POSTERN_E_NOTFOUND  ? POSTERN__EXIT_OK
				: r == POSTERN_E_INVALID ? POSTERN__EXIT_FAILED
										 : postern__exit_of(r),
				"%s:%u:%u: handler '%s': %s",
				postern__config_name(check->cli->config), handler->line,
				handler->column, handler->key, error.text);
	}
}

/* A handler that hangs keeps its delivery until the server is restarted, unless
   a timeout is set, or `none` was chosen. */
static void check_timeout(struct check *check,
		const struct postern__config_handler *handler) {
	if (!handler->kind->pull && handler->values.timeout_ms <= 0 &&
			postern__config_origin_of(&handler->values, "timeout")->source ==
					POSTERN__CONFIG_DEFAULT) {
		report(check, POSTERN__EXIT_OK,
				"%s:%u:%u: handler '%s' (%s) has no timeout: a run that hangs "
				"stays until it is cancelled; set timeout, or 'timeout: none'",
				postern__config_name(check->cli->config), handler->line,
				handler->column, handler->key, handler->kind->name);
	}
}

/* A transaction on a file keeps everything else from being written. */
static void check_writer(struct check *check,
		const struct postern__config_store *store,
		const struct postern__config_handler *handler) {
	const struct postern_store_kind *kind =
			postern__store_kind_of(store->values.store, NULL);
	char timeout[POSTERN__DURATION_TEXT_MAX] = "none";
	if (!kind || !kind->is_file) {
		return;
	}
	if (handler->values.timeout_ms > 0) {
		postern__duration_format(handler->values.timeout_ms, timeout);
	}
	report(check, POSTERN__EXIT_OK,
			"%s:%u:%u: handler '%s' (%s) has the only writer of the file while "
			"it runs (timeout: %s): nothing else is accepted or settled "
			"meanwhile, so it must be fast",
			postern__config_name(check->cli->config), handler->line,
			handler->column, handler->key, handler->kind->name, timeout);
}

static void check_handler(struct check *check,
		const struct postern__config_store *store,
		const struct postern__config_handler *handler) {
	check_kind(check, handler);
	check_timeout(check, handler);
	if (store) {
		check_writer(check, store, handler);
	}
}

/* Check the handlers that work in a store; NULL: those that do not. */
static void check_kinds(struct check *check,
		const struct postern__config_store *store) {
	const struct postern__config *config = check->cli->config;
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		for (size_t j = 0; j < channel->handler_count; j++) {
			const struct postern__config_handler *handler =
					&channel->handlers[j];
			if (handler->kind->transactional ? channel->store == store
											 : !store) {
				check_handler(check, store, handler);
			}
		}
	}
}

/* require_inbox: warn; `fail` is an error of the configuration. */
static void check_inboxes(struct check *check) {
	const struct postern__config *config = check->cli->config;
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		if (channel->values.require_inbox == POSTERN_REQUIRE_INBOX_WARN &&
				postern__config_lacks_inbox(channel)) {
			report(check, POSTERN__EXIT_OK,
					"%s:%u:%u: channel '%s' has no inbox, but require_inbox is "
					"set; set allow_without_inbox if that is intended",
					postern__config_name(config), channel->line,
					channel->column, channel->name);
		}
	}
}

/* Report what serve would refuse, and handlers that cannot work now. */
static void check_handlers(struct check *check) {
	(void)postern__config_check(check->cli->config, on_mistake, check, NULL);
	check_inboxes(check);
	check_kinds(check, NULL);
}

/* Whether any source or handler of the configuration uses RabbitMQ. */
static bool uses_rabbitmq(const struct postern__config *config) {
	bool uses = false;
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		for (size_t j = 0; j < channel->source_count; j++) {
			uses |= strstr(channel->sources[j].kind->name, "rabbitmq") != NULL;
		}
		for (size_t j = 0; j < channel->handler_count; j++) {
			uses |= strstr(channel->handlers[j].kind->name, "rabbitmq") != NULL;
		}
	}
	return uses;
}

static void check_orphans(struct check *check,
		const struct postern__config_store *store,
		const struct postern_stats *stats) {
	int orphans = store->values.orphans;
	for (size_t i = 0; i < stats->handler_count; i++) {
		const struct postern_handler_stats *handler = &stats->handlers[i];
		uint64_t open = handler->pending + handler->leased;
		if (!postern__config_lacks_handler(check->cli->config, store, stats,
					handler)) {
			continue;
		}
		if (handler->nodes > 0) {
			report(check, POSTERN__EXIT_OK,
					"handler '%s' is not in this configuration, and %" PRIu64
					" running node%s it: %" PRIu64 " deliver%s open",
					handler->key, handler->nodes,
					handler->nodes == 1 ? " has" : "s have", open,
					open == 1 ? "y is" : "ies are");
			continue;
		}
		if (open == 0 && handler->poisoned == 0) {
			continue;
		}
		if (open == 0) {
			char text[POSTERN__LEFT_TEXT_MAX];
			postern__left_handler_text(handler, text);
			report(check, POSTERN__EXIT_OK, "%s", text);
			continue;
		}
		report(check,
				orphans == POSTERN_ORPHANS_HOLD ? POSTERN__EXIT_OK
												: POSTERN__EXIT_FAILED,
				"no handler is configured for '%s': its %" PRIu64
				" open deliver%s would %s; configure it, or name it in "
				"legacy_keys",
				handler->key, open, open == 1 ? "y" : "ies",
				orphans == POSTERN_ORPHANS_HOLD ? "wait"
				: orphans == POSTERN_ORPHANS_FAIL
						? "keep the server from starting"
						: "be poisoned");
	}
}

/* Channels that left the configuration keep what they have. */
static void check_left_channels(struct check *check,
		const struct postern__config_store *store,
		const struct postern_stats *stats) {
	for (size_t i = 0; i < stats->channel_count; i++) {
		char text[POSTERN__LEFT_TEXT_MAX];
		if (postern__left_channel(check->cli->config, store, stats,
					&stats->channels[i])) {
			postern__left_channel_text(&stats->channels[i], text);
			report(check, POSTERN__EXIT_OK, "%s", text);
		}
	}
}

/* Staged messages of a channel that no node has are never accepted. The node
   that will have the channel may use this configuration. */
static void check_staged(struct check *check,
		const struct postern__config_store *store,
		const struct postern_stats *stats) {
	for (size_t i = 0; i < stats->channel_count; i++) {
		const struct postern_channel_stats *channel = &stats->channels[i];
		const struct postern__config_channel *known =
				postern__config_channel_named(check->cli->config,
						channel->name);
		char text[POSTERN__STRANDED_TEXT_MAX];
		if (channel->staged > 0 && channel->nodes == 0 &&
				!(known && known->store == store)) {
			postern__stranded_text(channel, text);
			report(check, POSTERN__EXIT_FAILED, "%s", text);
		}
	}
}

static void on_name(void *context, int code, const char *text) {
	report(context, postern__exit_of(code), "%s", text);
}

static void on_finding(void *context, int code, const char *text) {
	struct check *check = context;
	check->hindered = check->hindered || code == POSTERN_E_UNSUPPORTED;
	/* Only the SQL of one handler is invalid, not the configuration. */
	report(context,
			code == POSTERN_E_INVALID ? POSTERN__EXIT_FAILED
									  : postern__exit_of(code),
			"%s", text);
}

/* Check the database server of a store, which reading the store does not cover,
   and the SQL of the handlers. */
static void check_server_settings(struct check *check,
		const struct postern__config_store *store,
		const struct postern_box_options *box) {
	struct postern_error error;
	int r = postern__server_check_run(check->cli->config, store, box,
			on_finding, check, &error);
	if (r) {
		check->hindered = true;
		report(check, postern__exit_of(r), "%s", error.text);
	}
}

static size_t count_handlers(const struct postern__config *config) {
	size_t count = 0;
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		count += postern__config_channel(config, i)->handler_count;
	}
	return count;
}

/* The root of a set in a forest of parents. */
static size_t find_root(const size_t *parents, size_t node) {
	while (parents[node] != node) {
		node = parents[node];
	}
	return node;
}

/* Join a configured handler with the stored handler of a key; the stored
   handler is represented by the first of its keys. */
static void join_key(const struct postern_stats *stats, size_t *parents,
		size_t first, size_t handler, const char *key) {
	const struct postern_key_stats *known = NULL;
	for (size_t i = 0; !known && i < stats->key_count; i++) {
		if (strcmp(stats->keys[i].key, key) == 0) {
			known = &stats->keys[i];
		}
	}
	for (size_t i = 0; known && i < stats->key_count; i++) {
		if (strcmp(stats->keys[i].handler, known->handler) == 0) {
			parents[find_root(parents, first + i)] =
					find_root(parents, handler);
			return;
		}
	}
}

/*
 * A server that starts joins each handler's key with its legacy keys, and with
 * keys that the store has joined before; the order makes no difference. Two
 * handlers that are joined into one are refused, by the same function.
 */
static int check_keys(const struct check *check,
		const struct postern__config_store *store,
		const struct postern_stats *stats, struct postern_error *error) {
	const struct postern__config *config = check->cli->config;
	struct postern_enrolment enrolment = { 0 };
	size_t count = count_handlers(config);
	size_t *parents = calloc(count + stats->key_count + 1, sizeof *parents);
	enrolment.handlers = calloc(count + 1, sizeof *enrolment.handlers);
	int r = parents && enrolment.handlers
					? POSTERN_OK
					: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	for (size_t i = 0; r == POSTERN_OK && i < count + stats->key_count; i++) {
		parents[i] = i;
	}
	for (size_t i = 0;
			r == POSTERN_OK && i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		for (size_t j = 0;
				channel->store == store && j < channel->handler_count; j++) {
			const struct postern__config_handler *handler =
					&channel->handlers[j];
			size_t index = enrolment.handler_count++;
			enrolment.handlers[index].key = handler->key;
			join_key(stats, parents, count, index, handler->key);
			for (size_t k = 0; k < handler->legacy_key_count; k++) {
				join_key(stats, parents, count, index, handler->legacy_keys[k]);
			}
		}
	}
	for (size_t i = 0; r == POSTERN_OK && i < enrolment.handler_count; i++) {
		enrolment.handlers[i].id = (int64_t)find_root(parents, i);
	}
	r = r == POSTERN_OK ? postern__enrolment_check(&enrolment, error) : r;
	free(enrolment.handlers);
	free(parents);
	return r;
}

/* Check an open store against the configuration. */
static void check_box(struct check *check,
		const struct postern__config_store *store, struct postern_box *box) {
	struct postern_stats *stats = NULL;
	struct postern_error error;
	/* Errors that only a box can find, unless one was reported already. */
	if (check->status != POSTERN__EXIT_USAGE) {
		if (postern__config_apply(check->cli->config, store, box, &error)) {
			report(check, POSTERN__EXIT_USAGE, "%s", error.text);
		} else if (postern__rules_compare(box, &error)) {
			report(check, postern__exit_of(error.code), "%s", error.text);
			check->rules_changed |= error.code == POSTERN_E_CONFLICT;
		}
	}
	int r = postern_box_stats(box, &stats, &error);
	if (r) {
		report(check, postern__exit_of(r), "%s", error.text);
	} else {
		if (check_keys(check, store, stats, &error)) {
			report(check, postern__exit_of(error.code), "%s", error.text);
		}
		postern__names_check(check->cli->config, store, stats, on_name, check);
		check_left_channels(check, store, stats);
		check_orphans(check, store, stats);
		check_staged(check, store, stats);
		postern__limits_check(&check->limits, stats, on_limit, check);
		check_kinds(check, store);
	}
	postern_stats_destroy(stats);
}

/* Whether the directory of a missing store exists. */
static bool has_directory(const struct postern__config_store *store) {
	char path[POSTERN__STORE_FILE_MAX];
	return !postern__store_file(store->values.store, path) || /* needs none */
		   access(dirname(path), F_OK) == 0;
}

/* Report that a store does not exist, and how to create it unless a finding
   prevents that. It is no problem, unless limits were to be compared with
   it. */
static void report_missing_store(struct check *check,
		const struct postern__config_store *store,
		const struct postern_error *error) {
	char label[POSTERN__OWN_LABEL_MAX];
	const char *hint = check->hindered ? ""
									   : "; 'postern migrate' or 'postern "
										 "serve' creates it";
	bool limited = check->limits.has_poisoned || check->limits.has_age;
	int status = limited ? POSTERN__EXIT_UNREACHABLE : POSTERN__EXIT_OK;
	postern__own_store_label(store, label);
	if (!postern__store_file_at(store->values.store)) {
		report(check, status, "%s%s", error->text, hint);
	} else {
		report(check, status, "store %s does not exist%s", label, hint);
	}
}

/* Report what is to be known about the URL of a store. */
static void report_note(struct check *check,
		const struct postern__config_store *store) {
	const char *rest;
	const struct postern_store_kind *kind =
			postern__store_kind_of(store->values.store, &rest);
	const char *note = kind && kind->note ? kind->note(rest) : NULL;
	char label[POSTERN__OWN_LABEL_MAX];
	if (note) {
		postern__own_store_label(store, label);
		report(check, POSTERN__EXIT_OK, "store %s %s", label, note);
	}
}

/* Check one store. */
static void check_store(struct check *check,
		const struct postern__config_store *store) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	struct postern_error error;
	char label[POSTERN__OWN_LABEL_MAX];
	postern__own_store_label(store, label);
	report_note(check, store);
	postern__own_store_options(store, &options);
	options.read_only = true;
	options.must_exist = true;
	options.listener = on_event;
	options.listener_context = check;
	int r = postern_box_open(store->values.store, &options, &box, &error);
	if (r == POSTERN_E_NOTFOUND && !has_directory(store)) {
		report(check, POSTERN__EXIT_UNREACHABLE,
				"store %s cannot be created: its directory does not exist",
				label);
	} else if (r && r != POSTERN_E_NOTFOUND) {
		report(check, postern__exit_of(r), "%s", error.text);
	} else if (r == POSTERN_OK) {
		check_box(check, store, box);
	}
	postern_box_destroy(box);
	if (r == POSTERN_OK || r == POSTERN_E_NOTFOUND) {
		check->hindered = false;
		check_server_settings(check, store, &options);
	}
	if (r == POSTERN_E_NOTFOUND && has_directory(store)) {
		report_missing_store(check, store, &error);
	}
}

/* Check a store that keeps markers only: whether its server can be reached, and
   how it can lose markers. */
static void check_markers(struct check *check,
		const struct postern__config_store *store) {
	struct postern_guard_options options;
	struct postern_guard *guard = NULL;
	struct postern_error error;
	char warning[POSTERN__MARKER_WARNING_MAX] = "";
	postern__config_guard_options(store, &options);
	int r = postern_guard_open(store->values.store, &options, &guard, &error);
	if (r == POSTERN_OK) {
		r = postern_guard_check(guard, warning, sizeof warning, &error);
	}
	if (r == POSTERN_E_UNSUPPORTED && guard) {
		report(check, POSTERN__EXIT_OK, "%s", error.text);
	} else if (r != POSTERN_OK) {
		report(check, postern__exit_of(r), "%s", error.text);
	} else if (*warning) {
		report(check, POSTERN__EXIT_OK, "markers may be lost: %s", warning);
	}
	postern_guard_destroy(guard);
}

/* The JSON at a path of the server; NULL: it did not respond with any. */
static json_t *get_json(const struct postern__socket *socket, const char *path,
		const char *query) {
	const struct postern__request request = {
		.method = "GET",
		.path = path,
		.query = query,
	};
	struct postern__response response;
	json_t *json = NULL;
	postern__response_init(&response);
	if (!postern__remote_request(socket, &request, &response, NULL) &&
			response.status == 200) {
		json = json_loadb(postern__buf_text(&response.body), response.body.len,
				0, NULL);
	}
	postern__response_finish(&response);
	return json;
}

/* Report what the server says about its handlers; the word for its health.
   False: it is not healthy. */
static bool check_health(struct check *check,
		const struct postern__socket *socket, const char **word_out) {
	json_t *json = get_json(socket, "/healthz", "verbose");
	const char *status = postern__reply_text(json, "status");
	bool healthy =
			!status ||
			strcmp(status, postern_health_name(POSTERN_HEALTH_UNHEALTHY)) != 0;
	bool ok = !status ||
			  strcmp(status, postern_health_name(POSTERN_HEALTH_OK)) == 0;
	*word_out = ok ? "healthy" : postern_health_name(POSTERN_HEALTH_DEGRADED);
	size_t index;
	json_t *note;
	json_array_foreach(json_object_get(json, "notes"), index, note) {
		report(check, healthy ? POSTERN__EXIT_OK : POSTERN__EXIT_UNHEALTHY,
				"%s", json_string_value(note));
	}
	json_decref(json);
	return healthy;
}

/* A healthy server may have another configuration. */
static void check_served(struct check *check,
		const struct postern__socket *socket) {
	char difference[TEXT_MAX / 2];
	const char *word;
	if (!check_health(check, socket, &word)) {
		return;
	}
	json_t *json = get_json(socket, "/v1/stats", NULL);
	if (json && postern__server_needs_restart(check->cli->config, json,
						difference, sizeof difference)) {
		report(check, POSTERN__EXIT_OK,
				"a server is running and %s, but with another configuration: "
				"%s; restart it, because a reload is refused",
				word, difference);
	} else if (json && !postern__server_config_matches(check->cli->config, json,
							   difference, sizeof difference)) {
		report(check, POSTERN__EXIT_OK,
				"a server is running and %s, but with another configuration: "
				"%s; %s",
				word, difference,
				check->rules_changed
						? "a reload and a restart are refused for the changed "
						  "key"
						: "reload it (kill -HUP) or restart it");
	} else {
		report(check, POSTERN__EXIT_OK, "a server is running and %s", word);
	}
	json_decref(json);
}

/* A running server reports its own health. True: there is a server, or a socket
   that does not work. */
static bool check_server(struct check *check,
		const struct postern__socket *socket) {
	const struct postern__request request = {
		.method = "GET",
		.path = "/readyz",
	};
	struct postern__response response;
	struct postern_error error;
	postern__response_init(&response);
	int r = postern__remote_request(socket, &request, &response, &error);
	if (r == POSTERN_OK &&
			!postern__server_shares_store(check->cli->config, socket)) {
		report(check, POSTERN__EXIT_OK,
				"the server at %s has another store, which is not in this "
				"configuration",
				socket->path);
		r = POSTERN_E_UNAVAILABLE; /* a server may run elsewhere */
	} else if (r == POSTERN_OK && response.status == 200) {
		check_served(check, socket);
	} else if (r == POSTERN_OK) {
		json_t *json = json_loadb(postern__buf_text(&response.body),
				response.body.len, 0, NULL);
		const char *detail = postern__reply_text(json, "detail");
		report(check, POSTERN__EXIT_UNHEALTHY,
				"a server is running and not healthy: %s",
				detail ? detail : postern__status_text(response.status));
		json_decref(json);
	} else if (r != POSTERN_E_UNAVAILABLE) {
		report(check, POSTERN__EXIT_UNHEALTHY, "%s", error.text);
	}
	postern__response_finish(&response);
	return r != POSTERN_E_UNAVAILABLE;
}

/* The socket beside a store, then the one of `listen`. */
static bool check_socket_beside(struct check *check,
		const struct postern__config_store *store) {
	char file[POSTERN__STORE_FILE_MAX];
	struct postern__socket socket;
	if (!postern__store_file(store->values.store, file) ||
			postern__socket_init(&socket, file, NULL)) {
		return false;
	}
	bool served = check_server(check, &socket);
	postern__socket_finish(&socket);
	return served;
}

static bool check_path(struct check *check, const char *path) {
	struct postern__socket socket;
	struct postern_error error;
	if (postern__socket_init_alone(&socket, path, &error)) {
		report(check, POSTERN__EXIT_UNREACHABLE, "listen: %s", error.text);
		return false;
	}
	bool served = check_server(check, &socket);
	postern__socket_finish(&socket);
	return served;
}

/* The sockets of `listen` that serve everything. */
static bool check_listening(struct check *check) {
	const struct postern__config_listen *listen;
	bool served = false;
	for (size_t i = 0;
			!served && (listen = postern__config_listen(check->cli->config, i));
			i++) {
		const char *path = postern__listen_path(listen->text);
		served = path && !listen->ingest_only && check_path(check, path);
	}
	return served;
}

/* Check each store, then the one server. */
static void check_stores(struct check *check) {
	const struct postern__cli *cli = check->cli;
	bool several = postern__config_store_count(cli->config) > 1;
	bool served;
	for (size_t i = 0; i < cli->store_count; i++) {
		const char *url = cli->stores[i]->values.store;
		check->store = several ? cli->stores[i]->name : NULL;
		if (!postern__store_keeps_messages(url)) {
			check_markers(check, cli->stores[i]);
		} else if (postern__store_is_durable(url)) {
			check_store(check, cli->stores[i]);
		}
	}
	check->store = NULL;
	served = check_listening(check);
	for (size_t i = 0; !served && i < postern__config_store_count(cli->config);
			i++) {
		served = check_socket_beside(check,
				postern__config_store(cli->config, i));
	}
}

static void print_json(const struct check *check,
		const struct postern__buf *printed) {
	const struct postern__config *config = check->cli->config;
	const char *name = postern__config_name(config);
	json_t *json = json_pack("{s:b, s:s?, s:I, s:I, s:O}", "ok",
			check->status == POSTERN__EXIT_OK, "config", name, "channels",
			(json_int_t)postern__config_channel_count(config), "handlers",
			(json_int_t)count_handlers(config), "findings", check->findings);
	(void)json_object_set_new(json, "effective",
			json_loadb(postern__buf_text(printed), printed->len, 0, NULL));
	postern__reply_print(json);
	json_decref(json);
}

static void print_lines(const struct check *check,
		const struct postern__buf *printed) {
	const struct postern__config *config = check->cli->config;
	const char *name = postern__config_name(config);
	size_t index;
	json_t *finding;
	if (postern__args_has(&check->cli->args, "print")) {
		postern__out_lines(postern__buf_text(printed), printed->len, "");
	}
	postern__out_text(name ? name : "(no file, defaults)");
	(void)printf(": %zu channel%s, %zu handler%s\n",
			postern__config_channel_count(config),
			postern__config_channel_count(config) == 1 ? "" : "s",
			count_handlers(config), count_handlers(config) == 1 ? "" : "s");
	json_array_foreach(check->findings, index, finding) {
		const char *level = postern__reply_text(finding, "level");
		bool bad = level && strcmp(level, "error") == 0;
		(void)printf("%s%s%s: ",
				postern__out_colour(stdout,
						bad ? POSTERN__BAD : POSTERN__FAINT),
				level, postern__out_colour(stdout, POSTERN__PLAIN));
		const char *store = postern__reply_text(finding, "store");
		if (store) {
			(void)printf("store %s: ", store);
		}
		postern__out_text(postern__reply_text(finding, "text"));
		(void)putchar('\n');
	}
	(void)printf("%s\n", check->status == POSTERN__EXIT_OK ? "ok" : "not ok");
}

int postern__command_check(struct postern__cli *cli) {
	struct check check = { .cli = cli };
	struct postern__buf printed;
	int r = postern__limits_read(cli, &check.limits);
	if (!r) {
		r = postern__cli_configure(cli);
	}
	if (r) {
		return r;
	}
	check.findings = json_array();
	if (postern__config_is_missing(cli->config)) {
		report(&check, POSTERN__EXIT_OK, "%s", POSTERN__CONFIG_MISSING_TEXT);
	}
	check_handlers(&check);
	postern__config_remarks(cli->config, on_warning, &check);
	postern__config_source_remarks(cli->config, on_note, &check);
	if (uses_rabbitmq(cli->config)) {
		report(&check, POSTERN__EXIT_OK,
				"RabbitMQ is not asked: whether it can be reached, accepts the "
				"password and has the queues and exchanges, 'serve' logs and "
				"'stats' shows");
	}
	postern__config_tls_remarks(cli->config, on_note, &check);
	postern__config_key_notes(cli->config, on_note, &check);
	check_stores(&check);
	postern__buf_init(&printed, PRINTED_LEN_MAX);
	postern__config_print(cli->config, cli->json, &printed);
	if (cli->json) {
		print_json(&check, &printed);
	} else {
		print_lines(&check, &printed);
	}
	postern__buf_finish(&printed);
	json_decref(check.findings);
	return check.status;
}
