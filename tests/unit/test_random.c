/* SPDX-License-Identifier: MIT */

/*
 * An unbiased choice from a generator, checked with generators whose numbers
 * are known.
 */

#include "base/random.h"

#include "dice.h"
#include "tap.h"

/* Returns the listed numbers in turn. */
struct script {
	const uint64_t *numbers;
	size_t count;
	size_t used;
};

static uint64_t script_next(void *context) {
	struct script *script = context;
	CHECK(script->used < script->count);
	return script->used < script->count ? script->numbers[script->used++] : 0;
}

static uint64_t dice_of_context(void *context) {
	return dice_next(context);
}

static void small_bounds(void) {
	struct script script = { NULL, 0, 0 };
	struct postern_random random = { &script, script_next };
	CHECK_INT(postern__random_below(&random, 0), 0);
	CHECK_INT(postern__random_below(&random, 1), 0);
	CHECK_INT(script.used, 0);
}

static void surplus_is_drawn_again(void) {
	/* 2^64 mod 3 is 1, so 0 is the one number that would bias the result. */
	static const uint64_t numbers[] = { 0, 0, 1, UINT64_MAX };
	struct script script = { numbers, 4, 0 };
	struct postern_random random = { &script, script_next };
	CHECK_INT(postern__random_below(&random, 3), 1);
	CHECK_INT(script.used, 3);
	CHECK_INT(postern__random_below(&random, 3), UINT64_MAX % 3);
	CHECK_INT(script.used, 4);
}

static void powers_of_two(void) {
	static const uint64_t numbers[] = { 0, 5, 1, 2 };
	struct script script = { numbers, 4, 0 };
	struct postern_random random = { &script, script_next };
	CHECK_INT(postern__random_below(&random, 4), 0);
	CHECK_INT(postern__random_below(&random, UINT64_C(1) << 63), 5);
	CHECK_INT(postern__random_below(&random, 2), 1);
	CHECK_INT(postern__random_below(&random, 2), 0);
}

static void largest_bound(void) {
	static const uint64_t numbers[] = { 0, UINT64_MAX, UINT64_MAX - 1 };
	struct script script = { numbers, 3, 0 };
	struct postern_random random = { &script, script_next };
	CHECK(postern__random_below(&random, UINT64_MAX) == 0);
	CHECK(postern__random_below(&random, UINT64_MAX) == UINT64_MAX - 1);
	CHECK_INT(script.used, 3);
}

static void even(void) {
	struct dice dice = { 1 };
	struct postern_random random = { &dice, dice_of_context };
	unsigned counts[7] = { 0 };
	for (unsigned i = 0; i < 70000; i++) {
		uint64_t value = postern__random_below(&random, 7);
		if (!CHECK(value < 7)) {
			return;
		}
		counts[value]++;
	}
	/* The standard deviation is 93; the bounds allow five of them. */
	for (unsigned i = 0; i < 7; i++) {
		CHECK(counts[i] > 9535 && counts[i] < 10465);
	}
}

static void system_numbers(void) {
	const struct postern_random *random = postern_random_system();
	uint64_t ones = 0;
	uint64_t zeros = 0;
	uint64_t first = random->next(random->context);
	CHECK(first != random->next(random->context));
	for (unsigned i = 0; i < 64; i++) {
		uint64_t value = random->next(random->context);
		ones |= value;
		zeros |= ~value;
	}
	CHECK(ones == UINT64_MAX);
	CHECK(zeros == UINT64_MAX);
}

static const struct tap_case cases[] = {
	{ "a bound of 0 or 1 returns 0 and draws no number", small_bounds },
	{ "a number that would bias the result is drawn again",
			surplus_is_drawn_again },
	{ "for a power of two no number is drawn again", powers_of_two },
	{ "the largest bound works", largest_bound },
	{ "results are spread evenly", even },
	{ "the kernel's numbers use all 64 bits", system_numbers },
};

TAP_MAIN(cases)
