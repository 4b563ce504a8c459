/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_PASSED_H
#define POSTERN_SERVER_PASSED_H

/*
 * Sockets on which a service manager listens and that it has passed to this
 * process, as systemd does for a socket unit: $LISTEN_PID, $LISTEN_FDS,
 * $LISTEN_FDNAMES. Connections that are made while no server runs wait for the
 * next one.
 */

#include <stddef.h>

struct postern_error;

#define POSTERN__PASSED_COUNT_MAX 16
#define POSTERN__PASSED_NAME_LEN_MAX 255

struct postern__passed {
	struct {
		int fd;
		int family; /* AF_UNIX, AF_INET or AF_INET6 */
		char name[POSTERN__PASSED_NAME_LEN_MAX + 1]; /* "": none */
	} sockets[POSTERN__PASSED_COUNT_MAX];
	size_t count;
};

/*
 * Find them; programs that this process starts do not get them. There may be
 * none.
 *
 * POSTERN_E_INVALID  there are too many, or one is not a socket that listens
 *                    for streams
 */
int postern__passed_find(struct postern__passed *self,
		struct postern_error *error);

#endif
