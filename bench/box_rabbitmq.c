/* SPDX-License-Identifier: MIT */

/*
 * A queue of RabbitMQ as a source of a box, with a handler that does nothing:
 *
 *   box_rabbitmq STORE BROKER QUEUE COUNT
 *
 * Prints the seconds from the start of the runner, which includes the
 * connection, until the completions of COUNT messages are durable.
 */

#include <postern/postern.h>
#include <postern/rabbitmq.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_done = PTHREAD_COND_INITIALIZER;
static long left; /* with the mutex */

static void must(int r, const struct postern_error *error) {
	if (r) {
		(void)fprintf(stderr, "box_rabbitmq: %s\n", error->text);
		exit(EXIT_FAILURE);
	}
}

static double now(void) {
	struct timespec time;
	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void do_nothing(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)message;
	(void)delivery;
	(void)outcome;
}

/* A completion is durable. */
static void count_done(void *context, const struct postern_event *event) {
	(void)context;
	if (event->state == POSTERN_STATE_DONE) {
		(void)pthread_mutex_lock(&mutex);
		if (--left == 0) {
			(void)pthread_cond_signal(&all_done);
		}
		(void)pthread_mutex_unlock(&mutex);
	}
}

static struct postern_box *open_box(const char *store) {
	struct postern_box *box = NULL;
	struct postern_error error;
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "nothing",
		.callback = do_nothing,
	};
	must(postern_box_open(store, NULL, &box, &error), &error);
	must(postern_box_add_channel(box, "in", NULL, &error), &error);
	must(postern_box_add_handler(box, "in", &handler, &error), &error);
	must(postern_box_subscribe(box, POSTERN_LEVEL_DEBUG, count_done, NULL,
				 &error),
			&error);
	must(postern_box_start(box, &error), &error);
	return box;
}

int main(int argc, char **argv) {
	struct postern_error error;
	struct postern_runner *runner = NULL;
	if (argc != 5) {
		(void)fprintf(stderr, "usage: box_rabbitmq STORE BROKER QUEUE COUNT\n");
		return EXIT_FAILURE;
	}
	left = strtol(argv[4], NULL, 10);
	must(postern_rabbitmq_register(&error), &error);
	struct postern_box *box = open_box(argv[1]);
	const struct postern_source_options source = {
		.size = sizeof source,
		.name = "queue",
		.channel = "in",
	};
	const struct postern_source_setting settings[] = {
		{ "url", argv[2] },
		{ "queue", argv[3] },
	};
	must(postern_runner_create(box, NULL, &runner, &error), &error);
	must(postern_runner_add_source(runner, &source, "rabbitmq", settings, 2,
				 &error),
			&error);
	double begin = now();
	must(postern_runner_start(runner, &error), &error);
	(void)pthread_mutex_lock(&mutex);
	while (left > 0) {
		(void)pthread_cond_wait(&all_done, &mutex);
	}
	(void)pthread_mutex_unlock(&mutex);
	(void)printf("%.3f\n", now() - begin);
	postern_runner_destroy(runner);
	postern_box_destroy(box);
	return EXIT_SUCCESS;
}
