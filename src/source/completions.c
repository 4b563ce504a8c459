/* SPDX-License-Identifier: MIT */
/*
 * The queue of completions for the thread that owns a connection: a ring of
 * fixed size, since the source bounds what it has in flight, and an eventfd, so
 * that its thread can wait for completions and its socket at the same time.
 */

#include <postern/sys/source.h>

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fail.h"

struct postern_completions {
	int fd;
	pthread_mutex_t mutex;
	size_t capacity;
	size_t begin;
	size_t count;
	struct postern_completed items[];
};

int postern_completions_create(size_t capacity,
		struct postern_completions **out, struct postern_error *error) {
	struct postern_completions *self =
			capacity > 0 && capacity <= SIZE_MAX / sizeof(self->items[0]) / 2
					? calloc(1,
							  sizeof(*self) + capacity * sizeof(self->items[0]))
					: NULL;
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->capacity = capacity;
	self->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (self->fd < 0) {
		int r = postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot create an eventfd: %s", strerror(errno));
		free(self);
		return r;
	}
	(void)pthread_mutex_init(&self->mutex, NULL);
	*out = self;
	return POSTERN_OK;
}

void postern_completions_destroy(struct postern_completions *self) {
	if (!self) {
		return;
	}
	(void)close(self->fd); /* nothing is buffered */
	(void)pthread_mutex_destroy(&self->mutex);
	free(self);
}

int postern_completions_fd(const struct postern_completions *self) {
	return self->fd;
}

void postern_completions_wake(struct postern_completions *self) {
	/* Fails only if the counter is at its maximum: then it is readable. */
	(void)eventfd_write(self->fd, 1);
}

void postern_completions_put(struct postern_completions *self,
		const struct postern_completion *completion) {
	(void)pthread_mutex_lock(&self->mutex);
	assert(self->count < self->capacity);
	self->items[(self->begin + self->count) % self->capacity] =
			(struct postern_completed){
				.tag = completion->tag,
				.verdict = completion->verdict,
			};
	self->count++;
	/* One wake-up serves all completions until they are taken. */
	bool first = self->count == 1;
	(void)pthread_mutex_unlock(&self->mutex);
	if (first) {
		postern_completions_wake(self);
	}
}

size_t postern_completions_take(struct postern_completions *self,
		struct postern_completed *out, size_t max) {
	eventfd_t value;
	(void)eventfd_read(self->fd, &value); /* fails if there was no wake-up */
	(void)pthread_mutex_lock(&self->mutex);
	size_t count = self->count < max ? self->count : max;
	for (size_t i = 0; i < count; i++) {
		out[i] = self->items[self->begin];
		self->begin = (self->begin + 1) % self->capacity;
	}
	self->count -= count;
	bool more = self->count > 0;
	(void)pthread_mutex_unlock(&self->mutex);
	if (more) {
		postern_completions_wake(self);
	}
	return count;
}
