/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_UNIT_NO_MEMORY_H
#define POSTERN_TESTS_UNIT_NO_MEMORY_H

/*
 * For tests that allocate more memory than can exist: these options make the
 * sanitizers return NULL instead of ending the program. Include it in one file
 * of a program.
 */

#include <stdint.h>

/* No machine has this much, and no compiler objects to it. */
#define TOO_MANY_BYTES (SIZE_MAX / 4)

const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void) {
	return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void) {
	return "allocator_may_return_null=1";
}

#endif
