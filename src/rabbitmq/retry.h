/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RABBITMQ_RETRY_H
#define POSTERN_RABBITMQ_RETRY_H

/*
 * What a source does with a delivery whose handler failed: a copy of it is
 * published to the retry queue, whose messages return to the queue of the
 * source when they are old enough, and the delivery is acknowledged when the
 * broker has confirmed the copy. One copy at a time.
 */

#include <amqp.h>
#include <postern/error.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct postern__rabbitmq_link;

/* How many retries a message has behind it, a number. */
#define RABBITMQ_RETRIES_HEADER "x-postern-retries"

/* Why messages were not accepted, from complete() to the thread. */
struct postern__rabbitmq_reasons {
	pthread_mutex_t mutex;
	struct postern__rabbitmq_reason *first;
};

void postern__rabbitmq_reasons_init(struct postern__rabbitmq_reasons *reasons);
void postern__rabbitmq_reasons_finish(
		struct postern__rabbitmq_reasons *reasons);
void postern__rabbitmq_reasons_put(struct postern__rabbitmq_reasons *reasons,
		uint64_t position, const char *text);
/* The caller frees it; NULL: there is none. */
char *postern__rabbitmq_reasons_take(struct postern__rabbitmq_reasons *reasons,
		uint64_t position);

/* The copy that is being published. */
struct postern__rabbitmq_retry {
	char *queue;     /* where to; NULL: nothing is retried */
	uint64_t tag;    /* of the last copy that was published on this channel */
	uint64_t moving; /* the position it is for; 0: none */
	bool returned;
};

/* A new channel. */
int postern__rabbitmq_retry_begin(struct postern__rabbitmq_retry *retry,
		struct postern__rabbitmq_link *link, struct postern_error *error);
uint32_t postern__rabbitmq_retries(const amqp_basic_properties_t *properties);

/* raw: the properties as the broker sent them. POSTERN_E_INVALID: they have no
   room for the header. */
int postern__rabbitmq_retry_publish(struct postern__rabbitmq_retry *retry,
		struct postern__rabbitmq_link *link, uint64_t position,
		uint32_t retries, amqp_bytes_t raw, amqp_bytes_t body,
		struct postern_error *error);
/* A confirm or a return. Sets *moved_out to the position whose copy is
   confirmed, or to 0. POSTERN_E_UNAVAILABLE: the broker does not have it. */
int postern__rabbitmq_retry_method(struct postern__rabbitmq_retry *retry,
		const amqp_method_t *method, uint64_t *moved_out,
		struct postern_error *error);

#endif
