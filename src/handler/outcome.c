/* SPDX-License-Identifier: MIT */
/*
 * How the kinds write an outcome. A reason may quote any text: the output of a
 * program, SQLite's error about a text in the message. It is sanitized here, so
 * that it can be stored and shown.
 */

#include <postern/sys/handler.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "handler/kinds.h"

__attribute__((format(printf, 4, 0))) static void
outcome_vset(struct postern_outcome *outcome, enum postern_outcome_kind kind,
		int64_t delay_ms, const char *format, va_list args) {
	/* Room for text that sanitizing shortens. */
	char text[2 * POSTERN_REASON_LEN_MAX];

	(void)vsnprintf(text, sizeof text, format, args);
	outcome->kind = kind;
	outcome->delay_ms = delay_ms;
	(void)postern__utf8_clean(text, strlen(text), outcome->reason,
			sizeof outcome->reason);
}

void postern__outcome_setf(struct postern_outcome *outcome,
		enum postern_outcome_kind kind, const char *format, ...) {
	va_list args;
	va_start(args, format);
	outcome_vset(outcome, kind, 0, format, args);
	va_end(args);
}

void postern__outcome_unavailable(struct postern_outcome *outcome,
		const char *format, ...) {
	va_list args;
	va_start(args, format);
	outcome_vset(outcome, POSTERN_SNOOZE, POSTERN_HINDERED_DELAY_MS, format,
			args);
	va_end(args);
}
