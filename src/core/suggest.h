/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_SUGGEST_H
#define POSTERN_CORE_SUGGEST_H

/*
 * "did you mean": the closest name that the store has, for errors about a name
 * that it does not have.
 */

#include "core/box.h"

/* Add the closest key of a handler, or the closest channel, to the text of the
   error; NULL: none. Without one, or if the store cannot be read, the text does
   not change. Without the mutex. */
void postern__suggest_handler(struct postern_box *box, const char *key,
		struct postern_error *error);
void postern__suggest_channel(struct postern_box *box, const char *name,
		struct postern_error *error);

#endif
