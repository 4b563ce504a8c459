/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_TCP_H
#define POSTERN_SERVER_TCP_H

/*
 * Addresses of TCP that a server listens on: "127.0.0.1:7420", "[::1]:7420",
 * "localhost:7420". An address is a number or localhost, because what a name
 * resolves to can change. Port 0 stands for any free port.
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct postern_error;

/* "[" address with a scope "]:65535", and the zero byte. */
#define POSTERN__TCP_TEXT_MAX 80

struct postern__tcp {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} address;
	socklen_t address_len;
	int fd; /* bound; -1: not yet, or given away */
	char text[POSTERN__TCP_TEXT_MAX];
};

/* Parse an address; nothing is opened. POSTERN_E_INVALID: it is none. */
int postern__tcp_parse(const char *text, struct postern__tcp *out,
		struct postern_error *error);

/* Whether only this machine can reach the address. */
bool postern__tcp_is_loopback(const struct postern__tcp *self);

/* The port; after bind() the one that the system chose. */
uint16_t postern__tcp_port(const struct postern__tcp *self);

/*
 * Take the address, so that a mistake is found before anything runs; `text` is
 * completed with the port. Nobody can connect yet.
 *
 * POSTERN_E_BUSY         the port is in use
 * POSTERN_E_UNAVAILABLE  the port is privileged, or it is not an address of
 *                        this machine
 */
int postern__tcp_bind(struct postern__tcp *self, struct postern_error *error);

/*
 * Use a socket of TCP that listens already; it is yours until this succeeds.
 */
int postern__tcp_init_passed(struct postern__tcp *self, int fd,
		struct postern_error *error);

/*
 * Listen on the bound address.
 *
 * fd_out  yours to close.
 */
int postern__tcp_listen(struct postern__tcp *self, int backlog, int *fd_out,
		struct postern_error *error);

/* Safe on one that was not bound, and after listen(). */
void postern__tcp_finish(struct postern__tcp *self);

/* Write the address of the other side of a connection: "192.0.2.7:40112"; ""
   if it has none. */
void postern__tcp_peer(int fd, char out[POSTERN__TCP_TEXT_MAX]);

#endif
