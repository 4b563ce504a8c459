/* SPDX-License-Identifier: MIT */

/*
 * A program that publishes and consumes with the shared libraries and the
 * public headers only. The broker is that of $POSTERN_TEST_RABBITMQ.
 */

#include <postern/postern.h>
#include <postern/rabbitmq.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "tap.h"

#define COUNT 500
#define QUEUE "program"
/* Reached only when something is broken. */
#define PATIENCE_MS 60000

static atomic_int handled;

static void count(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)delivery;
	(void)outcome;
	handled += strcmp(message->type, "t") == 0 &&
			   strcmp(message->source, "/out") == 0;
}

static int add_publisher(struct postern_box *box,
		const struct postern_rabbitmq_publish *settings,
		struct postern_error *error) {
	const struct postern_handler_options options = {
		.size = sizeof options,
		.key = "relay",
		.kind = POSTERN_RABBITMQ_PUBLISH_KIND,
		.settings = settings,
	};
	return postern_box_add_handler(box, "out", &options, error);
}

static int add_source(struct postern_runner *runner, const char *url,
		struct postern_error *error) {
	const struct postern_source_options options = {
		.size = sizeof options,
		.name = "in",
		.channel = "in",
	};
	const struct postern_source_setting settings[] = {
		{ "url", url },
		{ "queue", QUEUE },
		{ "declare", "on" },
	};
	return postern_runner_add_source(runner, &options, "rabbitmq", settings,
			sizeof settings / sizeof settings[0], error);
}

static struct postern_box *open_box(void) {
	struct postern_error error;
	struct postern_box *box = NULL;
	const struct postern_handler_options counter = {
		.size = sizeof counter,
		.key = "count",
		.callback = count,
	};
	CHECK_OK(postern_rabbitmq_register(&error), &error);
	CHECK_OK(postern_box_open("memory:", NULL, &box, &error), &error);
	CHECK_OK(postern_box_add_channel(box, "out", NULL, &error), &error);
	CHECK_OK(postern_box_add_channel(box, "in", NULL, &error), &error);
	CHECK_OK(postern_box_add_handler(box, "in", &counter, &error), &error);
	return box;
}

static void send_all(struct postern_box *box) {
	struct postern_error error;
	for (int i = 0; i < COUNT; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "m%d", i);
		const struct postern_message message = {
			.size = sizeof message,
			.id = id,
			.source = "/out",
			.type = "t",
			.body = "body",
			.body_len = 4,
		};
		CHECK_OK(postern_box_accept(box, "out", &message, NULL, &error),
				&error);
	}
}

static void there_and_back(void) {
	struct postern_error error;
	struct postern_runner *runner = NULL;
	const char *url = getenv("POSTERN_TEST_RABBITMQ");
	const struct postern_rabbitmq_publish settings = {
		.size = sizeof settings,
		.url = url,
		.routing_key = QUEUE,
	};
	if (!CHECK(url != NULL)) {
		return;
	}
	struct postern_box *box = open_box();
	CHECK_OK(add_publisher(box, &settings, &error), &error);
	CHECK_OK(postern_box_start(box, &error), &error);
	CHECK_OK(postern_runner_create(box, NULL, &runner, &error), &error);
	CHECK_OK(add_source(runner, url, &error), &error);
	CHECK_OK(postern_runner_start(runner, &error), &error);
	send_all(box);
	for (int ms = 0; handled < COUNT && ms < PATIENCE_MS; ms += 5) {
		const struct timespec time = { .tv_nsec = 5000000 };
		(void)nanosleep(&time, NULL);
	}
	CHECK_INT(handled, COUNT);
	postern_runner_destroy(runner);
	postern_box_destroy(box);
	CHECK_INT(handled, COUNT);
}

static void wrong_settings(void) {
	struct postern_error error;
	struct postern_runner *runner = NULL;
	struct postern_box *box = open_box();
	CHECK_INT(add_publisher(box, NULL, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "needs the URL");
	struct postern_rabbitmq_publish settings = { .size = sizeof settings };
	CHECK_INT(add_publisher(box, &settings, &error), POSTERN_E_INVALID);
	settings.url = "amqp://u:secret@:1";
	CHECK_INT(add_publisher(box, &settings, &error), POSTERN_E_INVALID);
	CHECK(!strstr(error.text, "secret"));
	settings.url = "amqp://host";
	settings.routing_key = "{none}";
	CHECK_INT(add_publisher(box, &settings, &error), POSTERN_E_INVALID);
	settings.routing_key = NULL;
	CHECK_OK(add_publisher(box, &settings, &error), &error);
	CHECK_OK(postern_box_start(box, &error), &error);
	CHECK_OK(postern_runner_create(box, NULL, &runner, &error), &error);
	CHECK_INT(add_source(runner, "http://host", &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "rabbitmq.url");
	postern_runner_destroy(runner);
	postern_box_destroy(box);
}

static const struct tap_case cases[] = {
	{ "what a program publishes it gets back, each message once",
			there_and_back },
	{ "wrong settings are refused before anything is connected",
			wrong_settings },
};

TAP_MAIN(cases)
