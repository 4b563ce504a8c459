/* SPDX-License-Identifier: MIT */
/* Structs of older and newer versions of the headers. */

#include "tap.h"

#include "base/sized.h"

#include <postern/postern.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct thing {
	size_t size;
	int first;
	int second;
};

struct longer_thing {
	struct thing known;
	int third;
};

static void shorter_is_completed(void) {
	struct thing old = { .size = offsetof(struct thing, second),
		.first = 1,
		.second = 77 };
	struct thing out = { .second = 5 };
	struct postern_error error;
	CHECK_OK(postern__sized_copy(&out, sizeof(out), &old, "thing", &error),
			&error);
	CHECK_INT(out.first, 1);
	CHECK_INT(out.second, 5);
	CHECK_INT(out.size, sizeof(out));
}

static void longer_is_taken_if_unused(void) {
	struct longer_thing newer = {
		.known = { .size = sizeof(newer), .first = 1, .second = 2 },
	};
	struct thing out = { 0 };
	struct postern_error error;
	CHECK_OK(postern__sized_copy(&out, sizeof(out), &newer, "thing", &error),
			&error);
	CHECK_INT(out.second, 2);
	CHECK_INT(out.size, sizeof(out));
	newer.third = 1;
	CHECK_INT(postern__sized_copy(&out, sizeof(out), &newer, "thing", &error),
			POSTERN_E_UNSUPPORTED);
	CHECK_CONTAINS(error.text, "newer version");
}

static void unset_is_refused(void) {
	static const size_t sizes[] = { 0, sizeof(size_t), 4097, SIZE_MAX };
	struct thing out = { 0 };
	struct postern_error error;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct thing given = { .size = sizes[i] };
		CHECK_INT(postern__sized_copy(&out, sizeof(out), &given, "thing",
						  &error),
				POSTERN_E_INVALID);
		CHECK_STR(error.text, "the size member of the thing is not set");
	}
}

/* Structs of the public calls, one member longer than this version's. */
struct longer_message {
	struct postern_message known;
	const char *unknown;
};

struct longer_policy {
	struct postern_policy known;
	int64_t unknown;
};

static int runs;

static void count_run(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)message;
	(void)delivery;
	(void)outcome;
	(void)context;
	runs++;
}

static struct postern_box *open_box(void) {
	struct postern_box *box = NULL;
	struct postern_error error;
	struct longer_policy policy;
	postern_policy_init_sized(&policy.known, sizeof(policy));
	CHECK_INT(policy.unknown, 0);
	struct postern_channel_options channel = {
		.size = offsetof(struct postern_channel_options, policy),
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = count_run,
		.policy = &policy.known,
	};
	struct postern_box_options options = {
		.size = offsetof(struct postern_box_options, max_message_size),
	};
	CHECK_OK(postern_box_open("memory:", &options, &box, &error), &error);
	CHECK_OK(postern_box_add_channel(box, "c", &channel, &error), &error);
	CHECK_OK(postern_box_add_handler(box, "c", &handler, &error), &error);
	policy.unknown = 1;
	handler.key = "i";
	CHECK_INT(postern_box_add_handler(box, "c", &handler, &error),
			POSTERN_E_UNSUPPORTED);
	CHECK_OK(postern_box_start(box, &error), &error);
	return box;
}

static void calls_take_other_versions(void) {
	struct postern_box *box = open_box();
	struct postern_error error;
	struct longer_message messages[3] = { 0 };
	static const char *const ids[] = { "1", "2", "3" };
	struct postern_receipt receipts[3];
	for (size_t i = 0; i < 3; i++) {
		messages[i].known.size = sizeof(messages[i]);
		messages[i].known.id = ids[i];
	}
	messages[1].unknown = "used";
	CHECK_OK(postern_box_accept_batch(box, "c", &messages[0].known, 3, receipts,
					 &error),
			&error);
	CHECK_INT(receipts[0].error.code, POSTERN_OK);
	CHECK_INT(receipts[1].error.code, POSTERN_E_UNSUPPORTED);
	CHECK_INT(receipts[2].error.code, POSTERN_OK);
	struct postern_message older = {
		.size = offsetof(struct postern_message, source),
		.id = "4",
		.source = "not read",
	};
	CHECK_OK(postern_box_accept(box, "c", &older, NULL, &error), &error);
	CHECK_OK(postern_box_process(box, 0, NULL, &error), &error);
	CHECK_INT(runs, 3);
	postern_box_destroy(box);
}

/* More than are copied at a time. */
#define BATCH 1003
#define PIECE 1000

/* An element without a size is refused, and those after it are not. */
static void batch_has_one_stride(void) {
	static struct postern_message messages[BATCH];
	static struct postern_receipt receipts[BATCH];
	static char ids[BATCH][8];
	struct postern_box *box = open_box();
	struct postern_error error;
	for (size_t i = 0; i < BATCH; i++) {
		(void)snprintf(ids[i], sizeof(ids[i]), "%zu", i);
		messages[i].size = sizeof(messages[i]);
		messages[i].id = ids[i];
	}
	messages[PIECE].size = 0;
	CHECK_OK(postern_box_accept_batch(box, "c", messages, BATCH, receipts,
					 &error),
			&error);
	for (size_t i = 0; i < BATCH; i++) {
		CHECK_INT(receipts[i].error.code,
				i == PIECE ? POSTERN_E_INVALID : POSTERN_OK);
	}
	/* Without the size of the first, no other element is read. */
	messages[0].size = SIZE_MAX / 2;
	CHECK_OK(postern_box_accept_batch(box, "c", messages, 2, receipts, &error),
			&error);
	CHECK_INT(receipts[0].error.code, POSTERN_E_INVALID);
	CHECK_INT(receipts[1].error.code, POSTERN_E_INVALID);
	postern_box_destroy(box);
}

static void policy_of_an_older_program_is_not_overrun(void) {
	struct {
		struct postern_policy policy;
		char after[8];
	} old;
	memset(&old, 'x', sizeof(old));
	size_t size = offsetof(struct postern_policy, on_poisoned_duplicate);
	postern_policy_init_sized(&old.policy, size);
	CHECK_INT(old.policy.size, size);
	CHECK_INT(old.policy.max_crashes, 3);
	CHECK(((const char *)&old.policy)[size] == 'x');
}

struct filled {
	struct thing thing;
	char after[8];
};

static struct filled filled_of(size_t size) {
	struct filled out;
	memset(&out, 'x', sizeof(out));
	out.thing.size = size;
	return out;
}

static void results_keep_to_the_callers_size(void) {
	const struct thing full = { .size = 1, .first = 1, .second = 2 };
	struct postern_error error;
	struct filled out = filled_of(offsetof(struct thing, second));
	CHECK_OK(postern__sized_write(&out, &full, sizeof(full), "thing", &error),
			&error);
	CHECK_INT(out.thing.size, offsetof(struct thing, second));
	CHECK_INT(out.thing.first, 1);
	CHECK(((const char *)&out.thing.second)[0] == 'x');
	out = filled_of(sizeof(out));
	CHECK_OK(postern__sized_write(&out, &full, sizeof(full), "thing", &error),
			&error);
	CHECK_INT(out.thing.second, 2);
	CHECK_MEM(out.after, sizeof(out.after), "\0\0\0\0\0\0\0", 8);
	out = filled_of(0);
	CHECK_INT(postern__sized_write(&out, &full, sizeof(full), "thing", &error),
			POSTERN_E_INVALID);
	CHECK_STR(error.text, "the size member of the thing is not set");
	CHECK(out.after[0] == 'x');
}

/* What an older header knows of a source's state: its name. */
static void states_of_sources_keep_to_the_callers_size(void) {
	struct postern_box *box = open_box();
	struct postern_runner *runner = NULL;
	struct postern_error error;
	const struct postern_source_setting settings[] = { { "file", "none" } };
	struct postern_source_options source = {
		.size = offsetof(struct postern_source_options, in_flight_max),
		.name = "a",
		.in_flight_max = UINT32_MAX, /* not read */
	};
	struct {
		char name[POSTERN_SOURCE_NAME_LEN_MAX + 1];
	} states[2];
	CHECK_OK(postern_runner_create(box, NULL, &runner, &error), &error);
	CHECK_OK(postern_runner_add_source(runner, &source, "lines", settings, 1,
					 &error),
			&error);
	source.name = "b";
	CHECK_OK(postern_runner_add_source(runner, &source, "lines", settings, 1,
					 &error),
			&error);
	CHECK_INT(postern_runner_sources(runner, (void *)states, sizeof(states[0]),
					  2),
			2);
	CHECK_STR(states[0].name, "a");
	CHECK_STR(states[1].name, "b");
	source.name = "c";
	source.size = 0;
	CHECK_INT(postern_runner_add_source(runner, &source, "lines", settings, 1,
					  &error),
			POSTERN_E_INVALID);
	CHECK_STR(error.text, "the size member of the source options is not set");
	postern_runner_destroy(runner);
	postern_box_destroy(box);
}

static const struct tap_case cases[] = {
	{ "a shorter struct is taken with defaults for what it lacks",
			shorter_is_completed },
	{ "a longer struct is taken if what is unknown is zero",
			longer_is_taken_if_unused },
	{ "a struct whose size is not set is refused", unset_is_refused },
	{ "the public calls take structs of other versions",
			calls_take_other_versions },
	{ "the elements of a batch have the size of the first",
			batch_has_one_stride },
	{ "a policy is initialised within the size its program knows",
			policy_of_an_older_program_is_not_overrun },
	{ "a result is written within the size its program knows",
			results_keep_to_the_callers_size },
	{ "states of sources are written within the size their program knows",
			states_of_sources_keep_to_the_callers_size },
};

TAP_MAIN(cases)
