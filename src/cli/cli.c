/* SPDX-License-Identifier: MIT */
/*
 * Shared by the commands: the configuration, and the exit status of an error.
 */

#include "cli/cli.h"

#include <postern/error.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/server_url.h"
#include "server/config.h"
#include "server/store_open.h"
#include "store/marker_kind.h"

const struct postern__flag *postern__cli_option_flags(void) {
	/* Filled from static strings, always the same. */
	static struct postern__flag flags[POSTERN__CONFIG_OPTION_COUNT_MAX * 2];
	static const size_t flags_max = sizeof flags / sizeof flags[0] - 1;
	struct postern__config_option option;
	size_t count = 0;
	while (count < flags_max && postern__config_option_get(count, &option)) {
		flags[count++] = (struct postern__flag){
			.name = option.flag,
			.value = option.value_name,
			.help = option.help,
		};
	}
	flags[count] = (struct postern__flag){ 0 };
	return flags;
}

/* The value of --store, for commands where it need not be the URL of a store of
   messages; NULL: it is, or is not given. */
static const char *special_store(const struct postern__cli *cli) {
	const char *store = postern__args_value(&cli->args, "store");
	bool special = store && cli->command->takes_store_name &&
				   (!strchr(store, ':') || postern__marker_kind_of(store));
	return special ? store : NULL;
}

void postern__cli_input(const struct postern__cli *cli,
		struct postern__config_flag *flags, struct postern__config_input *out) {
	const struct postern__flag *first = postern__cli_option_flags();
	const struct postern__flag *end = first;
	size_t count = 0;
	while (end->name) {
		end++;
	}
	for (size_t i = 0; i < cli->args.count; i++) {
		const struct postern__arg *arg = &cli->args.items[i];
		if (arg->flag >= first && arg->flag < end &&
				arg->value != special_store(cli)) {
			flags[count++] = (struct postern__config_flag){
				.name = arg->flag->name,
				.value = arg->value,
			};
		}
	}
	*out = (struct postern__config_input){
		.path = postern__args_value(&cli->args, "config"),
		.flags = flags,
		.flag_count = count,
	};
}

/* The error lists all store names; there are few. */
static int print_no_store(const struct postern__cli *cli, const char *flag,
		const char *name) {
	char names[POSTERN__STORE_COUNT_MAX * (POSTERN__STORE_NAME_LEN_MAX + 2)];
	size_t len = 0;
	for (size_t i = 0; i < postern__config_store_count(cli->config); i++) {
		len += (size_t)snprintf(names + len, sizeof names - len, "%s%s",
				i > 0 ? ", " : "", postern__config_store(cli->config, i)->name);
	}
	return postern__cli_usage(cli,
			"--%s: no store '%.60s'; the configuration has: %s", flag, name,
			names);
}

static int choose_stores(struct postern__cli *cli) {
	const char *in = postern__args_value(&cli->args, "in");
	const char *flag = in ? "in" : "store";
	const char *name = in ? in : special_store(cli);
	const char *near;
	if (name && !in && postern__marker_kind_of(name)) {
		cli->markers_url = name;
		name = NULL;
	}
	if (!name) {
		cli->store_count = postern__config_store_count(cli->config);
		for (size_t i = 0; i < cli->store_count; i++) {
			cli->stores[i] = postern__config_store(cli->config, i);
		}
		return POSTERN__EXIT_OK;
	}
	cli->stores[0] = postern__config_store_named(cli->config, name, &near);
	cli->store_count = 1;
	if (cli->stores[0]) {
		return POSTERN__EXIT_OK;
	}
	if (near) {
		return postern__cli_usage(cli,
				"--%s: no store '%.60s', did you mean '%s'?", flag, name, near);
	}
	return print_no_store(cli, flag, name);
}

static void print_mistake(void *context, const char *text) {
	(void)context;
	postern__err_print("%s", text);
}

int postern__cli_configure_from(struct postern__cli *cli, const char *path) {
	struct postern__config_flag flags[POSTERN__ARGS_MAX];
	struct postern__config_input input;
	if (cli->config) {
		return POSTERN__EXIT_OK;
	}
	postern__cli_input(cli, flags, &input);
	if (path) {
		input.path = path;
	}
	input.report = print_mistake;
	if (postern__config_load(&input, &cli->config, NULL)) {
		return POSTERN__EXIT_USAGE;
	}
	const char *warning;
	for (size_t i = 0; (warning = postern__config_warning(cli->config, i));
			i++) {
		postern__err_print("note: %s", warning);
	}
	return choose_stores(cli);
}

/* What a command finds that leaves everything to a server. */
static int configure_nothing(struct postern__cli *cli) {
	struct postern_error error;
	if (postern__config_parse("(server)", "", 0, NULL, &cli->config, &error)) {
		postern__err_print("%s", error.text);
		return POSTERN__EXIT_FAILED;
	}
	cli->stores[0] = postern__config_store(cli->config, 0);
	cli->store_count = 1;
	return POSTERN__EXIT_OK;
}

int postern__cli_configure(struct postern__cli *cli) {
	int r = cli->config ? POSTERN__EXIT_OK : postern__server_url_find(cli);
	if (r != POSTERN__EXIT_OK) {
		return r;
	}
	if (cli->server && !cli->config) {
		return configure_nothing(cli);
	}
	return postern__cli_configure_from(cli, NULL);
}

/* Whether any store of the configuration is durable. */
static bool has_durable_store(const struct postern__config *config) {
	for (size_t i = 0; i < postern__config_store_count(config); i++) {
		if (postern__store_is_durable(
					postern__config_store(config, i)->values.store)) {
			return true;
		}
	}
	return false;
}

static int print_nothing_durable(const struct postern__cli *cli) {
	if (has_durable_store(cli->config)) {
		postern__err_print("store '%s' is in the memory of a server, which "
						   "processes "
						   "it: '%s' has nothing to do",
				cli->stores[0]->name, cli->command->name);
		return POSTERN__EXIT_USAGE;
	}
	postern__err_print("the store is 'memory:', which exists only inside one "
					   "process: '%s' has nothing to work on; use --store "
					   "sqlite:FILE",
			cli->command->name);
	return POSTERN__EXIT_USAGE;
}

/* Fails, after printing why, if no store of the command keeps messages. */
static int need_messages(const struct postern__cli *cli) {
	for (size_t i = 0; i < cli->store_count; i++) {
		if (postern__store_keeps_messages(cli->stores[i]->values.store)) {
			return POSTERN__EXIT_OK;
		}
	}
	postern__err_print("store '%s' (%s) keeps markers only: '%s' has nothing "
					   "to do",
			cli->stores[0]->name,
			postern__store_kind_name(cli->stores[0]->values.store),
			cli->command->name);
	return POSTERN__EXIT_USAGE;
}

int postern__cli_need_kept(struct postern__cli *cli) {
	size_t count = 0;
	int r = need_messages(cli);
	if (r != POSTERN__EXIT_OK) {
		return r;
	}
	for (size_t i = 0; i < cli->store_count; i++) {
		const char *url = cli->stores[i]->values.store;
		if (postern__store_is_durable(url) &&
				postern__store_keeps_messages(url)) {
			cli->stores[count++] = cli->stores[i];
		}
	}
	cli->store_count = count;
	return count > 0 ? POSTERN__EXIT_OK : print_nothing_durable(cli);
}

int postern__cli_need_files(const struct postern__cli *cli, bool markers,
		bool sends) {
	/* A store of markers has a box if it has channels. */
	bool boxed = sends && cli->store_count > 0 &&
				 postern__config_store_has_box(cli->config, cli->stores[0]);
	int r = markers || boxed ? POSTERN__EXIT_OK : need_messages(cli);
	if (r == POSTERN__EXIT_OK && !has_durable_store(cli->config)) {
		r = print_nothing_durable(cli);
	}
	return r;
}

int postern__cli_count(const struct postern__cli *cli, const char *flag,
		unsigned long min, unsigned long max, unsigned long *out) {
	struct postern_error error;
	uint64_t count;
	const char *text = postern__args_value(&cli->args, flag);
	if (!text) {
		return POSTERN__EXIT_OK;
	}
	if (postern__count_parse(text, min, max, &count, &error)) {
		return postern__cli_usage(cli, "--%s: %s", flag, error.text);
	}
	*out = (unsigned long)count;
	return POSTERN__EXIT_OK;
}

int postern__cli_usage(const struct postern__cli *cli, const char *format,
		...) {
	char text[2048];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof text, format, args);
	va_end(args);
	postern__err_print("%s: %s (see 'postern %s --help')", cli->command->name,
			text, cli->command->name);
	return POSTERN__EXIT_USAGE;
}

int postern__exit_of(int code) {
	switch (code) {
	case POSTERN_OK: return POSTERN__EXIT_OK;
	case POSTERN_E_INVALID: return POSTERN__EXIT_USAGE;
	case POSTERN_E_DUPLICATE:
	case POSTERN_E_CONFLICT:
	case POSTERN_E_NOMEM: return POSTERN__EXIT_FAILED;
	default: return POSTERN__EXIT_UNREACHABLE;
	}
}

int postern__print_error(const struct postern__cli *cli,
		const struct postern_error *error) {
	const char *hint = "";
	if (error->code == POSTERN_E_NOTFOUND) {
		hint = cli->config && postern__config_is_missing(cli->config)
					   ? "; " POSTERN__CONFIG_MISSING_TEXT
					   : "; 'postern migrate' creates it";
	} else if (error->code == POSTERN_E_BUSY) {
		hint = "; stop that process first, or make the change there";
	}
	postern__err_print("%s: %s%s", cli->command->name, error->text, hint);
	return postern__exit_of(error->code);
}
