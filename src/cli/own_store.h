/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_OWN_STORE_H
#define POSTERN_CLI_OWN_STORE_H

/*
 * For commands that need to own the store: init, migrate, process.
 */

#include <postern/box.h>

#include "base/redact.h"

struct postern__cli;
struct postern__config_store;

/*
 * The options of the configuration, with notices printed on stderr. Orphaned
 * deliveries are left to the runner.
 */
void postern__own_store_options(const struct postern__config_store *store,
		struct postern_box_options *out);

/* The store for people, without secrets: its URL, and in brackets the schema if
   the URL does not contain it. */
#define POSTERN__OWN_LABEL_MAX (POSTERN__REDACT_TEXT_MAX + 80)
void postern__own_store_label(const struct postern__config_store *store,
		char out[POSTERN__OWN_LABEL_MAX]);

/*
 * Open a store exclusively; wait if another command owns it. A server is never
 * used.
 *
 * Returns POSTERN__EXIT_OK, or another exit status after printing why.
 */
int postern__own_store_open(const struct postern__cli *cli,
		const struct postern__config_store *store,
		const struct postern_box_options *options, struct postern_box **out);

#endif
