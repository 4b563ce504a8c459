/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_STORE_OPEN_H
#define POSTERN_SERVER_STORE_OPEN_H

/*
 * Opens a store exclusively: for the server, and for commands that need to own
 * it.
 */

#include <postern/box.h>
#include <stdbool.h>

/* Whether the store keeps messages; if not, it keeps markers only. */
bool postern__store_keeps_messages(const char *url);

/* Whether the store is durable: it outlives the last process. */
bool postern__store_is_durable(const char *url);

/* Whether several processes may use the store, through a server. */
bool postern__store_is_shared(const char *url);

/* Whether handlers may run inside a transaction of the store. */
bool postern__store_is_transactional(const char *url);

/* Whether transactions of other programs can stage messages in the store. */
bool postern__store_stages(const char *url);

/* Whether the store has the option `connections`. */
bool postern__store_has_connections(const char *url);

/* The scheme of the URL, a static text; NULL: it has none that is known. */
const char *postern__store_scheme(const char *url);

/* The name of its kind, for people: "redis". */
const char *postern__store_kind_name(const char *url);

/* Longest id of a store, its zero byte included. */
#define POSTERN__STORE_ID_MAX 80

/*
 * The id of a store, independent of the configuration: for a file the same in
 * all processes, whatever its path, also in a container with another path; for
 * a store in memory its name, which no file has. Contains a colon, unlike the
 * name of a store. False if the file does not exist.
 */
bool postern__store_id(const char *url, const char *name,
		char out[POSTERN__STORE_ID_MAX]);

/* Whether a server is listening beside the store. */
bool postern__store_has_server(const char *url);

/*
 * Whether the owner will release the store on its own: it runs this same
 * program, so it is a command, or a server that starts or stops; or it has
 * exited already.
 */
bool postern__store_owner_is_command(const char *url);

/*
 * postern_box_open(), but if another process owns the store, wait: a command
 * ends soon, a server may be stopping; command_timeout_ms of the options is the
 * limit. If a server responds, waiting is useless.
 */
int postern__store_open_wait(const char *url,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error);

#endif
