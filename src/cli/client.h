/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_CLIENT_H
#define POSTERN_CLI_CLIENT_H

/*
 * How commands reach the store: they make requests of the API, and the client
 * decides who handles them.
 *
 *   a server owns the store       the server, over the socket beside the file
 *   nobody owns it                this process, with a box of its own
 *   an embedding program owns it  for reading this process, with a box opened
 *                                 read-only; writing fails with
 *                                 POSTERN_E_BUSY, which names the pid
 *
 * A server that does not respond does not prevent reading: then this process
 * reads, too.
 *
 * The owner may change between two requests and even during one: a server
 * stops, another command ends. So the client retries before it fails: for
 * command_timeout while other commands own the store, for a short time
 * otherwise.
 *
 * Only a request that may write opens the store exclusively; a command that
 * reads never prevents a server from starting.
 */

#include <stdbool.h>

struct postern_error;
struct postern__cli;
struct postern__client;
struct postern__request;
struct postern__response;

enum postern__need {
	POSTERN__NEED_READ,
	/* The same, also of a store that keeps markers only. */
	POSTERN__NEED_READ_ANY,
	POSTERN__NEED_WRITE, /* to change deliveries */
	/* To accept: the configuration's channels and handlers are registered, and
	   a missing store is created. */
	POSTERN__NEED_ACCEPT,
	/* To clean up: channels are registered as well, but nothing is created. */
	POSTERN__NEED_CLEANUP,
	/* To change a marker: nothing is registered, a missing store is created. It
	   may keep markers only. */
	POSTERN__NEED_MARK
};

/*
 * Load the configuration and create a client. Nothing is opened before the
 * first request. The cli must outlive the client.
 *
 * Returns POSTERN__EXIT_OK, or another exit status after printing why.
 */
int postern__client_begin(struct postern__cli *cli, enum postern__need need,
		struct postern__client **out);

/* NULL is fine. */
void postern__client_destroy(struct postern__client *client);

/*
 * Make a request and read the response.
 *
 * once      the request must not be repeated if the connection was lost and
 *           its effect is unknown, or if a store failed.
 * response  fresh from postern__response_init().
 *
 * Returns POSTERN_OK for a response with any status. Otherwise there was none:
 * the errors of postern_box_open(), or those of postern__remote_request(), or
 * POSTERN_E_UNAVAILABLE for a store in the memory of a server that is not
 * running.
 */
int postern__client_request(struct postern__client *client,
		const struct postern__request *request, bool once,
		struct postern__response *response, struct postern_error *error);

/* After a request that was answered without a server: whether servers elsewhere
   may know more, because they share the store. */
bool postern__client_is_beside_servers(const struct postern__client *client);

/* Print that only a server knows which handlers are at fault. */
void postern__client_note_held(void);

#endif
