/* SPDX-License-Identifier: MIT */
/*
 * `postern migrate`: the schema, brought up to date or printed. A store that
 * is not there is one whose schema is far behind.
 */

#include <jansson.h>
#include <postern/sys/store.h>
#include <stdio.h>

#include "base/redact.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/own.h"

static int print_schema(const struct postern__cli *cli) {
	const char *schema;
	struct postern_error error;
	if (postern_store_schema(postern__cli_store(cli), &schema, &error)) {
		return postern__say_error(cli, &error);
	}
	if (cli->json) {
		json_t *json = json_pack("{s:s}", "schema", schema);
		postern__answer_print(json);
		json_decref(json);
	} else if (*schema) {
		(void)fputs(schema, stdout);
	} else {
		postern__say("this store has no schema");
	}
	return POSTERN__EXIT_OK;
}

int postern__command_migrate(struct postern__cli *cli) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	int r = postern__cli_configure(cli);
	if (r) {
		return r;
	}
	if (postern__args_has(&cli->args, "print")) {
		return print_schema(cli);
	}
	r = postern__cli_need_kept(cli);
	if (r) {
		return r;
	}
	postern__own_options(cli, &options);
	r = postern__own_box(cli, &options, &box);
	if (r) {
		return r;
	}
	postern_box_destroy(box);
	char store[POSTERN__REDACT_TEXT_MAX];
	postern__redact(postern__cli_store(cli), store, sizeof store);
	if (cli->json) {
		json_t *json =
				json_pack("{s:s, s:s}", "status", "current", "store", store);
		postern__answer_print(json);
		json_decref(json);
	} else {
		(void)fputs("the schema of ", stdout);
		postern__out_text(store);
		(void)fputs(" is up to date\n", stdout);
	}
	return r;
}
