/* SPDX-License-Identifier: MIT */
/*
 * A marker that all consumers of a message share, and markers of their own.
 *
 * Two consumers with the same handler key have one marker: whoever comes first
 * does it for both. That is right if they are copies of the same consumer, and
 * a mistake if both have something to do; then each gets a key of its own.
 */

#include <postern/postern.h>
#include <stdio.h>

static void consume(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)call;
	(void)outcome;
	(void)printf("  %s runs\n", (const char *)context);
}

static void deliver(struct postern_guard *guard, const char *handler,
		const char *key, const char *consumer) {
	char name[32];
	(void)snprintf(name, sizeof name, "%s", consumer);
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = handler,
		.key = key,
	};
	if (postern_guard_run(guard, &guarded, consume, name, NULL, NULL) ==
			POSTERN_E_DUPLICATE) {
		(void)printf("  %s is skipped\n", consumer);
	}
}

int main(void) {
	struct postern_guard *guard = NULL;
	struct postern_error error;
	if (postern_guard_open("memory:", NULL, &guard, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	(void)printf("one marker for both\n");
	deliver(guard, "order-placed", "m-1", "billing");
	deliver(guard, "order-placed", "m-1", "shipping");
	(void)printf("a marker for each\n");
	deliver(guard, "billing-v1", "m-1", "billing");
	deliver(guard, "shipping-v1", "m-1", "shipping");
	(void)printf("delivered again\n");
	deliver(guard, "billing-v1", "m-1", "billing");
	deliver(guard, "shipping-v1", "m-1", "shipping");
	postern_guard_destroy(guard);
	return 0;
}
