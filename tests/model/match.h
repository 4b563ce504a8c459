/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_MATCH_H
#define POSTERN_TESTS_MATCH_H

/*
 * A store compared with the model: each operation of a sequence of choices is
 * applied to both, and the results are compared step by step. Differences are
 * reported on stderr and marked as failed checks of tap.h.
 *
 * Link with model.c, the conformance suite's stand.c and a target of it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The source of the choices: a random generator, or the bytes of a fuzzer. */
struct match_choices {
	/* Returns a number below bound, which is at least 1. */
	size_t (*below)(void *context, size_t bound);
	/* Returns whether to stop; NULL: never. */
	bool (*has_ended)(void *context);
	void *context;
};

/*
 * Open a new store and run step_count steps on it, or fewer if the choices end.
 * Returns NULL if store and model agreed in all steps, otherwise the name of
 * the failed step, and its number in *step_out.
 */
const char *match_run(const struct match_choices *choices, size_t step_count,
		size_t *step_out);

struct model;
struct stand;

/* One step: pause or resume a handler, close or open a channel. ids: of the
   handlers, as nodes know them. */
void match_halt(struct stand *stand, struct model *model,
		const struct match_choices *choices, const int64_t *ids);

#endif
