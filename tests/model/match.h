/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_MATCH_H
#define POSTERN_TESTS_MATCH_H

/*
 * A store against the model: operations that somebody chooses, done on both
 * sides and compared step by step. What does not agree is told on stderr and
 * marked as the checks of tap.h do it.
 *
 * Link with model.c, the conformance suite's stand.c and a target of it.
 */

#include <stdbool.h>
#include <stddef.h>

/* Where the choices come from: dice, or the bytes of a fuzzer. */
struct match_choices {
	/* A number below bound, which is at least 1. */
	size_t (*below)(void *context, size_t bound);
	/* Whether it is time to stop; NULL: never. */
	bool (*has_ended)(void *context);
	void *context;
};

/*
 * Make a new store and do step_count steps on it, or fewer if the choices
 * end. Returns NULL if all agreed, else the name of the step that did not,
 * and its number in *step_out.
 */
const char *match_run(const struct match_choices *choices, size_t step_count,
		size_t *step_out);

#endif
