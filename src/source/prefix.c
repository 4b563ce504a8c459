/* SPDX-License-Identifier: MIT */
/*
 * Up to where all positions are done: a window of flags that begins at the
 * first position that is not. A ring of bytes is enough; windows are as large
 * as a prefetch count.
 */

#include <postern/sys/source.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

struct postern_prefix {
	uint64_t first;
	size_t capacity;
	bool done[]; /* of position p at p % capacity */
};

int postern_prefix_create(size_t capacity, struct postern_prefix **out,
		struct postern_error *error) {
	struct postern_prefix *self =
			capacity > 0 && capacity < SIZE_MAX / 2
					? calloc(1, sizeof(*self) + capacity * sizeof(bool))
					: NULL;
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->capacity = capacity;
	self->first = 1;
	*out = self;
	return POSTERN_OK;
}

void postern_prefix_destroy(struct postern_prefix *self) {
	free(self);
}

uint64_t postern_prefix_first(const struct postern_prefix *self) {
	return self->first;
}

uint64_t postern_prefix_done(struct postern_prefix *self, uint64_t position) {
	if (position < self->first) {
		return self->first;
	}
	assert(position - self->first < self->capacity);
	self->done[position % self->capacity] = true;
	while (self->done[self->first % self->capacity]) {
		self->done[self->first % self->capacity] = false;
		self->first++;
	}
	return self->first;
}

void postern_prefix_reset(struct postern_prefix *self, uint64_t first) {
	memset(self->done, 0, self->capacity * sizeof(bool));
	self->first = first;
}
