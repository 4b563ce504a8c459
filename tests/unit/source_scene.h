/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SOURCE_SCENE_H
#define POSTERN_TESTS_SOURCE_SCENE_H

/* What the tests of sinks share: a box on a store that the case can stop, and a
   source that is a recorder. The case itself calls the sink, and reads which
   calls the source got. */

#include <postern/postern.h>
#include <postern/sys/source.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/container.h"
#include "support/fault_store.h"
#include "tap.h"

/* Long enough for any machine; reached only when something is broken. */
#define PATIENCE_MS 10000
#define TAG_MAX 200
#define LARGE_LEN (64 * 1024 * 1024)

struct scene {
	pthread_mutex_t mutex;
	pthread_cond_t opened;
	bool closed; /* writes wait */
	struct fault_plan plan;
	struct postern_box *box;
	struct postern_runner *runner;
	struct postern_error error;
	char notice[512]; /* the last one */
};

struct recorder {
	struct postern_source base;
	struct scene *scene;
	struct postern_sink *sink;
	atomic_int starts;
	atomic_int stops;
	atomic_int ends;
	atomic_int resumes;
	int completions_at_resume; /* the last one */
	atomic_int completions;
	atomic_int completed[TAG_MAX];
	enum postern_verdict verdicts[TAG_MAX];
	bool fails;
	bool opens;  /* end() opens the gate */
	bool passes; /* on a thread of its own, which end() joins */
	pthread_t thread;
	atomic_bool passed;
	bool taken;
	int completions_at_end;
};

static int destroyed;

__attribute__((unused)) static struct recorder *from_base(
		struct postern_source *source) {
	return container_of(source, struct recorder, base);
}

__attribute__((unused)) static void set_closed(struct scene *scene,
		bool closed) {
	(void)pthread_mutex_lock(&scene->mutex);
	scene->closed = closed;
	(void)pthread_cond_broadcast(&scene->opened);
	(void)pthread_mutex_unlock(&scene->mutex);
}

__attribute__((unused)) static int record_start(struct postern_source *source,
		struct postern_sink *sink, struct postern_error *error) {
	struct recorder *self = from_base(source);
	self->sink = sink;
	self->starts++;
	if (self->fails) {
		*error = (struct postern_error){ POSTERN_E_UNAVAILABLE, "no thread" };
	}
	return self->fails ? POSTERN_E_UNAVAILABLE : POSTERN_OK;
}

__attribute__((unused)) static void
record_complete(struct postern_source *source,
		const struct postern_completion *completion) {
	struct recorder *self = from_base(source);
	if (completion->tag < TAG_MAX) {
		self->verdicts[completion->tag] = completion->verdict;
		self->completed[completion->tag]++;
	}
	CHECK((completion->error->code == POSTERN_OK) ==
			(completion->verdict == POSTERN_VERDICT_ACCEPTED));
	self->completions++;
}

__attribute__((unused)) static void record_resume(
		struct postern_source *source) {
	struct recorder *self = from_base(source);
	self->completions_at_resume = self->completions;
	self->resumes++;
}

__attribute__((unused)) static void record_stop(struct postern_source *source) {
	from_base(source)->stops++;
}

__attribute__((unused)) static void record_end(struct postern_source *source) {
	struct recorder *self = from_base(source);
	self->completions_at_end = self->completions;
	self->ends++;
	if (self->passes) {
		(void)pthread_join(self->thread, NULL);
	}
	if (self->opens) {
		set_closed(self->scene, false);
	}
}

__attribute__((unused)) static void record_destroy(
		struct postern_source *source) {
	(void)source; /* the case has it on its stack */
	destroyed++;
}

static const struct postern_source_ops recorder_ops = {
	.version = POSTERN_SOURCE_OPS_VERSION,
	.name = "recorder",
	.tag_name = "item",
	.start = record_start,
	.complete = record_complete,
	.resume = record_resume,
	.stop = record_stop,
	.end = record_end,
	.destroy = record_destroy,
};

__attribute__((unused)) static int decide(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct scene *scene = context;
	if (op == FAULT_APPLY && batch->accept_count > 0) {
		(void)pthread_mutex_lock(&scene->mutex);
		while (scene->closed) {
			(void)pthread_cond_wait(&scene->opened, &scene->mutex);
		}
		(void)pthread_mutex_unlock(&scene->mutex);
	}
	return POSTERN_OK;
}

__attribute__((unused)) static void keep_notice(void *context,
		const struct postern_event *event) {
	struct scene *scene = context;
	if (!event->source) {
		return;
	}
	(void)pthread_mutex_lock(&scene->mutex);
	(void)snprintf(scene->notice, sizeof scene->notice, "%s",
			postern_event_text(event));
	(void)pthread_mutex_unlock(&scene->mutex);
}

__attribute__((unused)) static bool open_scene(struct scene *scene,
		int64_t command_timeout_ms) {
	*scene = (struct scene){ .plan = { .decide = decide, .context = scene } };
	(void)pthread_mutex_init(&scene->mutex, NULL);
	(void)pthread_cond_init(&scene->opened, NULL);
	destroyed = 0;
	struct postern_error *error = &scene->error;
	struct postern_store *store = NULL;
	struct postern_box_options options = {
		.size = sizeof options,
		.command_timeout_ms = command_timeout_ms,
		.max_message_size = LARGE_LEN,
		.listener = keep_notice,
		.listener_context = scene,
	};
	struct postern_runner_options runner = { .size = sizeof runner };
	if (!CHECK_OK(postern_store_open("memory:", NULL, &store, error), error)) {
		return false;
	}
	store = fault_store_create_taking(store, &scene->plan);
	return CHECK_OK(postern_box_open_taking(store, &options, &scene->box,
							error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_start(scene->box, error), error) &&
		   CHECK_OK(postern_runner_create(scene->box, &runner, &scene->runner,
							error),
				   error);
}

__attribute__((unused)) static void close_scene(struct scene *scene) {
	set_closed(scene, false);
	postern_runner_destroy(scene->runner);
	postern_box_destroy(scene->box);
	(void)pthread_cond_destroy(&scene->opened);
	(void)pthread_mutex_destroy(&scene->mutex);
}

__attribute__((unused)) static int add_recorder(struct scene *scene,
		struct recorder *recorder,
		const struct postern_source_options *options) {
	*recorder = (struct recorder){
		.base.ops = &recorder_ops,
		.scene = scene,
	};
	return postern_runner_add_source_taking(scene->runner, options,
			&recorder->base, &scene->error);
}

/* A recorder for channel "c", and a runner that is started. */
__attribute__((unused)) static bool start(struct scene *scene,
		struct recorder *recorder, uint32_t in_flight_max,
		size_t in_flight_bytes_max) {
	const struct postern_source_options options = {
		.size = sizeof options,
		.name = "r",
		.channel = "c",
		.in_flight_max = in_flight_max,
		.in_flight_bytes_max = in_flight_bytes_max,
	};
	return CHECK_OK(add_recorder(scene, recorder, &options), &scene->error) &&
		   CHECK_OK(postern_runner_start(scene->runner, &scene->error),
				   &scene->error);
}

__attribute__((unused)) static bool pass_body(struct recorder *recorder,
		const char *channel, const char *id, size_t body_len, uint64_t tag) {
	static const char body[4096];
	const struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.source = "test",
		.type = "t",
		.body = body,
		.body_len = body_len,
	};
	return postern_sink_accept(recorder->sink, channel, &message, tag);
}

__attribute__((unused)) static bool pass(struct recorder *recorder,
		const char *id, uint64_t tag) {
	return pass_body(recorder, NULL, id, 1, tag);
}

/* A case that has failed need not be patient. */
__attribute__((unused)) static int patience_ms(void) {
	return tap_failures > 0 ? 0 : PATIENCE_MS;
}

__attribute__((unused)) static bool await(const atomic_int *number, int least) {
	const struct timespec step = { .tv_nsec = 1000000 };
	for (int ms = 0; *number < least && ms < patience_ms(); ms++) {
		(void)nanosleep(&step, NULL);
	}
	return *number >= least;
}

__attribute__((unused)) static struct postern_source_state state_of(
		struct scene *scene) {
	struct postern_source_state state = { 0 };
	CHECK_INT(postern_runner_sources(scene->runner, &state, sizeof(state), 1),
			1);
	return state;
}

#endif
