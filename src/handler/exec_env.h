/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_EXEC_ENV_H
#define POSTERN_HANDLER_EXEC_ENV_H

/*
 * The environment of a program: fixed variables, those of its handler, and
 * those of the message. The variables of this process are not in it.
 */

#include <stdbool.h>
#include <stddef.h>

struct postern__arena;
struct postern_delivery;
struct postern_error;
struct postern_message;

/* What is the same in every run, in the order of the variables. */
struct postern__exec_env {
	char **items; /* "NAME=value" */
	size_t count;
};

/* Variables of one handler: names like those of a shell, but not those that
   the message sets. */
#define POSTERN__EXEC_ENV_COUNT_MAX 64

int postern__exec_env_check(const char *const *given, size_t count,
		struct postern_error *error);

/*
 * Copy the variables of a handler, which were checked.
 *
 * user, home  of another user that runs the program; NULL: none.
 *
 * False: out of memory.
 */
bool postern__exec_env_init(struct postern__exec_env *self,
		const char *const *given, size_t count, const char *user,
		const char *home, struct postern__arena *arena);

/* All variables of a run, ended by NULL; NULL: out of memory. */
char **postern__exec_env_make(const struct postern__exec_env *self,
		const struct postern_message *message,
		const struct postern_delivery *delivery, struct postern__arena *arena);

#endif
