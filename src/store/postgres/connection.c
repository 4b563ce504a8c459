/* SPDX-License-Identifier: MIT */

/*
 * One connection to the server: opening it, waiting for results, and reporting
 * errors.
 *
 * Nothing blocks for longer than the command timeout. If a result does not
 * arrive in time, the connection is closed; whether the server has executed the
 * statement is then unknown, as after a lost connection.
 *
 * A connection that is silent is closed much sooner, and the operation is
 * retried on another one. A slow statement must not be: so time alone never
 * decides. After PG_SILENCE_MS without a byte in either direction the store
 * asks the server whether the session still works for this connection
 * (silence.c), and again from time to time. Behind a pooler, where it cannot
 * ask, the kernel closes a connection whose peer acknowledges nothing for
 * USER_TIMEOUT, and the command timeout covers the rest.
 */

#include <errno.h>
#include <poll.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/postgres.h"

/* The largest batch on the wire, twice what a box puts into one. */
#define BATCH_BYTES_MAX ((size_t)256 * 1024 * 1024)
#define STATEMENT_BYTES_MAX ((size_t)1024 * 1024)

/* Parameters of libpq, unless the user sets them. A peer that acknowledges
   nothing for 10 s is considered lost; an idle connection is probed after 3 s.
   USER_TIMEOUT is not shorter because it also closes a connection whose peer
   runs but reads nothing for so long, such as a server that executes the first
   of several statements that were sent together. */
#define USER_TIMEOUT "10000"
#define KEEPALIVE_IDLE "3"
#define KEEPALIVE_INTERVAL "2"
#define KEEPALIVE_COUNT "3"

/* When the server is asked about a session again: the longest interval, and the
   interval if it was not asked because other threads were asking. */
#define ASK_AGAIN_MS_MAX INT64_C(10000)
#define ASK_SOON_MS INT64_C(500)

static int64_t now_ms(const struct pg_connection *connection) {
	const struct postern_clock *clock = connection->store->clock;
	return clock->monotonic_ms(clock->context);
}

/* One wait for a connection. */
struct waiting {
	struct pg_connection *connection;
	int64_t begun;
	int64_t deadline;
	int64_t ask_at; /* when the server is asked about the session */
	int64_t ask_pause;
};

enum waited { READY, LATE, SILENT };

/* Waits for at most patience_ms, or until the connection's own limit. */
static struct waiting wait_begin(struct pg_connection *connection,
		int64_t patience_ms) {
	int64_t now = now_ms(connection);
	int64_t pause = connection->store->silence_ms;
	int64_t deadline = now + patience_ms;
	if (connection->until_ms && connection->until_ms < deadline) {
		deadline = connection->until_ms;
	}
	return (struct waiting){ connection, now, deadline, now + pause, pause };
}

static bool is_socket_ready(const struct pg_connection *connection,
		short events, int64_t ms) {
	struct pollfd socket = {
		.fd = PQsocket(connection->link),
		.events = events,
	};
	int ready = poll(&socket, 1, ms > INT32_MAX ? INT32_MAX : (int)ms);
	/* On an error, libpq reports the cause. */
	return ready > 0 || (ready < 0 && errno != EINTR);
}

/* Returns whether the session is silent. */
static bool ask_session(struct waiting *waiting) {
	enum pg_session session = postern__pg_ask_session(waiting->connection);
	if (session != PG_SESSION_NOT_ASKED) {
		waiting->ask_pause *= 2;
	}
	if (waiting->ask_pause > ASK_AGAIN_MS_MAX) {
		waiting->ask_pause = ASK_AGAIN_MS_MAX;
	}
	waiting->ask_at = now_ms(waiting->connection) +
					  (session == PG_SESSION_NOT_ASKED ? ASK_SOON_MS
													   : waiting->ask_pause);
	return session == PG_SESSION_SILENT;
}

static enum waited wait_socket(struct waiting *waiting, short events) {
	struct pg_connection *connection = waiting->connection;
	for (;;) {
		int64_t now = now_ms(connection);
		int64_t next = waiting->ask_at < waiting->deadline ? waiting->ask_at
														   : waiting->deadline;
		if (now >= waiting->deadline) {
			return LATE;
		}
		if (now >= waiting->ask_at) {
			if (ask_session(waiting)) {
				return SILENT;
			}
		} else if (is_socket_ready(connection, events, next - now)) {
			waiting->ask_pause = connection->store->silence_ms;
			waiting->ask_at = now_ms(connection) + waiting->ask_pause;
			return READY;
		}
	}
}

static bool is_listener(const struct pg_connection *connection) {
	const struct pg_store *self = connection->store;
	return connection == &self->listener && self->listen_conninfo;
}

const char *postern__pg_place(const struct pg_connection *connection) {
	return is_listener(connection) ? connection->store->listen_place
								   : connection->store->place;
}

static int fail_wait(const struct waiting *waiting, enum waited waited,
		struct postern_error *error) {
	struct pg_connection *connection = waiting->connection;
	connection->lost = true;
	if (waited == SILENT) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"a connection to PostgreSQL at %s stopped responding and was "
				"closed",
				postern__pg_place(connection));
	}
	return postern__fail(error, POSTERN_E_TIMEOUT,
			"PostgreSQL at %s did not respond within %lld ms",
			postern__pg_place(connection),
			(long long)(waiting->deadline - waiting->begun));
}

#define SQLSTATE_LEN 5

/* Whether the text begins with a SQLSTATE, a colon and a space. FATAL is not a
   SQLSTATE: it has no digit. */
static bool is_sqlstate(const char *text) {
	static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	return strspn(text, letters) == SQLSTATE_LEN &&
		   strcspn(text, "0123456789") < SQLSTATE_LEN &&
		   text[SQLSTATE_LEN] == ':' && text[SQLSTATE_LEN + 1] == ' ';
}

/* Returns the SQLSTATE in a line of an error text of libpq, in any language;
   NULL if the text is not the server's. */
static const char *find_sqlstate(const char *line, size_t len) {
	for (const char *at = line;
			(at = memchr(at, ':', len - (size_t)(at - line))); at++) {
		const char *next = at + 1 + strspn(at + 1, " ");
		if (next > at + 1 && is_sqlstate(next)) {
			return next;
		}
	}
	return NULL;
}

/* Copies the first line of an error text of libpq, which never contains the
   password, without prefixes that every text has or that our own text repeats.
   */
static void copy_reason(const char *text, char *out, size_t size) {
	static const char attempt[] = "connection to server ";
	static const char failed[] = " failed: ";
	static const char *const heads[] = { "FATAL:  ", "ERROR:  " };
	const char *reason = strstr(text, failed);
	if (strncmp(text, attempt, strlen(attempt)) == 0 && reason) {
		text = reason + strlen(failed);
	}
	for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
		if (strncmp(text, heads[i], strlen(heads[i])) == 0) {
			text += strlen(heads[i]);
		}
	}
	text += is_sqlstate(text) ? SQLSTATE_LEN + strlen(": ") : 0;
	size_t len = strcspn(text, "\n");
	(void)snprintf(out, size, "%.*s", (int)(len < size ? len : size - 1), text);
}

/* What to do if connecting failed, by words in the reason. */
static const char *connect_advice(const char *text) {
	static const struct {
		const char *word;
		const char *what;
	} table[] = {
		{ "too many", "; allow more, or set fewer 'connections'" },
		{ "connection slots", "; allow more, or set fewer 'connections'" },
		{ "permission denied for database",
				"; grant CONNECT on it, see docs/postgresql.md" },
		{ "database \"", "; create it with createdb, or name another" },
		{ "not permitted to log in", "; allow it: ALTER ROLE … LOGIN" },
		{ "role \"", "; create it with createuser, or name another" },
		{ "pg_hba.conf", "; allow it there, or connect another way" },
		{ "no password", "; set PGPASSWORD, or put it into ~/.pgpass" },
		{ "password", "; check the user and the password" },
		{ "host name", "; check the name of the host" },
		{ "refused", "; check host and port, and that the server is running" },
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		if (strstr(text, table[i].word)) {
			return table[i].what;
		}
	}
	return "";
}

struct advice {
	const char *state; /* the first characters of a SQLSTATE */
	int code;
	const char *what; /* what the user can do */
};

/* Searched in this order. */
static const struct advice advices[] = {
	{ "08", POSTERN_E_UNAVAILABLE, "" },
	{ "25006", POSTERN_E_UNAVAILABLE,
			"; it is read-only, perhaps a standby: name the primary" },
	{ "28", POSTERN_E_UNAVAILABLE,
			"; check the user, the password and pg_hba.conf" },
	{ "3D000", POSTERN_E_UNAVAILABLE, "; create it with createdb" },
	{ "3F000", POSTERN_E_UNAVAILABLE, "; run 'postern migrate'" },
	{ "42P01", POSTERN_E_UNAVAILABLE, "; run 'postern migrate'" },
	{ "42883", POSTERN_E_UNAVAILABLE, "; run 'postern migrate'" },
	{ "42501", POSTERN_E_UNAVAILABLE,
			"; grant the privileges that docs/postgresql.md lists" },
	{ "40001", POSTERN_E_BUSY, "" },
	{ "40P01", POSTERN_E_BUSY, "" },
	{ "55P03", POSTERN_E_BUSY, "" },
	{ "53", POSTERN_E_UNAVAILABLE, "" },
	{ "57014", POSTERN_E_TIMEOUT, "" },
	{ "57P", POSTERN_E_UNAVAILABLE, "" },
	{ "58", POSTERN_E_UNAVAILABLE, "" },
	{ "XX001", POSTERN_E_CORRUPT, "" },
	{ "XX002", POSTERN_E_CORRUPT, "" },
};

static const struct advice *advice_of(const char *state) {
	static const struct advice other = { "", POSTERN_E_INVALID, "" };
	for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++) {
		const struct advice *advice = &advices[i];
		if (strncmp(state, advice->state, strlen(advice->state)) == 0) {
			return advice;
		}
	}
	return &other;
}

/* Whether the cause is in the server, in its schema or in the session, and not
   in the data of the statement: the same data may succeed later. */
static bool is_internal(const char *state) {
	static const char *const states[] = { "0A", "25", "26", "42", "55",
		"XX000" };
	for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
		if (strncmp(state, states[i], strlen(states[i])) == 0) {
			return true;
		}
	}
	return false;
}

/* Whether the server refused the connection for a reason that does not pass by
   itself: the user, the password or the database is wrong. A pooler uses one
   SQLSTATE for everything. */
static bool is_permanent(const char *state, const char *line, size_t len) {
	static const char *const states[] = { "28", "3D000", "42501", "0A000" };
	static const char *const words[] = { "authentication failed",
		"no such database", "no such user" };
	for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
		if (strncmp(state, states[i], strlen(states[i])) == 0) {
			return true;
		}
	}
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		if (memmem(line, len, words[i], strlen(words[i]))) {
			return true;
		}
	}
	return false;
}

/* Whether every server that was tried refused the connection for good. */
static bool is_refused_for_good(const PGconn *link) {
	static const char attempt[] = "connection to server ";
	bool refused = false;
	if (PQconnectionNeedsPassword(link)) {
		return true;
	}
	for (const char *line = PQerrorMessage(link); *line;) {
		size_t len = strcspn(line, "\n");
		const char *state = find_sqlstate(line, len);
		if (state && is_permanent(state, line, len)) {
			refused = true;
		} else if (state || strncmp(line, attempt, strlen(attempt)) == 0) {
			return false;
		}
		line += len + (line[len] == '\n');
	}
	return refused;
}

/* The connection could not be opened, or is lost. */
static int fail_connection(struct pg_connection *connection,
		struct postern_error *error) {
	const char *message = PQerrorMessage(connection->link);
	const char *state = find_sqlstate(message, strcspn(message, "\n"));
	char text[POSTERN_ERROR_TEXT_MAX];
	connection->lost = true;
	copy_reason(message, text, sizeof text);
	const char *advice = connect_advice(text);
	if (!*advice && state) {
		/* The text is in another language, or a pooler's. */
		advice = advice_of(state)->what;
	}
	return postern__fail(error, POSTERN_E_UNAVAILABLE,
			"PostgreSQL at %s cannot be reached: %s%s",
			postern__pg_place(connection), text, advice);
}

int postern__pg_fail(struct pg_connection *connection, const PGresult *result,
		struct postern_error *error) {
	const char *place = postern__pg_place(connection);
	char text[POSTERN_ERROR_TEXT_MAX];
	const char *state =
			result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
	if (!state || PQstatus(connection->link) != CONNECTION_OK) {
		return fail_connection(connection, error);
	}
	const struct advice *advice = advice_of(state);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	copy_reason(message ? message : "", text, sizeof text);
	connection->collided = strncmp(state, "40", 2) ==
						   0; /* a deadlock, or a serialization failure */
	connection->internal = is_internal(state);
	return postern__fail(error, advice->code, "PostgreSQL at %s: %s%s", place,
			text, advice->what);
}

int postern__pg_cut(struct pg_connection *connection,
		struct postern_error *error) {
	(void)shutdown(PQsocket(connection->link), SHUT_RDWR);
	connection->lost = true;
	return postern__fail(error, POSTERN_E_UNAVAILABLE,
			"the connection to PostgreSQL at %s was lost",
			connection->store->place);
}

/* The time that connect_timeout allows, which libpq obeys only in its blocking
   functions. It applies to each host. */
static int64_t connect_limit_ms(struct pg_connection *connection) {
	int64_t patience = connection->store->command_timeout_ms;
	int64_t seconds = 0;
	int64_t hosts = 1;
	PQconninfoOption *options = PQconninfo(connection->link);
	for (const PQconninfoOption *o = options; o && o->keyword; o++) {
		if (o->val && strcmp(o->keyword, "connect_timeout") == 0) {
			seconds = strtoll(o->val, NULL, 10);
		} else if (o->val && strcmp(o->keyword, "host") == 0) {
			for (const char *at = o->val; (at = strchr(at, ',')); at++) {
				hosts++;
			}
		}
	}
	PQconninfoFree(options);
	return seconds > 0 && seconds <= patience / 1000 / hosts
				   ? seconds * 1000 * hosts
				   : patience;
}

static int establish(struct pg_connection *connection,
		struct postern_error *error) {
	/* Later parameters override earlier ones. */
	const char *const names[] = { "connect_timeout", "tcp_user_timeout",
		"keepalives_idle", "keepalives_interval", "keepalives_count", "dbname",
		"client_encoding", "fallback_application_name", NULL };
	const char *const values[] = { "10", USER_TIMEOUT, KEEPALIVE_IDLE,
		KEEPALIVE_INTERVAL, KEEPALIVE_COUNT,
		is_listener(connection) ? connection->store->listen_conninfo
								: connection->store->conninfo,
		"UTF8", "postern", NULL };
	connection->session_start = 0; /* not known yet */
	connection->link = PQconnectStartParams(names, values, 1);
	if (!connection->link) {
		return postern__pg_no_memory(error);
	}
	struct waiting waiting =
			wait_begin(connection, connect_limit_ms(connection));
	connection->until_ms = waiting.deadline;
	/* Until the connection is open this is the only way to get the SQLSTATE. */
	(void)PQsetErrorVerbosity(connection->link, PQERRORS_VERBOSE);
	PostgresPollingStatusType step = PGRES_POLLING_WRITING;
	while (PQstatus(connection->link) != CONNECTION_BAD &&
			step != PGRES_POLLING_OK && step != PGRES_POLLING_FAILED) {
		enum waited waited = wait_socket(&waiting,
				step == PGRES_POLLING_READING ? POLLIN : POLLOUT);
		if (waited != READY) {
			return fail_wait(&waiting, waited, error);
		}
		step = PQconnectPoll(connection->link);
	}
	if (PQstatus(connection->link) != CONNECTION_OK ||
			PQsetnonblocking(connection->link, 1) != 0) {
		connection->refused = is_refused_for_good(connection->link);
		return postern__pg_fail(connection, NULL, error);
	}
	return POSTERN_OK;
}

/* Notices of the server are dropped. */
static void ignore_notice(void *context, const PGresult *result) {
	(void)context;
	(void)result;
}

void postern__pg_link_reset(struct pg_connection *connection) {
	(void)PQsetErrorVerbosity(connection->link, PQERRORS_DEFAULT);
	(void)PQsetNoticeReceiver(connection->link, ignore_notice, NULL);
	PQuntrace(connection->link);
}

int postern__pg_connect(struct pg_connection *connection,
		struct postern_error *error) {
	connection->lost = false;
	connection->refused = false;
	connection->collided = false;
	int r = establish(connection, error);
	if (r != POSTERN_OK) {
		postern__pg_disconnect(connection);
		return r;
	}
	postern__pg_link_reset(connection);
	postern__buf_init(&connection->bytes, BATCH_BYTES_MAX);
	postern__buf_init(&connection->text, STATEMENT_BYTES_MAX);
	postern__point("postgres-connect.after");
	return POSTERN_OK;
}

void postern__pg_disconnect(struct pg_connection *connection) {
	if (connection->link) {
		PQfinish(connection->link);
		connection->link = NULL;
		postern__buf_finish(&connection->bytes);
		postern__buf_finish(&connection->text);
	}
}

int postern__pg_pipe_flush(struct pg_connection *connection,
		struct postern_error *error) {
	struct waiting waiting =
			wait_begin(connection, connection->store->command_timeout_ms);
	for (;;) {
		int unsent = PQflush(connection->link);
		if (unsent < 0 || !PQconsumeInput(connection->link)) {
			return postern__pg_fail(connection, NULL, error);
		}
		if (unsent == 0) {
			return POSTERN_OK;
		}
		enum waited waited = wait_socket(&waiting, POLLIN | POLLOUT);
		if (waited != READY) {
			return fail_wait(&waiting, waited, error);
		}
	}
}

/* Flush, and read until a result is complete. If it returns false, *waited_out
   is the reason; READY then means that the connection is lost. */
static bool has_result(struct waiting *waiting, enum waited *waited_out) {
	PGconn *link = waiting->connection->link;
	*waited_out = READY;
	for (;;) {
		int unsent = PQflush(link);
		if (unsent == 0 && !PQisBusy(link)) {
			return true; /* it came with the one before it */
		}
		if (unsent < 0 || !PQconsumeInput(link)) {
			return false;
		}
		if (unsent == 0 && !PQisBusy(link)) {
			return true;
		}
		*waited_out = wait_socket(waiting,
				(short)(unsent ? POLLIN | POLLOUT : POLLIN));
		if (*waited_out != READY) {
			return false;
		}
	}
}

/* No result arrived. */
static int fail_result(const struct waiting *waiting, enum waited waited,
		struct postern_error *error) {
	return waited == READY ? postern__pg_fail(waiting->connection, NULL, error)
						   : fail_wait(waiting, waited, error);
}

int postern__pg_await(struct pg_connection *connection, PGresult **out,
		struct postern_error *error) {
	struct waiting waiting =
			wait_begin(connection, connection->store->command_timeout_ms);
	PGresult *last = NULL;
	enum waited waited;
	for (;;) {
		if (!has_result(&waiting, &waited)) {
			PQclear(last);
			return fail_result(&waiting, waited, error);
		}
		PGresult *result = PQgetResult(connection->link);
		if (!result) {
			break;
		}
		PQclear(last);
		last = result;
	}
	*out = last;
	return last ? POSTERN_OK : postern__pg_fail(connection, NULL, error);
}

static bool is_good(ExecStatusType status) {
	return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
}

/* A COPY, for which the store neither sends nor reads rows: libpq would return
   the same result forever. */
static bool is_copy(ExecStatusType status) {
	return status == PGRES_COPY_IN || status == PGRES_COPY_OUT ||
		   status == PGRES_COPY_BOTH;
}

int postern__pg_await_pipe(struct pg_connection *connection, size_t count,
		size_t index, int64_t patience_ms, PGresult **out,
		struct postern_error *error) {
	struct waiting waiting = wait_begin(connection, patience_ms);
	PGresult *kept = NULL;
	enum waited waited = READY;
	size_t done = 0;
	/* Each statement has a result and an end (NULL); a sync ends the pipeline.
	 */
	while (done <= count && has_result(&waiting, &waited)) {
		PGresult *result = PQgetResult(connection->link);
		ExecStatusType status = PQresultStatus(result);
		if (result && status == PGRES_PIPELINE_SYNC) {
			PQclear(result);
			*out = kept;
			return kept ? POSTERN_OK
						: postern__pg_fail(connection, NULL, error);
		}
		if (is_copy(status)) {
			PQclear(result);
			break;
		}
		bool failed = kept && !is_good(PQresultStatus(kept));
		if (result && !failed && (done == index || !is_good(status))) {
			PQclear(kept);
			kept = result;
			result = NULL;
		} else if (!result) {
			done++;
		}
		PQclear(result);
	}
	PQclear(kept);
	connection->lost = true;
	return fail_result(&waiting, waited, error);
}
