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

struct postern__arena;
struct postern__buf;
struct postern__config_option;
struct postern__config_values;

enum postern__option_type {
	POSTERN__OPTION_TEXT,     /* const char * */
	POSTERN__OPTION_STORE,    /* const char *, the URL of a store */
	POSTERN__OPTION_LISTEN,   /* const char *, a path; NULL: nowhere */
	POSTERN__OPTION_DURATION, /* int64_t, milliseconds */
	POSTERN__OPTION_SIZE,     /* uint64_t, bytes */
	POSTERN__OPTION_COUNT,    /* uint32_t */
	POSTERN__OPTION_SWITCH,   /* bool */
	POSTERN__OPTION_CHOICE,   /* int: which of row->choices */
	POSTERN__OPTION_BACKOFF   /* const int64_t *, and size_t behind it */
};

/* Where in the file an option may be set. Options of the first two scopes are
   global: they are also flags and variables. */
#define POSTERN__IN_ROOT 1U
#define POSTERN__IN_DEFAULTS 2U
#define POSTERN__IN_STORE 4U
#define POSTERN__IN_CHANNEL 8U
#define POSTERN__IN_HANDLER 16U
#define POSTERN__IN_GLOBAL (POSTERN__IN_ROOT | POSTERN__IN_DEFAULTS)

/* "none" is a value, and means 0. */
#define POSTERN__OPTION_NONE 1U
/* "default" is a value, and means -1: depends on the handler. */
#define POSTERN__OPTION_AUTO 2U
/* Shown redacted, and can be read from the file named by NAME_file. */
#define POSTERN__OPTION_SECRET 4U
/* Only the fallback may be set in this version. */
#define POSTERN__OPTION_LATER 8U

struct postern__option {
	const char *name; /* a dot: a key in a mapping of its own */
	enum postern__option_type type;
	size_t offset; /* in struct postern__config_values, if not LATER */
	unsigned scopes;
	unsigned flags;
	uint64_t min; /* of numbers */
	uint64_t max;
	const char *choices; /* "none|warn|fail" */
	const char *fallback;
	const char *help;
};

/* The rows; NULL past the last. */
const struct postern__option *postern__option_at(size_t index);
/* The row of this name, whatever its scopes; NULL if there is none. */
const struct postern__option *postern__option_named(const char *name);
size_t postern__option_index(const struct postern__option *option);

/*
 * Parse a text and store the value. Errors do not name the option. Strings are
 * copied into the arena.
 */
int postern__option_set(const struct postern__option *option, const char *text,
		struct postern__config_values *values, struct postern__arena *arena,
		struct postern_error *error);

/* The value as it could be written in the file; secrets redacted. */
void postern__option_format(const struct postern__option *option,
		const struct postern__config_values *values, struct postern__buf *out);

/* Set every option to its fallback. Fails only with POSTERN_E_NOMEM. */
int postern__option_defaults(struct postern__config_values *values,
		struct postern__arena *arena, struct postern_error *error);

/* The option of postern__config_option_get() with the same index. */
const struct postern__option *postern__option_global(size_t index,
		bool *is_file_out);
/* The names of a global option; `is_file`: of its NAME_file. */
void postern__option_names(const struct postern__option *option, bool is_file,
		struct postern__config_option *out);

/* Where an option may be written, in words: "'defaults' or a handler". */
void postern__option_places(unsigned scopes, char *out, size_t size);

#endif
