/* SPDX-License-Identifier: MIT */
/*
 * The socket is opened each time: it is used about once a second, and a manager
 * that was restarted has another one.
 */

#include "server/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void postern__notify(const char *state) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len = path ? strlen(path) : 0;
	if (len < 2 || len >= sizeof address.sun_path ||
			(path[0] != '/' && path[0] != '@')) {
		return;
	}
	memcpy(address.sun_path, path, len);
	if (path[0] == '@') {
		address.sun_path[0] = '\0'; /* an abstract name */
	}
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0) {
		(void)sendto(fd, state, strlen(state), MSG_NOSIGNAL,
				(const struct sockaddr *)&address,
				(socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
		(void)close(fd);
	}
}
