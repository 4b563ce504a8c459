/* SPDX-License-Identifier: MIT */
/*
 * `postern serve`: converts flags to options; the server does the rest.
 */

#include "server/serve.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"

int postern__command_serve(struct postern__cli *cli) {
	struct postern__config_flag flags[POSTERN__ARGS_MAX];
	struct postern__serve_options options = {
		.log = cli->json ? POSTERN__SERVE_LOG_JSON : POSTERN__SERVE_LOG_AUTO,
		.verbose = postern__args_has(&cli->args, "verbose"),
	};
	postern__cli_input(cli, flags, &options.config);
	options.config.demo = postern__args_has(&cli->args, "demo");
	if (options.config.demo && options.config.path) {
		return postern__cli_usage(cli,
				"--demo has its own configuration: remove -c");
	}
	/* For hints that can be pasted in any directory. */
	char *path =
			strchr(cli->program, '/') ? realpath(cli->program, NULL) : NULL;
	options.program = path ? path : cli->program;
	int status = postern__serve(&options);
	free(path);
	return status;
}
