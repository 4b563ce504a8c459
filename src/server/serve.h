/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_SERVE_H
#define POSTERN_SERVER_SERVE_H

/*
 * `postern serve`: the stores, their runners and the sockets, from a
 * configuration to a signal.
 */

#include <stdbool.h>

#include "server/config.h"

/* Zero it and set what you have. Borrowed for the call. */
struct postern__serve_options {
	/* Where the configuration comes from, `demo` included. */
	struct postern__config_input config;
	/* Logs are text on a terminal and JSON lines elsewhere, unless told. */
	enum postern__serve_log {
		POSTERN__SERVE_LOG_AUTO = 0,
		POSTERN__SERVE_LOG_TEXT,
		POSTERN__SERVE_LOG_JSON
	} log;
	bool verbose;        /* also what only a developer wants to know */
	const char *program; /* in hints of what to try; NULL: "postern" */
};

/*
 * Serve until SIGTERM or SIGINT, then let what runs finish within
 * shutdown_grace. A second signal stops at once.
 *
 * Everything is said on stderr. The process is taken over: signals are
 * blocked or ignored and not restored. Call it from the only thread, with the
 * standard descriptors open: a file of the store must not become stderr.
 *
 * Returns the exit code: 0 after a stop that was asked for, 2 for the
 * configuration, 4 if the store cannot be reached or belongs to another
 * process, 1 otherwise.
 */
int postern__serve(const struct postern__serve_options *options);

#endif
