/* SPDX-License-Identifier: MIT */
/*
 * Relative paths in a configuration file start at its directory, so that every
 * command, wherever it is started, uses the same store. They become absolute
 * only if the file is in another directory: in the file's own directory
 * commands print paths as they were written.
 */

#include "server/config_path.h"

#include <libgen.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/fail.h"

/* Two paths, each of the system's maximum length. */
#define PATH_LEN_MAX 8192

static int no_memory(struct postern_error *error) {
	return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

int postern__config_path_base(const char *name, struct postern__arena *arena,
		const char **out, struct postern_error *error) {
	int r = POSTERN_OK;
	char *copy = strdup(name);
	char *here = realpath(".", NULL);
	char *base = copy ? realpath(dirname(copy), NULL) : NULL;
	*out = NULL;
	/* A directory that cannot be resolved cannot contain the file that was
	   read. */
	if (base && !(here && strcmp(base, here) == 0)) {
		*out = postern__arena_strdup(arena, base);
		r = *out ? r : no_memory(error);
	}
	if (!copy) {
		r = no_memory(error);
	}
	free(base);
	free(here);
	free(copy);
	return r;
}

/* Put a directory in front of the path in a text. */
static int join(const char *directory, size_t prefix_len,
		struct postern__arena *arena, const char **text,
		struct postern_error *error) {
	struct postern__buf buf;
	postern__buf_init(&buf, PATH_LEN_MAX);
	postern__buf_printf(&buf, "%.*s%s%s%s", (int)prefix_len, *text, directory,
			strcmp(directory, "/") == 0 ? "" : "/", *text + prefix_len);
	int r = postern__buf_check(&buf, "the path", error);
	if (r == POSTERN_OK) {
		*text = postern__arena_strdup(arena, postern__buf_text(&buf));
		r = *text ? r : no_memory(error);
	}
	postern__buf_finish(&buf);
	return r;
}

int postern__config_path_resolve(const char *base,
		enum postern__config_source source, size_t prefix_len,
		struct postern__arena *arena, const char **text,
		struct postern_error *error) {
	char first = prefix_len == SIZE_MAX ? '\0' : (*text)[prefix_len];
	if (!base || !first || first == '/' || first == '?') {
		return POSTERN_OK;
	}
	if (source == POSTERN__CONFIG_FILE || source == POSTERN__CONFIG_DEFAULT) {
		return join(base, prefix_len, arena, text, error);
	}
	char *here = realpath(".", NULL);
	/* Without it the system resolves the path, or returns the error. */
	int r = here ? join(here, prefix_len, arena, text, error) : POSTERN_OK;
	free(here);
	return r;
}
