/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SOURCE_LINES_H
#define POSTERN_SOURCE_LINES_H

#include <postern/sys/source.h>

/* The kind "lines": a CloudEvent in JSON per line. */
extern const struct postern_source_kind postern__lines_kind;

/* For tests: all lines before this offset of the input are done. */
uint64_t postern__lines_done(struct postern_source *source);

#endif
