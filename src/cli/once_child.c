/* SPDX-License-Identifier: MIT */
/*
 * No signal handlers: the signals are blocked and taken one by one, so that
 * none can arrive between two steps.
 */

#include "cli/once_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void fill_signals(sigset_t *out) {
	static const int forwarded[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1,
		SIGUSR2, SIGCHLD };
	(void)sigemptyset(out);
	for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++) {
		(void)sigaddset(out, forwarded[i]);
	}
}

/* Runs in the child. The program must not survive this process, which renews
   its lease. */
static _Noreturn void run_program(char *const *argv, const sigset_t *mask,
		pid_t parent, int status_fd) {
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGXFSZ, SIG_DFL);
	(void)sigprocmask(SIG_SETMASK, mask, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent) {
		_exit(126);
	}
	(void)execvp(argv[0], argv);
	int number = errno;
	ssize_t n = write(status_fd, &number, sizeof number);
	(void)n; /* the exit status reports the failure as well */
	_exit(126);
}

/* Wait until the child runs the program. Returns 0, or why it does not. */
static int read_status(int fd) {
	int number = 0;
	ssize_t n;
	do {
		n = read(fd, &number, sizeof number);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof number ? number : 0;
}

int postern__once_start(char *const *argv, pid_t *out) {
	sigset_t signals;
	sigset_t before;
	int fds[2];
	pid_t parent = getpid();
	if (pipe2(fds, O_CLOEXEC) < 0) {
		return errno;
	}
	fill_signals(&signals);
	/* Ignored by the parent of this process: then the child could not be waited
	   for. */
	(void)signal(SIGCHLD, SIG_DFL);
	(void)sigprocmask(SIG_BLOCK, &signals, &before);
	(void)fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		run_program(argv, &before, parent, fds[1]);
	}
	int number = pid < 0 ? errno : 0;
	(void)close(fds[1]);
	if (pid > 0) {
		number = read_status(fds[0]);
	}
	(void)close(fds[0]);
	if (number && pid > 0) {
		(void)waitpid(pid, NULL, 0);
	}
	if (number) {
		(void)sigprocmask(SIG_SETMASK, &before, NULL);
		return number;
	}
	*out = pid;
	return 0;
}

int postern__once_wait(pid_t pid) {
	sigset_t signals;
	fill_signals(&signals);
	for (;;) {
		siginfo_t info;
		int status;
		pid_t ended = waitpid(pid, &status, WNOHANG);
		if (ended == pid) {
			return WIFSIGNALED(status) ? 128 + WTERMSIG(status)
									   : WEXITSTATUS(status);
		}
		int number = sigwaitinfo(&signals, &info);
		if (number > 0 && number != SIGCHLD && info.si_code != SI_KERNEL) {
			(void)kill(pid, number);
		}
	}
}
