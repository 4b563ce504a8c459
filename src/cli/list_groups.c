/* SPDX-License-Identifier: MIT */
/*
 * `postern list --group-by error`: what failed, counted by group of errors.
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

static void print_table(const json_t *items, bool several) {
	static const struct postern__column columns[] = {
		{ "STORE", false },
		{ "COUNT", true },
		{ "HANDLER", POSTERN__TABLE_SHORTENED },
		{ "FIRST SEEN", POSTERN__TABLE_OPTIONAL(1) },
		{ "LAST SEEN", false },
		{ "GROUP", false },
		{ "EXAMPLE", false },
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
		const char *group = postern__reply_text(row, "group");
		if (several) {
			postern__table_text(&table, postern__reply_text(row, "store"));
		}
		postern__table_count(&table, postern__reply_count(row, "count"));
		postern__table_text(&table, postern__reply_text(row, "handler"));
		postern__row_ago(&table, row, "first_at", now_ms);
		postern__row_ago(&table, row, "last_at", now_ms);
		postern__table_text(&table, group ? group : "others");
		postern__table_text(&table, postern__reply_text(row, "example"));
	}
	if (!postern__table_print(&table)) {
		postern__err_print("out of memory");
	}
	postern__table_finish(&table);
}

static int check_flags(const struct postern__cli *cli) {
	static const char *const others[] = { "id", "seq", "source", "limit",
		"cursor", "oldest" };
	const char *by = postern__args_value(&cli->args, "group-by");
	if (!by || strcmp(by, "error") != 0) {
		return postern__cli_usage(cli,
				"--group-by '%.40s': only 'error' can be grouped by",
				by ? by : "");
	}
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		if (postern__args_has(&cli->args, others[i])) {
			return postern__cli_usage(cli,
					"--%s cannot be combined with --group-by", others[i]);
		}
	}
	return postern__filters_check(cli, POSTERN__EDIT_NONE);
}

int postern__list_groups(struct postern__cli *cli) {
	struct postern__buf query;
	json_t *answer = NULL;
	struct postern__client *client = NULL;
	postern__buf_init(&query, POSTERN__API_QUERY_LEN_MAX);
	int r = check_flags(cli);
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
		.path = "/v1/groups",
		.query = postern__buf_text(&query),
		.transport = "cli",
	};
	r = postern__client_call(cli, client, &request, false, &answer);
	if (r == POSTERN__EXIT_OK) {
		const json_t *items = json_object_get(answer, "items");
		if (cli->json) {
			postern__reply_print(items);
		} else if (json_array_size(items) == 0) {
			postern__note_print("no deliveries match that have failed");
		} else {
			print_table(items, cli->store_count > 1);
		}
	}
out:
	json_decref(answer);
	postern__client_destroy(client);
	postern__buf_finish(&query);
	return r;
}
