/* SPDX-License-Identifier: MIT */

/*
 * What was read stays in a buffer until it is cut into lines. Of a line that is
 * too long only its number is known: the rest is skipped as it arrives, so that
 * an endless line takes no more memory than the longest that is allowed.
 */

#include "source/line_reader.h"

#include <errno.h>
#include <postern/error.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

#define READ_SIZE 65536

void postern__line_reader_init(struct postern__line_reader *reader,
		size_t line_len_max) {
	*reader = (struct postern__line_reader){ .line_len_max = line_len_max };
	postern__buf_init(&reader->input, line_len_max + (size_t)2 * READ_SIZE);
}

void postern__line_reader_finish(struct postern__line_reader *reader) {
	postern__buf_finish(&reader->input);
}

void postern__line_reader_reset(struct postern__line_reader *reader) {
	struct postern__buf input = reader->input;
	postern__buf_reset(&input);
	*reader = (struct postern__line_reader){
		.line_len_max = reader->line_len_max,
		.input = input,
	};
}

uint64_t postern__line_reader_position(
		const struct postern__line_reader *reader) {
	return reader->offset + (reader->input.len - reader->begin);
}

static bool is_blank(const char *text, size_t len) {
	for (size_t i = 0; i < len; i++) {
		if (!memchr(" \t\r", text[i], 3)) {
			return false;
		}
	}
	return true;
}

int postern__line_reader_read(struct postern__line_reader *reader, int fd,
		long *len_out, struct postern_error *error) {
	postern__buf_drop(&reader->input, reader->begin);
	reader->begin = 0;
	char *place = postern__buf_reserve(&reader->input, READ_SIZE);
	if (!place) {
		reader->input.failed = POSTERN_OK; /* what was read is still there */
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	ssize_t len = read(fd, place, READ_SIZE);
	if (len < 0 && errno != EINTR && errno != EAGAIN) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "%s",
				strerror(errno));
	}
	if (len > 0) {
		postern__buf_commit(&reader->input, (size_t)len);
	}
	*len_out = len;
	return POSTERN_OK;
}

/* Cut off the line that begins here; false: its end was not read yet. */
static bool cut_line(struct postern__line_reader *reader,
		struct postern__line *out) {
	const char *text = postern__buf_text(&reader->input);
	size_t begin = reader->begin;
	size_t from = begin > reader->seen ? begin : reader->seen;
	const char *stop = memchr(text + from, '\n', reader->input.len - from);
	size_t rest = reader->input.len - begin;
	reader->seen = 0;
	if (!stop && !(reader->end && rest > 0)) {
		reader->seen = rest;
		return false;
	}
	out->text = text + begin;
	out->len = stop ? (size_t)(stop - text) - begin : rest;
	reader->begin = begin + out->len + (stop != NULL);
	reader->offset += out->len + (stop != NULL);
	return true;
}

/* What remains is a part of a line: drop it if the line is too long. Returns
   whether it begins such a line. */
static bool skip_rest(struct postern__line_reader *reader) {
	size_t rest = reader->input.len - reader->begin;
	if (!reader->skipping && rest <= reader->line_len_max) {
		return false;
	}
	bool begins = !reader->skipping;
	reader->skipping = true;
	reader->offset += rest;
	reader->line += begins;
	reader->begin = reader->input.len;
	reader->seen = 0;
	return begins;
}

bool postern__line_reader_next(struct postern__line_reader *reader,
		struct postern__line *out) {
	while (cut_line(reader, out)) {
		if (reader->skipping) {
			reader->skipping = false;
			continue;
		}
		reader->line++;
		out->too_long = out->len > reader->line_len_max;
		out->blank = !out->too_long && is_blank(out->text, out->len);
		return true;
	}
	*out = (struct postern__line){ .too_long = true };
	return skip_rest(reader);
}
