/* SPDX-License-Identifier: MIT */

/*
 * The size of the batches of a cleanup: limited by count and bytes, and smaller
 * after a batch that took long; and whose markers expire. What is removed when
 * is tested in tests/conformance/.
 */

#include "core/box.h"
#include "core/maintenance.h"
#include "unit/cluster.h"

#define BATCH 1000
#define BYTES_MAX (16 * 1024 * 1024)

/* How the store behaves for each batch. */
struct disk {
	struct cluster *cluster;
	int64_t takes_ms;
	int code;
};

static int slow(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct disk *disk = context;
	(void)batch;
	if (op != FAULT_CLEAN) {
		return POSTERN_OK;
	}
	fake_clock_advance(&disk->cluster->clock, disk->takes_ms);
	return disk->code;
}

/* Runs a cleanup of one batch; the state has the limits of the batch. */
static struct postern__cleanup step(struct disk *disk, int64_t takes_ms,
		int code) {
	struct postern_box *box = disk->cluster->nodes[0].box;
	struct postern__cleanup state = { 0 };
	bool more;
	disk->takes_ms = takes_ms;
	disk->code = code;
	CHECK_INT(postern__cleanup_step(box, &state, &more, NULL), code);
	postern__cleanup_end(box, &state);
	return state;
}

static bool begin(struct cluster *cluster, struct disk *disk) {
	*disk = (struct disk){ .cluster = cluster };
	if (!open_cluster(cluster, POSTERN_PROCESSING_PARALLEL)) {
		return false;
	}
	cluster->nodes[0].plan.context = disk;
	cluster->nodes[0].plan.decide = slow;
	cluster->nodes[0].box->options.cleanup_batch = BATCH;
	return true;
}

static void bounded(void) {
	struct cluster cluster;
	struct disk disk;
	if (begin(&cluster, &disk)) {
		struct postern__cleanup state = step(&disk, 100, POSTERN_OK);
		CHECK_INT(state.cleaning.max, BATCH);
		CHECK_INT(state.cleaning.bytes_max, BYTES_MAX);
		state = step(&disk, 0, POSTERN_OK);
		CHECK_INT(state.cleaning.max, BATCH);
		CHECK_INT(state.cleaning.bytes_max, BYTES_MAX);
	}
	close_cluster(&cluster);
}

static void smaller(void) {
	struct cluster cluster;
	struct disk disk;
	if (begin(&cluster, &disk)) {
		(void)step(&disk, 1000, POSTERN_OK);
		struct postern__cleanup state = step(&disk, 200, POSTERN_OK);
		CHECK_INT(state.cleaning.max, BATCH / 4);
		CHECK_INT(state.cleaning.bytes_max, BYTES_MAX / 4);
		/* Neither long nor short: the size stays the same. */
		CHECK_INT(step(&disk, 20, POSTERN_OK).cleaning.max, BATCH / 4);
		CHECK_INT(step(&disk, 20, POSTERN_OK).cleaning.max, BATCH / 2);
		CHECK_INT(step(&disk, 20, POSTERN_OK).cleaning.max, BATCH);
		CHECK_INT(step(&disk, 20, POSTERN_OK).cleaning.max, BATCH);
	}
	close_cluster(&cluster);
}

static void failing(void) {
	struct cluster cluster;
	struct disk disk;
	if (begin(&cluster, &disk)) {
		(void)step(&disk, 30000, POSTERN_E_TIMEOUT);
		CHECK_INT(step(&disk, 30000, POSTERN_E_TIMEOUT).cleaning.max,
				BATCH / 128);
		struct postern__cleanup state = step(&disk, 0, POSTERN_OK);
		CHECK_INT(state.cleaning.max, 1);
		CHECK(state.cleaning.bytes_max > 0);
		/* A batch that failed at once does not change the next. */
		state = step(&disk, 0, POSTERN_E_UNAVAILABLE);
		size_t bytes = state.cleaning.bytes_max;
		CHECK_INT(step(&disk, 0, POSTERN_OK).cleaning.bytes_max, bytes);
	}
	close_cluster(&cluster);
}

static void do_nothing(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)message;
	(void)delivery;
	(void)outcome;
}

/* A box whose handler "bill", once "charge", remembers for a second. */
static struct postern_box *open_guarded(struct fake_clock *clock,
		struct postern_error *error) {
	static const char *const former[] = { "charge" };
	const struct postern_box_options options = {
		.size = sizeof options,
		.clock = &clock->base,
	};
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
	};
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "bill",
		.legacy_keys = former,
		.legacy_key_count = 1,
		.callback = do_nothing,
		.retention_dedupe_ms = 1000,
	};
	struct postern_box *box = NULL;
	CHECK_OK(postern_box_open("memory:", &options, &box, error), error);
	CHECK_OK(postern_box_add_channel(box, "pay", &channel, error), error);
	CHECK_OK(postern_box_add_handler(box, "pay", &handler, error), error);
	CHECK_OK(postern_box_start(box, error), error);
	return box;
}

static void markers_of_each_name(void) {
	static const struct {
		const char *handler;
		bool kept;
	} marks[] = { { "bill", false }, { "charge", false }, { "other", true } };
	struct fake_clock clock;
	struct postern_error error;
	struct postern_guard *guard = NULL;
	struct postern_cleanup cleanup = { .size = sizeof cleanup };
	fake_clock_init(&clock);
	struct postern_box *box = open_guarded(&clock, &error);
	CHECK_OK(postern_guard_create(box, NULL, &guard, &error), &error);
	for (size_t i = 0; i < 3; i++) {
		CHECK_OK(postern_mark_record(guard, marks[i].handler, "a", &error),
				&error);
	}
	fake_clock_advance(&clock, 1000);
	CHECK_OK(postern_box_cleanup(box, &cleanup, &error), &error);
	CHECK_INT(cleanup.keys, 2);
	for (size_t i = 0; i < 3; i++) {
		bool done = false;
		CHECK_OK(postern_mark_has(guard, marks[i].handler, "a", &done, &error),
				&error);
		CHECK_INT(done, marks[i].kept);
	}
	postern_guard_destroy(guard);
	postern_box_destroy(box);
}

static const struct tap_case cases[] = {
	{ "markers of a handler expire under each name that it had",
			markers_of_each_name },
	{ "a batch is bounded by count and by bytes", bounded },
	{ "a batch that took long makes the next ones smaller", smaller },
	{ "a batch that failed by its time makes the next ones smaller", failing },
};

TAP_MAIN(cases)
