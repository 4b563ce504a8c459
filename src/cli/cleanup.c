/* SPDX-License-Identifier: MIT */
/*
 * `postern cleanup`: removes expired messages and ids now. Each store is a
 * request of its own, so that one that cannot be opened does not affect the
 * others.
 */

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "server/api.h"
#include "server/store_open.h"

/* "removed 3 messages and 1 remembered id", for each store. */
static void print_store(const struct postern__cli *cli, const json_t *row) {
	uint64_t messages = postern__reply_count(row, "messages");
	uint64_t keys = postern__reply_count(row, "keys");
	if (json_object_get(row, "error")) {
		return; /* the error was printed */
	}
	if (postern__config_store_count(cli->config) > 1) {
		postern__out_text(postern__reply_text(row, "store"));
		(void)fputs(": ", stdout);
	}
	(void)printf("removed %" PRIu64 " message%s and %" PRIu64
				 " remembered id%s\n",
			messages, messages == 1 ? "" : "s", keys, keys == 1 ? "" : "s");
	if (json_is_true(json_object_get(row, "busy"))) {
		postern__err_print("note: another process is cleaning up");
	} else if (json_is_false(json_object_get(row, "complete"))) {
		postern__err_print(
				"note: the server is stopping; some expired messages were "
				"not removed");
	}
}

/* Add a counter of one store to the total. */
static void add_count(json_t *total, const char *name, const json_t *answer) {
	json_int_t sum = json_integer_value(json_object_get(total, name)) +
					 (json_int_t)postern__reply_count(answer, name);
	(void)json_object_set_new(total, name, json_integer(sum));
}

/* Clean up the one store of the cli; the result is added to the total. */
static int clean_store(struct postern__cli *cli, json_t *total) {
	const struct postern__request request = {
		.method = "POST",
		.path = "/v1/cleanup",
		.transport = "cli",
	};
	struct postern__client *client = NULL;
	struct postern__reply answer = { .json = NULL };
	json_t *rows = json_object_get(total, "stores");
	int r = postern__client_begin(cli, POSTERN__NEED_CLEANUP, &client);
	if (r == POSTERN__EXIT_OK) {
		r = postern__client_call_any(cli, client, &request, false, &answer);
	}
	if (r == POSTERN__EXIT_OK && answer.status > 299) {
		r = postern__reply_problem(cli, &answer);
	}
	const json_t *theirs = json_object_get(answer.json, "stores");
	if (theirs) {
		(void)json_array_extend(rows, (json_t *)theirs);
	} else {
		(void)json_array_append_new(rows,
				json_pack("{s:s, s:s}", "store", cli->stores[0]->name, "error",
						"the store cannot be reached"));
	}
	add_count(total, "messages", answer.json);
	add_count(total, "keys", answer.json);
	json_decref(answer.json);
	postern__client_destroy(client);
	return r;
}

/* Whether a server is running, which has the stores in memory. */
static bool is_served(const struct postern__config *config) {
	for (size_t i = 0; i < postern__config_store_count(config); i++) {
		if (postern__store_has_server(
					postern__config_store(config, i)->values.store)) {
			return true;
		}
	}
	return false;
}

/* Clean up one store after the other, so that a failure of one does not affect
   the others. */
static int clean_all(struct postern__cli *cli, json_t *total) {
	const size_t count = cli->store_count;
	const struct postern__config_store *stores[POSTERN__STORE_COUNT_MAX];
	bool served = is_served(cli->config);
	int worst = POSTERN__EXIT_OK;
	memcpy(stores, cli->stores, sizeof stores);
	cli->store_count = 1;
	for (size_t i = 0; i < count; i++) {
		if (count > 1 && !served &&
				!postern__store_is_durable(stores[i]->values.store)) {
			continue;
		}
		if (!postern__store_keeps_messages(stores[i]->values.store)) {
			continue;
		}
		cli->stores[0] = stores[i];
		int r = clean_store(cli, total);
		worst = worst ? worst : r;
	}
	memcpy(cli->stores, stores, sizeof stores);
	cli->store_count = count;
	return worst;
}

/* Whether any channel or handler has a retention; without one nothing
   expires. */
static bool has_retention(const struct postern__config *config) {
	bool found = false;
	for (size_t i = 0; !found && i < postern__config_channel_count(config);
			i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		found = channel->values.retention_payload_ms > 0;
		for (size_t j = 0; !found && j < channel->handler_count; j++) {
			found = postern__config_dedupe_ms(&channel->handlers[j]) > 0;
		}
	}
	return found;
}

int postern__command_cleanup(struct postern__cli *cli) {
	int r = postern__cli_configure(cli);
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_need_files(cli, false, false);
	}
	if (r) {
		return r;
	}
	json_t *total =
			json_pack("{s:i, s:i, s:[]}", "messages", 0, "keys", 0, "stores");
	if (!total) {
		postern__err_print("out of memory");
		return POSTERN__EXIT_FAILED;
	}
	r = clean_all(cli, total);
	size_t index;
	json_t *row;
	if (cli->json) {
		postern__reply_print(total);
		goto out;
	}
	json_array_foreach(json_object_get(total, "stores"), index, row) {
		print_store(cli, row);
	}
	if (r == POSTERN__EXIT_OK && !cli->server && !has_retention(cli->config)) {
		postern__err_print(
				"note: no channel or handler of the configuration has a "
				"'retention', so nothing expires");
	}
out:
	json_decref(total);
	return r;
}
