/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_ANSWER_H
#define POSTERN_CLI_ANSWER_H

/*
 * Requests whose answers are JSON, and reading them.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/client.h"
#include "server/config.h"

struct postern__buf;

struct postern__answer {
	int status;   /* of HTTP */
	json_t *json; /* yours: json_decref() */
};

/*
 * Make a request and read the answer. Returns POSTERN__EXIT_OK whatever the
 * answer says, otherwise nobody gave a proper one, which was said.
 */
int postern__ask_any(const struct postern__cli *cli,
		struct postern__client *client, const struct postern__request *request,
		bool once, struct postern__answer *out);

/*
 * The same for answers that have to be a success: any other is said, and the
 * exit status is what it means.
 */
int postern__ask(const struct postern__cli *cli, struct postern__client *client,
		const struct postern__request *request, bool once, json_t **out);

/* Say what a problem says; returns the exit status for it. */
int postern__answer_problem(const struct postern__cli *cli,
		const struct postern__answer *answer);

/*
 * Say in which stores a request failed: those of `stores` with an error, and
 * those of `failed`. Returns POSTERN__EXIT_OK if it did in none, otherwise
 * POSTERN__EXIT_UNREACHABLE.
 */
int postern__answer_failures(const struct postern__cli *cli,
		const json_t *answer);

/* A text of an object, or NULL if it has none. */
const char *postern__answer_text(const json_t *object, const char *name);

/* A number of an object, or 0. */
uint64_t postern__answer_count(const json_t *object, const char *name);

/* A moment of an object in ms since 1970, or 0 if it has none. */
int64_t postern__answer_time(const json_t *object, const char *name);

/* "store=NAME" for requests about what the object is in; "" if it does not
   say. */
void postern__answer_store_query(const json_t *object,
		char out[POSTERN__STORE_NAME_LEN_MAX + 16]);

/* Print JSON on stdout: on a terminal for people, and nothing but ASCII. */
void postern__answer_print(const json_t *json);

/* Append "name=value" to a query, with '&' between two. */
void postern__query_add(struct postern__buf *query, const char *name,
		const char *value);

#endif
