/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_CLI_H
#define POSTERN_CLI_CLI_H

/*
 * One run of the command: what was asked for, and what every command needs to
 * do it.
 */

#include <stdbool.h>
#include <stddef.h>

#include "cli/args.h"
#include "cli/exit.h"
#include "server/config.h"

struct postern_error;
struct postern__command;
struct postern__flag;

struct postern__cli {
	const char *program; /* as it was called */
	const struct postern__command *command;
	struct postern__args args;
	bool json;                      /* --json */
	struct postern__config *config; /* NULL until it was asked for */
	/* What the command is about, set with the configuration: all stores, or
	   the one that --in names. */
	const struct postern__config_store *stores[POSTERN__STORE_COUNT_MAX];
	size_t store_count;
};

/*
 * Flags for the global options of the configuration, as a table that ends in
 * a NULL name. Static.
 */
const struct postern__flag *postern__cli_option_flags(void);

/* What the command line says about the configuration. `flags` is room for
   POSTERN__ARGS_MAX of them, which the result borrows. */
void postern__cli_input(const struct postern__cli *cli,
		struct postern__config_flag *flags, struct postern__config_input *out);

/*
 * Load the configuration by -c and the option flags. Once is enough.
 *
 * path  in place of -c and of searching.
 *
 * Returns POSTERN__EXIT_OK, or POSTERN__EXIT_USAGE having said why.
 */
int postern__cli_configure(struct postern__cli *cli);
int postern__cli_configure_from(struct postern__cli *cli, const char *path);

/*
 * For commands that need what others have stored: leave out the stores that
 * keep nothing. POSTERN__EXIT_OK, or POSTERN__EXIT_USAGE, said why, if then
 * none is left.
 */
int postern__cli_need_kept(struct postern__cli *cli);

/* For commands that a server can answer: the same if no store of the
   configuration keeps anything, so that no server has anything else. */
int postern__cli_need_files(const struct postern__cli *cli);

/* A number given by a flag, from min to max; *out is left alone if it was not
   given. POSTERN__EXIT_OK, or POSTERN__EXIT_USAGE having said why. */
int postern__cli_count(const struct postern__cli *cli, const char *flag,
		unsigned long min, unsigned long max, unsigned long *out);

/* Say "COMMAND: why" and where the help is; returns POSTERN__EXIT_USAGE. */
int postern__cli_usage(const struct postern__cli *cli, const char *format, ...)
		__attribute__((format(printf, 2, 3)));

/* Say that there is no such command, or not yet, and which was meant;
   returns POSTERN__EXIT_USAGE. */
int postern__cli_no_command(const char *name);

/*
 * The exit status that a failure of the store or the box means. The second
 * one also says the error, with a hint what to do about it.
 */
int postern__exit_of(int code);
int postern__say_error(const struct postern__cli *cli,
		const struct postern_error *error);

#endif
