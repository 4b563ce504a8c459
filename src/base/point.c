/* SPDX-License-Identifier: MIT */

/*
 * Crash points, in builds that have them. The actions are read from the
 * environment once. Each action counts the passes of its point over all
 * threads.
 */

#include "base/point.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct point_action {
	const char *variable;
	const char *name; /* NULL: never */
	size_t name_len;
	unsigned long at; /* 0: every pass */
	atomic_ulong passes;
};

static struct point_action crash_action = { .variable = "POSTERN_CRASH_AT" };
static struct point_action pause_action = { .variable = "POSTERN_PAUSE_AT" };
static struct point_action fail_action = { .variable = "POSTERN_FAIL_AT" };
static pthread_once_t environment_once = PTHREAD_ONCE_INIT;

static postern__point_watcher *point_watcher;
static void *point_watcher_context;

/* Every point that was passed, for tests that use all of them. */
#define TALLY_MAX 512

struct tally {
	const char *name;
	unsigned long passes;
};

static struct tally tallies[TALLY_MAX];
static bool tallying;
static pthread_mutex_t tally_mutex = PTHREAD_MUTEX_INITIALIZER;

static void write_tallies(void) {
	FILE *file = fopen(getenv("POSTERN_POINTS_TOLD"), "w");
	for (size_t i = 0; file && i < TALLY_MAX && tallies[i].name; i++) {
		(void)fprintf(file, "%s %lu\n", tallies[i].name, tallies[i].passes);
	}
	if (file) {
		(void)fclose(file);
	}
}

static void count_pass(const char *name) {
	(void)pthread_mutex_lock(&tally_mutex);
	size_t i = 0;
	while (i < TALLY_MAX && tallies[i].name &&
			strcmp(tallies[i].name, name) != 0) {
		i++;
	}
	if (i < TALLY_MAX) {
		tallies[i].name = name;
		tallies[i].passes++;
	}
	(void)pthread_mutex_unlock(&tally_mutex);
}

static void read_action(struct point_action *action) {
	action->name = getenv(action->variable);
	if (!action->name) {
		return;
	}
	const char *colon = strchr(action->name, ':');
	action->name_len =
			colon ? (size_t)(colon - action->name) : strlen(action->name);
	action->at = colon ? strtoul(colon + 1, NULL, 10) : 1;
}

static void read_environment(void) {
	read_action(&crash_action);
	read_action(&pause_action);
	read_action(&fail_action);
	tallying = getenv("POSTERN_POINTS_TOLD");
	if (tallying) {
		(void)atexit(write_tallies);
	}
}

static void point_passed(const char *name) {
	(void)pthread_once(&environment_once, read_environment);
	if (tallying) {
		count_pass(name);
	}
}

static bool action_due(struct point_action *action, const char *name) {
	if (!action->name || strlen(name) != action->name_len ||
			strncmp(name, action->name, action->name_len) != 0) {
		return false;
	}
	unsigned long pass = atomic_fetch_add(&action->passes, 1) + 1;
	return action->at == 0 || pass == action->at;
}

void postern__point(const char *name) {
	point_passed(name);
	if (point_watcher) {
		postern__point_watcher *watcher = point_watcher;
		point_watcher = NULL;
		watcher(point_watcher_context, name);
		point_watcher = watcher;
	}
	if (action_due(&crash_action, name)) {
		(void)raise(SIGKILL);
	}
	if (action_due(&pause_action, name)) {
		(void)raise(SIGSTOP);
	}
}

bool postern__point_fails(const char *name) {
	point_passed(name);
	return action_due(&fail_action, name);
}

void postern__point_watch(postern__point_watcher *watcher, void *context) {
	point_watcher = watcher;
	point_watcher_context = context;
}
