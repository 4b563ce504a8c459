/* SPDX-License-Identifier: MIT */
/*
 * The help has only headings of its own; its texts are in the tables.
 */

#include "cli/help.h"

#include <jansson.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "server/config.h"
#include "server/config_options.h"

/* The help of a flag starts at this column, or on the next line. */
#define HELP_COLUMN 26
#define LINE_WIDTH 80

static void heading(FILE *file, const char *text) {
	(void)fprintf(file, "\n%s%s%s\n", postern__out_colour(file, POSTERN__BOLD),
			text, postern__out_colour(file, POSTERN__PLAIN));
}

/* Lines of at most LINE_WIDTH, broken at blanks, each but the first indented
   to HELP_COLUMN. */
static void print_wrapped(FILE *file, const char *text) {
	size_t room = LINE_WIDTH - HELP_COLUMN;
	while (strlen(text) > room) {
		size_t len = room;
		while (len > 0 && text[len] != ' ') {
			len--;
		}
		if (len == 0) {
			len = room;
		}
		(void)fprintf(file, "%.*s\n%*s", (int)len, text, HELP_COLUMN, "");
		text += len;
		text += strspn(text, " ");
	}
	(void)fprintf(file, "%s\n", text);
}

/* "  -c, --config FILE", then the help in its column. */
static void print_flag(FILE *file, const struct postern__flag *flag,
		const char *help) {
	char left[128];
	int len = snprintf(left, sizeof left, "  %c%c%s --%s%s%s",
			flag->letter ? '-' : ' ', flag->letter ? flag->letter : ' ',
			flag->letter ? "," : " ", flag->name, flag->value ? " " : "",
			flag->value ? flag->value : "");
	if (len + 2 > HELP_COLUMN) {
		(void)fprintf(file, "%s\n%*s", left, HELP_COLUMN, "");
	} else {
		(void)fprintf(file, "%-*s", HELP_COLUMN, left);
	}
	print_wrapped(file, help);
}

static void print_flags(FILE *file, const struct postern__flag *flags) {
	for (; flags->name; flags++) {
		if (flags->help) {
			print_flag(file, flags, flags->help);
		}
	}
}

static void print_options(FILE *file) {
	struct postern__config_option option;
	for (size_t i = 0; postern__config_option_get(i, &option); i++) {
		if (option.later) {
			continue;
		}
		char help[512];
		(void)snprintf(help, sizeof help, "%s%s%s%s", option.help,
				*option.fallback ? " [" : "", option.fallback,
				*option.fallback ? "]" : "");
		const struct postern__flag flag = {
			.name = option.flag,
			.value = option.value_name,
		};
		print_flag(file, &flag, help);
	}
}

/* Each line indented. */
static void print_indented(FILE *file, const char *text) {
	while (*text) {
		size_t len = strcspn(text, "\n");
		(void)fprintf(file, "  %.*s\n", (int)len, text);
		text += len;
		text += *text == '\n';
	}
}

void postern__help_all(FILE *file) {
	size_t count;
	const struct postern__command *commands = postern__commands(&count);
	(void)fputs("usage: postern COMMAND [FLAGS]\n\n"
				"Accepts each message once and delivers it to every handler "
				"that wants it.\n",
			file);
	heading(file, "Commands");
	for (size_t i = 0; i < count; i++) {
		(void)fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].help);
	}
	heading(file, "Exit status");
	print_indented(file, "0  ok\n"
						 "1  failed; also: conflict\n"
						 "2  wrong usage or configuration\n"
						 "3  not found\n"
						 "4  server or store cannot be reached\n"
						 "5  not healthy");
	heading(file, "First steps");
	print_indented(file, "postern serve --demo\n"
						 "postern init && postern check\n"
						 "postern send --help");
}

void postern__help_command(FILE *file, const struct postern__command *command) {
	(void)fprintf(file, "usage: postern %s%s%s%s\n\n%c%s.\n\n%s\n",
			command->name, *command->operands ? " " : "", command->operands,
			" [FLAGS]", command->help[0] - 'a' + 'A', command->help + 1,
			command->about);
	heading(file, "Flags");
	print_flags(file, command->flags);
	print_flags(file, postern__common_flags());
	heading(file, strchr(command->examples, '\n') ? "Examples" : "Example");
	print_indented(file, command->examples);
	if (command->options == POSTERN__OPTIONS_ALL) {
		postern__help_options(file);
	} else if (command->options == POSTERN__OPTIONS_SOME) {
		(void)fputs("\n"
					"Every option of the configuration is also a flag, such as "
					"--store sqlite:FILE:\n"
					"see 'postern help options'.\n",
				file);
	}
}

void postern__help_options(FILE *file) {
	heading(file, "Options of the configuration, as flags");
	print_options(file);
}

/* The whole option table, for the tests that compare documents with it. */
static void print_options_json(void) {
	static const struct {
		unsigned place;
		const char *name;
	} places[] = {
		{ POSTERN__IN_ROOT, "top" },
		{ POSTERN__IN_DEFAULTS, "defaults" },
		{ POSTERN__IN_STORE, "store" },
		{ POSTERN__IN_CHANNEL, "channel" },
		{ POSTERN__IN_HANDLER, "handler" },
	};
	const struct postern_option *option;
	json_t *rows = json_array();
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		json_t *where = json_array();
		for (size_t j = 0; j < sizeof places / sizeof places[0]; j++) {
			if (option->places & places[j].place) {
				(void)json_array_append_new(where, json_string(places[j].name));
			}
		}
		(void)json_array_append_new(rows,
				json_pack("{s:s, s:s, s:s, s:o, s:s, s:b, s:I, s:I}", "name",
						option->name, "form", postern__option_form(option),
						"default", option->fallback, "where", where, "help",
						option->help, "later",
						(option->flags & POSTERN_OPTION_LATER) != 0, "min",
						(json_int_t)option->min, "max",
						(json_int_t)option->max));
	}
	postern__reply_print(rows);
	json_decref(rows);
}

int postern__command_help(struct postern__cli *cli) {
	const char *name = postern__args_operand(&cli->args, 0);
	if (!name) {
		postern__help_all(stdout);
		return POSTERN__EXIT_OK;
	}
	if (strcmp(name, "options") == 0 && cli->json) {
		print_options_json();
		return POSTERN__EXIT_OK;
	}
	if (strcmp(name, "options") == 0) {
		postern__help_options(stdout);
		return POSTERN__EXIT_OK;
	}
	const struct postern__command *command = postern__command_find(name);
	if (!command) {
		return postern__cli_no_command(name);
	}
	postern__help_command(stdout, command);
	return POSTERN__EXIT_OK;
}
