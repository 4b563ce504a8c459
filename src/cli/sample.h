/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_SAMPLE_H
#define POSTERN_CLI_SAMPLE_H

#include <postern/error.h>

struct postern__buf;

/* Values to write instead of defaults; NULL: the default. */
struct postern__sample_wishes {
	const char *store;
	const char *store_file;
	const char *schema;
	const char *connections;
};

/* Write what `postern init` writes, with these values: a commented
   configuration that passes `postern check` as it is. A password in the URL
   becomes a variable; other secrets in it: POSTERN_E_INVALID. */
int postern__sample_write(const struct postern__sample_wishes *wishes,
		struct postern__buf *out, struct postern_error *error);

#endif
