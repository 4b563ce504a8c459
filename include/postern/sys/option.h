/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_OPTION_H
#define POSTERN_SYS_OPTION_H

/*
 * An option is one row: how it is called, how its value is written, and where
 * the value is stored. Whoever has options has a table of rows: the server's
 * configuration has one, and so may a handler kind. The file, the environment,
 * the flags, `check --print` and the help are made from the rows.
 */

#include <postern/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a value is written, and the C type of the member that it is stored in. */
enum postern_option_type {
	POSTERN_OPTION_TEXT,     /* const char *; never empty */
	POSTERN_OPTION_DURATION, /* int64_t, milliseconds; "250ms", "30s", "7d" */
	POSTERN_OPTION_SIZE,     /* uint64_t, bytes; "64KiB" */
	POSTERN_OPTION_COUNT,    /* uint32_t */
	POSTERN_OPTION_SWITCH,   /* bool; "on", "off" */
	POSTERN_OPTION_CHOICE,   /* int: the position of a word in `choices` */
	/* const char *const *, directly followed by a size_t: their number. */
	POSTERN_OPTION_TEXTS,
	/* const int64_t *, directly followed by a size_t. As one text: "1s,10s". If
	   `choices` is a word, that word is a value too, and means NULL. */
	POSTERN_OPTION_DURATIONS
};

/* "none" is a value too, and means 0 or NULL. */
#define POSTERN_OPTION_NONE 1u
/* "default" is a value too, and means -1. */
#define POSTERN_OPTION_AUTO 2u
/* The value may be a secret: it is shown redacted; several texts are not shown.
 */
#define POSTERN_OPTION_SECRET 4u
/* Known, but this version accepts only the fallback, and stores nothing. */
#define POSTERN_OPTION_LATER 8u
/* Must be set: there is no fallback. */
#define POSTERN_OPTION_REQUIRED 16u
/* A path: in a file, a relative one starts at the directory of the file. */
#define POSTERN_OPTION_PATH 64u
/* Not shown, because it is long or may contain a secret; of several texts the
   first one is. */
#define POSTERN_OPTION_HIDDEN 32u

/* Of a handler's kind: written beside the key of the kind, not in its mapping.
 */
#define POSTERN_OPTION_BESIDE 128u
/* Of several texts: written as a mapping, and each text is "NAME=value". */
#define POSTERN_OPTION_PAIRS 256u

/* The most durations of one option; texts: `max`. */
#define POSTERN_OPTION_DURATION_COUNT_MAX 64

/* A version that adds members adds the size of a row to the structs that refer
   to rows, too; without that size, rows are as long as here. */
struct postern_option {
	const char *name; /* "max_attempts"; with a dot: a key of a mapping */
	enum postern_option_type type;
	size_t offset;        /* of the member, in the owner's struct */
	unsigned places;      /* where it may be set; the meaning is the owner's */
	unsigned flags;       /* POSTERN_OPTION_... */
	uint64_t min;         /* of numbers; of the number of texts */
	uint64_t max;         /* likewise */
	const char *choices;  /* "none|warn|fail" */
	const char *fallback; /* the default, as it is written; NULL: 0 or NULL */
	const char *help;     /* a few words, no full stop */
	const char *form;     /* "URL": the value in the help; NULL: by type */
	/* Validates a text further; may be NULL. */
	int (*check)(const char *text, struct postern_error *error);
};

#ifdef __cplusplus
}
#endif

#endif
