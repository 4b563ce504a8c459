/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CASES_H
#define POSTERN_TESTS_CASES_H

/*
 * The parts of the suite, one for each noun of the contract. Every table ends
 * with a row that has no name.
 */

#include "tap.h"

extern const struct tap_case accept_cases[];
extern const struct tap_case route_cases[];
extern const struct tap_case settle_cases[];
extern const struct tap_case claim_cases[];
extern const struct tap_case clock_cases[];
extern const struct tap_case recover_cases[];
extern const struct tap_case suspect_cases[];
extern const struct tap_case tenure_cases[];
extern const struct tap_case node_cases[];
/* Where nodes can meet. */
extern const struct tap_case engage_cases[];
extern const struct tap_case clean_cases[];
extern const struct tap_case enrol_cases[];
extern const struct tap_case orphan_cases[];
extern const struct tap_case park_cases[];
extern const struct tap_case edit_cases[];
extern const struct tap_case list_cases[];
extern const struct tap_case look_cases[];
/* The one or the other, as the store has transactions or not. */
extern const struct tap_case transact_cases[];
extern const struct tap_case no_transact_cases[];
extern const struct tap_case thread_cases[];

#endif
