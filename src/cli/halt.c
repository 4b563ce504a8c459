/* SPDX-License-Identifier: MIT */
/*
 * `postern pause` and `postern resume`, `postern channel close` and `open`.
 */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/percent.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "cli/words.h"
#include "server/api.h"

struct halting {
	const char *root; /* of the path */
	const char *verb;
	const char *past;
	const char *limits; /* of the name, for the error */
};

/* The body of the request, yours to free(). NULL: the reason was printed. */
static char *make_body(const struct postern__cli *cli) {
	const char *span = postern__args_value(&cli->args, "for");
	json_t *json = postern__words(cli);
	if (!json) {
		return NULL;
	}
	struct postern_error error;
	int64_t ms = 0;
	char *body = NULL;
	if (span && postern__duration_parse(span, &ms, &error)) {
		(void)postern__cli_usage(cli, "--for: %s", error.text);
	} else if (span && ms == 0) {
		(void)postern__cli_usage(cli,
				"--for: a pause without an end has no --for");
	} else if (span && json_object_set_new(json, "for", json_string(span))) {
		(void)postern__cli_usage(cli, "--for is not valid UTF-8");
	} else {
		body = json_dumps(json, JSON_COMPACT);
	}
	json_decref(json);
	return body;
}

static int halt(struct postern__cli *cli, const struct halting *halting,
		const char *name) {
	struct postern__client *client = NULL;
	struct postern__buf path;
	json_t *answer = NULL;
	char *body = make_body(cli);
	int r = body ? POSTERN__EXIT_OK : POSTERN__EXIT_USAGE;
	postern__buf_init(&path, POSTERN__API_PATH_LEN_MAX);
	postern__buf_append_text(&path, halting->root);
	postern__percent_segment(&path, name);
	postern__buf_printf(&path, "/%s", halting->verb);
	if (!r && (!*name || postern__buf_check(&path, "the name", NULL))) {
		r = postern__cli_usage(cli, "%s", halting->limits);
	}
	if (!r) {
		r = postern__client_begin(cli, POSTERN__NEED_WRITE, &client);
	}
	if (r) {
		goto out;
	}
	const struct postern_header type = { "Content-Type", "application/json" };
	const struct postern__request request = {
		.method = "POST",
		.path = postern__buf_text(&path),
		.transport = "cli",
		.headers = &type,
		.header_count = 1,
		.body = body,
		.body_len = strlen(body),
	};
	r = postern__client_call(cli, client, &request, false, &answer);
	if (r) {
		goto out;
	}
	if (cli->json) {
		postern__reply_print(answer);
	} else {
		(void)printf("%s ", halting->past);
		postern__out_text(name);
		(void)putchar('\n');
	}
	r = postern__reply_failures(cli, answer);
out:
	free(body);
	json_decref(answer);
	postern__buf_finish(&path);
	postern__client_destroy(client);
	return r;
}

#define HANDLERS "/v1/handlers/"
#define KEY_LIMITS "a handler key must have 1 to 200 bytes"

int postern__command_pause(struct postern__cli *cli) {
	static const struct halting pause = { HANDLERS, "pause", "paused",
		KEY_LIMITS };
	return halt(cli, &pause, postern__args_operand(&cli->args, 0));
}

int postern__command_resume(struct postern__cli *cli) {
	static const struct halting resume = { HANDLERS, "resume", "resumed",
		KEY_LIMITS };
	return halt(cli, &resume, postern__args_operand(&cli->args, 0));
}

int postern__command_channel(struct postern__cli *cli) {
	static const struct halting verbs[] = {
		{ "/v1/channels/", "close", "closed", "the channel has no name" },
		{ "/v1/channels/", "open", "opened", "the channel has no name" },
	};
	const char *verb = postern__args_operand(&cli->args, 0);
	for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
		if (strcmp(verb, verbs[i].verb) == 0) {
			return halt(cli, &verbs[i], postern__args_operand(&cli->args, 1));
		}
	}
	return postern__cli_usage(cli, "'%s' is neither 'close' nor 'open'", verb);
}
