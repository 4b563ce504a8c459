/* SPDX-License-Identifier: MIT */

/*
 * Random operations on a store and on the model.
 *
 * A case is a seed: those of the table are the same in every run, and one is
 * new each time. To replay a failure, or for more of them:
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

static size_t throw_dice(void *context, size_t bound) {
	return dice_below(context, bound);
}

static void run_seed(uint64_t seed, size_t step_count) {
	struct dice dice = { .state = seed };
	const struct match_choices choices = { .below = throw_dice,
		.context = &dice };
	size_t step;
	const char *failed = match_run(&choices, step_count, &step);
	if (failed) {
		(void)fprintf(stderr, "POSTERN_SEED=%" PRIu64 ": step %zu, %s\n", seed,
				step, failed);
	}
}

static size_t number_of(const char *name, size_t fallback) {
	const char *text = getenv(name);
	return text && text[0] ? strtoul(text, NULL, 10) : fallback;
}

static size_t step_count(void) {
	return number_of("POSTERN_STEPS", STEP_COUNT_DEFAULT);
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
	/* Short, for those who have to type it. */
	uint64_t seed =
			number_of("POSTERN_SEED", random->next(random->context) % 1000000);
	(void)printf("# POSTERN_SEED=%" PRIu64 "\n", seed);
	run_seed(seed, step_count());
}

static const struct tap_case cases[] = {
	{ "a store agrees with the model, whatever is done to it", known_seeds },
	{ "a store agrees with the model, with a seed never tried before",
			new_seed },
};

TAP_MAIN(cases)
