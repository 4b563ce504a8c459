/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_EXPORT_H
#define POSTERN_EXPORT_H

/* Marks what the shared library exports; everything else stays hidden. */
#define POSTERN_EXPORT __attribute__((visibility("default")))

#endif
