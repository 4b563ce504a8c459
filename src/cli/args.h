/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_ARGS_H
#define POSTERN_CLI_ARGS_H

/*
 * The words after a command's name, parsed into flags and operands.
 *
 * `--name value`, `--name=value`, `-n value` and `-nvalue` are the same; flags
 * and operands may be mixed; `--` ends the flags; `-` alone is an operand.
 * There are no abbreviations, so that a command line keeps its meaning when a
 * flag is added.
 */

#include <stdbool.h>
#include <stddef.h>

struct postern_error;
struct postern__flag;

/* More words than this are refused. */
#define POSTERN__ARGS_MAX 1024

struct postern__arg {
	const struct postern__flag *flag; /* NULL: an operand */
	const char *value;                /* NULL for a switch */
};

struct postern__args {
	struct postern__arg *items; /* in the order they were given */
	size_t count;
	size_t operands_before; /* before `--`, or all of them without it */
};

/*
 * Sort `count` words. tables are tables of flags, each ended by a NULL name,
 * looked through in turn. The result borrows words and tables.
 *
 * POSTERN_E_INVALID: a flag that is in no table (with "did you mean"), without
 * its value, with a value it does not take, or given twice and not one that
 * repeats. POSTERN_E_NOMEM.
 *
 * out  yours; end it with postern__args_finish().
 */
int postern__args_parse(const char *const *words, size_t count,
		const struct postern__flag *const *tables, size_t table_count,
		struct postern__args *out, struct postern_error *error);

void postern__args_finish(struct postern__args *args);

/* Whether the flag was given. */
bool postern__args_has(const struct postern__args *args, const char *name);

/* The value of a flag, or NULL if it was not given. */
const char *postern__args_value(const struct postern__args *args,
		const char *name);

/* The values of a flag that repeats, one by one: *index is 0 at first. NULL
   after the last. */
const char *postern__args_next(const struct postern__args *args,
		const char *name, size_t *index);

size_t postern__args_operand_count(const struct postern__args *args);

/* NULL if there are not so many. */
const char *postern__args_operand(const struct postern__args *args,
		size_t index);

#endif
