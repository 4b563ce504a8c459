/* SPDX-License-Identifier: MIT */

/*
 * Crash points. A process reads its plan once, so each plan runs in a child
 * process of its own.
 */

#include "base/point.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/temp_dir.h"
#include "tap.h"

#define ENDED 42

static void pass_both(void) {
	for (int i = 0; i < 3; i++) {
		postern__point("here.before");
		postern__point("here.after");
	}
	_exit(ENDED);
}

/* Returns the exit status of a child with this plan. A child that stops is
   continued, and its stops are counted. */
static int run_child(const char *variable, const char *value, void (*run)(void),
		int *stops_out) {
	int status = 0;
	int stops = 0;
	pid_t pid = fork();
	if (pid == 0) {
		(void)setenv(variable, value, 1);
		run();
		_exit(0);
	}
	while (CHECK(pid > 0) && waitpid(pid, &status, WUNTRACED) == pid &&
			WIFSTOPPED(status)) {
		stops++;
		(void)kill(pid, SIGCONT);
	}
	if (stops_out) {
		*stops_out = stops;
	}
	return status;
}

static bool was_killed(int status) {
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static bool has_ended(int status) {
	return WIFEXITED(status) && WEXITSTATUS(status) == ENDED;
}

static void crashes(void) {
	const char *name = "POSTERN_CRASH_AT";
	CHECK(was_killed(run_child(name, "here.before:1", pass_both, NULL)));
	CHECK(was_killed(run_child(name, "here.after:3", pass_both, NULL)));
	CHECK(was_killed(run_child(name, "here.after", pass_both, NULL)));
	CHECK(was_killed(run_child(name, "here.after:0", pass_both, NULL)));
	CHECK(has_ended(run_child(name, "here.after:4", pass_both, NULL)));
}

static void names_are_whole(void) {
	const char *name = "POSTERN_CRASH_AT";
	CHECK(has_ended(run_child(name, "here.befor:1", pass_both, NULL)));
	CHECK(has_ended(run_child(name, "here.before2:1", pass_both, NULL)));
	CHECK(has_ended(run_child(name, "", pass_both, NULL)));
	CHECK(has_ended(run_child(name, ":", pass_both, NULL)));
	CHECK(has_ended(
			run_child("POSTERN_FAIL_AT", "here.after:1", pass_both, NULL)));
}

static void pauses(void) {
	int stops;
	const char *name = "POSTERN_PAUSE_AT";
	CHECK(has_ended(run_child(name, "here.before:2", pass_both, &stops)));
	CHECK_INT(stops, 1);
	CHECK(has_ended(run_child(name, "here.before:0", pass_both, &stops)));
	CHECK_INT(stops, 3);
	CHECK(has_ended(run_child(name, "here.before:4", pass_both, &stops)));
	CHECK_INT(stops, 0);
}

/* Exits with a bit set for each pass that failed. */
static void count_failures(void) {
	int failed = 0;
	for (int i = 0; i < 3; i++) {
		failed |= postern__point_fails("it.fails") ? 1 << i : 0;
		failed |= postern__point_fails("another.fails") ? 1 << 4 : 0;
	}
	_exit(failed);
}

static void fails(void) {
	const char *name = "POSTERN_FAIL_AT";
	int status = run_child(name, "it.fails:2", count_failures, NULL);
	CHECK_INT(WEXITSTATUS(status), 2);
	status = run_child(name, "it.fails:0", count_failures, NULL);
	CHECK_INT(WEXITSTATUS(status), 7);
	status = run_child(name, "it:1", count_failures, NULL);
	CHECK_INT(WEXITSTATUS(status), 0);
}

static void watch_point(void *context, const char *name) {
	int *seen = context;
	*seen += strcmp(name, "watched.before") == 0;
	postern__point("watched.before"); /* not reported: the watcher passes it */
}

static void watched(void) {
	int seen = 0;
	postern__point_watch(watch_point, &seen);
	postern__point("watched.before");
	postern__point("watched.after");
	postern__point("watched.before");
	postern__point_watch(NULL, NULL);
	postern__point("watched.before");
	CHECK_INT(seen, 2);
}

static void pass_and_exit(void) {
	postern__point("here.before");
	postern__point("here.before");
	(void)postern__point_fails("it.fails");
	exit(ENDED);
}

static void counted(void) {
	struct temp_dir dir;
	char path[300];
	char text[100] = "";
	temp_dir_create(&dir);
	temp_dir_name(&dir, "", "told", path, sizeof path);
	CHECK(has_ended(
			run_child("POSTERN_POINTS_TOLD", path, pass_and_exit, NULL)));
	FILE *file = fopen(path, "r");
	if (CHECK(file)) {
		CHECK(fread(text, 1, sizeof text - 1, file) > 0);
		(void)fclose(file);
	}
	CHECK_STR(text, "here.before 2\nit.fails 1\n");
	temp_dir_destroy(&dir);
}

static const struct tap_case cases[] = {
	{ "the n-th pass of a crash point kills the process", crashes },
	{ "a plan applies only to the point with exactly its name",
			names_are_whole },
	{ "the n-th pass of a crash point stops the process", pauses },
	{ "the n-th pass of a crash point fails", fails },
	{ "all passes are counted and written to the file", counted },
	/* This case makes the process read its plan, which its children inherit:
	   keep it last. */
	{ "a watcher is called for every pass but its own", watched },
};

TAP_MAIN(cases)
