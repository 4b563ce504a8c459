/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SOURCE_LINE_READER_H
#define POSTERN_SOURCE_LINE_READER_H

/*
 * Lines of a file or a pipe: numbered from 1 and bounded in length.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct postern_error;

struct postern__line_reader {
	size_t line_len_max;
	struct postern__buf input; /* read, and not yet cut into lines */
	size_t begin;              /* of the next line in it */
	size_t seen;               /* bytes of it without a line end */
	bool skipping;             /* the rest of a line that is too long */
	bool end;                  /* nothing follows: the rest is a line */
	uint64_t line;             /* number of the last line */
	uint64_t offset;           /* in the input: where the last line ended */
};

struct postern__line {
	const char *text; /* valid until the next read */
	size_t len;
	bool blank;
	bool too_long; /* and cut off */
};

void postern__line_reader_init(struct postern__line_reader *reader,
		size_t line_len_max);
void postern__line_reader_finish(struct postern__line_reader *reader);
/* Begin another file. */
void postern__line_reader_reset(struct postern__line_reader *reader);

/* How much of the input was read, also of a line that has not ended. */
uint64_t postern__line_reader_position(
		const struct postern__line_reader *reader);

/* Read once; *len_out is 0 at the end, and negative if there is nothing to read
   yet (EAGAIN, EINTR). */
int postern__line_reader_read(struct postern__line_reader *reader, int fd,
		long *len_out, struct postern_error *error);
/* The next line of what was read; false: none. */
bool postern__line_reader_next(struct postern__line_reader *reader,
		struct postern__line *out);

#endif
