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
 * 0 fails nothing. When the program ends, it writes the numbers of calls and
 * allocations to the file that FAULTS_TOLD names.
 */

#include <stdbool.h>

struct postern_store;

/* Read the plan; call this before any use of SQLite. */
void faults_begin(void);

/* Start or stop counting allocations of the library; those of the program
   itself must not fail. */
void faults_arm(bool armed);

/* Wrap a store, which is taken, in one that fails by the plan. NULL if out of
   memory. */
struct postern_store *faults_wrap_taking(struct postern_store *store);

/* Write the counts. */
void faults_end(void);

#endif
