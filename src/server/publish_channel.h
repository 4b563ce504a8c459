/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_PUBLISH_CHANNEL_H
#define POSTERN_SERVER_PUBLISH_CHANNEL_H

#include <postern/sys/handler.h>

struct postern__config;

/* The settings of the handler kind "publish_channel". */
struct postern__publish_channel {
	const char *channel;
};

extern const struct postern_handler_kind postern__publish_channel_kind;

/* Adds the kind to this process; before a configuration is read. */
void postern__publish_channel_register(void);

/* config_publish.c: reports handlers that publish to a channel that does not
   exist, that is of another store, or from which messages would come back. */
void postern__config_publish_check(struct postern__config *config);

#endif
