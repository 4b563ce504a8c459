/* SPDX-License-Identifier: MIT */
/*
 * `postern process`: deliver what is due, on this thread, and return.
 */

#include <jansson.h>
#include <postern/box.h>
#include <stdio.h>

#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/own.h"
#include "server/config.h"

static int process(const struct postern__cli *cli, struct postern_box *box,
		size_t max, size_t *count_out) {
	struct postern_error error;
	int r = postern__config_apply(cli->config, box, &error);
	if (r == POSTERN_OK) {
		r = postern_box_start(box, &error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_process(box, max, count_out, &error);
	}
	return r ? postern__say_error(cli, &error) : POSTERN__EXIT_OK;
}

int postern__command_process(struct postern__cli *cli) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	unsigned long max = 0;
	size_t count = 0;
	int r = postern__cli_count(cli, "max", 1, 1000000000, &max);
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_configure(cli);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_need_kept(cli);
	}
	if (r) {
		return r;
	}
	postern__own_options(cli, &options);
	options.must_exist = true;
	options.no_migrate = true;
	r = postern__own_box(cli, &options, &box);
	if (r == POSTERN__EXIT_OK) {
		r = process(cli, box, max, &count);
	}
	postern_box_destroy(box);
	if (r) {
		return r;
	}
	if (cli->json) {
		json_t *json = json_pack("{s:I}", "processed", (json_int_t)count);
		postern__answer_print(json);
		json_decref(json);
	} else {
		(void)printf("processed %zu\n", count);
	}
	return r;
}
