/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_LEFT_H
#define POSTERN_SERVER_LEFT_H

/*
 * Channels and handlers that a store has and that have left its configuration.
 */

#include <postern/inspect.h>

#include "server/config.h"

#define POSTERN__LEFT_TEXT_MAX 512

/* Whether no configured channel of the store has a name of this stored one, and
   no other running node has it. */
bool postern__left_channel(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_stats *stats,
		const struct postern_channel_stats *channel);
/* Whether no configured handler of the store has a key of this stored one. */
bool postern__config_lacks_handler(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_stats *stats,
		const struct postern_handler_stats *handler);
/* The same, and no other running node has it. */
bool postern__left_handler(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_stats *stats,
		const struct postern_handler_stats *handler);

/* A sentence that says what is still open for it. */
void postern__left_channel_text(const struct postern_channel_stats *channel,
		char out[POSTERN__LEFT_TEXT_MAX]);
void postern__left_handler_text(const struct postern_handler_stats *handler,
		char out[POSTERN__LEFT_TEXT_MAX]);

#endif
