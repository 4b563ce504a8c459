/* SPDX-License-Identifier: MIT */
/*
 * A guard around a function that is called inline: the transport keeps its
 * retries, nothing is stored but what was done.
 *
 * The same event is delivered three times, as a broker does after a lost
 * acknowledgement. The first call fails, and what it wrote is rolled back; the
 * second inserts the row and its marker in one transaction; the third is a
 * duplicate. Started again, the program finds that all was done.
 *
 *   cc -o guard guard.c $(pkg-config --cflags --libs postern sqlite3)
 */

#include <postern/postern.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

struct order {
	const char *id;
	int total;
	bool terminal_works;
};

static void insert_order(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	struct order *order = context;
	sqlite3 *db = call->transaction;
	sqlite3_stmt *statement = NULL;
	(void)sqlite3_exec(db,
			"CREATE TABLE IF NOT EXISTS orders (id TEXT, total INTEGER)", NULL,
			NULL, NULL);
	(void)sqlite3_prepare_v2(db, "INSERT INTO orders VALUES (?1, ?2)", -1,
			&statement, NULL);
	(void)sqlite3_bind_text(statement, 1, order->id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int(statement, 2, order->total);
	int code = sqlite3_step(statement);
	(void)sqlite3_finalize(statement);
	if (code != SQLITE_DONE) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, sqlite3_errmsg(db));
	} else if (!order->terminal_works) {
		order->terminal_works = true;
		postern_outcome_set(outcome, POSTERN_RETRY, 0,
				"the card terminal is down");
	}
}

/* What a consumer does with a delivery of its broker. */
static void consume(struct postern_guard *guard, struct order *order) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "insert-order-v1",
		.key = order->id,
		.transactional = true,
	};
	struct postern_error error;
	int r = postern_guard_run(guard, &guarded, insert_order, order, NULL,
			&error);
	if (r == POSTERN_OK) {
		(void)printf("%s: inserted, acknowledge\n", order->id);
	} else if (r == POSTERN_E_DUPLICATE) {
		(void)printf("%s: duplicate, acknowledge\n", order->id);
	} else {
		(void)printf("%s: %s, requeue\n", order->id, error.text);
	}
}

static int fail(const struct postern_error *error) {
	(void)fprintf(stderr, "guard: %s\n", error->text);
	return 1;
}

int main(int count, char **words) {
	const char *url = count > 1 ? words[1] : "sqlite:guard.db";
	struct order order = { .id = "order-17", .total = 12 };
	struct postern_guard *guard = NULL;
	struct postern_error error;
	if (postern_guard_open(url, NULL, &guard, &error)) {
		return fail(&error);
	}
	for (int i = 0; i < 3; i++) {
		consume(guard, &order);
	}
	postern_guard_destroy(guard);
	return 0;
}
