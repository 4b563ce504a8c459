/* SPDX-License-Identifier: MIT */
/*
 * Lines, and the source `lines`, on files that grow and are replaced, on pipes
 * and on standard input. What it must do as a source is in
 * tests/conformance/source.c.
 */

#include "tap.h"

#include <fcntl.h>
#include <postern/postern.h>
#include <postern/sys/option.h>
#include <postern/sys/source.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "source/line_reader.h"
#include "support/temp_dir.h"

/* Long enough for any machine; reached only when something is broken. */
#define PATIENCE_MS 10000
#define EVENT(id)                           \
	"{\"specversion\":\"1.0\",\"id\":\"" id \
	"\",\"source\":\"s\",\"type\":\"t\""    \
	"}"

struct scene {
	struct temp_dir folder;
	char path[TEMP_DIR_PATH_MAX + 16];
	struct postern_box *box;
	struct postern_runner *runner;
	struct postern_error error;
	pthread_mutex_t mutex;
	char notice[512]; /* the last one */
	int connects;
};

static void keep_notice(void *context, const struct postern_event *event) {
	struct scene *scene = context;
	(void)pthread_mutex_lock(&scene->mutex);
	(void)snprintf(scene->notice, sizeof scene->notice, "%s",
			postern_event_text(event));
	scene->connects += event->kind == POSTERN_EVENT_SOURCE_CONNECTED;
	(void)pthread_mutex_unlock(&scene->mutex);
}

static bool open_scene(struct scene *scene) {
	*scene = (struct scene){ 0 };
	(void)pthread_mutex_init(&scene->mutex, NULL);
	temp_dir_create(&scene->folder);
	temp_dir_name(&scene->folder, "", "lines", scene->path, sizeof scene->path);
	struct postern_runner_options options = {
		.size = sizeof options,
		.restart_delay_ms = 10,
	};
	struct postern_box_options box_options = {
		.size = sizeof box_options,
		.listener = keep_notice,
		.listener_context = scene,
	};
	struct postern_error *error = &scene->error;
	return CHECK_OK(postern_box_open("memory:", &box_options, &scene->box,
							error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_start(scene->box, error), error) &&
		   CHECK_OK(postern_runner_create(scene->box, &options, &scene->runner,
							error),
				   error);
}

static void close_scene(struct scene *scene) {
	postern_runner_destroy(scene->runner);
	postern_box_destroy(scene->box);
	temp_dir_destroy(&scene->folder);
	(void)pthread_mutex_destroy(&scene->mutex);
}

static int add_lines(struct scene *scene, const char *file,
		const char *follow) {
	const struct postern_source_options options = {
		.size = sizeof options,
		.name = "l",
		.channel = "c",
	};
	const struct postern_source_setting settings[] = {
		{ "file", file },
		{ "follow", follow },
	};
	return postern_runner_add_source(scene->runner, &options, "lines", settings,
			follow ? 2 : 1, &scene->error);
}

static bool start(struct scene *scene, const char *file, const char *follow) {
	return CHECK_OK(add_lines(scene, file, follow), &scene->error) &&
		   CHECK_OK(postern_runner_start(scene->runner, &scene->error),
				   &scene->error);
}

static void write_to(int fd, const char *text) {
	CHECK_INT(write(fd, text, strlen(text)), strlen(text));
}

static void append(struct scene *scene, const char *text) {
	int fd = open(scene->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (CHECK(fd >= 0)) {
		write_to(fd, text);
		(void)close(fd);
	}
}

static struct postern_source_state state_of(struct scene *scene) {
	struct postern_source_state state = { 0 };
	CHECK_INT(postern_runner_sources(scene->runner, &state, sizeof(state), 1),
			1);
	return state;
}

/* Wait until this many were accepted, rejected and duplicates. */
static bool await(struct scene *scene, uint64_t accepted, uint64_t rejected,
		uint64_t duplicates) {
	const struct timespec step = { .tv_nsec = 1000000 };
	struct postern_source_state state = state_of(scene);
	for (int ms = 0; ms < PATIENCE_MS &&
					 (state.accepted < accepted || state.rejected < rejected ||
							 state.duplicates < duplicates);
			ms++) {
		(void)nanosleep(&step, NULL);
		state = state_of(scene);
	}
	return CHECK_INT(state.accepted, accepted) &&
		   CHECK_INT(state.rejected, rejected) &&
		   CHECK_INT(state.duplicates, duplicates);
}

static bool await_connected(struct scene *scene, bool connected) {
	const struct timespec step = { .tv_nsec = 1000000 };
	for (int ms = 0;
			ms < PATIENCE_MS && (state_of(scene).connected != connected ||
										state_of(scene).since_ms == 0);
			ms++) {
		(void)nanosleep(&step, NULL);
	}
	return state_of(scene).connected == connected;
}

static void growing_file(void) {
	struct scene scene;
	if (open_scene(&scene)) {
		append(&scene, EVENT("1") "\n\n" EVENT("2") "\n");
		if (start(&scene, scene.path, NULL)) {
			CHECK(await(&scene, 2, 0, 0));
			/* A part of a line is none. */
			append(&scene, "{\"specversion\":\"1.0\",");
			append(&scene, "\"id\":\"3\",\"source\":\"s\",\"type\":\"t\"}\n");
			CHECK(await(&scene, 3, 0, 0));
			append(&scene, EVENT("1") "\n");
			CHECK(await(&scene, 3, 0, 1));
			CHECK(state_of(&scene).connected);
			CHECK_STR(state_of(&scene).kind, "lines");
			CHECK_STR(state_of(&scene).channel, "c");
		}
	}
	close_scene(&scene);
}

static void bad_lines(void) {
	struct scene scene;
	if (open_scene(&scene)) {
		append(&scene, EVENT("1") "\n\nnothing\n" EVENT("") "\n");
		append(&scene, EVENT("2") "\n");
		if (start(&scene, scene.path, NULL)) {
			CHECK(await(&scene, 2, 2, 0));
			append(&scene, "{}\n");
			CHECK(await(&scene, 2, 3, 0));
			postern_runner_stop(scene.runner);
			CHECK_STR(scene.notice,
					"source 'l': line 6 rejected: specversion is missing: not "
					"a CloudEvent");
		}
	}
	close_scene(&scene);
}

static void replaced_file(void) {
	struct scene scene;
	char old[sizeof scene.path + 8];
	if (open_scene(&scene)) {
		append(&scene, EVENT("1") "\n" EVENT("2") "\n");
		if (start(&scene, scene.path, NULL)) {
			CHECK(await(&scene, 2, 0, 0));
			(void)snprintf(old, sizeof old, "%s.old", scene.path);
			CHECK_INT(rename(scene.path, old), 0);
			append(&scene, EVENT("3") "\n");
			CHECK(await(&scene, 3, 0, 0));
			/* Truncated, and shorter than before. */
			CHECK_INT(truncate(scene.path, 0), 0);
			const struct timespec moment = { .tv_nsec = 500000000 };
			(void)nanosleep(&moment, NULL);
			append(&scene, EVENT("4") "\n");
			CHECK(await(&scene, 4, 0, 0));
		}
	}
	close_scene(&scene);
}

static void sleep_ms(long ms) {
	const struct timespec moment = { .tv_nsec = ms * 1000000 };
	(void)nanosleep(&moment, NULL);
}

static void append_event(struct scene *scene, const char *prefix, int number,
		const char *end) {
	char text[256];
	(void)snprintf(text, sizeof text,
			"{\"specversion\":\"1.0\",\"id\":\"%s%d\",\"source\":\"s\","
			"\"type\":\"t\"}%s",
			prefix, number, end);
	append(scene, text);
}

/* What was written to the old file before another took its name is read, also
   a last line without an end. */
static void replaced_at_once(void) {
	struct scene scene;
	char old[sizeof scene.path + 8];
	if (open_scene(&scene)) {
		append(&scene, EVENT("1") "\n");
		if (start(&scene, scene.path, NULL)) {
			CHECK(await(&scene, 1, 0, 0));
			(void)snprintf(old, sizeof old, "%s.old", scene.path);
			for (int i = 0; i < 6; i++) {
				append_event(&scene, "old", i, i % 2 ? "" : "\n");
				CHECK_INT(rename(scene.path, old), 0);
				append_event(&scene, "new", i, "\n");
				CHECK(await(&scene, 2 * (uint64_t)i + 3, 0, 0));
			}
			CHECK_INT(scene.connects, 1);
		}
	}
	close_scene(&scene);
}

/* The beginning of a line was read, and is gone. */
static void truncated_in_a_line(void) {
	struct scene scene;
	if (open_scene(&scene)) {
		append(&scene, "{\"id\":\"0\",");
		if (start(&scene, scene.path, NULL)) {
			CHECK(await_connected(&scene, true));
			sleep_ms(400);
			CHECK_INT(truncate(scene.path, 0), 0);
			sleep_ms(500);
			append(&scene, EVENT("1") "\n");
			CHECK(await(&scene, 1, 0, 0));
		}
	}
	close_scene(&scene);
}

static void missing_file(void) {
	struct scene scene;
	if (open_scene(&scene) && start(&scene, scene.path, NULL)) {
		CHECK(await_connected(&scene, false));
		CHECK_CONTAINS(state_of(&scene).error, "cannot open '");
		CHECK_CONTAINS(state_of(&scene).error, "No such file or directory");
		append(&scene, EVENT("1") "\n");
		CHECK(await(&scene, 1, 0, 0));
		CHECK(await_connected(&scene, true));
	}
	close_scene(&scene);
}

static void directory(void) {
	struct scene scene;
	if (open_scene(&scene) && start(&scene, scene.folder.path, NULL)) {
		const struct timespec step = { .tv_nsec = 1000000 };
		for (int ms = 0; ms < PATIENCE_MS && !state_of(&scene).error[0]; ms++) {
			(void)nanosleep(&step, NULL);
		}
		CHECK_CONTAINS(state_of(&scene).error, "Is a directory");
		/* It is tried again, and not reported as connected each time. */
		sleep_ms(100);
		CHECK_INT(scene.connects, 0);
	}
	close_scene(&scene);
}

static void file_once(void) {
	struct scene scene;
	if (open_scene(&scene)) {
		append(&scene, EVENT("1") "\n" EVENT("2")); /* without a line end */
		if (start(&scene, scene.path, "off")) {
			CHECK(await(&scene, 2, 0, 0));
			CHECK(await_connected(&scene, false));
			CHECK_STR(state_of(&scene).error, "");
			append(&scene, "\n" EVENT("3") "\n");
			const struct timespec moment = { .tv_nsec = 300000000 };
			(void)nanosleep(&moment, NULL);
			CHECK(await(&scene, 2, 0, 0));
		}
	}
	close_scene(&scene);
}

static void named_pipe(void) {
	struct scene scene;
	if (open_scene(&scene) && CHECK_INT(mkfifo(scene.path, 0600), 0) &&
			start(&scene, scene.path, NULL)) {
		CHECK(await_connected(&scene, true));
		append(&scene, EVENT("1") "\n" EVENT("2") "\n");
		CHECK(await(&scene, 2, 0, 0));
		/* Another writer. */
		append(&scene, EVENT("3") "\n");
		CHECK(await(&scene, 3, 0, 0));
		CHECK(state_of(&scene).connected);
		CHECK_INT(state_of(&scene).lag, -1);
	}
	close_scene(&scene);
}

static void standard_input(void) {
	struct scene scene;
	int ends[2];
	int saved = dup(STDIN_FILENO);
	if (open_scene(&scene) && CHECK_INT(pipe(ends), 0) &&
			CHECK_INT(dup2(ends[0], STDIN_FILENO), STDIN_FILENO) &&
			start(&scene, "-", NULL)) {
		write_to(ends[1], EVENT("1") "\n");
		CHECK(await(&scene, 1, 0, 0));
		CHECK(await_connected(&scene, true));
		write_to(ends[1], EVENT("2")); /* ends without a line end */
		(void)close(ends[1]);
		CHECK(await(&scene, 2, 0, 0));
		CHECK(await_connected(&scene, false));
		(void)close(ends[0]);
	}
	close_scene(&scene);
	(void)dup2(saved, STDIN_FILENO);
	(void)close(saved);
}

/* Also a file, which could be followed, but has no name. */
static void file_as_input(void) {
	struct scene scene;
	int saved = dup(STDIN_FILENO);
	if (open_scene(&scene)) {
		append(&scene, EVENT("1") "\n" EVENT("2"));
		int fd = open(scene.path, O_RDONLY | O_CLOEXEC);
		CHECK_INT(dup2(fd, STDIN_FILENO), STDIN_FILENO);
		(void)close(fd);
		if (start(&scene, "-", NULL)) {
			CHECK(await(&scene, 2, 0, 0));
			CHECK(await_connected(&scene, false));
		}
	}
	close_scene(&scene);
	(void)dup2(saved, STDIN_FILENO);
	(void)close(saved);
}

static void many_lines(void) {
	struct scene scene;
	if (open_scene(&scene)) {
		/* More than the window, many of them blank. */
		int fd = open(scene.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		for (int i = 0; i < 5000; i++) {
			char text[256];
			(void)snprintf(text, sizeof text, "%s%.*s\n",
					i % 2500 == 0 ? "" : "\n", 0, "");
			write_to(fd, text);
			(void)snprintf(text, sizeof text,
					"{\"specversion\":\"1.0\",\"id\":\"%d\",\"source\":\"s\","
					"\"type\":\"t\"}\n",
					i);
			write_to(fd, text);
		}
		for (int i = 0; i < 3000; i++) {
			write_to(fd, " \n");
		}
		write_to(fd, EVENT("last") "\n");
		(void)close(fd);
		if (start(&scene, scene.path, NULL)) {
			CHECK(await(&scene, 5001, 0, 0));
			CHECK_OK(postern_runner_drain(scene.runner, PATIENCE_MS,
							 &scene.error),
					&scene.error);
			postern_runner_stop(scene.runner);
			CHECK_INT(state_of(&scene).lag, 0);
		}
	}
	close_scene(&scene);
}

static int create_nothing(const void *settings, struct postern_source **out,
		struct postern_error *error) {
	(void)settings;
	(void)out;
	*error = (struct postern_error){ POSTERN_E_UNSUPPORTED, "none" };
	return POSTERN_E_UNSUPPORTED;
}

static void refused_settings(void) {
	struct scene scene;
	const struct postern_source_options options = {
		.size = sizeof options,
		.name = "l",
	};
	const struct postern_source_setting wrong[] = { { "path", "x" } };
	const struct postern_source_setting both[] = { { "file", "x" },
		{ "path", "x" } };
	if (!open_scene(&scene)) {
		return;
	}
	struct postern_error *error = &scene.error;
	CHECK_INT(postern_runner_add_source(scene.runner, &options, "line", NULL, 0,
					  error),
			POSTERN_E_INVALID);
	CHECK_STR(error->text, "there is no kind of source named 'line'");
	CHECK_INT(postern_runner_add_source(scene.runner, &options, "lines", wrong,
					  1, error),
			POSTERN_E_INVALID);
	CHECK_STR(error->text, "a source of kind 'lines' needs the option 'file'");
	CHECK_INT(postern_runner_add_source(scene.runner, &options, "lines", both,
					  2, error),
			POSTERN_E_INVALID);
	CHECK_STR(error->text, "a source of kind 'lines' has no option 'path'");
	CHECK_INT(add_lines(&scene, "x", "perhaps"), POSTERN_E_INVALID);
	CHECK_CONTAINS(error->text, "lines.follow: ");

	struct postern_source_kind kind = {
		.size = sizeof kind,
		.name = "Nothing",
		.create = create_nothing,
	};
	CHECK_INT(postern_source_kind_register(&kind, error), POSTERN_E_INVALID);
	kind.name = "lines";
	CHECK_INT(postern_source_kind_register(&kind, error), POSTERN_E_INVALID);
	CHECK_STR(error->text, "a source kind 'lines' is already registered");
	kind.name = "nothing";
	kind.size = 1;
	CHECK_INT(postern_source_kind_register(&kind, error), POSTERN_E_INVALID);
	kind.size = sizeof kind;
	CHECK_OK(postern_source_kind_register(&kind, error), error);
	CHECK_INT(postern_runner_add_source(scene.runner, &options, "nothing", NULL,
					  0, error),
			POSTERN_E_UNSUPPORTED);
	close_scene(&scene);
}

/* Rows of kinds that must not be registered. */
static void refused_rows(void) {
	struct row {
		const char *text;
		bool on;
	};
	struct postern_option options[] = {
		{ .name = "text", .type = POSTERN_OPTION_TEXT },
		{ .name = "on",
				.type = POSTERN_OPTION_SWITCH,
				.offset = offsetof(struct row, on) },
	};
	struct postern_source_kind kind = {
		.size = sizeof kind,
		.name = "rows",
		.options = options,
		.option_count = 2,
		.settings_size = sizeof(struct row),
		.create = create_nothing,
	};
	struct {
		struct postern_source_kind known;
		size_t more;
	} newer = { .more = 1 };
	struct postern_error error;
	kind.settings_size = sizeof(const char *);
	CHECK_INT(postern_source_kind_register(&kind, &error), POSTERN_E_INVALID);
	CHECK_STR(error.text,
			"source kind 'rows': option 'on': its member is not inside the "
			"struct of 8 bytes");
	kind.settings_size = sizeof(struct row);
	options[1].name = "text";
	CHECK_INT(postern_source_kind_register(&kind, &error), POSTERN_E_INVALID);
	CHECK_STR(error.text, "source kind 'rows': option 'text': there are two");
	options[1].name = "On";
	CHECK_INT(postern_source_kind_register(&kind, &error), POSTERN_E_INVALID);
	options[1].name = "on";
	options[1].fallback = "perhaps";
	CHECK_INT(postern_source_kind_register(&kind, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "option 'on': 'perhaps' is not a switch");
	options[1].fallback = "on";
	options[1].flags = POSTERN_OPTION_REQUIRED;
	CHECK_INT(postern_source_kind_register(&kind, &error), POSTERN_E_INVALID);
	options[1].flags = 0;
	kind.options = NULL;
	CHECK_INT(postern_source_kind_register(&kind, &error), POSTERN_E_INVALID);
	kind.options = options;
	kind.name = "name"; /* the key of a source's name */
	CHECK_INT(postern_source_kind_register(&kind, &error), POSTERN_E_INVALID);
	kind.name = "rows";
	newer.known = kind;
	newer.known.size = sizeof newer;
	CHECK_INT(postern_source_kind_register(&newer.known, &error),
			POSTERN_E_UNSUPPORTED);
	newer.more = 0;
	CHECK_OK(postern_source_kind_register(&newer.known, &error), &error);
}

struct several {
	const char *one;
	const char *const *texts;
	size_t count;
};

/* Reports what it got as its error. */
static int create_several(const void *settings, struct postern_source **out,
		struct postern_error *error) {
	const struct several *several = settings;
	(void)out;
	error->code = POSTERN_E_UNSUPPORTED;
	size_t len = (size_t)snprintf(error->text, sizeof error->text,
			"%s:", several->one);
	for (size_t i = 0; i < several->count; i++) {
		len += (size_t)snprintf(error->text + len, sizeof error->text - len,
				" %s", several->texts[i]);
	}
	return POSTERN_E_UNSUPPORTED;
}

static void several_values(void) {
	static const struct postern_option rows[] = {
		{ .name = "one",
				.type = POSTERN_OPTION_TEXT,
				.offset = offsetof(struct several, one) },
		{ .name = "texts",
				.type = POSTERN_OPTION_TEXTS,
				.offset = offsetof(struct several, texts),
				.min = 1,
				.max = 3 },
	};
	const struct postern_source_kind kind = {
		.size = sizeof kind,
		.name = "several",
		.options = rows,
		.option_count = 2,
		.settings_size = sizeof(struct several),
		.create = create_several,
	};
	const struct postern_source_options options = {
		.size = sizeof options,
		.name = "s",
	};
	const struct postern_source_setting settings[] = { { "texts", "b" },
		{ "one", "x" }, { "texts", "a" }, { "texts", "c" }, { "texts", "d" } };
	struct scene scene;
	if (!open_scene(&scene)) {
		return;
	}
	struct postern_error *error = &scene.error;
	CHECK_OK(postern_source_kind_register(&kind, error), error);
	CHECK_INT(postern_runner_add_source(scene.runner, &options, "several",
					  settings, 4, error),
			POSTERN_E_UNSUPPORTED);
	CHECK_STR(error->text, "x: b a c");
	CHECK_INT(postern_runner_add_source(scene.runner, &options, "several",
					  settings, 5, error),
			POSTERN_E_INVALID);
	CHECK_STR(error->text, "several.texts: must have 1 to 3 entries");
	close_scene(&scene);
}

static pthread_barrier_t barrier;

static void *register_rival(void *context) {
	char *name = context;
	const struct postern_source_kind kind = {
		.size = sizeof kind,
		.name = name,
		.create = create_nothing,
	};
	(void)pthread_barrier_wait(&barrier);
	bool won = postern_source_kind_register(&kind, NULL) == POSTERN_OK;
	return won ? name : NULL;
}

static void registered_at_once(void) {
	static char names[20][8];
	pthread_t threads[4];
	for (int i = 0; i < 20; i++) {
		int winners = 0;
		(void)snprintf(names[i], sizeof names[i], "rival%d", i);
		(void)pthread_barrier_init(&barrier, NULL, 4);
		for (int j = 0; j < 4; j++) {
			CHECK_INT(pthread_create(&threads[j], NULL, register_rival,
							  names[i]),
					0);
		}
		for (int j = 0; j < 4; j++) {
			void *won;
			(void)pthread_join(threads[j], &won);
			winners += won != NULL;
		}
		(void)pthread_barrier_destroy(&barrier);
		CHECK_INT(winners, 1);
	}
}

/* Feed the reader through a pipe, one piece per read. */
static void read_piece(struct postern__line_reader *reader, const int ends[2],
		const char *text) {
	long len = 0;
	struct postern_error error;
	write_to(ends[1], text);
	CHECK_OK(postern__line_reader_read(reader, ends[0], &len, &error), &error);
	CHECK_INT(len, strlen(text));
}

static void expect_line(struct postern__line_reader *reader, uint64_t number,
		const char *text) {
	struct postern__line line;
	if (CHECK(postern__line_reader_next(reader, &line))) {
		CHECK_INT(reader->line, number);
		CHECK_INT(line.too_long, text == NULL);
		if (text) {
			CHECK_MEM(line.text, line.len, text, strlen(text));
			CHECK_INT(line.blank, text[0] == '\0');
		}
	}
}

static void long_lines(void) {
	struct postern__line_reader reader;
	struct postern__line line;
	int ends[2];
	if (!CHECK_INT(pipe(ends), 0)) {
		return;
	}
	postern__line_reader_init(&reader, 4);
	read_piece(&reader, ends, "a\nab");
	expect_line(&reader, 1, "a");
	CHECK(!postern__line_reader_next(&reader, &line));
	read_piece(&reader, ends, "cd\n\nabcde\nx\n");
	expect_line(&reader, 2, "abcd");
	expect_line(&reader, 3, "");
	expect_line(&reader, 4, NULL);
	expect_line(&reader, 5, "x");
	CHECK(!postern__line_reader_next(&reader, &line));
	CHECK_INT(reader.offset, 16);
	/* Without an end in sight: reported once, and skipped. */
	read_piece(&reader, ends, "12345");
	expect_line(&reader, 6, NULL);
	CHECK(!postern__line_reader_next(&reader, &line));
	read_piece(&reader, ends, "6789");
	CHECK(!postern__line_reader_next(&reader, &line));
	read_piece(&reader, ends, "0\ny\nrest");
	expect_line(&reader, 7, "y");
	CHECK(!postern__line_reader_next(&reader, &line));
	reader.end = true;
	expect_line(&reader, 8, "rest");
	CHECK(!postern__line_reader_next(&reader, &line));
	CHECK_INT(reader.offset, 33);
	postern__line_reader_reset(&reader);
	read_piece(&reader, ends, "z\n");
	expect_line(&reader, 1, "z");
	postern__line_reader_finish(&reader);
	(void)close(ends[0]);
	(void)close(ends[1]);
}

static const struct tap_case cases[] = {
	{ "a file is followed as it grows", growing_file },
	{ "a bad line is counted and logged with its number", bad_lines },
	{ "a file that is replaced or truncated is read again", replaced_file },
	{ "a file that is replaced is read to its end", replaced_at_once },
	{ "a file is truncated after a part of a line", truncated_in_a_line },
	{ "a file that is missing is waited for", missing_file },
	{ "a directory is an error", directory },
	{ "without follow a file is read once", file_once },
	{ "a named pipe stays open between its writers", named_pipe },
	{ "standard input ends when it ends", standard_input },
	{ "standard input that is a file ends, too", file_as_input },
	{ "more lines than the window, blank ones among them", many_lines },
	{ "unknown kinds, options and values are refused", refused_settings },
	{ "a kind with wrong rows is refused", refused_rows },
	{ "an option with several texts has the settings of its name, in order",
			several_values },
	{ "one of several threads registers a name", registered_at_once },
	{ "a line that is too long is skipped, and those after it are not",
			long_lines },
};

TAP_MAIN(cases)
