/* SPDX-License-Identifier: MIT */

/*
 * The collector: the thread that accepts staged messages.
 *
 * While messages arrive it polls every 20 ms, and publishers need not notify
 * it: NOTIFY makes their commits wait for each other. After a second without a
 * message it records in the store that it rests; from then on publishers
 * notify it, and it polls every second for messages staged in between.
 */

#include "core/accept.h"
#include "runner/runner.h"

#include "core/trouble.h"

#include <postern/sys/memory.h>
#include <stdio.h>

#define BUSY_MS 20
#define AWAKE_MS 1000
#define REST_MS 1000
/* How often to check for messages in channels that no running node has, and how
   often once they were reported. */
#define STRANDED_CHECK_MS 5000
#define STRANDED_REPORTED_MS 60000
/* The most channels that are reported at a time. */
#define STRANDED_MAX 32
/* Failures in a row before they are reported. */
#define FAILURES_REPORTED 2

/* Report an error that lasts and that only the collector has: the writer
   reports those of the store as a whole. */
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
			"%zu staged message%s cannot be accepted; the column 'refused' of "
			"the table 'staged' has the reason",
			count, count == 1 ? "" : "s");
	postern__runner_report(runner, text);
}

/* The channels found by the last check, and which of them were reported. */
struct stranded_watch {
	int64_t next_ms;
	int64_t channels[STRANDED_MAX];
	bool reported[STRANDED_MAX];
	size_t count;
};

static void report_stranded(struct postern_runner *runner,
		const struct postern_stranded *item) {
	char text[POSTERN_CHANNEL_NAME_LEN_MAX + 192];
	(void)snprintf(text, sizeof(text),
			POSTERN__TROUBLE_STRANDED
			"%llu in channel '%s', which no running node has; add the channel "
			"to the configuration of a node",
			(unsigned long long)item->count, item->name);
	postern__runner_report(runner, text);
}

/* A node that restarts has its channels again in a moment: report a channel
   once, when two checks in a row have found it. */
static void compare_stranded(struct postern_runner *runner,
		struct stranded_watch *watch, const struct postern_stranded *items,
		size_t count) {
	struct stranded_watch now = { .count = count };
	for (size_t i = 0; i < count; i++) {
		now.channels[i] = items[i].channel;
		for (size_t j = 0; j < watch->count; j++) {
			if (watch->channels[j] != items[i].channel) {
				continue;
			}
			now.reported[i] = true;
			if (!watch->reported[j]) {
				report_stranded(runner, &items[i]);
			}
		}
	}
	*watch = now;
}

/* Without the mutex. A check that fails is ignored: the next follows soon. */
static void check_stranded(struct postern_runner *runner,
		struct stranded_watch *watch) {
	struct postern_box *box = runner->box;
	struct postern_stranded *items = NULL;
	size_t count = 0;
	struct postern_memory *memory = postern_memory_create();
	if (memory && postern__stranded(box, STRANDED_MAX, memory, &items, &count,
						  NULL) == POSTERN_OK) {
		compare_stranded(runner, watch, items, count);
	}
	postern_memory_destroy(memory);
	/* Counting many stranded messages is slow, and they are reported. */
	watch->next_ms = postern__box_after_ms(box,
			watch->count > 0 && watch->reported[0] ? STRANDED_REPORTED_MS
												   : STRANDED_CHECK_MS);
}

/* With the mutex: sleep for `ms`, or, while resting, until notified. */
static void collector_sleep(struct postern_runner *runner, int64_t ms,
		bool rests) {
	struct postern_box *box = runner->box;
	int64_t until = postern__box_after_ms(box, ms);
	int64_t left = ms;
	while (!runner->stopping && left > 0 &&
			!(rests && runner->collector_called)) {
		postern__wait(&runner->collector_wake, &box->mutex, left);
		left = until - postern__box_now_ms(box);
	}
}

void *postern__collector_loop(void *context) {
	struct postern_runner *runner = context;
	struct postern_box *box = runner->box;
	int64_t awake_until = INT64_MIN;
	unsigned failures = 0;
	struct stranded_watch stranded = { .next_ms = INT64_MIN };
	(void)pthread_mutex_lock(&box->mutex);
	while (!runner->stopping) {
		if (runner->collector_called) {
			runner->collector_called = false;
			awake_until = postern__box_after_ms(box, AWAKE_MS);
		}
		bool rests = postern__box_now_ms(box) >= awake_until;
		bool draining = box->draining;
		(void)pthread_mutex_unlock(&box->mutex);
		struct postern__collected found = { 0 };
		struct postern_error error = { 0 };
		int r = draining ? POSTERN_OK
						 : postern__collect(box, rests, &found, &error);
		if (found.refused > 0) {
			report_refused(runner, found.refused);
		}
		if (!draining && !r && !found.more &&
				postern__box_now_ms(box) >= stranded.next_ms) {
			check_stranded(runner, &stranded);
		}
		failures = r ? failures + 1 : 0;
		(void)pthread_mutex_lock(&box->mutex);
		/* If the store is unavailable, the writer reports that. */
		if (failures == FAILURES_REPORTED && !runner->store_unavailable) {
			(void)pthread_mutex_unlock(&box->mutex);
			report_failing(runner, &error);
			(void)pthread_mutex_lock(&box->mutex);
		}
		if (found.accepted > 0) {
			awake_until = postern__box_after_ms(box, AWAKE_MS);
			rests = false;
		}
		if (r) {
			collector_sleep(runner, runner->options.restart_delay_ms, false);
		} else if (!found.more) {
			collector_sleep(runner, rests ? REST_MS : BUSY_MS, rests);
		}
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return NULL;
}
