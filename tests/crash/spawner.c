/* SPDX-License-Identifier: MIT */
/* Forks a child for each request; the protocol is in the header. */

#include "crash/spawner.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* An environment and a few paths. */
#define REQUEST_BYTES_MAX 65536
#define ARGUMENTS_MAX 8

struct request {
	char *words; /* each ends with a zero byte */
	size_t len;
	size_t offset;
};

/* stdio would read ahead, and a child would have that too. */
static bool read_all(char *data, size_t len) {
	while (len > 0) {
		ssize_t count = read(STDIN_FILENO, data, len);
		if (count <= 0) {
			return false;
		}
		data += count;
		len -= (size_t)count;
	}
	return true;
}

static bool read_len(size_t *len_out) {
	char text[16] = { 0 };
	for (size_t i = 0; i < sizeof text - 1; i++) {
		if (!read_all(&text[i], 1)) {
			return false;
		}
		if (text[i] == '\n') {
			*len_out = strtoul(text, NULL, 10);
			return *len_out > 0 && *len_out <= REQUEST_BYTES_MAX;
		}
	}
	return false;
}

/* The next word, or NULL if there is none. */
static char *next_word(struct request *request) {
	if (request->offset >= request->len) {
		return NULL;
	}
	char *word = request->words + request->offset;
	request->offset += strlen(word) + 1;
	return word;
}

static void redirect(int fd, const char *path, int flags) {
	int opened = open(path, flags | O_CLOEXEC, 0600);
	if (opened < 0 || dup2(opened, fd) < 0) {
		_exit(2);
	}
	(void)close(opened);
}

/* The preloaded library of strike.c, if there is one, read its plan when the
   server started; now the environment has the plan of this child. */
static void read_strike_again(void) {
	void *symbol = dlsym(RTLD_DEFAULT, "strike_begin");
	void (*begin)(void);
	memcpy(&begin, &symbol, sizeof begin);
	if (begin) {
		begin();
	}
}

/* In the child. */
static int run_child(const char *program, struct request *request,
		int (*run)(int argc, char **argv)) {
	char *argv[ARGUMENTS_MAX + 2] = { (char *)program };
	int argc = 1;
	char *word;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	word = next_word(request);
	redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
	redirect(STDOUT_FILENO, "/dev/null", O_WRONLY);
	redirect(STDERR_FILENO, word, O_WRONLY | O_CREAT | O_TRUNC);
	while ((word = next_word(request)) && word[0]) {
		char *value = strchr(word, '=');
		if (!value) {
			return 2;
		}
		*value++ = '\0';
		if (setenv(word, value, 1) != 0) {
			return 2;
		}
	}
	while (argc <= ARGUMENTS_MAX && (word = next_word(request))) {
		argv[argc++] = word;
	}
	read_strike_again();
	return run(argc, argv);
}

static bool answer(pid_t child) {
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror("spawner");
		return false;
	}
	(void)printf("%d\n",
			WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
	return fflush(stdout) == 0;
}

int spawner_serve(const char *program, int (*run)(int argc, char **argv)) {
	static char words[REQUEST_BYTES_MAX + 1];
	struct request request = { .words = words };
	/* While it waits for a child it would not see that stdin has ended. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read_len(&request.len)) {
		if (!read_all(words, request.len)) {
			return 2;
		}
		words[request.len] = '\0';
		request.offset = 0;
		pid_t child = fork();
		if (child == 0) {
			exit(run_child(program, &request, run));
		}
		if (!answer(child)) {
			return 2;
		}
	}
	return 0;
}
