/* SPDX-License-Identifier: MIT */
/*
 * The payment service: charges every order once. It is a program with Postern
 * in it: a source reads the queue, and a transactional callback charges. What
 * the callback writes, and that its delivery is done, commit in one
 * transaction; a copy of a message finds that and does not run.
 *
 *   cc -o payment_service payment_service.c \
 *       $(pkg-config --cflags --libs postern postern-rabbitmq libpq)
 *   ./payment_service postgres://payments@db.example/payments \
 *       amqp://app:secret@broker/ shop
 */

#include <libpq-fe.h>
#include <postern/postern.h>
#include <postern/rabbitmq.h>
#include <signal.h>
#include <stdio.h>

/* How long charges in progress may take at the end. */
#define GRACE_MS 10000

static void charge(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	PGconn *link = delivery->transaction;
	const char *const values[] = { message->body };
	const int lens[] = { (int)message->body_len };
	const int formats[] = { 1 }; /* bytes: the body has no zero at its end */
	(void)context;
	/* No BEGIN and no COMMIT: the transaction belongs to Postern. */
	PGresult *result = PQexecParams(link,
			"INSERT INTO public.charges (order_id, cents)"
			" SELECT (body ->> 'order')::bigint, (body ->> 'cents')::integer"
			" FROM (SELECT convert_from($1::bytea, 'UTF8')::jsonb) AS m (body)",
			1, NULL, values, lens, formats, 0);
	if (PQresultStatus(result) != PGRES_COMMAND_OK) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, PQerrorMessage(link));
	}
	PQclear(result);
}

static int open_box(const char *database, struct postern_box **out,
		struct postern_error *error) {
	const struct postern_box_options options = {
		.size = sizeof options,
		.node_lease_ms = 2000, /* so that the example recovers in seconds */
	};
	const char *const types[] = { "order.placed" };
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "charge", /* stored with every delivery: never change it */
		.types = types,
		.type_count = 1,
		.callback = charge,
		.transactional = true,
	};
	int r = postern_rabbitmq_register(error);
	if (r == POSTERN_OK) {
		r = postern_box_open(database, &options, out, error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_add_channel(*out, "orders", NULL, error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_add_handler(*out, "orders", &handler, error);
	}
	return r == POSTERN_OK ? postern_box_start(*out, error) : r;
}

/* The queue, which is created and bound if it is missing. */
static int add_source(struct postern_runner *runner, const char *broker,
		const char *shop, struct postern_error *error) {
	char queue[80];
	(void)snprintf(queue, sizeof queue, "%s.payments", shop);
	const struct postern_source_options options = {
		.size = sizeof options,
		.name = "orders",
		.channel = "orders",
	};
	const struct postern_source_setting settings[] = {
		{ "url", broker },
		{ "queue", queue },
		{ "declare", "on" },
		{ "exchange", shop },
		{ "binding_keys", "order.*" },
		{ "heartbeat", "2s" },
	};
	return postern_runner_add_source(runner, &options, "rabbitmq", settings,
			sizeof settings / sizeof settings[0], error);
}

/* Until SIGTERM. */
static int serve(struct postern_runner *runner, const sigset_t *signals,
		struct postern_error *error) {
	int number;
	int r = postern_runner_start(runner, error);
	if (r == POSTERN_OK) {
		(void)sigwait(signals, &number);
		r = postern_runner_drain(runner, GRACE_MS, error);
	}
	return r;
}

int main(int count, char **words) {
	const struct postern_runner_options options = {
		.size = sizeof options,
		.restart_delay_ms = 500,
	};
	struct postern_error error = { 0 };
	struct postern_box *box = NULL;
	struct postern_runner *runner = NULL;
	sigset_t signals;
	if (count != 4) {
		(void)fprintf(stderr, "usage: payment_service postgres://DATABASE "
							  "amqp://BROKER SHOP\n");
		return 2;
	}
	/* Blocked in all threads: sigwait() gets them. */
	(void)sigemptyset(&signals);
	(void)sigaddset(&signals, SIGTERM);
	(void)sigaddset(&signals, SIGINT);
	(void)sigprocmask(SIG_BLOCK, &signals, NULL);
	int r = open_box(words[1], &box, &error);
	if (r == POSTERN_OK) {
		r = postern_runner_create(box, &options, &runner, &error);
	}
	if (r == POSTERN_OK) {
		r = add_source(runner, words[2], words[3], &error);
	}
	if (r == POSTERN_OK) {
		r = serve(runner, &signals, &error);
	}
	if (r != POSTERN_OK) {
		(void)fprintf(stderr, "payment_service: %s\n", error.text);
	}
	postern_runner_destroy(runner);
	postern_box_destroy(box);
	return r == POSTERN_OK ? 0 : 1;
}
