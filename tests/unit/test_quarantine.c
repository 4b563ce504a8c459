/* SPDX-License-Identifier: MIT */
/* What a sink keeps of messages that can never be accepted. */

#include "tap.h"

#include "unit/source_scene.h"

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

static const struct tap_case cases[] = {
	{ "what can never be accepted is kept by a source that quarantines",
			quarantined },
	{ "a copy of what is quarantined is known by its content",
			quarantined_by_content },
};

TAP_MAIN(cases)
