/* SPDX-License-Identifier: MIT */

/*
 * Halts: handlers that are paused and channels that are closed. What an edit
 * makes of one, and when it ends, is decided here for all stores.
 *
 * A halt with an end is over when the store's clock reaches the end. So a clock
 * that is set forward ends it early, and one that is set back prolongs it by as
 * much; an operator can end it at any time.
 */

#include <postern/sys/memory.h>
#include <string.h>

#include "store/common.h"

bool postern__halt_holds(const struct postern_halt *stored, int64_t now) {
	return stored->on && (stored->until_ms == 0 || now < stored->until_ms);
}

static bool is_same_text(const char *a, const char *b) {
	return a == b || (a && b && strcmp(a, b) == 0);
}

bool postern__halt_outlasts(const struct postern_halt *halt,
		const struct postern_halt *other) {
	return halt->on &&
		   (!other->on || (other->until_ms != 0 &&
								  (halt->until_ms == 0 ||
										  halt->until_ms > other->until_ms)));
}

bool postern__halt_edit(const struct postern_edit *edit,
		const struct postern_halt *stored, int64_t now,
		struct postern_halt *out) {
	bool holds = postern__halt_holds(stored, now);
	if (edit->kind == POSTERN_CHANGE_RESUME ||
			edit->kind == POSTERN_CHANGE_OPEN) {
		*out = (struct postern_halt){ 0 };
		/* Also one that is over: it must not return with a clock that is set
		   back. */
		return stored->on;
	}
	*out = (struct postern_halt){
		.on = true,
		.at_ms = now,
		.until_ms = edit->for_ms > 0 ? now + edit->for_ms : 0,
		.reason = edit->reason,
		.by = edit->by,
	};
	if (holds && edit->hold) {
		return is_same_text(stored->by, POSTERN_BY_POSTERN) &&
			   postern__halt_outlasts(out, stored);
	}
	return !holds || stored->until_ms != out->until_ms ||
		   !is_same_text(stored->reason, out->reason) ||
		   !is_same_text(stored->by, out->by);
}

bool postern__halt_read(const struct postern_halt *stored, int64_t now,
		struct postern_memory *memory, struct postern_halt *out) {
	*out = (struct postern_halt){ 0 };
	if (!postern__halt_holds(stored, now)) {
		return true;
	}
	out->on = true;
	out->at_ms = stored->at_ms;
	out->until_ms = stored->until_ms;
	out->left_ms = stored->until_ms ? stored->until_ms - now : 0;
	if (memory) {
		out->reason = postern_memory_text(memory, stored->reason);
		out->by = postern_memory_text(memory, stored->by);
	}
	return !memory ||
		   (!stored->reason == !out->reason && !stored->by == !out->by);
}

bool postern__pause_stats(const struct postern_halt *stored, int64_t now,
		struct postern_memory *memory, struct postern_handler_stats *out) {
	struct postern_halt pause;
	bool ok = postern__halt_read(stored, now, memory, &pause);
	out->paused = pause.on;
	out->held_at_ms = pause.at_ms;
	out->held_until_ms = pause.until_ms;
	out->held_reason = pause.reason;
	out->held_by = pause.by;
	return ok;
}

bool postern__closed_stats(const struct postern_halt *stored,
		struct postern_memory *memory, struct postern_channel_stats *out) {
	struct postern_halt closed;
	bool ok = postern__halt_read(stored, stored->at_ms, memory, &closed);
	out->closed = closed.on;
	out->closed_at_ms = closed.at_ms;
	out->closed_reason = closed.reason;
	out->closed_by = closed.by;
	return ok;
}
