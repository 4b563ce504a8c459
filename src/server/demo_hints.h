/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_DEMO_HINTS_H
#define POSTERN_SERVER_DEMO_HINTS_H

struct postern__buf;
struct postern__listening;
struct postern__open_store;

/* Append commands to try with the demo. program: NULL: "postern". */
void postern__demo_hints(const struct postern__listening *listening,
		const struct postern__open_store *store, const char *program,
		struct postern__buf *out);

#endif
