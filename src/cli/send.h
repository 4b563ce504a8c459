/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_SEND_H
#define POSTERN_CLI_SEND_H

/* What one message and a file of them have in common. */

#include <stddef.h>

struct postern__buf;
struct postern__cli;
struct postern__reply;

/* Append the path of the channel's messages. Returns an exit status. */
int postern__send_path(const struct postern__cli *cli, const char *channel,
		struct postern__buf *path);

/*
 * Whether the channel exists. A server has a configuration of its own and is
 * asked; without a server, nothing is opened for an unknown channel, so that a
 * mistake creates no store. Only the channel's store is opened. Returns an exit
 * status, after printing why.
 */
int postern__send_check_channel(struct postern__cli *cli, const char *name);

/* Print the problem of a response; returns the exit status for it. */
int postern__send_problem(const struct postern__cli *cli, const char *channel,
		const struct postern__reply *answer);

/* Read a body, from standard input if the path is "-". Returns an exit status,
   after printing why. */
int postern__send_read_file(const char *path, size_t len_max,
		struct postern__buf *body);

/* send_lines.c: `postern send CHANNEL --lines FILE`. */
int postern__send_lines(struct postern__cli *cli);

#endif
