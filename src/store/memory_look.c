/* SPDX-License-Identifier: MIT */

/*
 * Reading a memory store: each operation iterates over all messages, newest
 * first, and copies its result under the mutex.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/list.h"
#include "store/common.h"
#include "store/memory.h"

static int no_memory(struct postern_error *error) {
	return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

static const char *handler_key(struct memory_store *self, int64_t handler) {
	return handler ? postern__mem_owner(self, handler)->key : "";
}

static bool row_export(struct memory_store *self,
		const struct memory_delivery *delivery, struct postern_memory *memory,
		struct postern_row *out) {
	const struct memory_message *message = delivery->message;
	const char *last_error = postern__mem_last_error(delivery);
	*out = (struct postern_row){
		.seq = message->seq,
		.message_id = postern_memory_text(memory, message->data.id),
		.source = postern_memory_text(memory, message->data.source),
		.channel = postern_memory_text(memory,
				self->channels[message->channel - 1].name),
		.handler = postern_memory_text(memory,
				handler_key(self, delivery->handler)),
		.type = postern_memory_text(memory, message->data.type),
		.state = delivery->state,
		.failures = delivery->failures,
		.starts = delivery->starts,
		.crashes = delivery->crashes,
		.fence = delivery->fence,
		.group = delivery->error_group,
		.received_at_ms = message->data.received_at_ms,
		.next_at_ms = delivery->due_at_ms,
		.leased_at_ms = delivery->leased_at_ms,
		.finished_at_ms = delivery->finished_at_ms,
		.last_error = postern_memory_text(memory, last_error),
		.node = delivery->node,
		.handler_id = delivery->handler,
	};
	return out->message_id && out->source && out->channel && out->handler &&
		   out->type && (out->last_error || !last_error);
}

int postern__mem_list(struct memory_store *self,
		const struct postern_query *query, struct postern_memory *memory,
		struct postern_page *out, struct postern_error *error) {
	size_t limit = query->filter->limit;
	struct memory_cursor cursor;
	postern__mem_cursor_init(&cursor, self, query->filter, query->after_seq,
			query->after_handler);
	struct postern_page page = {
		.rows = postern_memory_alloc(memory,
				limit * sizeof(struct postern_row)),
	};
	if (!page.rows) {
		return no_memory(error);
	}
	const struct memory_delivery *delivery;
	while ((delivery = postern__mem_cursor_next(&cursor))) {
		if (page.count == limit) {
			page.more = true;
			break;
		}
		if (!row_export(self, delivery, memory, &page.rows[page.count])) {
			return no_memory(error);
		}
		page.count++;
		page.last_seq = delivery->message->seq;
		page.last_handler = delivery->handler;
	}
	*out = page;
	return POSTERN_OK;
}

static bool attempts_export(const struct memory_delivery *delivery,
		struct postern_memory *memory, struct postern_delivery_detail *out) {
	struct postern_attempt *attempts = postern_memory_alloc(memory,
			delivery->attempt_count * sizeof(struct postern_attempt));
	if (!attempts) {
		return false;
	}
	size_t count = 0;
	postern__list_each(item, &delivery->attempts) {
		const struct memory_attempt *attempt =
				container_of(item, struct memory_attempt, link);
		attempts[count] = (struct postern_attempt){
			.fence = attempt->fence,
			.started_at_ms = attempt->started_at_ms,
			.finished_at_ms = attempt->finished_at_ms,
			.outcome = postern_memory_text(memory, attempt->outcome),
			.error = postern_memory_text(memory, attempt->error),
		};
		if (!attempts[count].outcome ||
				(attempt->error && !attempts[count].error)) {
			return false;
		}
		count++;
	}
	out->attempts = attempts;
	out->attempt_count = count;
	return true;
}

static bool conflicts_export(const struct memory_message *message,
		struct postern_memory *memory, struct postern_detail *out) {
	struct postern_conflict *conflicts = postern_memory_alloc(memory,
			message->conflict_kept * sizeof(struct postern_conflict));
	if (!conflicts) {
		return false;
	}
	size_t count = 0;
	postern__list_each(item, &message->conflicts) {
		const struct memory_conflict *conflict =
				container_of(item, struct memory_conflict, link);
		conflicts[count] = (struct postern_conflict){
			.at_ms = conflict->at_ms,
			.body_len = conflict->body_len,
			.transport = postern_memory_text(memory, conflict->transport),
		};
		if (!conflicts[count].transport) {
			return false;
		}
		count++;
	}
	out->conflicts = conflicts;
	out->conflict_kept = count;
	return true;
}

static bool deliveries_export(struct memory_store *self,
		const struct memory_message *message, struct postern_memory *memory,
		struct postern_detail *out) {
	struct postern_delivery_detail *details = postern_memory_alloc(memory,
			message->delivery_count * sizeof(struct postern_delivery_detail));
	if (!details) {
		return false;
	}
	size_t count = 0;
	bool complete = true;
	postern__list_each(item, &message->deliveries) {
		const struct memory_delivery *delivery =
				container_of(item, struct memory_delivery, of_message);
		int64_t finished_at = delivery->finished_at_ms;
		complete = complete && finished_at != 0;
		out->completed_at_ms = finished_at > out->completed_at_ms
									   ? finished_at
									   : out->completed_at_ms;
		if (!row_export(self, delivery, memory, &details[count].row) ||
				!attempts_export(delivery, memory, &details[count])) {
			return false;
		}
		count++;
	}
	out->completed_at_ms = complete ? out->completed_at_ms : 0;
	out->deliveries = details;
	out->delivery_count = count;
	return true;
}

int postern__mem_get(struct memory_store *self, int64_t seq,
		struct postern_memory *memory, struct postern_detail *out,
		struct postern_error *error) {
	const struct memory_message *message = postern__mem_message_get(self, seq);
	if (!message) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "no message %lld",
				(long long)seq);
	}
	struct postern_message *content =
			postern_memory_alloc(memory, sizeof(*content));
	struct postern_detail detail = {
		.seq = seq,
		.message = content,
		.channel = postern_memory_text(memory,
				self->channels[message->channel - 1].name),
		.duplicate_count = message->duplicate_count,
		.duplicate_at_ms = message->duplicate_at_ms,
		.conflict_count = message->conflict_count,
	};
	if (!detail.channel || !content ||
			!postern__mem_message_export(message, memory, content) ||
			!conflicts_export(message, memory, &detail) ||
			!deliveries_export(self, message, memory, &detail)) {
		return no_memory(error);
	}
	*out = detail;
	return POSTERN_OK;
}

/* Whether a key of the message, or of a handler of it, has this value. */
static bool has_key(const struct memory_message *message,
		const uint8_t first[POSTERN__KEY_LEN]) {
	bool found =
			memcmp(message->key.bytes, first, POSTERN__KEY_PREFIX_LEN) == 0;
	for (const struct memory_key *key = message->handler_keys; key && !found;
			key = key->next) {
		found = memcmp(key->bytes, first, POSTERN__KEY_PREFIX_LEN) == 0;
	}
	return found;
}

int postern__mem_find(struct memory_store *self, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error) {
	(void)error; /* not finding a message is a result, and nothing can fail */
	uint8_t first[POSTERN__KEY_LEN];
	uint8_t last[POSTERN__KEY_LEN];
	size_t count = 0;
	postern__key_range(self->hash_key, id, first, last);
	for (size_t i = self->message_count; i > 0 && count < max; i--) {
		const struct memory_message *message = self->messages[i - 1];
		if (message && !message->removed &&
				(strcmp(message->data.id, id) == 0 ||
						has_key(message, first)) &&
				(!source || postern__mem_has_source(self, message, source)) &&
				(!channel || postern__mem_channel_id(self, channel) ==
									 message->channel)) {
			seqs[count++] = message->seq;
		}
	}
	*count_out = count;
	return POSTERN_OK;
}

static void note_oldest(int64_t *oldest, int64_t received_at) {
	if (*oldest == 0 || received_at < *oldest) {
		*oldest = received_at;
	}
}

static void count_delivery(struct postern_handler_stats *stats,
		const struct memory_delivery *delivery, int64_t now) {
	int64_t received_at = delivery->message->data.received_at_ms;
	switch (delivery->state) {
	case POSTERN_STATE_PENDING:
		stats->pending++;
		stats->retrying += delivery->failures > 0;
		stats->waiting += delivery->due_at_ms > now;
		note_oldest(&stats->oldest_pending_at_ms, received_at);
		note_oldest(&stats->oldest_open_at_ms, received_at);
		break;
	case POSTERN_STATE_LEASED:
		stats->leased++;
		note_oldest(&stats->oldest_open_at_ms, received_at);
		break;
	case POSTERN_STATE_POISONED: stats->poisoned++; break;
	default: break; /* done and discarded are counted when they end */
	}
}

/* `stats` has an element for every stored handler, including aliases. */
static void stats_count_all(struct memory_store *self,
		struct postern_handler_stats *stats) {
	int64_t now = postern__mem_now(self);
	for (size_t i = 0; i < self->handler_count; i++) {
		size_t owner = (size_t)self->handlers[i].owner - 1;
		stats[owner].done += self->handlers[i].done;
		stats[owner].discarded += self->handlers[i].discarded;
	}
	for (size_t i = 0; i < self->message_count; i++) {
		if (!self->messages[i]) {
			continue;
		}
		postern__list_each(item, &self->messages[i]->deliveries) {
			const struct memory_delivery *delivery =
					container_of(item, struct memory_delivery, of_message);
			if (delivery->handler) {
				int64_t owner =
						postern__mem_handler(self, delivery->handler)->owner;
				count_delivery(&stats[owner - 1], delivery, now);
			}
		}
	}
}

static bool handlers_export(struct memory_store *self,
		struct postern_memory *memory, struct postern_stats *out) {
	int64_t now = postern__mem_now(self);
	struct postern_handler_stats *stats = postern_memory_alloc(memory,
			self->handler_count * sizeof(struct postern_handler_stats));
	if (!stats) {
		return false;
	}
	stats_count_all(self, stats);
	size_t count = 0;
	for (size_t i = 0; i < self->handler_count; i++) {
		const struct memory_handler *handler = &self->handlers[i];
		if (handler->owner != (int64_t)i + 1) {
			continue; /* counted with its owner */
		}
		stats[count] = stats[i];
		stats[count].key = postern_memory_text(memory, handler->key);
		stats[count].channel = "";
		if (!stats[count].key || !postern__pause_stats(&handler->pause, now,
										 memory, &stats[count])) {
			return false;
		}
		count++;
	}
	out->handlers = stats;
	out->handler_count = count;
	return true;
}

static bool channels_export(struct memory_store *self,
		struct postern_memory *memory, struct postern_stats *out) {
	struct postern_channel_stats *stats = postern_memory_alloc(memory,
			self->channel_count * sizeof(struct postern_channel_stats));
	if (!stats) {
		return false;
	}
	for (size_t i = 0; i < self->channel_count; i++) {
		const struct memory_channel *channel = &self->channels[i];
		stats[i] = (struct postern_channel_stats){
			.name = postern_memory_text(memory, channel->name),
			.accepted = channel->accepted,
			.duplicates = channel->duplicates,
			.conflicts = channel->conflicts,
			.dropped = channel->dropped,
			.parked = channel->parked,
		};
		if (!stats[i].name ||
				!postern__closed_stats(&channel->closed, memory, &stats[i])) {
			return false;
		}
	}
	out->channels = stats;
	out->channel_count = self->channel_count;
	return true;
}

static bool keys_export(const struct memory_store *self,
		struct postern_memory *memory, struct postern_stats *out) {
	struct postern_key_stats *stats = postern_memory_alloc(memory,
			self->name_count * sizeof(struct postern_key_stats));
	bool ok = stats;
	for (size_t i = 0; ok && i < self->name_count; i++) {
		const struct memory_handler *handler =
				&self->handlers[self->names[i].handler - 1];
		handler = &self->handlers[handler->owner - 1];
		stats[i].key = postern_memory_text(memory, self->names[i].key);
		stats[i].handler = postern_memory_text(memory, handler->key);
		ok = stats[i].key && stats[i].handler;
	}
	out->keys = stats;
	out->key_count = self->name_count;
	return ok;
}

static bool names_export(const struct memory_store *self,
		struct postern_memory *memory, struct postern_stats *out) {
	struct postern_name_stats *stats = postern_memory_alloc(memory,
			self->channel_name_count * sizeof(struct postern_name_stats));
	bool ok = stats;
	for (size_t i = 0; ok && i < self->channel_name_count; i++) {
		const struct memory_channel_name *name = &self->channel_names[i];
		stats[i].name = postern_memory_text(memory, name->name);
		stats[i].channel = postern_memory_text(memory,
				self->channels[name->channel - 1].name);
		ok = stats[i].name && stats[i].channel;
	}
	out->names = stats;
	out->name_count = self->channel_name_count;
	return ok;
}

int postern__mem_stats(struct memory_store *self, struct postern_memory *memory,
		struct postern_stats *out, struct postern_error *error) {
	struct postern_stats stats = { .store = self->base.ops->name };
	if (!channels_export(self, memory, &stats) ||
			!handlers_export(self, memory, &stats) ||
			!keys_export(self, memory, &stats) ||
			!names_export(self, memory, &stats) ||
			!postern__mem_node_stats(self, memory, &stats)) {
		return no_memory(error);
	}
	*out = stats;
	return POSTERN_OK;
}
