/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_POINT_H
#define POSTERN_BASE_POINT_H

/*
 * Crash points: named places in the code where a test can kill or stop the
 * process, or make a call fail. Compiled with -Dpoints=true only; in any other
 * build they are empty and cost nothing.
 *
 *   POSTERN_CRASH_AT=NAME:N   the N-th pass of NAME kills the process
 *   POSTERN_PAUSE_AT=NAME:N   … stops it (SIGSTOP) until SIGCONT
 *   POSTERN_FAIL_AT=NAME:N    … makes postern__point_fails() true
 *   POSTERN_POINTS_TOLD=FILE  at exit, FILE gets the passes of each point
 *
 * NAME is "noun.where", as in "commit.before"; N counts from 1 (also if it is
 * left out), and 0 means every pass.
 */

#include <stdbool.h>

#ifdef POSTERN_POINTS

void postern__point(const char *name);
bool postern__point_fails(const char *name);

/*
 * Called for every pass, before the actions: a simulation lets other nodes run
 * there. For tests with one thread; NULL removes it. Not called for points that
 * the watcher itself passes.
 */
typedef void postern__point_watcher(void *context, const char *name);
void postern__point_watch(postern__point_watcher *watcher, void *context);

#else

#define postern__point(name) ((void)0)
#define postern__point_fails(name) false

#endif

#endif
