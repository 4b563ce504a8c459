/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_CONFIG_DIGEST_H
#define POSTERN_SERVER_CONFIG_DIGEST_H

/*
 * Digests of what a configuration says of a handler or a channel: equal if
 * every effective option is. `postern check` compares those of a file with
 * those of a running server.
 *
 * A digest has only 32 bits, so that nobody can read a secret out of it.
 */

#include <stdint.h>

#include "server/config.h"

uint32_t postern__config_handler_digest(
		const struct postern__config_handler *handler);
/* Without its handlers, which have digests of their own. */
uint32_t postern__config_channel_digest(
		const struct postern__config_channel *channel);

typedef void postern__config_fixed_each(void *context, const char *name,
		uint32_t digest);
/*
 * What a server cannot change while it runs: `each` is called for each option
 * that a file may set, for the sources and TLS. Without what
 * a flag or a variable has set, because a file does not change it; of paths the
 * file's name only, because a command may run in another directory.
 */
void postern__config_fixed(const struct postern__config *config,
		postern__config_fixed_each *each, void *context);

#endif
