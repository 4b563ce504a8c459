/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_MARKER_TARGET_H
#define POSTERN_TESTS_MARKER_TARGET_H

/*
 * The markers under test. A program of the suite is linked with one file that
 * defines marker_target: marker_store.c for the markers of a store.
 */

#include <postern/sys/marker.h>
#include <postern/sys/store.h>
#include <stdbool.h>

struct marker_target {
	/* Open new, empty markers that use the clock and the random numbers of the
	   options; NULL if they cannot be opened. */
	struct postern_markers *(*open)(
			const struct postern_store_options *options);
	/* The same markers in another process, or as after a restart. Returns its
	   argument if they do not outlive the process. */
	struct postern_markers *(*reopen)(struct postern_markers *markers,
			const struct postern_store_options *options);
	void (*close)(struct postern_markers *markers);
	/* The store whose transact() runs units with a mark; NULL: none. */
	struct postern_store *(*store)(void);
	/* expire() works; else it is POSTERN_E_UNSUPPORTED. */
	bool expires;
};

extern const struct marker_target marker_target;

#endif
