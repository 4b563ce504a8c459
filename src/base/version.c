/* SPDX-License-Identifier: MIT */

/*
 * The version that a program runs with, which may differ from the one that it
 * was compiled with.
 */

#include <postern/version.h>

const char *postern_version(void) {
	return POSTERN_VERSION;
}
