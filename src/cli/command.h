/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_COMMAND_H
#define POSTERN_CLI_COMMAND_H

/*
 * A command is a row in one table: its name, its operands and flags, its help,
 * and its function. The parser, the help and "did you mean" all read that row;
 * no other code knows the flags of a command.
 */

#include <stdbool.h>
#include <stddef.h>

#include "cli/exit.h"

struct postern__cli;

struct postern__flag {
	const char *name;  /* without the dashes */
	char letter;       /* its short form, or 0 */
	bool repeats;      /* may be given more than once */
	const char *value; /* name of the value in the help; NULL: a switch */
	const char *help;  /* NULL: not in the help */
};

/* What the help of a command prints about the options of the configuration: a
   reference, all of them, or nothing because the command reads none. */
enum postern__options {
	POSTERN__OPTIONS_SOME = 0,
	POSTERN__OPTIONS_ALL,
	POSTERN__OPTIONS_NONE
};

struct postern__command {
	const char *name;
	const char *operands; /* as help says it: "CHANNEL [FILE]" */
	size_t operand_min;
	size_t operand_max;
	const char *help;                  /* one line */
	const char *about;                 /* the paragraph of --help */
	const char *examples;              /* lines that can be tried */
	const struct postern__flag *flags; /* its own; ended by a NULL name */
	enum postern__options options;
	/* --store may also be the name of a store in the configuration, as --in. */
	bool takes_store_name;
	/* It has --server, and a server can do all of it. */
	bool asks_server;

	/* Returns one of enum postern__exit; if it is not POSTERN__EXIT_OK, the
	   reason was printed on stderr. */
	int (*run)(struct postern__cli *cli);
};

/* The table, in the order of the help; *count_out is set. */
const struct postern__command *postern__commands(size_t *count_out);

/* Flags that every command has; ended by a NULL name. */
const struct postern__flag *postern__common_flags(void);

/* NULL if there is none. */
const struct postern__command *postern__command_find(const char *name);

/* A command of a later version, which is refused as such. */
bool postern__command_later(const char *name);

/* Parse and run a command line; fails if stdout cannot be written. */
int postern__cli_main(int argc, char **argv);

/* One function per row. */
int postern__command_serve(struct postern__cli *cli);
int postern__command_init(struct postern__cli *cli);
int postern__command_check(struct postern__cli *cli);
int postern__command_migrate(struct postern__cli *cli);
int postern__command_send(struct postern__cli *cli);
int postern__command_process(struct postern__cli *cli);
int postern__command_list(struct postern__cli *cli);
int postern__command_show(struct postern__cli *cli);
int postern__command_retry(struct postern__cli *cli);
int postern__command_cancel(struct postern__cli *cli);
int postern__command_discard(struct postern__cli *cli);
int postern__command_pause(struct postern__cli *cli);
int postern__command_resume(struct postern__cli *cli);
int postern__command_channel(struct postern__cli *cli);
int postern__command_cleanup(struct postern__cli *cli);
int postern__command_stats(struct postern__cli *cli);
int postern__command_bench(struct postern__cli *cli);
int postern__command_key(struct postern__cli *cli);
int postern__command_mark(struct postern__cli *cli);
int postern__command_once(struct postern__cli *cli);
int postern__command_version(struct postern__cli *cli);
int postern__command_help(struct postern__cli *cli);

#endif
