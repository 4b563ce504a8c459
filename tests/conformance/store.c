/* SPDX-License-Identifier: MIT */

/*
 * The specification of a store. Each case opens a store of its own and states
 * one rule of postern/sys/store.h in its name; a store is correct if it passes
 * all of them. A bug found in one store becomes a case for every store.
 *
 * This file joins the parts; target.h describes how to test another store.
 */

#include <stdlib.h>

#include "conformance/cases.h"
#include "conformance/target.h"

#define CASE_COUNT_MAX 1000

static size_t append_cases(struct tap_case *cases, size_t count,
		const struct tap_case *part) {
	for (; part->name; part++) {
		if (count == CASE_COUNT_MAX) {
			(void)fprintf(stderr, "too many cases\n");
			abort();
		}
		cases[count++] = *part;
	}
	return count;
}

int main(int argc, char **argv) {
	static struct tap_case cases[CASE_COUNT_MAX];
	static const struct tap_case no_case = { 0 };
	const struct tap_case *const parts[] = {
		accept_cases,
		route_cases,
		key_cases,
		window_cases,
		settle_cases,
		claim_cases,
		clock_cases,
		pull_cases,
		recover_cases,
		suspect_cases,
		lock_cases,
		node_cases,
		conformance_target.shared ? engage_cases : &no_case,
		conformance_target.apart ? share_cases : &no_case,
		clean_cases,
		enrol_cases,
		name_cases,
		orphan_cases,
		park_cases,
		unpark_cases,
		rule_cases,
		edit_cases,
		halt_cases,
		filter_cases,
		group_cases,
		list_cases,
		read_cases,
		shown_cases,
		conformance_target.write ? transact_cases : no_transact_cases,
		thread_cases,
	};
	size_t count = 0;
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		count = append_cases(cases, count, parts[i]);
	}
	return tap_main(argc, argv, cases, count);
}
