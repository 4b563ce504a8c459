/* SPDX-License-Identifier: MIT */

/*
 * A store has one owner at a time, and owners come and go.
 */

#include "server/take.h"

#include <stddef.h>
#include <string.h>

#include "server/patience.h"
#include "server/socket.h"

const char *postern__store_file(const char *url) {
	static const char scheme[] = "sqlite:";
	size_t len = sizeof scheme - 1;
	return strncmp(url, scheme, len) == 0 ? url + len : NULL;
}

bool postern__store_served(const char *url) {
	struct postern__socket socket;
	const char *file = postern__store_file(url);
	if (!file) {
		return false;
	}
	bool served = postern__socket_init(&socket, file, NULL) == POSTERN_OK &&
				  postern__socket_answers(&socket);
	postern__socket_finish(&socket);
	return served;
}

int postern__store_take(const char *url,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error) {
	struct postern__patience patience;
	postern__patience_init(&patience);
	for (;;) {
		int r = postern_box_open(url, options, out, error);
		if (r != POSTERN_E_BUSY || postern__store_served(url) ||
				!postern__patience_wait(&patience)) {
			return r;
		}
	}
}
