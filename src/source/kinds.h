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
/* An option of a kind; NULL: it has none of this name. */
const struct postern_option *
postern__source_option(const struct postern_source_kind *kind,
		const char *name);
/* Check one option, and whether all that are required are there. */
int postern__source_setting_check(const struct postern_source_kind *kind,
		const struct postern_source_setting *setting,
		struct postern_error *error);
int postern__source_required_check(const struct postern_source_kind *kind,
		const struct postern_source_setting *settings, size_t count,
		struct postern_error *error);
/* What is valid and may lose messages; "": nothing. */
void postern__source_caution(const struct postern_source_kind *kind,
		const struct postern_source_setting *settings, size_t count, char *out,
		size_t size);
/* Create a source from its options as text. */
int postern__source_create(const struct postern_source_kind *kind,
		const struct postern_source_setting *settings, size_t count,
		struct postern_source **out, struct postern_error *error);

#endif
