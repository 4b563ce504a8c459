/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CRASH_FAULTS_H
#define POSTERN_TESTS_CRASH_FAULTS_H

/*
 * Faults by number, chosen by the environment. Each happens once:
 *
 *   FAIL_CALL=N         the N-th call of the store fails before it is made
 *   FAIL_CALL=N:after   … after it took effect
 *   FAIL_MEMORY=N       the N-th allocation of the library fails
 *   FAIL_SQLITE=N       the N-th allocation of SQLite fails
 *
 * 0 fails nothing. FAULTS_TOLD names a file that gets how many calls and
 * allocations there were, when the program ends.
 */

#include <stdbool.h>

struct postern_store;

/* Read the plan; before SQLite is used for anything. */
void faults_begin(void);

/* Allocations of the library are counted from now on, or not any more: the
   program's own must not fail. */
void faults_arm(bool armed);

/* A store around this one, which is taken, that fails by the plan. NULL if
   there is no memory. */
struct postern_store *faults_wrap_taking(struct postern_store *store);

/* Write down what was counted. */
void faults_end(void);

#endif
