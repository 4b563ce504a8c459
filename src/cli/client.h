/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_CLIENT_H
#define POSTERN_CLI_CLIENT_H

/*
 * How commands reach the store: they make requests of the API, and the client
 * finds out who answers them.
 *
 *   a server holds the store      it does, over the socket beside the file
 *   nobody holds it               this process does, with a box of its own
 *   an embedding program holds    it for reading, this process, with a box
 *                                 opened read-only; writing fails with
 *                                 POSTERN_E_BUSY, which names the pid
 *
 * A server that hangs is no reason not to look: then, too, this process reads.
 *
 * Which one may change between two requests and even during one: a server
 * stops, another command is done. So the client tries again before it gives
 * up: for as long as command_timeout while other commands have the store, for
 * a moment otherwise.
 *
 * Only a request that may write takes the store for this process; a look at
 * it never stands in the way of a server that starts.
 */

#include <stdbool.h>

struct postern_error;
struct postern__cli;
struct postern__client;
struct postern__request;
struct postern__response;

enum postern__need {
	POSTERN__NEED_READ,
	POSTERN__NEED_WRITE, /* to change what is there */
	/* To accept: the configuration's channels and handlers are made known,
	   and a store that is missing is created. */
	POSTERN__NEED_ACCEPT,
	/* To clean up: channels are made known as well, but nothing is created. */
	POSTERN__NEED_CLEANUP
};

/*
 * Load the configuration and make a client. Nothing is opened before the
 * first request. The cli must outlive the client.
 *
 * Returns POSTERN__EXIT_OK, or another exit status having said why.
 */
int postern__client_begin(struct postern__cli *cli, enum postern__need need,
		struct postern__client **out);

/* NULL is fine. */
void postern__client_destroy(struct postern__client *client);

/*
 * Make a request and get the answer.
 *
 * once      the request must not be made a second time when the connection
 *           broke and nobody knows what became of it, or when a store failed.
 * response  fresh from postern__response_init().
 *
 * Returns POSTERN_OK whatever the answer says. Otherwise nobody answered: the
 * errors of postern_box_open(), or those of postern__remote_request(), or
 * POSTERN_E_UNAVAILABLE for a store in the memory of a server that is not
 * there.
 */
int postern__client_request(struct postern__client *client,
		const struct postern__request *request, bool once,
		struct postern__response *response, struct postern_error *error);

#endif
