/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_LOG_H
#define POSTERN_SERVER_LOG_H

/*
 * The log of the server, on stderr: text on a terminal, JSON lines elsewhere.
 *
 *   2026-11-15T21:09:24.123Z warn  delivery failed event=delivery_failed seq=12
 *   {"time":"…","level":"warn","event":"delivery_failed",
 *    "message":"delivery failed","seq":12,…}
 *
 * The name of the event never changes; the message is for people. The lines
 * about a store are events of the library (event_log.h), those about the
 * server itself have their rows here. docs/log.md lists all of them.
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

#include <postern/box.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct postern_clock;

/* Longest line, so that a pipe accepts it whole; a longer one is cut. */
#define POSTERN__LOG_LINE_MAX 4096
#define POSTERN__LOG_VALUE_LEN_MAX 1200

/* clang-format off */
#define POSTERN__LOG_MAP(X) \
	/* line, name of the event, level, and the message unless the caller has a
	   better one */ \
	X(SERVING, server_started, INFO, "serving") \
	X(STOPPING, server_stopping, INFO, "stopping") \
	X(STOPPED, server_stopped, INFO, "stopped") \
	X(FAILED, server_failed, ERROR, "cannot start") \
	X(RELOADED, configuration_reloaded, INFO, "configuration reloaded") \
	X(NOT_RELOADED, reload_refused, ERROR, \
			"configuration not reloaded, the former one stays") \
	X(HURRY, stop_forced, WARN, "second signal: stopping at once") \
	X(UNDRAINED, drain_incomplete, WARN, "drain incomplete") \
	X(STORE_OPENED, store_opened, INFO, "store opened") \
	X(STORE_PROBLEM, store_problem, WARN, "store has a problem") \
	X(CONFIG_WARNING, configuration_warning, WARN, \
			"configuration has a problem") \
	X(CONFIG_MISTAKE, configuration_mistake, ERROR, \
			"configuration has a mistake") \
	X(NO_CHANNELS, channels_missing, WARN, \
			"no channels are configured, so no message can be sent; " \
			"'postern init' writes a configuration to start from") \
	X(OPERATOR, operator_request, INFO, "change requested by operator") \
	X(REFUSED, request_refused, DEBUG, "request refused") \
	X(HTTP, http_complaint, DEBUG, "http") \
	X(SUPPRESSED, log_suppressed, WARN, "log lines suppressed") \
	X(LOST, log_lost, WARN, "log lines could not be written")
/* clang-format on */

enum postern__log_line {
#define POSTERN__LOG_LINE(line, name, level, message) POSTERN__LOG_##line,
	POSTERN__LOG_MAP(POSTERN__LOG_LINE)
#undef POSTERN__LOG_LINE
};

/* What a line begins with. */
struct postern__log_head {
	enum postern_level level;
	const char *event; /* its name */
	const char *message;
};

/* The row of a line; message NULL: the row's. */
struct postern__log_head postern__log_head(enum postern__log_line line,
		const char *message);

struct postern__log {
	pthread_mutex_t mutex;
	int fd;
	bool owned; /* fd is closed with the log */
	bool is_socket;
	bool json;
	enum postern_level level; /* lower levels are not written */
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
		enum postern_level level, const struct postern_clock *clock);
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

/* Write a line: postern__log(log, POSTERN__LOG_SERVING, NULL, field, …), with a
   message in the place of NULL if the row's is not enough. */
#define postern__log(log, line, ...) \
	postern__log_pick(log, line, __VA_ARGS__, (struct postern__log_field){ 0 })
#define postern__log_pick(log, line, message, ...)            \
	postern__log_write(log, postern__log_head(line, message), \
			(const struct postern__log_field[]){ __VA_ARGS__ })

/* Called by the macro. fields end with one that has no name. */
void postern__log_write(struct postern__log *log, struct postern__log_head head,
		const struct postern__log_field *fields);

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
