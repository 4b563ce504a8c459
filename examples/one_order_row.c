/* SPDX-License-Identifier: MIT */
/*
 * The same event published twice leaves one order row.
 *
 * A test does that to show that a handler is safe: it dispatches an event two
 * times and counts the rows. The guard is on a file here, so a second run of
 * the program finds that the event was handled in the first.
 *
 *   cc -o one_order_row one_order_row.c \
 *       $(pkg-config --cflags --libs postern sqlite3)
 */

#include <postern/postern.h>
#include <sqlite3.h>
#include <stdio.h>

struct order_created {
	const char *message_id;
	const char *order_id;
	const char *customer;
};

static void create_order(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	const struct order_created *event = context;
	sqlite3 *db = call->transaction;
	sqlite3_stmt *insert = NULL;
	(void)sqlite3_exec(db,
			"CREATE TABLE IF NOT EXISTS orders (id TEXT, customer TEXT)", NULL,
			NULL, NULL);
	(void)sqlite3_prepare_v2(db, "INSERT INTO orders VALUES (?1, ?2)", -1,
			&insert, NULL);
	(void)sqlite3_bind_text(insert, 1, event->order_id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(insert, 2, event->customer, -1, SQLITE_STATIC);
	if (sqlite3_step(insert) != SQLITE_DONE) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, sqlite3_errmsg(db));
	}
	(void)sqlite3_finalize(insert);
}

/* Returns POSTERN_OK if the handler ran, POSTERN_E_DUPLICATE if it was not
   needed. */
static int publish(struct postern_guard *guard, struct order_created *event) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "create-order-v1",
		.key = event->message_id,
		.transactional = true,
	};
	struct postern_error error;
	int r = postern_guard_run(guard, &guarded, create_order, event, NULL,
			&error);
	(void)printf("%s: %s\n", event->message_id,
			r == POSTERN_OK ? "order created" : error.text);
	return r;
}

static int count_orders(void) {
	sqlite3 *db = NULL;
	sqlite3_stmt *count = NULL;
	int rows = -1;
	if (sqlite3_open("orders.db", &db) == SQLITE_OK &&
			sqlite3_prepare_v2(db, "SELECT count(*) FROM orders", -1, &count,
					NULL) == SQLITE_OK &&
			sqlite3_step(count) == SQLITE_ROW) {
		rows = sqlite3_column_int(count, 0);
	}
	(void)sqlite3_finalize(count);
	(void)sqlite3_close(db);
	return rows;
}

int main(void) {
	struct order_created event = { "m-1", "order-1", "customer-1" };
	struct postern_guard *guard = NULL;
	struct postern_error error;
	if (postern_guard_open("sqlite:orders.db", NULL, &guard, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	(void)publish(guard, &event);
	int second = publish(guard, &event);
	postern_guard_destroy(guard);
	int rows = count_orders();
	(void)printf("orders: %d\n", rows);
	return second == POSTERN_E_DUPLICATE && rows == 1 ? 0 : 1;
}
