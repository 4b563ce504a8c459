/* SPDX-License-Identifier: MIT */
/*
 * `postern cleanup`: remove now what has expired.
 */

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "server/api.h"

/* "removed 3 messages and 1 remembered id", for each store. */
static void print_store(const struct postern__cli *cli, const json_t *row) {
	uint64_t messages = postern__answer_count(row, "messages");
	uint64_t keys = postern__answer_count(row, "keys");
	if (postern__config_store_count(cli->config) > 1) {
		postern__out_text(postern__answer_text(row, "store"));
		(void)fputs(": ", stdout);
	}
	(void)printf("removed %" PRIu64 " message%s and %" PRIu64
				 " remembered id%s\n",
			messages, messages == 1 ? "" : "s", keys, keys == 1 ? "" : "s");
	if (json_is_true(json_object_get(row, "busy"))) {
		postern__say("note: somebody else is cleaning up");
	}
}

/* Nothing can expire where nothing is said to. */
static bool has_retention(const struct postern__config *config) {
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		if (postern__config_channel(config, i)->values.retention_payload_ms >
				0) {
			return true;
		}
	}
	return false;
}

int postern__command_cleanup(struct postern__cli *cli) {
	const struct postern__request request = {
		.method = "POST",
		.path = "/v1/cleanup",
		.transport = "cli",
	};
	struct postern__client *client = NULL;
	json_t *answer = NULL;
	int r = postern__client_begin(cli, POSTERN__NEED_CLEANUP, &client);
	if (r == POSTERN__EXIT_OK) {
		r = postern__ask(cli, client, &request, false, &answer);
	}
	if (r) {
		goto out;
	}
	if (cli->json) {
		postern__answer_print(answer);
		goto out;
	}
	size_t index;
	json_t *row;
	json_array_foreach(json_object_get(answer, "stores"), index, row) {
		print_store(cli, row);
	}
	if (!has_retention(cli->config)) {
		postern__say("note: no channel of the configuration has a "
					 "'retention', so everything is kept for good");
	}
out:
	json_decref(answer);
	postern__client_destroy(client);
	return r;
}
