/* SPDX-License-Identifier: MIT */

/*
 * The stored headers of a message. A blob is either refused, for one of the
 * four reasons checked here, or packs to the same bytes again.
 */

#include <postern/error.h>
#include <postern/message.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/headers.h"
#include "fuzz.h"

#define COUNT_MAX 5

/* Whether the blob is complete pairs of name and value. */
static bool is_valid_blob(const uint8_t *blob, size_t len) {
	size_t zeroes = 0;
	for (size_t i = 0; i < len; i++) {
		bool begins = i == 0 || blob[i - 1] == 0;
		if (blob[i] == 0) {
			if (begins && zeroes % 2 == 0) {
				return false; /* an empty name */
			}
			zeroes++;
		}
	}
	return zeroes % 2 == 0 && zeroes / 2 <= COUNT_MAX &&
		   (len == 0 || blob[len - 1] == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct postern__arena arena;
	struct postern__buf buf;
	struct postern_error error = { 0 };
	struct postern_header *headers = NULL;
	size_t count = 99;
	postern__arena_init(&arena);
	postern__buf_init(&buf, size);
	int r = postern__headers_unpack(data, size, COUNT_MAX, &arena, &headers,
			&count, &error);
	if (is_valid_blob(data, size)) {
		MUST(r == POSTERN_OK && count <= COUNT_MAX);
		MUST((headers == NULL) == (count == 0));
		r = postern__headers_pack(headers, count, &buf, &error);
		MUST(r == POSTERN_OK && buf.len == size);
		MUST(size == 0 || memcmp(postern__buf_text(&buf), data, size) == 0);
	} else {
		MUST(r == POSTERN_E_CORRUPT && !headers && count == 99);
		MUST(error.text[0] && fuzz_is_clean(error.text));
	}
	postern__buf_finish(&buf);
	postern__arena_finish(&arena);
	return 0;
}
