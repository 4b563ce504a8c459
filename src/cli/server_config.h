/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_SERVER_CONFIG_H
#define POSTERN_CLI_SERVER_CONFIG_H

/*
 * Compares a running server's configuration with the command's.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct postern__config;
struct postern__socket;

/*
 * Whether the server at a socket has any of the configuration's stores, by its
 * file or its database and schema. A server that has none belongs to another
 * configuration. True, too, if it does not respond.
 */
bool postern__server_shares_store(const struct postern__config *config,
		const struct postern__socket *socket);

/*
 * Compare the stores, and the names and settings of channels and handlers, with
 * those in the server's GET /v1/stats. False: they differ, and `text` names the
 * first difference: "it lacks the channel 'orders'".
 */
bool postern__server_config_matches(const struct postern__config *config,
		const json_t *stats, char *text, size_t size);

/*
 * Compare what a server can change only by a restart. True: it differs, and
 * `text` names the first difference: "it has another 'listen'".
 */
bool postern__server_needs_restart(const struct postern__config *config,
		const json_t *stats, char *text, size_t size);

#endif
