/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_EVENT_LOG_H
#define POSTERN_SERVER_EVENT_LOG_H

/*
 * Logs the events of a store's box: failures, poisoned deliveries, conflicts,
 * stale settlements, and errors of the store. Frequent events are rate limited.
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

/* For postern_box_subscribe(), remark and trouble; the context is the
   event log. */
void postern__event_log_event(void *context, const struct postern_event *event);
void postern__event_log_remark(void *context, const char *text);
void postern__event_log_trouble(void *context, const char *text);

#endif
