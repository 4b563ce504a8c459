/* SPDX-License-Identifier: MIT */

/*
 * Percent-encoding. Any text survives both encodings; the decoded text is
 * compared with a decoder that uses strtoul().
 */

#include "base/arena.h"
#include "base/buf.h"
#include "base/percent.h"
#include "fuzz.h"

/* Returns false if the text is malformed. */
static bool decode_naively(const char *text, size_t len, char *out,
		size_t *len_out) {
	size_t count = 0;
	for (size_t at = 0; at < len; at++) {
		char hex[3] = "";
		if (text[at] != '%') {
			out[count++] = text[at];
			continue;
		}
		for (size_t i = 0; i < 2 && at + 1 + i < len; i++) {
			hex[i] = text[at + 1 + i];
		}
		if (strspn(hex, "0123456789abcdefABCDEF") != 2) {
			return false;
		}
		out[count++] = (char)strtoul(hex, NULL, 16);
		at += 2;
	}
	*len_out = count;
	return true;
}

static void check_round_trip(struct postern__arena *arena,
		struct postern__buf *buf, const char *allowed, const char *text) {
	size_t len;
	bool malformed;
	const char *encoded = postern__buf_text(buf);
	MUST(strspn(encoded, allowed) == buf->len);
	const char *decoded =
			postern__percent_decode(arena, encoded, buf->len, &len, &malformed);
	MUST(decoded && len == strlen(text));
	MUST_EQUAL(decoded, text);
	postern__buf_reset(buf);
}

#define WORD_BYTES                                               \
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ012345" \
	"6789-._~%"
#define HEADER_BYTES WORD_BYTES "!#$&'()*+,/:;<=>?@[\\]^`{|}"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct postern__arena arena;
	struct postern__buf buf;
	bool malformed = false;
	size_t len = 0;
	size_t expected_len = 0;
	char *text = fuzz_text(data, size);
	char *expected = malloc(size + 1);
	MUST(expected);
	postern__arena_init(&arena);
	postern__buf_init(&buf, SIZE_MAX / 2);

	const char *decoded =
			postern__percent_decode(&arena, text, size, &len, &malformed);
	bool good = decode_naively(text, size, expected, &expected_len);
	MUST(good == (decoded != NULL) && (good || malformed));
	MUST(!good || (len == expected_len && decoded[len] == '\0' &&
						  memcmp(decoded, expected, len) == 0));
	postern__percent_segment(&buf, text);
	check_round_trip(&arena, &buf, WORD_BYTES, text);
	postern__percent_header(&buf, text);
	check_round_trip(&arena, &buf, HEADER_BYTES, text);

	postern__buf_finish(&buf);
	postern__arena_finish(&arena);
	free(expected);
	free(text);
	return 0;
}
