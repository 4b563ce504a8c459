/* SPDX-License-Identifier: MIT */
/*
 * `postern pause` and `postern resume`.
 */

#include <jansson.h>
#include <stdio.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "server/api.h"
#include "server/percent.h"

static int pause_or_resume(struct postern__cli *cli, const char *verb,
		const char *past) {
	const char *key = postern__args_operand(&cli->args, 0);
	struct postern__client *client = NULL;
	struct postern__buf path;
	json_t *answer = NULL;
	postern__buf_init(&path, POSTERN__API_PATH_LEN_MAX);
	postern__buf_append_text(&path, "/v1/handlers/");
	postern__percent_segment(&path, key);
	postern__buf_printf(&path, "/%s", verb);
	int r = POSTERN__EXIT_OK;
	if (!*key || postern__buf_check(&path, "the key", NULL)) {
		r = postern__cli_usage(cli, "a handler key must have 1 to 200 bytes");
		goto out;
	}
	r = postern__client_begin(cli, POSTERN__NEED_WRITE, &client);
	if (r) {
		goto out;
	}
	const struct postern__request request = {
		.method = "POST",
		.path = postern__buf_text(&path),
		.transport = "cli",
	};
	r = postern__client_call(cli, client, &request, false, &answer);
	if (r) {
		goto out;
	}
	if (cli->json) {
		postern__reply_print(answer);
	} else {
		(void)printf("%s ", past);
		postern__out_text(key);
		(void)putchar('\n');
	}
	r = postern__reply_failures(cli, answer);
out:
	json_decref(answer);
	postern__buf_finish(&path);
	postern__client_destroy(client);
	return r;
}

int postern__command_pause(struct postern__cli *cli) {
	return pause_or_resume(cli, "pause", "paused");
}

int postern__command_resume(struct postern__cli *cli) {
	return pause_or_resume(cli, "resume", "resumed");
}
