/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_WORDS_H
#define POSTERN_CLI_WORDS_H

/*
 * What a command that changes something says about the change: why (--reason)
 * and who makes it (--by, or user@host).
 */

#include <jansson.h>
#include <stdbool.h>

struct postern__buf;
struct postern__cli;
struct postern__client;

/* A JSON object with `by` and, if it was given, `reason`; yours to
   json_decref(). NULL: the reason was printed. */
json_t *postern__words(const struct postern__cli *cli);

/* Add them to an object; false: the reason was printed. */
bool postern__words_add(const struct postern__cli *cli, json_t *body);

/* The longest text of why a handler is held or a channel closed. */
#define POSTERN__HELD_TEXT_MAX ((size_t)2048)

/* Append what holds a handler, from its row in the statistics or from one of
   its deliveries: "paused until TIME by NAME: REASON"; nothing if nothing does.
 */
void postern__held_text(const json_t *row, struct postern__buf *out);
/* The same for a closed channel: "closed by NAME: REASON". */
void postern__closed_text(const json_t *row, struct postern__buf *out);

/*
 * Print which of the handlers that deliveries were retried for are held, so
 * that the deliveries wait, and why. A failure prints nothing: the retry is
 * stored.
 *
 * deliveries  of a message; NULL: of any.
 * handler     only this key; NULL: any.
 */
void postern__waiting_print(const struct postern__cli *cli,
		struct postern__client *client, const json_t *deliveries,
		const char *handler);

#endif
