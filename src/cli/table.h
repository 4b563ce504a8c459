/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_TABLE_H
#define POSTERN_CLI_TABLE_H

/*
 * A table for people: columns as wide as their widest cell, two blanks
 * between them, numbers to the right. On a terminal a table fits the line: ids
 * are shortened in the middle, then optional columns are left out until the
 * last one, that of the error, is wide enough, and it has the room that is
 * left. Elsewhere nothing is shortened or left out.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "cli/out.h"

#define POSTERN__TABLE_COLUMNS_MAX 16
/* Styles of a column, besides true: shortened in the middle; left out, those
   with the lowest number first. */
#define POSTERN__TABLE_SHORTENED 2u
#define POSTERN__TABLE_OPTIONAL(order) ((unsigned)(order) << 4)

struct postern__column {
	const char *title;
	/* false: to the left; true: to the right; or POSTERN__TABLE_... */
	unsigned style;
};

struct postern__cell {
	const char *text;
	size_t len;
	size_t width;
	enum postern__colour colour;
};

struct postern__table {
	struct postern__arena arena;
	const struct postern__column *columns; /* borrowed */
	size_t column_count;
	struct postern__cell *cells; /* row by row */
	size_t cell_count;
	size_t cell_cap;
	bool failed; /* no memory: the table is not printed */
};

void postern__table_init(struct postern__table *table,
		const struct postern__column *columns, size_t count);
void postern__table_finish(struct postern__table *table);

/* The next cell, left to right, row by row. The text is copied and made safe
   to show; NULL and "" show as "-". */
void postern__table_text(struct postern__table *table, const char *text);
void postern__table_coloured(struct postern__table *table, const char *text,
		enum postern__colour colour);
void postern__table_count(struct postern__table *table, uint64_t count);

/* Print all rows under their titles on stdout. Without rows, nothing. Returns
   false if memory ran out. */
bool postern__table_print(const struct postern__table *table);

#endif
