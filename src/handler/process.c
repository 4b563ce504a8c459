/* SPDX-License-Identifier: MIT */
/*
 * Runs a program, which has these descriptors to poll:
 *
 *   exit     a pidfd: the program has ended
 *   input    the body, to its stdin
 *   output   its stdout, of which the beginning is kept; all of it is read, so
 *            that it cannot fill up
 *   errors   its stderr, of which the tail is kept
 *
 * A child whose exec fails reports the reason through one more pipe, which is
 * read after its end, and which exec closes.
 *
 * The child leads a session and so a process group whose number is its pid.
 * That number stays in use until the child is reaped, even after its death; so
 * the group is killed first and the child reaped after, and no signal can reach
 * another process.
 *
 * PR_SET_PDEATHSIG belongs to the thread that forked, not to the process: that
 * thread waits until the child is reaped, so the two are the same here.
 *
 * Between fork and exec only system calls are made, and all memory is allocated
 * before: another thread may have held any mutex at the moment of the fork.
 */

#include "handler/process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <postern/sys/clock.h>
#include <postern/sys/handler.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "handler/kinds.h"

/* One iteration writes no more than this, so that no pipe starves another. */
#define WRITE_LEN_MAX 65536
/* Read after the end: more than a pipe can hold, so that a process that left
   the group cannot keep this thread reading. */
#define LAST_READ_COUNT_MAX 128

enum step {
	STEP_SESSION,
	STEP_USER,
	STEP_DEATH_SIGNAL,
	STEP_LIMITS,
	STEP_PRIVILEGES,
	STEP_DIRECTORY,
	STEP_FILES,
	STEP_EXEC
};

static const char *const step_names[] = {
	[STEP_SESSION] = "setsid",
	[STEP_USER] = "setuid",
	[STEP_DEATH_SIGNAL] = "prctl(PR_SET_PDEATHSIG)",
	[STEP_LIMITS] = "setrlimit",
	[STEP_PRIVILEGES] = "prctl(PR_SET_NO_NEW_PRIVS)",
	[STEP_DIRECTORY] = "chdir",
	[STEP_FILES] = "close_range",
	[STEP_EXEC] = "exec",
};

/* The reason why a child could not exec the program. */
struct report {
	int step;
	int number; /* errno */
};

static int64_t now_ms(void) {
	const struct postern_clock *clock = postern_clock_system();
	return clock->monotonic_ms(clock->context);
}

static void close_fd(int *fd) {
	if (*fd >= 0) {
		(void)close(*fd); /* nothing of it is kept */
		*fd = -1;
	}
}

/* A process that was started with stdin closed gets 0 for its next file; the
   child replaces descriptors 0 to 2. */
static int above_stdio(int fd) {
	if (fd < 0 || fd > STDERR_FILENO) {
		return fd;
	}
	int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	int number = errno;
	(void)close(fd);
	errno = number;
	return above;
}

static bool make_pipe(int *read_out, int *write_out) {
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) < 0) {
		return false;
	}
	*read_out = above_stdio(fds[0]);
	*write_out = above_stdio(fds[1]);
	return *read_out >= 0 && *write_out >= 0;
}

static bool make_nonblocking(int fd) {
	int flags = fcntl(fd, F_GETFL);
	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static bool open_files(struct postern__process *self) {
	return make_pipe(&self->status_fd, &self->child_status_fd) &&
		   make_pipe(&self->child_input_fd, &self->input_fd) &&
		   make_pipe(&self->output_fd, &self->child_output_fd) &&
		   make_pipe(&self->errors_fd, &self->child_errors_fd) &&
		   make_nonblocking(self->status_fd) &&
		   make_nonblocking(self->input_fd) &&
		   make_nonblocking(self->output_fd) &&
		   make_nonblocking(self->errors_fd);
}

static void close_child_files(struct postern__process *self) {
	close_fd(&self->child_status_fd);
	close_fd(&self->child_input_fd);
	close_fd(&self->child_output_fd);
	close_fd(&self->child_errors_fd);
}

static void close_files(struct postern__process *self) {
	close_child_files(self);
	close_fd(&self->exit_fd);
	close_fd(&self->status_fd);
	close_fd(&self->input_fd);
	close_fd(&self->output_fd);
	close_fd(&self->errors_fd);
}

/* Runs in the child. */
static _Noreturn void child_fail(const struct postern__process *self,
		enum step step) {
	struct report report = { .step = (int)step, .number = errno };
	/* If this fails, only the exit code reports the failure. */
	ssize_t n = write(self->child_status_fd, &report, sizeof report);
	(void)n;
	_exit(127);
}

/* Runs in the child: signal settings of the embedding program must not reach
   the program. */
static void reset_signals(void) {
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = SIG_DFL;
	for (int number = 1; number < NSIG; number++) {
		/* Fails for signals that cannot have a handler. */
		(void)sigaction(number, &action, NULL);
	}
}

/* Runs in the child. The functions of the C library would change the user of
   all threads, with a lock that one of them may have held at the fork. */
static bool become(const struct postern__process_user *user) {
	return syscall(SYS_setgroups, user->group_count, user->groups) == 0 &&
		   syscall(SYS_setresgid, user->gid, user->gid, user->gid) == 0 &&
		   syscall(SYS_setresuid, user->uid, user->uid, user->uid) == 0;
}

/* Runs in the child. */
static _Noreturn void child_exec(const struct postern__process *self,
		pid_t parent) {
	static const struct rlimit no_core = { 0, 0 };
	sigset_t none;

	if (setsid() < 0) {
		child_fail(self, STEP_SESSION);
	}
	/* A change of the user clears the signal that follows. */
	if (self->order.user && !become(self->order.user)) {
		child_fail(self, STEP_USER);
	}
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
		child_fail(self, STEP_DEATH_SIGNAL);
	}
	if (getppid() != parent) {
		_exit(127); /* the parent died before the signal was requested */
	}
	reset_signals();
	(void)umask(077);
	if (setrlimit(RLIMIT_CORE, &no_core) < 0) {
		child_fail(self, STEP_LIMITS);
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
		child_fail(self, STEP_PRIVILEGES);
	}
	if (chdir(self->order.directory ? self->order.directory : "/") < 0) {
		child_fail(self, STEP_DIRECTORY);
	}
	/* Other descriptors are closed by exec, not now: the status pipe is still
	   needed. */
	if (dup2(self->child_input_fd, STDIN_FILENO) < 0 ||
			dup2(self->child_output_fd, STDOUT_FILENO) < 0 ||
			dup2(self->child_errors_fd, STDERR_FILENO) < 0 ||
			close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0) {
		child_fail(self, STEP_FILES);
	}
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)execve(self->order.argv[0], self->order.argv, self->order.envp);
	child_fail(self, STEP_EXEC);
}

/* Signals stay blocked during the fork: a handler of the embedding program must
   not run in the child. */
static pid_t fork_child(const struct postern__process *self) {
	sigset_t all;
	sigset_t before;
	pid_t parent = getpid();

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	pid_t pid = fork();
	if (pid == 0) {
		child_exec(self, parent);
	}
	int number = errno;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = number;
	return pid;
}

static bool fail_resources(struct postern__process *self, const char *step) {
	self->result->end = POSTERN__PROCESS_NO_MEANS;
	self->result->number = errno;
	self->result->step = step;
	return false;
}

static bool spawn(struct postern__process *self) {
	if (!open_files(self)) {
		return fail_resources(self, "pipe");
	}
	self->pid = fork_child(self);
	if (self->pid < 0) {
		return fail_resources(self, "fork");
	}
	close_child_files(self);
	self->exit_fd = pidfd_open(self->pid, 0);
	if (self->exit_fd < 0) {
		(void)fail_resources(self, "pidfd_open");
		/* Both: the child may or may not lead its group yet. */
		(void)kill(-self->pid, SIGKILL);
		(void)kill(self->pid, SIGKILL);
		while (waitpid(self->pid, NULL, 0) < 0 && errno == EINTR) {
		}
		return false;
	}
	if (self->order.input_len == 0) {
		close_fd(&self->input_fd);
	}
	return true;
}

static void signal_group(const struct postern__process *self, int number) {
	if (kill(-self->pid, number) < 0) {
		/* The child does not lead its group yet, and has no children. */
		(void)kill(self->pid, number);
	}
}

/* Whether the program must be ended now; sets the reason. */
static bool is_kill_due(const struct postern__process *self,
		enum postern__process_end *out) {
	switch (atomic_load(self->order.cancel)) {
	case POSTERN__PROCESS_STOP: *out = POSTERN__PROCESS_STOPPED; return true;
	case POSTERN__PROCESS_TIME_OUT:
		*out = POSTERN__PROCESS_TIMED_OUT;
		return true;
	default: break;
	}
	*out = POSTERN__PROCESS_TIMED_OUT;
	return postern_run_remaining_ms(self->order.run) == 0;
}

/* First SIGTERM, later SIGKILL. */
static void escalate_kill(struct postern__process *self) {
	if (!self->term_sent) {
		enum postern__process_end end;
		if (!is_kill_due(self, &end)) {
			return;
		}
		self->term_sent = true;
		self->result->end = end;
		self->kill_at_ms = now_ms() + POSTERN__EXEC_GRACE_MS;
		signal_group(self, SIGTERM);
	} else if (!self->killed && now_ms() >= self->kill_at_ms) {
		self->killed = true;
		signal_group(self, SIGKILL);
	}
}

int postern__process_wait_ms(const struct postern__process *self) {
	int64_t ms = -1;
	if (!self->term_sent) {
		ms = postern_run_remaining_ms(self->order.run);
	} else if (!self->killed) {
		ms = self->kill_at_ms - now_ms();
		ms = ms < 0 ? 0 : ms;
	}
	/* A longer wait than a day is split; the loop checks again. */
	return ms > 86400000 ? 86400000 : (int)ms;
}

static void read_status(struct postern__process *self) {
	struct report report;
	ssize_t n = read(self->status_fd, &report, sizeof report);
	/* Any other result is the end of file: exec succeeded. */
	if (n == (ssize_t)sizeof report) {
		assert(report.step >= 0 && report.step <= STEP_EXEC);
		self->result->step = step_names[report.step];
		self->result->number = report.number;
	}
}

/* write() to a pipe without SIGPIPE, whatever the disposition of the process
   is. The signal goes to this thread: it is blocked and then removed, unless
   one was pending before. */
static ssize_t write_quietly(int fd, const void *bytes, size_t len) {
	static const struct timespec now = { 0, 0 };
	sigset_t broken;
	sigset_t before;
	sigset_t waiting;

	(void)sigemptyset(&waiting);
	(void)sigpending(&waiting);
	(void)sigemptyset(&broken);
	(void)sigaddset(&broken, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &broken, &before);
	ssize_t n = write(fd, bytes, len);
	int number = errno;
	if (n < 0 && number == EPIPE && !sigismember(&waiting, SIGPIPE)) {
		while (sigtimedwait(&broken, NULL, &now) < 0 && errno == EINTR) {
		}
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = number;
	return n;
}

static void write_stdin(struct postern__process *self) {
	const char *bytes = self->order.input;
	size_t len = self->order.input_len - self->input_pos;

	ssize_t n = write_quietly(self->input_fd, bytes + self->input_pos,
			len < WRITE_LEN_MAX ? len : WRITE_LEN_MAX);
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR) {
			/* The program does not read the rest, which is allowed. */
			close_fd(&self->input_fd);
		}
		return;
	}
	self->input_pos += (size_t)n;
	if (self->input_pos == self->order.input_len) {
		close_fd(&self->input_fd);
	}
}

/* Whether there may be more to read. */
static bool read_stdout_once(struct postern__process *self) {
	struct postern__process_result *result = self->result;
	char rest[WRITE_LEN_MAX];
	size_t room = sizeof result->output - result->output_len;

	if (self->output_fd < 0) {
		return false;
	}
	ssize_t n = room > 0 ? read(self->output_fd,
								   result->output + result->output_len, room)
						 : read(self->output_fd, rest, sizeof rest);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		close_fd(&self->output_fd);
	}
	result->output_len += n > 0 && room > 0 ? (size_t)n : 0;
	return n > 0;
}

/* Whether there may be more to read. */
static bool read_stderr_once(struct postern__process *self) {
	struct postern__process_result *result = self->result;
	size_t max = POSTERN__PROCESS_TAIL_LEN_MAX;

	if (self->errors_fd < 0) {
		return false;
	}
	ssize_t n = read(self->errors_fd, result->tail + result->tail_len,
			sizeof result->tail - result->tail_len);
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR) {
			close_fd(&self->errors_fd);
		}
		return false;
	}
	if (n == 0) {
		close_fd(&self->errors_fd);
		return false;
	}
	result->tail_len += (size_t)n;
	if (result->tail_len > max) {
		memmove(result->tail, result->tail + result->tail_len - max, max);
		result->tail_len = max;
	}
	return true;
}

/* Whether other processes of the group may use the rest of the grace: a shell
   ends at once on SIGTERM, the program that it waits for takes longer. While
   stderr is open, a process of the group is alive. */
static bool group_has_grace(const struct postern__process *self) {
	return self->term_sent && !self->killed && self->errors_fd >= 0;
}

/* The child has ended, or is about to: read its status and kill its group. */
static void reap(struct postern__process *self) {
	struct postern__process_result *result = self->result;
	siginfo_t info;
	int r;

	memset(&info, 0, sizeof info);
	do {
		r = waitid(P_PID, (id_t)self->pid, &info, WEXITED | WNOWAIT);
	} while (r < 0 && errno == EINTR);
	if (r < 0) {
		/* Another process may have the pid by now: no signals. */
		result->end = POSTERN__PROCESS_LOST;
		return;
	}
	(void)kill(-self->pid, SIGKILL);
	read_status(self);
	for (int i = 0; i < LAST_READ_COUNT_MAX && read_stderr_once(self); i++) {
	}
	while (result->output_len < sizeof result->output &&
			read_stdout_once(self)) {
	}
	while (waitpid(self->pid, NULL, 0) < 0 && errno == EINTR) {
	}
	if (self->term_sent) {
		return;
	}
	if (result->step) {
		result->end = POSTERN__PROCESS_NOT_RUN;
		return;
	}
	result->end = info.si_code == CLD_EXITED ? POSTERN__PROCESS_EXITED
											 : POSTERN__PROCESS_KILLED;
	result->number = info.si_status;
}

bool postern__process_start(struct postern__process *self,
		const struct postern__process_order *order,
		struct postern__process_result *result) {
	*self = (struct postern__process){
		.order = *order,
		.result = result,
		.start_ms = now_ms(),
		.exit_fd = -1,
		.status_fd = -1,
		.input_fd = -1,
		.output_fd = -1,
		.errors_fd = -1,
		.child_status_fd = -1,
		.child_input_fd = -1,
		.child_output_fd = -1,
		.child_errors_fd = -1,
	};
	result->number = 0;
	result->step = NULL;
	result->elapsed_ms = 0;
	result->output_len = 0;
	result->tail_len = 0;
	if (is_kill_due(self, &result->end)) {
		return false;
	}
	if (!spawn(self)) {
		close_files(self);
		return false;
	}
	return true;
}

static void add_polled(struct postern__process *self, struct pollfd *fds,
		int fd, short events) {
	if (fd >= 0) {
		fds[self->polled_count++] = (struct pollfd){ fd, events, 0 };
	}
}

size_t postern__process_poll(struct postern__process *self,
		struct pollfd *fds) {
	self->polled_count = 0;
	add_polled(self, fds, self->exited ? -1 : self->exit_fd, POLLIN);
	add_polled(self, fds, self->input_fd, POLLOUT);
	add_polled(self, fds, self->output_fd, POLLIN);
	add_polled(self, fds, self->errors_fd, POLLIN);
	return self->polled_count;
}

static bool has_event(const struct postern__process *self,
		const struct pollfd *fds, int fd) {
	for (size_t i = 0; i < self->polled_count; i++) {
		if (fds[i].fd == fd) {
			return fds[i].revents != 0;
		}
	}
	return false;
}

bool postern__process_step(struct postern__process *self,
		const struct pollfd *fds) {
	if (has_event(self, fds, self->errors_fd)) {
		(void)read_stderr_once(self);
	}
	if (has_event(self, fds, self->output_fd)) {
		(void)read_stdout_once(self);
	}
	if (has_event(self, fds, self->exit_fd)) {
		self->exited = true;
	}
	if (has_event(self, fds, self->input_fd)) {
		write_stdin(self);
	}
	/* A program that ended on its own has ended in time. */
	if (!self->exited || self->term_sent) {
		escalate_kill(self);
	}
	if (!self->exited || group_has_grace(self)) {
		return true;
	}
	reap(self);
	self->result->elapsed_ms = now_ms() - self->start_ms;
	close_files(self);
	return false;
}
