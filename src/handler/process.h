/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_PROCESS_H
#define POSTERN_HANDLER_PROCESS_H

/*
 * One program, from its start to its end: in a clean environment, with the body
 * on stdin, stdout and stderr read, and with its process group killed
 * afterwards. The steps are made by one thread (children.c), which polls the
 * descriptors of all its programs; the caller classifies the end.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct pollfd;
struct postern_run;

/* How much of the end of stderr is kept. More than a reason can hold. */
#define POSTERN__PROCESS_TAIL_LEN_MAX 16384
/* How much of the beginning of stdout. */
#define POSTERN__PROCESS_OUTPUT_LEN_MAX 4096

enum postern__process_end {
	POSTERN__PROCESS_EXITED, /* number: its exit code */
	POSTERN__PROCESS_KILLED, /* number: a signal that this process did not send
							  */
	POSTERN__PROCESS_TIMED_OUT, /* the deadline passed, or the cancel word is
								   set to it */
	POSTERN__PROCESS_STOPPED,   /* cancelled */
	POSTERN__PROCESS_NOT_RUN,   /* number: errno, step: what failed */
	POSTERN__PROCESS_NO_MEANS,  /* the same, before there was a process */
	POSTERN__PROCESS_LOST       /* another thread reaped it */
};

/* The values of a job's cancel word. */
enum {
	POSTERN__PROCESS_GO = 0,
	POSTERN__PROCESS_TIME_OUT,
	POSTERN__PROCESS_STOP
};

/* Another user than that of this process, with its groups. */
struct postern__process_user {
	uid_t uid;
	gid_t gid;
	const gid_t *groups;
	size_t group_count;
};

struct postern__process_order {
	char *const *argv;
	char *const *envp;
	const char *directory;                    /* NULL: "/" */
	const struct postern__process_user *user; /* NULL: that of this process */
	const void *input;                        /* for stdin */
	size_t input_len;
	const struct postern_run *run; /* deadline */
	/* To end it early: set the word, then make a step. */
	atomic_int *cancel;
};

struct postern__process_result {
	enum postern__process_end end;
	int number;
	const char *step; /* static */
	int64_t elapsed_ms;
	size_t output_len;
	char output[POSTERN__PROCESS_OUTPUT_LEN_MAX]; /* the beginning of stdout */
	/* The end of stderr. The second half is room to read into. */
	size_t tail_len;
	char tail[2 * POSTERN__PROCESS_TAIL_LEN_MAX];
};

/* The most descriptors that a program waits for. */
#define POSTERN__PROCESS_FD_COUNT_MAX 4

struct postern__process {
	struct postern__process_order order;
	struct postern__process_result *result;
	int64_t start_ms;
	pid_t pid;
	size_t input_pos;
	size_t polled_count; /* descriptors of the latest poll */
	bool exited;         /* but not reaped */
	bool term_sent;      /* SIGTERM was sent; result->end is the reason */
	bool killed;
	int64_t kill_at_ms;
	/* The ends of this process; -1 when closed. */
	int exit_fd;
	int status_fd;
	int input_fd;
	int output_fd;
	int errors_fd;
	/* The child's ends, until the fork. */
	int child_status_fd;
	int child_input_fd;
	int child_output_fd;
	int child_errors_fd;
};

/*
 * Start the program. What the order points to must stay valid until the end.
 * False: it has ended already, result->end is why. The thread that calls this
 * must live until the end, and make the other calls.
 */
bool postern__process_start(struct postern__process *self,
		const struct postern__process_order *order,
		struct postern__process_result *result);

/* What to poll, at most POSTERN__PROCESS_FD_COUNT_MAX descriptors, and for how
   long at most; -1: no limit. Returns their number: closed ones are left out,
   because poll() refuses more entries than a process may have open files. */
size_t postern__process_poll(struct postern__process *self, struct pollfd *fds);
int postern__process_wait_ms(const struct postern__process *self);

/*
 * Continue after poll(), or after the cancel word was set. Returns false when
 * the program has ended: it is reaped then, its process group is killed, and
 * nothing of it is left open here, even if a process that left the group keeps
 * the other end of a pipe.
 */
bool postern__process_step(struct postern__process *self,
		const struct pollfd *fds);

#endif
