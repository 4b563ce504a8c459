/* SPDX-License-Identifier: MIT */
/*
 * What sources share to acknowledge messages: queues of completions, and
 * prefixes.
 */

#include "tap.h"

#include <poll.h>
#include <postern/sys/source.h>

static bool is_readable(const struct postern_completions *completions) {
	struct pollfd fd = { .fd = postern_completions_fd(completions),
		.events = POLLIN };
	return poll(&fd, 1, 0) == 1;
}

static void completion_queue(void) {
	struct postern_completions *queue;
	struct postern_error error;
	struct postern_completed items[4];
	if (!CHECK_OK(postern_completions_create(3, &queue, &error), &error)) {
		return;
	}
	CHECK(!is_readable(queue));
	postern_completions_put(queue, &(struct postern_completion){ .tag = 7 });
	CHECK(is_readable(queue)); /* one is enough */
	CHECK_INT(postern_completions_take(queue, items, 4), 1);
	CHECK_INT(items[0].tag, 7);
	for (uint64_t round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < 3; i++) {
			const struct postern_completion completion = {
				.tag = 10 * round + i,
				.verdict = (enum postern_verdict)i,
			};
			postern_completions_put(queue, &completion);
		}
		CHECK(is_readable(queue));
		CHECK_INT(postern_completions_take(queue, items, 2), 2);
		CHECK_INT(items[0].tag, 10 * round);
		CHECK_INT(items[1].tag, 10 * round + 1);
		CHECK_INT(items[1].verdict, POSTERN_VERDICT_DUPLICATE);
		CHECK(is_readable(queue)); /* one is left */
		CHECK_INT(postern_completions_take(queue, items, 4), 1);
		CHECK_INT(items[0].tag, 10 * round + 2);
		CHECK(!is_readable(queue));
	}
	postern_completions_wake(queue);
	CHECK(is_readable(queue));
	CHECK_INT(postern_completions_take(queue, items, 4), 0);
	CHECK(!is_readable(queue));
	postern_completions_destroy(queue);
	postern_completions_destroy(NULL);
	CHECK_INT(postern_completions_create(0, &queue, &error), POSTERN_E_NOMEM);
	CHECK_INT(postern_completions_create(SIZE_MAX, &queue, &error),
			POSTERN_E_NOMEM);
}

static void prefixes(void) {
	struct postern_prefix *prefix;
	struct postern_error error;
	if (!CHECK_OK(postern_prefix_create(4, &prefix, &error), &error)) {
		return;
	}
	CHECK_INT(postern_prefix_first(prefix), 1);
	CHECK_INT(postern_prefix_done(prefix, 2), 1);
	CHECK_INT(postern_prefix_done(prefix, 4), 1);
	CHECK_INT(postern_prefix_done(prefix, 1), 3);
	CHECK_INT(postern_prefix_done(prefix, 1), 3);
	CHECK_INT(postern_prefix_done(prefix, 6), 3);
	CHECK_INT(postern_prefix_done(prefix, 3), 5);
	CHECK_INT(postern_prefix_done(prefix, 5), 7);
	CHECK_INT(postern_prefix_first(prefix), 7);
	CHECK_INT(postern_prefix_done(prefix, 8), 7);
	postern_prefix_reset(prefix, 100);
	CHECK_INT(postern_prefix_done(prefix, 101), 100);
	CHECK_INT(postern_prefix_done(prefix, 100), 102);
	postern_prefix_destroy(prefix);
	postern_prefix_destroy(NULL);
	CHECK_INT(postern_prefix_create(0, &prefix, &error), POSTERN_E_NOMEM);
}

static const struct tap_case cases[] = {
	{ "a queue of completions is readable until it is taken",
			completion_queue },
	{ "a prefix ends at the first position that is not done", prefixes },
};

TAP_MAIN(cases)
