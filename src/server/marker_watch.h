/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_MARKER_WATCH_H
#define POSTERN_SERVER_MARKER_WATCH_H

/*
 * Watches a store that keeps markers only, for as long as a server has it. A
 * box reports what becomes of its store; this store has none. A thread asks the
 * store's server for its settings at the start and every few seconds: when the
 * server cannot be reached, the store is unavailable; a setting by which
 * markers can be lost is reported when it is found, and when it changes.
 */

#include <postern/error.h>
#include <postern/event.h>
#include <postern/guard.h>
#include <stddef.h>

struct postern__marker_watch;

/* Enough for what postern_guard_check() finds. */
#define POSTERN__MARKER_WARNING_MAX 640

/*
 * Check the store once, report what is found, and begin to watch it.
 *
 * guard     on the store; outlives the watch.
 * listener  gets STORE_UNSAFE, STORE_FAILED and STORE_WORKS.
 *
 * POSTERN_E_NOMEM: no thread could be started.
 */
int postern__marker_watch_start(struct postern_guard *guard,
		postern_listener *listener, void *context,
		struct postern__marker_watch **out, struct postern_error *error);

/* Waits for an answer of the server that may be outstanding. May be NULL. */
void postern__marker_watch_destroy(struct postern__marker_watch *watch);

/* POSTERN_E_UNAVAILABLE: the store's server could not be reached when it was
   last asked. Never waits for it. */
int postern__marker_watch_check(struct postern__marker_watch *watch,
		struct postern_error *error);

/* The settings by which markers can be lost, as one line; "": none. */
void postern__marker_watch_warning(struct postern__marker_watch *watch,
		char out[POSTERN__MARKER_WARNING_MAX]);

#endif
