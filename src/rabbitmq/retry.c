/* SPDX-License-Identifier: MIT */

/*
 * Copies of failed deliveries. A copy has the properties as the broker sent
 * them, but for those that would make the broker refuse it, route it elsewhere
 * or drop it early, and a header that counts the retries: what brokers count
 * in `x-death` of a message that was published again depends on their version.
 */

#include "rabbitmq/retry.h"

#include <amqp_framing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rabbitmq/rabbitmq.h"

#define POOL_BYTES 4096
#define RETRIES_MAX 1000000
/* In a frame, around the properties as they came: its own bytes, and the header
   that counts the retries. */
#define FRAME_REST 64

struct postern__rabbitmq_reason {
	struct postern__rabbitmq_reason *next;
	uint64_t position;
	char *text;
};

void postern__rabbitmq_reasons_init(struct postern__rabbitmq_reasons *reasons) {
	*reasons = (struct postern__rabbitmq_reasons){ 0 };
	(void)pthread_mutex_init(&reasons->mutex, NULL);
}

void postern__rabbitmq_reasons_finish(
		struct postern__rabbitmq_reasons *reasons) {
	struct postern__rabbitmq_reason *reason = reasons->first;
	while (reason) {
		struct postern__rabbitmq_reason *next = reason->next;
		free(reason->text);
		free(reason);
		reason = next;
	}
	(void)pthread_mutex_destroy(&reasons->mutex);
}

void postern__rabbitmq_reasons_put(struct postern__rabbitmq_reasons *reasons,
		uint64_t position, const char *text) {
	struct postern__rabbitmq_reason *reason = malloc(sizeof *reason);
	if (!reason) {
		return; /* there is none, then */
	}
	*reason = (struct postern__rabbitmq_reason){
		.position = position,
		.text = strdup(text),
	};
	(void)pthread_mutex_lock(&reasons->mutex);
	reason->next = reasons->first;
	reasons->first = reason;
	(void)pthread_mutex_unlock(&reasons->mutex);
}

char *postern__rabbitmq_reasons_take(struct postern__rabbitmq_reasons *reasons,
		uint64_t position) {
	(void)pthread_mutex_lock(&reasons->mutex);
	struct postern__rabbitmq_reason **place = &reasons->first;
	while (*place && (*place)->position != position) {
		place = &(*place)->next;
	}
	struct postern__rabbitmq_reason *reason = *place;
	if (reason) {
		*place = reason->next;
	}
	(void)pthread_mutex_unlock(&reasons->mutex);
	char *text = reason ? reason->text : NULL;
	free(reason);
	return text;
}

int postern__rabbitmq_retry_begin(struct postern__rabbitmq_retry *retry,
		struct postern__rabbitmq_link *link, struct postern_error *error) {
	retry->tag = 0;
	retry->moving = 0;
	retry->returned = false;
	if (!retry->queue) {
		return POSTERN_OK;
	}
	(void)amqp_confirm_select(link->state, RABBITMQ_CHANNEL);
	return postern__rabbitmq_link_check(link, amqp_get_rpc_reply(link->state),
			"confirm what is published", error);
}

static bool is_named(const amqp_table_entry_t *entry, const char *name) {
	return entry->key.len == strlen(name) &&
		   memcmp(entry->key.bytes, name, entry->key.len) == 0;
}

uint32_t postern__rabbitmq_retries(const amqp_basic_properties_t *properties) {
	bool present = properties->_flags & AMQP_BASIC_HEADERS_FLAG;
	int count = present ? properties->headers.num_entries : 0;
	for (int i = 0; i < count; i++) {
		const amqp_table_entry_t *entry = &properties->headers.entries[i];
		if (is_named(entry, RABBITMQ_RETRIES_HEADER) &&
				entry->value.kind == AMQP_FIELD_KIND_I32) {
			int32_t retries = entry->value.value.i32;
			return retries < 0 || retries > RETRIES_MAX ? RETRIES_MAX
														: (uint32_t)retries;
		}
	}
	return 0;
}

/* CC and BCC would route a copy to other queues. */
static bool is_kept(const amqp_table_entry_t *entry) {
	return !is_named(entry, RABBITMQ_RETRIES_HEADER) &&
		   !is_named(entry, "CC") && !is_named(entry, "BCC");
}

/* False: out of memory. */
static bool make_properties(amqp_basic_properties_t *properties,
		uint32_t retries, amqp_pool_t *pool) {
	bool present = properties->_flags & AMQP_BASIC_HEADERS_FLAG;
	int count = present ? properties->headers.num_entries : 0;
	amqp_table_entry_t *entries =
			amqp_pool_alloc(pool, ((size_t)count + 1) * sizeof *entries);
	if (!entries) {
		return false;
	}
	int kept = 0;
	for (int i = 0; i < count; i++) {
		if (is_kept(&properties->headers.entries[i])) {
			entries[kept++] = properties->headers.entries[i];
		}
	}
	entries[kept++] = (amqp_table_entry_t){
		.key = amqp_cstring_bytes(RABBITMQ_RETRIES_HEADER),
		.value = {
			.kind = AMQP_FIELD_KIND_I32,
			.value.i32 = (int32_t)retries,
		},
	};
	properties->headers = (amqp_table_t){ kept, entries };
	/* The broker refuses the name of another user; the delay is the queue's. */
	properties->_flags &= ~(
			amqp_flags_t)(AMQP_BASIC_USER_ID_FLAG | AMQP_BASIC_EXPIRATION_FLAG);
	properties->_flags |=
			AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
	properties->delivery_mode = AMQP_DELIVERY_PERSISTENT;
	return true;
}

static int publish(struct postern__rabbitmq_retry *retry,
		struct postern__rabbitmq_link *link,
		const amqp_basic_properties_t *properties, amqp_bytes_t body,
		struct postern_error *error) {
	int status =
			amqp_basic_publish(link->state, RABBITMQ_CHANNEL, amqp_empty_bytes,
					amqp_cstring_bytes(retry->queue), 1, 0, properties, body);
	return postern__rabbitmq_link_sent(link, status, error);
}

int postern__rabbitmq_retry_publish(struct postern__rabbitmq_retry *retry,
		struct postern__rabbitmq_link *link, uint64_t position,
		uint32_t retries, amqp_bytes_t raw, amqp_bytes_t body,
		struct postern_error *error) {
	void *decoded = NULL;
	amqp_pool_t pool;
	/* Before anything is sent: the broker waits for the rest of a message. */
	if (raw.len + FRAME_REST > (size_t)amqp_get_frame_max(link->state)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the headers have no room in a frame");
	}
	init_amqp_pool(&pool, POOL_BYTES);
	int r = POSTERN_OK;
	if (amqp_decode_properties(AMQP_BASIC_CLASS, &pool, raw, &decoded) !=
					AMQP_STATUS_OK ||
			!make_properties(decoded, retries, &pool)) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (!r) {
		retry->tag++;
		retry->moving = position;
		retry->returned = false;
		r = publish(retry, link, decoded, body, error);
	}
	empty_amqp_pool(&pool);
	return r;
}

int postern__rabbitmq_retry_method(struct postern__rabbitmq_retry *retry,
		const amqp_method_t *method, uint64_t *moved_out,
		struct postern_error *error) {
	const amqp_basic_ack_t *ack = method->decoded;
	*moved_out = 0;
	if (method->id == AMQP_BASIC_RETURN_METHOD) {
		retry->returned = true;
		return POSTERN_OK;
	}
	if (method->id == AMQP_BASIC_ACK_METHOD && retry->moving &&
			ack->delivery_tag == retry->tag && !retry->returned) {
		*moved_out = retry->moving;
		retry->moving = 0;
		return POSTERN_OK;
	}
	return postern__fail(error, POSTERN_E_UNAVAILABLE,
			retry->returned ? "the broker returned the copy for the retry "
							  "queue '%s': there is no such queue"
							: "the broker did not take the copy for the retry "
							  "queue '%s'",
			retry->queue ? retry->queue : "");
}
