/* SPDX-License-Identifier: MIT */
/*
 * A consumer with a connection and transactions of its own: the marker is
 * written in them, and a rolled-back mark leaves nothing.
 *
 * The first delivery fails after its insert and is rolled back. The second
 * commits row and marker together. The third finds the marker and skips the
 * work, in a transaction that goes on.
 *
 *   psql -f own_transaction.sql postgres://…
 *   cc -o own_transaction own_transaction.c \
 *       $(pkg-config --cflags --libs postern libpq)
 */

#include <libpq-fe.h>
#include <postern/postern.h>
#include <stdio.h>
#include <stdlib.h>

static void run(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	if (PQresultStatus(result) != PGRES_COMMAND_OK) {
		(void)fprintf(stderr, "%s", PQerrorMessage(link));
		exit(1);
	}
	PQclear(result);
}

static void consume(struct postern_guard *guard, PGconn *link, bool fails) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "ship-order-v1",
		.key = "order-17",
	};
	struct postern_error error;
	run(link, "BEGIN");
	int r = postern_mark_in(guard, link, &guarded, &error);
	if (r == POSTERN_OK) {
		run(link, "INSERT INTO shipment VALUES ('order-17')");
		run(link, fails ? "ROLLBACK" : "COMMIT");
		(void)printf(fails ? "failed, requeue\n" : "shipped, acknowledge\n");
	} else if (r == POSTERN_E_DUPLICATE) {
		run(link, "COMMIT");
		(void)printf("duplicate, acknowledge\n");
	} else {
		run(link, "ROLLBACK");
		(void)printf("%s, requeue\n", error.text);
	}
}

int main(int count, char **words) {
	const char *url = count > 1 ? words[1] : "postgres://localhost/shop";
	struct postern_guard *guard = NULL;
	struct postern_error error;
	PGconn *link = PQconnectdb(url);
	if (PQstatus(link) != CONNECTION_OK) {
		(void)fprintf(stderr, "%s", PQerrorMessage(link));
		return 1;
	}
	if (postern_guard_open(url, NULL, &guard, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	consume(guard, link, true);
	consume(guard, link, false);
	consume(guard, link, false);
	PGresult *rows = PQexec(link, "SELECT count(*) FROM shipment");
	(void)printf("shipments: %s\n", PQgetvalue(rows, 0, 0));
	PQclear(rows);
	postern_guard_destroy(guard);
	PQfinish(link);
	return 0;
}
