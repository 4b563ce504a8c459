/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_ERROR_GROUP_H
#define POSTERN_CORE_ERROR_GROUP_H

/*
 * Groups of errors. Two errors are in one group if their texts differ only in
 * numbers, ids (words of hexadecimal digits, UUIDs, words in which letters and
 * digits alternate) and quoted values. The group is stored, so the rules may
 * only change with a new major version.
 */

#include <stddef.h>
#include <stdint.h>

/* Bytes of a shape that count; the rest of a longer error is ignored. */
#define POSTERN__ERROR_SHAPE_LEN_MAX 500

/* A group is written as this many hexadecimal digits. */
#define POSTERN__ERROR_GROUP_DIGITS 16

/*
 * Write what is left of a text: each number or id is '#', each quoted value
 * '?', a run of spaces and control characters is one space. Returns the
 * length; `out` is terminated.
 */
size_t postern__error_shape(const char *text,
		char out[POSTERN__ERROR_SHAPE_LEN_MAX + 1]);

/* The group of an error: a hash of its shape, never 0. NULL, no error: 0. */
uint64_t postern__error_group(const char *text);

#endif
