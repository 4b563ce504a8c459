/* SPDX-License-Identifier: MIT */
/*
 * A handler that knows nothing of the guard: the adapter around it decides
 * whether it is called.
 *
 * Without a guard the adapter calls the handler directly, and every copy that
 * the broker delivers reserves the goods once more. With one they are reserved
 * once.
 */

#include <postern/postern.h>
#include <stdio.h>

struct order_created {
	const char *event_id;
	int quantity;
};

struct inventory {
	int reserved;
};

/* The handler, as it was before. */
static void reserve(struct inventory *inventory,
		const struct order_created *event) {
	inventory->reserved += event->quantity;
}

struct delivery {
	struct inventory *inventory;
	const struct order_created *event;
};

static void run_reserve(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	struct delivery *delivery = context;
	(void)call;
	(void)outcome; /* done, unless it is set */
	reserve(delivery->inventory, delivery->event);
}

/* The adapter. guard: NULL for none. Returns whether to acknowledge. */
static bool consume(struct postern_guard *guard, struct inventory *inventory,
		const struct order_created *event) {
	struct delivery delivery = { inventory, event };
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "reserve-inventory-v1",
		.key = event->event_id,
	};
	if (!guard) {
		reserve(inventory, event);
		return true;
	}
	int r = postern_guard_run(guard, &guarded, run_reserve, &delivery, NULL,
			NULL);
	return r == POSTERN_OK || r == POSTERN_E_DUPLICATE;
}

static int deliver_three_times(struct postern_guard *guard) {
	const struct order_created event = { "e-1", 2 };
	struct inventory inventory = { 0 };
	for (int copy = 0; copy < 3; copy++) {
		if (!consume(guard, &inventory, &event)) {
			return -1;
		}
	}
	return inventory.reserved;
}

int main(void) {
	struct postern_guard *guard = NULL;
	struct postern_error error;
	(void)printf("without a guard: %d reserved\n", deliver_three_times(NULL));
	if (postern_guard_open("memory:", NULL, &guard, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	(void)printf("with a guard: %d reserved\n", deliver_three_times(guard));
	postern_guard_destroy(guard);
	return 0;
}
