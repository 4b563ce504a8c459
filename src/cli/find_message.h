/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_FIND_MESSAGE_H
#define POSTERN_CLI_FIND_MESSAGE_H

/*
 * Finds the message that a command is about.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct postern__cli;
struct postern__client;

/* Whether the command line names a message: an operand, --id or --seq. */
bool postern__find_named(const struct postern__cli *cli);

/*
 * Get the message that is named by the operand (an id, or '#' and a number), by
 * --id (always an id) or by --seq; --source and --channel choose among several
 * with one id.
 *
 * out  yours: json_decref(); as returned by GET /v1/messages/{seq}.
 *
 * Returns POSTERN__EXIT_OK, or another exit status after printing why.
 */
int postern__find_message(const struct postern__cli *cli,
		struct postern__client *client, json_t **out);

/* The same for one of several operands. */
int postern__find_operand(const struct postern__cli *cli,
		struct postern__client *client, const char *operand, json_t **out);

#endif
