/* SPDX-License-Identifier: MIT */
/*
 * Messages that kill their process. A child runs the box with a callback that
 * dies on three messages out of 1,003; the parent starts it again until it ends
 * by itself. Then exactly those three are poisoned, and every other message is
 * done.
 *
 * One killer is a segmentation fault, one an abort, one a plain SIGKILL.
 */

#include "tap.h"

#include "support/temp_dir.h"

#include <postern/postern.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEIGHBOURS 1000
#define KILLERS 3
/* log2(1003) halvings and three solo crashes each, and room for a machine
   where the three share few groups. */
#define CRASHES_MAX (KILLERS * (11 + 3))

static void die_or_not(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)delivery;
	(void)outcome;
	if (strcmp(message->id, "killer-0") == 0) {
		(void)signal(SIGSEGV, SIG_DFL);
		(void)raise(SIGSEGV);
	}
	if (strcmp(message->id, "killer-1") == 0) {
		(void)signal(SIGABRT, SIG_DFL);
		abort();
	}
	if (strcmp(message->id, "killer-2") == 0) {
		(void)raise(SIGKILL);
	}
}

static struct postern_box *open_box(const char *url) {
	struct postern_box *box = NULL;
	struct postern_error error = { 0 };
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "fragile",
		.callback = die_or_not,
	};
	if (postern_box_open(url, NULL, &box, &error) ||
			postern_box_add_channel(box, "c", NULL, &error) ||
			postern_box_add_handler(box, "c", &handler, &error) ||
			postern_box_start(box, &error)) {
		(void)fprintf(stderr, "cannot open: %s\n", error.text);
		postern_box_destroy(box);
		return NULL;
	}
	return box;
}

static bool accept_all(const char *url) {
	struct postern_box *box = open_box(url);
	if (!CHECK(box != NULL)) {
		return false;
	}
	struct postern_message messages[NEIGHBOURS + KILLERS] = { 0 };
	static struct postern_receipt receipts[NEIGHBOURS + KILLERS];
	static char ids[NEIGHBOURS + KILLERS][32];
	for (int i = 0; i < NEIGHBOURS + KILLERS; i++) {
		/* The killers are among the others, not together. */
		int killer = i == 100 ? 0 : i == 501 ? 1 : i == 902 ? 2 : -1;
		if (killer >= 0) {
			(void)snprintf(ids[i], sizeof(ids[i]), "killer-%d", killer);
		} else {
			(void)snprintf(ids[i], sizeof(ids[i]), "neighbour-%d", i);
		}
		messages[i].size = sizeof(messages[i]);
		messages[i].id = ids[i];
	}
	struct postern_error error;
	bool ok = CHECK_OK(postern_box_accept_batch(box, "c", messages,
							   NEIGHBOURS + KILLERS, receipts, &error),
			&error);
	postern_box_destroy(box);
	return ok;
}

/* Runs until nothing is open; returns 0, unless it is killed. */
static int child_main(const char *url) {
	const struct rlimit no_core = { 0, 0 };
	(void)setrlimit(RLIMIT_CORE, &no_core);
	struct postern_error error;
	struct postern_box *box = open_box(url);
	struct postern_runner *runner = NULL;
	if (!box || postern_runner_create(box, NULL, &runner, &error) ||
			postern_runner_start(runner, &error)) {
		return 1;
	}
	for (;;) {
		struct postern_stats *stats;
		if (postern_box_stats(box, &stats, &error)) {
			return 1;
		}
		bool open =
				stats->handlers[0].pending > 0 || stats->handlers[0].leased > 0;
		postern_stats_destroy(stats);
		if (!open) {
			break;
		}
		(void)usleep(1000);
	}
	postern_runner_destroy(runner);
	postern_box_destroy(box);
	return 0;
}

/* Returns how often the child crashed, or -1 if it failed otherwise. */
static int run_to_the_end(const char *url) {
	for (int crashes = 0; crashes <= CRASHES_MAX; crashes++) {
		pid_t pid = fork();
		if (pid == 0) {
			_exit(child_main(url));
		}
		int status = 0;
		if (pid < 0 || waitpid(pid, &status, 0) != pid) {
			return -1;
		}
		if (WIFEXITED(status)) {
			return WEXITSTATUS(status) == 0 ? crashes : -1;
		}
	}
	return CRASHES_MAX + 1;
}

static void only_killers_are_poisoned(void) {
	struct temp_dir dir;
	temp_dir_create(&dir);
	char url[TEMP_DIR_PATH_MAX + 32];
	temp_dir_name(&dir, "sqlite:", "box.db", url, sizeof(url));
	if (accept_all(url)) {
		int crashes = run_to_the_end(url);
		CHECK(crashes >= KILLERS * 3);
		CHECK(crashes <= CRASHES_MAX);
		(void)printf("# %d crashes\n", crashes);

		struct postern_box *box = open_box(url);
		struct postern_listing *listing;
		struct postern_error error;
		struct postern_filter poisoned = {
			.size = sizeof(poisoned),
			.state = POSTERN_STATE_POISONED,
		};
		struct postern_filter done = {
			.size = sizeof(done),
			.state = POSTERN_STATE_DONE,
			.limit = POSTERN_LIST_LIMIT_MAX,
		};
		if (CHECK_OK(postern_box_list(box, &poisoned, &listing, &error),
					&error)) {
			CHECK_INT(postern_listing_count(listing), KILLERS);
			for (size_t i = 0; i < postern_listing_count(listing); i++) {
				const struct postern_row *row = postern_listing_get(listing, i);
				CHECK_CONTAINS(row->message_id, "killer-");
				CHECK_INT(row->crashes, 3);
			}
			postern_listing_destroy(listing);
		}
		if (CHECK_OK(postern_box_list(box, &done, &listing, &error), &error)) {
			CHECK_INT(postern_listing_count(listing), NEIGHBOURS);
			postern_listing_destroy(listing);
		}
		postern_box_destroy(box);
	}
	temp_dir_destroy(&dir);
}

static const struct tap_case cases[] = {
	{ "of 1,003 messages only the three that kill their process are poisoned",
			only_killers_are_poisoned },
};

TAP_MAIN(cases)
