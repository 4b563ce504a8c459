/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_SERVER_CHECK_H
#define POSTERN_SERVER_SERVER_CHECK_H

/*
 * Checks a configuration on the database server of a store, before the first
 * message: SQL of handlers that could not run, missing rights, a listen_url
 * without notifications. Nothing is run or created; a store without a server
 * has nothing to check.
 *
 * `postern check` checks once and waits; `postern serve` checks on a thread of
 * its own while it serves, and logs warnings.
 */

#include <postern/box.h>
#include <postern/error.h>

#include "store/store.h"

struct postern__config;
struct postern__config_store;
struct postern__server_check;
struct postern__event_log;

/*
 * Check a store.
 *
 * box   how the store is reached: the options that its box would get.
 * find  called for each finding, with the handler's place in the
 *       configuration.
 *
 * Fails if the check, or a part of it, could not be made.
 */
int postern__server_check_run(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_box_options *box, postern_store_find *find,
		void *context, struct postern_error *error);

/*
 * Begin to check every store with SQL for PostgreSQL. `event_logs`: one for
 * each store, for the warnings. NULL: there is nothing to check, or no memory.
 * The configuration and the event_logs are borrowed until the end.
 */
struct postern__server_check *
postern__server_check_start(const struct postern__config *config,
		struct postern__event_log *event_logs);

/* End the check, without waiting for responses. May be NULL. */
void postern__server_check_destroy(struct postern__server_check *check);

#endif
