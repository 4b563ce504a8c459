/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_ROW_H
#define POSTERN_CLI_ROW_H

/*
 * Cells that the tables of several commands have.
 */

#include <jansson.h>
#include <stdint.h>

struct postern__table;

/* The state that people are shown of a delivery, in its colour. */
void postern__row_state(struct postern__table *table, const json_t *row);

/* What belongs to that state: when a waiting one is due, why one is held, who
   runs it and since when. */
void postern__row_detail(struct postern__table *table, const json_t *row,
		int64_t now_ms);

/* "3 of 5": the attempt, and how many there are if that is known. */
void postern__row_attempt(struct postern__table *table, const json_t *row);

/* The last error; "-" for a delivery that is done. */
void postern__row_error(struct postern__table *table, const json_t *row);

/* How long ago, or in how long; "-" without a time. */
void postern__row_ago(struct postern__table *table, const json_t *row,
		const char *name, int64_t now_ms);

#endif
