/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CASES_H
#define POSTERN_TESTS_CASES_H

/*
 * The parts of the suite, one for each noun of the contract. Every table ends
 * with a row whose name is NULL.
 */

#include "tap.h"

extern const struct tap_case accept_cases[];
extern const struct tap_case route_cases[];
extern const struct tap_case key_cases[];
extern const struct tap_case window_cases[];
extern const struct tap_case settle_cases[];
extern const struct tap_case claim_cases[];
extern const struct tap_case clock_cases[];
extern const struct tap_case pull_cases[];
extern const struct tap_case recover_cases[];
extern const struct tap_case suspect_cases[];
extern const struct tap_case lock_cases[];
extern const struct tap_case node_cases[];
/* Only for stores that several nodes, or processes, can share. */
extern const struct tap_case engage_cases[];
extern const struct tap_case share_cases[];
extern const struct tap_case clean_cases[];
extern const struct tap_case enrol_cases[];
extern const struct tap_case name_cases[];
extern const struct tap_case orphan_cases[];
extern const struct tap_case park_cases[];
extern const struct tap_case unpark_cases[];
extern const struct tap_case rule_cases[];
extern const struct tap_case edit_cases[];
extern const struct tap_case halt_cases[];
extern const struct tap_case filter_cases[];
extern const struct tap_case group_cases[];
extern const struct tap_case list_cases[];
extern const struct tap_case read_cases[];
extern const struct tap_case shown_cases[];
/* The first for stores with transactions, the second for stores without. */
extern const struct tap_case transact_cases[];
extern const struct tap_case no_transact_cases[];
extern const struct tap_case thread_cases[];

#endif
