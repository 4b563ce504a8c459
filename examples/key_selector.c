/* SPDX-License-Identifier: MIT */
/*
 * What identifies a message: a function of yours that returns its key.
 *
 * The order's number identifies an order, order and payment together a payment:
 * the same payment that is sent again under a new message id is a duplicate.
 * Other messages are identified by a header, by handler and correlation id, or
 * by their own id. A message without a key is rejected.
 */

#include <postern/postern.h>
#include <stdio.h>
#include <string.h>

struct message {
	const char *type;
	const char *id;              /* NULL: none */
	const char *idempotency_key; /* the header, NULL: none */
	const char *correlation_id;  /* NULL: none */
	int order;
	int payment;
};

#define HANDLER "accounting-v1"
#define KEY_LEN_MAX 100

/* False: the message has no key. */
static bool select_key(const struct message *message,
		char key[KEY_LEN_MAX + 1]) {
	const char *text = message->idempotency_key;
	if (strcmp(message->type, "order.created") == 0) {
		(void)snprintf(key, KEY_LEN_MAX + 1, "order-%d", message->order);
		return true;
	}
	if (strcmp(message->type, "payment.received") == 0) {
		(void)snprintf(key, KEY_LEN_MAX + 1, "payment-%d-%d", message->order,
				message->payment);
		return true;
	}
	if (!text && message->correlation_id) {
		(void)snprintf(key, KEY_LEN_MAX + 1, "%s:%s", HANDLER,
				message->correlation_id);
		return true;
	}
	text = text ? text : message->id;
	/* A key that was cut could be that of another message. */
	return text && snprintf(key, KEY_LEN_MAX + 1, "%s", text) <= KEY_LEN_MAX;
}

static void account(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)context;
	(void)call;
	(void)outcome;
}

static void consume(struct postern_guard *guard,
		const struct message *message) {
	char key[KEY_LEN_MAX + 1];
	if (!select_key(message, key)) {
		(void)printf("%s: no key, rejected\n", message->type);
		return;
	}
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = HANDLER,
		.key = key,
	};
	int r = postern_guard_run(guard, &guarded, account, NULL, NULL, NULL);
	(void)printf("%s: %s: %s\n", message->type, key,
			r == POSTERN_OK            ? "accounted"
			: r == POSTERN_E_DUPLICATE ? "duplicate"
									   : postern_error_text(r));
}

int main(void) {
	static const struct message messages[] = {
		{ .type = "order.created", .id = "m-1", .order = 17 },
		{ .type = "order.created", .id = "m-2", .order = 17 },
		{ .type = "payment.received", .id = "m-3", .order = 17, .payment = 1 },
		{ .type = "payment.received", .id = "m-4", .order = 17, .payment = 2 },
		{ .type = "payment.received", .id = "m-5", .order = 17, .payment = 1 },
		{ .type = "refund", .idempotency_key = "r-9", .id = "m-6" },
		{ .type = "refund", .idempotency_key = "r-9", .id = "m-7" },
		{ .type = "saga.step", .correlation_id = "c-1", .id = "m-8" },
		{ .type = "saga.step", .correlation_id = "c-1", .id = "m-9" },
		{ .type = "note", .id = "m-10" },
		{ .type = "note", .id = "m-10" },
		{ .type = "note" },
	};
	struct postern_guard *guard = NULL;
	struct postern_error error;
	if (postern_guard_open("memory:", NULL, &guard, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
		consume(guard, &messages[i]);
	}
	postern_guard_destroy(guard);
	return 0;
}
