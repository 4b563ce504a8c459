/* SPDX-License-Identifier: MIT */
/*
 * A change of a marker is a request of the API, which a server answers or this
 * process.
 */

#include "cli/marks.h"

#include <inttypes.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "server/api.h"

int postern__marks_begin(struct postern__cli *cli) {
	int r = postern__cli_configure(cli);
	if (r == POSTERN__EXIT_OK && !cli->markers_url) {
		r = postern__cli_need_files(cli, true, false);
	}
	if (r == POSTERN__EXIT_OK && cli->store_count > 1) {
		cli->store_count = 1; /* every kind of store keeps markers */
	}
	return r;
}

uint64_t postern__marks_fence(void) {
	const struct postern_random *random = postern_random_system();
	uint64_t fence = 0;
	while (fence == 0) {
		fence = random->next(random->context) >> 1;
	}
	return fence;
}

int postern__marks_duplicate_exit(const struct postern__cli *cli,
		unsigned long *out) {
	*out = 0;
	return postern__cli_count(cli, "duplicate-exit", 0, 255, out);
}

/* The order as JSON, yours to free(). NULL: it was refused. */
static char *write_order(const struct postern__cli *cli,
		const struct postern__marks_order *order) {
	char fence[24] = "";
	if (order->fence) {
		(void)snprintf(fence, sizeof fence, "%" PRIu64, order->fence);
	}
	const struct {
		const char *name;
		const char *value;
	} members[] = {
		{ "do", order->verb },
		{ "handler", order->handler },
		{ "key", order->key },
		{ "fence", *fence ? fence : NULL },
		{ "lease", order->lease },
		{ "older_than", order->older_than },
	};
	json_t *json = json_object();
	char *text = NULL;
	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
		if (members[i].value && json_object_set_new(json, members[i].name,
										json_string(members[i].value))) {
			(void)postern__cli_usage(cli, "the %s is not valid UTF-8",
					members[i].name);
			goto out;
		}
	}
	text = json_dumps(json, JSON_COMPACT);
	if (!text) {
		postern__err_print("out of memory");
	}
out:
	json_decref(json);
	return text;
}

int postern__marks_change(struct postern__cli *cli,
		const struct postern__marks_order *order, int *status_out,
		json_t **out) {
	static const struct postern_header type = { "Content-Type",
		"application/json" };
	struct postern__client *client = NULL;
	struct postern__reply answer = { .json = NULL };
	bool reads = strcmp(order->verb, "has") == 0;
	char *body = write_order(cli, order);
	int r = POSTERN__EXIT_USAGE;
	if (!body) {
		return r;
	}
	r = postern__client_begin(cli,
			reads ? POSTERN__NEED_READ_ANY : POSTERN__NEED_MARK, &client);
	if (r) {
		goto out;
	}
	const struct postern__request request = {
		.method = "POST",
		.path = "/v1/marks",
		.transport = "cli",
		.headers = &type,
		.header_count = 1,
		.body = body,
		.body_len = strlen(body),
	};
	r = postern__client_call_any(cli, client, &request, false, &answer);
	if (r) {
		goto out;
	}
	bool lost = status_out && answer.status == 409;
	if (answer.status != 200 && !lost) {
		r = postern__reply_problem(cli, &answer);
		json_decref(answer.json);
		goto out;
	}
	if (status_out) {
		*status_out = answer.status;
	}
	*out = answer.json;
out:
	free(body);
	postern__client_destroy(client);
	return r;
}
