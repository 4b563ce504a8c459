/* SPDX-License-Identifier: MIT */
/*
 * A transactional guard on PostgreSQL, or the limit: the same writes with
 * nothing around them, in prepared statements on one connection.
 *
 *   guarded_postgres guard|bare URL MESSAGES
 *
 * The database has the tables of Postern (created by `postern migrate`).
 */

#include <libpq-fe.h>

#include "guarded.h"

#define TABLE                                        \
	"CREATE TABLE IF NOT EXISTS public.bench_effect" \
	" (id text NOT NULL, body text NOT NULL)"
#define EFFECT "INSERT INTO public.bench_effect (id, body) VALUES ($1, $2)"

static bool run(PGconn *link, PGresult *result) {
	bool good = PQresultStatus(result) == PGRES_COMMAND_OK ||
				PQresultStatus(result) == PGRES_TUPLES_OK;
	if (!good) {
		(void)fprintf(stderr, "%s", PQerrorMessage(link));
	}
	PQclear(result);
	return good;
}

static void check(PGconn *link, PGresult *result) {
	if (!run(link, result)) {
		exit(1);
	}
}

static PGconn *connect_to(const char *url) {
	PGconn *link = PQconnectdb(url);
	check(link, PQexec(link, "SET client_min_messages = warning"));
	check(link, PQexec(link, TABLE));
	return link;
}

static bool write_row(void *transaction,
		const struct guarded_message *message) {
	char body[BODY_LEN + 1] = "";
	const char *const values[] = { message->id, body };
	memcpy(body, message->body, BODY_LEN);
	return run(transaction,
			PQexecParams(transaction, EFFECT, 2, NULL, values, NULL, NULL, 0));
}

static void write_bare(PGconn *link, const struct guarded_message *message,
		size_t number) {
	char body[BODY_LEN + 1] = "";
	char handler[24];
	const char *const row[] = { message->id, body };
	const char *const mark[] = { handler, message->id };
	(void)snprintf(handler, sizeof handler, "%zu", number % 7);
	memcpy(body, message->body, BODY_LEN);
	check(link, PQexec(link, "BEGIN"));
	check(link, PQexecPrepared(link, "mark", 2, mark, NULL, NULL, 0));
	check(link, PQexecPrepared(link, "row", 2, row, NULL, NULL, 0));
	check(link, PQexec(link, "COMMIT"));
}

static void run_bare(const char *url, size_t count) {
	PGconn *link = connect_to(url);
	struct guarded_message message;
	check(link, PQprepare(link, "row", EFFECT, 2, NULL));
	check(link, PQprepare(link, "mark",
						"INSERT INTO postern.marker"
						" (handler, key, fence, lease_until, at)"
						" VALUES ($1, md5($2)::uuid, 7046029254386353131, 0,"
						" 1700000000000)",
						2, NULL));
	double started = guarded_now();
	for (size_t i = 0; i < count; i++) {
		guarded_message_init(&message, i);
		write_bare(link, &message, i);
	}
	guarded_print(count, guarded_now() - started, 0, false);
	PQfinish(link);
}

/* The next number of a transaction: it changes with every one that writes. */
static long long next_transaction(PGconn *link) {
	PGresult *result =
			PQexec(link, "SELECT pg_snapshot_xmax(pg_current_snapshot())");
	long long number = PQntuples(result) == 1
							   ? strtoll(PQgetvalue(result, 0, 0), NULL, 10)
							   : -1;
	PQclear(result);
	return number;
}

static void run_guard(const char *url, size_t count) {
	struct postern_guard *guard = NULL;
	struct postern_error error;
	PGconn *link = connect_to(url);
	if (postern_guard_open(url, NULL, &guard, &error)) {
		guarded_fail(url, error.text);
	}
	double first = guarded_deliver(guard, write_row, count, POSTERN_OK);
	long long before = next_transaction(link);
	double again =
			guarded_deliver(guard, write_row, count, POSTERN_E_DUPLICATE);
	guarded_print(count, first, again, next_transaction(link) != before);
	postern_guard_destroy(guard);
	PQfinish(link);
}

int main(int argc, char **argv) {
	size_t count = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	if (count == 0) {
		(void)fprintf(stderr,
				"usage: guarded_postgres guard|bare URL MESSAGES\n");
		return 2;
	}
	if (strcmp(argv[1], "guard") == 0) {
		run_guard(argv[2], count);
	} else {
		run_bare(argv[2], count);
	}
	return 0;
}
