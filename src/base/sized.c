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

int postern__sized_copy(void *out, size_t size, const void *given,
		const char *what, struct postern_error *error) {
	size_t len;
	memcpy(&len, given, sizeof(len));
	if (len <= sizeof(len) || len > SIZE_MAX_SANE) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the %s's size member is not set", what);
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
