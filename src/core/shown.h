/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_SHOWN_H
#define POSTERN_CORE_SHOWN_H

/*
 * What people are shown of a delivery: its stored state, and what is derived
 * from it. All of it without the mutex.
 */

#include "core/box.h"

/* What the nodes run, and which handlers are held, at one moment. */
struct postern__view;

/* memory: the view and what its rows point to are allocated there. End it with
   postern__view_finish(). */
int postern__view_create(struct postern_box *box, struct postern_memory *memory,
		struct postern__view **out, struct postern_error *error);
/* NULL is fine. */
void postern__view_finish(struct postern__view *view);

/* Set what is derived in rows that the store returned. */
int postern__view_rows(struct postern__view *view, struct postern_row *rows,
		size_t count, struct postern_error *error);
/* Count what the nodes run, in stats that the store returned. */
void postern__view_stats(struct postern__view *view,
		struct postern_stats *stats);

/* The stored state that includes a derived one; other states unchanged. */
enum postern_state postern__state_stored(enum postern_state state);

/* runs.c */
/* With the mutex: copy the runs of this node that have been running for at
   least min_ms, the oldest first. Returns how many there are of them, at most
   `max`. */
size_t postern__runs_copy(const struct postern_box *box, int64_t min_ms,
		struct postern_run_report *out, size_t max);
/* Write to the store which runs this node has, if it keeps that and it
   changed. */
int postern__runs_report(struct postern_box *box, struct postern_error *error);

#endif
