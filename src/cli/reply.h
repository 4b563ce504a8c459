/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_REPLY_H
#define POSTERN_CLI_REPLY_H

/*
 * Requests whose responses are JSON, and functions that read them.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/client.h"
#include "server/config.h"

struct postern__buf;

struct postern__reply {
	int status;   /* of HTTP */
	json_t *json; /* yours: json_decref() */
};

/*
 * Make a request and parse the response. Returns POSTERN__EXIT_OK for a
 * response with any status; otherwise no valid response came, and the error was
 * printed.
 */
int postern__client_call_any(const struct postern__cli *cli,
		struct postern__client *client, const struct postern__request *request,
		bool once, struct postern__reply *out);

/*
 * The same for responses that must be a success: the problem of any other is
 * printed, and its exit status returned.
 */
int postern__client_call(const struct postern__cli *cli,
		struct postern__client *client, const struct postern__request *request,
		bool once, json_t **out);

/* Print the detail of a problem; returns the exit status for it. */
int postern__reply_problem(const struct postern__cli *cli,
		const struct postern__reply *answer);

/*
 * Print in which stores a request failed: those of `stores` with an error, and
 * those of `failed`. Returns POSTERN__EXIT_OK if there are none, otherwise
 * POSTERN__EXIT_UNREACHABLE.
 */
int postern__reply_failures(const struct postern__cli *cli,
		const json_t *answer);

/* A text of an object, or NULL if it has none. */
const char *postern__reply_text(const json_t *object, const char *name);

/* A number of an object, or 0. */
uint64_t postern__reply_count(const json_t *object, const char *name);

/* A time of an object in ms since 1970, or 0 if it has none. */
int64_t postern__reply_time(const json_t *object, const char *name);

/* "store=NAME" for requests about the store of the object; "" if the object has
   none. */
void postern__reply_store_query(const json_t *object,
		char out[POSTERN__STORE_NAME_LEN_MAX + 16]);

/* Print JSON on stdout: indented and ASCII only on a terminal. */
void postern__reply_print(const json_t *json);

/* Append "name=value" to a query, with '&' between two. */
void postern__query_add(struct postern__buf *query, const char *name,
		const char *value);

#endif
