/* SPDX-License-Identifier: MIT */
/* Telling listeners what happens. Listeners are fixed at start, so no lock is
   needed to call them. */

#include "core/box.h"

void postern__emit(struct postern_box *box, const struct postern_event *event) {
	for (size_t i = 0; i < box->listener_count; i++) {
		box->listeners[i].call(box->listeners[i].context, event);
	}
}

void postern__emit_run(struct postern_run *run, enum postern_event_kind kind) {
	if (run->box->listener_count == 0) {
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
	};
	postern__emit(run->box, &event);
}
