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

static int process(const struct postern__cli *cli,
		const struct postern__config_store *store, struct postern_box *box,
		size_t max, size_t *count_out) {
	struct postern_error error;
	int r = postern__config_apply(cli->config, store, box, &error);
	if (r == POSTERN_OK) {
		r = postern_box_start(box, &error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_process(box, max, count_out, &error);
	}
	if (r == POSTERN_OK) {
		return POSTERN__EXIT_OK;
	}
	(void)postern__config_store_fail(cli->config, store, r, &error);
	return postern__say_error(cli, &error);
}

static int process_store(const struct postern__cli *cli,
		const struct postern__config_store *store, size_t max,
		size_t *count_out) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	postern__own_options(store, &options);
	options.must_exist = true;
	options.no_migrate = true;
	int r = postern__own_box(cli, store, &options, &box);
	if (r == POSTERN__EXIT_OK) {
		r = process(cli, store, box, max, count_out);
	}
	postern_box_destroy(box);
	return r;
}

/* One store after the other. */
static int process_all(const struct postern__cli *cli, size_t max,
		size_t *total_out) {
	int r = POSTERN__EXIT_OK;
	*total_out = 0;
	for (size_t i = 0; r == POSTERN__EXIT_OK && i < cli->store_count &&
					   (max == 0 || *total_out < max);
			i++) {
		size_t count = 0;
		r = process_store(cli, cli->stores[i], max > 0 ? max - *total_out : 0,
				&count);
		*total_out += count;
	}
	return r;
}

int postern__command_process(struct postern__cli *cli) {
	unsigned long max = 0;
	size_t count = 0;
	int r = postern__cli_count(cli, "max", 1, 1000000000, &max);
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_configure(cli);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_need_kept(cli);
	}
	if (r == POSTERN__EXIT_OK) {
		r = process_all(cli, max, &count);
	}
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
