/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_KEPT_RULES_H
#define POSTERN_CORE_KEPT_RULES_H

struct postern_box;
struct postern_error;
struct postern_generation;

/* Keep the key rules of an enrolled generation in the store, or fail with
   POSTERN_E_CONFLICT if one was changed without confirmation. */
int postern__rules_keep(struct postern_box *box,
		const struct postern_generation *generation,
		struct postern_error *error);
/* The same for a box that is open for reading only: nothing is written. */
int postern__rules_compare(struct postern_box *box,
		struct postern_error *error);

#endif
