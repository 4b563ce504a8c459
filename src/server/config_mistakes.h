/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_CONFIG_MISTAKES_H
#define POSTERN_SERVER_CONFIG_MISTAKES_H

/*
 * The mistakes of a configuration. Reading goes on after a mistake, so that all
 * of them are reported at once, in the order of the file.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/config.h"

struct postern__arena;
struct postern__mistake;

/* More are counted only: nobody corrects as many at once. */
#define POSTERN__MISTAKE_COUNT_MAX 100

/* The file of an error, and the place in it. Lines and columns count from 1,
   columns in characters. */
struct postern__yaml_place {
	const char *name;
	unsigned line;
	unsigned column;
};

/* Zero it, and set the arena. */
struct postern__mistakes {
	struct postern__arena *arena;
	struct postern__mistake *first; /* in the order of the file */
	size_t count;
	bool no_memory;
};

/* Add a mistake, with the place in front unless its name is NULL; one without a
   place comes after all others. The same text is added once. */
void postern__mistakes_add(struct postern__mistakes *self,
		const struct postern__yaml_place *place, const char *format, ...)
		__attribute__((format(printf, 3, 4)));

/* Add the text of an error, which may also be a lack of memory. `name` is put
   in front, unless it is NULL. */
void postern__mistakes_add_error(struct postern__mistakes *self,
		const struct postern__yaml_place *place, const char *name,
		const struct postern_error *error);

/*
 * Report all mistakes in order (report may be NULL), and set `error` to the
 * first. POSTERN_OK: there are none.
 */
int postern__mistakes_result(const struct postern__mistakes *self,
		postern__config_remark *report, void *context,
		struct postern_error *error);

/* Put "name:line:col: " in front of the text in `error` (may be NULL). A very
   long name is cut at its start, so that there is room for the sentence.
   Returns `code`. */
int postern__fail_at(struct postern_error *error, int code,
		const struct postern__yaml_place *place);

#endif
