/* SPDX-License-Identifier: MIT */
/*
 * A channel whose messages run inline: under a guard, and direct.
 *
 * The broker delivers each message until it is acknowledged, and sometimes once
 * more. In the mode `guard` the handler does each message once; in the mode
 * `direct` it does what it is given, and the box needs no store.
 */

#include <postern/postern.h>
#include <stdio.h>

struct account {
	int charges;
	bool closed;
};

static void charge(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct account *account = context;
	(void)delivery;
	if (account->closed) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "the bank is closed");
		return;
	}
	account->charges++;
	(void)printf("  charged for %s\n", message->id);
}

static struct postern_box *open_box(const char *url,
		enum postern_channel_mode mode, struct account *account) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = mode,
	};
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "charge-v1",
		.callback = charge,
		.context = account,
	};
	struct postern_box *box = NULL;
	struct postern_error error;
	if (postern_box_open(url, NULL, &box, &error) ||
			postern_box_add_channel(box, "payments", &channel, &error) ||
			postern_box_add_handler(box, "payments", &handler, &error) ||
			postern_box_start(box, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		postern_box_destroy(box);
		return NULL;
	}
	return box;
}

/* One delivery of the broker. */
static void deliver(struct postern_box *box, const char *id) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.type = "payment.made",
	};
	struct postern_error error;
	switch (postern_box_accept(box, "payments", &message, NULL, &error)) {
	case POSTERN_OK: (void)printf("%s: done, acknowledge\n", id); break;
	case POSTERN_E_DUPLICATE:
		(void)printf("%s: done before, acknowledge\n", id);
		break;
	case POSTERN_E_INVALID:
		(void)printf("%s: %s, dead-letter\n", id, error.text);
		break;
	default: (void)printf("%s: %s, requeue\n", id, error.text); break;
	}
}

static bool show(const char *title, const char *url,
		enum postern_channel_mode mode) {
	struct account account = { .closed = true };
	struct postern_box *box = open_box(url, mode, &account);
	if (!box) {
		return false;
	}
	(void)printf("%s\n", title);
	deliver(box, "p-1");
	account.closed = false;
	deliver(box, "p-1");
	deliver(box, "p-1"); /* the acknowledgement was lost */
	(void)printf("%d charges\n", account.charges);
	postern_box_destroy(box);
	return true;
}

int main(void) {
	return show("under a guard", "memory:", POSTERN_MODE_GUARD) &&
						   show("direct, without a store",
								   "none:", POSTERN_MODE_DIRECT)
				   ? 0
				   : 1;
}
