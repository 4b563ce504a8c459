/* SPDX-License-Identifier: MIT */

/*
 * A store has one owner at a time, and owners change. The pid of the owner is
 * in FILE.lock, which is empty while an owner starts or ends.
 */

#include "server/store_open.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/open_wait.h"
#include "server/socket.h"
#include "store/marker_kind.h"
#include "store/store.h"

bool postern__store_keeps_messages(const char *url) {
	return !postern__marker_kind_of(url);
}

/* What keeps markers only is on a server of its own. */
bool postern__store_is_durable(const char *url) {
	const struct postern_store_kind *kind = postern__store_kind_of(url, NULL);
	return kind ? kind->is_durable : !postern__store_keeps_messages(url);
}

bool postern__store_is_shared(const char *url) {
	const struct postern_store_kind *kind = postern__store_kind_of(url, NULL);
	return kind ? kind->is_shared : !postern__store_keeps_messages(url);
}

bool postern__store_is_transactional(const char *url) {
	const struct postern_store_kind *kind = postern__store_kind_of(url, NULL);
	return kind && kind->ops->transactional;
}

bool postern__store_stages(const char *url) {
	const struct postern_store_kind *kind = postern__store_kind_of(url, NULL);
	/* The only parameter of a file is that it is shared. */
	return kind && kind->stages && (!kind->is_file || strchr(url, '?'));
}

bool postern__store_has_connections(const char *url) {
	const struct postern_store_kind *kind = postern__store_kind_of(url, NULL);
	return kind ? kind->has_connections : !postern__store_keeps_messages(url);
}

const char *postern__store_scheme(const char *url) {
	const struct postern_store_kind *kind = postern__store_kind_of(url, NULL);
	const struct postern_marker_kind *markers = postern__marker_kind_of(url);
	return kind ? kind->scheme : markers ? markers->scheme : NULL;
}

const char *postern__store_kind_name(const char *url) {
	const struct postern_store_kind *kind = postern__store_kind_of(url, NULL);
	const struct postern_marker_kind *markers = postern__marker_kind_of(url);
	return kind ? kind->name : markers ? markers->name : "unknown";
}

bool postern__store_id(const char *url, const char *name,
		char out[POSTERN__STORE_ID_MAX]) {
	char file[POSTERN__STORE_FILE_MAX];
	struct stat status;
	if (!postern__store_file(url, file)) {
		(void)snprintf(out, POSTERN__STORE_ID_MAX, ":%s", name);
		return true;
	}
	if (stat(file, &status) != 0) {
		return false;
	}
	(void)snprintf(out, POSTERN__STORE_ID_MAX, "%llu:%llu",
			(unsigned long long)status.st_dev,
			(unsigned long long)status.st_ino);
	return true;
}

/* The pid of the store's owner; 0: unknown. */
static long owner_of(const char *file) {
	char text[16] = "";
	char *path = NULL;
	long pid = 0;
	char *real = realpath(file, NULL);
	if (real && asprintf(&path, "%s.lock", real) < 0) {
		path = NULL;
	}
	int fd = path ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
	if (fd >= 0) {
		if (read(fd, text, sizeof text - 1) > 0) {
			pid = strtol(text, NULL, 10);
		}
		(void)close(fd); /* it was only read */
	}
	free(path);
	free(real);
	return pid;
}

/* Whether a process has exited, as far as can be determined. */
static bool has_exited(long pid) {
	char path[64];
	struct stat status;
	(void)snprintf(path, sizeof path, "/proc/%ld/exe", pid);
	return lstat(path, &status) != 0 && errno == ENOENT &&
		   access("/proc/self/exe", F_OK) == 0;
}

/* A server that was killed while it started a program leaves its socket and its
   lock file open in the child until exec: nothing will respond. */
bool postern__store_has_server(const char *url) {
	struct postern__socket socket;
	char file[POSTERN__STORE_FILE_MAX];
	if (!postern__store_file(url, file)) {
		return false;
	}
	long pid = owner_of(file);
	bool served = !(pid > 0 && has_exited(pid)) &&
				  postern__socket_init(&socket, file, NULL) == POSTERN_OK;
	if (served) {
		served = postern__socket_answers(&socket);
		postern__socket_finish(&socket);
	}
	return served;
}

bool postern__store_owner_is_command(const char *url) {
	char file[POSTERN__STORE_FILE_MAX];
	bool is_file = postern__store_file(url, file);
	long pid = is_file ? owner_of(file) : 0;
	char path[64];
	struct stat theirs;
	struct stat ours;
	if (pid <= 0) {
		return is_file;
	}
	(void)snprintf(path, sizeof path, "/proc/%ld/exe", pid);
	if (stat(path, &theirs) < 0) {
		/* The process has exited; or it belongs to another user, and is not a
		   command of this one. */
		return has_exited(pid);
	}
	return stat("/proc/self/exe", &ours) == 0 && ours.st_dev == theirs.st_dev &&
		   ours.st_ino == theirs.st_ino;
}

int postern__store_open_wait(const char *url,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error) {
	struct postern__open_wait open_wait;
	postern__open_wait_init(&open_wait, options->command_timeout_ms);
	for (;;) {
		int r = postern_box_open(url, options, out, error);
		if (r != POSTERN_E_BUSY || postern__store_has_server(url) ||
				!postern__open_wait_next(&open_wait,
						postern__store_owner_is_command(url))) {
			return r;
		}
	}
}
