/* SPDX-License-Identifier: MIT */
/*
 * Taking the store. If a server has it there is no sense in waiting, and the
 * text says that it is one: the process it names is to be stopped first.
 */

#include "cli/own.h"

#include <stddef.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/patience.h"
#include "server/config.h"
#include "server/socket.h"

static void say_remark(void *context, const char *text) {
	(void)context;
	postern__say("note: %s", text);
}

void postern__own_options(const struct postern__cli *cli,
		struct postern_box_options *out) {
	postern__config_box_options(cli->config, out);
	out->orphans = POSTERN_ORPHANS_HOLD;
	out->remark = say_remark;
}

static bool server_answers(const struct postern__cli *cli) {
	struct postern__socket socket;
	const char *file = postern__cli_store_file(cli);
	if (!file) {
		return false;
	}
	bool answers = postern__socket_init(&socket, file, NULL) == POSTERN_OK &&
				   postern__socket_answers(&socket);
	postern__socket_finish(&socket);
	return answers;
}

int postern__own_box(const struct postern__cli *cli,
		const struct postern_box_options *options, struct postern_box **out) {
	struct postern__patience patience;
	struct postern_error error;
	postern__patience_init(&patience);
	for (;;) {
		int r = postern_box_open(postern__cli_store(cli), options, out, &error);
		if (r == POSTERN_OK) {
			return POSTERN__EXIT_OK;
		}
		if (r == POSTERN_E_BUSY && server_answers(cli)) {
			postern__say("%s: a server is running: %s; stop it first",
					cli->command->name, error.text);
			return POSTERN__EXIT_UNREACHABLE;
		}
		if (r != POSTERN_E_BUSY || !postern__patience_wait(&patience)) {
			return postern__say_error(cli, &error);
		}
	}
}
