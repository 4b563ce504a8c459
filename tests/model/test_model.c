/* SPDX-License-Identifier: MIT */

/*
 * Random operations on a store and on the model.
 *
 * A case is a seed: the seeds of the first case are the same in every run, the
 * second case draws a new one each time. To repeat a failure, or to run more
 * steps:
 *
 *   POSTERN_SEED=123 POSTERN_STEPS=400 model_sqlite
 */

#include <postern/sys/random.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/match.h"
#include "tap.h"
#include "unit/dice.h"

#define STEP_COUNT_DEFAULT 1000

static size_t roll_dice(void *context, size_t bound) {
	return dice_below(context, bound);
}

static void run_seed(uint64_t seed, size_t step_count) {
	struct dice dice = { .state = seed };
	const struct match_choices choices = { .below = roll_dice,
		.context = &dice };
	size_t step;
	const char *failed = match_run(&choices, step_count, &step);
	if (failed) {
		(void)fprintf(stderr, "POSTERN_SEED=%" PRIu64 ": step %zu, %s\n", seed,
				step, failed);
	}
}

static size_t env_number(const char *name, size_t fallback) {
	const char *text = getenv(name);
	return text && text[0] ? strtoul(text, NULL, 10) : fallback;
}

static size_t step_count(void) {
	return env_number("POSTERN_STEPS", STEP_COUNT_DEFAULT);
}

static bool has_failed(void) {
	return atomic_load(&tap_failures) > 0;
}

static void known_seeds(void) {
	for (uint64_t seed = 1; seed <= 4 && !has_failed(); seed++) {
		run_seed(seed, step_count());
	}
}

static void new_seed(void) {
	const struct postern_random *random = postern_random_system();
	/* Short, because a person may have to type it. */
	uint64_t seed =
			env_number("POSTERN_SEED", random->next(random->context) % 1000000);
	(void)printf("# POSTERN_SEED=%" PRIu64 "\n", seed);
	run_seed(seed, step_count());
}

static const struct tap_case cases[] = {
	{ "a store agrees with the model after random operations", known_seeds },
	{ "a store agrees with the model after operations of a new seed",
			new_seed },
};

TAP_MAIN(cases)
