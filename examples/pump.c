/* SPDX-License-Identifier: MIT */
/*
 * No threads, no server: accept messages from standard input, one per line,
 * process all due deliveries, and exit. For cron, serverless functions and
 * tests.
 *
 * A line is "ID BODY". A delivery that fails stays in the store, with the time
 * of its next attempt, for a later run of this program.
 *
 *   cc -o pump pump.c $(pkg-config --cflags --libs postern)
 *   echo '7 hello' | ./pump
 */

#include <postern/postern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void greet(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)delivery;
	if (message->body_len == 0) {
		/* A retry would fail again: leave it to an operator. */
		postern_outcome_set(outcome, POSTERN_POISON, 0, "nothing to greet");
		return;
	}
	(void)printf("hello, %.*s\n", (int)message->body_len,
			(const char *)message->body);
}

static int open_box(struct postern_box **out, struct postern_error *error) {
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "greet",
		.callback = greet,
	};
	int r = postern_box_open("sqlite:pump.db", NULL, out, error);
	if (r == POSTERN_OK) {
		r = postern_box_add_channel(*out, "names", NULL, error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_add_handler(*out, "names", &handler, error);
	}
	return r == POSTERN_OK ? postern_box_start(*out, error) : r;
}

/* Each message is durable before the next line is read. */
static void accept_lines(struct postern_box *box) {
	char *line = NULL;
	size_t size = 0;
	while (getline(&line, &size, stdin) > 0) {
		line[strcspn(line, "\n")] = '\0';
		char *body = line + strcspn(line, " ");
		if (*body) {
			*body++ = '\0';
		}
		const struct postern_message message = {
			.size = sizeof message,
			.id = line,
			.body = body,
			.body_len = strlen(body),
		};
		struct postern_error error = { .text = "accepted" };
		(void)postern_box_accept(box, "names", &message, NULL, &error);
		(void)printf("%s: %s\n", line, error.text);
	}
	free(line);
}

/* List the deliveries that need a decision of an operator. */
static int list_poisoned(struct postern_box *box, struct postern_error *error) {
	const struct postern_filter filter = {
		.size = sizeof filter,
		.state = POSTERN_STATE_POISONED,
	};
	struct postern_listing *listing;
	int r = postern_box_list(box, &filter, &listing, error);
	if (r != POSTERN_OK) {
		return r;
	}
	for (size_t i = 0; i < postern_listing_count(listing); i++) {
		const struct postern_row *row = postern_listing_get(listing, i);
		(void)printf("poisoned %s: %s\n", row->message_id, row->last_error);
	}
	postern_listing_destroy(listing);
	return POSTERN_OK;
}

int main(void) {
	struct postern_error error;
	struct postern_box *box = NULL;
	size_t count = 0;
	int r = open_box(&box, &error);
	if (r == POSTERN_OK) {
		accept_lines(box);
		r = postern_box_process(box, 0, &count, &error);
	}
	if (r == POSTERN_OK) {
		(void)printf("processed %zu\n", count);
		r = list_poisoned(box, &error);
	}
	if (r != POSTERN_OK) {
		(void)fprintf(stderr, "pump: %s\n", error.text);
	}
	postern_box_destroy(box);
	return r == POSTERN_OK ? 0 : 1;
}
