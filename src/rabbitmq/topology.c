/* SPDX-License-Identifier: MIT */

/*
 * Declaring what a source needs: its queue, a queue for what is rejected, an
 * exchange and the bindings. All of it is durable. The broker refuses to
 * declare what exists with other arguments; nothing is deleted or changed. Then
 * its consumer is started.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rabbitmq/rabbitmq.h"

/* The words of the option `exchange_type`, in its order. */
static const char *const exchange_types[] = { "topic", "direct", "fanout" };

#define WHAT_LEN_MAX (2 * RABBITMQ_SHORT_LEN_MAX + 60)

static int answered(struct postern__rabbitmq_link *link, const char *what,
		struct postern_error *error) {
	return postern__rabbitmq_link_check(link, amqp_get_rpc_reply(link->state),
			what, error);
}

static amqp_table_entry_t text_entry(const char *key, const char *value) {
	return (amqp_table_entry_t){
		.key = amqp_cstring_bytes(key),
		.value = {
			.kind = AMQP_FIELD_KIND_UTF8,
			.value.bytes = amqp_cstring_bytes(value),
		},
	};
}

/* to  where the queue's dead letters go; NULL: they are dropped. */
static int declare_queue(struct postern__rabbitmq_link *link, const char *name,
		bool classic, const char *to, struct postern_error *error) {
	amqp_table_entry_t entries[] = {
		text_entry("x-queue-type", classic ? "classic" : "quorum"),
		text_entry("x-dead-letter-exchange", ""),
		text_entry("x-dead-letter-routing-key", to ? to : ""),
	};
	const amqp_table_t arguments = { to ? 3 : 1, entries };
	char what[WHAT_LEN_MAX];
	(void)snprintf(what, sizeof what, "declare queue '%s'", name);
	(void)amqp_queue_declare(link->state, RABBITMQ_CHANNEL,
			amqp_cstring_bytes(name), 0, 1, 0, 0, arguments);
	return answered(link, what, error);
}

/* Its messages return to the queue when they are old enough. A quorum queue
   moves them at most once, unless its arguments ask for more. */
static int declare_retry(struct postern__rabbitmq_link *link,
		const struct postern__rabbitmq_topology *topology,
		struct postern_error *error) {
	amqp_table_entry_t entries[] = {
		text_entry("x-queue-type", topology->classic ? "classic" : "quorum"),
		text_entry("x-dead-letter-exchange", ""),
		text_entry("x-dead-letter-routing-key", topology->queue),
		{
				.key = amqp_cstring_bytes("x-message-ttl"),
				.value = {
						.kind = AMQP_FIELD_KIND_I64,
						.value.i64 = topology->retry_delay_ms,
				},
		},
		text_entry("x-dead-letter-strategy", "at-least-once"),
		text_entry("x-overflow", "reject-publish"),
	};
	const amqp_table_t arguments = { topology->classic ? 4 : 6, entries };
	char what[WHAT_LEN_MAX];
	(void)snprintf(what, sizeof what, "declare queue '%s'", topology->retry);
	(void)amqp_queue_declare(link->state, RABBITMQ_CHANNEL,
			amqp_cstring_bytes(topology->retry), 0, 1, 0, 0, arguments);
	return answered(link, what, error);
}

static int declare_exchange(struct postern__rabbitmq_link *link,
		const struct postern__rabbitmq_topology *topology,
		struct postern_error *error) {
	char what[WHAT_LEN_MAX];
	(void)snprintf(what, sizeof what, "declare exchange '%s'",
			topology->exchange);
	(void)amqp_exchange_declare(link->state, RABBITMQ_CHANNEL,
			amqp_cstring_bytes(topology->exchange),
			amqp_cstring_bytes(exchange_types[topology->exchange_type]), 0, 1,
			0, 0, amqp_empty_table);
	return answered(link, what, error);
}

static int bind_queue(struct postern__rabbitmq_link *link,
		const struct postern__rabbitmq_topology *topology,
		struct postern_error *error) {
	const char *key = topology->binding_keys;
	char what[WHAT_LEN_MAX];
	int r = POSTERN_OK;
	(void)snprintf(what, sizeof what, "bind queue '%s' to exchange '%s'",
			topology->queue, topology->exchange);
	while (!r && key) {
		size_t len = strcspn(key, ",");
		(void)amqp_queue_bind(link->state, RABBITMQ_CHANNEL,
				amqp_cstring_bytes(topology->queue),
				amqp_cstring_bytes(topology->exchange),
				(amqp_bytes_t){ len, (void *)(uintptr_t)key },
				amqp_empty_table);
		r = answered(link, what, error);
		key = key[len] ? key + len + 1 : NULL;
	}
	return r;
}

int postern__rabbitmq_declare(struct postern__rabbitmq_link *link,
		const struct postern__rabbitmq_topology *topology,
		struct postern_error *error) {
	int r = topology->dead ? declare_queue(link, topology->dead,
									 topology->classic, NULL, error)
						   : POSTERN_OK;
	if (!r) {
		r = declare_queue(link, topology->queue, topology->classic,
				topology->dead, error);
	}
	if (!r && topology->retry) {
		r = declare_retry(link, topology, error);
	}
	if (!r && topology->exchange) {
		r = declare_exchange(link, topology, error);
	}
	if (!r && topology->exchange) {
		r = bind_queue(link, topology, error);
	}
	return r;
}

/* NULL stays NULL. False: out of memory. */
static bool copy(char **out, const char *text) {
	*out = text ? strdup(text) : NULL;
	return !text || *out;
}

static bool join(char **out, const char *queue, const char *suffix) {
	size_t size = strlen(queue) + strlen(suffix) + 1;
	*out = malloc(size);
	if (*out) {
		(void)snprintf(*out, size, "%s%s", queue, suffix);
	}
	return *out != NULL;
}

int postern__rabbitmq_topology_init(struct postern__rabbitmq_topology *topology,
		const struct postern__rabbitmq_source_settings *settings,
		struct postern_error *error) {
	bool retries = settings->on_failed == RABBITMQ_FAILED_RETRY;
	*topology = (struct postern__rabbitmq_topology){
		.declare = settings->declare,
		.classic = settings->queue_type == 1,
		.exchange_type = settings->exchange_type,
		.retry_delay_ms = settings->retry_delay_ms,
	};
	bool copied = copy(&topology->queue, settings->queue) &&
				  copy(&topology->exchange, settings->exchange) &&
				  copy(&topology->binding_keys, settings->binding_keys);
	if (copied && settings->dead_letters && settings->declare) {
		copied = join(&topology->dead, settings->queue, settings->dead_suffix);
	}
	if (copied && retries) {
		copied =
				join(&topology->retry, settings->queue, settings->retry_suffix);
	}
	return copied ? POSTERN_OK
				  : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

void postern__rabbitmq_topology_finish(
		struct postern__rabbitmq_topology *topology) {
	free(topology->queue);
	free(topology->dead);
	free(topology->retry);
	free(topology->exchange);
	free(topology->binding_keys);
}

static int check_derived(const char *name, const char *what, const char *off,
		struct postern_error *error) {
	return !name || strlen(name) <= RABBITMQ_SHORT_LEN_MAX
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_INVALID,
							 "the name of the queue for what is %s, '%.40s…', "
							 "is over %d bytes; %s leaves that queue out",
							 what, name, RABBITMQ_SHORT_LEN_MAX, off);
}

int postern__rabbitmq_topology_check(const struct postern__rabbitmq_topology
											 *topology,
		struct postern_error *error) {
	if (topology->exchange && !topology->declare) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'exchange' is for 'declare: on'; a source reads a queue, "
				"whatever it is bound to");
	}
	int r = check_derived(topology->dead, "rejected", "'dead_letters: off'",
			error);
	if (!r) {
		r = check_derived(topology->retry, "retried",
				"another value of 'on_failed'", error);
	}
	if (!r && topology->dead && topology->retry &&
			strcmp(topology->dead, topology->retry) == 0) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"'retry_suffix' and 'dead_suffix' are the same");
	}
	for (const char *key = topology->binding_keys; !r && key;) {
		size_t len = strcspn(key, ",");
		if (len > RABBITMQ_SHORT_LEN_MAX) {
			r = postern__fail(error, POSTERN_E_INVALID,
					"a binding key is over %d bytes", RABBITMQ_SHORT_LEN_MAX);
		}
		key = key[len] ? key + len + 1 : NULL;
	}
	return r;
}

int postern__rabbitmq_consume(struct postern__rabbitmq_link *link,
		const char *queue, uint32_t prefetch, struct postern_error *error) {
	char what[RABBITMQ_SHORT_LEN_MAX + 40];
	(void)amqp_basic_qos(link->state, RABBITMQ_CHANNEL, 0, (uint16_t)prefetch,
			0);
	int r = answered(link, "set the prefetch", error);
	if (r) {
		return r;
	}
	(void)snprintf(what, sizeof what, "consume from queue '%s'", queue);
	(void)amqp_basic_consume(link->state, RABBITMQ_CHANNEL,
			amqp_cstring_bytes(queue),
			amqp_cstring_bytes(RABBITMQ_CONSUMER_TAG), 0, 0, 0,
			amqp_empty_table);
	return answered(link, what, error);
}
