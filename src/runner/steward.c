/* SPDX-License-Identifier: MIT */
/*
 * The steward: the thread that keeps house in the store. It renews the node's
 * lease and the processing lock, takes back what others lost, poisons orphans
 * and cleans up, in steps short enough that no renewal comes late.
 */

#include "runner/runner.h"

#include "base/point.h"
#include "core/trouble.h"

#include <stdio.h>

static void hint_all(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->lock);
	postern__claim_hint_all(box);
	(void)pthread_mutex_unlock(&box->lock);
}

static int recover(struct postern_runner *runner, struct postern_error *error) {
	return postern__take_over(runner->box,
			"processes that are not heard of any more", runner->options.trouble,
			runner->options.trouble_context, error);
}

/* The backstop: as if somebody had hinted at everything. */
static void poll_store(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	struct postern_error error = { 0 };
	size_t count;
	postern__point("steward.polling");
	int r = recover(runner, &error);
	if (!r && box->options.orphans == POSTERN_ORPHANS_POISON) {
		r = postern__poison_orphans(box, runner->options.trouble,
				runner->options.trouble_context, &count, &error);
		if (!r && count > 0) {
			char text[128];
			(void)snprintf(text, sizeof(text),
					"poisoned %zu deliver%s whose handler nobody registers",
					count, count == 1 ? "y" : "ies");
			postern__runner_report(runner, text);
		}
	}
	if (r) {
		postern__runner_note(runner, r, &error);
	}
	hint_all(box);
	runner->poll_at_ms =
			postern__box_after_ms(box, runner->options.polling_interval_ms);
}

static void keep_tenure(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	struct postern_error error = { 0 };
	int r = postern__tenure(box, runner->options.trouble,
			runner->options.trouble_context, &runner->tenure_at_ms, &error);
	if (!r && postern__has_tenure(box)) {
		/* The dead are found as soon as they are overdue. */
		r = recover(runner, &error);
	}
	if (r) {
		postern__runner_note(runner, r, &error);
		int64_t again =
				postern__box_after_ms(box, runner->options.restart_delay_ms);
		if (again < runner->tenure_at_ms) {
			runner->tenure_at_ms = again;
		}
	}
}

static void report_cleanup(struct postern_runner *runner) {
	const struct postern_cleanup *total = &runner->cleanup.total;
	if (total->messages == 0 && total->keys == 0) {
		return;
	}
	char text[128];
	(void)snprintf(text, sizeof(text),
			POSTERN__TROUBLE_CLEANED "%llu message%s and %llu remembered id%s",
			(unsigned long long)total->messages,
			total->messages == 1 ? "" : "s", (unsigned long long)total->keys,
			total->keys == 1 ? "" : "s");
	postern__runner_report(runner, text);
}

static void clean_some(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	struct postern_error error = { 0 };
	bool more = false;
	postern__point("steward.cleaning");
	int r = postern__cleaning_needed(box)
					? postern__cleanup_step(box, &runner->cleanup, &more,
							  &error)
					: POSTERN_OK;
	if (r) {
		postern__runner_note(runner, r, &error);
	}
	if (more) {
		runner->clean_at_ms = postern__box_after_ms(box,
				postern__cleanup_rest_ms(&runner->cleanup));
		return;
	}
	postern__cleanup_end(box, &runner->cleanup);
	report_cleanup(runner);
	runner->cleanup = (struct postern__cleanup){ 0 };
	runner->clean_at_ms =
			postern__box_after_ms(box, r ? runner->options.restart_delay_ms
										 : runner->options.cleanup_interval_ms);
}

/* Do what is due, and sleep until the next. */
void *postern__steward_loop(void *context) {
	struct postern_runner *runner = context;
	struct postern_box *box = runner->box;
	const struct {
		int64_t *at;
		void (*go)(struct postern_runner *runner);
	} duties[] = {
		{ &runner->tenure_at_ms, keep_tenure },
		{ &runner->poll_at_ms, poll_store },
		{ &runner->clean_at_ms, clean_some },
	};
	(void)pthread_mutex_lock(&box->lock);
	while (!runner->stopping) {
		int64_t next = POSTERN__NEVER;
		size_t chosen = 0;
		for (size_t i = 0; i < sizeof(duties) / sizeof(duties[0]); i++) {
			if (*duties[i].at < next) {
				next = *duties[i].at;
				chosen = i;
			}
		}
		int64_t left = next - postern__box_now_ms(box);
		if (left > 0) {
			postern__wait(&runner->steward_wake, &box->lock, left);
			continue;
		}
		(void)pthread_mutex_unlock(&box->lock);
		duties[chosen].go(runner);
		(void)pthread_mutex_lock(&box->lock);
	}
	(void)pthread_mutex_unlock(&box->lock);
	postern__cleanup_end(box, &runner->cleanup);
	return NULL;
}
