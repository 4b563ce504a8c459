/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_HELP_H
#define POSTERN_CLI_HELP_H

/*
 * The help, made from the tables of commands, flags and options.
 */

#include <stdio.h>

struct postern__command;

/* All commands, one line each. */
void postern__help_all(FILE *file);

/* The options of the configuration, which every command takes as flags. */
void postern__help_options(FILE *file);

/* One command, with its flags and the common ones. */
void postern__help_command(FILE *file, const struct postern__command *command);

#endif
