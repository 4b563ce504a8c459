/* SPDX-License-Identifier: MIT */

/* The path of the socket, its permissions, and which files it may replace. */

#include "server/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <postern/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/temp_dir.h"
#include "tap.h"

static struct temp_dir root;

static void enter_temp_dir(void) {
	temp_dir_create(&root);
	if (chdir(root.path) != 0) {
		abort();
	}
}

static void leave_temp_dir(void) {
	if (chdir("/") != 0) {
		abort();
	}
	temp_dir_destroy(&root);
}

static void touch(const char *path) {
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0) {
		abort();
	}
	(void)close(fd);
}

static void beside_the_file(void) {
	enter_temp_dir();
	touch("a.db");
	struct postern__socket self;
	struct postern_error error;
	if (CHECK_OK(postern__socket_init(&self, "a.db", &error), &error)) {
		char path[128];
		temp_dir_name(&root, "", "a.db.sock", path, sizeof path);
		CHECK_STR(self.path, path);
		CHECK_STR(self.name, "a.db.sock");
		CHECK(!postern__socket_answers(&self));
		int fd;
		if (CHECK_OK(postern__socket_listen(&self, 5, &fd, &error), &error)) {
			struct stat status;
			CHECK_INT(stat("a.db.sock", &status), 0);
			CHECK(S_ISSOCK(status.st_mode));
			CHECK_INT(status.st_mode & 07777, 0600);
			CHECK(postern__socket_answers(&self));
			(void)close(fd);
			CHECK(!postern__socket_answers(&self));
			postern__socket_remove(&self);
			CHECK_INT(access("a.db.sock", F_OK), -1);
		}
		postern__socket_finish(&self);
	}
	leave_temp_dir();
}

static void same_for_every_name(void) {
	enter_temp_dir();
	CHECK_INT(mkdir("d", 0700), 0);
	touch("d/a.db");
	CHECK_INT(symlink("d/a.db", "link"), 0);
	CHECK_INT(symlink("d", "e"), 0);
	static const char *const names[] = { "d/a.db", "./d/../d//a.db", "link",
		"e/a.db" };
	char expected[128];
	temp_dir_name(&root, "", "d/a.db.sock", expected, sizeof expected);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct postern__socket self;
		struct postern_error error;
		if (CHECK_OK(postern__socket_init(&self, names[i], &error), &error)) {
			CHECK_STR(self.path, expected);
			postern__socket_finish(&self);
		}
	}
	leave_temp_dir();
}

/* A directory whose path is longer than a socket address can hold. */
static void long_paths(void) {
	enter_temp_dir();
	for (int i = 0; i < 6; i++) {
		char name[101];
		memset(name, 'd', 100);
		name[100] = '\0';
		CHECK_INT(mkdir(name, 0700), 0);
		CHECK_INT(chdir(name), 0);
	}
	touch("a.db");
	struct postern__socket server;
	struct postern__socket client;
	struct postern_error error;
	if (CHECK_OK(postern__socket_init(&server, "a.db", &error), &error) &&
			CHECK_OK(postern__socket_init(&client, "a.db", &error), &error)) {
		CHECK(strlen(server.path) > 600);
		int fd;
		if (CHECK_OK(postern__socket_listen(&server, 5, &fd, &error), &error)) {
			CHECK(postern__socket_answers(&client));
			(void)close(fd);
			postern__socket_remove(&server);
		}
		postern__socket_finish(&server);
		postern__socket_finish(&client);
	}
	leave_temp_dir();
}

static void long_names(void) {
	enter_temp_dir();
	char names[2][256];
	memset(names, 'n', sizeof names);
	names[0][255] = names[1][255] = '\0';
	names[1][254] = 'm';
	struct postern__socket sockets[2];
	struct postern_error error;
	int fd;
	for (int i = 0; i < 2; i++) {
		touch(names[i]);
		if (!CHECK_OK(postern__socket_init(&sockets[i], names[i], &error),
					&error)) {
			leave_temp_dir();
			return;
		}
		CHECK(strlen(sockets[i].name) <= POSTERN__SOCKET_NAME_LEN_MAX);
	}
	CHECK(strcmp(sockets[0].name, sockets[1].name) != 0);
	if (CHECK_OK(postern__socket_listen(&sockets[0], 5, &fd, &error), &error)) {
		CHECK(postern__socket_answers(&sockets[0]));
		CHECK(!postern__socket_answers(&sockets[1]));
		(void)close(fd);
	}
	postern__socket_finish(&sockets[0]);
	postern__socket_finish(&sockets[1]);
	leave_temp_dir();
}

static void stale_sockets(void) {
	enter_temp_dir();
	touch("a.db");
	struct postern__socket self;
	struct postern_error error;
	if (CHECK_OK(postern__socket_init(&self, "a.db", &error), &error)) {
		int fd;
		CHECK_OK(postern__socket_listen(&self, 5, &fd, &error), &error);
		(void)close(fd); /* as if the process had died */
		CHECK_INT(access("a.db.sock", F_OK), 0);
		CHECK_OK(postern__socket_listen(&self, 5, &fd, &error), &error);
		CHECK(postern__socket_answers(&self));
		(void)close(fd);
		postern__socket_finish(&self);
	}
	leave_temp_dir();
}

static void other_files(void) {
	enter_temp_dir();
	touch("a.db");
	touch("precious");
	struct postern__socket self;
	struct postern_error error;
	if (CHECK_OK(postern__socket_init(&self, "a.db", &error), &error)) {
		int fd = -1;
		touch("a.db.sock");
		CHECK_INT(postern__socket_listen(&self, 5, &fd, &error),
				POSTERN_E_UNAVAILABLE);
		CHECK_CONTAINS(error.text, "not a socket");
		CHECK_INT(access("a.db.sock", F_OK), 0);
		CHECK_INT(unlink("a.db.sock"), 0);
		/* A symbolic link is not followed either. */
		CHECK_INT(symlink("precious", "a.db.sock"), 0);
		CHECK_INT(postern__socket_listen(&self, 5, &fd, &error),
				POSTERN_E_UNAVAILABLE);
		CHECK_INT(access("precious", F_OK), 0);
		CHECK_INT(fd, -1);
		postern__socket_finish(&self);
	}
	leave_temp_dir();
}

static void missing_file(void) {
	enter_temp_dir();
	struct postern__socket self;
	struct postern_error error;
	CHECK_INT(postern__socket_init(&self, "nothing.db", &error),
			POSTERN_E_NOTFOUND);
	CHECK_CONTAINS(error.text, "nothing.db");
	postern__socket_finish(&self);
	leave_temp_dir();
}

static void without_file(void) {
	enter_temp_dir();
	struct postern__socket self;
	struct postern__socket other;
	struct postern_error error;
	CHECK_INT(mkdir("d", 0700), 0);
	if (CHECK_OK(postern__socket_init_alone(&self, "d/api", &error), &error) &&
			CHECK_OK(postern__socket_init_alone(&other, "d//api", &error),
					&error)) {
		char path[128];
		temp_dir_name(&root, "", "d/api", path, sizeof path);
		CHECK_STR(self.path, path);
		int fd = -1;
		int second = -1;
		CHECK_OK(postern__socket_listen(&self, 5, &fd, &error), &error);
		struct stat status;
		CHECK_INT(stat("d/api", &status), 0);
		CHECK_INT(status.st_mode & 07777, 0600);
		/* A socket with a live server is kept, a stale one is replaced. */
		CHECK_INT(postern__socket_listen(&other, 5, &second, &error),
				POSTERN_E_BUSY);
		CHECK_CONTAINS(error.text, path);
		CHECK_INT(second, -1);
		CHECK(postern__socket_answers(&self));
		(void)close(fd);
		CHECK_OK(postern__socket_listen(&other, 5, &second, &error), &error);
		CHECK(postern__socket_answers(&self));
		(void)close(second);
		CHECK_INT(unlink("d/api"), 0);
		touch("d/api");
		CHECK_INT(postern__socket_listen(&self, 5, &fd, &error),
				POSTERN_E_UNAVAILABLE);
		postern__socket_finish(&self);
		postern__socket_finish(&other);
	}
	leave_temp_dir();
}

static void unusable_paths(void) {
	enter_temp_dir();
	struct postern__socket self;
	struct postern_error error;
	char path[256];
	CHECK_INT(postern__socket_init_alone(&self, "nowhere/api", &error),
			POSTERN_E_UNAVAILABLE);
	CHECK_CONTAINS(error.text, "nowhere/api");
	postern__socket_finish(&self);
	touch("file");
	CHECK_INT(postern__socket_init_alone(&self, "file/api", &error),
			POSTERN_E_UNAVAILABLE);
	(void)snprintf(path, sizeof path, "%0108d", 0);
	CHECK_INT(postern__socket_init_alone(&self, path, &error),
			POSTERN_E_INVALID);
	(void)snprintf(path, sizeof path, "%081d", 0);
	CHECK_INT(postern__socket_init_alone(&self, path, &error),
			POSTERN_E_INVALID);
	(void)snprintf(path, sizeof path, "%080d", 0);
	CHECK_OK(postern__socket_init_alone(&self, path, &error), &error);
	postern__socket_finish(&self);
	leave_temp_dir();
}

static const struct tap_case cases[] = {
	{ "the socket is beside its file, with mode 0600", beside_the_file },
	{ "every name of a file leads to the same socket", same_for_every_name },
	{ "a socket works at a path longer than a socket address", long_paths },
	{ "a long file name gets a short, unique socket name", long_names },
	{ "the socket of a dead server is replaced", stale_sockets },
	{ "a file that is not a socket is not replaced", other_files },
	{ "a missing database file is an error that names it", missing_file },
	{ "a socket without a file replaces neither a live socket nor another file",
			without_file },
	{ "a socket path that cannot be used is refused", unusable_paths },
};

TAP_MAIN(cases)
