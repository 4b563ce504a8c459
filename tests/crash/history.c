/* SPDX-License-Identifier: MIT */
/* Writes lines of JSON, with one call each. */

#include "crash/history.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The longest line: a message's body is a short text here. */
#define LINE_LEN_MAX 1024
/* The times at the end of each line. */
#define TAIL_LEN_MAX 80

void history_open(struct history *history, const char *path, int node,
		const struct postern_clock *clock) {
	history->node = node;
	history->clock = clock;
	history->timed = false;
	history->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (history->fd < 0) {
		perror(path);
		exit(2);
	}
}

void history_close(struct history *history) {
	(void)close(history->fd);
	history->fd = -1;
}

static long long now_ns(void) {
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void history_write(const struct history *history, const char *format, ...) {
	char line[LINE_LEN_MAX];
	va_list args;
	va_start(args, format);
	int len = vsnprintf(line, sizeof line - TAIL_LEN_MAX, format, args);
	va_end(args);
	if (len < 1 || (size_t)len >= sizeof line - TAIL_LEN_MAX) {
		(void)fputs("scenario: a line of history is too long\n", stderr);
		exit(2);
	}
	/* Replaces the closing brace. */
	len--;
	len += snprintf(line + len, TAIL_LEN_MAX, ",\"at\":%lld",
			(long long)history->clock->wall_ms(history->clock->context));
	if (history->timed) {
		len += snprintf(line + len, TAIL_LEN_MAX / 2, ",\"t\":%lld", now_ns());
	}
	len += snprintf(line + len, sizeof "}\n", "}\n");
	if (write(history->fd, line, (size_t)len) != len) {
		perror("scenario: history");
		exit(2);
	}
}

static const char *source_of(const char *channel,
		const struct postern_message *message) {
	return message->source ? message->source : channel;
}

void history_send(const struct history *history, const char *channel,
		const struct postern_message *message) {
	history_write(history,
			"{\"e\":\"send\",\"node\":%d,\"channel\":\"%s\",\"source\":\"%s\","
			"\"id\":\"%s\",\"body\":\"%.*s\"}",
			history->node, channel, source_of(channel, message), message->id,
			(int)message->body_len, (const char *)message->body);
}

static const char *result_of(int code) {
	switch (code) {
	case POSTERN_OK: return "accepted";
	case POSTERN_E_DUPLICATE: return "duplicate";
	case POSTERN_E_CONFLICT: return "conflict";
	case POSTERN_E_INVALID:
	case POSTERN_E_NOTFOUND: return "rejected";
	default: return "failed";
	}
}

void history_receipt(const struct history *history, const char *channel,
		const struct postern_message *message, int code, int64_t seq) {
	history_write(history,
			"{\"e\":\"receipt\",\"node\":%d,\"channel\":\"%s\",\"source\":"
			"\"%s\",\"id\":\"%s\",\"body\":\"%.*s\",\"result\":\"%s\","
			"\"seq\":%lld}",
			history->node, channel, source_of(channel, message), message->id,
			(int)message->body_len, (const char *)message->body,
			result_of(code), (long long)seq);
}

void history_run(const struct history *history,
		const struct postern_message *message,
		const struct postern_delivery *delivery) {
	history_write(history,
			"{\"e\":\"run\",\"node\":%d,\"seq\":%lld,\"channel\":\"%s\","
			"\"source\":\"%s\",\"id\":\"%s\",\"body\":\"%.*s\",\"handler\":"
			"\"%s\",\"fence\":%llu,\"attempt\":%u}",
			history->node, (long long)delivery->seq, delivery->channel,
			source_of(delivery->channel, message), message->id,
			(int)message->body_len, (const char *)message->body,
			delivery->handler, (unsigned long long)delivery->fence,
			(unsigned)delivery->attempt);
}

static const char *outcome_of(enum postern_outcome_kind kind) {
	switch (kind) {
	case POSTERN_DONE: return "done";
	case POSTERN_SNOOZE: return "snooze";
	case POSTERN_POISON: return "poison";
	case POSTERN_DISCARD: return "discard";
	default: return "retry";
	}
}

void history_ran(const struct history *history,
		const struct postern_delivery *delivery,
		enum postern_outcome_kind kind) {
	history_write(history,
			"{\"e\":\"ran\",\"node\":%d,\"seq\":%lld,\"handler\":\"%s\","
			"\"fence\":%llu,\"outcome\":\"%s\"}",
			history->node, (long long)delivery->seq, delivery->handler,
			(unsigned long long)delivery->fence, outcome_of(kind));
}

/* The state after a settlement. */
static const char *state_of(const struct postern_event *event) {
	return strcmp(event->outcome, "returned") == 0
				   ? "returned"
				   : postern_state_name(event->state);
}

void history_event(const struct history *history,
		const struct postern_event *event) {
	if (event->state != POSTERN_STATE_ANY) {
		history_write(history,
				"{\"e\":\"settled\",\"node\":%d,\"seq\":%lld,\"handler\":"
				"\"%s\",\"fence\":%llu,\"to\":\"%s\"}",
				history->node, (long long)event->seq, event->handler,
				(unsigned long long)event->fence, state_of(event));
	} else if (event->kind == POSTERN_EVENT_FENCED) {
		history_write(history,
				"{\"e\":\"fenced\",\"node\":%d,\"seq\":%lld,\"handler\":"
				"\"%s\",\"fence\":%llu}",
				history->node, (long long)event->seq, event->handler,
				(unsigned long long)event->fence);
	} else if (event->kind == POSTERN_EVENT_LOCKED ||
			   event->kind == POSTERN_EVENT_LOCK_LOST) {
		history_write(history, "{\"e\":\"%s\",\"node\":%d,\"fence\":%llu}",
				event->kind == POSTERN_EVENT_LOCKED ? "locked" : "unlocked",
				history->node, (unsigned long long)event->fence);
	}
}
