/* SPDX-License-Identifier: MIT */

/*
 * Declaring what a source needs: its queue, a queue for what is rejected, an
 * exchange and the bindings. All of it is durable. The broker refuses to
 * declare what exists with other arguments; nothing is deleted or changed.
 */

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "rabbitmq/rabbitmq.h"

/* The words of the option `exchange_type`, in its order. */
static const char *const exchange_types[] = { "topic", "direct", "fanout" };

#define WHAT_LEN_MAX (2 * RABBITMQ_SHORT_LEN_MAX + 60)
#define DEAD_SUFFIX ".dlq"

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

/* dead  the queue for what is rejected; NULL: it is dropped. */
static int declare_queue(struct postern__rabbitmq_link *link, const char *name,
		bool classic, const char *dead, struct postern_error *error) {
	amqp_table_entry_t entries[3] = {
		text_entry("x-queue-type", classic ? "classic" : "quorum"),
		text_entry("x-dead-letter-exchange", ""),
		text_entry("x-dead-letter-routing-key", dead ? dead : ""),
	};
	const amqp_table_t arguments = { dead ? 3 : 1, entries };
	char what[WHAT_LEN_MAX];
	(void)snprintf(what, sizeof what, "declare queue '%s'", name);
	(void)amqp_queue_declare(link->state, RABBITMQ_CHANNEL,
			amqp_cstring_bytes(name), 0, 1, 0, 0, arguments);
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
	char dead[RABBITMQ_SHORT_LEN_MAX + sizeof DEAD_SUFFIX];
	(void)snprintf(dead, sizeof dead, "%s" DEAD_SUFFIX, topology->queue);
	int r = topology->dead_letters
					? declare_queue(link, dead, topology->classic, NULL, error)
					: POSTERN_OK;
	if (!r) {
		r = declare_queue(link, topology->queue, topology->classic,
				topology->dead_letters ? dead : NULL, error);
	}
	if (!r && topology->exchange) {
		r = declare_exchange(link, topology, error);
	}
	if (!r && topology->exchange) {
		r = bind_queue(link, topology, error);
	}
	return r;
}

int postern__rabbitmq_topology_check(const struct postern__rabbitmq_topology
											 *topology,
		struct postern_error *error) {
	size_t len = strlen(topology->queue) + strlen(DEAD_SUFFIX);
	if (topology->exchange && !topology->declare) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'exchange' is for 'declare: on'; a source reads a queue, "
				"whatever it is bound to");
	}
	if (topology->declare && topology->dead_letters &&
			len > RABBITMQ_SHORT_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the name of the queue with '" DEAD_SUFFIX
				"' is over %d bytes; 'dead_letters: off' leaves that queue out",
				RABBITMQ_SHORT_LEN_MAX);
	}
	for (const char *key = topology->binding_keys; key;) {
		len = strcspn(key, ",");
		if (len > RABBITMQ_SHORT_LEN_MAX) {
			return postern__fail(error, POSTERN_E_INVALID,
					"a binding key is over %d bytes", RABBITMQ_SHORT_LEN_MAX);
		}
		key = key[len] ? key + len + 1 : NULL;
	}
	return POSTERN_OK;
}
