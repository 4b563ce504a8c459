/* SPDX-License-Identifier: MIT */

/*
 * The socket beside the store's file, or at a path of its own.
 *
 * Its address is /proc/self/fd/N/NAME, N being the opened directory, so the
 * length of the directory's path does not matter; where there is no /proc and
 * the path is short enough, the path itself serves. The mode is set on the
 * socket before it is bound: Linux creates the file with the socket's own mode,
 * so there is no moment in which others could connect, and the umask, which
 * all threads share, need not be touched.
 */

#include "server/socket.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/siphash.h"

#define SUFFIX ".sock"

/* One second in total, for an operation that takes no time. */
#define LOCK_TRIES 100
#define LOCK_PAUSE_MS 10

/* Not a secret: two names in one directory must differ, no more. */
static const uint8_t name_key[POSTERN__SIPHASH_KEY_LEN] = "postern.sock";

static void make_name(struct postern__socket *self, const char *base) {
	size_t len = strlen(base);
	if (len + strlen(SUFFIX) <= POSTERN__SOCKET_NAME_LEN_MAX) {
		(void)snprintf(self->name, sizeof self->name, "%s" SUFFIX, base);
	} else {
		(void)snprintf(self->name, sizeof self->name,
				"postern-%016" PRIx64 SUFFIX,
				postern__siphash_of(name_key, base, len));
	}
}

static int make_address(struct postern__socket *self,
		struct postern_error *error) {
	if (access("/proc/self/fd", X_OK) == 0) {
		(void)snprintf(self->address, sizeof self->address,
				"/proc/self/fd/%d/%s", self->directory, self->name);
		return POSTERN_OK;
	}
	if (strlen(self->path) >= sizeof self->address) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' is too long for a socket path without /proc", self->path);
	}
	memcpy(self->address, self->path, strlen(self->path) + 1);
	return POSTERN_OK;
}

/* The directory, and the paths; the name is known. */
static int open_directory(struct postern__socket *self, const char *directory,
		struct postern_error *error) {
	self->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (self->directory < 0) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot open '%s': %s", directory, strerror(errno));
	}
	if (asprintf(&self->path, "%s/%s",
				strcmp(directory, "/") == 0 ? "" : directory, self->name) < 0) {
		self->path = NULL;
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	return make_address(self, error);
}

int postern__socket_init(struct postern__socket *self, const char *file,
		struct postern_error *error) {
	int r = POSTERN_OK;
	char *for_directory = NULL;
	*self = (struct postern__socket){ .directory = -1 };

	char *real = realpath(file, NULL);
	if (!real) {
		r = postern__fail(error,
				errno == ENOENT ? POSTERN_E_NOTFOUND : POSTERN_E_UNAVAILABLE,
				"cannot find '%s': %s", file, strerror(errno));
		goto out;
	}
	for_directory = strdup(real);
	if (!for_directory) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	const char *directory = dirname(for_directory);
	const char *base = strrchr(real, '/') + 1; /* real is absolute */

	make_name(self, base);
	r = open_directory(self, directory, error);
out:
	free(for_directory);
	free(real);
	if (r != POSTERN_OK) {
		postern__socket_finish(self);
	}
	return r;
}

static const char *socket_name(const char *path) {
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

int postern__socket_path_check(const char *path, struct postern_error *error) {
	const char *name = socket_name(path);
	const size_t len_max = sizeof((struct postern__socket *)0)->address - 1;
	if (strlen(path) > len_max) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a socket path must have at most %zu bytes", len_max);
	}
	if (strlen(name) > POSTERN__SOCKET_NAME_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a socket name must have at most %d bytes",
				POSTERN__SOCKET_NAME_LEN_MAX);
	}
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the path is missing; write unix:PATH");
	}
	return POSTERN_OK;
}

int postern__socket_init_alone(struct postern__socket *self, const char *path,
		struct postern_error *error) {
	*self = (struct postern__socket){ .directory = -1, .alone = true };
	int r = postern__socket_path_check(path, error);
	if (r != POSTERN_OK) {
		return r;
	}
	const char *name = socket_name(path);
	char directory[sizeof self->address];
	(void)snprintf(directory, sizeof directory, "%.*s", (int)(name - path),
			path);
	(void)snprintf(self->name, sizeof self->name, "%s", name);
	char *real = realpath(*directory ? directory : ".", NULL);
	r = real ? open_directory(self, real, error)
			 : postern__fail(error, POSTERN_E_UNAVAILABLE,
					   "the directory of '%s' does not exist: %s", path,
					   strerror(errno));
	free(real);
	if (r != POSTERN_OK) {
		postern__socket_finish(self);
	}
	return r;
}

void postern__socket_finish(struct postern__socket *self) {
	if (self->directory >= 0) {
		(void)close(self->directory);
	}
	free(self->path);
	*self = (struct postern__socket){ .directory = -1 };
}

static int open_socket(const struct postern__socket *self,
		struct sockaddr_un *address_out) {
	*address_out = (struct sockaddr_un){ .sun_family = AF_UNIX };
	static_assert(sizeof address_out->sun_path == sizeof self->address,
			"the address fits, with its zero byte");
	memcpy(address_out->sun_path, self->address, sizeof self->address);
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Remove the socket of a former server, and no other file. */
static int remove_stale(const struct postern__socket *self,
		struct postern_error *error) {
	struct stat status;
	if (fstatat(self->directory, self->name, &status, AT_SYMLINK_NOFOLLOW) !=
			0) {
		return errno == ENOENT ? POSTERN_OK
							   : postern__fail(error, POSTERN_E_UNAVAILABLE,
										 "cannot check '%s': %s", self->path,
										 strerror(errno));
	}
	if (!S_ISSOCK(status.st_mode)) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' exists and is not a socket", self->path);
	}
	if (unlinkat(self->directory, self->name, 0) != 0 && errno != ENOENT) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot replace '%s': %s", self->path, strerror(errno));
	}
	return POSTERN_OK;
}

int postern__socket_mode_parse(const char *text, unsigned *out,
		struct postern_error *error) {
	char *end;
	unsigned long mode = strtoul(text, &end, 8);
	if (strspn(text, "01234567") != strlen(text) || *end || strlen(text) > 4 ||
			mode > 0777 || (mode & 0600) != 0600) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.20s' is not a mode of a socket; write 0600, 0660 or 0666",
				text);
	}
	*out = (unsigned)mode;
	return POSTERN_OK;
}

static unsigned mode_of(const struct postern__socket *self) {
	return self->mode ? self->mode : 0600;
}

/* Kernels other than Linux ignore the mode that was set before bind(). */
static bool is_private(const struct postern__socket *self) {
	struct stat status;
	return fstatat(self->directory, self->name, &status, AT_SYMLINK_NOFOLLOW) ==
				   0 &&
		   S_ISSOCK(status.st_mode) &&
		   (status.st_mode & 0777U & ~mode_of(self)) == 0;
}

/* Let others connect, if they may; nobody can before the socket listens. */
static int set_access(const struct postern__socket *self,
		struct postern_error *error) {
	/* The umask applies to bind(). */
	if (mode_of(self) != 0600 &&
			fchmodat(self->directory, self->name, mode_of(self), 0) != 0) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot set the mode of the socket '%s': %s", self->path,
				strerror(errno));
	}
	if (!self->group) {
		return POSTERN_OK;
	}
	char room[4096];
	struct group found;
	struct group *group = NULL;
	int number = getgrnam_r(self->group, &found, room, sizeof room, &group);
	if (!group) {
		return postern__fail(error, POSTERN_E_INVALID,
				"listen_group: there is no group '%.60s'%s%s", self->group,
				number ? ": " : "", number ? strerror(number) : "");
	}
	if (fchownat(self->directory, self->name, (uid_t)-1, group->gr_gid,
				AT_SYMLINK_NOFOLLOW) != 0) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot give the socket '%s' to the group '%.60s': %s; the "
				"server's user must be a member of it",
				self->path, self->group, strerror(errno));
	}
	return POSTERN_OK;
}

/*
 * Lock the directory, so that two servers that start at once do not check the
 * same socket; yours to close, -1 if the lock could not be acquired. Any
 * process can hold this lock, so the wait is short.
 */
static int lock_directory(const struct postern__socket *self) {
	const struct timespec pause = { .tv_nsec = LOCK_PAUSE_MS * 1000000L };
	int fd = openat(self->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
		if (i == LOCK_TRIES) {
			(void)close(fd);
			return -1;
		}
		(void)nanosleep(&pause, NULL);
	}
	return fd;
}

static int check_free(const struct postern__socket *self,
		struct postern_error *error) {
	return self->alone && postern__socket_answers(self)
				   ? postern__fail(error, POSTERN_E_BUSY,
							 "another server is listening on '%s'; stop it, or "
							 "choose another address",
							 self->path)
				   : POSTERN_OK;
}

int postern__socket_init_passed(struct postern__socket *self, int fd,
		struct postern_error *error) {
	struct sockaddr_un address = { 0 };
	socklen_t len = sizeof address - 1; /* a zero byte stays at the end */
	struct stat status;
	*self = (struct postern__socket){ .directory = -1, .passed_fd = fd };
	if (getsockname(fd, (struct sockaddr *)&address, &len) != 0) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"a socket of the service manager has no address: %s",
				strerror(errno));
	}
	const char *name = address.sun_path;
	/* What is no file, everyone can connect to; and a file of another user,
	   that user. */
	bool is_file = name[0] == '/' && stat(name, &status) == 0 &&
				   (status.st_uid == 0 || status.st_uid == geteuid());
	self->mode = is_file ? status.st_mode & 0777U : 0666U;
	if (asprintf(&self->path, "%s%s", name[0] ? "" : "@",
				name[0] ? name : name + 1) < 0) {
		self->path = NULL;
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	return POSTERN_OK;
}

int postern__socket_listen(const struct postern__socket *self, int backlog,
		int *fd_out, struct postern_error *error) {
	int r = POSTERN_OK;
	struct sockaddr_un address;
	if (self->passed_fd > 0) {
		*fd_out = self->passed_fd;
		return POSTERN_OK;
	}
	int lock = self->alone ? lock_directory(self) : -1;
	int fd = open_socket(self, &address);
	if (fd < 0) {
		r = postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot create a socket: %s", strerror(errno));
		goto out;
	}
	r = check_free(self, error);
	if (r == POSTERN_OK) {
		r = remove_stale(self, error);
	}
	if (r != POSTERN_OK) {
		goto out;
	}
	if (fchmod(fd, mode_of(self)) != 0 ||
			bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
		r = postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot create the socket '%s': %s", self->path,
				strerror(errno));
		goto out;
	}
	if (!is_private(self)) {
		postern__socket_remove(self);
		r = postern__fail(error, POSTERN_E_UNAVAILABLE,
				"the socket '%s' would be accessible to other users",
				self->path);
		goto out;
	}
	r = set_access(self, error);
	if (r != POSTERN_OK) {
		postern__socket_remove(self);
		goto out;
	}
	if (listen(fd, backlog) != 0) {
		postern__socket_remove(self);
		r = postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot listen on '%s': %s", self->path, strerror(errno));
		goto out;
	}
	*fd_out = fd;
	fd = -1;
out:
	if (fd >= 0) {
		(void)close(fd);
	}
	if (lock >= 0) {
		(void)close(lock);
	}
	return r;
}

void postern__socket_remove(const struct postern__socket *self) {
	if (self->directory >= 0) {
		/* If it cannot be removed, the next server replaces it. */
		(void)unlinkat(self->directory, self->name, 0);
	}
}

bool postern__socket_answers(const struct postern__socket *self) {
	struct sockaddr_un address;
	int fd = open_socket(self, &address);
	if (fd < 0) {
		return false;
	}
	bool answers =
			connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ||
			errno == EAGAIN; /* its backlog is full: a server is listening */
	(void)close(fd);
	return answers;
}
