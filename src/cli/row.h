/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_ROW_H
#define POSTERN_CLI_ROW_H

/*
 * Cells that the tables of several commands have.
 */

#include <jansson.h>
#include <stdint.h>

struct postern__table;

/* A delivery's state in its colour; "retrying" for pending after failures. */
void postern__row_state(struct postern__table *table, const json_t *row);

/* The last error; "-" for a delivery that is done. */
void postern__row_error(struct postern__table *table, const json_t *row);

/* How long ago, or in how long; "-" without a time. */
void postern__row_ago(struct postern__table *table, const json_t *row,
		const char *name, int64_t now_ms);

#endif
