/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_RELOAD_H
#define POSTERN_SERVER_RELOAD_H

/*
 * Another configuration in the place of the one that a server works with:
 * channels, handlers, policies, tokens. All of it takes effect, or nothing.
 *
 * A request is finished with the configuration that it began with; the former
 * one is freed when no request uses it any more. The first is kept, because the
 * open stores have their names from it.
 */

#include <postern/error.h>
#include <stddef.h>

#include "server/config.h"

struct postern__api;
struct postern__http;
struct postern__listening;
struct postern__site;
struct postern__stores;

/* Set the members of the first group; zero the rest. */
struct postern__reloader {
	const struct postern__config *first;
	const struct postern__stores *stores;
	const struct postern__api *api; /* of the first configuration */
	struct postern__http *http;
	const struct postern__listening *listening;
	/* Called for each mistake of a configuration. */
	postern__config_remark *report;
	void *report_context;

	struct postern__site *current; /* NULL: the first */
};

/* The configuration that is in place. */
const struct postern__config *postern__reloader_config(
		const struct postern__reloader *self);

/*
 * Read the configuration anew and put it in place.
 *
 * POSTERN_E_INVALID  it has mistakes, which were reported, or a change that
 *                    needs a restart, or that the store refuses
 * others             a store could not be written; try again
 *
 * Then the one that was in place stays.
 */
int postern__reload(struct postern__reloader *self,
		const struct postern__config_input *input, struct postern_error *error);

/* Free what no request uses any more. To be called now and then. */
void postern__reloader_sweep(struct postern__reloader *self);

/* After the HTTP server has stopped and the stores are closed. */
void postern__reloader_finish(struct postern__reloader *self);

#endif
