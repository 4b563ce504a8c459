/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_SERVE_H
#define POSTERN_SERVER_SERVE_H

/*
 * `postern serve`: the stores, their runners and the sockets, from a
 * configuration to a signal.
 */

#include <stdbool.h>

#include "server/config.h"

/* Zero it and set members. Borrowed for the call. */
struct postern__serve_options {
	/* Where the configuration comes from, `demo` included. */
	struct postern__config_input config;
	/* Logs are text on a terminal and JSON lines elsewhere, unless set. */
	enum postern__serve_log {
		POSTERN__SERVE_LOG_AUTO = 0,
		POSTERN__SERVE_LOG_TEXT,
		POSTERN__SERVE_LOG_JSON
	} log;
	bool verbose;        /* also log debug lines */
	const char *program; /* in hints of what to try; NULL: "postern" */
};

/*
 * Serve until SIGTERM or SIGINT, then let running handlers finish within
 * shutdown_grace. A second signal stops at once.
 *
 * Everything is logged on stderr. The function changes the process: signals are
 * blocked or ignored and not restored. Call it from the only thread, with the
 * standard descriptors open: a file of the store must not become stderr.
 *
 * Returns the exit code: 0 after a requested stop, 2 for an error of the
 * configuration, 4 if the store cannot be reached or another process owns it, 1
 * otherwise.
 */
int postern__serve(const struct postern__serve_options *options);

#endif
