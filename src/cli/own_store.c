/* SPDX-License-Identifier: MIT */
/*
 * Opens the store exclusively. If a server owns it, waiting is useless, and the
 * error says that the server must be stopped first.
 */

#include "cli/own_store.h"

#include <postern/event.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "server/config.h"
#include "server/store_open.h"
#include "store/store.h"

/* Print warnings, and that a store was created. An event about a delivery or a
   handler has these and the reason in fields, not in its text. */
static void print_notice(void *context, const struct postern_event *event) {
	const struct postern_event_info *info = postern_event_info(event->kind);
	const char *text = postern_event_text(event);
	(void)context;
	if (event->kind != POSTERN_EVENT_STORE_CREATED &&
			info->level < POSTERN_LEVEL_WARN) {
		return;
	}
	if (info->object == POSTERN_OBJECT_DELIVERY && event->message_id &&
			event->handler) {
		postern__err_print("note: %s: message '%s', handler '%s'%s%s", text,
				event->message_id, event->handler, event->error ? ": " : "",
				event->error ? event->error : "");
	} else if (info->object == POSTERN_OBJECT_HANDLER && event->handler &&
			   !event->text) {
		postern__err_print("note: %s: handler '%s'%s%s", text, event->handler,
				event->error ? ": " : "", event->error ? event->error : "");
	} else {
		postern__err_print("note: %s", text);
	}
}

void postern__own_store_options(const struct postern__config_store *store,
		struct postern_box_options *out) {
	postern__config_box_options(store, out);
	out->orphans = POSTERN_ORPHANS_HOLD;
	out->listener = print_notice;
}

void postern__own_store_label(const struct postern__config_store *store,
		char out[POSTERN__OWN_LABEL_MAX]) {
	char url[POSTERN__REDACT_TEXT_MAX];
	char schema[POSTERN_SCHEMA_NAME_MAX];
	postern__redact(store->values.store, url, sizeof url);
	postern__config_schema_name(store, schema, sizeof schema);
	if (*schema && !strstr(url, "schema=")) {
		(void)snprintf(out, POSTERN__OWN_LABEL_MAX, "%s (schema %s)", url,
				schema);
	} else {
		(void)snprintf(out, POSTERN__OWN_LABEL_MAX, "%s", url);
	}
}

int postern__own_store_open(const struct postern__cli *cli,
		const struct postern__config_store *store,
		const struct postern_box_options *options, struct postern_box **out) {
	const char *url = store->values.store;
	struct postern_error error;
	if (!postern__store_keeps_messages(url)) {
		postern__err_print("%s: store '%s' (%s) keeps markers only, and no "
						   "messages",
				cli->command->name, store->name, postern__store_kind_name(url));
		return POSTERN__EXIT_USAGE;
	}
	int r = postern__store_open_wait(url, options, out, &error);
	if (r == POSTERN_OK) {
		return POSTERN__EXIT_OK;
	}
	(void)postern__config_store_fail(cli->config, store, r, &error);
	if (r == POSTERN_E_BUSY && postern__store_has_server(url)) {
		postern__err_print("%s: a server is running: %s; stop it first",
				cli->command->name, error.text);
		return POSTERN__EXIT_UNREACHABLE;
	}
	return postern__print_error(cli, &error);
}
