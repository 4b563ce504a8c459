/* SPDX-License-Identifier: MIT */

/*
 * Enrolment: ids for channels and handlers, and the node with the handlers it
 * registers. One process at a time, in one transaction, which is idempotent.
 */

#include <unistd.h>

#include "base/fail.h"
#include "base/host.h"
#include "base/point.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

static int enrol_handler(struct pg_connection *connection,
		const struct postern_enrol_handler *handler,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, handler->key);
	postern__pg_array(&query, PG_TEXT);
	for (size_t i = 0; i < handler->legacy_key_count; i++) {
		postern__pg_text(&query, handler->legacy_keys[i]);
	}
	postern__pg_array_end(&query);
	postern__pg_bool(&query, handler->in_process);
	postern__pg_int4(&query, handler->max_crashes < INT32_MAX
									 ? handler->max_crashes
									 : INT32_MAX);
	postern__pg_int8(&query, handler->dedupe_ms);
	int r = postern__pg_run(&query,
			"SELECT @enrol_handler_1($1, $2, $3, $4, $5)", error);
	postern__pg_end(&query);
	return r;
}

static int read_handler(struct pg_connection *connection,
		struct postern_enrol_handler *handler, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, handler->key);
	int r = postern__pg_run(&query,
			"SELECT h.owner FROM @handler_key k"
			" JOIN @handler h ON h.id = k.handler WHERE k.key = $1",
			error);
	if (r == POSTERN_OK) {
		handler->id = postern__pg_get(&query, 0, 0);
		r = postern__pg_note_handler(connection->store, handler->id, error);
	}
	postern__pg_end(&query);
	return r;
}

/* Fill in the ids, now that all owners are final. */
static int read_handlers(struct pg_connection *connection,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < enrolment->handler_count; i++) {
		struct postern_enrol_handler *handler = &enrolment->handlers[i];
		r = read_handler(connection, handler, error);
	}
	return r == POSTERN_OK ? postern__enrolment_check(enrolment, error) : r;
}

static int enrol_node(struct pg_connection *connection,
		const struct postern_enrolment *enrolment,
		struct postern_error *error) {
	char host[POSTERN__HOST_LEN_MAX + 1];
	struct pg_query query;
	postern__host_name(host);
	postern__pg_query(&query, connection);
	postern__pg_node(&query, enrolment->node);
	postern__pg_now(&query);
	if (enrolment->node_lease_ms > 0) {
		postern__pg_int8(&query, enrolment->node_lease_ms);
	} else {
		postern__pg_null(&query, PG_INT8);
	}
	postern__pg_array(&query, PG_INT4);
	for (size_t i = 0; i < enrolment->handler_count; i++) {
		postern__pg_int4(&query, enrolment->handlers[i].id);
	}
	postern__pg_array_end(&query);
	postern__pg_text(&query, host);
	postern__pg_int4(&query, getpid());
	postern__pg_bool(&query, enrolment->again);
	int r = postern__pg_run(&query,
			"SELECT @enrol_node_2($1, $2, $3, $4, $5, $6, $7)", error);
	if (r == POSTERN_OK && postern__pg_is_null(&query, 0, 0)) {
		r = postern__fail(error, POSTERN_E_STALE, "the node has expired");
	}
	if (r == POSTERN_OK) {
		postern__pg_saw_renewal(connection->store, enrolment->node,
				postern__pg_get(&query, 0, 0), enrolment->node_lease_ms);
	}
	postern__pg_end(&query);
	return r;
}

/* Channels that a node serves: their staged messages are accepted soon, those
   of other channels are not. */
static int enrol_node_channels(struct pg_connection *connection,
		const struct postern_enrolment *enrolment,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, enrolment->node);
	postern__pg_array(&query, PG_INT4);
	for (size_t i = 0; i < enrolment->channel_count; i++) {
		postern__pg_int4(&query, enrolment->channels[i].id);
	}
	postern__pg_array_end(&query);
	int r = postern__pg_run(&query,
			"WITH removed AS (DELETE FROM @node_channel WHERE node = $1"
			" AND channel <> ALL ($2))"
			" INSERT INTO @node_channel (node, channel)"
			" SELECT $1, unnest($2) ON CONFLICT DO NOTHING",
			error);
	postern__pg_end(&query);
	return r;
}

static int enrol_all(struct pg_connection *connection,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	int r = postern__pg_exec(connection,
			"LOCK TABLE @handler IN SHARE ROW EXCLUSIVE MODE", error);
	for (size_t i = 0; r == POSTERN_OK && i < enrolment->channel_count; i++) {
		r = postern__pg_enrol_channel(connection, &enrolment->channels[i],
				error);
	}
	for (size_t i = 0; r == POSTERN_OK && i < enrolment->handler_count; i++) {
		r = enrol_handler(connection, &enrolment->handlers[i], error);
	}
	if (r == POSTERN_OK) {
		r = read_handlers(connection, enrolment, error);
	}
	if (r == POSTERN_OK) {
		r = enrol_node(connection, enrolment, error);
	}
	return r == POSTERN_OK ? enrol_node_channels(connection, enrolment, error)
						   : r;
}

static int enrol_in_transaction(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)again;
	int r = postern__pg_begin(connection, error);
	if (r == POSTERN_OK) {
		r = enrol_all(connection, context, error);
		r = postern__pg_finish(connection, r, error);
	}
	return r;
}

int postern__pg_enrol(struct postern_store *store,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	struct pg_store *self = postern__pg_from_base(store);
	(void)pthread_mutex_lock(&self->mutex);
	self->node_lease_ms = enrolment->node_lease_ms;
	(void)pthread_mutex_unlock(&self->mutex);
	return postern__pg_do(self, enrol_in_transaction, enrolment, error);
}
