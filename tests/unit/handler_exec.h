/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_HANDLER_EXEC_H
#define POSTERN_TESTS_HANDLER_EXEC_H

/*
 * Shared by the tests of the exec kind: handlers that run the shell, a
 * directory for the files that scripts write, and checks of processes.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "handler/kinds.h"
#include "handler_fake.h"
#include "support/temp_dir.h"

static struct temp_dir directory;

__attribute__((unused)) static struct postern_handler *
make(const char *const *argv, size_t argc) {
	struct postern_handler *handler = NULL;
	struct postern_error error = { 0 };
	const struct postern__exec_settings settings = { .argv = argv,
		.argc = argc };
	if (!CHECK_OK(postern__exec_create(&settings, &handler, &error), &error)) {
		exit(1);
	}
	return handler;
}

/* The script's $0 is a file for it to write into. */
__attribute__((unused)) static struct postern_handler *
make_shell(const char *script, const char *file) {
	const char *argv[] = { "/bin/sh", "-c", script, file };
	return make(argv, file ? 4 : 3);
}

__attribute__((unused)) static char *file_path(const char *name,
		char out[PATH_MAX]) {
	temp_dir_name(&directory, "", name, out, PATH_MAX);
	return out;
}

__attribute__((unused)) static void pause_ms(int ms) {
	(void)poll(NULL, 0, ms);
}

/* Waits for the pid that a script writes into a file, followed by a newline. */
__attribute__((unused)) static pid_t read_pid(const char *path) {
	for (int i = 0; i < 2000; i++) {
		char text[32];
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
		if (fd >= 0) {
			(void)close(fd);
		}
		if (n > 1 && text[n - 1] == '\n') {
			text[n] = '\0';
			return (pid_t)strtol(text, NULL, 10);
		}
		pause_ms(5);
	}
	FAIL("no pid in %s", path);
	return 0;
}

__attribute__((unused)) static bool is_alive(pid_t pid) {
	char path[64];
	char text[512];
	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return false;
	}
	ssize_t n = read(fd, text, sizeof text - 1);
	(void)close(fd);
	text[n > 0 ? n : 0] = '\0';
	const char *state = strrchr(text, ')');
	/* A zombie counts as ended: its new parent reaps it, or does not. */
	return state && state[2] != 'Z' && state[2] != 'X';
}

__attribute__((unused)) static bool is_gone_soon(pid_t pid) {
	for (int i = 0; i < 1000; i++) {
		if (!is_alive(pid)) {
			return true;
		}
		pause_ms(5);
	}
	return false;
}

__attribute__((unused)) static int count_fds(void) {
	int count = 0;
	DIR *files = opendir("/proc/self/fd");
	while (readdir(files)) {
		count++;
	}
	(void)closedir(files);
	return count;
}

__attribute__((unused)) static bool has_children(void) {
	return waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD;
}

/* Runs tap_main() with a temporary directory. */
static int exec_main(int argc, char **argv, const struct tap_case *cases,
		size_t count) {
	temp_dir_create(&directory);
	int code = tap_main(argc, argv, cases, count);
	temp_dir_destroy(&directory);
	return code;
}

#endif
