/* SPDX-License-Identifier: MIT */
/*
 * The two streams of the command. Colours are ANSI; the environment is read
 * each time, which is cheap. The only state is whether the command line has
 * --json, which applies to everything printed on stderr from then on.
 */

#include "cli/out.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json_text.h"
#include "base/redact.h"
#include "base/utf8.h"
#include "cli/exit.h"

/* The longest sentence, and the longest text shown in one piece. A body is
   shown in pieces. */
#define SENTENCE_LEN_MAX 4096
#define TEXT_LEN_MAX ((size_t)64 * 1024 * 1024)
/* The most bytes that one byte becomes, as \uXXXX, and what is around a
   sentence. */
#define JSON_GROWTH_MAX 7

static bool err_is_json;

static const char *const colours[] = {
	[POSTERN__PLAIN] = "\033[0m",
	[POSTERN__GOOD] = "\033[32m",
	[POSTERN__WARM] = "\033[33m",
	[POSTERN__BAD] = "\033[31m",
	[POSTERN__FAINT] = "\033[2m",
	[POSTERN__BOLD] = "\033[1m",
};

bool postern__out_coloured(FILE *file) {
	/* no-color.org: any value that is not empty. */
	const char *no_color = getenv("NO_COLOR");
	const char *term = getenv("TERM");
	return !(no_color && *no_color) && term && strcmp(term, "dumb") != 0 &&
		   isatty(fileno(file));
}

size_t postern__out_columns(void) {
	struct winsize size = { 0 };
	if (!isatty(STDOUT_FILENO)) {
		return 0;
	}
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
		return 80;
	}
	return size.ws_col;
}

const char *postern__out_colour(FILE *file, enum postern__colour colour) {
	return postern__out_coloured(file) ? colours[colour] : "";
}

/* Characters that make a line look different from its content: the
   bidirectional controls, line and paragraph separators, and the byte order
   mark. */
static bool is_misleading(uint32_t c) {
	return c == 0x061c || c == 0x200e || c == 0x200f || c == 0x2028 ||
		   c == 0x2029 || (c >= 0x202a && c <= 0x202e) ||
		   (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

static void escape_character(struct postern__buf *buf, const char *text,
		size_t len, uint32_t c) {
	if (c == '\n') {
		postern__buf_append_text(buf, "\\n");
	} else if (c == '\t') {
		postern__buf_append_text(buf, "\\t");
	} else if (c == '\r') {
		postern__buf_append_text(buf, "\\r");
	} else if (c < 0x20 || c == 0x7f) {
		postern__buf_printf(buf, "\\x%02" PRIx32, c);
	} else if ((c >= 0x80 && c < 0xa0) || is_misleading(c)) {
		postern__buf_printf(buf, "\\u{%" PRIx32 "}", c);
	} else {
		postern__buf_append(buf, text, len);
	}
}

void postern__out_escape(struct postern__buf *buf, const char *text,
		size_t len) {
	while (len > 0) {
		uint32_t c;
		size_t step = postern__utf8_decode(text, len, &c);
		if (step == 0) {
			postern__buf_printf(buf, "\\x%02x", (unsigned char)*text);
			step = 1;
		} else {
			escape_character(buf, text, step, c);
		}
		text += step;
		len -= step;
	}
}

void postern__out_text(const char *text) {
	struct postern__buf buf;
	if (!text) {
		return;
	}
	postern__buf_init(&buf, TEXT_LEN_MAX);
	postern__out_escape(&buf, text, strlen(text));
	(void)fputs(postern__buf_text(&buf), stdout);
	postern__buf_finish(&buf);
}

void postern__out_lines(const char *text, size_t len, const char *indent) {
	struct postern__buf buf;
	postern__buf_init(&buf, TEXT_LEN_MAX);
	while (len > 0) {
		const char *end = memchr(text, '\n', len);
		size_t line = end ? (size_t)(end - text) : len;
		postern__buf_append_text(&buf, indent);
		for (size_t at = 0; at < line;) {
			const char *tab = memchr(text + at, '\t', line - at);
			size_t part = tab ? (size_t)(tab - text) - at : line - at;
			postern__out_escape(&buf, text + at, part);
			at += part;
			if (tab) {
				postern__buf_append_char(&buf, '\t');
				at++;
			}
		}
		postern__buf_append_char(&buf, '\n');
		line += end ? 1 : 0;
		text += line;
		len -= line;
	}
	(void)fputs(postern__buf_text(&buf), stdout);
	postern__buf_finish(&buf);
}

void postern__err_pair(const char *name, const char *text) {
	struct postern__buf buf;
	postern__buf_init(&buf, (size_t)JSON_GROWTH_MAX * SENTENCE_LEN_MAX);
	postern__json_open(&buf, '{');
	postern__json_pair_text(&buf, name, text);
	postern__json_close(&buf, '}');
	/* stdout is flushed first, so that the order is kept if both are one
	   stream. */
	(void)fflush(stdout);
	(void)fprintf(stderr, "%s\n", postern__buf_text(&buf));
	postern__buf_finish(&buf);
}

/* Print a sentence as JSON under this name, or for people. */
static void print_sentence(const char *name, const char *format, va_list args)
		__attribute__((format(printf, 2, 0)));

static void print_sentence(const char *name, const char *format, va_list args) {
	static const char note[] = "note: ";
	char text[SENTENCE_LEN_MAX];
	char clean[SENTENCE_LEN_MAX];
	if (vsnprintf(text, sizeof text, format, args) < 0) {
		return;
	}
	postern__redact_within(text);
	(void)postern__utf8_clean(text, strlen(text), clean, sizeof clean);
	if (!err_is_json) {
		(void)fflush(stdout); /* as above */
		(void)fprintf(stderr, "postern: %s\n", clean);
	} else if (strncmp(clean, note, strlen(note)) == 0) {
		postern__err_pair("note", clean + strlen(note));
	} else {
		postern__err_pair(name, clean);
	}
}

void postern__err_set_json(bool json) {
	err_is_json = json;
}

void postern__err_print(const char *format, ...) {
	va_list args;
	va_start(args, format);
	print_sentence("error", format, args);
	va_end(args);
}

void postern__note_print(const char *format, ...) {
	va_list args;
	va_start(args, format);
	print_sentence("note", format, args);
	va_end(args);
}

size_t postern__out_width(const char *text, size_t len) {
	return postern__utf8_count(text, len);
}

void postern__out_ago(int64_t at_ms, int64_t now_ms,
		char out[POSTERN__AGO_TEXT_MAX]) {
	static const struct {
		int64_t ms;
		const char *unit;
	} units[] = {
		{ INT64_C(86400000), "d" },
		{ INT64_C(3600000), "h" },
		{ INT64_C(60000), "m" },
		{ INT64_C(1000), "s" },
	};
	/* Out of the range of any clock, but the value comes from a file. */
	if (at_ms < 0 || now_ms < 0) {
		at_ms = now_ms = 0;
	}
	int64_t distance = at_ms > now_ms ? at_ms - now_ms : now_ms - at_ms;
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
		if (distance >= units[i].ms) {
			(void)snprintf(out, POSTERN__AGO_TEXT_MAX, "%s%" PRId64 "%s%s",
					at_ms > now_ms ? "in " : "", distance / units[i].ms,
					units[i].unit, at_ms > now_ms ? "" : " ago");
			return;
		}
	}
	(void)snprintf(out, POSTERN__AGO_TEXT_MAX, "now");
}

/* For an earlier write error, whose reason is lost. */
static bool reader_is_gone(void) {
	struct pollfd fd = { .fd = STDOUT_FILENO, .events = POLLOUT };
	return poll(&fd, 1, 0) == 1 && (fd.revents & POLLERR);
}

int postern__out_close(int status) {
	errno = 0;
	bool failed = ferror(stdout) != 0;
	int reason = 0;
	if (fflush(stdout) != 0) {
		failed = true;
		reason = errno;
	}
	if (!failed || reason == EPIPE) {
		return status;
	}
	if (reason == 0 && reader_is_gone()) {
		return status;
	}
	postern__err_print("cannot write to standard output%s%s",
			reason ? ": " : "", reason ? strerror(reason) : "");
	return status == POSTERN__EXIT_OK ? POSTERN__EXIT_FAILED : status;
}

void postern__out_count(uint64_t count, char out[POSTERN__COUNT_TEXT_MAX]) {
	char digits[24];
	int len = snprintf(digits, sizeof digits, "%" PRIu64, count);
	for (int i = 0; i < len; i++) {
		if (i > 0 && (len - i) % 3 == 0) {
			*out++ = ',';
		}
		*out++ = digits[i];
	}
	*out = '\0';
}
