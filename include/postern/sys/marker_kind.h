/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_MARKER_KIND_H
#define POSTERN_SYS_MARKER_KIND_H

/*
 * A kind of store that keeps markers and nothing else. A library registers its
 * row, and from then on postern_guard_open() opens such URLs.
 */

#include <postern/error.h>
#include <postern/export.h>
#include <postern/sys/marker.h>
#include <postern/sys/store_kind.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most kinds that can be registered in a process. */
#define POSTERN_MARKER_KIND_COUNT_MAX 16
/* The longest name, and the longest scheme. */
#define POSTERN_MARKER_KIND_NAME_LEN_MAX 15

/*
 * Every function but library() is required, and has the whole URL. No error
 * quotes a part of the URL that may be secret.
 */
struct postern_marker_kind {
	size_t size;
	const char *name;   /* "redis"; kinds of the same name differ only in their
						   scheme */
	const char *scheme; /* "rediss" */
	const char *form;   /* of a URL, for people: "redis://HOST" */

	/* Validate the URL without opening anything: POSTERN_E_INVALID. */
	int (*check)(const char *url, struct postern_error *error);

	/* The options are complete: clock and random are never NULL. Called with
	   a URL that check() accepts. */
	int (*open)(const char *url, const struct postern_store_options *options,
			struct postern_markers **out, struct postern_error *error);

	/* Call `find` with POSTERN_E_INVALID for each setting of the server by
	   which a marker that is done can be lost, with a text that names the
	   setting and how much is lost. */
	int (*examine)(struct postern_markers *markers, postern_store_find *find,
			void *context, struct postern_error *error);

	/* The client libraries by number, and their versions; NULL past the last.
	   May be NULL: none. */
	const char *(*library)(size_t index, const char **version_out);
};

/*
 * Register a kind for the rest of the process. The row is copied; its texts
 * stay borrowed. Registering the same functions for the same scheme again
 * changes nothing.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_INVALID  the row breaks a rule, the scheme is in use, or too
 *                      many kinds are registered
 */
POSTERN_EXPORT int
postern_marker_kind_register(const struct postern_marker_kind *kind,
		struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
