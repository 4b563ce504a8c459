/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_ROW_H
#define POSTERN_CLI_ROW_H

/*
 * Cells of a table that several commands have.
 */

#include <jansson.h>
#include <stdint.h>

struct postern__table;

/* A delivery's state in its colour; "retrying" for pending after failures. */
void postern__row_state(struct postern__table *table, const json_t *row);

/* The last error, but of a delivery that is done, which is over it: "-". */
void postern__row_error(struct postern__table *table, const json_t *row);

/* How long ago, or until when; "-" for a moment that is none. */
void postern__row_ago(struct postern__table *table, const json_t *row,
		const char *name, int64_t now_ms);

#endif
