/* SPDX-License-Identifier: MIT */

/*
 * The one call that registers the rows of this library.
 */

#include <postern/rabbitmq.h>

#include <pthread.h>

#include "rabbitmq/rabbitmq.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* With the mutex. */
static bool registered;

int postern_rabbitmq_register(struct postern_error *error) {
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&mutex);
	if (!registered) {
		r = postern_source_kind_register(&postern__rabbitmq_source_kind, error);
	}
	registered = registered || !r;
	(void)pthread_mutex_unlock(&mutex);
	return r;
}
