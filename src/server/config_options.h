/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_CONFIG_OPTIONS_H
#define POSTERN_SERVER_CONFIG_OPTIONS_H

/*
 * The option table: one row is the only place of an option. The file, the
 * environment, the flags, `check` and --help all read it.
 */

#include <postern/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"

struct postern__arena;
struct postern__config_option;
struct postern__config_values;

/* Where in the file an option may be set. Options of the first two scopes are
   global: they are also flags and variables. */
#define POSTERN__IN_ROOT 1U
#define POSTERN__IN_DEFAULTS 2U
#define POSTERN__IN_STORE 4U
#define POSTERN__IN_CHANNEL 8U
#define POSTERN__IN_HANDLER 16U
#define POSTERN__IN_GLOBAL (POSTERN__IN_ROOT | POSTERN__IN_DEFAULTS)

/* The rows; NULL past the last. */
const struct postern_option *postern__option_at(size_t index);
/* The row of this name, whatever its scopes; NULL if there is none. */
const struct postern_option *postern__option_named(const char *name);
size_t postern__option_index(const struct postern_option *option);

/* Whether a server can change it while it runs: it is part of a channel or a
   handler, or is read each time it is used. */
bool postern__option_is_reloadable(const struct postern_option *option);

/* Whether its value is a list of addresses to listen on. */
bool postern__option_is_listen(const struct postern_option *option);

/* Whether a list in the file is the same as a text with commas. */
bool postern__option_is_joined(const struct postern_option *option);

/*
 * The length of what is in front of the path in an option's text; SIZE_MAX if
 * the text has no path. A URL that is only a scheme is completed: in YAML a
 * text that ends with a colon must be quoted.
 */
size_t postern__option_path(const struct postern_option *option,
		const char **text);

/* Set every option to its fallback. Fails only with POSTERN_E_NOMEM. */
int postern__option_defaults(struct postern__config_values *values,
		struct postern__arena *arena, struct postern_error *error);

/* The option of postern__config_option_get() with the same index. */
const struct postern_option *postern__option_global(size_t index,
		bool *is_file_out);
/* The names of a global option; `is_file`: of its NAME_file. */
void postern__option_names(const struct postern_option *option, bool is_file,
		struct postern__config_option *out);

/* Where an option may be written, in words: "'defaults' or a handler". */
void postern__option_places(unsigned scopes, char *out, size_t size);

#endif
