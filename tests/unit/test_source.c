/* SPDX-License-Identifier: MIT */
/*
 * Sinks. The source is a recorder: the case itself calls the sink, and reads
 * which calls the source got. What every source must do is in
 * tests/conformance/source.c.
 */

#include "tap.h"

#include <postern/postern.h>
#include <postern/sys/source.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/container.h"
#include "support/fault_store.h"

/* Long enough for any machine; reached only when something is broken. */
#define PATIENCE_MS 10000
#define TAG_MAX 200
#define LARGE_LEN (64 * 1024 * 1024)
/* The limit of postern_box_accept_async(). */
#define ASYNC_COUNT_MAX 100000

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

static struct recorder *from_base(struct postern_source *source) {
	return container_of(source, struct recorder, base);
}

static void set_closed(struct scene *scene, bool closed) {
	(void)pthread_mutex_lock(&scene->mutex);
	scene->closed = closed;
	(void)pthread_cond_broadcast(&scene->opened);
	(void)pthread_mutex_unlock(&scene->mutex);
}

static int record_start(struct postern_source *source,
		struct postern_sink *sink, struct postern_error *error) {
	struct recorder *self = from_base(source);
	self->sink = sink;
	self->starts++;
	if (self->fails) {
		*error = (struct postern_error){ POSTERN_E_UNAVAILABLE, "no thread" };
	}
	return self->fails ? POSTERN_E_UNAVAILABLE : POSTERN_OK;
}

static void record_complete(struct postern_source *source,
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

static void record_resume(struct postern_source *source) {
	struct recorder *self = from_base(source);
	self->completions_at_resume = self->completions;
	self->resumes++;
}

static void record_stop(struct postern_source *source) {
	from_base(source)->stops++;
}

static void record_end(struct postern_source *source) {
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

static void record_destroy(struct postern_source *source) {
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

static int decide(void *context, enum fault_op op,
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

static void keep_notice(void *context, const struct postern_event *event) {
	struct scene *scene = context;
	if (!event->source) {
		return;
	}
	(void)pthread_mutex_lock(&scene->mutex);
	(void)snprintf(scene->notice, sizeof scene->notice, "%s",
			postern_event_text(event));
	(void)pthread_mutex_unlock(&scene->mutex);
}

static bool open_scene(struct scene *scene, int64_t command_timeout_ms) {
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

static void close_scene(struct scene *scene) {
	set_closed(scene, false);
	postern_runner_destroy(scene->runner);
	postern_box_destroy(scene->box);
	(void)pthread_cond_destroy(&scene->opened);
	(void)pthread_mutex_destroy(&scene->mutex);
}

static int add_recorder(struct scene *scene, struct recorder *recorder,
		const struct postern_source_options *options) {
	*recorder = (struct recorder){
		.base.ops = &recorder_ops,
		.scene = scene,
	};
	return postern_runner_add_source_taking(scene->runner, options,
			&recorder->base, &scene->error);
}

/* A recorder for channel "c", and a runner that is started. */
static bool start(struct scene *scene, struct recorder *recorder,
		uint32_t in_flight_max, size_t in_flight_bytes_max) {
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

static bool pass_body(struct recorder *recorder, const char *channel,
		const char *id, size_t body_len, uint64_t tag) {
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

static bool pass(struct recorder *recorder, const char *id, uint64_t tag) {
	return pass_body(recorder, NULL, id, 1, tag);
}

/* A case that has failed need not be patient. */
static int patience_ms(void) {
	return tap_failures > 0 ? 0 : PATIENCE_MS;
}

static bool await(const atomic_int *number, int least) {
	const struct timespec step = { .tv_nsec = 1000000 };
	for (int ms = 0; *number < least && ms < patience_ms(); ms++) {
		(void)nanosleep(&step, NULL);
	}
	return *number >= least;
}

static struct postern_source_state state_of(struct scene *scene) {
	struct postern_source_state state = { 0 };
	CHECK_INT(postern_runner_sources(scene->runner, &state, sizeof(state), 1),
			1);
	return state;
}

static void verdicts(void) {
	struct scene scene;
	struct recorder recorder;
	if (open_scene(&scene, 0) && start(&scene, &recorder, 0, 0)) {
		CHECK(pass(&recorder, "a", 1));
		CHECK(await(&recorder.completions, 1));
		CHECK(pass(&recorder, "a", 2));
		CHECK(pass_body(&recorder, NULL, "a", 2, 3));
		CHECK(pass(&recorder, "", 4));
		CHECK(pass_body(&recorder, "nowhere", "b", 1, 5));
		CHECK(await(&recorder.completions, 5));
		CHECK_INT(recorder.verdicts[1], POSTERN_VERDICT_ACCEPTED);
		CHECK_INT(recorder.verdicts[2], POSTERN_VERDICT_DUPLICATE);
		CHECK_INT(recorder.verdicts[3], POSTERN_VERDICT_CONFLICT);
		CHECK_INT(recorder.verdicts[4], POSTERN_VERDICT_REJECTED);
		CHECK_INT(recorder.verdicts[5], POSTERN_VERDICT_REJECTED);
		CHECK_STR(scene.notice,
				"source 'r': item 5 rejected: no channel 'nowhere'");
		postern_sink_reject(recorder.sink, 6, "not a message");
		CHECK_STR(scene.notice, "source 'r': item 6 rejected: not a message");
		postern_runner_stop(scene.runner); /* all is counted */
		struct postern_source_state state = state_of(&scene);
		CHECK_STR(state.name, "r");
		CHECK_STR(state.kind, "recorder");
		CHECK_STR(state.channel, "c");
		CHECK_INT(state.accepted, 1);
		CHECK_INT(state.duplicates, 1);
		CHECK_INT(state.conflicts, 1);
		CHECK_INT(state.rejected, 3);
		CHECK_INT(state.unavailable, 0);
		CHECK_STR(state.error, "not a message");
		CHECK(state.error_at_ms > 0);
	}
	close_scene(&scene);
	CHECK_INT(destroyed, 1);
	CHECK_STR(postern_verdict_name(POSTERN_VERDICT_CONFLICT), "conflict");
	CHECK_STR(postern_verdict_name((enum postern_verdict)17), "unknown");
}

static void quarantined(void) {
	struct scene scene;
	struct recorder recorder;
	const struct postern_message bad = {
		.size = sizeof bad,
		.id = "a\x01\xff",
		.type = "u\n",
		.time = "yesterday",
		.body = "x",
		.body_len = 1,
	};
	if (open_scene(&scene, 0) && start(&scene, &recorder, 0, 0)) {
		postern_sink_set_quarantine(recorder.sink, true);
		CHECK(pass(&recorder, "a", 1));
		CHECK(await(&recorder.completions, 1));
		CHECK(pass_body(&recorder, NULL, "a", 2, 2)); /* a conflict */
		CHECK(pass(&recorder, "", 3));
		CHECK(await(&recorder.completions, 3));
		CHECK(pass(&recorder, "", 4)); /* a copy */
		CHECK(postern_sink_accept(recorder.sink, NULL, &bad, 5));
		CHECK(postern_sink_quarantine(recorder.sink, NULL, &bad, "no", 6));
		CHECK(pass_body(&recorder, "nowhere", "b", 1, 7));
		CHECK(await(&recorder.completions, 7));
		CHECK_INT(recorder.verdicts[2], POSTERN_VERDICT_ACCEPTED);
		CHECK_INT(recorder.verdicts[3], POSTERN_VERDICT_ACCEPTED);
		CHECK_INT(recorder.verdicts[4], POSTERN_VERDICT_DUPLICATE);
		CHECK_INT(recorder.verdicts[5], POSTERN_VERDICT_ACCEPTED);
		CHECK_INT(recorder.verdicts[6], POSTERN_VERDICT_DUPLICATE);
		CHECK_INT(recorder.verdicts[7], POSTERN_VERDICT_REJECTED);
		postern_runner_stop(scene.runner);
		struct postern_source_state state = state_of(&scene);
		CHECK_INT(state.accepted, 1);
		CHECK_INT(state.duplicates, 2);
		CHECK_INT(state.conflicts, 1);
		CHECK_INT(state.rejected, 3);
		CHECK_INT(state.quarantined, 3);
	}
	close_scene(&scene);
}

static void quarantined_by_content(void) {
	struct scene scene;
	struct recorder recorder;
	const struct postern_header first[] = { { "x-count", "1" }, { "n", "v" } };
	const struct postern_header second[] = { { "x-count", "2" }, { "n", "v" } };
	const struct postern_header other[] = { { "x-count", "1" }, { "n", "w" } };
	const struct {
		const char *source;
		const struct postern_header *headers;
		const char *subject;
		const char *body;
		enum postern_verdict verdict;
	} copies[] = {
		{ "s", first, "u", "x", POSTERN_VERDICT_ACCEPTED },
		{ "s", second, "u", "x", POSTERN_VERDICT_DUPLICATE },
		{ "s", other, "u", "x", POSTERN_VERDICT_ACCEPTED },
		{ "t", first, "u", "x", POSTERN_VERDICT_ACCEPTED },
		{ "s", first, "v", "x", POSTERN_VERDICT_ACCEPTED },
		{ "s", first, "u", "y", POSTERN_VERDICT_ACCEPTED },
		{ NULL, first, "u", "x", POSTERN_VERDICT_ACCEPTED },
	};
	int count = sizeof copies / sizeof copies[0];
	if (open_scene(&scene, 0) && start(&scene, &recorder, 0, 0)) {
		postern_sink_set_quarantine(recorder.sink, true);
		for (int i = 0; i < count; i++) {
			const struct postern_message bad = {
				.size = sizeof bad,
				.id = "a\x01",
				.source = copies[i].source,
				.subject = copies[i].subject,
				.headers = copies[i].headers,
				.header_count = 2,
				.body = copies[i].body,
				.body_len = 1,
			};
			CHECK(postern_sink_accept(recorder.sink, NULL, &bad,
					(uint64_t)i + 1));
			CHECK(await(&recorder.completions, i + 1));
			CHECK_INT(recorder.verdicts[i + 1], copies[i].verdict);
		}
	}
	close_scene(&scene);
}

static void connection_state(void) {
	struct scene scene;
	struct recorder recorder;
	if (open_scene(&scene, 0) && start(&scene, &recorder, 0, 0)) {
		struct postern_source_state state = state_of(&scene);
		CHECK(state.running && !state.connected && !state.paused);
		CHECK_INT(state.since_ms, 0);
		CHECK_INT(state.lag, -1);
		postern_sink_connected(recorder.sink);
		CHECK_STR(scene.notice, "connected source 'r'");
		postern_sink_set_lag(recorder.sink, 7);
		state = state_of(&scene);
		CHECK(state.connected && state.since_ms > 0);
		CHECK_INT(state.lag, 7);
		CHECK_INT(state.error_at_ms, 0);
		postern_sink_disconnected(recorder.sink, "no route");
		CHECK_STR(scene.notice, "source 'r': no route");
		scene.notice[0] = '\0';
		postern_sink_disconnected(recorder.sink, "no route");
		CHECK_STR(scene.notice, ""); /* the same once more */
		postern_sink_disconnected(recorder.sink, "no name");
		CHECK_STR(scene.notice, "source 'r': no name");
		state = state_of(&scene);
		CHECK(!state.connected && state.error_at_ms > 0);
		CHECK_STR(state.error, "no name");
		postern_sink_set_lag(recorder.sink, -5);
		CHECK_INT(state_of(&scene).lag, -1);
		CHECK_INT(postern_sink_retry_delay_ms(recorder.sink), 5000);
	}
	close_scene(&scene);
}

static void full_by_count(void) {
	struct scene scene;
	struct recorder recorder;
	if (open_scene(&scene, 0)) {
		set_closed(&scene, true);
		if (start(&scene, &recorder, 2, 0)) {
			CHECK(pass(&recorder, "a", 1));
			CHECK(pass(&recorder, "b", 2));
			CHECK(!pass(&recorder, "c", 3));
			CHECK(state_of(&scene).paused);
			CHECK_INT(recorder.resumes, 0);
			set_closed(&scene, false);
			CHECK(await(&recorder.resumes, 1));
			CHECK(!state_of(&scene).paused);
			CHECK(pass(&recorder, "c", 3));
			CHECK(await(&recorder.completions, 3));
			CHECK_INT(recorder.resumes, 1);
		}
	}
	close_scene(&scene);
}

static void full_by_one(void) {
	struct scene scene;
	struct recorder recorder;
	if (open_scene(&scene, 0)) {
		set_closed(&scene, true);
		if (start(&scene, &recorder, 1, 0)) {
			CHECK(pass(&recorder, "a", 1));
			CHECK(!pass(&recorder, "b", 2));
			set_closed(&scene, false);
			CHECK(await(&recorder.resumes, 1));
		}
	}
	close_scene(&scene);
}

static void half_of_the_count(void) {
	struct scene scene;
	struct recorder recorder;
	if (open_scene(&scene, 0)) {
		set_closed(&scene, true);
		if (start(&scene, &recorder, 4, 0)) {
			for (uint64_t tag = 1; tag <= 4; tag++) {
				char id[2] = { (char)('a' + tag), '\0' };
				CHECK(pass(&recorder, id, tag));
			}
			CHECK(!pass(&recorder, "z", 5));
			set_closed(&scene, false);
			CHECK(await(&recorder.resumes, 1));
			CHECK_INT(recorder.completions_at_resume, 2);
		}
	}
	close_scene(&scene);
}

/* One message less is not enough room: half of the bytes must be free. */
static void half_of_the_bytes(void) {
	struct scene scene;
	struct recorder recorder;
	if (open_scene(&scene, 0)) {
		set_closed(&scene, true);
		if (start(&scene, &recorder, 0, 100)) {
			CHECK(pass_body(&recorder, NULL, "a", 10, 1));
			CHECK(pass_body(&recorder, NULL, "b", 90, 2));
			CHECK(!pass_body(&recorder, NULL, "c", 1, 3));
			set_closed(&scene, false);
			CHECK(await(&recorder.resumes, 1));
			CHECK_INT(recorder.completions_at_resume, 2);
		}
	}
	close_scene(&scene);
}

static void full_by_bytes(void) {
	struct scene scene;
	struct recorder recorder;
	if (open_scene(&scene, 0)) {
		set_closed(&scene, true);
		if (start(&scene, &recorder, 0, 100)) {
			/* One is taken, however large. */
			CHECK(pass_body(&recorder, NULL, "a", 400, 1));
			CHECK(!pass_body(&recorder, NULL, "b", 1, 2));
			set_closed(&scene, false);
			CHECK(await(&recorder.resumes, 1));
			CHECK(pass_body(&recorder, NULL, "b", 1, 2));
			CHECK(await(&recorder.completions, 2));
		}
	}
	close_scene(&scene);
}

static void ignore_receipt(void *context,
		const struct postern_receipt *receipt) {
	(void)receipt;
	atomic_fetch_add((atomic_int *)context, 1);
}

/* Fill the queue of the box; returns how many messages it took. */
static int fill_box(struct scene *scene, atomic_int *stored) {
	int count = 0;
	int r = POSTERN_OK;
	while (r == POSTERN_OK && count <= 2 * ASYNC_COUNT_MAX) {
		char id[32];
		(void)snprintf(id, sizeof id, "f%d", count);
		const struct postern_message message = {
			.size = sizeof message,
			.id = id,
			.source = "test",
			.type = "t",
		};
		r = postern_box_accept_async(scene->box, "c", &message, ignore_receipt,
				stored, &scene->error);
		count += r == POSTERN_OK;
	}
	CHECK_INT(r, POSTERN_E_BUSY);
	return count;
}

static void full_box(void) {
	struct scene scene;
	struct recorder recorder;
	atomic_int stored = 0;
	if (open_scene(&scene, 0)) {
		set_closed(&scene, true);
		if (start(&scene, &recorder, 0, 0)) {
			int count = fill_box(&scene, &stored);
			/* Nothing of this source is in flight whose completion could
			   resume it. */
			CHECK(!pass(&recorder, "a", 1));
			CHECK(!pass(&recorder, "a", 1));
			CHECK(state_of(&scene).paused);
			CHECK_INT(state_of(&scene).in_flight, 0);
			set_closed(&scene, false);
			CHECK(await(&recorder.resumes, 1));
			CHECK(pass(&recorder, "a", 1));
			CHECK(await(&recorder.completions, 1));
			CHECK(await(&stored, count));
			CHECK_INT(recorder.resumes, 1);
		}
	}
	close_scene(&scene);
}

static void stopped_while_full(void) {
	struct scene scene;
	struct recorder recorder;
	atomic_int stored = 0;
	if (open_scene(&scene, 100)) {
		set_closed(&scene, true);
		if (start(&scene, &recorder, 0, 0)) {
			(void)fill_box(&scene, &stored);
			CHECK(!pass(&recorder, "a", 1));
			recorder.opens = true;
			postern_runner_stop(scene.runner);
			CHECK_INT(recorder.ends, 1);
			CHECK_INT(recorder.resumes, 0);
			/* It waits for room again after the next start. */
			set_closed(&scene, true);
			CHECK_OK(postern_runner_start(scene.runner, &scene.error),
					&scene.error);
			(void)fill_box(&scene, &stored);
			CHECK(!pass(&recorder, "a", 1));
			set_closed(&scene, false);
			CHECK(await(&recorder.resumes, 1));
		}
	}
	close_scene(&scene);
}

static void drained_while_full(void) {
	struct scene scene;
	struct recorder recorder;
	atomic_int stored = 0;
	if (open_scene(&scene, 100)) {
		set_closed(&scene, true);
		if (start(&scene, &recorder, 0, 0)) {
			int count = fill_box(&scene, &stored);
			CHECK(!pass(&recorder, "a", 1));
			(void)postern_runner_drain(scene.runner, 0, NULL);
			set_closed(&scene, false);
			CHECK(await(&stored, count));
			CHECK_INT(recorder.resumes, 0);
		}
	}
	close_scene(&scene);
	CHECK_INT(recorder.resumes, 0);
}

/* Passes a body that takes long to copy. */
static void *pass_large(void *context) {
	struct recorder *recorder = context;
	static char body[LARGE_LEN];
	const struct postern_message message = {
		.size = sizeof message,
		.id = "large",
		.source = "test",
		.type = "t",
		.body = body,
		.body_len = sizeof body,
	};
	recorder->taken = postern_sink_accept(recorder->sink, NULL, &message, 1);
	recorder->passed = true;
	return NULL;
}

/* A source ends while it passes a message to a box that is full: the message
   is not taken, and so not completed. */
static void ended_while_passing(void) {
	struct scene scene;
	struct recorder recorder;
	atomic_int stored = 0;
	if (open_scene(&scene, 1)) {
		set_closed(&scene, true);
		if (start(&scene, &recorder, 0, 0)) {
			(void)fill_box(&scene, &stored);
			recorder.opens = true;
			recorder.passes = true;
			(void)pthread_create(&recorder.thread, NULL, pass_large, &recorder);
			while (state_of(&scene).in_flight == 0 && !recorder.passed) {
			}
			postern_runner_stop(scene.runner);
			CHECK(!recorder.taken);
			CHECK_INT(recorder.completions, 0);
			CHECK_INT(state_of(&scene).in_flight, 0);
		}
	}
	close_scene(&scene);
}

static void hung_store(void) {
	struct scene scene;
	struct recorder recorder;
	if (open_scene(&scene, 100)) {
		set_closed(&scene, true);
		if (start(&scene, &recorder, 3, 0)) {
			for (uint64_t tag = 1; tag <= 3; tag++) {
				char id[2] = { (char)('a' + tag), '\0' };
				CHECK(pass(&recorder, id, tag));
			}
			CHECK(!pass(&recorder, "z", 4));
			recorder.opens = true;
			postern_runner_stop(scene.runner);
			CHECK_INT(recorder.stops, 1);
			CHECK_INT(recorder.ends, 1);
			CHECK_INT(recorder.completions_at_end, 3);
			/* The late receipts complete nothing a second time. */
			for (int tag = 1; tag <= 3; tag++) {
				CHECK_INT(recorder.completed[tag], 1);
				CHECK_INT(recorder.verdicts[tag], POSTERN_VERDICT_UNAVAILABLE);
			}
			CHECK_INT(recorder.completions, 3);
			CHECK_INT(recorder.resumes, 0);
			CHECK_INT(state_of(&scene).in_flight, 0);
			CHECK_INT(state_of(&scene).unavailable, 3);
		}
	}
	close_scene(&scene);
}

static void stopped_sink(void) {
	struct scene scene;
	struct recorder recorder;
	if (open_scene(&scene, 0) && start(&scene, &recorder, 0, 0)) {
		CHECK_OK(postern_runner_drain(scene.runner, PATIENCE_MS, &scene.error),
				&scene.error);
		CHECK_INT(recorder.stops, 1);
		CHECK_INT(recorder.ends, 0);
		CHECK(!pass(&recorder, "a", 1));
		CHECK_OK(postern_runner_drain(scene.runner, 0, &scene.error),
				&scene.error);
		CHECK_INT(recorder.stops, 1);
		postern_sink_connected(recorder.sink);
		postern_runner_stop(scene.runner);
		CHECK_INT(recorder.ends, 1);
		CHECK_OK(postern_runner_start(scene.runner, &scene.error),
				&scene.error);
		CHECK(!state_of(&scene).connected);
		CHECK_INT(state_of(&scene).since_ms, 0);
		CHECK(pass(&recorder, "a", 1));
		CHECK(await(&recorder.completions, 1));
	}
	close_scene(&scene);
	CHECK_INT(recorder.ends, 2);
	CHECK_INT(recorder.resumes, 0);
}

static void failing_start(void) {
	struct scene scene;
	struct recorder first;
	struct recorder second;
	struct postern_source_options options = {
		.size = sizeof options,
		.name = "first",
	};
	if (open_scene(&scene, 0)) {
		CHECK_OK(add_recorder(&scene, &first, &options), &scene.error);
		options.name = "second";
		CHECK_OK(add_recorder(&scene, &second, &options), &scene.error);
		second.fails = true;
		CHECK_INT(postern_runner_start(scene.runner, &scene.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_STR(scene.error.text, "no thread");
		CHECK_INT(first.stops, 1);
		CHECK_INT(first.ends, 1);
		CHECK_INT(second.stops, 0);
		CHECK_INT(second.ends, 0);
	}
	close_scene(&scene);
	CHECK_INT(destroyed, 2);
}

static void refused_options(void) {
	struct scene scene;
	struct recorder recorder;
	struct recorder late;
	struct recorder last;
	char name[POSTERN_SOURCE_NAME_LEN_MAX + 2];
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	const struct {
		struct postern_source_options options;
		int code;
		const char *text;
	} rows[] = {
		{ { 0 }, POSTERN_E_INVALID, "size member" },
		{ { sizeof rows[0].options, .name = NULL }, POSTERN_E_INVALID,
				"1 to 200 bytes" },
		{ { sizeof rows[0].options, .name = name }, POSTERN_E_INVALID,
				"1 to 200 bytes" },
		{ { sizeof rows[0].options, .name = "x", .channel = "nowhere" },
				POSTERN_E_NOTFOUND, "source 'x': no channel 'nowhere'" },
		{ { sizeof rows[0].options, .name = "x", .in_flight_max = 100001 },
				POSTERN_E_INVALID, "in_flight_max is at most 100000" },
		{ { sizeof rows[0].options, .name = "r" }, POSTERN_E_INVALID,
				"two sources are named 'r'" },
	};
	const struct postern_source_options good = {
		.size = sizeof good,
		.name = "r",
	};
	if (!open_scene(&scene, 0)) {
		return;
	}
	CHECK_OK(add_recorder(&scene, &recorder, &good), &scene.error);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_INT(add_recorder(&scene, &late, &rows[i].options), rows[i].code);
		CHECK_CONTAINS(scene.error.text, rows[i].text);
		CHECK_INT(destroyed, i + 1); /* taken, also on failure */
	}
	/* Of an older header, without the limits. */
	const struct postern_source_options older = {
		.size = offsetof(struct postern_source_options, in_flight_max),
		.name = "older",
		.in_flight_max = 100001,
	};
	CHECK_OK(add_recorder(&scene, &late, &older), &scene.error);
	CHECK_OK(postern_runner_start(scene.runner, &scene.error), &scene.error);
	const struct postern_source_options other = {
		.size = sizeof other,
		.name = "late",
	};
	CHECK_INT(add_recorder(&scene, &last, &other), POSTERN_E_BUSY);
	close_scene(&scene);
}

static void other_version(void) {
	struct scene scene;
	struct postern_source_ops ops = recorder_ops;
	struct postern_source source = { .ops = &ops };
	const struct postern_source_options options = {
		.size = sizeof options,
		.name = "r",
	};
	ops.version = 99;
	if (open_scene(&scene, 0)) {
		CHECK_INT(postern_runner_add_source_taking(scene.runner, &options,
						  &source, &scene.error),
				POSTERN_E_INVALID);
		CHECK_STR(scene.error.text,
				"source 'r' was written for version 99 of the interface; this "
				"libpostern has version 1");
	}
	close_scene(&scene);
}

static const struct tap_case cases[] = {
	{ "each message gets one completion with its verdict", verdicts },
	{ "what can never be accepted is kept by a source that quarantines",
			quarantined },
	{ "a copy of what is quarantined is known by its content",
			quarantined_by_content },
	{ "the state of a connection is kept, and its changes reported",
			connection_state },
	{ "a source with too many messages in flight is paused", full_by_count },
	{ "a source with one message in flight is resumed", full_by_one },
	{ "a source with too many bytes in flight is paused", full_by_bytes },
	{ "a source is resumed when half of its messages are stored",
			half_of_the_count },
	{ "a source is resumed when half of its bytes are stored",
			half_of_the_bytes },
	{ "a source is resumed when a full box has room", full_box },
	{ "a source that is stopped while it waits for room is not resumed",
			stopped_while_full },
	{ "a source that drains is not resumed when there is room",
			drained_while_full },
	{ "a source that ends while it passes a message gets no completion for it",
			ended_while_passing },
	{ "a stop completes what the store did not answer as unavailable",
			hung_store },
	{ "a stopped sink takes no message until the next start", stopped_sink },
	{ "a source that cannot start stops the others", failing_start },
	{ "options of a source are validated", refused_options },
	{ "a source of another version is refused", other_version },
};

TAP_MAIN(cases)
