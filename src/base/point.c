/* SPDX-License-Identifier: MIT */

/*
 * What happens at the named places, in builds that have them. The plan is
 * read from the environment once; each strike keeps its own count, so that
 * threads that pass the same place are told apart only by who came first.
 */

#include "base/point.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct strike {
	const char *variable;
	const char *name; /* NULL: never */
	size_t name_len;
	unsigned long at; /* 0: every time */
	atomic_ulong passes;
};

static struct strike strike_crash = { .variable = "POSTERN_CRASH_AT" };
static struct strike strike_pause = { .variable = "POSTERN_PAUSE_AT" };
static struct strike strike_fail = { .variable = "POSTERN_FAIL_AT" };
static pthread_once_t plan_once = PTHREAD_ONCE_INIT;

static postern__point_watcher *point_watcher;
static void *point_watcher_context;

/* Every place that was passed, for those who want to strike at all of them. */
#define TALLY_MAX 512

struct tally {
	const char *name;
	unsigned long passes;
};

static struct tally tallies[TALLY_MAX];
static bool tallying;
static pthread_mutex_t tally_mutex = PTHREAD_MUTEX_INITIALIZER;

static void tell_tallies(void) {
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

static void read_strike(struct strike *strike) {
	strike->name = getenv(strike->variable);
	if (!strike->name) {
		return;
	}
	const char *colon = strchr(strike->name, ':');
	strike->name_len =
			colon ? (size_t)(colon - strike->name) : strlen(strike->name);
	strike->at = colon ? strtoul(colon + 1, NULL, 10) : 1;
}

static void read_plan(void) {
	read_strike(&strike_crash);
	read_strike(&strike_pause);
	read_strike(&strike_fail);
	tallying = getenv("POSTERN_POINTS_TOLD");
	if (tallying) {
		(void)atexit(tell_tallies);
	}
}

static void begin(const char *name) {
	(void)pthread_once(&plan_once, read_plan);
	if (tallying) {
		count_pass(name);
	}
}

static bool hits(struct strike *strike, const char *name) {
	if (!strike->name || strlen(name) != strike->name_len ||
			strncmp(name, strike->name, strike->name_len) != 0) {
		return false;
	}
	unsigned long pass = atomic_fetch_add(&strike->passes, 1) + 1;
	return strike->at == 0 || pass == strike->at;
}

void postern__point(const char *name) {
	begin(name);
	if (point_watcher) {
		postern__point_watcher *watcher = point_watcher;
		point_watcher = NULL;
		watcher(point_watcher_context, name);
		point_watcher = watcher;
	}
	if (hits(&strike_crash, name)) {
		(void)raise(SIGKILL);
	}
	if (hits(&strike_pause, name)) {
		(void)raise(SIGSTOP);
	}
}

bool postern__point_fails(const char *name) {
	begin(name);
	return hits(&strike_fail, name);
}

void postern__point_watch(postern__point_watcher *watcher, void *context) {
	point_watcher = watcher;
	point_watcher_context = context;
}
