/* SPDX-License-Identifier: MIT */

/*
 * The one call that registers the rows of this library.
 */

#include <postern/rabbitmq.h>

#include <pthread.h>

#include "rabbitmq/rabbitmq.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* With the mutex. */
static bool registered; /* the source */
static bool publishes;  /* the kind of handlers */

int postern_rabbitmq_register(struct postern_error *error) {
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&mutex);
	if (!registered) {
		r = postern_source_kind_register(&postern__rabbitmq_source_kind, error);
	}
	registered = registered || !r;
	if (!r && !publishes) {
		r = postern_handler_kind_register(&postern__rabbitmq_publish_kind,
				error);
	}
	publishes = publishes || !r;
	(void)pthread_mutex_unlock(&mutex);
	return r;
}
