/* SPDX-License-Identifier: MIT */

/*
 * A handler of a guard whose keys are in memory: COUNT messages, and all of
 * them again.
 *
 *   guard_memory COUNT
 *
 * Prints {"messages_per_second": …, "again_per_second": …, "bytes_per_key": …},
 * the last by what the process allocated for the first round.
 */

#include <malloc.h>
#include <postern/postern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void fail(const char *what, const struct postern_error *error) {
	(void)fprintf(stderr, "guard_memory: %s: %s\n", what, error->text);
	exit(1);
}

static void do_nothing(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)message;
	(void)delivery;
	(void)outcome;
}

static struct postern_box *open_box(uint32_t count_max) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
	};
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "count",
		.callback = do_nothing,
		.dedupe = POSTERN_DEDUPE_MEMORY,
		.dedupe_count_max = count_max,
	};
	struct postern_box *box;
	struct postern_error error;
	if (postern_box_open("memory:", NULL, &box, &error) ||
			postern_box_add_channel(box, "views", &channel, &error) ||
			postern_box_add_handler(box, "views", &handler, &error) ||
			postern_box_start(box, &error)) {
		fail("open", &error);
	}
	return box;
}

static double seconds(void) {
	struct timespec time;
	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Messages per second; each must have this result. */
static double send_all(struct postern_box *box, long count, int expected) {
	double start = seconds();
	for (long i = 0; i < count; i++) {
		struct postern_error error = { 0 };
		char id[32];
		(void)snprintf(id, sizeof id, "view-%ld", i);
		const struct postern_message message = {
			.size = sizeof message,
			.id = id,
			.type = "view",
			.body = "x",
			.body_len = 1,
		};
		if (postern_box_accept(box, "views", &message, NULL, &error) !=
				expected) {
			fail(id, &error);
		}
	}
	return (double)count / (seconds() - start);
}

static double allocated(void) {
	struct mallinfo2 info = mallinfo2();
	return (double)(info.uordblks + info.hblkhd);
}

int main(int argc, char **argv) {
	long count = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
	if (count < 1 || count > POSTERN_DEDUPE_COUNT_MAX) {
		(void)fputs("usage: guard_memory COUNT\n", stderr);
		return 2;
	}
	struct postern_box *box = open_box((uint32_t)count);
	double before = allocated();
	double first = send_all(box, count, POSTERN_OK);
	double bytes = (allocated() - before) / (double)count;
	double again = send_all(box, count, POSTERN_E_DUPLICATE);
	(void)printf("{\"messages_per_second\": %.1f, \"again_per_second\": %.1f, "
				 "\"bytes_per_key\": %.1f}\n",
			first, again, bytes);
	postern_box_destroy(box);
	return 0;
}
