/* SPDX-License-Identifier: MIT */

/*
 * The log. A line is built in a buffer of fixed size and written with one call,
 * so that lines of several threads and of children do not mix.
 *
 * Writing must never block a thread. O_NONBLOCK belongs to the open file, which
 * the shell that started this process shares, so it cannot be set on stderr
 * itself: a pipe or a terminal is opened a second time through /proc, a socket
 * is written with MSG_DONTWAIT, and a regular file does not block.
 */

#include "server/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <postern/error.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json_text.h"
#include "base/time.h"
#include "base/utf8.h"

/* clang-format off */
static const struct {
	const char *name;
	const char *padded;
} levels[] = {
	[POSTERN_LEVEL_DEBUG] = { "debug", "debug" },
	[POSTERN_LEVEL_INFO] = { "info", "info " },
	[POSTERN_LEVEL_WARN] = { "warn", "warn " },
	[POSTERN_LEVEL_ERROR] = { "error", "error" },
};
/* clang-format on */

static const struct postern__log_head heads[] = {
#define ROW(line, name, level, message) \
	[POSTERN__LOG_##line] = { POSTERN_LEVEL_##level, #name, message },
	POSTERN__LOG_MAP(ROW)
#undef ROW
};

struct postern__log_head postern__log_head(enum postern__log_line line,
		const char *message) {
	struct postern__log_head head = heads[line];
	head.message = message ? message : head.message;
	return head;
}

void postern__log_init(struct postern__log *log, int fd, bool json,
		enum postern_level level, const struct postern_clock *clock) {
	*log = (struct postern__log){
		.fd = fd,
		.json = json,
		.level = level,
		.clock = clock ? clock : postern_clock_system(),
	};
	(void)pthread_mutex_init(&log->mutex, NULL);

	struct stat status;
	if (fstat(fd, &status) != 0) {
		return;
	}
	log->is_socket = S_ISSOCK(status.st_mode);
	if (S_ISFIFO(status.st_mode) || isatty(fd)) {
		char path[32];
		(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		int own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
		if (own >= 0) {
			log->fd = own;
			log->owned = true;
		}
	}
}

void postern__log_finish(struct postern__log *log) {
	if (log->owned) {
		(void)close(log->fd);
	}
	(void)pthread_mutex_destroy(&log->mutex);
}

/* As write(), but without waiting. */
static ssize_t write_now(const struct postern__log *log, const char *line,
		size_t len) {
	if (log->is_socket) {
		return send(log->fd, line, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	/* For a file that could not be opened a second time: a file that is
	   writable now accepts a line without blocking. */
	struct pollfd ready = { .fd = log->fd, .events = POLLOUT };
	if (poll(&ready, 1, 0) <= 0 || !(ready.revents & POLLOUT)) {
		return -1;
	}
	ssize_t n;
	do {
		n = write(log->fd, line, len);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* False if the line was not written, or only in part. */
static bool write_line(struct postern__log *log, const char *line, size_t len) {
	ssize_t n = write_now(log, line, len);
	if (n >= 0) {
		log->torn = n > 0 && n < (ssize_t)len;
	}
	return n == (ssize_t)len;
}

/* A value that can be read without quotes. */
static bool is_bare(const char *text) {
	for (const char *c = text; *c; c++) {
		if (*c <= ' ' || *c == '"' || *c == '=' || *c == '\\' || *c == 0x7f) {
			return false;
		}
	}
	return *text != '\0';
}

/* Text as it may be logged, at most `cut` bytes of it. */
struct clean {
	char text[POSTERN__LOG_VALUE_LEN_MAX + 1];
};

static const char *sanitize(struct clean *out, const char *text, size_t cut) {
	(void)postern__utf8_clean(text, strlen(text), out->text, cut + 1);
	return out->text;
}

static void append_value(struct postern__buf *buf, const char *text) {
	if (is_bare(text)) {
		postern__buf_append_text(buf, text);
		return;
	}
	postern__buf_append_char(buf, '"');
	for (const char *c = text; *c; c++) {
		if (*c == '"' || *c == '\\') {
			postern__buf_append_char(buf, '\\');
		}
		postern__buf_append_char(buf, *c);
	}
	postern__buf_append_char(buf, '"');
}

struct line {
	char time[POSTERN__TIME_TEXT_MAX];
	struct postern__log_head head;
	const struct postern__log_field *fields;
};

static void format_text(struct postern__buf *buf, const struct line *line,
		size_t cut) {
	struct clean room;
	postern__buf_printf(buf, "%s %s %s event=%s", line->time,
			levels[line->head.level].padded,
			sanitize(&room, line->head.message, cut), line->head.event);
	for (const struct postern__log_field *f = line->fields; f->name; f++) {
		postern__buf_printf(buf, " %s=", f->name);
		if (f->text) {
			append_value(buf, sanitize(&room, f->text, cut));
		} else {
			postern__buf_printf(buf, "%" PRId64, f->number);
		}
	}
}

static void format_json(struct postern__buf *buf, const struct line *line,
		size_t cut) {
	struct clean room;
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "time", line->time);
	postern__json_pair_text(buf, "level", levels[line->head.level].name);
	postern__json_pair_text(buf, "event", line->head.event);
	postern__json_pair_text(buf, "message",
			sanitize(&room, line->head.message, cut));
	for (const struct postern__log_field *f = line->fields; f->name; f++) {
		if (f->text) {
			postern__json_pair_text(buf, f->name,
					sanitize(&room, f->text, cut));
		} else {
			postern__json_pair_int(buf, f->name, f->number);
		}
	}
	postern__json_close(buf, '}');
}

/* Escaping can make a value six times as long; then all values are shortened
   until the line fits. */
static void format_line(struct postern__buf *buf, bool json,
		const struct line *line) {
	for (size_t cut = POSTERN__LOG_VALUE_LEN_MAX; cut > 0; cut /= 4) {
		postern__buf_reset(buf);
		if (json) {
			format_json(buf, line, cut);
		} else {
			format_text(buf, line, cut);
		}
		postern__buf_append_char(buf, '\n');
		if (buf->failed == POSTERN_OK) {
			return;
		}
	}
}

/* First log how many lines were lost. */
static bool write_lost(struct postern__log *log, const struct line *line) {
	struct postern__buf buf;
	postern__buf_init(&buf, POSTERN__LOG_LINE_MAX);
	struct line lost = *line;
	lost.head = postern__log_head(POSTERN__LOG_LOST, NULL);
	lost.fields = (const struct postern__log_field[]){
		postern__log_int("count", (int64_t)log->lost_count),
		{ NULL, NULL, 0 },
	};
	format_line(&buf, log->json, &lost);
	bool written = buf.failed == POSTERN_OK &&
				   (!log->torn || write_line(log, "\n", 1)) &&
				   write_line(log, postern__buf_text(&buf), buf.len);
	postern__buf_finish(&buf);
	return written;
}

void postern__log_write(struct postern__log *log, struct postern__log_head head,
		const struct postern__log_field *fields) {
	if (head.level < log->level) {
		return;
	}
	struct line line = {
		.head = head,
		.fields = fields,
	};
	postern__time_format(log->clock->wall_ms(log->clock->context), line.time);
	struct postern__buf buf;
	postern__buf_init(&buf, POSTERN__LOG_LINE_MAX);
	format_line(&buf, log->json, &line);

	(void)pthread_mutex_lock(&log->mutex);
	if (log->lost_count > 0 && write_lost(log, &line)) {
		log->lost_count = 0;
	}
	if (log->lost_count > 0 || buf.failed != POSTERN_OK ||
			!write_line(log, postern__buf_text(&buf), buf.len)) {
		log->lost_count++;
	}
	(void)pthread_mutex_unlock(&log->mutex);
	postern__buf_finish(&buf);
}

void postern__log_print(struct postern__log *log, const char *text,
		size_t len) {
	(void)pthread_mutex_lock(&log->mutex);
	(void)write_line(log, text, len); /* no caller depends on it */
	(void)pthread_mutex_unlock(&log->mutex);
}

bool postern__log_limit_take(struct postern__log_limit *limit, int64_t now_ms,
		uint64_t *suppressed_out) {
	int64_t passed = now_ms - limit->since_ms;
	if (limit->used == 0) {
		limit->since_ms = now_ms;
	} else if (passed >= limit->interval_ms) {
		int64_t regained = passed / limit->interval_ms;
		limit->used -=
				regained < limit->used ? (uint32_t)regained : limit->used;
		limit->since_ms += regained * limit->interval_ms;
	}
	if (limit->used >= limit->burst) {
		limit->suppressed_count++;
		return false;
	}
	limit->used++;
	*suppressed_out = limit->suppressed_count;
	limit->suppressed_count = 0;
	return true;
}
