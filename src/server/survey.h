/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_SURVEY_H
#define POSTERN_SERVER_SURVEY_H

/*
 * What the server under a store says to the configuration, before the first
 * message does: SQL of handlers that could not run, rights that are missing, a
 * listen_url at which nothing is heard. Nothing is run or made, and a store
 * that has no server has nothing to say.
 *
 * `postern check` asks once and waits; `postern serve` has a thread of its own
 * ask while it serves already, and makes warnings of it.
 */

#include <postern/box.h>
#include <postern/error.h>

#include "store/store.h"

struct postern__config;
struct postern__config_store;
struct postern__survey;
struct postern__watch;

/*
 * Ask about a store.
 *
 * box   how the store is reached: the options that its box would get.
 * find  told all that was found, with the handler's place in the configuration.
 *
 * Fails if nothing, or not all, could be asked.
 */
int postern__survey_take(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_box_options *box, postern__store_find *find,
		void *context, struct postern_error *error);

/* Begin to ask about every store with SQL that PostgreSQL would run. `watches`:
   one for each store, for the warnings. NULL: there is nothing to ask, or no
   memory for it. The configuration and the watches are borrowed until the end.
 */
struct postern__survey *
postern__survey_start(const struct postern__config *config,
		struct postern__watch *watches);

/* End it, without waiting for answers. May be NULL. */
void postern__survey_destroy(struct postern__survey *survey);

#endif
