/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_OWN_H
#define POSTERN_CLI_OWN_H

/*
 * For commands that need the store for themselves: init, migrate, process.
 */

#include <postern/box.h>

#include "base/redact.h"

struct postern__cli;
struct postern__config_store;

/*
 * Options as the configuration has them, with remarks said on stderr, and
 * without letting a command decide about orphans: that is a runner's.
 */
void postern__own_options(const struct postern__config_store *store,
		struct postern_box_options *out);

/* The store for people, without secrets: its URL, and in brackets the schema if
   the URL does not say it. */
#define POSTERN__OWN_LABEL_MAX (POSTERN__REDACT_TEXT_MAX + 80)
void postern__own_label(const struct postern__config_store *store,
		char out[POSTERN__OWN_LABEL_MAX]);

/*
 * Open a store for this process alone, waiting if another command has it.
 * Never through a server.
 *
 * Returns POSTERN__EXIT_OK, or another exit status having said why.
 */
int postern__own_box(const struct postern__cli *cli,
		const struct postern__config_store *store,
		const struct postern_box_options *options, struct postern_box **out);

#endif
