/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SOURCE_STAGED_H
#define POSTERN_SOURCE_STAGED_H

/* The source of staged messages: those that programs wrote into the store, in
   transactions of their own. The runner adds one if the store has staging. */

#include <postern/sys/source.h>

struct postern_box;

int postern__staged_create(struct postern_box *box, struct postern_source **out,
		struct postern_error *error);
/* Messages may have been staged. From any thread. */
void postern__staged_wake(struct postern_source *source);

#endif
