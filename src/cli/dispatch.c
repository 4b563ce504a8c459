/* SPDX-License-Identifier: MIT */
/*
 * From the words of the command line to the row of the table, and from the
 * result of the row's function to the exit status.
 */

#include <fcntl.h>
#include <postern/error.h>
#include <postern/version.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/argv.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/out.h"
#include "cli/server_url.h"
#include "server/config.h"

/* More than there are commands. */
#define COMMANDS_MAX 64

/*
 * A standard stream that was closed at the start must not become a database
 * file: occupy its descriptor. Opened in the wrong direction, so that using it
 * is an error.
 */
static void guard_streams(void) {
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0) {
			(void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
		}
	}
}

int postern__cli_no_command(const char *name) {
	const char *names[COMMANDS_MAX];
	size_t count;
	const struct postern__command *commands = postern__commands(&count);
	if (postern__command_later(name)) {
		postern__err_print("'%s' is not in this version", name);
		return POSTERN__EXIT_USAGE;
	}
	for (size_t i = 0; i < count && i < COMMANDS_MAX; i++) {
		names[i] = commands[i].name;
	}
	const char *near = postern__closest(name, names, count);
	if (near) {
		postern__err_print("no command '%.80s', did you mean '%s'?", name,
				near);
	} else {
		postern__err_print("no command '%.80s' (see 'postern help')", name);
	}
	return POSTERN__EXIT_USAGE;
}

static int check_operands(const struct postern__cli *cli) {
	const struct postern__command *command = cli->command;
	size_t count = postern__args_operand_count(&cli->args);
	if (count < command->operand_min) {
		return postern__cli_usage(cli, "usage: postern %s %s", command->name,
				command->operands);
	}
	if (count > command->operand_max) {
		return postern__cli_usage(cli, "unexpected argument '%.80s'",
				postern__args_operand(&cli->args, command->operand_max));
	}
	return POSTERN__EXIT_OK;
}

/* --json applies to errors, too, so it is found even if the rest is invalid. */
static bool has_json(char *const *words, size_t count) {
	for (size_t i = 0; i < count && strcmp(words[i], "--") != 0; i++) {
		if (strcmp(words[i], "--json") == 0) {
			return true;
		}
	}
	return false;
}

/* `words` are a copy of `seen`, which other users can read. */
static int run_command(const char *program,
		const struct postern__command *command, char *const *seen,
		char *const *words, size_t count) {
	const struct postern__flag *const tables[] = {
		command->flags,
		postern__common_flags(),
		postern__cli_option_flags(),
	};
	struct postern__cli cli = { .program = program, .command = command };
	struct postern_error error;
	postern__err_set_json(has_json(words, count));
	if (postern__args_parse((const char *const *)words, count, tables,
				sizeof tables / sizeof tables[0], &cli.args, &error)) {
		return postern__cli_usage(&cli, "%s", error.text);
	}
	postern__argv_hide(seen, words, count, &cli.args);
	cli.json = postern__args_has(&cli.args, "json");
	int r;
	if (postern__args_has(&cli.args, "help")) {
		postern__help_command(stdout, command);
		r = POSTERN__EXIT_OK;
	} else {
		r = check_operands(&cli);
		if (r == POSTERN__EXIT_OK) {
			r = command->run(&cli);
		}
	}
	postern__config_destroy(cli.config);
	postern__server_url_destroy(cli.server);
	postern__args_finish(&cli.args);
	return r;
}

static int parse_and_run(int argc, char **argv) {
	const char *name = argc > 1 ? argv[1] : NULL;
	if (!name) {
		postern__help_all(stderr);
		return POSTERN__EXIT_USAGE;
	}
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
		name = "help";
	} else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
		name = "version";
	} else if (name[0] == '-') {
		postern__err_print(
				"a command is required before flags: postern COMMAND "
				"[FLAGS] (see 'postern help')");
		return POSTERN__EXIT_USAGE;
	}
	const struct postern__command *command = postern__command_find(name);
	if (!command) {
		return postern__cli_no_command(name);
	}
	size_t count = (size_t)argc - 2;
	char **words = postern__argv_copy(argv + 2, count);
	if (!words) {
		postern__err_print("out of memory");
		return POSTERN__EXIT_FAILED;
	}
	int r = run_command(argv[0], command, argv + 2, words, count);
	postern__argv_free(words, count);
	return r;
}

int postern__cli_main(int argc, char **argv) {
	guard_streams();
	/* A closed pipe is found by the write that fails. */
	(void)signal(SIGPIPE, SIG_IGN);
	/* So is the file size limit. */
	(void)signal(SIGXFSZ, SIG_IGN);
	/* Some service managers ignore it, which is inherited: then the exit codes
	   of programs are lost. */
	(void)signal(SIGCHLD, SIG_DFL);
	return postern__out_close(parse_and_run(argc, argv));
}
