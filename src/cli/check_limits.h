/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_CHECK_LIMITS_H
#define POSTERN_CLI_CHECK_LIMITS_H

/*
 * The limits of `postern check` for monitoring: how many deliveries may be
 * poisoned, and how old a pending one may be.
 */

#include <postern/inspect.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"

struct postern__limits {
	bool has_poisoned; /* --max-poisoned */
	uint64_t poisoned_max;
	bool has_age; /* --max-age */
	int64_t age_ms_max;
};

/* Receives a limit that is exceeded. */
typedef void postern__limits_report(void *context, const char *text);

/* Read the flags. Returns POSTERN__EXIT_OK, or POSTERN__EXIT_USAGE after
   printing why. */
int postern__limits_read(const struct postern__cli *cli,
		struct postern__limits *out);

/* Compare the counts of a store with the limits. */
void postern__limits_check(const struct postern__limits *limits,
		const struct postern_stats *stats, postern__limits_report *report,
		void *context);

#endif
