/* SPDX-License-Identifier: MIT */
/*
 * `postern mark`: one change of one marker, and expire.
 */

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/marks.h"
#include "cli/out.h"
#include "cli/reply.h"

/* The exit status of a result that is not a success. */
static int exit_of_result(const char *result, unsigned long duplicate_exit) {
	if (strcmp(result, "duplicate") == 0) {
		return (int)duplicate_exit;
	}
	if (strcmp(result, "unknown") == 0) {
		return POSTERN__EXIT_NOTFOUND;
	}
	return strcmp(result, "busy") == 0 ? POSTERN__EXIT_UNREACHABLE
									   : POSTERN__EXIT_OK;
}

static int run_order(struct postern__cli *cli,
		const struct postern__marks_order *order,
		unsigned long duplicate_exit) {
	json_t *answer = NULL;
	int r = postern__marks_begin(cli);
	if (r == POSTERN__EXIT_OK) {
		r = postern__marks_change(cli, order, NULL, &answer);
	}
	if (r) {
		return r;
	}
	const char *result = postern__reply_text(answer, "result");
	if (cli->json) {
		postern__reply_print(answer);
	} else if (order->older_than) {
		(void)printf("expired %" PRIu64 "\n",
				postern__reply_count(answer, "count"));
	} else {
		postern__out_text(result);
		(void)putchar('\n');
	}
	r = exit_of_result(result ? result : "", duplicate_exit);
	json_decref(answer);
	return r;
}

/* A flag that this verb does not take. */
static int refuse_flag(const struct postern__cli *cli, const char *verb,
		const char *flag) {
	return postern__args_has(&cli->args, flag)
				   ? postern__cli_usage(cli, "'%s' takes no --%s", verb, flag)
				   : POSTERN__EXIT_OK;
}

static int expire(struct postern__cli *cli) {
	const struct postern__marks_order order = {
		.verb = "expire",
		.handler = postern__args_operand(&cli->args, 1),
		.older_than = postern__args_value(&cli->args, "older-than"),
	};
	if (!order.older_than) {
		return postern__cli_usage(cli, "'expire' needs --older-than DURATION");
	}
	if (postern__args_operand_count(&cli->args) > 2) {
		return postern__cli_usage(cli, "unexpected argument '%.80s'",
				postern__args_operand(&cli->args, 2));
	}
	int r = refuse_flag(cli, "expire", "duplicate-exit");
	return r ? r : run_order(cli, &order, 0);
}

static int change(struct postern__cli *cli, const char *verb) {
	unsigned long duplicate_exit;
	bool is_try = strcmp(verb, "try") == 0;
	if (postern__args_operand_count(&cli->args) != 3) {
		return postern__cli_usage(cli, "usage: postern mark %s HANDLER KEY",
				verb);
	}
	int r = postern__marks_duplicate_exit(cli, &duplicate_exit);
	if (r == POSTERN__EXIT_OK) {
		r = refuse_flag(cli, verb, "older-than");
	}
	if (r == POSTERN__EXIT_OK && !is_try) {
		r = refuse_flag(cli, verb, "duplicate-exit");
	}
	if (r) {
		return r;
	}
	const struct postern__marks_order order = {
		.verb = verb,
		.handler = postern__args_operand(&cli->args, 1),
		.key = postern__args_operand(&cli->args, 2),
		/* Then a request whose response was lost can be repeated. */
		.fence = is_try ? postern__marks_fence() : 0,
	};
	return run_order(cli, &order, duplicate_exit);
}

int postern__command_mark(struct postern__cli *cli) {
	static const char *const verbs[] = { "try", "has", "record", "forget",
		"expire" };
	static const size_t count = sizeof verbs / sizeof verbs[0];
	const char *verb = postern__args_operand(&cli->args, 0);
	for (size_t i = 0; i < count; i++) {
		if (strcmp(verbs[i], verb) == 0) {
			return strcmp(verb, "expire") == 0 ? expire(cli)
											   : change(cli, verb);
		}
	}
	const char *near = postern__closest(verb, verbs, count);
	return postern__cli_usage(cli,
			"unknown '%.80s'%s%s%s It is try, has, record, forget or expire",
			verb, near ? ", did you mean '" : ".", near ? near : "",
			near ? "'?" : "");
}
