/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_FILE_H
#define POSTERN_BASE_FILE_H

#include <postern/error.h>
#include <stddef.h>

struct postern__arena;

/*
 * Read a whole file of at most len_max bytes. Only a regular file is read; the
 * call never waits for a FIFO or a terminal.
 *
 * out  in the arena, followed by a zero byte that *len_out does not count.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_NOTFOUND  the file does not exist
 *   POSTERN_E_INVALID   it is not a regular file, is too long, or cannot be
 * read
 */
int postern__file_read(const char *path, size_t len_max,
		struct postern__arena *arena, char **out, size_t *len_out,
		struct postern_error *error);

/*
 * Read the only line of a file that contains a secret, without the line's end.
 * A symbolic link, a file that other users may read, an empty file and more
 * than one line are refused.
 */
int postern__secret_read(const char *path, struct postern__arena *arena,
		char **out, struct postern_error *error);

/*
 * Read a whole file that contains a key. A file that all users may read is
 * refused; a symbolic link is not, because tools that renew certificates make
 * them.
 */
int postern__key_read(const char *path, size_t len_max,
		struct postern__arena *arena, char **out, size_t *len_out,
		struct postern_error *error);

#endif
