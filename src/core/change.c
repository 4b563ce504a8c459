/* SPDX-License-Identifier: MIT */
/*
 * The changes that an operator makes. All of them pass postern__edit(): one
 * place checks them, has the store make them durable, and reports the event.
 */

#include <postern/change.h>

#include "base/fail.h"
#include "base/point.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "core/box.h"
#include "core/cancel.h"
#include "core/maintenance.h"
#include "core/run.h"
#include "core/shown.h"
#include "core/suggest.h"

#include <postern/handler.h>
#include <postern/sys/memory.h>
#include <string.h>

/* Add the message of a change of one delivery; without memory, or if it was
   cleaned up meanwhile, the event has its number only. */
static void add_edited_message(struct postern_box *box,
		struct postern_memory *memory, struct postern_event *event) {
	struct postern_detail detail = { 0 };
	if (memory && box->store->ops->get(box->store, event->seq, memory, &detail,
						  NULL) == POSTERN_OK) {
		event->message_id = detail.message->id;
		event->channel = detail.channel;
	}
}

void postern__edit_report(struct postern_box *box,
		const struct postern_edit *edit) {
	static const char *const actions[] = {
		[POSTERN_CHANGE_RETRY] = "retry",
		[POSTERN_CHANGE_DISCARD] = "discard",
		[POSTERN_CHANGE_PAUSE] = "pause",
		[POSTERN_CHANGE_RESUME] = "resume",
		[POSTERN_CHANGE_CANCEL] = "cancel",
		[POSTERN_CHANGE_CLOSE] = "close",
		[POSTERN_CHANGE_OPEN] = "open",
	};
	if (!postern__event_wanted(&box->subscribers, POSTERN_EVENT_EDITED)) {
		return;
	}
	struct postern_memory *memory = NULL;
	struct postern_event event = {
		.kind = POSTERN_EVENT_EDITED,
		.action = actions[edit->kind],
		.handler = edit->filter ? edit->filter->handler : edit->handler,
		.channel = edit->channel,
		.seq = edit->seq,
		.count = edit->filter ? edit->count : 1,
		.reason = edit->reason,
		.by = edit->by,
		.until_ms = edit->until_ms,
	};
	if (event.seq > 0) {
		memory = postern_memory_create();
		add_edited_message(box, memory, &event);
	}
	postern__emit(box, &event);
	postern_memory_destroy(memory);
}

static int edit_store(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error) {
	postern__point("edit.before");
	int r = box->store->ops->edit(box->store, edit, error);
	postern__point("edit.after");
	return r;
}

int postern__edit(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error) {
	if (box->options.read_only) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the box is open for reading only");
	}
	int r = edit_store(box, edit, error);
	if (!r && !edit->dry_run) {
		(void)pthread_mutex_lock(&box->mutex);
		postern__claim_hint_all(box);
		(void)pthread_mutex_unlock(&box->mutex);
		postern__edit_report(box, edit);
	}
	return r;
}

static bool has_condition(const struct postern_filter *filter) {
	return filter->state || filter->channel || filter->handler ||
		   filter->type || filter->since_ms || filter->until_ms ||
		   filter->message_id || filter->source || filter->seq ||
		   filter->error || filter->group || filter->message_id_count;
}

static int change_many(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error) {
	const struct postern_filter *given = edit->filter;
	struct postern_filter full;
	int r = postern__filter_check(given, POSTERN_LIST_LIMIT_MAX, &full, error);
	if (r) {
		return r;
	}
	if (postern__state_stored(full.state) != full.state) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the state '%s' is derived: a change of many deliveries needs "
				"a stored one, here '%s'",
				postern_state_name(full.state),
				postern_state_name(postern__state_stored(full.state)));
	}
	if (!has_condition(&full)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a change of many deliveries needs a filter: set at least one "
				"condition besides the limit");
	}
	edit->filter = &full;
	r = postern__edit(box, edit, error);
	edit->filter = given;
	return !r && edit->total == 0
				   ? postern__filter_check_names(box, &full, error)
				   : r;
}

static int change_one(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error) {
	if (!edit->handler) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the handler is missing");
	}
	int r = postern__edit(box, edit, error);
	bool refused = r == POSTERN_E_INVALID || r == POSTERN_E_BUSY;
	if (refused && error && edit->handler[0] != '\0') {
		/* The store's error names the message only: add the handler. */
		return postern__fail(error, r, "handler '%s': %s", edit->handler,
				error->text);
	}
	return r;
}

static int change_channel(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error) {
	if (!edit->channel || edit->channel[0] == '\0') {
		return postern__fail(error, POSTERN_E_INVALID,
				"the channel is missing");
	}
	int r = postern__edit(box, edit, error);
	if (r == POSTERN_E_NOTFOUND) {
		postern__suggest_channel(box, edit->channel, error);
	}
	return r;
}

static int change_handler(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error) {
	if (!edit->handler || edit->handler[0] == '\0') {
		return postern__fail(error, POSTERN_E_INVALID,
				"the handler is missing");
	}
	int r = postern__edit(box, edit, error);
	if (r == POSTERN_E_NOTFOUND) {
		postern__suggest_handler(box, edit->handler, error);
	}
	/* The change is stored. If the copy cannot be read now, the next poll
	   reads it. */
	if (!r && box->started) {
		(void)postern__pauses_refresh(box, NULL);
	}
	return r;
}

/* A handler that postern itself holds must not look like a pause of an
   operator: the name is reserved. */
static int check_change(const struct postern_edit *edit,
		struct postern_error *error) {
	int r = postern__change_text_check("the reason", edit->reason,
			POSTERN_CHANGE_REASON_LEN_MAX, error);
	if (!r) {
		r = postern__change_text_check("the author (by)", edit->by,
				POSTERN_CHANGE_BY_LEN_MAX, error);
	}
	if (!r && edit->by && strcmp(edit->by, POSTERN_BY_POSTERN) == 0) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"the author (by) '%s' is reserved", edit->by);
	}
	bool timed = edit->kind == POSTERN_CHANGE_PAUSE;
	if (!r && (edit->for_ms < 0 || edit->for_ms > POSTERN_DURATION_MS_MAX ||
					  (edit->for_ms > 0 && !timed))) {
		r = postern__fail(error, POSTERN_E_INVALID,
				timed ? "a pause ends after at most 10 years (3650 days)"
					  : "only a pause has an end (for_ms)");
	}
	return r;
}

int postern__hold_handler(struct postern_box *box, const char *key,
		int64_t for_ms, const char *reason, struct postern_error *error) {
	char text[POSTERN_CHANGE_REASON_LEN_MAX + 1];
	(void)postern__utf8_clean(reason, strlen(reason), text, sizeof(text));
	struct postern_edit edit = {
		.kind = POSTERN_CHANGE_PAUSE,
		.handler = key,
		.for_ms = for_ms < 0                         ? 1
				  : for_ms > POSTERN_DURATION_MS_MAX ? POSTERN_DURATION_MS_MAX
													 : for_ms,
		.hold = true,
		.reason = text,
		.by = POSTERN_BY_POSTERN,
	};
	int r = edit_store(box, &edit, error);
	if (!r && for_ms == POSTERN__HOLD_FOR_GOOD && edit.count > 0) {
		postern__edit_report(box, &edit); /* somebody has to resume it */
	}
	if (!r && box->started) {
		(void)postern__pauses_refresh(box, NULL);
	}
	return r;
}

int postern_box_change(struct postern_box *box, struct postern_change *change,
		struct postern_error *error) {
	struct postern_change full = { .size = sizeof(full) };
	int r = postern__sized_copy(&full, sizeof(full), change,
			"struct postern_change", error);
	if (r) {
		return r;
	}
	struct postern_edit edit = {
		.kind = full.kind,
		.seq = full.seq,
		.handler = full.handler,
		.channel = full.channel,
		.filter = full.filter,
		.dry_run = full.dry_run,
		.uncounted = full.uncounted,
		.for_ms = full.for_ms,
		.reason = full.reason && full.reason[0] ? full.reason : NULL,
		.by = full.by && full.by[0] ? full.by : NULL,
	};
	r = check_change(&edit, error);
	if (r) {
		return r;
	}
	switch (full.kind) {
	case POSTERN_CHANGE_RETRY:
	case POSTERN_CHANGE_DISCARD:
		r = full.filter ? change_many(box, &edit, error)
						: change_one(box, &edit, error);
		break;
	case POSTERN_CHANGE_PAUSE:
	case POSTERN_CHANGE_RESUME: r = change_handler(box, &edit, error); break;
	case POSTERN_CHANGE_CLOSE:
	case POSTERN_CHANGE_OPEN: r = change_channel(box, &edit, error); break;
	case POSTERN_CHANGE_CANCEL:
		r = postern__cancel(box, &edit, error);
		if (!r && !edit.dry_run) {
			postern__edit_report(box, &edit);
		}
		break;
	default:
		r = postern__fail(error, POSTERN_E_INVALID, "unknown change %d",
				(int)full.kind);
		break;
	}
	if (!r) {
		change->count = edit.count;
		change->total = edit.total;
	}
	return r;
}

int postern_box_retry(struct postern_box *box, int64_t seq, const char *handler,
		struct postern_error *error) {
	struct postern_change change = {
		.size = sizeof(change),
		.kind = POSTERN_CHANGE_RETRY,
		.seq = seq,
		.handler = handler,
	};
	return postern_box_change(box, &change, error);
}

int postern_box_discard(struct postern_box *box, int64_t seq,
		const char *handler, struct postern_error *error) {
	struct postern_change change = {
		.size = sizeof(change),
		.kind = POSTERN_CHANGE_DISCARD,
		.seq = seq,
		.handler = handler,
	};
	return postern_box_change(box, &change, error);
}

static int change_all(struct postern_box *box, enum postern_change_kind kind,
		const struct postern_filter *filter, bool dry_run, uint64_t *count_out,
		struct postern_error *error) {
	/* The same refusal as of a filter without a condition. */
	const struct postern_filter none = { .size = sizeof(none) };
	struct postern_change change = {
		.size = sizeof(change),
		.kind = kind,
		.filter = filter ? filter : &none,
		.dry_run = dry_run,
	};
	int r = postern_box_change(box, &change, error);
	if (!r && count_out) {
		*count_out = change.count;
	}
	return r;
}

int postern_box_retry_all(struct postern_box *box,
		const struct postern_filter *filter, bool dry_run, uint64_t *count_out,
		struct postern_error *error) {
	return change_all(box, POSTERN_CHANGE_RETRY, filter, dry_run, count_out,
			error);
}

int postern_box_discard_all(struct postern_box *box,
		const struct postern_filter *filter, bool dry_run, uint64_t *count_out,
		struct postern_error *error) {
	return change_all(box, POSTERN_CHANGE_DISCARD, filter, dry_run, count_out,
			error);
}

int postern_box_pause(struct postern_box *box, const char *handler,
		struct postern_error *error) {
	struct postern_change change = {
		.size = sizeof(change),
		.kind = POSTERN_CHANGE_PAUSE,
		.handler = handler,
	};
	return postern_box_change(box, &change, error);
}

int postern_box_resume(struct postern_box *box, const char *handler,
		struct postern_error *error) {
	struct postern_change change = {
		.size = sizeof(change),
		.kind = POSTERN_CHANGE_RESUME,
		.handler = handler,
	};
	return postern_box_change(box, &change, error);
}
