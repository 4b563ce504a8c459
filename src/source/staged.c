/* SPDX-License-Identifier: MIT */

/*
 * The collector: a source whose transport is a table in the store itself. The
 * store accepts a staged message and removes it in one transaction, so nothing
 * is in flight and there is nothing to acknowledge: this source calls
 * postern__sink_collect() instead of postern_sink_accept(), and gets no
 * completions.
 *
 * While messages arrive it polls every 20 ms, and publishers need not notify
 * it: NOTIFY makes their commits wait for each other. After a second without a
 * message it records in the store that it rests; from then on publishers
 * notify it, and it polls every second for messages staged in between. In a
 * store without notifications it never rests.
 */

#include "source/staged.h"

#include <postern/sys/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/wait.h"
#include "source/sink.h"

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

/* The channels found by the last check, and which of them were reported. */
struct stranded_watch {
	int64_t next_ms;
	int64_t channels[STRANDED_MAX];
	bool reported[STRANDED_MAX];
	size_t count;
};

struct staged {
	struct postern_source base;
	struct postern_box *box;
	struct postern_sink *sink;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	bool called; /* messages may be staged; guarded by the mutex */
	bool stopping;
	/* Used by the thread alone. */
	int64_t awake_until;
	unsigned failures;
	struct stranded_watch stranded;
};

static const struct postern_source_ops staged_ops;

static struct staged *from_base(struct postern_source *source) {
	assert(source->ops == &staged_ops);
	return container_of(source, struct staged, base);
}

static void report_refused(struct staged *self, size_t count) {
	postern__emit_text(self->box,
			&(struct postern_event){
					.kind = POSTERN_EVENT_STAGED_REFUSED,
					.count = count,
			},
			"%zu staged message%s cannot be accepted; the column 'refused' of "
			"the table 'staged' has the reason",
			count, count == 1 ? "" : "s");
}

static void report_stranded(struct staged *self,
		const struct postern_stranded *item) {
	postern__emit_text(self->box,
			&(struct postern_event){
					.kind = POSTERN_EVENT_STRANDED,
					.channel = item->name,
					.count = item->count,
			},
			"staged messages wait: %llu in channel '%s', which no running node "
			"has; add the channel "
			"to the configuration of a node",
			(unsigned long long)item->count, item->name);
}

/* A node that restarts has its channels again in a moment: report a channel
   once, when two checks in a row have found it. */
static void compare_stranded(struct staged *self,
		const struct postern_stranded *items, size_t count) {
	const struct stranded_watch *before = &self->stranded;
	struct stranded_watch now = { .count = count };
	for (size_t i = 0; i < count; i++) {
		now.channels[i] = items[i].channel;
		for (size_t j = 0; j < before->count; j++) {
			if (before->channels[j] != items[i].channel) {
				continue;
			}
			now.reported[i] = true;
			if (!before->reported[j]) {
				report_stranded(self, &items[i]);
			}
		}
	}
	self->stranded = now;
}

/* A check that fails is ignored: the next follows soon. */
static void check_stranded(struct staged *self) {
	struct postern_stranded *items = NULL;
	size_t count = 0;
	struct postern_memory *memory = postern_memory_create();
	if (memory && postern__stranded(self->box, STRANDED_MAX, memory, &items,
						  &count, NULL) == POSTERN_OK) {
		compare_stranded(self, items, count);
	}
	postern_memory_destroy(memory);
	/* Counting many stranded messages is slow, and they are reported. */
	const struct stranded_watch *watch = &self->stranded;
	self->stranded.next_ms = postern__box_after_ms(self->box,
			watch->count > 0 && watch->reported[0] ? STRANDED_REPORTED_MS
												   : STRANDED_CHECK_MS);
}

/* Report an error that lasts and that only the collector has: the writer
   reports those of the store as a whole. */
static void report_state(struct staged *self, int r,
		const struct postern_error *error) {
	self->failures = r ? self->failures + 1 : 0;
	if (!r) {
		postern_sink_connected(self->sink);
		return;
	}
	(void)pthread_mutex_lock(&self->box->mutex);
	bool unavailable = self->box->store_failing;
	(void)pthread_mutex_unlock(&self->box->mutex);
	if (self->failures >= FAILURES_REPORTED && !unavailable) {
		char text[POSTERN_ERROR_TEXT_MAX];
		(void)snprintf(text, sizeof(text),
				"staged messages are not accepted: %.*s",
				(int)sizeof(text) - 64, error->text);
		postern_sink_disconnected(self->sink, text);
	}
}

/* Collect one batch. Returns how long to wait for the next; *rests_out: or
   until woken. */
static int64_t collect_step(struct staged *self, bool *rests_out) {
	struct postern_box *box = self->box;
	struct postern__collected found = { 0 };
	struct postern_error error = { 0 };
	bool rests = postern__box_now_ms(box) >= self->awake_until;
	int r = postern__sink_collect(self->sink, rests, &found, &error);
	if (found.refused > 0) {
		report_refused(self, found.refused);
	}
	if (!r && !found.more &&
			postern__box_now_ms(box) >= self->stranded.next_ms) {
		check_stranded(self);
	}
	report_state(self, r, &error);
	if (found.accepted > 0) {
		self->awake_until = postern__box_after_ms(box, AWAKE_MS);
		rests = false;
	}
	/* In a store in which nobody is notified, looking is cheap. */
	bool notified = box->store->ops->wait;
	*rests_out = rests && notified && !r;
	if (r) {
		return postern_sink_retry_delay_ms(self->sink);
	}
	if (found.more) {
		return 0;
	}
	return rests && notified ? REST_MS : BUSY_MS;
}

/* With the mutex: sleep for `ms`, or, while resting, until woken. */
static void collector_sleep(struct staged *self, int64_t ms, bool rests) {
	int64_t until = postern__box_after_ms(self->box, ms);
	int64_t left = ms;
	while (!self->stopping && left > 0 && !(rests && self->called)) {
		postern__wait(&self->wake, &self->mutex, left);
		left = until - postern__box_now_ms(self->box);
	}
}

static void *collector_loop(void *context) {
	struct staged *self = context;
	(void)pthread_mutex_lock(&self->mutex);
	while (!self->stopping) {
		if (self->called) {
			self->called = false;
			self->awake_until = postern__box_after_ms(self->box, AWAKE_MS);
		}
		(void)pthread_mutex_unlock(&self->mutex);
		bool rests = false;
		int64_t ms = collect_step(self, &rests);
		(void)pthread_mutex_lock(&self->mutex);
		collector_sleep(self, ms, rests);
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return NULL;
}

static int staged_start(struct postern_source *source,
		struct postern_sink *sink, struct postern_error *error) {
	struct staged *self = from_base(source);
	self->sink = sink;
	self->stopping = false;
	self->awake_until = INT64_MIN;
	self->failures = 0;
	self->stranded = (struct stranded_watch){ .next_ms = INT64_MIN };
	int r = pthread_create(&self->thread, NULL, collector_loop, self);
	return r ? postern__fail(error, POSTERN_E_NOMEM,
					   "cannot start a thread: %s", strerror(r))
			 : POSTERN_OK;
}

static void staged_complete(struct postern_source *source,
		const struct postern_completion *completion) {
	(void)source;
	(void)completion;
}

void postern__staged_wake(struct postern_source *source) {
	struct staged *self = from_base(source);
	(void)pthread_mutex_lock(&self->mutex);
	self->called = true;
	(void)pthread_cond_signal(&self->wake);
	(void)pthread_mutex_unlock(&self->mutex);
}

static void staged_stop(struct postern_source *source) {
	struct staged *self = from_base(source);
	(void)pthread_mutex_lock(&self->mutex);
	self->stopping = true;
	(void)pthread_cond_signal(&self->wake);
	(void)pthread_mutex_unlock(&self->mutex);
}

static void staged_end(struct postern_source *source) {
	(void)pthread_join(from_base(source)->thread, NULL);
}

static void staged_destroy(struct postern_source *source) {
	struct staged *self = from_base(source);
	(void)pthread_cond_destroy(&self->wake);
	(void)pthread_mutex_destroy(&self->mutex);
	free(self);
}

static const struct postern_source_ops staged_ops = {
	.version = POSTERN_SOURCE_OPS_VERSION,
	.name = "staged",
	.tag_name = "message",
	.start = staged_start,
	.complete = staged_complete,
	.resume = postern__staged_wake,
	.stop = staged_stop,
	.end = staged_end,
	.destroy = staged_destroy,
};

int postern__staged_create(struct postern_box *box, struct postern_source **out,
		struct postern_error *error) {
	struct staged *self = calloc(1, sizeof(*self));
	if (!self || pthread_mutex_init(&self->mutex, NULL) ||
			postern__wait_init(&self->wake)) {
		free(self);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &staged_ops;
	self->box = box;
	*out = &self->base;
	return POSTERN_OK;
}
