/* SPDX-License-Identifier: MIT */
/*
 * The order service: one transaction writes the order and publishes the
 * message about it, so there is never one without the other. All it needs is
 * libpq; `postern serve -c orders.yaml` sends the messages on.
 *
 * It places orders until it is stopped. Every fifth customer changes their mind
 * at the last moment: the transaction is rolled back, and the message with it.
 *
 *   cc -o order_service order_service.c $(pkg-config --cflags --libs libpq)
 *   ./order_service postgres://orders@db.example/orders
 */

#include <libpq-fe.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <threads.h>

static volatile sig_atomic_t stopping;

static void stop(int number) {
	(void)number;
	stopping = 1;
}

static bool run(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	ExecStatusType status = PQresultStatus(result);
	PQclear(result);
	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

static bool insert_order(PGconn *link, int cents, char *id, size_t id_size) {
	char text[16];
	(void)snprintf(text, sizeof text, "%d", cents);
	const char *const values[] = { text };
	PGresult *result = PQexecParams(link,
			"INSERT INTO orders (cents) VALUES ($1) RETURNING id", 1, NULL,
			values, NULL, NULL, 0);
	bool good = PQresultStatus(result) == PGRES_TUPLES_OK;
	if (good) {
		(void)snprintf(id, id_size, "%s", PQgetvalue(result, 0, 0));
	}
	PQclear(result);
	return good;
}

/* The message's id stays the same however often it is sent: with it the
   receiver knows a copy. */
static bool publish(PGconn *link, const char *id, int cents) {
	char body[80];
	char message_id[40];
	(void)snprintf(body, sizeof body, "{\"order\":%s,\"cents\":%d}", id, cents);
	(void)snprintf(message_id, sizeof message_id, "order-%s", id);
	const char *const values[] = { body, message_id };
	PGresult *result = PQexecParams(link,
			"SELECT postern.publish('outgoing', 'order.placed', $1::jsonb, $2)",
			2, NULL, values, NULL, NULL, 0);
	bool good = PQresultStatus(result) == PGRES_TUPLES_OK;
	PQclear(result);
	return good;
}

static bool place_order(PGconn *link, int cents, bool cancelled) {
	char id[24];
	return run(link, "BEGIN") && insert_order(link, cents, id, sizeof id) &&
		   publish(link, id, cents) &&
		   run(link, cancelled ? "ROLLBACK" : "COMMIT");
}

int main(int count, char **words) {
	const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };
	if (count != 2) {
		(void)fprintf(stderr, "usage: order_service postgres://DATABASE\n");
		return 2;
	}
	(void)signal(SIGTERM, stop);
	PGconn *link = PQconnectdb(words[1]);
	bool good = PQstatus(link) == CONNECTION_OK;
	for (int i = 1; good && !stopping; i++) {
		good = place_order(link, 100 + i, i % 5 == 0);
		(void)thrd_sleep(&pause, NULL);
	}
	if (!good) {
		(void)fprintf(stderr, "order_service: %s", PQerrorMessage(link));
	}
	PQfinish(link);
	return good ? 0 : 1;
}
