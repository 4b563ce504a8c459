/* SPDX-License-Identifier: MIT */

/*
 * Collecting staged messages, which publishers write in transactions of their
 * own. A node removes them from the staging table and accepts them in one
 * transaction; rows that another node has locked are skipped. Only the caller
 * can route a message, so its callback is called in between.
 *
 * Finding staged messages scans the whole table, including removed rows that
 * were not vacuumed yet. Autovacuum runs once a minute, and many messages may
 * be staged and removed in that time; so a node that collects many vacuums the
 * table, if it has the privilege.
 *
 * If the response to COMMIT is lost, the store determines the outcome of the
 * transaction. If that fails too, the leases are returned like those of a
 * batch, and the messages are either accepted or still staged.
 */

#include <postern/sys/clock.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

/* The number of messages collected between two vacuums: a few hundred pages. */
#define VACUUM_COUNT 10000
/* A message at which the server fails is retried with every collection, and
   reported only so often. */
#define REPORT_MS 60000

struct work {
	struct postern_collection *collection;
	struct postern_memory *memory;
	/* The ctids of the routed messages; NULL: the message stays staged. */
	const char **places;
	int64_t xid;
	bool found;
	bool ending; /* COMMIT was reached, and may have taken effect */
};

static int find_staged(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct work *work = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, work->collection->node);
	postern__pg_bool(&query, work->collection->rests);
	int r = postern__pg_run(&query, "SELECT @look_staged_1($1, $2)", error);
	work->found = r == POSTERN_OK && postern__pg_get(&query, 0, 0) != 0;
	postern__pg_end(&query);
	return r;
}

/* Record why a message stays staged, for people who read the table. */
static int refuse_staged(struct pg_connection *connection, const char *place,
		const char *why, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, place);
	postern__pg_text(&query, why);
	int r = postern__pg_run(&query,
			"UPDATE @staged SET refused = $2 WHERE ctid = $1::text::tid",
			error);
	postern__pg_end(&query);
	return r;
}

static int place_one(struct pg_connection *connection,
		const struct pg_query *query, int row, struct work *work,
		struct postern_error *error) {
	struct postern_collection *collection = work->collection;
	struct postern_message message;
	const char *place;
	if (!postern__pg_get_text(query, row, 0, work->memory, &place)) {
		return postern__pg_no_memory(error);
	}
	struct postern_accept *accept =
			&collection->accepts[collection->accept_count];
	struct postern_error why = { 0 };
	int r = postern__pg_message_read(query, row, 2, work->memory, &message,
			&why);
	if (r == POSTERN_OK) {
		r = collection->place(collection->context,
				postern__pg_get(query, row, 1), &message, accept, &why);
	}
	if (r == POSTERN_E_INVALID || r == POSTERN_E_CORRUPT) {
		collection->refused++;
		return refuse_staged(connection, place, why.text, error);
	}
	if (r != POSTERN_OK) {
		*error = why;
		return r;
	}
	work->places[collection->accept_count++] = place;
	return POSTERN_OK;
}

static int select_staged(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	struct postern_collection *collection = work->collection;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, collection->node);
	postern__pg_array(&query, PG_INT4);
	for (size_t i = 0; i < collection->channel_count; i++) {
		postern__pg_int4(&query, collection->channels[i]);
	}
	postern__pg_array_end(&query);
	postern__pg_int4(&query, (int64_t)collection->max);
	postern__pg_int8(&query, (int64_t)collection->bytes_max);
	/* The ctid as text, because it is sent back to the server. */
	int r = postern__pg_run(&query,
			"SELECT place::text, channel, id, source, type, subject, time,"
			" content_type, correlation_id, traceparent, transport, headers,"
			" body, received_at, xid FROM @take_staged_1($1, $2, $3, $4)",
			error);
	int rows = r == POSTERN_OK ? postern__pg_rows(&query) : 0;
	size_t bytes = 0;
	for (int row = 0; r == POSTERN_OK && row < rows; row++) {
		size_t len;
		(void)postern__pg_get_bytes(&query, row, 12, &len);
		bytes += len;
		work->xid = postern__pg_get(&query, row, 14);
		r = place_one(connection, &query, row, work, error);
	}
	collection->more =
			(size_t)rows == collection->max || bytes > collection->bytes_max;
	postern__pg_end(&query);
	return r;
}

static int remove_accepted(struct pg_connection *connection,
		const struct work *work, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_array(&query, PG_TEXT);
	for (size_t i = 0; i < work->collection->accept_count; i++) {
		if (work->places[i]) {
			postern__pg_text(&query, work->places[i]);
		}
	}
	postern__pg_array_end(&query);
	int r = postern__pg_run(&query,
			"DELETE FROM @staged WHERE ctid = ANY ($1::text[]::tid[])", error);
	postern__pg_end(&query);
	return r;
}

/* Report a message at which the server failed and which stays staged. */
static void report_left(struct pg_store *self, const char *why) {
	int64_t now = self->clock->monotonic_ms(self->clock->context);
	(void)pthread_mutex_lock(&self->mutex);
	bool due = !self->left_reported_ms ||
			   now >= self->left_reported_ms + REPORT_MS;
	if (due) {
		self->left_reported_ms = now;
	}
	(void)pthread_mutex_unlock(&self->mutex);
	if (due) {
		char text[POSTERN_ERROR_TEXT_MAX + 80];
		(void)snprintf(text, sizeof text,
				"a staged message cannot be accepted yet and stays staged: %s",
				why);
		postern__store_report(&self->base, POSTERN_EVENT_STAGED_LEFT, why,
				text);
	}
}

/* The store did not accept this message alone: it stays staged, and is not
   collected again unless it was only blocked, or the server failed. */
static int leave_staged(struct pg_connection *connection, struct work *work,
		size_t index, const struct postern_error *why,
		struct postern_error *error) {
	const char *place = work->places[index];
	work->collection->accepts[index].code = why->code;
	work->places[index] = NULL;
	if (why->code == POSTERN_E_BUSY) {
		return POSTERN_OK;
	}
	work->collection->refused++;
	return refuse_staged(connection, place, why->text, error);
}

/* Messages of channels that were closed since they were selected stay
   staged. */
static void leave_closed(struct work *work, size_t from, size_t count) {
	for (size_t i = from; i < from + count; i++) {
		if (work->collection->accepts[i].code == POSTERN_E_UNAVAILABLE) {
			work->places[i] = NULL;
		}
	}
}

/* Accept `count` of the routed messages; if they are refused, each half of them
   by itself. */
static int accept_some(struct pg_connection *connection, struct work *work,
		size_t from, size_t count, struct postern_error *error) {
	const struct postern_collection *collection = work->collection;
	struct postern_batch batch = {
		.node = collection->node,
		.lock = collection->lock,
		.accepts = collection->accepts + from,
		.accept_count = count,
	};
	int r = postern__pg_exec(connection, "SAVEPOINT postern_staged", error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct postern_error why = { 0 };
	r = postern__pg_apply_within(connection, &batch, &why);
	bool its_fault = r == POSTERN_E_BUSY || r == POSTERN_E_INVALID ||
					 r == POSTERN_E_CORRUPT;
	if (r == POSTERN_OK) {
		leave_closed(work, from, count);
	}
	if (r == POSTERN_OK || connection->lost || !its_fault) {
		*error = r == POSTERN_OK ? *error : why;
		return r;
	}
	bool internal = r == POSTERN_E_INVALID && connection->internal;
	connection->collided = false;
	r = postern__pg_script(connection,
			"ROLLBACK TO postern_staged; RELEASE postern_staged", error);
	if (r == POSTERN_OK && internal && count == 1) {
		why.code = POSTERN_E_BUSY;
		report_left(connection->store, why.text);
	}
	if (r != POSTERN_OK || count == 1) {
		return r == POSTERN_OK
					   ? leave_staged(connection, work, from, &why, error)
					   : r;
	}
	r = accept_some(connection, work, from, count / 2, error);
	return r == POSTERN_OK ? accept_some(connection, work, from + count / 2,
									 count - count / 2, error)
						   : r;
}

/* Whether any message was accepted or refused. */
static bool has_progress(const struct work *work) {
	bool moved = work->collection->refused > 0;
	for (size_t i = 0; !moved && i < work->collection->accept_count; i++) {
		moved = work->places[i];
	}
	return moved;
}

static int accept_selected(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	int r = select_staged(connection, work, error);
	size_t count = work->collection->accept_count;
	postern__point("postgres-collect.taken");
	if (r == POSTERN_OK && count > 0) {
		r = accept_some(connection, work, 0, count, error);
	}
	if (r == POSTERN_OK && !has_progress(work)) {
		/* The next collection would find the same messages at once. */
		work->collection->more = false;
	}
	return r == POSTERN_OK && count > 0
				   ? remove_accepted(connection, work, error)
				   : r;
}

/* Returns POSTERN_OK if any of the messages is stored: all of them are, or
   none. Else POSTERN_E_STALE. If no message was new, the result does not
   matter. */
static int confirm_messages(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct postern_collection *collection =
			((const struct work *)context)->collection;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_array(&query, PG_INT8);
	for (size_t i = 0; i < collection->accept_count; i++) {
		if (collection->accepts[i].code == POSTERN_OK) {
			postern__pg_int8(&query, collection->accepts[i].seq);
		}
	}
	postern__pg_array_end(&query);
	int r = postern__pg_run(&query,
			"SELECT 1 FROM @message WHERE seq = ANY ($1) LIMIT 1", error);
	if (r == POSTERN_OK && postern__pg_rows(&query) == 0) {
		r = postern__fail(error, POSTERN_E_STALE, "nothing was accepted");
	}
	postern__pg_end(&query);
	return r;
}

static int collect_once(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct work *work = context;
	(void)again;
	int r = postern__pg_begin(connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = accept_selected(connection, work, error);
	work->ending = r == POSTERN_OK;
	return work->xid != 0 ? postern__pg_finish_known(connection, work->xid,
									confirm_messages, work, r, error)
						  : postern__pg_finish(connection, r, error);
}

/* Note leases that the transaction may have acquired. */
static void note_collected_leases(struct pg_store *self,
		const struct postern_collection *collection) {
	for (size_t i = 0; i < collection->accept_count; i++) {
		const struct postern_accept *accept = &collection->accepts[i];
		for (size_t j = 0; j < accept->route_count; j++) {
			const struct postern_route *route = &accept->routes[j];
			const struct pg_lease lease = { accept->seq, route->handler,
				route->fence };
			if (route->leased) {
				postern__pg_note_uncertain_leases(self, collection->node,
						&lease, 1, false);
			}
		}
	}
}

static int collect_found(struct pg_store *self, struct work *work,
		struct postern_error *error) {
	struct postern_collection *collection = work->collection;
	collection->accepts = postern_memory_alloc(work->memory,
			collection->max * sizeof *collection->accepts);
	work->places = postern_memory_alloc(work->memory,
			collection->max * sizeof *work->places);
	if (!collection->accepts || !work->places) {
		return postern__pg_no_memory(error);
	}
	/* Without retries: the caller has routed the messages, and collects again.
	 */
	int r = postern__pg_do_once(self, collect_once, work, error);
	if (r != POSTERN_OK && work->ending) {
		note_collected_leases(self, collection);
	}
	return r;
}

static int vacuum_staged(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)context;
	(void)again;
	/* For a user who is not the owner of the table this does nothing. */
	return postern__pg_exec(connection,
			"VACUUM (SKIP_LOCKED, TRUNCATE OFF) @staged", error);
}

static void vacuum_if_due(struct pg_store *self, size_t taken) {
	(void)pthread_mutex_lock(&self->mutex);
	self->unvacuumed += taken;
	bool due = self->unvacuumed >= VACUUM_COUNT;
	if (due) {
		self->unvacuumed = 0;
	}
	(void)pthread_mutex_unlock(&self->mutex);
	if (due) {
		(void)postern__pg_do_once(self, vacuum_staged, NULL, NULL);
	}
}

int postern__pg_collect(struct postern_store *store,
		struct postern_collection *collection, struct postern_memory *memory,
		struct postern_error *error) {
	struct pg_store *self = postern__pg_from_base(store);
	struct postern_error failure = { 0 };
	struct work work = { .collection = collection, .memory = memory };
	collection->accept_count = 0;
	collection->refused = 0;
	collection->more = false;
	int r = postern__pg_do(self, find_staged, &work, &failure);
	if (r == POSTERN_OK && work.found) {
		r = collect_found(self, &work, &failure);
		if (r == POSTERN_OK) {
			vacuum_if_due(self, collection->accept_count);
		}
	}
	if (r != POSTERN_OK && error) {
		*error = failure;
	}
	return r;
}
