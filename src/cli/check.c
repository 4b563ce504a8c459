/* SPDX-License-Identifier: MIT */
/*
 * `postern check`: what would go wrong, before it does.
 *
 * The configuration is read as every command reads it. Then the store is
 * looked at, read-only and beside whoever has it open, for what this
 * configuration would do to it; and a running server is asked how it is.
 * Everything found is a line; the worst of them is the exit status.
 */

#include <inttypes.h>
#include <jansson.h>
#include <libgen.h>
#include <postern/inspect.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/own.h"
#include "cli/remote.h"
#include "cli/served.h"
#include "handler/kinds.h"
#include "server/api.h"
#include "server/config.h"
#include "server/socket.h"
#include "server/survey.h"
#include "server/take.h"

#define TEXT_MAX 512
/* 8 MiB are enough for any configuration. */
#define PRINTED_LEN_MAX ((size_t)8 * 1024 * 1024)

struct check {
	struct postern__cli *cli;
	json_t *findings;
	const char *store; /* what is being looked at; NULL: none, or the only */
	int status;        /* the exit status so far */
	bool hindered;     /* the store that is looked at cannot be made, or used */
};

/* status POSTERN__EXIT_OK: worth knowing, no more. */
static void find(struct check *check, int status, const char *format, ...)
		__attribute__((format(printf, 3, 4)));

static void find(struct check *check, int status, const char *format, ...) {
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

static void take_remark(void *context, const char *text) {
	find(context, POSTERN__EXIT_OK, "%s", text);
}

/* What serve only warns of. */
static void take_warning(void *context, const char *text) {
	find(context, POSTERN__EXIT_FAILED, "%s", text);
}

/* What serve would refuse, and what it would not but should be known. */
static void check_handlers(struct check *check) {
	struct postern_error error;
	const struct postern__config *config = check->cli->config;
	if (postern__config_check(config, &error)) {
		find(check, POSTERN__EXIT_USAGE, "%s", error.text);
	}
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		for (size_t j = 0; j < channel->handler_count; j++) {
			const struct postern__config_handler *handler =
					&channel->handlers[j];
			/* One that nobody should run is refused with the handler. */
			if (handler->exec_count > 0 &&
					postern__exec_check(handler->exec[0], &error) ==
							POSTERN_E_NOTFOUND) {
				find(check, POSTERN__EXIT_FAILED, "%s:%u:%u: handler '%s': %s",
						postern__config_name(config), handler->line,
						handler->column, handler->key, error.text);
			}
		}
	}
}

/* Whether one of the store's own handlers has the key. */
static bool is_configured(const struct postern__config *config,
		const struct postern__config_store *store, const char *key) {
	const struct postern__config_handler *handler =
			postern__config_handler_named(config, key);
	return handler && handler->values.store == store->values.store;
}

static void check_orphans(struct check *check,
		const struct postern__config_store *store,
		const struct postern_stats *stats) {
	int orphans = store->values.orphans;
	for (size_t i = 0; i < stats->handler_count; i++) {
		const struct postern_handler_stats *handler = &stats->handlers[i];
		uint64_t open = handler->pending + handler->leased;
		if (open == 0 ||
				is_configured(check->cli->config, store, handler->key)) {
			continue;
		}
		find(check,
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

/* A table may still come, but as likely its name is misspelt. */
static void check_tables(struct check *check,
		const struct postern__config_store *store) {
	const struct postern__config *config = check->cli->config;
	const char *file = postern__store_file(store->values.store);
	struct postern_error error;
	if (!file) {
		return; /* SQLite is the only one that is asked */
	}
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		for (size_t j = 0;
				channel->store == store && j < channel->handler_count; j++) {
			const struct postern__config_handler *handler =
					&channel->handlers[j];
			if (handler->sql && postern__sql_tables_check(handler->sql, file,
										&error) == POSTERN_E_NOTFOUND) {
				find(check, POSTERN__EXIT_OK,
						"%s:%u:%u: handler '%s': sql: %s; messages are "
						"poisoned until there is one",
						postern__config_name(config), handler->line,
						handler->column, handler->key, error.text);
			}
		}
	}
}

static void take_finding(void *context, int code, const char *text) {
	struct check *check = context;
	check->hindered = check->hindered || code == POSTERN_E_UNSUPPORTED;
	/* The SQL of one handler is invalid, and not the whole. */
	find(context,
			code == POSTERN_E_INVALID ? POSTERN__EXIT_FAILED
									  : postern__exit_of(code),
			"%s", text);
}

/* Whether the server under a store would do, which a look at the store alone
   does not ask; and what it says to the handlers. */
static void check_under(struct check *check,
		const struct postern__config_store *store,
		const struct postern_box_options *box) {
	struct postern_error error;
	int r = postern__survey_take(check->cli->config, store, box, take_finding,
			check, &error);
	if (r) {
		check->hindered = true;
		find(check, postern__exit_of(r), "%s", error.text);
	}
}

/* What a store that is open has, and what would be made of it. */
static void check_box(struct check *check,
		const struct postern__config_store *store, struct postern_box *box) {
	struct postern_stats *stats = NULL;
	struct postern_error error;
	/* What the handlers alone did not tell, if there is such a thing. */
	if (check->status != POSTERN__EXIT_USAGE &&
			postern__config_apply(check->cli->config, store, box, &error)) {
		find(check, POSTERN__EXIT_USAGE, "%s", error.text);
	}
	int r = postern_box_stats(box, &stats, &error);
	if (r) {
		find(check, postern__exit_of(r), "%s", error.text);
	} else {
		check_orphans(check, store, stats);
		check_tables(check, store);
	}
	postern_stats_destroy(stats);
}

/* Whether a store that is not there could be. */
static bool has_directory(const struct postern__config_store *store) {
	const char *file = postern__store_file(store->values.store);
	if (!file) {
		return true; /* it needs none */
	}
	char *path = strdup(file);
	bool there = path && access(dirname(path), F_OK) == 0;
	free(path);
	return there;
}

/* That a store is not there, and how it comes to be if nothing was found that
   hinders. */
static void say_missing(struct check *check,
		const struct postern__config_store *store,
		const struct postern_error *error) {
	char label[POSTERN__OWN_LABEL_MAX];
	const char *hint = check->hindered ? ""
									   : "; 'postern migrate' or 'postern "
										 "serve' creates it";
	postern__own_label(store, label);
	if (postern__store_postgres(store->values.store)) {
		find(check, POSTERN__EXIT_OK, "%s%s", error->text, hint);
	} else {
		find(check, POSTERN__EXIT_OK, "the store %s is not there yet%s", label,
				hint);
	}
}

/* What a store has and promises. */
static void check_store(struct check *check,
		const struct postern__config_store *store) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	struct postern_error error;
	char label[POSTERN__OWN_LABEL_MAX];
	postern__own_label(store, label);
	postern__own_options(store, &options);
	options.read_only = true;
	options.must_exist = true;
	options.remark = take_remark;
	options.remark_context = check;
	int r = postern_box_open(store->values.store, &options, &box, &error);
	if (r == POSTERN_E_NOTFOUND && !has_directory(store)) {
		find(check, POSTERN__EXIT_UNREACHABLE,
				"the store %s cannot be created: its directory is not there",
				label);
	} else if (r && r != POSTERN_E_NOTFOUND) {
		find(check, postern__exit_of(r), "%s", error.text);
	} else if (r == POSTERN_OK) {
		check_box(check, store, box);
	}
	postern_box_destroy(box);
	if (r == POSTERN_OK || r == POSTERN_E_NOTFOUND) {
		check->hindered = false;
		check_under(check, store, &options);
	}
	if (r == POSTERN_E_NOTFOUND && has_directory(store)) {
		say_missing(check, store, &error);
	}
}

/* One that is well may still serve something else. */
static void check_served(struct check *check,
		const struct postern__socket *socket) {
	const struct postern__request request = {
		.method = "GET",
		.path = "/v1/stats",
	};
	struct postern__response response;
	char difference[TEXT_MAX / 2];
	json_t *json = NULL;
	postern__response_init(&response);
	if (!postern__remote_request(socket, &request, &response, NULL) &&
			response.status == 200) {
		json = json_loadb(postern__buf_text(&response.body), response.body.len,
				0, NULL);
	}
	if (json && !postern__served_is_same(check->cli->config, json, difference,
						sizeof difference)) {
		find(check, POSTERN__EXIT_OK,
				"a server is running and well, but with another configuration: "
				"%s; restart it",
				difference);
	} else {
		find(check, POSTERN__EXIT_OK, "a server is running and well");
	}
	json_decref(json);
	postern__response_finish(&response);
}

/* A server that answers there says itself how it is. True: there is one, or
   something that should be. */
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
	if (r == POSTERN_OK && response.status == 200) {
		check_served(check, socket);
	} else if (r == POSTERN_OK) {
		json_t *json = json_loadb(postern__buf_text(&response.body),
				response.body.len, 0, NULL);
		const char *detail = postern__answer_text(json, "detail");
		find(check, POSTERN__EXIT_UNHEALTHY,
				"a server is running and not well: %s",
				detail ? detail : postern__status_text(response.status));
		json_decref(json);
	} else if (r != POSTERN_E_UNAVAILABLE) {
		find(check, POSTERN__EXIT_UNHEALTHY, "%s", error.text);
	}
	postern__response_finish(&response);
	return r != POSTERN_E_UNAVAILABLE;
}

/* Beside a store, or where it listens besides. */
static bool check_beside(struct check *check,
		const struct postern__config_store *store) {
	const char *file = postern__store_file(store->values.store);
	struct postern__socket socket;
	if (!file || postern__socket_init(&socket, file, NULL)) {
		return false;
	}
	bool served = check_server(check, &socket);
	postern__socket_finish(&socket);
	return served;
}

static bool check_listening(struct check *check) {
	const char *path = postern__config_global(check->cli->config)->listen;
	struct postern__socket socket;
	struct postern_error error;
	if (!path) {
		return false;
	}
	if (postern__socket_init_alone(&socket, path, &error)) {
		find(check, POSTERN__EXIT_UNREACHABLE, "listen: %s", error.text);
		return false;
	}
	bool served = check_server(check, &socket);
	postern__socket_finish(&socket);
	return served;
}

/* Every store by itself, then the one server. */
static void check_stores(struct check *check) {
	const struct postern__cli *cli = check->cli;
	bool several = postern__config_store_count(cli->config) > 1;
	bool served;
	for (size_t i = 0; i < cli->store_count; i++) {
		if (postern__store_kept(cli->stores[i]->values.store)) {
			check->store = several ? cli->stores[i]->name : NULL;
			check_store(check, cli->stores[i]);
		}
	}
	check->store = NULL;
	served = check_listening(check);
	for (size_t i = 0; !served && i < postern__config_store_count(cli->config);
			i++) {
		served = check_beside(check, postern__config_store(cli->config, i));
	}
}

static size_t count_handlers(const struct postern__config *config) {
	size_t count = 0;
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		count += postern__config_channel(config, i)->handler_count;
	}
	return count;
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
	postern__answer_print(json);
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
		const char *level = postern__answer_text(finding, "level");
		bool bad = level && strcmp(level, "error") == 0;
		(void)printf("%s%s%s: ",
				postern__out_colour(stdout,
						bad ? POSTERN__BAD : POSTERN__FAINT),
				level, postern__out_colour(stdout, POSTERN__PLAIN));
		const char *store = postern__answer_text(finding, "store");
		if (store) {
			(void)printf("store %s: ", store);
		}
		postern__out_text(postern__answer_text(finding, "text"));
		(void)putchar('\n');
	}
	(void)printf("%s\n", check->status == POSTERN__EXIT_OK ? "ok" : "not ok");
}

int postern__command_check(struct postern__cli *cli) {
	struct check check = { .cli = cli };
	struct postern__buf printed;
	int r = postern__cli_configure(cli);
	if (r) {
		return r;
	}
	check.findings = json_array();
	check_handlers(&check);
	postern__config_remarks(cli->config, take_warning, &check);
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
