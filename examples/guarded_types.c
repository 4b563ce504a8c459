/* SPDX-License-Identifier: MIT */
/*
 * Only some types of messages are guarded, each by a key of its own.
 *
 * An order that was placed is identified by the id of its message, one that was
 * shipped by its number, a temperature by nothing: its handler may run again.
 * What to do with a guarded message that has no key is a decision: reject it,
 * so that it does not get past the guard unnoticed, or run it without.
 */

#include <postern/postern.h>
#include <stdio.h>
#include <string.h>

struct message {
	const char *type;
	const char *id;       /* NULL: none */
	const char *order_id; /* NULL: none */
};

typedef const char *key_function(const struct message *message);

static const char *key_by_id(const struct message *message) {
	return message->id;
}

static const char *key_by_order(const struct message *message) {
	return message->order_id;
}

/* The types that are guarded. */
static const struct {
	const char *type;
	key_function *key;
} guarded_types[] = {
	{ "order.placed", key_by_id },
	{ "order.shipped", key_by_order },
};

static void handle(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	const struct message *message = context;
	(void)call;
	(void)outcome;
	(void)printf("%s: handled\n", message->type);
}

static void run_guarded(struct postern_guard *guard, struct message *message,
		const char *key) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "orders-v1",
		.key = key,
	};
	int r = postern_guard_run(guard, &guarded, handle, message, NULL, NULL);
	if (r != POSTERN_OK) {
		(void)printf("%s: %s\n", message->type, postern_error_text(r));
	}
}

static void consume(struct postern_guard *guard, struct message message,
		bool reject_without_key) {
	struct postern_outcome outcome;
	for (size_t i = 0; i < sizeof guarded_types / sizeof guarded_types[0];
			i++) {
		if (strcmp(guarded_types[i].type, message.type) != 0) {
			continue;
		}
		const char *key = guarded_types[i].key(&message);
		if (key) {
			run_guarded(guard, &message, key);
			return;
		}
		if (reject_without_key) {
			(void)printf("%s: no key, rejected\n", message.type);
			return;
		}
	}
	handle(&message, NULL, &outcome);
}

int main(void) {
	static const struct message messages[] = {
		{ "order.placed", "m-1", "17" },
		{ "order.placed", "m-1", "17" },
		{ "order.shipped", "m-2", "17" },
		{ "order.shipped", "m-3", "17" },
		{ "temperature", "m-4", NULL },
		{ "temperature", "m-4", NULL },
		{ "order.shipped", "m-5", NULL },
	};
	struct postern_guard *guard = NULL;
	struct postern_error error;
	if (postern_guard_open("memory:", NULL, &guard, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
		consume(guard, messages[i], true);
	}
	(void)printf("without rejecting:\n");
	consume(guard, messages[6], false);
	postern_guard_destroy(guard);
	return 0;
}
