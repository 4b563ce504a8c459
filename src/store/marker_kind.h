/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_MARKER_KIND_H
#define POSTERN_STORE_MARKER_KIND_H

/*
 * The kinds of stores that keep markers only, which other libraries register.
 */

#include <postern/sys/marker_kind.h>

/* The kinds, NULL past the last. */
const struct postern_marker_kind *postern__marker_kind_at(size_t index);
/* The kind of a URL; NULL if there is none. */
const struct postern_marker_kind *postern__marker_kind_of(const char *url);

/* Validates the URL, which has a kind, and the options (may be NULL) without
   opening anything. */
int postern__markers_check(const char *url,
		const struct postern_store_options *options,
		struct postern_error *error);

/* The same, and opens the markers. */
int postern__markers_open(const char *url,
		const struct postern_store_options *options,
		struct postern_markers **out, struct postern_error *error);

#endif
