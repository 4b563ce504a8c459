/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_REMOTE_H
#define POSTERN_CLI_REMOTE_H

/*
 * A request to a server: over the unix socket beside the store's file, or at
 * an address.
 */

struct postern_error;
struct postern__request;
struct postern__response;
struct postern__socket;

/* Borrowed. */
struct postern__remote {
	const char *name;    /* for people: the path of the socket, or the URL */
	const char *socket;  /* its address; NULL: TCP */
	const char *base;    /* the URL in front of the path */
	const char *token;   /* NULL: none */
	const char *trusted; /* certificates in PEM; NULL: those of the system */
};

void postern__remote_of_socket(const struct postern__socket *socket,
		struct postern__remote *out);

/*
 * Send the request and read the whole response.
 *
 * response  fresh from postern__response_init().
 *
 * Returns POSTERN_OK for a response with any status, or
 *   POSTERN_E_UNAVAILABLE  no server listens, or it is not the one that its
 *                          certificate should say; the request was not sent
 *   POSTERN_E_STALE        the connection was lost before the response was
 *                          complete: the effect of the request is unknown
 *   POSTERN_E_TIMEOUT      no response in time; the effect is unknown, too
 *   POSTERN_E_INVALID      the response is too long
 *   POSTERN_E_NOMEM
 */
int postern__remote_request_at(const struct postern__remote *remote,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error);
int postern__remote_request(const struct postern__socket *socket,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error);

#endif
