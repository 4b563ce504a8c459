/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_REMOTE_H
#define POSTERN_CLI_REMOTE_H

/*
 * A request to the server that holds the store, over the unix socket beside
 * the store's file.
 */

struct postern_error;
struct postern__request;
struct postern__response;
struct postern__socket;

/*
 * Send the request and read the whole answer.
 *
 * response  fresh from postern__response_init().
 *
 * Returns POSTERN_OK, whatever the answer says, or
 *   POSTERN_E_UNAVAILABLE  nobody listens there; the request was not sent
 *   POSTERN_E_STALE        the connection broke before the answer was whole:
 *                          nobody knows what became of the request
 *   POSTERN_E_TIMEOUT      no answer in time; nobody knows either
 *   POSTERN_E_INVALID      the answer is too long
 *   POSTERN_E_NOMEM
 */
int postern__remote_request(const struct postern__socket *socket,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error);

#endif
