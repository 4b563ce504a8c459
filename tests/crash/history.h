/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CRASH_HISTORY_H
#define POSTERN_TESTS_CRASH_HISTORY_H

/*
 * A history: what a client and its handlers saw, as lines of JSON for the
 * checker. Each line is written before the program goes on, and with one
 * call, so that whatever ends the program cuts off at most the last one.
 *
 * Texts are the scenario's own: nothing in them has to be escaped.
 */

#include <postern/event.h>
#include <postern/handler.h>
#include <postern/message.h>
#include <postern/sys/clock.h>
#include <stdbool.h>
#include <stdint.h>

struct history {
	int fd;
	int node;                          /* the life of the program, 1, 2, … */
	const struct postern_clock *clock; /* the store's */
	/* Say when each line was written, by the machine's clock that never goes
	   back, which puts the lines of several processes in order. */
	bool timed;
};

/* Append to a file, which is made. Ends the program if it cannot. */
void history_open(struct history *history, const char *path, int node,
		const struct postern_clock *clock);
void history_close(struct history *history);

__attribute__((format(printf, 2, 3))) void
history_write(const struct history *history, const char *format, ...);

void history_send(const struct history *history, const char *channel,
		const struct postern_message *message);
/* `code` is what the accept returned, or the receipt's. */
void history_receipt(const struct history *history, const char *channel,
		const struct postern_message *message, int code, int64_t seq);
void history_run(const struct history *history,
		const struct postern_message *message,
		const struct postern_delivery *delivery);
void history_ran(const struct history *history,
		const struct postern_delivery *delivery,
		enum postern_outcome_kind kind);
/* SETTLED, FENCED and those of locks; other events are not written. */
void history_event(const struct history *history,
		const struct postern_event *event);

#endif
