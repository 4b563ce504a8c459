/* SPDX-License-Identifier: MIT */

/*
 * Validity, length, control characters, cutting and cleaning of any bytes,
 * compared with a scan of one character after the other. The first byte is the
 * room for the cleaned text.
 */

#include "base/utf8.h"
#include "fuzz.h"

static bool is_control(uint32_t c) {
	return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

static bool is_break(uint32_t c) {
	return c == '\t' || c == '\n' || c == '\v' || c == '\f' || c == '\r' ||
		   c == 0x85 || c == 0x2028 || c == 0x2029;
}

struct naive {
	bool valid;
	bool control;
	size_t count;
	char *clean; /* with room for every character */
	size_t fits; /* the length that fits into the room */
	bool full;
};

static void append_clean(struct naive *naive, size_t *len, const char *piece,
		size_t piece_len, size_t room) {
	memcpy(naive->clean + *len, piece, piece_len);
	*len += piece_len;
	naive->full |= *len > room;
	if (!naive->full) {
		naive->fits = *len;
	}
}

static void scan_naively(const char *text, size_t len, size_t room,
		struct naive *out) {
	size_t clean_len = 0;
	*out = (struct naive){ .valid = true, .clean = malloc(3 * len + 1) };
	MUST(out->clean);
	for (size_t at = 0; at < len; out->count++) {
		size_t step = naive_utf8_len(text + at, len - at);
		if (step == 0) {
			out->valid = false;
			append_clean(out, &clean_len, "\xef\xbf\xbd", 3, room);
			at++;
			continue;
		}
		uint32_t c = naive_utf8_character(text + at, step);
		uint32_t decoded = 0;
		MUST(postern__utf8_decode(text + at, len - at, &decoded) == step);
		MUST(decoded == c);
		out->control |= is_control(c);
		if (is_break(c)) {
			append_clean(out, &clean_len, " ", 1, room);
		} else if (is_control(c)) {
			append_clean(out, &clean_len, "?", 1, room);
		} else {
			append_clean(out, &clean_len, text + at, step, room);
		}
		at += step;
	}
	out->clean[out->fits] = '\0';
}

static void check_cuts(const char *text, size_t len) {
	size_t at = 0;
	for (size_t max = 0; max <= len; max++) {
		while (at < len && at + naive_utf8_len(text + at, len - at) <= max) {
			at += naive_utf8_len(text + at, len - at);
		}
		MUST(postern__utf8_cut(text, len, max) == at);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct fuzz_input input = { data, size };
	size_t room = fuzz_byte(&input);
	const char *text = (const char *)input.at;
	size_t len = input.len;
	struct naive naive;
	scan_naively(text, len, room, &naive);
	MUST(postern__utf8_valid(text, len) == naive.valid);
	MUST(postern__utf8_count(text, len) == naive.count);
	MUST(postern__utf8_has_control(text, len) == naive.control);
	char *out = malloc(room + 1);
	MUST(out);
	MUST(postern__utf8_clean(text, len, out, room + 1) == naive.fits);
	MUST(strlen(out) == naive.fits);
	MUST_EQUAL(out, naive.clean);
	if (naive.valid && len < 1000) {
		check_cuts(text, len);
	}
	free(out);
	free(naive.clean);
	return 0;
}
