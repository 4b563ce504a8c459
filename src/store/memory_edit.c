/* SPDX-License-Identifier: MIT */

/*
 * Changes that an operator makes in a memory store (retry, discard, pause,
 * resume, close, open), and the iteration over the deliveries that match a
 * filter, which listing uses too.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/list.h"
#include "base/pattern.h"
#include "store/common.h"
#include "store/memory.h"

void postern__mem_cursor_init(struct memory_cursor *cursor,
		struct memory_store *self, const struct postern_filter *filter,
		int64_t after_seq, int64_t after_handler) {
	int64_t last = (int64_t)self->message_count;
	/* A cursor comes from outside: do not iterate down from INT64_MAX. */
	bool inside = after_seq > 0 && after_seq <= last;
	int64_t first = filter->oldest ? (after_seq > 0 ? last + 1 : 1) : last;
	*cursor = (struct memory_cursor){
		.store = self,
		.filter = filter,
		.seq = inside ? after_seq : first,
		.handler = inside ? after_handler : -1,
	};
}

static bool id_matches(const struct postern_filter *filter, const char *id) {
	for (size_t i = 0; i < filter->message_id_count; i++) {
		if (strcmp(filter->message_ids[i], id) == 0) {
			return true;
		}
	}
	return filter->message_id_count == 0;
}

static bool text_matches(const char *wanted, const char *text) {
	return !wanted || strcmp(wanted, text) == 0;
}

static bool message_matches(const struct memory_store *self,
		const struct postern_filter *filter,
		const struct memory_message *message) {
	const struct postern_message *data = &message->data;
	return (!filter->seq || filter->seq == message->seq) &&
		   (!filter->since_ms || data->received_at_ms >= filter->since_ms) &&
		   (!filter->until_ms || data->received_at_ms < filter->until_ms) &&
		   (!filter->channel || postern__mem_channel_id(self,
										filter->channel) == message->channel) &&
		   text_matches(filter->message_id, data->id) &&
		   id_matches(filter, data->id) &&
		   (!filter->source ||
				   postern__mem_has_source(self, message, filter->source)) &&
		   (!filter->type ||
				   postern__pattern_match(filter->type, strlen(filter->type),
						   data->type, strlen(data->type)));
}

static bool delivery_matches(struct memory_store *self,
		const struct postern_filter *filter,
		const struct memory_delivery *delivery) {
	if (filter->handler) {
		int64_t owner = postern__mem_resolve(self, filter->handler);
		if (!owner || !delivery->handler ||
				postern__mem_handler(self, delivery->handler)->owner != owner) {
			return false;
		}
	}
	if ((filter->group && filter->group != delivery->error_group) ||
			(filter->error &&
					!postern__error_contains(postern__mem_last_error(delivery),
							filter->error))) {
		return false;
	}
	if (filter->state == POSTERN_STATE_RETRYING) {
		return delivery->state == POSTERN_STATE_PENDING &&
			   delivery->failures > 0;
	}
	return filter->state == POSTERN_STATE_ANY ||
		   filter->state == delivery->state;
}

struct memory_delivery *postern__mem_cursor_next(struct memory_cursor *cursor) {
	struct memory_store *self = cursor->store;
	int64_t step = cursor->filter->oldest ? 1 : -1;
	for (; cursor->seq > 0 && cursor->seq <= (int64_t)self->message_count;
			cursor->seq += step, cursor->handler = -1) {
		struct memory_message *message =
				postern__mem_message_get(self, cursor->seq);
		if (!message || !message_matches(self, cursor->filter, message)) {
			continue;
		}
		postern__list_each(item, &message->deliveries) {
			struct memory_delivery *delivery =
					container_of(item, struct memory_delivery, of_message);
			if (delivery->handler > cursor->handler &&
					delivery_matches(self, cursor->filter, delivery)) {
				cursor->handler = delivery->handler;
				return delivery;
			}
		}
	}
	return NULL;
}

static int retry_check(const struct memory_delivery *delivery,
		struct postern_error *error) {
	long long seq = (long long)delivery->message->seq;
	switch (delivery->state) {
	case POSTERN_STATE_LEASED:
		return postern__fail(error, POSTERN_E_BUSY,
				"message %lld is being handled right now", seq);
	case POSTERN_STATE_DONE:
		return postern__fail(error, POSTERN_E_INVALID,
				"the delivery of message %lld is done: not retried", seq);
	default:
		if (delivery->handler == 0) {
			return postern__fail(error, POSTERN_E_INVALID,
					"message %lld has no handler to retry it", seq);
		}
		return POSTERN_OK;
	}
}

static int discard_check(const struct memory_delivery *delivery,
		struct postern_error *error) {
	long long seq = (long long)delivery->message->seq;
	switch (delivery->state) {
	case POSTERN_STATE_LEASED:
		return postern__fail(error, POSTERN_E_BUSY,
				"message %lld is being handled right now", seq);
	case POSTERN_STATE_DONE:
		return postern__fail(error, POSTERN_E_INVALID,
				"the delivery of message %lld is done: not discarded", seq);
	default: return POSTERN_OK;
	}
}

static int edit_check(const struct postern_edit *edit,
		const struct memory_delivery *delivery, struct postern_error *error) {
	return edit->kind == POSTERN_CHANGE_RETRY ? retry_check(delivery, error)
											  : discard_check(delivery, error);
}

/* A discarded delivery stays discarded: discarding it again succeeds and
   changes nothing. */
static bool is_needed(const struct postern_edit *edit,
		const struct memory_delivery *delivery) {
	return edit->kind == POSTERN_CHANGE_RETRY ||
		   delivery->state != POSTERN_STATE_DISCARDED;
}

static void edit_one(struct memory_store *self, const struct postern_edit *edit,
		struct memory_delivery *delivery) {
	int64_t now = postern__mem_now(self);
	if (edit->kind == POSTERN_CHANGE_DISCARD) {
		postern__mem_make_ended(self, delivery, POSTERN_STATE_DISCARDED, now);
		return;
	}
	if (delivery->state != POSTERN_STATE_PENDING) {
		delivery->failures = 0;
		delivery->breaks = 0;
		delivery->crashes = 0;
		delivery->error_group = 0;
	}
	postern__mem_make_pending(self, delivery, now, now, delivery->group);
}

/* A handler has two deliveries of a message if the handler and its alias each
   had one before they were merged; this returns the one that can be edited. */
static struct memory_delivery *edit_find(struct memory_store *self,
		const struct postern_edit *edit) {
	struct memory_message *message = postern__mem_message_get(self, edit->seq);
	if (!message) {
		return NULL;
	}
	if (edit->handler[0] == '\0') {
		return postern__mem_delivery_find(message, 0);
	}
	int64_t owner = postern__mem_resolve(self, edit->handler);
	struct memory_delivery *found = NULL;
	postern__list_each(item, &message->deliveries) {
		struct memory_delivery *delivery =
				container_of(item, struct memory_delivery, of_message);
		if (delivery->handler && owner &&
				postern__mem_handler(self, delivery->handler)->owner == owner &&
				(!found || edit_check(edit, found, NULL) != POSTERN_OK)) {
			found = delivery;
		}
	}
	return found;
}

static int edit_single(struct memory_store *self, struct postern_edit *edit,
		struct postern_error *error) {
	struct memory_delivery *delivery = edit_find(self, edit);
	if (!delivery) {
		return postern__fail(error, POSTERN_E_NOTFOUND,
				"message %lld has no delivery to '%s'", (long long)edit->seq,
				edit->handler);
	}
	int r = edit_check(edit, delivery, error);
	if (r != POSTERN_OK) {
		return r;
	}
	edit->count = is_needed(edit, delivery);
	if (edit->count > 0 && !edit->dry_run) {
		edit_one(self, edit, delivery);
	}
	return POSTERN_OK;
}

static int edit_many(struct memory_store *self, struct postern_edit *edit) {
	edit->count = 0;
	edit->total = 0;
	struct memory_cursor cursor;
	postern__mem_cursor_init(&cursor, self, edit->filter, 0, 0);
	struct memory_delivery *delivery;
	while ((delivery = postern__mem_cursor_next(&cursor))) {
		if (edit_check(edit, delivery, NULL) != POSTERN_OK ||
				!is_needed(edit, delivery)) {
			continue;
		}
		edit->total++;
		if (edit->count == edit->filter->limit) {
			continue;
		}
		if (!edit->dry_run) {
			edit_one(self, edit, delivery);
		}
		edit->count++;
	}
	return POSTERN_OK;
}

/* Pauses or resumes a handler, closes or opens a channel. */
static int edit_halt(struct memory_store *self, struct postern_edit *edit,
		struct postern_halt *stored, struct postern_error *error) {
	struct postern_halt next;
	edit->count =
			postern__halt_edit(edit, stored, postern__mem_now(self), &next);
	edit->until_ms = next.until_ms;
	if (edit->count == 0 || edit->dry_run) {
		return POSTERN_OK;
	}
	char *reason = next.reason ? strdup(next.reason) : NULL;
	char *by = next.by ? strdup(next.by) : NULL;
	if ((next.reason && !reason) || (next.by && !by)) {
		free(reason);
		free(by);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	postern__mem_halt_finish(stored);
	*stored = next;
	stored->reason = reason;
	stored->by = by;
	return POSTERN_OK;
}

static int edit_handler(struct memory_store *self, struct postern_edit *edit,
		struct postern_error *error) {
	int64_t id = postern__mem_resolve(self, edit->handler);
	if (!id) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "no handler '%s'",
				edit->handler);
	}
	return edit_halt(self, edit, &postern__mem_handler(self, id)->pause, error);
}

static int edit_channel(struct memory_store *self, struct postern_edit *edit,
		struct postern_error *error) {
	int64_t id = postern__mem_channel_id(self, edit->channel);
	if (!id) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "no channel '%s'",
				edit->channel);
	}
	return edit_halt(self, edit, &self->channels[id - 1].closed, error);
}

int postern__mem_edit(struct memory_store *self, struct postern_edit *edit,
		struct postern_error *error) {
	switch (edit->kind) {
	case POSTERN_CHANGE_PAUSE:
	case POSTERN_CHANGE_RESUME: return edit_handler(self, edit, error);
	case POSTERN_CHANGE_CLOSE:
	case POSTERN_CHANGE_OPEN: return edit_channel(self, edit, error);
	default: break;
	}
	return edit->filter ? edit_many(self, edit)
						: edit_single(self, edit, error);
}
