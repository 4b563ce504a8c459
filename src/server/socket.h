/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_SOCKET_H
#define POSTERN_SERVER_SOCKET_H

/*
 * The unix sockets that a server listens on: one beside each store's file,
 * through which the commands reach the server that owns it, and one at the path
 * of `listen`. Server and client get their names from here.
 *
 * The socket of FILE is FILE.sock, beside the target of FILE after following
 * symbolic links; if that name exceeds POSTERN__SOCKET_NAME_LEN_MAX bytes, a
 * short one made of its hash. The address of a socket holds 107 bytes of path;
 * so the directory is opened, and the address goes through /proc/self/fd.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/un.h>

struct postern_error;

#define POSTERN__SOCKET_NAME_LEN_MAX 80

struct postern__socket {
	int directory;                               /* O_PATH; -1: none */
	char name[POSTERN__SOCKET_NAME_LEN_MAX + 1]; /* in the directory */
	/* The address to bind or connect to: valid in this process, while the
	   directory is open. Also the value of CURLOPT_UNIX_SOCKET_PATH. */
	char address[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char *path;        /* for people; may be too long to connect to */
	bool alone;        /* beside no file: no lock says whose it is */
	int passed_fd;     /* listens already, for a service manager; 0: none */
	unsigned mode;     /* permissions of the file; 0: 0600 */
	const char *group; /* of the file; NULL: the process's */
};

/*
 * Find the socket of a store's file, which must exist. Does not check whether
 * the socket exists.
 *
 * file  the path as in "sqlite:FILE".
 *
 * POSTERN_E_NOTFOUND     no such file
 * POSTERN_E_UNAVAILABLE  the directory cannot be opened
 */
int postern__socket_init(struct postern__socket *self, const char *file,
		struct postern_error *error);

/*
 * The socket at a path of its own, which is as long as an address may be: other
 * programs know no trick. Its directory must exist.
 *
 * POSTERN_E_INVALID      the path is too long, or names no file
 * POSTERN_E_UNAVAILABLE  the directory cannot be opened
 */
int postern__socket_init_alone(struct postern__socket *self, const char *path,
		struct postern_error *error);

/* A socket that listens already: it is neither made nor removed. */
int postern__socket_init_passed(struct postern__socket *self, int fd,
		struct postern_error *error);

/* Whether it could be such a path; the file system is not read. */
int postern__socket_path_check(const char *path, struct postern_error *error);

/* Permissions in octal: at least 0600. */
int postern__socket_mode_parse(const char *text, unsigned *out,
		struct postern_error *error);

/* Safe on a socket whose init failed. */
void postern__socket_finish(struct postern__socket *self);

/*
 * Bind and listen, with its mode from the start. The socket of a dead server
 * is replaced, so only the owner of the store's lock file may call this, or,
 * for a socket of its own path, any process: it is replaced if no server is
 * listening, and POSTERN_E_BUSY otherwise. A file that is not a socket is not
 * changed and refused.
 *
 * fd_out  yours to close.
 */
int postern__socket_listen(const struct postern__socket *self, int backlog,
		int *fd_out, struct postern_error *error);

/* Remove the socket file. To be called before the store's lock file is
   released. */
void postern__socket_remove(const struct postern__socket *self);

/*
 * Whether a server is listening: a connection is made and closed again. For
 * clients that want to know before they try.
 */
bool postern__socket_answers(const struct postern__socket *self);

#endif
