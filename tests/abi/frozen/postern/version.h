/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_VERSION_H
#define POSTERN_VERSION_H

#include <postern/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version that a program was compiled with. */
#define POSTERN_VERSION "0.1.0"

/* The version that a program runs with: a static string such as "0.1.0". */
POSTERN_EXPORT const char *postern_version(void);

#ifdef __cplusplus
}
#endif

#endif
