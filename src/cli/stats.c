/* SPDX-License-Identifier: MIT */
/*
 * `postern stats`: counts messages and deliveries, and lists the nodes.
 */

#include <jansson.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "cli/row.h"
#include "cli/table.h"
#include "cli/words.h"
#include "server/api.h"

static void print(struct postern__table *table) {
	if (!postern__table_print(table)) {
		postern__err_print("out of memory");
	}
	postern__table_finish(table);
}

/* With several stores, the name of the store comes first. */
static void begin_table(struct postern__table *table,
		const struct postern__column *columns, size_t count, bool several) {
	size_t left_out = several ? 0 : 1;
	postern__table_init(table, columns + left_out, count - left_out);
}

/* Whether messages can be staged in any of the stores. */
static bool can_stage(const json_t *channels) {
	size_t index;
	json_t *row;
	json_array_foreach(channels, index, row) {
		if (json_object_get(row, "staged")) {
			return true;
		}
	}
	return false;
}

static bool is_closed(const json_t *row) {
	return json_is_true(json_object_get(row, "closed"));
}

static bool any_closed(const json_t *channels) {
	size_t index;
	json_t *row;
	json_array_foreach(channels, index, row) {
		if (is_closed(row)) {
			return true;
		}
	}
	return false;
}

static void add_closed(struct postern__table *table, const json_t *row) {
	struct postern__buf text;
	postern__buf_init(&text, POSTERN__HELD_TEXT_MAX);
	postern__closed_text(row, &text);
	postern__table_coloured(table,
			text.len > 0 ? postern__buf_text(&text) : NULL, POSTERN__WARM);
	postern__buf_finish(&text);
}

/* A count that there may be none of: guard channels keep nothing. */
static void add_known(struct postern__table *table, const json_t *row,
		const char *name) {
	if (json_is_null(json_object_get(row, name))) {
		postern__table_text(table, NULL);
	} else {
		postern__table_count(table, postern__reply_count(row, name));
	}
}

static void print_channels(const json_t *channels, bool several) {
	static const struct postern__column counts[] = {
		{ "STORE", false },
		{ "CHANNEL", POSTERN__TABLE_SHORTENED },
		{ "ACCEPTED", true },
		{ "DUPLICATES", true },
		{ "CONFLICTS", true | POSTERN__TABLE_OPTIONAL(2) },
		{ "DROPPED", true | POSTERN__TABLE_OPTIONAL(1) },
		{ "PARKED", true },
	};
	struct postern__column columns[10];
	size_t count = sizeof counts / sizeof counts[0];
	struct postern__table table;
	size_t index;
	json_t *row;
	bool stages = can_stage(channels);
	bool closed = any_closed(channels);
	memcpy(columns, counts, sizeof counts);
	if (stages) {
		columns[count++] = (struct postern__column){ "STAGED", true };
		columns[count++] = (struct postern__column){ "REFUSED", true };
	}
	if (closed) {
		columns[count++] = (struct postern__column){ "CLOSED", false };
	}
	begin_table(&table, columns, count, several);
	json_array_foreach(channels, index, row) {
		if (several) {
			postern__table_text(&table, postern__reply_text(row, "store"));
		}
		postern__table_text(&table, postern__reply_text(row, "name"));
		add_known(&table, row, "accepted");
		add_known(&table, row, "duplicates");
		add_known(&table, row, "conflicts");
		add_known(&table, row, "dropped");
		postern__table_count(&table, postern__reply_count(row, "parked"));
		if (stages) {
			postern__table_count(&table, postern__reply_count(row, "staged"));
			postern__table_count(&table, postern__reply_count(row, "refused"));
		}
		if (closed) {
			add_closed(&table, row);
		}
	}
	print(&table);
}

/* A count that is bad unless it is 0. */
static void add_count(struct postern__table *table, const json_t *row,
		const char *name) {
	char text[24];
	uint64_t count = postern__reply_count(row, name);
	(void)snprintf(text, sizeof text, "%llu", (unsigned long long)count);
	postern__table_coloured(table, text,
			count > 0 ? POSTERN__BAD : POSTERN__PLAIN);
}

/* How many deliveries a handler has now. */
static void print_handlers(const json_t *handlers, bool several) {
	static const struct postern__column columns[] = {
		{ "STORE", false },
		{ "HANDLER", POSTERN__TABLE_SHORTENED },
		{ "PENDING", true },
		{ "WAITING", true | POSTERN__TABLE_OPTIONAL(2) },
		{ "RETRYING", true | POSTERN__TABLE_OPTIONAL(1) },
		{ "QUEUED", true | POSTERN__TABLE_OPTIONAL(3) },
		{ "RUNNING", true },
		{ "STUCK", true },
		{ "POISONED", true },
		{ "OLDEST", false },
		{ "HELD", false },
	};
	const struct postern_clock *clock = postern_clock_system();
	int64_t now_ms = clock->wall_ms(clock->context);
	struct postern__table table;
	size_t index;
	json_t *row;
	begin_table(&table, columns, sizeof columns / sizeof columns[0], several);
	json_array_foreach(handlers, index, row) {
		struct postern__buf held;
		postern__buf_init(&held, POSTERN__HELD_TEXT_MAX);
		postern__held_text(row, &held);
		if (several) {
			postern__table_text(&table, postern__reply_text(row, "store"));
		}
		postern__table_text(&table, postern__reply_text(row, "key"));
		postern__table_count(&table, postern__reply_count(row, "pending"));
		postern__table_count(&table, postern__reply_count(row, "waiting"));
		postern__table_count(&table, postern__reply_count(row, "retrying"));
		postern__table_count(&table, postern__reply_count(row, "queued"));
		postern__table_count(&table, postern__reply_count(row, "running"));
		add_count(&table, row, "stuck");
		add_count(&table, row, "poisoned");
		postern__row_ago(&table, row, "oldest_open_at", now_ms);
		postern__table_coloured(&table,
				held.len > 0 ? postern__buf_text(&held) : NULL, POSTERN__WARM);
		postern__buf_finish(&held);
	}
	print(&table);
}

/* How many have ended, or were returned, since the store exists. */
static void print_history(const json_t *handlers, bool several) {
	static const struct postern__column columns[] = {
		{ "STORE", false },
		{ "HANDLER", POSTERN__TABLE_SHORTENED },
		{ "DONE", true },
		{ "DISCARDED", true },
		{ "RETURNED", true },
		{ "SINCE", false },
	};
	struct postern__table table;
	size_t index;
	json_t *row;
	begin_table(&table, columns, sizeof columns / sizeof columns[0], several);
	json_array_foreach(handlers, index, row) {
		if (several) {
			postern__table_text(&table, postern__reply_text(row, "store"));
		}
		postern__table_text(&table, postern__reply_text(row, "key"));
		add_known(&table, row, "done");
		add_known(&table, row, "discarded");
		add_known(&table, row, "returned");
		postern__table_text(&table, "the store exists");
	}
	print(&table);
}

/* A duration of the response, as how long ago or in how long. */
static void add_duration(struct postern__table *table, const json_t *row,
		const char *name, int64_t sign) {
	const json_t *span = json_object_get(row, name);
	char text[POSTERN__AGO_TEXT_MAX];
	if (!json_is_integer(span)) {
		postern__table_text(table, NULL);
		return;
	}
	int64_t ms = json_integer_value(span) * sign;
	postern__out_ago(ms > 0 ? ms : 0, ms < 0 ? -ms : 0, text);
	postern__table_text(table, text);
}

/* Whether the lease of a node has passed. The node that responds is live. */
static bool is_late(const json_t *row) {
	return json_integer_value(json_object_get(row, "left_ms")) < 0 &&
		   !json_is_true(json_object_get(row, "own"));
}

/* The flags of a node: "this,sleeping". The flags of a late node are out of
   date, so none but "late" is shown. */
static void add_flags(struct postern__table *table, const json_t *row) {
	static const char *const marks[][2] = {
		{ "own", "this" },
		{ "processor", "processor" },
		{ "sleeping", "sleeping" },
	};
	char text[64] = "";
	size_t len = 0;
	if (is_late(row)) {
		postern__table_coloured(table, "late", POSTERN__BAD);
		return;
	}
	for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
		if (json_is_true(json_object_get(row, marks[i][0]))) {
			len += (size_t)snprintf(text + len, sizeof text - len, "%s%s",
					len > 0 ? "," : "", marks[i][1]);
		}
	}
	postern__table_text(table, text);
}

static void print_nodes(const json_t *nodes, bool several) {
	static const struct postern__column columns[] = {
		{ "STORE", false },
		{ "NODE", false },
		{ "HOST", false },
		{ "PID", true },
		{ "LEASED", true },
		{ "RENEWED", false },
		{ "UNTIL", false },
		{ "STATE", false },
	};
	struct postern__table table;
	size_t index;
	json_t *row;
	begin_table(&table, columns, sizeof columns / sizeof columns[0], several);
	json_array_foreach(nodes, index, row) {
		if (several) {
			postern__table_text(&table, postern__reply_text(row, "store"));
		}
		postern__table_text(&table, postern__reply_text(row, "node"));
		postern__table_text(&table, postern__reply_text(row, "host"));
		postern__table_count(&table, postern__reply_count(row, "pid"));
		postern__table_count(&table, postern__reply_count(row, "leased"));
		add_duration(&table, row, "renewed_ago_ms", -1);
		add_duration(&table, row, "left_ms", 1);
		add_flags(&table, row);
	}
	print(&table);
}

static const char *state_of_source(const json_t *row) {
	if (!json_is_true(json_object_get(row, "running"))) {
		return "stopped";
	}
	if (json_is_true(json_object_get(row, "paused"))) {
		return "paused";
	}
	return json_is_true(json_object_get(row, "connected")) ? "connected"
														   : "disconnected";
}

static void print_sources(const json_t *sources, bool several) {
	static const struct postern__column columns[] = {
		{ "STORE", false },
		{ "SOURCE", false },
		{ "STATE", false },
		{ "LAG", true },
		{ "ACCEPTED", true },
		{ "DUPLICATES", true },
		{ "CONFLICTS", true | POSTERN__TABLE_OPTIONAL(1) },
		{ "REJECTED", true },
		{ "LAST ERROR", false },
	};
	struct postern__table table;
	size_t index;
	json_t *row;
	if (json_array_size(sources) == 0) {
		return;
	}
	(void)putchar('\n');
	begin_table(&table, columns, sizeof columns / sizeof columns[0], several);
	json_array_foreach(sources, index, row) {
		if (several) {
			postern__table_text(&table, postern__reply_text(row, "store"));
		}
		postern__table_text(&table, postern__reply_text(row, "name"));
		postern__table_text(&table, state_of_source(row));
		add_known(&table, row, "lag");
		postern__table_count(&table, postern__reply_count(row, "accepted"));
		postern__table_count(&table, postern__reply_count(row, "duplicates"));
		postern__table_count(&table, postern__reply_count(row, "conflicts"));
		postern__table_count(&table, postern__reply_count(row, "rejected"));
		postern__table_text(&table, postern__reply_text(row, "last_error"));
	}
	print(&table);
}

/* The address of each store that keeps markers only. */
static void print_markers(const json_t *stores) {
	size_t index;
	json_t *row;
	json_array_foreach(stores, index, row) {
		const char *url = postern__reply_text(row, "url");
		if (json_is_true(json_object_get(row, "markers_only"))) {
			postern__note_print("store '%s' (%s) keeps markers only",
					postern__reply_text(row, "name"), url ? url : "");
		}
	}
}

/* Whether any store keeps messages. */
static bool has_messages(const json_t *stores) {
	size_t index;
	json_t *row;
	json_array_foreach(stores, index, row) {
		if (!json_is_true(json_object_get(row, "markers_only"))) {
			return true;
		}
	}
	return json_array_size(stores) == 0;
}

static void print_tables(const json_t *stats, bool several) {
	const json_t *channels = json_object_get(stats, "channels");
	const json_t *handlers = json_object_get(stats, "handlers");
	const json_t *nodes = json_object_get(stats, "nodes");
	print_channels(channels, several);
	if (json_array_size(channels) > 0 && json_array_size(handlers) > 0) {
		(void)putchar('\n');
	}
	print_handlers(handlers, several);
	if (json_array_size(handlers) > 0) {
		(void)putchar('\n');
		print_history(handlers, several);
	}
	if (json_array_size(channels) == 0 && json_array_size(handlers) == 0) {
		postern__note_print("no message was accepted yet");
	} else if (json_array_size(nodes) > 0) {
		(void)putchar('\n');
	}
	print_nodes(nodes, several);
	print_sources(json_object_get(stats, "sources"), several);
}

static void print_notes(const json_t *stats) {
	size_t index;
	json_t *warning;
	print_markers(json_object_get(stats, "stores"));
	json_array_foreach(json_object_get(stats, "left"), index, warning) {
		postern__note_print("%s", postern__reply_text(warning, "text"));
	}
	json_array_foreach(json_object_get(stats, "warnings"), index, warning) {
		postern__note_print("warning: %s",
				postern__reply_text(warning, "text"));
	}
}

/* Whether any handler has pending deliveries for a reason that is not known
   here. */
static bool has_pending(const json_t *handlers) {
	size_t index;
	json_t *row;
	json_array_foreach(handlers, index, row) {
		if (postern__reply_count(row, "pending") > 0 &&
				!postern__reply_text(row, "held")) {
			return true;
		}
	}
	return false;
}

int postern__command_stats(struct postern__cli *cli) {
	const struct postern__request request = {
		.method = "GET",
		.path = "/v1/stats",
		.transport = "cli",
	};
	struct postern__client *client = NULL;
	json_t *stats = NULL;
	int r = postern__client_begin(cli, POSTERN__NEED_READ_ANY, &client);
	if (r == POSTERN__EXIT_OK) {
		r = postern__client_call(cli, client, &request, false, &stats);
	}
	if (r) {
		goto out;
	}
	if (cli->json) {
		postern__reply_print(stats);
		goto out;
	}
	if (has_messages(json_object_get(stats, "stores"))) {
		print_tables(stats, cli->store_count > 1);
	}
	print_notes(stats);
	if (postern__client_is_beside_servers(client) &&
			has_pending(json_object_get(stats, "handlers"))) {
		postern__client_note_held();
	}
out:
	json_decref(stats);
	postern__client_destroy(client);
	return r;
}
