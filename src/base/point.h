/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_POINT_H
#define POSTERN_BASE_POINT_H

/*
 * Named places in the code where a test may strike. Built in with
 * -Dpoints=true only: in any other build all of it is nothing, and the
 * compiler removes what hangs on it.
 *
 *   POSTERN_CRASH_AT=NAME:N   the N-th pass of NAME kills the process
 *   POSTERN_PAUSE_AT=NAME:N   … stops it (SIGSTOP) until somebody goes on
 *   POSTERN_FAIL_AT=NAME:N    … makes postern__point_fails() true
 *   POSTERN_POINTS_TOLD=FILE  gets how often each place was passed, at exit
 *
 * NAME is "noun.where", as in "commit.before"; N counts from 1 (also if it is
 * left out), and 0 means every pass.
 */

#include <stdbool.h>

#ifdef POSTERN_POINTS

void postern__point(const char *name);
bool postern__point_fails(const char *name);

/*
 * Told about every pass, before anything is struck: a simulation lets other
 * nodes go on there. For tests with one thread; NULL ends it. Passes of
 * places that the watcher itself goes through are not told.
 */
typedef void postern__point_watcher(void *context, const char *name);
void postern__point_watch(postern__point_watcher *watcher, void *context);

#else

#define postern__point(name) ((void)0)
#define postern__point_fails(name) false

#endif

#endif
