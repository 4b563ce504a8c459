/* SPDX-License-Identifier: MIT */
/*
 * The protocol is that of sd_listen_fds(3): the sockets are the descriptors
 * from 3 on, and meant for the process whose number is in $LISTEN_PID only.
 */

#include "server/passed.h"

#include <fcntl.h>
#include <postern/error.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/text.h"

#define FIRST_FD 3

static uint64_t number_in(const char *variable) {
	const char *text = getenv(variable);
	uint64_t number = 0;
	return text && postern__count_parse(text, 1, INT32_MAX, &number, NULL) ==
								   POSTERN_OK
				   ? number
				   : 0;
}

static int option_of(int fd, int option) {
	int value = -1;
	socklen_t len = sizeof value;
	return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : -1;
}

static int add(struct postern__passed *self, int fd, const char *name,
		size_t name_len, struct postern_error *error) {
	int family = option_of(fd, SO_DOMAIN);
	int flags = fcntl(fd, F_GETFL);
	if (option_of(fd, SO_TYPE) != SOCK_STREAM ||
			option_of(fd, SO_ACCEPTCONN) != 1 ||
			(family != AF_UNIX && family != AF_INET && family != AF_INET6) ||
			flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
			fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"descriptor %d of $LISTEN_FDS is not a socket that listens: in "
				"the socket unit, use ListenStream= and leave out Accept=",
				fd);
	}
	self->sockets[self->count].fd = fd;
	self->sockets[self->count].family = family;
	(void)snprintf(self->sockets[self->count].name,
			sizeof self->sockets[self->count].name, "%.*s", (int)name_len,
			name);
	self->count++;
	return POSTERN_OK;
}

int postern__passed_find(struct postern__passed *self,
		struct postern_error *error) {
	uint64_t count = number_in("LISTEN_FDS");
	const char *names = getenv("LISTEN_FDNAMES");
	int r = POSTERN_OK;
	self->count = 0;
	if (number_in("LISTEN_PID") != (uint64_t)getpid()) {
		return POSTERN_OK;
	}
	if (count > POSTERN__PASSED_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"$LISTEN_FDS: more than %d sockets", POSTERN__PASSED_COUNT_MAX);
	}
	for (int i = 0; r == POSTERN_OK && i < (int)count; i++) {
		size_t len = names ? strcspn(names, ":") : 0;
		r = add(self, FIRST_FD + i, names ? names : "", len, error);
		names = names && names[len] ? names + len + 1 : NULL;
	}
	return r;
}
