/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_PROCESS_H
#define POSTERN_HANDLER_PROCESS_H

/*
 * Runs one program to its end on the calling thread: in a clean environment,
 * with the body on stdin and stderr read, and with its process group killed
 * afterwards. The caller classifies its end.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct postern_run;

/* How much of the end of stderr is kept. More than a reason can hold. */
#define POSTERN__PROCESS_TAIL_LEN_MAX 16384

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

struct postern__process_order {
	char *const *argv;
	char *const *envp;
	const void *input; /* for stdin */
	size_t input_len;
	const struct postern_run *run; /* deadline */
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
 * Run the program. Blocks until it has ended and is reaped; then its process
 * group is killed and nothing of it is left open here, even if a process that
 * left the group keeps the other end of a pipe.
 */
void postern__process_run(const struct postern__process_order *order,
		struct postern__process_result *out);

#endif
