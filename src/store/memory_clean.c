/* SPDX-License-Identifier: MIT */

/*
 * Cleanup of the memory store, in the order of the messages. A message that is
 * removed leaves its remembered id (identity and digest of the body), which is
 * removed later; keys of handlers may be removed before or after it. The cursor
 * is the seq that was visited last.
 */

#include <stdlib.h>
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

/* Whether the handler's delivery of the message is open or poisoned. */
static bool keeps_key(struct memory_store *self,
		const struct memory_message *message, int64_t owner) {
	postern__list_each(item, &message->deliveries) {
		const struct memory_delivery *delivery =
				container_of(item, struct memory_delivery, of_message);
		if (delivery->state != POSTERN_STATE_DONE &&
				delivery->state != POSTERN_STATE_DISCARDED &&
				postern__mem_handler(self, delivery->handler)->owner == owner) {
			return true;
		}
	}
	return false;
}

/* Whether the key of a handler has expired: by the handler's own window, or
   with the remembered id of its message. */
static bool key_is_past(struct memory_store *self,
		const struct memory_message *message, const struct memory_key *key,
		int64_t now, bool with_id) {
	int64_t owner = postern__mem_handler(self, key->scope)->owner;
	int64_t keep = postern__mem_handler(self, owner)->dedupe_ms;
	return keep == 0 ? with_id
					 : is_past(message->data.received_at_ms, keep, now) &&
							   !keeps_key(self, message, owner);
}

static size_t clean_handler_keys(struct memory_store *self,
		struct memory_message *message, int64_t now, bool with_id) {
	size_t count = 0;
	struct memory_key **place = &message->handler_keys;
	while (*place) {
		struct memory_key *key = *place;
		if (key_is_past(self, message, key, now, with_id)) {
			*place = key->next;
			postern__mem_key_remove(self, key);
			self->bytes -= sizeof *key;
			free(key);
			count++;
		} else {
			place = &key->next;
		}
	}
	return count;
}

static void clean_keys(struct memory_store *self,
		struct memory_message *message, const struct postern_retention *rule,
		int64_t now, struct postern_cleaning *cleaning) {
	bool with_id = message->removed && rule &&
				   is_past(message->data.received_at_ms, rule->dedupe_ms, now);
	cleaning->keys += clean_handler_keys(self, message, now, with_id);
	if (with_id && !message->forgotten) {
		postern__mem_remembered_remove(self, message);
		cleaning->keys++;
	}
	postern__mem_remembered_trim(self, message);
}

/* False: out of memory, and the message is unchanged. */
static bool clean_one(struct memory_store *self, int64_t seq, int64_t now,
		struct postern_cleaning *cleaning, size_t *bytes) {
	struct memory_message *message = self->messages[seq - 1];
	if (!message) {
		return true;
	}
	const struct postern_retention *rule = rule_of(cleaning, message->channel);
	if (rule && !message->removed &&
			is_past(message_ended_at(message), rule->payload_ms, now)) {
		size_t len = message->data.body_len;
		if (!postern__mem_message_remove(self, message)) {
			return false;
		}
		cleaning->messages++;
		*bytes += len;
		message = self->messages[seq - 1];
	}
	clean_keys(self, message, rule, now, cleaning);
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
