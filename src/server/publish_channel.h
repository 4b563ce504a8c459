/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_PUBLISH_CHANNEL_H
#define POSTERN_SERVER_PUBLISH_CHANNEL_H

#include <postern/sys/handler.h>

struct postern__config;
struct postern__stores;

/* The settings of the handler kind "publish_channel". */
struct postern__publish_channel {
	const char *channel;
};

/* The settings of the kind that takes its place if the channel is in another
   store. */
struct postern__publish_elsewhere {
	const char *channel;
	const char *store;
	/* Where the open stores are, once they are; NULL there: this is no server.
	   Must stay valid as long as handlers run. */
	const struct postern__stores *const *stores;
};

extern const struct postern_handler_kind postern__publish_channel_kind;
extern const struct postern_handler_kind postern__publish_elsewhere_kind;

/* Adds both kinds to this process; before a configuration is read. */
void postern__publish_channel_register(void);

/* config_publish.c: reports handlers that publish to a channel that does not
   exist, or from which messages would come back; those that publish to another
   store get their kind. */
void postern__config_publish_check(struct postern__config *config);

#endif
