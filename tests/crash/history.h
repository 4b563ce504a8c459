/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CRASH_HISTORY_H
#define POSTERN_TESTS_CRASH_HISTORY_H

/*
 * A history: what a client and its handlers observed, as lines of JSON for the
 * checker. Each line is written before the program continues, with one call, so
 * that the end of the program truncates at most the last one.
 *
 * Texts come from the scenario and need no escaping.
 */

#include <postern/event.h>
#include <postern/handler.h>
#include <postern/message.h>
#include <postern/sys/clock.h>
#include <stdbool.h>
#include <stdint.h>

struct history {
	int fd;
	int node; /* the life of the program, counted from 1 */
	const struct postern_clock *clock; /* the store's */
	/* Add the time of each line by the monotonic clock, which orders the lines
	   of several processes. */
	bool timed;
};

/* Append to a file, which is created. Ends the program on failure. */
void history_open(struct history *history, const char *path, int node,
		const struct postern_clock *clock);
void history_close(struct history *history);

__attribute__((format(printf, 2, 3))) void
history_write(const struct history *history, const char *format, ...);

void history_send(const struct history *history, const char *channel,
		const struct postern_message *message);
/* `code` is the result of the accept or the code of the receipt. */
void history_receipt(const struct history *history, const char *channel,
		const struct postern_message *message, int code, int64_t seq);
void history_run(const struct history *history,
		const struct postern_message *message,
		const struct postern_delivery *delivery);
void history_ran(const struct history *history,
		const struct postern_delivery *delivery,
		enum postern_outcome_kind kind);
/* Writes SETTLED, FENCED and lock events; other events are ignored. */
void history_event(const struct history *history,
		const struct postern_event *event);

#endif
