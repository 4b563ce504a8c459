/* SPDX-License-Identifier: MIT */
/*
 * Sinks: what a source is told, and when it is paused. What every source must
 * do is in tests/conformance/source.c.
 */

#include "tap.h"

#include "unit/source_scene.h"

/* The limit of postern_box_accept_async(). */
#define ASYNC_COUNT_MAX 100000

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
