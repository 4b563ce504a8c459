/* SPDX-License-Identifier: MIT */

/*
 * JSON pointers: the first line of the input is the pointer, the rest the text.
 * Jansson's tree of the same text must have the same value there. A pointer is
 * refused exactly if it is not one by RFC 6901.
 */

#include <jansson.h>
#include <postern/error.h>

#include "fuzz.h"
#include "support/pointer_peer.h"

/* Whether each '~' is followed by 0 or 1, and a slash begins the pointer. */
static bool is_pointer(const char *text, size_t len) {
	if (len > POSTERN__JSON_POINTER_LEN_MAX || (len > 0 && text[0] != '/') ||
			memchr(text, 0, len)) {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '~' &&
				(i + 1 == len || (text[i + 1] != '0' && text[i + 1] != '1'))) {
			return false;
		}
	}
	for (size_t at = 0; at < len;) {
		size_t step = naive_utf8_len(text + at, len - at);
		if (step == 0) {
			return false;
		}
		at += step;
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	const uint8_t *end = size > 0 ? memchr(data, '\n', size) : NULL;
	size_t len = end ? (size_t)(end - data) : size;
	size_t rest = end ? size - len - 1 : 0;
	char *pointer = fuzz_text(data, len);
	char *text = fuzz_text(end ? end + 1 : data, rest);
	struct postern_error error = { 0 };
	int r = postern__json_pointer_check(pointer, len, &error);
	MUST((r == POSTERN_OK) == is_pointer(pointer, len));
	if (r == POSTERN_OK) {
		MUST(peer_agrees(pointer, text, rest));
	}
	free(pointer);
	free(text);
	return 0;
}
