/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_WATCH_H
#define POSTERN_SERVER_WATCH_H

/*
 * From what happens in a store's box to lines in the log: failures, poisonings,
 * conflicts, results that came too late, and trouble of the store. What
 * happens thousands of times a second is not written thousands of times.
 */

#include <postern/box.h>
#include <postern/event.h>
#include <pthread.h>

#include "server/log.h"

struct postern__watch {
	struct postern__log *log;
	const char *store; /* its name; NULL: there is but one */
	pthread_mutex_t mutex;
	struct postern__log_limit limit; /* under the mutex */
};

void postern__watch_init(struct postern__watch *watch, struct postern__log *log,
		const char *store);
void postern__watch_finish(struct postern__watch *watch);

/* Say what was left out, if nothing else makes us say it. To be called about
   once a second. */
void postern__watch_flush(struct postern__watch *watch);

/* For postern_box_subscribe(), remark and trouble; the context is the watch. */
void postern__watch_event(void *context, const struct postern_event *event);
void postern__watch_remark(void *context, const char *text);
void postern__watch_trouble(void *context, const char *text);

#endif
