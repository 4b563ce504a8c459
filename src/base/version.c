/* SPDX-License-Identifier: MIT */

/*
 * The version a program runs with, which may not be the one it was compiled
 * against.
 */

#include <postern/version.h>

const char *postern_version(void) {
	return POSTERN_VERSION;
}
