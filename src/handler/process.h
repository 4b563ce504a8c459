/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_PROCESS_H
#define POSTERN_HANDLER_PROCESS_H

/*
 * One program, run to its end by the calling thread: started in a clean
 * surrounding, fed, listened to, and gone with its process group afterwards.
 * What its end means is the caller's business.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct postern_run;

/* How much of the end of stderr is kept. More than a reason can hold. */
#define POSTERN__PROCESS_TAIL_LEN_MAX 16384

enum postern__process_end {
	POSTERN__PROCESS_EXITED,    /* number: its exit code */
	POSTERN__PROCESS_KILLED,    /* number: a signal that was not ours */
	POSTERN__PROCESS_TIMED_OUT, /* the deadline, or told so */
	POSTERN__PROCESS_STOPPED,   /* told so */
	POSTERN__PROCESS_NOT_RUN,   /* number: errno, step: what failed */
	POSTERN__PROCESS_NO_MEANS,  /* the same, before there was a process */
	POSTERN__PROCESS_LOST       /* someone else took its exit status */
};

/* What other threads tell a process in its cancel word. */
enum {
	POSTERN__PROCESS_GO = 0,
	POSTERN__PROCESS_TIME_OUT,
	POSTERN__PROCESS_STOP
};

struct postern__process_order {
	char *const *argv;
	char *const *envp;
	const void *input; /* for stdin */
	size_t input_len;
	const struct postern_run *run; /* asked for its deadline */
	/* To end it early: set the word, then make the eventfd readable. */
	atomic_int *cancel;
	int wake_fd;
};

struct postern__process_result {
	enum postern__process_end end;
	int number;
	const char *step; /* static */
	int64_t elapsed_ms;
	/* The end of stderr. The second half is room to read into. */
	size_t tail_len;
	char tail[2 * POSTERN__PROCESS_TAIL_LEN_MAX];
};

/*
 * Run it. Blocks until the program has ended and is reaped; then its process
 * group is killed and nothing of it is left open here, even if a process that
 * left the group keeps the other end of a pipe.
 */
void postern__process_run(const struct postern__process_order *order,
		struct postern__process_result *out);

#endif
