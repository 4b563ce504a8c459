/* SPDX-License-Identifier: MIT */

/*
 * Operations on a store: accepts, settlements, claims, edits, crashes, clocks
 * that are set back. Every choice of tests/model/match.c comes from the input,
 * so that each byte decides one thing, and the store is compared with the model
 * after every step.
 */

#include "fuzz.h"
#include "model/match.h"
#include "tap.h"

/* A limit, because the last comparison reads everything. */
#define STEP_COUNT_MAX 300

static size_t choose_from_input(void *context, size_t bound) {
	struct fuzz_input *input = context;
	size_t number = fuzz_byte(input);
	if (bound > UINT8_MAX + 1) {
		number = number << 8 | fuzz_byte(input);
	}
	return number % bound;
}

static bool input_has_ended(void *context) {
	const struct fuzz_input *input = context;
	return input->len == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct fuzz_input input = { data, size };
	const struct match_choices choices = { .below = choose_from_input,
		.has_ended = input_has_ended,
		.context = &input };
	size_t step;
	const char *failed = match_run(&choices, STEP_COUNT_MAX, &step);
	if (failed) {
		(void)fprintf(stderr, "step %zu, %s\n", step, failed);
		abort();
	}
	return 0;
}
