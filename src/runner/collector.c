/* SPDX-License-Identifier: MIT */

/*
 * The thread that accepts what others staged in the store.
 *
 * While something comes it looks often, and whoever stages need not wake it:
 * waking makes commits wait for each other. After a second without anything it
 * says that it rests; from then on it is woken, and looks every second for
 * what fell in between.
 */

#include "runner/runner.h"

#include <stdio.h>

#define BUSY_MS 20
#define AWAKE_MS 1000
#define REST_MS 1000
/* So many failures in a row are told. */
#define FAILURES_TOLD 2

/* Trouble that only the collector has, and that lasts: nobody else will tell
   of it. */
static void report_failing(struct postern_runner *runner,
		const struct postern_error *error) {
	char text[POSTERN_ERROR_TEXT_MAX + 64];
	(void)snprintf(text, sizeof(text), "staged messages are not accepted: %s",
			error->text);
	postern__runner_report(runner, text);
}

static void report_refused(struct postern_runner *runner, size_t count) {
	char text[128];
	(void)snprintf(text, sizeof(text),
			"%zu staged message%s cannot be accepted; the column refused of "
			"the table staged says why",
			count, count == 1 ? "" : "s");
	postern__runner_report(runner, text);
}

/* With the lock: until it is time to look again, or there is a reason to. */
static void sleep_for(struct postern_runner *runner, int64_t ms, bool rests) {
	struct postern_box *box = runner->box;
	int64_t until = postern__box_after_ms(box, ms);
	int64_t left = ms;
	while (!runner->stopping && left > 0 &&
			!(rests && runner->collector_called)) {
		postern__wait(&runner->collector_wake, &box->lock, left);
		left = until - postern__box_now_ms(box);
	}
}

void *postern__collector_loop(void *context) {
	struct postern_runner *runner = context;
	struct postern_box *box = runner->box;
	int64_t awake_until = INT64_MIN;
	unsigned failures = 0;
	(void)pthread_mutex_lock(&box->lock);
	while (!runner->stopping) {
		if (runner->collector_called) {
			runner->collector_called = false;
			awake_until = postern__box_after_ms(box, AWAKE_MS);
		}
		bool rests = postern__box_now_ms(box) >= awake_until;
		bool draining = box->draining;
		(void)pthread_mutex_unlock(&box->lock);
		struct postern__collected found = { 0 };
		struct postern_error error = { 0 };
		int r = draining ? POSTERN_OK
						 : postern__collect(box, rests, &found, &error);
		if (found.refused > 0) {
			report_refused(runner, found.refused);
		}
		failures = r ? failures + 1 : 0;
		(void)pthread_mutex_lock(&box->lock);
		/* If the store as a whole is in trouble, whoever writes tells it. */
		if (failures == FAILURES_TOLD && !runner->in_trouble) {
			(void)pthread_mutex_unlock(&box->lock);
			report_failing(runner, &error);
			(void)pthread_mutex_lock(&box->lock);
		}
		if (found.accepted > 0) {
			awake_until = postern__box_after_ms(box, AWAKE_MS);
			rests = false;
		}
		if (r) {
			sleep_for(runner, runner->options.restart_delay_ms, false);
		} else if (!found.more) {
			sleep_for(runner, rests ? REST_MS : BUSY_MS, rests);
		}
	}
	(void)pthread_mutex_unlock(&box->lock);
	return NULL;
}
