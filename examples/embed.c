/* SPDX-License-Identifier: MIT */
/*
 * Postern embedded in a program: a plain callback, and a runner that calls it
 * on its own threads.
 *
 * Three orders are accepted, the second of them twice. The first attempt of
 * order-2 fails, so that it is retried; the others run once.
 *
 *   cc -o embed embed.c $(pkg-config --cflags --libs postern)
 */

#include <postern/postern.h>
#include <stdio.h>
#include <string.h>
#include <threads.h>

static int failed(const char *what, const struct postern_error *error) {
	(void)fprintf(stderr, "%s: %s\n", what, error->text);
	return 1;
}

/* Runs on a thread of the runner. The outcome is POSTERN_DONE unless set. */
static void mail(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	if (delivery->attempt == 1 && strcmp(message->id, "order-2") == 0) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "the line is busy");
	}
	(void)printf("mail %s: attempt %u: %s\n", message->id,
			(unsigned)delivery->attempt,
			outcome->kind == POSTERN_DONE ? "sent" : outcome->reason);
}

/* Everything before the first message: channels, handlers, start. */
static int configure(struct postern_box *box, struct postern_error *error) {
	static const int64_t delays_ms[] = { 50 };
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.backoff_ms = delays_ms;
	policy.backoff_count = 1;
	policy.concurrency = 1; /* so that the lines are printed in order */
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "mail", /* stored with every delivery: never change it */
		.callback = mail,
		.policy = &policy,
	};
	int r = postern_box_add_channel(box, "orders", NULL, error);
	if (r == POSTERN_OK) {
		r = postern_box_add_handler(box, "orders", &handler, error);
	}
	return r == POSTERN_OK ? postern_box_start(box, error) : r;
}

static void accept_one(struct postern_box *box, const char *id) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.type = "order.placed",
		.body = "{\"total\":12}",
		.body_len = strlen("{\"total\":12}"),
	};
	struct postern_error error;
	int r = postern_box_accept(box, "orders", &message, NULL, &error);
	/* A duplicate was accepted before: acknowledge it to the sender, too. */
	(void)printf("accept %s: %s\n", id,
			r == POSTERN_OK ? "accepted" : error.text);
}

/* Wait until no delivery is open; a server would not exit here. */
static int wait_until_done(struct postern_box *box,
		struct postern_error *error) {
	const struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };
	uint64_t open = 1;
	while (open > 0) {
		struct postern_stats *stats;
		int r = postern_box_stats(box, &stats, error);
		if (r != POSTERN_OK) {
			return r;
		}
		open = stats->handlers[0].pending + stats->handlers[0].leased;
		postern_stats_destroy(stats);
		(void)thrd_sleep(&pause, NULL);
	}
	return POSTERN_OK;
}

int main(void) {
	struct postern_error error;
	struct postern_box *box = NULL;
	struct postern_runner *runner = NULL;
	int r = postern_box_open("sqlite:embed.db", NULL, &box, &error);
	if (r == POSTERN_OK) {
		r = configure(box, &error);
	}
	if (r == POSTERN_OK) {
		accept_one(box, "order-1");
		accept_one(box, "order-2");
		accept_one(box, "order-2");
		accept_one(box, "order-3");
		r = postern_runner_create(box, NULL, &runner, &error);
	}
	if (r == POSTERN_OK) {
		r = postern_runner_start(runner, &error);
	}
	if (r == POSTERN_OK) {
		r = wait_until_done(box, &error);
	}
	if (r == POSTERN_OK) {
		r = postern_runner_drain(runner, 5000, &error);
	}
	/* In this order; both accept NULL. */
	postern_runner_destroy(runner);
	postern_box_destroy(box);
	return r == POSTERN_OK ? 0 : failed("embed", &error);
}
