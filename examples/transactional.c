/* SPDX-License-Identifier: MIT */
/*
 * Exactly once: a transactional callback writes to its own table through the
 * store's open transaction. The row and the delivery's completion commit
 * together or not at all.
 *
 * The callback adds to a balance, so a second run would be visible. Its first
 * attempt fails after it has written. The balance is still correct, also when
 * this program is started again.
 *
 *   cc -o transactional transactional.c \
 *       $(pkg-config --cflags --libs postern sqlite3)
 */

#include <postern/postern.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static int print_balance(void *context, int count, char **values,
		char **names) {
	(void)context;
	(void)count;
	(void)names;
	(void)printf("balance %s\n", values[0]);
	return 0;
}

static void deposit(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	static const char sql[] =
			"insert into account(owner, balance) values (?1, ?2)"
			" on conflict(owner) do update set balance = balance + ?2";
	sqlite3 *db = delivery->transaction;
	sqlite3_stmt *statement = NULL;
	(void)context;

	int r = sqlite3_exec(db,
			"create table if not exists account("
			"owner text primary key, balance integer not null)",
			NULL, NULL, NULL);
	if (r == SQLITE_OK) {
		r = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
	}
	if (r == SQLITE_OK) {
		(void)sqlite3_bind_text(statement, 1, message->subject, -1,
				SQLITE_STATIC);
		(void)sqlite3_bind_text(statement, 2, message->body,
				(int)message->body_len, SQLITE_STATIC);
		r = sqlite3_step(statement);
	}
	if (r != SQLITE_DONE) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, sqlite3_errmsg(db));
	} else if (delivery->attempt == 1) {
		/* Any outcome but done and discard rolls back. */
		postern_outcome_set(outcome, POSTERN_RETRY_AFTER, 0, "changed my mind");
	}
	/* Finalize statements before the callback returns. Never commit or roll
	   back: the store does that. */
	(void)sqlite3_finalize(statement);
	(void)printf("deposit: attempt %u\n", (unsigned)delivery->attempt);
}

/* Read the balance through a separate read-only connection. */
static void show_balance(void) {
	sqlite3 *db = NULL;
	if (sqlite3_open_v2("transactional.db", &db, SQLITE_OPEN_READONLY, NULL) ==
			SQLITE_OK) {
		(void)sqlite3_exec(db, "select balance from account", print_balance,
				NULL, NULL);
	}
	(void)sqlite3_close(db);
}

int main(void) {
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "deposit",
		.callback = deposit,
		.transactional = true,
	};
	const struct postern_message message = {
		.size = sizeof message,
		.id = "payment-7",
		.type = "payment.received",
		.subject = "alice",
		.body = "100",
		.body_len = strlen("100"),
	};
	struct postern_error error;
	struct postern_box *box = NULL;
	size_t count = 0;
	int r = postern_box_open("sqlite:transactional.db", NULL, &box, &error);
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
		r = postern_box_process(box, 0, &count, &error);
	}
	if (r == POSTERN_OK) {
		(void)printf("runs: %zu\n", count);
		show_balance();
	} else {
		(void)fprintf(stderr, "transactional: %s\n", error.text);
	}
	postern_box_destroy(box);
	return r == POSTERN_OK ? 0 : 1;
}
