/* SPDX-License-Identifier: MIT */
/*
 * Exactly once in PostgreSQL: a transactional callback writes to its own table
 * through the open transaction that completes its delivery. Both commit, or
 * neither does.
 *
 * The callback adds to a balance, so a second run would be visible. Started
 * again, the program sends the same message, and the callback does not run.
 *
 *   cc -o deposit deposit.c $(pkg-config --cflags --libs postern libpq)
 *   psql -f deposit.sql postgres://orders@db.example/shop
 *   ./deposit postgres://orders@db.example/shop
 */

#include <libpq-fe.h>
#include <postern/postern.h>
#include <stdio.h>

static void deposit(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	PGconn *link = delivery->transaction;
	const char *const values[] = { message->subject, message->body };
	const int lens[] = { 0, (int)message->body_len };
	/* The body has a length; it is not terminated by a zero byte. */
	const int formats[] = { 0, 1 };
	PGresult *result = PQexecParams(link,
			"INSERT INTO account (owner, balance)"
			" VALUES ($1, convert_from($2::bytea, 'UTF8')::integer)"
			" ON CONFLICT (owner) DO UPDATE"
			" SET balance = account.balance + excluded.balance"
			" RETURNING balance",
			2, NULL, values, lens, formats, 0);
	(void)context;
	/* Never begin, commit or roll back: the store does that. After a failed
	   statement the outcome cannot be POSTERN_DONE. */
	if (PQresultStatus(result) != PGRES_TUPLES_OK) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, PQerrorMessage(link));
	} else {
		(void)printf("deposit: %s has %s\n", message->subject,
				PQgetvalue(result, 0, 0));
	}
	PQclear(result);
}

int main(int count, char **words) {
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "deposit",
		.callback = deposit,
		.transactional = true,
	};
	const struct postern_message message = {
		.size = sizeof message,
		.id = "payment-7",
		.subject = "alice",
		.body = "100",
		.body_len = 3,
	};
	struct postern_error error = { 0 };
	struct postern_box *box = NULL;
	size_t runs = 0;
	if (count != 2) {
		(void)fprintf(stderr, "usage: deposit postgres://USER@HOST/DATABASE\n");
		return 2;
	}
	int r = postern_box_open(words[1], NULL, &box, &error);
	if (r == POSTERN_OK) {
		r = postern_box_add_channel(box, "payments", NULL, &error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_add_handler(box, "payments", &handler, &error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_start(box, &error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_accept(box, "payments", &message, NULL, &error);
		(void)printf("accept: %s\n", r ? error.text : "accepted");
		r = r == POSTERN_E_DUPLICATE ? POSTERN_OK : r;
	}
	if (r == POSTERN_OK) {
		r = postern_box_process(box, 0, &runs, &error);
	}
	if (r == POSTERN_OK) {
		(void)printf("runs: %zu\n", runs);
	} else {
		(void)fprintf(stderr, "deposit: %s\n", error.text);
	}
	postern_box_destroy(box);
	return r == POSTERN_OK ? 0 : 1;
}
