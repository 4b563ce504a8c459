/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_UTF8_H
#define POSTERN_BASE_UTF8_H

/*
 * UTF-8: validation, counting, truncation and cleaning. Independent of the
 * locale. text may be NULL if len is 0.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Read the character at the start of the text. Returns how many bytes it has,
 * 1 to 4; 0 if there is none (len is 0) or it is malformed: truncated,
 * overlong, a surrogate, above U+10FFFF. On success the character is stored in
 * *out; out may be NULL.
 */
size_t postern__utf8_decode(const char *text, size_t len, uint32_t *out);

/* Whether the whole text is well-formed. NUL is a valid character here. */
bool postern__utf8_valid(const char *text, size_t len);

/* The number of characters (code points); each malformed byte counts as one. */
size_t postern__utf8_count(const char *text, size_t len);

/*
 * Whether the text has a control character: U+0000 to U+001F, U+007F, U+0080 to
 * U+009F. Malformed bytes are ignored; check validity as well.
 */
bool postern__utf8_has_control(const char *text, size_t len);

/*
 * The largest length <= len_max to which valid text can be truncated without
 * splitting a character; len if len <= len_max.
 */
size_t postern__utf8_cut(const char *text, size_t len, size_t len_max);

/*
 * Copy a text of unknown origin so that it can be stored, logged and shown:
 * malformed bytes become U+FFFD; tab, CR, LF and the other line breaks become
 * a space; other control characters, also NUL, become '?'. A text that does
 * not fit is truncated between two characters.
 *
 * out    size bytes (size > 0), ends in a zero byte; must not overlap text.
 *
 * Returns the length of the copy, at most size - 1.
 */
size_t postern__utf8_clean(const char *text, size_t len, char *out,
		size_t size);

#endif
