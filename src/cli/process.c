/* SPDX-License-Identifier: MIT */
/*
 * `postern process`: runs what is due, on this thread, and returns. Each run
 * that was settled is counted by its event.
 */

#include <jansson.h>
#include <postern/box.h>
#include <postern/event.h>
#include <stdatomic.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/own_store.h"
#include "cli/reply.h"
#include "runner/renewer.h"
#include "server/config.h"

/* How runs ended; the words are those of the output. */
#define ENDED_MAP(X)                 \
	/* event, word, is a failure */  \
	X(DONE, "done", false)           \
	X(FAILED, "retried", true)       \
	X(POISONED, "poisoned", true)    \
	X(DISCARDED, "discarded", false) \
	X(HELD, "held", true)            \
	X(SNOOZED, "snoozed", false)     \
	X(HINDERED, "postponed", false)

static const struct ended {
	enum postern_event_kind kind;
	const char *word;
	bool failure;
} ended[] = {
#define ROW(event, name, failed) { POSTERN_EVENT_##event, name, failed },
	ENDED_MAP(ROW)
#undef ROW
};

#define ENDED_COUNT (sizeof ended / sizeof ended[0])

/* The box's other threads emit events, too. */
struct tally {
	atomic_size_t counts[ENDED_COUNT];
};

static void count_ended(void *context, const struct postern_event *event) {
	struct tally *tally = context;
	for (size_t i = 0; i < ENDED_COUNT; i++) {
		if (event->kind == ended[i].kind) {
			(void)atomic_fetch_add(&tally->counts[i], 1);
		}
	}
}

static bool has_failures(const struct tally *tally) {
	bool has = false;
	for (size_t i = 0; i < ENDED_COUNT; i++) {
		has = has || (ended[i].failure && tally->counts[i] > 0);
	}
	return has;
}

static int process(const struct postern__cli *cli,
		const struct postern__config_store *store, struct postern_box *box,
		size_t max, struct tally *tally, size_t *count_out) {
	struct postern_error error;
	int r = postern__config_apply(cli->config, store, box, &error);
	if (r == POSTERN_OK) {
		r = postern_box_subscribe(box, POSTERN_LEVEL_DEBUG, count_ended, tally,
				&error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_start(box, &error);
	}
	if (r == POSTERN_OK) {
		r = postern__process_renewing(box, max, count_out, &error);
	}
	if (r == POSTERN_OK) {
		return POSTERN__EXIT_OK;
	}
	(void)postern__config_store_fail(cli->config, store, r, &error);
	return postern__print_error(cli, &error);
}

static int process_store(const struct postern__cli *cli,
		const struct postern__config_store *store, size_t max,
		struct tally *tally, size_t *count_out) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	postern__own_store_options(store, &options);
	options.must_exist = true;
	options.no_migrate = true;
	int r = postern__own_store_open(cli, store, &options, &box);
	if (r == POSTERN__EXIT_OK) {
		r = process(cli, store, box, max, tally, count_out);
	}
	postern_box_destroy(box);
	return r;
}

/* The results of all stores together. */
struct work {
	size_t count;
	size_t store_count; /* stores that were processed */
	json_t *failed;     /* the names of the stores that failed */
	int exit;           /* of the first store that failed */
	struct tally tally;
};

/* Process one store after the other; a failure of one does not affect the
   others. */
static void process_all(const struct postern__cli *cli, size_t max,
		struct work *work) {
	for (size_t i = 0; i < cli->store_count && (max == 0 || work->count < max);
			i++) {
		size_t count = 0;
		int r = process_store(cli, cli->stores[i],
				max > 0 ? max - work->count : 0, &work->tally, &count);
		work->count += count;
		if (r == POSTERN__EXIT_OK) {
			work->store_count++;
			continue;
		}
		work->exit = work->exit ? work->exit : r;
		(void)json_array_append_new(work->failed,
				json_string(cli->stores[i]->name));
	}
}

/* "processed 3: 1 done, 2 retried"; nothing is added if all are done. */
static void print_text(const struct work *work) {
	const char *separator = ": ";
	(void)printf("processed %zu", work->count);
	for (size_t i = 0; work->tally.counts[0] != work->count && i < ENDED_COUNT;
			i++) {
		if (work->tally.counts[i] > 0) {
			(void)printf("%s%zu %s", separator, work->tally.counts[i],
					ended[i].word);
			separator = ", ";
		}
	}
	(void)fputc('\n', stdout);
}

static void print(const struct postern__cli *cli, const struct work *work) {
	if (!cli->json) {
		print_text(work);
		return;
	}
	json_t *json = json_pack("{s:I}", "processed", (json_int_t)work->count);
	for (size_t i = 0; i < ENDED_COUNT; i++) {
		(void)json_object_set_new(json, ended[i].word,
				json_integer((json_int_t)work->tally.counts[i]));
	}
	if (json_array_size(work->failed) > 0) {
		(void)json_object_set(json, "failed", work->failed);
	}
	postern__reply_print(json);
	json_decref(json);
}

int postern__command_process(struct postern__cli *cli) {
	unsigned long max = 0;
	struct work work = { .exit = POSTERN__EXIT_OK };
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
	work.failed = json_array();
	process_all(cli, max, &work);
	if (work.store_count > 0) {
		print(cli, &work);
	}
	json_decref(work.failed);
	if (!work.exit && has_failures(&work.tally) &&
			!postern__args_has(&cli->args, "ignore-failures")) {
		work.exit = POSTERN__EXIT_FAILED;
	}
	return work.exit;
}
