/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_LOG_H
#define POSTERN_SERVER_LOG_H

/*
 * The log of the server, on stderr: text on a terminal, JSON lines elsewhere.
 *
 *   2026-11-15T21:09:24.123Z warn  delivery failed handler=mail seq=12
 *   {"time":"…","level":"warn","message":"delivery failed","handler":"mail",…}
 *
 * Every entry is one line of valid UTF-8 without control characters. Addresses
 * must be redacted by the caller (base/redact.h); no other value that may
 * contain a secret may be logged.
 *
 * Logging never waits: a line that cannot be written now, because the reader is
 * slow or closed the pipe, or the disk is full, is counted and dropped, and the
 * next line that can be written reports how many were lost.
 *
 * Threads: from any thread, once it is open.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct postern_clock;

/* Longest line, so that a pipe accepts it whole; a longer one is cut. */
#define POSTERN__LOG_LINE_MAX 4096
#define POSTERN__LOG_VALUE_LEN_MAX 1200

enum postern__log_level {
	POSTERN__LOG_DEBUG = 0,
	POSTERN__LOG_INFO,
	POSTERN__LOG_WARN,
	POSTERN__LOG_ERROR
};

struct postern__log {
	pthread_mutex_t mutex;
	int fd;
	bool owned; /* fd is closed with the log */
	bool is_socket;
	bool json;
	enum postern__log_level level; /* lower levels are not written */
	const struct postern_clock *clock;
	bool torn;           /* the last line was written in part */
	uint64_t lost_count; /* lines since the last one that was written */
};

/*
 * A log on a file descriptor, which stays the caller's.
 *
 * json   false: text.
 * clock  NULL: the system's.
 */
void postern__log_init(struct postern__log *log, int fd, bool json,
		enum postern__log_level level, const struct postern_clock *clock);
void postern__log_finish(struct postern__log *log);

/* `handler=mail`; made with the functions below. */
struct postern__log_field {
	const char *name;
	const char *text; /* NULL: the number */
	int64_t number;
};

static inline struct postern__log_field postern__log_text(const char *name,
		const char *text) {
	return (struct postern__log_field){ name, text ? text : "", 0 };
}

static inline struct postern__log_field postern__log_int(const char *name,
		int64_t number) {
	return (struct postern__log_field){ name, NULL, number };
}

/* Write a line: postern__log(log, POSTERN__LOG_INFO, "started", field, …). */
#define postern__log(log, level, ...) \
	postern__log_pick(log, level, __VA_ARGS__, (struct postern__log_field){ 0 })
#define postern__log_pick(log, level, message, ...) \
	postern__log_write(log, level, message,         \
			(const struct postern__log_field[]){ __VA_ARGS__ })

/* Called by the macro. fields end with one that has no name. */
void postern__log_write(struct postern__log *log, enum postern__log_level level,
		const char *message, const struct postern__log_field *fields);

/* Write text as it is, for people: several lines, already sanitized. */
void postern__log_print(struct postern__log *log, const char *text, size_t len);

/*
 * A rate limit for lines of one kind: `burst` at once, and one more each
 * interval_ms. Zero-initialise with the two numbers.
 */
struct postern__log_limit {
	uint32_t burst;
	int64_t interval_ms;
	uint32_t used;
	int64_t since_ms;
	uint64_t suppressed_count;
};

/*
 * Whether one more line may be written; *suppressed_out is how many were
 * suppressed since the last one. The caller serialises calls.
 */
bool postern__log_limit_take(struct postern__log_limit *limit, int64_t now_ms,
		uint64_t *suppressed_out);

#endif
