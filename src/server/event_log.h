/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_EVENT_LOG_H
#define POSTERN_SERVER_EVENT_LOG_H

/*
 * The log as a subscriber of a store's box: a line for each event, with its
 * name, its level and its fields. Events of messages, deliveries and handlers
 * are rate limited.
 */

#include <postern/box.h>
#include <postern/event.h>
#include <pthread.h>

#include "server/log.h"

struct postern__event_log {
	struct postern__log *log;
	const char *store; /* its name; NULL: there is but one */
	pthread_mutex_t mutex;
	struct postern__log_limit limit; /* under the mutex */
};

void postern__event_log_init(struct postern__event_log *self,
		struct postern__log *log, const char *store);
void postern__event_log_finish(struct postern__event_log *self);

/* Log how many lines were suppressed, if no other line did. To be called about
   once a second. */
void postern__event_log_flush(struct postern__event_log *self);

/* A postern_listener; the context is the event log. */
void postern__event_log_event(void *context, const struct postern_event *event);

/* Log a line of the server about this store. */
void postern__event_log_line(struct postern__event_log *self,
		enum postern__log_line line, const char *message);

#endif
