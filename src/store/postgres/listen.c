/* SPDX-License-Identifier: MIT */

/*
 * Waiting for work that other nodes have made. A node listens on a connection
 * of its own; a node that makes something pending notifies, if another sleeps.
 *
 * A notification is a hint: polling finds whatever was missed. Behind a pooler
 * that gives every transaction another session no notification ever arrives; so
 * each connection is tested first, by a notification to itself.
 */

#include <poll.h>
#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/postgres.h"

/* How long the notification to itself may take; shorter if LISTEN is not
   configured. */
#define ECHO_MS 5000
#define ECHO_MS_UNCONFIGURED 1000
#define WORD_LEN 17

static int64_t now_ms(const struct pg_store *self) {
	return self->clock->monotonic_ms(self->clock->context);
}

/* A notification to all that listen, and the statement that sends it. */
struct notification {
	const char *sql;
	char word[WORD_LEN];
};

static int send_notification(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct notification *notification = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, notification->word);
	int r = postern__pg_run(&query, notification->sql, error);
	postern__pg_end(&query);
	return r;
}

/* Whether there is a notification; with a word, whether it is this one. */
static bool read_notifications(struct pg_connection *connection,
		const char *word) {
	bool found = false;
	PGnotify *notice;
	while ((notice = PQnotifies(connection->link))) {
		found = found || !word || strcmp(notice->extra, word) == 0;
		PQfreemem(notice);
	}
	return found;
}

/* Wait for input on the connection, or for postern__pg_end_wait(). */
static int wait_input(struct pg_store *self, int64_t deadline,
		struct postern_error *error) {
	struct pg_connection *connection = &self->listener;
	struct pollfd fds[] = {
		{ .fd = PQsocket(connection->link), .events = POLLIN },
		{ .fd = self->stop_fd, .events = POLLIN },
	};
	int64_t left = deadline - now_ms(self);
	(void)poll(fds, 2, left > 0 ? (int)left : 0); /* EINTR: the caller loops */
	if ((fds[0].revents & (POLLIN | POLLHUP | POLLERR)) &&
			!PQconsumeInput(connection->link)) {
		return postern__pg_fail(connection, NULL, error);
	}
	return POSTERN_OK;
}

static bool is_ended(struct pg_store *self) {
	struct pollfd fd = { .fd = self->stop_fd, .events = POLLIN };
	return poll(&fd, 1, 0) > 0;
}

static int listen_now(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_query query;
	char sql[128];
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query, "SELECT @bell_1()", error);
	if (r == POSTERN_OK) {
		(void)snprintf(sql, sizeof sql, "LISTEN %s",
				PQgetvalue(query.result, 0, 0));
	}
	postern__pg_end(&query);
	return r == POSTERN_OK ? postern__pg_exec(connection, sql, error) : r;
}

/* No notification arrived. */
static int fail_no_notification(const struct pg_store *self,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_UNSUPPORTED,
			"LISTEN does not work at %s, perhaps because of %s: polling "
			"every second for work of other nodes; %s",
			postern__pg_place(&self->listener),
			self->listen_conninfo
					? "a pooler, or it is another database or server"
					: "a pooler",
			self->listen_conninfo ? "check listen_url"
								  : "set listen_url to the server behind it");
}

/* Test whether a notification that this statement sends arrives. */
static int test_notification(struct pg_store *self, const char *sql, int64_t ms,
		struct postern_error *error) {
	struct notification notification = { .sql = sql };
	(void)snprintf(notification.word, sizeof notification.word, "%016llx",
			(unsigned long long)self->random->next(self->random->context));
	int r = postern__pg_do(self, send_notification, &notification, error);
	int64_t deadline = now_ms(self) + ms;
	while (r == POSTERN_OK &&
			!read_notifications(&self->listener, notification.word)) {
		if (is_ended(self)) {
			return POSTERN_OK;
		}
		if (now_ms(self) >= deadline) {
			return fail_no_notification(self, error);
		}
		r = wait_input(self, deadline, error);
	}
	return r;
}

static int start_listening(struct pg_store *self, struct postern_error *error) {
	struct pg_connection *connection = &self->listener;
	int r = postern__pg_connect(connection, error);
	if (r == POSTERN_OK) {
		r = listen_now(connection, error);
	}
	connection->until_ms = 0;
	if (r == POSTERN_OK) {
		r = test_notification(self, "SELECT pg_notify(@bell_1(), $1)", ECHO_MS,
				error);
	}
	return r;
}

int postern__pg_try_listen(struct pg_store *self, struct postern_error *error) {
	struct pg_connection *connection = &self->listener;
	int r = postern__pg_connect(connection, error);
	if (r == POSTERN_OK) {
		r = postern__pg_exec(connection, "LISTEN postern_check", error);
	}
	connection->until_ms = 0;
	if (r == POSTERN_OK) {
		r = test_notification(self, "SELECT pg_notify('postern_check', $1)",
				self->listen_conninfo ? ECHO_MS : ECHO_MS_UNCONFIGURED, error);
	}
	postern__pg_disconnect(connection);
	return r;
}

int postern__pg_wait(struct postern_store *store, int64_t ms, bool *woken_out,
		struct postern_error *error) {
	struct pg_store *self = postern__pg_from_base(store);
	struct pg_connection *connection = &self->listener;
	int64_t deadline = now_ms(self) + ms;
	bool fresh = !connection->link;
	int r = fresh ? start_listening(self, error) : POSTERN_OK;
	/* Notifications before LISTEN were missed. */
	bool woken = fresh;
	while (r == POSTERN_OK && !woken && !is_ended(self) &&
			now_ms(self) < deadline) {
		r = wait_input(self, deadline, error);
		woken = r == POSTERN_OK && read_notifications(connection, NULL);
	}
	if (r != POSTERN_OK) {
		postern__pg_disconnect(connection);
	}
	uint64_t ignored;
	(void)!read(self->stop_fd, &ignored, sizeof ignored); /* may be unset */
	*woken_out = woken;
	return r;
}

void postern__pg_end_wait(struct postern_store *store) {
	struct pg_store *self = postern__pg_from_base(store);
	(void)eventfd_write(self->stop_fd, 1); /* a full counter is set, too */
}
