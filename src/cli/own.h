/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_OWN_H
#define POSTERN_CLI_OWN_H

/*
 * For commands that need the store for themselves: init, migrate, process.
 */

#include <postern/box.h>

struct postern__cli;
struct postern__config_store;

/*
 * Options as the configuration has them, with remarks said on stderr, and
 * without letting a command decide about orphans: that is a runner's.
 */
void postern__own_options(const struct postern__config_store *store,
		struct postern_box_options *out);

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
