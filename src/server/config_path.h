/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_CONFIG_PATH_H
#define POSTERN_SERVER_CONFIG_PATH_H

/*
 * Relative paths of a configuration: those in the file (and the defaults of
 * options not set there) start at the file's directory, those of flags and of
 * the environment at the working directory.
 */

#include <postern/error.h>

#include "server/config.h"

struct postern__arena;

/*
 * Find the directory of the file with this name.
 *
 * *out is its absolute path, or NULL if it is the working directory: then a
 * relative path means the same from either place and is left as it is.
 */
int postern__config_path_base(const char *name, struct postern__arena *arena,
		const char **out, struct postern_error *error);

/*
 * Make the path in a text, after its first prefix_len bytes ("sqlite:"),
 * absolute if it is relative and the file is in another directory. SIZE_MAX:
 * there is no path.
 */
int postern__config_path_resolve(const char *base,
		enum postern__config_source source, size_t prefix_len,
		struct postern__arena *arena, const char **text,
		struct postern_error *error);

#endif
