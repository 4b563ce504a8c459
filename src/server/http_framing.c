/* SPDX-License-Identifier: MIT */

/*
 * Requests are made of units: a head, the bytes of a body or of a chunk, the
 * lines between chunks, and trailers. A unit of lines is passed on when it is
 * complete, so at any violation libmicrohttpd is at the beginning of a
 * unit, and the framing can give it a proper end of the request.
 *
 * Each byte is read once, however the units are cut into packets: lines
 * are validated when their LF comes, and the search for it goes on where it
 * stopped.
 */

#include "server/http_framing.h"

#include "base/text.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "server/api.h"

/* Passed instead of a head that is refused. '?' is no method that a client
   could send, because it is no token. */
static const char refused_request[] = "? / HTTP/1.0\r\n\r\n";

static void fail(struct postern__framing *self, int status,
		const char *problem) {
	self->status = status;
	self->problem = problem;
}

static bool is_token_byte(unsigned char c) {
	switch (c) {
	case '!':
	case '#':
	case '$':
	case '%':
	case '&':
	case '\'':
	case '*':
	case '+':
	case '-':
	case '.':
	case '^':
	case '_':
	case '`':
	case '|':
	case '~': return true;
	default:
		return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
			   (c >= 'a' && c <= 'z');
	}
}

static bool is_token(const char *text, size_t len) {
	for (size_t i = 0; i < len; i++) {
		if (!is_token_byte((unsigned char)text[i])) {
			return false;
		}
	}
	return len > 0;
}

/* Whether a field's value has no control characters but tabs. */
static bool is_field_text(const char *text, size_t len) {
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		if ((c < 0x20 && c != '\t') || c == 0x7f) {
			return false;
		}
	}
	return true;
}

static bool is_target(const char *text, size_t len) {
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c <= 0x20 || c >= 0x7f || c == '#') {
			return false;
		}
	}
	return len > 0 && text[0] == '/';
}

static bool is_host(const char *text, size_t len) {
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c <= 0x20 || c >= 0x7f || strchr("\"#,/<>?@\\^`{|}", c)) {
			return false;
		}
	}
	return true;
}

static size_t count_bytes(const char *text, size_t len, const char *wanted) {
	size_t count = 0;
	for (size_t i = 0; i < len; i++) {
		count += text[i] && strchr(wanted, text[i]);
	}
	return count;
}

static bool read_version(struct postern__framing *self, const char *text,
		size_t len) {
	if (len != 8 || memcmp(text, "HTTP/", 5) != 0 || text[5] < '0' ||
			text[5] > '9' || text[6] != '.' || text[7] < '0' || text[7] > '9') {
		fail(self, 400, "the request line is malformed");
		return false;
	}
	if (text[5] != '1' || text[7] > '1') {
		fail(self, 505, "the HTTP version must be 1.0 or 1.1");
		return false;
	}
	self->head.version_1_0 = text[7] == '0';
	return true;
}

/* METHOD SP TARGET SP VERSION, with exactly two spaces. */
static bool read_request_line(struct postern__framing *self, const char *line,
		size_t len) {
	const char *end = line + len;
	const char *target = memchr(line, ' ', len);
	const char *version =
			target ? memchr(target + 1, ' ', (size_t)(end - target - 1)) : NULL;
	if (!version || !is_token(line, (size_t)(target - line))) {
		fail(self, 400, "the request line is malformed");
		return false;
	}
	target++;
	size_t target_len = (size_t)(version - target);
	if (!read_version(self, version + 1, (size_t)(end - version - 1))) {
		return false;
	}
	if (!is_target(target, target_len)) {
		fail(self, 400,
				"the request target must begin with '/' and have no "
				"unencoded spaces, control or non-ASCII characters");
		return false;
	}
	if (count_bytes(target, target_len, "&") >=
			POSTERN__FRAMING_QUERY_PART_COUNT_MAX) {
		fail(self, 400, "the query has too many parameters");
		return false;
	}
	self->head.begun = true;
	return true;
}

static bool read_length(struct postern__framing *self, const char *text,
		size_t len) {
	struct postern__framing_head *head = &self->head;
	uint64_t value = 0;
	if (head->has_length) {
		fail(self, 400, "Content-Length is given twice");
		return false;
	}
	bool good = len > 0;
	for (size_t i = 0; good && i < len; i++) {
		uint64_t digit = (uint64_t)(unsigned char)text[i] - '0';
		good = digit <= 9 && value <= (INT64_MAX - digit) / 10;
		value = value * 10 + digit;
	}
	if (!good) {
		fail(self, 400, "Content-Length is malformed");
		return false;
	}
	head->has_length = true;
	head->body_len = value;
	return true;
}

static bool read_encoding(struct postern__framing *self, const char *text,
		size_t len) {
	if (self->head.chunked) {
		fail(self, 400, "Transfer-Encoding is given twice");
		return false;
	}
	if (len != 7 || strncasecmp(text, "chunked", 7) != 0) {
		fail(self, 501, "Transfer-Encoding must be 'chunked'");
		return false;
	}
	self->head.chunked = true;
	return true;
}

static bool read_host(struct postern__framing *self, const char *text,
		size_t len) {
	if (self->head.has_host) {
		fail(self, 400, "Host is given twice");
		return false;
	}
	if (!is_host(text, len)) {
		fail(self, 400, "Host is malformed");
		return false;
	}
	self->head.has_host = true;
	return true;
}

static bool read_cookie(struct postern__framing *self, const char *text,
		size_t len) {
	if (len > POSTERN__FRAMING_COOKIE_LEN_MAX ||
			count_bytes(text, len, ";,") >= POSTERN__FRAMING_COOKIE_COUNT_MAX) {
		fail(self, 431, "the cookies are too large");
		return false;
	}
	return true;
}

/* Fields that decide about the framing, or that libmicrohttpd parses. */
static bool read_known_field(struct postern__framing *self, const char *name,
		size_t name_len, const char *value, size_t len) {
	static const struct {
		const char *name;
		size_t len;
		bool (*read)(struct postern__framing *self, const char *text,
				size_t len);
	} known[] = {
		{ "host", 4, read_host },
		{ "cookie", 6, read_cookie },
		{ "content-length", 14, read_length },
		{ "transfer-encoding", 17, read_encoding },
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		if (name_len == known[i].len &&
				strncasecmp(name, known[i].name, name_len) == 0) {
			return known[i].read(self, value, len);
		}
	}
	return true;
}

static bool is_blank(char c) {
	return c == ' ' || c == '\t';
}

/* NAME ":" OWS VALUE OWS. The value is moved to the end of its line, because
   libmicrohttpd skips whitespace before it only. */
static bool read_field(struct postern__framing *self, char *line, size_t len,
		bool in_head) {
	char *colon = memchr(line, ':', len);
	if (is_blank(line[0])) {
		fail(self, 400, "a header is folded over several lines");
		return false;
	}
	if (!colon || !is_token(line, (size_t)(colon - line))) {
		fail(self, 400, "a header's name is malformed");
		return false;
	}
	char *value = colon + 1;
	char *end = line + len;
	char *value_end = end;
	while (value < value_end && is_blank(*value)) {
		value++;
	}
	while (value_end > value && is_blank(value_end[-1])) {
		value_end--;
	}
	size_t value_len = (size_t)(value_end - value);
	if (!is_field_text(value, value_len)) {
		fail(self, 400, "a header's value has control characters");
		return false;
	}
	if (in_head && !read_known_field(self, line, (size_t)(colon - line), value,
						   value_len)) {
		return false;
	}
	if (value_end < end) {
		memmove(end - value_len, value, value_len);
		memset(value, ' ', (size_t)(end - value_end));
	}
	return true;
}

/* The empty line came. */
static bool end_head(struct postern__framing *self) {
	const struct postern__framing_head *head = &self->head;
	if (!head->has_host && !head->version_1_0) {
		fail(self, 400, "Host is missing");
		return false;
	}
	if (head->chunked && (head->has_length || head->version_1_0)) {
		fail(self, 400,
				head->has_length ? "Content-Length and Transfer-Encoding "
								   "cannot be combined"
								 : "HTTP/1.0 has no Transfer-Encoding");
		return false;
	}
	self->left = head->body_len;
	if (head->chunked) {
		self->state = POSTERN__FRAMING_CHUNK_SIZE;
	} else if (self->left > 0) {
		self->state = POSTERN__FRAMING_BODY;
	}
	self->request_count++;
	self->head = (struct postern__framing_head){ 0 };
	return true;
}

/* *complete_out: the head ends with this line. */
static bool read_head_line(struct postern__framing *self, char *line,
		size_t len, bool *complete_out) {
	struct postern__framing_head *head = &self->head;
	*complete_out = false;
	if (!head->begun && len == 0 && !head->blank) {
		head->blank = true;
		return true;
	}
	if (!head->begun) {
		return read_request_line(self, line, len);
	}
	if (len == 0) {
		*complete_out = true;
		return end_head(self);
	}
	if (++head->field_count > POSTERN__API_HEADER_COUNT_MAX) {
		fail(self, 431, "there are too many headers");
		return false;
	}
	return read_field(self, line, len, true);
}

/* SIZE [";" EXTENSIONS]; extensions are validated as text and ignored. */
static bool read_chunk_size(struct postern__framing *self, const char *line,
		size_t len) {
	uint64_t size = 0;
	size_t at = 0;
	while (at < len && postern__hex_value(line[at]) >= 0) {
		if (size > INT64_MAX >> 4 || at == 32) {
			fail(self, 413, "a chunk's size is too large");
			return false;
		}
		size = size << 4 | (uint64_t)postern__hex_value(line[at++]);
	}
	if (at == 0 || (at < len && line[at] != ';') ||
			!is_field_text(line + at, len - at)) {
		fail(self, 400, "a chunk's size is malformed");
		return false;
	}
	self->left = size;
	self->trailers_len = 0;
	self->state = size > 0 ? POSTERN__FRAMING_CHUNK : POSTERN__FRAMING_TRAILERS;
	return true;
}

static bool read_trailer(struct postern__framing *self, char *line,
		size_t len) {
	self->trailers_len += len;
	if (self->trailers_len > POSTERN__FRAMING_TRAILERS_LEN_MAX) {
		fail(self, 431, "the trailers are too large");
		return false;
	}
	if (len == 0) {
		self->state = POSTERN__FRAMING_HEAD;
		return true;
	}
	return read_field(self, line, len, false);
}

/* A whole line, without its CR LF. *complete_out: the unit ends with it. */
static bool read_line(struct postern__framing *self, char *line, size_t len,
		bool *complete_out) {
	*complete_out = true;
	switch (self->state) {
	case POSTERN__FRAMING_HEAD:
		return read_head_line(self, line, len, complete_out);
	case POSTERN__FRAMING_CHUNK_SIZE: return read_chunk_size(self, line, len);
	case POSTERN__FRAMING_CHUNK_END:
		if (len > 0) {
			fail(self, 400, "a chunk is longer than its size");
			return false;
		}
		self->state = POSTERN__FRAMING_CHUNK_SIZE;
		return true;
	default:
		assert(self->state == POSTERN__FRAMING_TRAILERS);
		return read_trailer(self, line, len);
	}
}

/* Whether the current unit may go on for more than `len` bytes, `line_len` of
   them in a line that is not complete. */
static bool check_unit(struct postern__framing *self, const char *bytes,
		size_t len, size_t line_len) {
	if (self->state != POSTERN__FRAMING_HEAD) {
		if (line_len > POSTERN__FRAMING_CHUNK_LINE_LEN_MAX) {
			fail(self, 400, "a line between chunks is too long");
			return false;
		}
		return true;
	}
	if (line_len > POSTERN__FRAMING_LINE_LEN_MAX ||
			len > POSTERN__FRAMING_HEAD_LEN_MAX) {
		fail(self, self->head.begun ? 431 : 414,
				self->head.begun ? "the headers are too large"
								 : "the request line is too long");
		return false;
	}
	/* What speaks another protocol, TLS for one, may never send a LF. */
	if (!self->head.begun && line_len > 0 && bytes[self->line_at] != '\r' &&
			!is_token_byte((unsigned char)bytes[self->line_at])) {
		fail(self, 400, "the request line is malformed");
		return false;
	}
	return true;
}

/* Give libmicrohttpd an end of what it reads; returns how long it is. */
static size_t end_request(struct postern__framing *self, char *bytes) {
	const char *end = refused_request;
	switch (self->state) {
	case POSTERN__FRAMING_CHUNK_SIZE: end = "0\r\n\r\n"; break;
	case POSTERN__FRAMING_CHUNK_END: end = "\r\n0\r\n\r\n"; break;
	case POSTERN__FRAMING_TRAILERS: end = "\r\n"; break;
	default:
		assert(self->state == POSTERN__FRAMING_HEAD);
		self->request_count++;
		break;
	}
	size_t len = strlen(end);
	assert(len <= POSTERN__FRAMING_ROOM);
	memcpy(bytes, end, len);
	self->refused_number = self->request_count;
	self->state = POSTERN__FRAMING_ENDED;
	return len;
}

/* Read one unit of lines. Returns its length, 0 if it is not complete. */
static size_t pass_lines(struct postern__framing *self, char *bytes,
		size_t len) {
	bool complete = false;
	while (!complete) {
		const char *lf =
				memchr(bytes + self->scanned_at, '\n', len - self->scanned_at);
		size_t end = lf ? (size_t)(lf - bytes) : len;
		if (!check_unit(self, bytes, end, end - self->line_at)) {
			return end_request(self, bytes);
		}
		self->scanned_at = end;
		if (!lf) {
			return 0;
		}
		char *line = bytes + self->line_at;
		size_t line_len = end - self->line_at;
		if (line_len == 0 || line[line_len - 1] != '\r') {
			fail(self, 400, "a line does not end with CR LF");
			return end_request(self, bytes);
		}
		if (!read_line(self, line, line_len - 1, &complete)) {
			return end_request(self, bytes);
		}
		self->scanned_at = self->line_at = end + 1;
	}
	size_t unit_len = self->line_at;
	self->scanned_at = self->line_at = 0;
	return unit_len;
}

static size_t pass_body(struct postern__framing *self, size_t len) {
	size_t used = self->left < len ? (size_t)self->left : len;
	self->left -= used;
	if (self->left == 0) {
		self->state = self->state == POSTERN__FRAMING_BODY
							  ? POSTERN__FRAMING_HEAD
							  : POSTERN__FRAMING_CHUNK_END;
	}
	return used;
}

size_t postern__framing_pass(struct postern__framing *self, char *bytes,
		size_t len, size_t *rest_len_out) {
	size_t at = 0;
	size_t used = 1;
	while (at < len && used > 0 && self->state != POSTERN__FRAMING_ENDED) {
		bool body = self->state == POSTERN__FRAMING_BODY ||
					self->state == POSTERN__FRAMING_CHUNK;
		used = body ? pass_body(self, len - at)
					: pass_lines(self, bytes + at, len - at);
		at += used;
	}
	*rest_len_out = self->state == POSTERN__FRAMING_ENDED ? 0 : len - at;
	return at;
}
