/* SPDX-License-Identifier: MIT */

/*
 * Requests as they arrive from a socket: the first byte of the input sets the
 * size of the pieces into which the others are divided. However they are
 * divided, the same bytes are passed on and the same request is refused; and a
 * head that is passed on has no NUL, and neither CR nor LF without the other.
 */

#include "fuzz.h"
#include "server/http_framing.h"

/* The result of one pass over the input. */
struct reading {
	struct postern__framing framing;
	char *passed;
	size_t len;
	size_t rest_len;
};

static void read_all(struct reading *self, const uint8_t *data, size_t size,
		size_t step) {
	char *buffer = malloc(size + POSTERN__FRAMING_ROOM);
	self->passed = malloc(size + POSTERN__FRAMING_ROOM);
	MUST(buffer && self->passed);
	self->framing = (struct postern__framing){ 0 };
	self->len = 0;
	self->rest_len = 0;
	for (size_t at = 0; at < size;) {
		size_t n = size - at < step ? size - at : step;
		memcpy(buffer + self->rest_len, data + at, n);
		at += n;
		size_t given = self->rest_len + n;
		size_t len = postern__framing_pass(&self->framing, buffer, given,
				&self->rest_len);
		bool ended = self->framing.state == POSTERN__FRAMING_ENDED;
		MUST(len <= given + (ended ? POSTERN__FRAMING_ROOM : 0));
		MUST(ended ? self->rest_len == 0 : len + self->rest_len == given);
		MUST(self->rest_len <= POSTERN__FRAMING_HEAD_LEN_MAX);
		memcpy(self->passed + self->len, buffer, len);
		self->len += len;
		memmove(buffer, buffer + len, self->rest_len);
		if (ended) {
			break;
		}
	}
	free(buffer);
}

/* Checks the first head, if it was passed on. */
static void check_head(const struct reading *self) {
	const char *end = memmem(self->passed, self->len, "\r\n\r\n", 4);
	size_t len = end ? (size_t)(end - self->passed) + 4 : 0;
	MUST(len > 0 || self->len == 0);
	for (size_t i = 0; i < len; i++) {
		char c = self->passed[i];
		MUST(c != '\0');
		MUST(c != '\n' || (i > 0 && self->passed[i - 1] == '\r'));
		MUST(c != '\r' || self->passed[i + 1] == '\n');
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (size < 2) {
		return 0;
	}
	struct reading whole;
	struct reading pieces;
	read_all(&whole, data + 1, size - 1, size);
	read_all(&pieces, data + 1, size - 1, (size_t)data[0] % 16 + 1);
	const struct postern__framing *one = &whole.framing;
	const struct postern__framing *other = &pieces.framing;
	MUST(whole.len == pieces.len &&
			memcmp(whole.passed, pieces.passed, whole.len) == 0);
	MUST(one->state == other->state && one->left == other->left);
	MUST(one->request_count == other->request_count);
	MUST(one->refused_number == other->refused_number);
	MUST(one->status == other->status && one->problem == other->problem);
	MUST((one->state == POSTERN__FRAMING_ENDED) == (one->status != 0));
	MUST(one->refused_number <= one->request_count);
	check_head(&whole);
	free(whole.passed);
	free(pieces.passed);
	return 0;
}
