/* SPDX-License-Identifier: MIT */

/*
 * The thread that asks. A user who may not read the settings can still use the
 * markers: that is a warning. After any other error the store is unavailable.
 */

#include "server/marker_watch.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/wait.h"

#define INTERVAL_MS 5000

struct postern__marker_watch {
	struct postern_guard *guard;
	postern_listener *listener;
	void *context;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	/* Mutex held. */
	bool stopping;
	struct postern_error error; /* code POSTERN_OK: available */
	char warning[POSTERN__MARKER_WARNING_MAX];
};

static void report(const struct postern__marker_watch *self,
		enum postern_event_kind kind, const char *error, const char *text) {
	const struct postern_event event = {
		.size = sizeof event,
		.kind = kind,
		.error = error,
		.text = text,
	};
	self->listener(self->context, &event);
}

/* Remember the answer, and report what differs from the last one. */
static void take_result(struct postern__marker_watch *self,
		const struct postern_error *error, const char *warning) {
	(void)pthread_mutex_lock(&self->mutex);
	bool failed = error->code != POSTERN_OK;
	bool was_failed = self->error.code != POSTERN_OK;
	bool changed = !failed && strcmp(self->warning, warning) != 0;
	self->error = *error;
	if (!failed) {
		(void)snprintf(self->warning, sizeof self->warning, "%s", warning);
	}
	(void)pthread_mutex_unlock(&self->mutex);
	if (failed && !was_failed) {
		report(self, POSTERN_EVENT_STORE_FAILED, error->text, NULL);
	} else if (!failed && was_failed) {
		report(self, POSTERN_EVENT_STORE_WORKS, NULL, NULL);
	}
	if (changed && *warning) {
		report(self, POSTERN_EVENT_STORE_UNSAFE, NULL, warning);
	}
}

static void ask(struct postern__marker_watch *self) {
	char warning[POSTERN__MARKER_WARNING_MAX] = "";
	struct postern_error error = { .code = POSTERN_OK };
	int r = postern_guard_check(self->guard, warning, sizeof warning, &error);
	if (r == POSTERN_E_UNSUPPORTED) {
		(void)snprintf(warning, sizeof warning, "%s", error.text);
		r = POSTERN_OK;
	}
	error.code = r ? POSTERN_E_UNAVAILABLE : POSTERN_OK;
	take_result(self, &error, warning);
}

static void *run(void *context) {
	struct postern__marker_watch *self = context;
	(void)pthread_mutex_lock(&self->mutex);
	while (!self->stopping) {
		postern__wait(&self->wake, &self->mutex, INTERVAL_MS);
		if (!self->stopping) {
			(void)pthread_mutex_unlock(&self->mutex);
			ask(self);
			(void)pthread_mutex_lock(&self->mutex);
		}
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return NULL;
}

int postern__marker_watch_start(struct postern_guard *guard,
		postern_listener *listener, void *context,
		struct postern__marker_watch **out, struct postern_error *error) {
	struct postern__marker_watch *self = calloc(1, sizeof *self);
	if (!self || postern__wait_init(&self->wake)) {
		free(self);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->guard = guard;
	self->listener = listener;
	self->context = context;
	(void)pthread_mutex_init(&self->mutex, NULL);
	ask(self);
	if (pthread_create(&self->thread, NULL, run, self) != 0) {
		(void)pthread_cond_destroy(&self->wake);
		(void)pthread_mutex_destroy(&self->mutex);
		free(self);
		return postern__fail(error, POSTERN_E_NOMEM, "cannot start a thread");
	}
	*out = self;
	return POSTERN_OK;
}

void postern__marker_watch_destroy(struct postern__marker_watch *watch) {
	if (!watch) {
		return;
	}
	(void)pthread_mutex_lock(&watch->mutex);
	watch->stopping = true;
	(void)pthread_cond_signal(&watch->wake);
	(void)pthread_mutex_unlock(&watch->mutex);
	(void)pthread_join(watch->thread, NULL);
	(void)pthread_cond_destroy(&watch->wake);
	(void)pthread_mutex_destroy(&watch->mutex);
	free(watch);
}

int postern__marker_watch_check(struct postern__marker_watch *watch,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&watch->mutex);
	int r = watch->error.code;
	if (r != POSTERN_OK) {
		(void)postern__fail(error, r, "%s", watch->error.text);
	}
	(void)pthread_mutex_unlock(&watch->mutex);
	return r;
}

void postern__marker_watch_warning(struct postern__marker_watch *watch,
		char out[POSTERN__MARKER_WARNING_MAX]) {
	(void)pthread_mutex_lock(&watch->mutex);
	memcpy(out, watch->warning, POSTERN__MARKER_WARNING_MAX);
	(void)pthread_mutex_unlock(&watch->mutex);
}
