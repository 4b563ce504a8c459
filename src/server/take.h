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

/* Whether anything of the store is left when the last process has ended. */
bool postern__store_kept(const char *url);

/* Whether the store is in PostgreSQL, with the settings that only those have.
 */
bool postern__store_postgres(const char *url);

/* Longest id of a store, its zero byte included. */
#define POSTERN__STORE_ID_MAX 80

/*
 * What a store is, in whatever configuration: of a file the same for all
 * processes, whatever its path, also in a container that sees it elsewhere; of
 * a store in memory its name, which no file goes by. Has a colon, as no name of
 * a store has. False if the file is not there.
 */
bool postern__store_id(const char *url, const char *name,
		char out[POSTERN__STORE_ID_MAX]);

/* Whether a server answers beside the store. */
bool postern__store_served(const char *url);

/*
 * Whether the process that has the store will be done by itself: it runs this
 * same program, so it is a command, or a server on its way up or down; or it
 * is gone already.
 */
bool postern__store_passing(const char *url);

/*
 * postern_box_open(), but if another process has the store, wait: a command
 * is done soon, a server may be just stopping, and command_timeout_ms of the
 * options is how long that may take. If it is a server that answers there is
 * no sense in waiting.
 */
int postern__store_take(const char *url,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error);

#endif
