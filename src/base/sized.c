/* SPDX-License-Identifier: MIT */
/* Structs that begin with their size: copies between versions of a header. */

#include "base/sized.h"

#include "base/fail.h"

#include <stdbool.h>
#include <string.h>

/* No struct of any version is longer: the member was not set. */
#define SIZE_MAX_SANE 4096

static bool is_zero(const unsigned char *bytes, size_t len) {
	for (size_t i = 0; i < len; i++) {
		if (bytes[i]) {
			return false;
		}
	}
	return true;
}

static bool is_set(size_t len) {
	return len > sizeof(len) && len <= SIZE_MAX_SANE;
}

size_t postern__sized_stride(const void *first) {
	size_t len;
	memcpy(&len, first, sizeof(len));
	return is_set(len) ? len : 0;
}

/* Read the size of a caller's struct. */
static int read_size(const void *given, size_t *out, const char *what,
		struct postern_error *error) {
	*out = postern__sized_stride(given);
	return *out > 0 ? POSTERN_OK
					: postern__fail(error, POSTERN_E_INVALID,
							  "the size member of the %s is not set", what);
}

int postern__sized_copy(void *out, size_t size, const void *given,
		const char *what, struct postern_error *error) {
	size_t len;
	int r = read_size(given, &len, what, error);
	if (r) {
		return r;
	}
	if (len > size &&
			!is_zero((const unsigned char *)given + size, len - size)) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the %s sets something that this version of libpostern does "
				"not know: the program was compiled for a newer version",
				what);
	}
	memcpy(out, given, len < size ? len : size);
	memcpy(out, &size, sizeof(size));
	return POSTERN_OK;
}

void postern__sized_fill(void *out, size_t room, const void *from,
		size_t size) {
	size_t len = room < size ? room : size;
	memcpy(out, from, len);
	memset((char *)out + len, 0, room - len);
}

int postern__sized_write(void *out, const void *from, size_t size,
		const char *what, struct postern_error *error) {
	size_t room;
	int r = read_size(out, &room, what, error);
	if (r) {
		return r;
	}
	postern__sized_fill(out, room, from, size);
	memcpy(out, &room, sizeof(room));
	return POSTERN_OK;
}
