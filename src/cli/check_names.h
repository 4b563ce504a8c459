/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_CHECK_NAMES_H
#define POSTERN_CLI_CHECK_NAMES_H

/*
 * Compares the names of channels in a configuration with those that a store
 * has: what `serve` would refuse, and renames without former_names.
 */

#include <postern/inspect.h>

#include "server/config.h"

/* Receives a sentence; code POSTERN_OK: it is no error. */
typedef void postern__names_report(void *context, int code, const char *text);

void postern__names_check(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_stats *stats, postern__names_report *report,
		void *context);

#endif
