/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_JSON_POINTER_H
#define POSTERN_BASE_JSON_POINTER_H

/*
 * JSON pointers (RFC 6901) over a text that was scanned by json_scan.h, without
 * allocating: "/order/id" is the member `id` of the member `order`.
 */

#include "base/json_scan.h"

/* Longest pointer, in bytes. */
#define POSTERN__JSON_POINTER_LEN_MAX 256

/* Whether the pointer is well-formed: POSTERN_E_INVALID with a text. */
int postern__json_pointer_check(const char *pointer, size_t len,
		struct postern_error *error);

enum postern__json_found {
	POSTERN__JSON_FOUND,
	POSTERN__JSON_ABSENT,
	/* A member on the way occurs twice: which one is meant is not known. */
	POSTERN__JSON_TWICE
};

/* Find the value that a well-formed pointer names. *out is written if it is
   found. */
enum postern__json_found
postern__json_find(const struct postern__json_value *root, const char *pointer,
		size_t len, struct postern__json_value *out);

#endif
