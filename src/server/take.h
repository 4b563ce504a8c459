/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_TAKE_H
#define POSTERN_SERVER_TAKE_H

/*
 * Taking a store: for the server, and for commands that need it for
 * themselves.
 */

#include <postern/box.h>
#include <stdbool.h>

/* The file of "sqlite:FILE", in the url; NULL for any other store. */
const char *postern__store_file(const char *url);

/* Whether a server answers beside the store. */
bool postern__store_served(const char *url);

/*
 * postern_box_open(), but if another process has the store, wait a moment: it
 * may be a command that is done soon, or a server that is just stopping. If
 * it is a server that answers there is no sense in waiting.
 */
int postern__store_take(const char *url,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error);

#endif
