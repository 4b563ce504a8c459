/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_OPTION_H
#define POSTERN_BASE_OPTION_H

/*
 * Values of options (postern/sys/option.h): from text to the member of a
 * struct, and back. `object` is the struct that the row's offset is in. Errors
 * do not name the option: the caller adds it.
 */

#include <postern/sys/option.h>
#include <stdbool.h>

struct postern__arena;
struct postern__buf;

/* Parses a text and stores the value; strings and lists are copied into the
   arena. Nothing is stored if it fails. */
int postern__option_set(const struct postern_option *option, const char *text,
		void *object, struct postern__arena *arena,
		struct postern_error *error);

/* The same for an option with several values. The array of texts, which must
   live as long as the object, is stored as it is. */
int postern__option_set_list(const struct postern_option *option,
		const char *const *texts, size_t count, void *object,
		struct postern__arena *arena, struct postern_error *error);

/* Sets every option to its fallback; the others stay as they are. */
int postern__option_set_fallbacks(const struct postern_option *options,
		size_t count, void *object, struct postern__arena *arena,
		struct postern_error *error);

/* Appends the value as it could be written in a file; secrets redacted. */
void postern__option_format(const struct postern_option *option,
		const void *object, struct postern__buf *out);

/* Whether the value is the fallback. */
bool postern__option_is_fallback(const struct postern_option *option,
		const void *object);

/* Whether a row that comes from outside can be used with an object of this
   size: POSTERN_E_INVALID with the member that is wrong. */
int postern__option_row_check(const struct postern_option *option,
		size_t object_size, struct postern_error *error);

/* The same for all rows of a table: also that names are names and differ, and
   that fallbacks are values. POSTERN_E_INVALID with the option's name. */
int postern__option_rows_check(const struct postern_option *options,
		size_t count, size_t object_size, struct postern_error *error);

#define POSTERN__OPTION_NAME_LEN_MAX 32

/* Whether this is a name that needs no quotes in a configuration: lower-case
   letters, digits and '_', a letter first. NULL is none. */
bool postern__option_is_name(const char *name);

/* How the value is written, for the help: "COUNT", "none|warn|fail". */
const char *postern__option_form(const struct postern_option *option);

#endif
