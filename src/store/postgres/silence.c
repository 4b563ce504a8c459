/* SPDX-License-Identifier: MIT */

/*
 * Distinguishing a silent connection from a slow statement.
 *
 * A connection whose packets are dropped, without a reset, looks like a slow
 * server. The kernel detects it if nobody acknowledges what was sent (see
 * establish() in connection.c). But a proxy or another middlebox acknowledges
 * it and never forwards the response, and so does the kernel of a server whose
 * process is stopped. So the store asks the server, on a new connection, what
 * the session of the connection does:
 *
 *   waits for its client    while its client waits for it: what one of the two
 *                           has sent did not arrive, and never will
 *   does not exist          the same
 *   anything else           the statement is slow; the command timeout decides
 *
 * Nothing on the client's side distinguishes these cases: a statement of 20 s
 * and a lost response look the same until the response arrives.
 *
 * The store terminates a silent session: it would keep its locks until the
 * server notices that the client has disconnected. The outcome of its
 * transaction can then be determined at once, see transaction.c.
 *
 * Behind a pooler the session is not known; there the kernel's timeouts and the
 * command timeout apply.
 *
 * Asking needs a connection beyond those configured, for about a second, and
 * few threads ask at a time: a server on which everything is slow must not get
 * as many connections again.
 */

#include <linux/sockios.h>
#include <poll.h>
#include <postern/sys/clock.h>
#include <sys/ioctl.h>

#include "store/postgres/postgres.h"

/* How long asking may take. */
#define ASK_MS 4000
/* A response that was just sent has arrived after this time. */
#define ARRIVAL_MS 1000
/* How many threads of a store ask at a time. */
#define ASKING_MAX 4

/* Bytes that the peer has not acknowledged. */
static int unacknowledged(const struct pg_connection *connection) {
	int bytes = 0;
	(void)ioctl(PQsocket(connection->link), SIOCOUTQ, &bytes);
	return bytes;
}

/* Whether bytes arrive or leave within ARRIVAL_MS. */
static bool has_traffic(const struct pg_connection *connection) {
	int before = unacknowledged(connection);
	struct pollfd line = {
		.fd = PQsocket(connection->link),
		.events = POLLIN,
	};
	return poll(&line, 1, ARRIVAL_MS) != 0 ||
		   unacknowledged(connection) != before;
}

/* The parameters of a query about the session: its pid and its start. */
static void add_session(struct pg_query *query, struct pg_connection *witness,
		const struct pg_connection *connection) {
	postern__pg_query(query, witness);
	postern__pg_int4(query, PQbackendPID(connection->link));
	postern__pg_int8(query, connection->session_start);
}

/* Whether the session waits for its client, or does not exist. */
static bool is_waiting_for_client(struct pg_connection *witness,
		const struct pg_connection *connection) {
	struct pg_query query;
	add_session(&query, witness, connection);
	bool waiting = postern__pg_run(&query,
						   "SELECT coalesce(bool_and(coalesce("
						   "wait_event_type = 'Client', false)), true)"
						   " FROM pg_stat_get_activity($1)"
						   " WHERE " PG_SESSION_START " = $2",
						   NULL) == POSTERN_OK &&
				   postern__pg_get(&query, 0, 0) != 0;
	postern__pg_end(&query);
	return waiting;
}

/* If this fails the server ends the session later. */
static void terminate(struct pg_connection *witness,
		const struct pg_connection *connection) {
	struct pg_query query;
	add_session(&query, witness, connection);
	(void)postern__pg_run(&query,
			"SELECT pg_terminate_backend($1) FROM pg_stat_get_activity($1)"
			" WHERE " PG_SESSION_START " = $2",
			NULL);
	postern__pg_end(&query);
}

/* A new connection, to be disconnected. */
static bool open_witness(struct pg_store *self, struct pg_connection *witness) {
	const struct postern_clock *clock = self->clock;
	*witness = (struct pg_connection){
		.store = self,
		.until_ms = clock->monotonic_ms(clock->context) + ASK_MS,
	};
	return postern__pg_connect(witness, NULL) == POSTERN_OK;
}

static enum pg_session ask_server(struct pg_connection *connection) {
	struct pg_connection witness;
	if (!open_witness(connection->store, &witness)) {
		return PG_SESSION_UNKNOWN;
	}
	bool silent = is_waiting_for_client(&witness, connection) &&
				  !has_traffic(connection) &&
				  is_waiting_for_client(&witness, connection);
	if (silent) {
		terminate(&witness, connection);
	}
	postern__pg_disconnect(&witness);
	return silent ? PG_SESSION_SILENT : PG_SESSION_WORKING;
}

enum pg_session postern__pg_ask_session(struct pg_connection *connection) {
	struct pg_store *self = connection->store;
	if (connection->session_start == 0) {
		return PG_SESSION_UNKNOWN;
	}
	(void)pthread_mutex_lock(&self->mutex);
	bool turn = self->asking < ASKING_MAX;
	self->asking += turn;
	(void)pthread_mutex_unlock(&self->mutex);
	if (!turn) {
		return PG_SESSION_NOT_ASKED;
	}
	enum pg_session session = ask_server(connection);
	(void)pthread_mutex_lock(&self->mutex);
	self->asking--;
	(void)pthread_mutex_unlock(&self->mutex);
	return session;
}

void postern__pg_end_session(struct pg_connection *connection) {
	struct pg_connection witness;
	if (connection->session_start != 0 &&
			open_witness(connection->store, &witness)) {
		terminate(&witness, connection);
		postern__pg_disconnect(&witness);
	}
}
