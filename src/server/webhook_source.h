/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_WEBHOOK_SOURCE_H
#define POSTERN_SERVER_WEBHOOK_SOURCE_H

/*
 * The source `webhook`: requests of a sender who signs them. It has no
 * connection of its own: api_webhook.c passes it what the HTTP server receives,
 * and the response waits for the completion. As every source it has a sink, so
 * it is counted, drained and shown like the others.
 */

#include <postern/box.h>
#include <stddef.h>

#include "server/webhook_settings.h"

struct postern_runner;
struct postern_source;

/* Register the kind, once in a process. */
void postern__webhook_source_register(void);

/* The source of this name that feeds a channel; NULL: there is none. It is
   valid as long as the runner. */
struct postern__webhook_source *
postern__webhook_source_find(const struct postern_runner *runner,
		const char *channel, const char *name);

const struct postern__webhook_settings *postern__webhook_source_settings(
		const struct postern__webhook_source *source);

/* Count and log a request that is refused. */
void postern__webhook_source_refuse(struct postern__webhook_source *source,
		const char *why);

enum postern__webhook_taken {
	POSTERN__WEBHOOK_TAKEN,
	POSTERN__WEBHOOK_FULL,   /* too many messages wait to be stored */
	POSTERN__WEBHOOK_STOPPED /* the server stops, or has not started */
};

/* Accept a message, which is copied. If it is taken, `done` is called exactly
   once, on another thread or on this one. */
enum postern__webhook_taken
postern__webhook_source_accept(struct postern__webhook_source *source,
		const struct postern_message *message, postern_accepted *done,
		void *context);

#endif
