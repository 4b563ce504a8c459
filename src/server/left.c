/* SPDX-License-Identifier: MIT */

/*
 * A store keeps the channels and handlers that it ever had. They have left the
 * configuration if none of their names or keys is configured any more: what is
 * open for them waits, and somebody has to know.
 */

#include "server/left.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool postern__left_channel(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_stats *stats,
		const struct postern_channel_stats *channel) {
	bool configured = channel->nodes > 0;
	for (size_t i = 0; !configured && i < stats->name_count; i++) {
		const struct postern__config_channel *known =
				strcmp(stats->names[i].channel, channel->name) == 0
						? postern__config_channel_named(config,
								  stats->names[i].name)
						: NULL;
		configured = known && known->store == store;
	}
	return !configured;
}

bool postern__config_lacks_handler(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_stats *stats,
		const struct postern_handler_stats *handler) {
	bool configured = false;
	for (size_t i = 0; !configured && i < stats->key_count; i++) {
		const struct postern__config_handler *known =
				strcmp(stats->keys[i].handler, handler->key) == 0
						? postern__config_handler_named(config,
								  stats->keys[i].key)
						: NULL;
		configured = known && known->values.store == store->values.store;
	}
	return !configured;
}

bool postern__left_handler(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_stats *stats,
		const struct postern_handler_stats *handler) {
	bool keeps = handler->pending + handler->leased + handler->poisoned > 0;
	return keeps && handler->nodes == 0 &&
		   postern__config_lacks_handler(config, store, stats, handler);
}

void postern__left_channel_text(const struct postern_channel_stats *channel,
		char out[POSTERN__LEFT_TEXT_MAX]) {
	(void)snprintf(out, POSTERN__LEFT_TEXT_MAX,
			"channel '%s' is not in the configuration any more: %" PRIu64
			" message%s parked",
			channel->name, channel->parked,
			channel->parked == 1 ? " is" : "s are");
}

void postern__left_handler_text(const struct postern_handler_stats *handler,
		char out[POSTERN__LEFT_TEXT_MAX]) {
	uint64_t open = handler->pending + handler->leased;
	(void)snprintf(out, POSTERN__LEFT_TEXT_MAX,
			"handler '%s' is not in the configuration any more: %" PRIu64
			" deliver%s open, %" PRIu64 " poisoned",
			handler->key, open, open == 1 ? "y is" : "ies are",
			handler->poisoned);
}
