/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_CLI_H
#define POSTERN_CLI_CLI_H

/*
 * One run of the command: its arguments, and what every command needs.
 */

#include <stdbool.h>
#include <stddef.h>

#include "cli/args.h"
#include "cli/exit.h"
#include "server/config.h"

struct postern_error;
struct postern__command;
struct postern__flag;
struct postern__server_url;

struct postern__cli {
	const char *program; /* as it was called */
	const struct postern__command *command;
	struct postern__args args;
	bool json;                      /* --json */
	struct postern__config *config; /* NULL until it is loaded */
	/* The stores of the command, set with the configuration: all, or the one
	   that --in names. */
	const struct postern__config_store *stores[POSTERN__STORE_COUNT_MAX];
	size_t store_count;
	/* In place of them: the URL of a store that keeps markers only, which is no
	   part of a configuration. */
	const char *markers_url;
	/* In place of a configuration: the server that was named; NULL: none. */
	struct postern__server_url *server;
};

/*
 * Flags for the global options of the configuration, as a table that ends in
 * a NULL name. Static.
 */
const struct postern__flag *postern__cli_option_flags(void);

/* The flags of the command line that set options of the configuration. `flags`
   is room for POSTERN__ARGS_MAX of them, which the result borrows. */
void postern__cli_input(const struct postern__cli *cli,
		struct postern__config_flag *flags, struct postern__config_input *out);

/*
 * Load the configuration by -c and the option flags. A second call does
 * nothing.
 *
 * path  instead of -c and of searching.
 *
 * Returns POSTERN__EXIT_OK, or POSTERN__EXIT_USAGE after printing why.
 */
int postern__cli_configure(struct postern__cli *cli);
int postern__cli_configure_from(struct postern__cli *cli, const char *path);

/*
 * For commands that need a durable store of messages: remove the other stores.
 * Returns POSTERN__EXIT_OK, or POSTERN__EXIT_USAGE, after printing why, if none
 * remains.
 */
int postern__cli_need_kept(struct postern__cli *cli);

/* For commands that a server can answer: fail in the same way only if no store
   of the configuration is durable, because then no server has one. With
   `markers`, stores that keep markers only are enough; with `sends`, if they
   have channels. */
int postern__cli_need_files(const struct postern__cli *cli, bool markers,
		bool sends);

/* A number given by a flag, from min to max; *out is not changed without the
   flag. Returns POSTERN__EXIT_OK, or POSTERN__EXIT_USAGE after printing why. */
int postern__cli_count(const struct postern__cli *cli, const char *flag,
		unsigned long min, unsigned long max, unsigned long *out);

/* Print "COMMAND: why" and where the help is; returns POSTERN__EXIT_USAGE. */
int postern__cli_usage(const struct postern__cli *cli, const char *format, ...)
		__attribute__((format(printf, 2, 3)));

/* Print that there is no such command, or not in this version, and the closest
   name; returns POSTERN__EXIT_USAGE. */
int postern__cli_no_command(const char *name);

/*
 * The exit status for an error of the store or the box. The second function
 * also prints the error, with a hint what to do.
 */
int postern__exit_of(int code);
int postern__print_error(const struct postern__cli *cli,
		const struct postern_error *error);

#endif
