/* SPDX-License-Identifier: MIT */
/* Emitting events to the subscribers. They are fixed at start, so the mutex is
   not needed to call them. */

#include "core/box.h"
#include "core/run.h"

void postern__emit(struct postern_box *box, const struct postern_event *event) {
	for (size_t i = 0; i < box->subscriber_count; i++) {
		box->subscribers[i].call(box->subscribers[i].context, event);
	}
}

static enum postern_state state_after(enum postern_settle_to to) {
	switch (to) {
	case POSTERN_SETTLE_DONE: return POSTERN_STATE_DONE;
	case POSTERN_SETTLE_POISONED: return POSTERN_STATE_POISONED;
	case POSTERN_SETTLE_DISCARDED: return POSTERN_STATE_DISCARDED;
	case POSTERN_SETTLE_PENDING:
	case POSTERN_SETTLE_RETURNED:
	default: return POSTERN_STATE_PENDING;
	}
}

void postern__emit_run(struct postern_run *run, enum postern_event_kind kind) {
	if (run->box->subscriber_count == 0) {
		return;
	}
	bool ended = kind != POSTERN_EVENT_STARTED;
	struct postern_event event = {
		.size = sizeof(event),
		.kind = kind,
		.seq = run->delivery.seq,
		.channel = run->delivery.channel,
		.handler = run->delivery.handler,
		.fence = run->delivery.fence,
		.attempt = run->delivery.attempt,
		.outcome = ended ? run->settlement.outcome : NULL,
		.error = ended ? run->settlement.error : NULL,
		.duration_ms = ended ? run->settlement.duration_ms : 0,
		.state = kind == POSTERN_EVENT_SETTLED ? state_after(run->settlement.to)
											   : POSTERN_STATE_ANY,
	};
	postern__emit(run->box, &event);
}
