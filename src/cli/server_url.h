/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_SERVER_URL_H
#define POSTERN_CLI_SERVER_URL_H

/*
 * The server that --server or $POSTERN_SERVER names, with its token. A command
 * with a server reads no configuration and opens no store.
 */

#include "base/arena.h"
#include "cli/remote.h"
#include "server/socket.h"

struct postern__cli;

struct postern__server_url {
	struct postern__remote remote;
	struct postern__socket socket; /* of unix:PATH */
	struct postern__arena arena;
	const char *store; /* of --in; NULL: all that the server has */
};

/*
 * Find the server of the command. Sets cli->server, which is NULL if
 * there is none: then the configuration decides. $POSTERN_SERVER counts unless
 * -c or --store is given.
 *
 * Returns POSTERN__EXIT_OK, or POSTERN__EXIT_USAGE after printing why.
 */
int postern__server_url_find(struct postern__cli *cli);

/* NULL is fine. */
void postern__server_url_destroy(struct postern__server_url *server);

#endif
