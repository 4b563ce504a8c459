/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_DEMO_HINTS_H
#define POSTERN_SERVER_DEMO_HINTS_H

#include <stdbool.h>

struct postern__buf;
struct postern__listening;
struct postern__open_store;

/* Append commands to try with the demo. program: NULL: "postern". hooks: it
   posts webhooks to itself. */
void postern__demo_hints(const struct postern__listening *listening,
		const struct postern__open_store *store, const char *program,
		bool hooks, struct postern__buf *out);

#endif
