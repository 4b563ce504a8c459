/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_CONFIG_FILE_H
#define POSTERN_SERVER_CONFIG_FILE_H

#include <postern/error.h>
#include <stddef.h>

struct postern__arena;

/*
 * Read a whole file of at most len_max bytes. Only a regular file is read,
 * and the call never waits for one (a FIFO, a terminal).
 *
 * out  in the arena, with a zero byte behind it that *len_out does not count.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_NOTFOUND  there is no such file
 *   POSTERN_E_INVALID   it is no regular file, is too long, or cannot be read
 */
int postern__config_file_read(const char *path, size_t len_max,
		struct postern__arena *arena, char **out, size_t *len_out,
		struct postern_error *error);

/*
 * Read the first and only line of a file that holds a secret, without the
 * line's end. Refused are a symbolic link, a file that others may read, and
 * what is empty or more than a line.
 */
int postern__config_secret_read(const char *path, struct postern__arena *arena,
		char **out, struct postern_error *error);

#endif
