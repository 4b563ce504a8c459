/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SOURCE_KINDS_H
#define POSTERN_SOURCE_KINDS_H

/* The kinds of sources: those of this library, and those registered. */

#include <postern/source.h>
#include <postern/sys/option.h>
#include <postern/sys/source.h>

/* The kinds one after the other; NULL: no more. */
const struct postern_source_kind *postern__source_kind_at(size_t index);
/* NULL: none of this name. */
const struct postern_source_kind *postern__source_kind_find(const char *name);
/* Create a source from its options as text. */
int postern__source_create(const struct postern_source_kind *kind,
		const struct postern_source_setting *settings, size_t count,
		struct postern_source **out, struct postern_error *error);

#endif
