/* SPDX-License-Identifier: MIT */
/*
 * `postern list`: one page of deliveries.
 */

#include <jansson.h>
#include <postern/sys/clock.h>
#include <string.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/filters.h"
#include "cli/list.h"
#include "cli/reply.h"
#include "cli/row.h"
#include "cli/table.h"
#include "server/api.h"

int postern__list_query(const struct postern__cli *cli,
		struct postern__buf *query) {
	static const char *const others[] = { "limit", "cursor" };
	const char *name;
	const char *value;
	size_t index = 0;
	while ((value = postern__filter_next(cli, &index, &name))) {
		postern__query_add(query, name, value);
	}
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		value = postern__args_value(&cli->args, others[i]);
		if (value) {
			postern__query_add(query, others[i], value);
		}
	}
	if (postern__buf_check(query, "the filter", NULL)) {
		return postern__cli_usage(cli, "the filters are too long");
	}
	return POSTERN__EXIT_OK;
}

/* With several stores, the name of the store comes first. */
static void print_table(const json_t *items, bool several) {
	static const struct postern__column columns[] = {
		{ "STORE", false },
		{ "SEQ", true },
		{ "ID", POSTERN__TABLE_SHORTENED },
		{ "CHANNEL", POSTERN__TABLE_SHORTENED | POSTERN__TABLE_OPTIONAL(1) },
		{ "HANDLER", POSTERN__TABLE_SHORTENED },
		{ "TYPE", POSTERN__TABLE_SHORTENED | POSTERN__TABLE_OPTIONAL(2) },
		{ "STATE", false },
		{ "ATTEMPT", true },
		{ "RECEIVED", POSTERN__TABLE_OPTIONAL(3) },
		{ "DETAIL", POSTERN__TABLE_SHORTENED },
		{ "LAST ERROR", false },
	};
	const struct postern_clock *clock = postern_clock_system();
	int64_t now_ms = clock->wall_ms(clock->context);
	struct postern__table table;
	size_t left_out = several ? 0 : 1;
	postern__table_init(&table, columns + left_out,
			sizeof columns / sizeof columns[0] - left_out);
	size_t index;
	json_t *row;
	json_array_foreach(items, index, row) {
		if (several) {
			postern__table_text(&table, postern__reply_text(row, "store"));
		}
		postern__table_count(&table, postern__reply_count(row, "seq"));
		postern__table_text(&table, postern__reply_text(row, "message_id"));
		postern__table_text(&table, postern__reply_text(row, "channel"));
		postern__table_text(&table, postern__reply_text(row, "handler"));
		postern__table_text(&table, postern__reply_text(row, "type"));
		postern__row_state(&table, row);
		postern__row_attempt(&table, row);
		postern__row_ago(&table, row, "received_at", now_ms);
		postern__row_detail(&table, row, now_ms);
		postern__row_error(&table, row);
	}
	if (!postern__table_print(&table)) {
		postern__err_print("out of memory");
	}
	postern__table_finish(&table);
}

/* Whether any of them is pending for a reason that is not known here. */
static bool has_pending(const json_t *items) {
	size_t index;
	json_t *row;
	json_array_foreach(items, index, row) {
		const char *state = postern__reply_text(row, "state");
		if (state && strcmp(state, "pending") == 0 &&
				!postern__reply_text(row, "reason")) {
			return true;
		}
	}
	return false;
}

static void print_page(const struct postern__cli *cli, const json_t *page) {
	const json_t *items = json_object_get(page, "items");
	const char *cursor = postern__reply_text(page, "cursor");
	if (cli->json) {
		postern__reply_print(items);
	} else if (json_array_size(items) == 0) {
		postern__note_print("no deliveries match");
	} else {
		print_table(items, cli->store_count > 1);
	}
	if (cursor && cli->json) {
		postern__err_pair("cursor", cursor);
	} else if (cursor) {
		postern__note_print("there are more deliveries: --cursor %s", cursor);
	}
}

int postern__command_list(struct postern__cli *cli) {
	if (postern__args_has(&cli->args, "group-by")) {
		return postern__list_groups(cli);
	}
	struct postern__buf query;
	json_t *page = NULL;
	struct postern__client *client = NULL;
	postern__buf_init(&query, POSTERN__API_QUERY_LEN_MAX);
	int r = postern__filters_check(cli, POSTERN__EDIT_NONE);
	if (r == POSTERN__EXIT_OK) {
		r = postern__list_query(cli, &query);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__client_begin(cli, POSTERN__NEED_READ, &client);
	}
	if (r) {
		goto out;
	}
	const struct postern__request request = {
		.method = "GET",
		.path = "/v1/deliveries",
		.query = postern__buf_text(&query),
		.transport = "cli",
	};
	r = postern__client_call(cli, client, &request, false, &page);
	if (r == POSTERN__EXIT_OK) {
		print_page(cli, page);
		if (!cli->json && postern__client_is_beside_servers(client) &&
				has_pending(json_object_get(page, "items"))) {
			postern__client_note_held();
		}
	}
out:
	json_decref(page);
	postern__client_destroy(client);
	postern__buf_finish(&query);
	return r;
}
