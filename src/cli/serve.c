/* SPDX-License-Identifier: MIT */
/*
 * `postern serve`: flags to options; the rest is the server's.
 */

#include "server/serve.h"

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"

int postern__run_serve(struct postern__cli *cli) {
	struct postern__config_flag flags[POSTERN__ARGS_MAX];
	struct postern__serve_options options = {
		.log = cli->json ? POSTERN__SERVE_LOG_JSON : POSTERN__SERVE_LOG_AUTO,
		.verbose = postern__args_has(&cli->args, "verbose"),
	};
	postern__cli_input(cli, flags, &options.config);
	options.config.demo = postern__args_has(&cli->args, "demo");
	if (options.config.demo && options.config.path) {
		return postern__cli_usage(cli,
				"--demo brings its own configuration: leave out -c");
	}
	return postern__serve(&options);
}
