/* SPDX-License-Identifier: MIT */
/*
 * Reason and author of a change, and what the statistics say about it later.
 */

#include "cli/words.h"

#include <postern/change.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/host.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "server/api.h"

/* "anna@db1", as far as it fits. */
static void author(char out[POSTERN_CHANGE_BY_LEN_MAX + 1]) {
	char host[POSTERN__HOST_LEN_MAX + 1];
	char text[2 * POSTERN__HOST_LEN_MAX + 2];
	const struct passwd *user = getpwuid(geteuid());
	postern__host_name(host);
	if (user) {
		(void)snprintf(text, sizeof text, "%.*s@%s", POSTERN__HOST_LEN_MAX,
				user->pw_name, host);
	} else {
		(void)snprintf(text, sizeof text, "%lu@%s", (unsigned long)geteuid(),
				host);
	}
	(void)postern__utf8_clean(text, strlen(text), out,
			POSTERN_CHANGE_BY_LEN_MAX + 1);
}

static bool add_word(const struct postern__cli *cli, json_t *body,
		const char *name, const char *value) {
	if (json_object_set_new(body, name, json_string(value))) {
		(void)postern__cli_usage(cli, "--%s is not valid UTF-8", name);
		return false;
	}
	return true;
}

bool postern__words_add(const struct postern__cli *cli, json_t *body) {
	char by[POSTERN_CHANGE_BY_LEN_MAX + 1];
	const char *reason = postern__args_value(&cli->args, "reason");
	const char *given = postern__args_value(&cli->args, "by");
	author(by);
	return add_word(cli, body, "by", given ? given : by) &&
		   (!reason || add_word(cli, body, "reason", reason));
}

json_t *postern__words(const struct postern__cli *cli) {
	json_t *body = json_object();
	if (!body) {
		postern__err_print("out of memory");
		return NULL;
	}
	if (!postern__words_add(cli, body)) {
		json_decref(body);
		return NULL;
	}
	return body;
}

static void add_parts(const json_t *row, const char *const parts[][2],
		size_t count, struct postern__buf *out) {
	for (size_t i = 0; i < count; i++) {
		const char *text = postern__reply_text(row, parts[i][0]);
		if (text) {
			postern__buf_printf(out, "%s%s", parts[i][1], text);
		}
	}
}

void postern__held_text(const json_t *row, struct postern__buf *out) {
	/* A row of a delivery, then one of a handler. */
	const char *name = postern__reply_text(row, "reason");
	const char *until = postern__reply_text(row, "until");
	static const char *const parts[][2] = {
		{ "held_by", " by " },
		{ "held_reason", ": " },
	};
	if (!name) {
		name = postern__reply_text(row, "held");
		until = postern__reply_text(row, "held_until");
	}
	if (!name) {
		return;
	}
	postern__buf_append_text(out, name);
	if (until) {
		/* A broken handler is probed then; whether that ends it is not known.
		 */
		postern__buf_printf(out, "%s%s",
				strcmp(name, "broken") == 0 ? ", next probe " : " until ",
				until);
	}
	add_parts(row, parts, sizeof parts / sizeof parts[0], out);
}

void postern__closed_text(const json_t *row, struct postern__buf *out) {
	static const char *const parts[][2] = {
		{ "closed_by", " by " },
		{ "closed_reason", ": " },
	};
	if (json_is_true(json_object_get(row, "closed"))) {
		postern__buf_append_text(out, "closed");
		add_parts(row, parts, sizeof parts / sizeof parts[0], out);
	}
}

static bool has_handler(const json_t *deliveries, const char *key) {
	size_t index;
	json_t *row;
	json_array_foreach(deliveries, index, row) {
		const char *handler = postern__reply_text(row, "handler");
		if (handler && strcmp(handler, key) == 0) {
			return true;
		}
	}
	return !deliveries;
}

void postern__waiting_print(const struct postern__cli *cli,
		struct postern__client *client, const json_t *deliveries,
		const char *handler) {
	const struct postern__request request = {
		.method = "GET",
		.path = "/v1/handlers",
		.transport = "cli",
	};
	json_t *answer = NULL;
	size_t index;
	json_t *row;
	if (postern__client_call(cli, client, &request, false, &answer)) {
		return;
	}
	json_array_foreach(json_object_get(answer, "items"), index, row) {
		const char *key = postern__reply_text(row, "key");
		struct postern__buf text;
		postern__buf_init(&text, POSTERN__HELD_TEXT_MAX);
		postern__held_text(row, &text);
		if (text.len > 0 && key && has_handler(deliveries, key) &&
				(!handler || strcmp(handler, key) == 0)) {
			postern__note_print("deliveries to '%s' wait: %s", key,
					postern__buf_text(&text));
		}
		postern__buf_finish(&text);
	}
	json_decref(answer);
}
