/* SPDX-License-Identifier: MIT */

/*
 * Cleanup of the memory store, in the order of the messages. A message that is
 * removed leaves its remembered id (identity and digest of the body), which is
 * removed later. The cursor is the seq that was visited last.
 */

#include <string.h>

#include "base/fail.h"
#include "base/list.h"
#include "store/memory.h"

_Static_assert(sizeof(int64_t) <= POSTERN_CLEANING_CURSOR_LEN,
		"the cursor is a seq");

static const struct postern_retention *
rule_of(const struct postern_cleaning *cleaning, int64_t channel) {
	for (size_t i = 0; i < cleaning->rule_count; i++) {
		if (cleaning->rules[i].channel == channel) {
			return &cleaning->rules[i];
		}
	}
	return NULL;
}

/* When the message's last delivery ended; -1: the message must be kept. */
static int64_t message_ended_at(const struct memory_message *message) {
	int64_t at = message->data.received_at_ms;
	postern__list_each(item, &message->deliveries) {
		const struct memory_delivery *delivery =
				container_of(item, struct memory_delivery, of_message);
		if (delivery->state != POSTERN_STATE_DONE &&
				delivery->state != POSTERN_STATE_DISCARDED) {
			return -1;
		}
		if (delivery->finished_at_ms > at) {
			at = delivery->finished_at_ms;
		}
	}
	return at;
}

static bool is_past(int64_t at, int64_t keep_ms, int64_t now) {
	return at >= 0 && keep_ms >= 0 && now - at >= keep_ms;
}

/* False: out of memory, and the message is unchanged. */
static bool clean_one(struct memory_store *self, int64_t seq, int64_t now,
		struct postern_cleaning *cleaning, size_t *bytes) {
	struct memory_message *message = self->messages[seq - 1];
	const struct postern_retention *rule =
			message ? rule_of(cleaning, message->channel) : NULL;
	if (!rule) {
		return true;
	}
	if (!message->removed) {
		if (!is_past(message_ended_at(message), rule->payload_ms, now)) {
			return true;
		}
		size_t len = message->data.body_len;
		if (!postern__mem_message_remove(self, message)) {
			return false;
		}
		cleaning->messages++;
		*bytes += len;
		message = self->messages[seq - 1];
	}
	if (is_past(message->data.received_at_ms, rule->dedupe_ms, now)) {
		cleaning->keys += postern__mem_remembered_remove(self, message);
	}
	return true;
}

int postern__mem_clean(struct memory_store *self,
		struct postern_cleaning *cleaning, struct postern_error *error) {
	int64_t now = postern__mem_now(self);
	int64_t seq;
	memcpy(&seq, cleaning->cursor, sizeof seq);
	int64_t last = (int64_t)self->message_count;
	bool memory = true;
	cleaning->messages = 0;
	cleaning->keys = 0;
	size_t visited = 0;
	size_t bytes = 0;
	for (; visited < cleaning->max && bytes <= cleaning->bytes_max &&
			seq < last;
			visited++) {
		memory = clean_one(self, seq + 1, now, cleaning, &bytes);
		if (!memory) {
			break;
		}
		seq++;
	}
	if (!memory && visited == 0) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	memcpy(cleaning->cursor, &seq, sizeof seq);
	cleaning->more = seq < last;
	if (!cleaning->more) {
		postern__mem_samples_purge(self, now);
	}
	return POSTERN_OK;
}
