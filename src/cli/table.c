/* SPDX-License-Identifier: MIT */
/*
 * All cells are kept until the end, because only then the width of a column is
 * known. A listing has a limit, and so has a table.
 */

#include "cli/table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"

/* The longest text of a cell; errors and ids are shorter. */
#define CELL_LEN_MAX 65536
/* The least width of the last column, and of one that is shortened in the
   middle; ids are shortened until an error has a readable width. */
#define CUT_WIDTH_MIN 12
#define MIDDLE_WIDTH_MIN 12
#define LAST_WIDTH_WANTED 40
/* Optional columns are left out until the last one has this width. */
#define LAST_WIDTH_NEEDED 20
/* The width of a column that is left out. */
#define LEFT_OUT SIZE_MAX

void postern__table_init(struct postern__table *table,
		const struct postern__column *columns, size_t count) {
	assert(count > 0 && count <= POSTERN__TABLE_COLUMNS_MAX);
	*table = (struct postern__table){
		.columns = columns,
		.column_count = count,
	};
	postern__arena_init(&table->arena);
}

void postern__table_finish(struct postern__table *table) {
	postern__arena_finish(&table->arena);
	free(table->cells);
	table->cells = NULL;
}

static struct postern__cell *add_cell(struct postern__table *table) {
	if (table->cell_count == table->cell_cap) {
		size_t cap = table->cell_cap ? table->cell_cap * 2 : 128;
		struct postern__cell *cells =
				reallocarray(table->cells, cap, sizeof *cells);
		if (!cells) {
			table->failed = true;
			return NULL;
		}
		table->cells = cells;
		table->cell_cap = cap;
	}
	return &table->cells[table->cell_count++];
}

void postern__table_coloured(struct postern__table *table, const char *text,
		enum postern__colour colour) {
	struct postern__buf buf;
	if (table->failed) {
		return;
	}
	postern__buf_init(&buf, CELL_LEN_MAX);
	if (!text || !*text) {
		postern__buf_append_char(&buf, '-');
	} else {
		postern__out_escape(&buf, text, strlen(text));
	}
	char *copy = postern__arena_copy(&table->arena, postern__buf_text(&buf),
			buf.len);
	struct postern__cell *cell = copy ? add_cell(table) : NULL;
	if (cell) {
		*cell = (struct postern__cell){
			.text = copy,
			.len = buf.len,
			.width = postern__out_width(copy, buf.len),
			.colour = colour,
		};
	} else {
		table->failed = true;
	}
	postern__buf_finish(&buf);
}

void postern__table_text(struct postern__table *table, const char *text) {
	postern__table_coloured(table, text, POSTERN__PLAIN);
}

void postern__table_count(struct postern__table *table, uint64_t count) {
	char text[24];
	(void)snprintf(text, sizeof text, "%" PRIu64, count);
	postern__table_text(table, text);
}

static bool is_shortened(const struct postern__table *table, size_t column) {
	return table->columns[column].style & POSTERN__TABLE_SHORTENED;
}

/* Shorten columns in the middle, the widest first, by `excess` in total. */
static void shorten_middles(const struct postern__table *table, size_t excess,
		size_t *widths) {
	while (excess > 0) {
		size_t widest = table->column_count;
		for (size_t i = 0; i + 1 < table->column_count; i++) {
			if (is_shortened(table, i) && widths[i] != LEFT_OUT &&
					widths[i] > MIDDLE_WIDTH_MIN &&
					(widest == table->column_count ||
							widths[i] > widths[widest])) {
				widest = i;
			}
		}
		if (widest == table->column_count) {
			return;
		}
		widths[widest]--;
		excess--;
	}
}

static size_t width_before_last(const struct postern__table *table,
		const size_t *widths) {
	size_t before = 0;
	for (size_t i = 0; i + 1 < table->column_count; i++) {
		before += widths[i] == LEFT_OUT ? 0 : widths[i] + 2;
	}
	return before;
}

/* The width of each column that no cell exceeds. */
static void measure_cells(const struct postern__table *table, size_t *widths) {
	for (size_t i = 0; i < table->column_count; i++) {
		widths[i] = strlen(table->columns[i].title);
	}
	for (size_t i = 0; i < table->cell_count; i++) {
		size_t column = i % table->column_count;
		if (table->cells[i].width > widths[column]) {
			widths[column] = table->cells[i].width;
		}
	}
}

/* The optional column to leave out next; column_count: none. */
static size_t next_optional(const struct postern__table *table,
		const size_t *widths) {
	size_t next = table->column_count;
	for (size_t i = 0; i + 1 < table->column_count; i++) {
		unsigned order = table->columns[i].style >> 4;
		if (order > 0 && widths[i] != LEFT_OUT &&
				(next == table->column_count ||
						order < table->columns[next].style >> 4)) {
			next = i;
		}
	}
	return next;
}

static size_t at_most(size_t width, size_t most) {
	return width < most ? width : most;
}

/* Leave out columns until the last one is wide enough although all that may be
   shortened are. */
static void leave_out(const struct postern__table *table, size_t columns,
		size_t *widths) {
	size_t needed = at_most(widths[table->column_count - 1], LAST_WIDTH_NEEDED);
	for (;;) {
		size_t shortest[POSTERN__TABLE_COLUMNS_MAX];
		memcpy(shortest, widths, sizeof shortest);
		shorten_middles(table, SIZE_MAX, shortest);
		size_t next = next_optional(table, widths);
		if (width_before_last(table, shortest) + needed <= columns ||
				next == table->column_count) {
			return;
		}
		widths[next] = LEFT_OUT;
	}
}

static void measure(const struct postern__table *table, size_t *widths) {
	size_t columns = postern__out_columns();
	size_t last = table->column_count - 1;
	measure_cells(table, widths);
	if (columns == 0) {
		return;
	}
	leave_out(table, columns, widths);
	size_t wanted = at_most(widths[last], LAST_WIDTH_WANTED);
	size_t before = width_before_last(table, widths);
	if (before + wanted > columns) {
		shorten_middles(table, before + wanted - columns, widths);
		before = width_before_last(table, widths);
	}
	if (before + widths[last] > columns) {
		size_t left = columns > before ? columns - before : 0;
		size_t least = left < CUT_WIDTH_MIN ? CUT_WIDTH_MIN : left;
		widths[last] = at_most(widths[last], least);
	}
}

/* How many bytes the first `width` characters have. */
static size_t prefix(const char *text, size_t len, size_t width) {
	size_t at = 0;
	while (at < len && width-- > 0) {
		size_t step = postern__utf8_decode(text + at, len - at, NULL);
		at += step ? step : 1;
	}
	return at;
}

/* The beginning and the end, with an ellipsis between them. */
static void print_middle(const struct postern__cell *cell, size_t width) {
	size_t head = width / 2;
	size_t begin = prefix(cell->text, cell->len, head);
	size_t end =
			prefix(cell->text, cell->len, cell->width - (width - head - 1));
	(void)fwrite(cell->text, 1, begin, stdout);
	(void)fputs("…", stdout);
	(void)fwrite(cell->text + end, 1, cell->len - end, stdout);
}

static void print_cell(const struct postern__table *table, size_t column,
		size_t width, const struct postern__cell *cell) {
	bool last = column + 1 == table->column_count;
	if (width == LEFT_OUT) {
		return;
	}
	bool right = table->columns[column].style & true;
	size_t blank = width > cell->width ? width - cell->width : 0;
	if (right) {
		(void)printf("%*s", (int)blank, "");
	}
	if (cell->colour != POSTERN__PLAIN) {
		(void)fputs(postern__out_colour(stdout, cell->colour), stdout);
	}
	if (cell->width > width && is_shortened(table, column)) {
		print_middle(cell, width);
	} else if (cell->width > width) {
		(void)fwrite(cell->text, 1, prefix(cell->text, cell->len, width - 1),
				stdout);
		(void)fputs("…", stdout);
	} else {
		(void)fwrite(cell->text, 1, cell->len, stdout);
	}
	if (cell->colour != POSTERN__PLAIN) {
		(void)fputs(postern__out_colour(stdout, POSTERN__PLAIN), stdout);
	}
	if (last) {
		(void)putchar('\n');
	} else {
		(void)printf("%*s", (int)(right ? 2 : blank + 2), "");
	}
}

bool postern__table_print(const struct postern__table *table) {
	size_t widths[POSTERN__TABLE_COLUMNS_MAX] = { 0 };
	if (table->failed) {
		return false;
	}
	assert(table->cell_count % table->column_count == 0);
	if (table->cell_count == 0) {
		return true;
	}
	measure(table, widths);
	for (size_t i = 0; i < table->column_count; i++) {
		const char *title = table->columns[i].title;
		struct postern__cell cell = {
			.text = title,
			.len = strlen(title),
			.width = strlen(title),
			.colour = POSTERN__FAINT,
		};
		print_cell(table, i, widths[i], &cell);
	}
	for (size_t i = 0; i < table->cell_count; i++) {
		size_t column = i % table->column_count;
		print_cell(table, column, widths[column], &table->cells[i]);
	}
	return true;
}
