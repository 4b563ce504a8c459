/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_HANDLER_H
#define POSTERN_SYS_HANDLER_H

/*
 * For those who write a handler kind: callback, sql and exec are written
 * against this header.
 */

#include <postern/export.h>
#include <postern/handler.h>
#include <postern/message.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_handler;

/* One delivery that is being run. Belongs to the engine; a kind may use it
   from the start of the run until it has finished it. */
struct postern_run;

POSTERN_EXPORT const struct postern_message *postern_run_message(
		const struct postern_run *run);
/* Its `transaction` is set for transactional kinds only. */
POSTERN_EXPORT const struct postern_delivery *postern_run_delivery(
		const struct postern_run *run);
/* Changes whenever the transaction belongs to another connection than last
   time: what a kind keeps per connection (prepared statements) is dead then,
   already freed by the store, and must not be touched. */
POSTERN_EXPORT uint64_t postern_run_epoch(const struct postern_run *run);
/* Ms from now until the deadline, at least 0; -1 without one. */
POSTERN_EXPORT int64_t postern_run_remaining_ms(const struct postern_run *run);

/*
 * End a run with its outcome, which is copied. Exactly once per run, from any
 * thread, before or after `start` has returned; the run is gone afterwards.
 */
POSTERN_EXPORT void postern_run_finish(struct postern_run *run,
		const struct postern_outcome *outcome);

/*
 * End a run that was cut short by postern_runner_drain(): the lease is given
 * back and nothing is counted. Otherwise as postern_run_finish().
 */
POSTERN_EXPORT void postern_run_return(struct postern_run *run);

#define POSTERN_HANDLER_OPS_VERSION 1

enum postern_cancel {
	POSTERN_CANCEL_TIMEOUT, /* the deadline has passed: finish as a retry */
	POSTERN_CANCEL_STOP     /* the runner stops: postern_run_return() */
};

/*
 * What a handler kind implements. Every function is required.
 */
struct postern_handler_ops {
	unsigned version; /* POSTERN_HANDLER_OPS_VERSION; new slots at the end */
	const char *name; /* "callback", "sql", "exec" */

	/* Can take the whole process down: lost leases become suspects. */
	bool in_process;
	/* Understands commit_batch. */
	bool batches;

	/*
	 * Begin a run. A plain kind may block the thread it is given (a worker)
	 * or hand the run on and return; either way it ends the run with
	 * postern_run_finish(). A transactional handler is called inside the
	 * store's open transaction and must finish before it returns.
	 */
	void (*start)(struct postern_handler *handler, struct postern_run *run);

	/*
	 * Make a run end soon, from another thread. It may have finished in the
	 * meantime, but is not freed before this returns. A kind that cannot does
	 * nothing. Never blocks.
	 */
	void (*cancel)(struct postern_handler *handler, struct postern_run *run,
			enum postern_cancel why);

	void (*destroy)(struct postern_handler *handler);

	/*
	 * Transactional, on PostgreSQL: if the connection is in pipeline mode,
	 * start only sends its statements, and POSTERN_DONE is what it comes to if
	 * none of them fails. The store looks at their answers; if one fails, all
	 * is undone and start called again without a pipeline. Statements may be
	 * prepared, but are gone when the epoch changes, which it then does for
	 * every transaction. What is sent can neither begin nor end one.
	 */
	bool sends_ahead;
};

/* The common head. A kind embeds it as the first member, named `base`. */
struct postern_handler {
	const struct postern_handler_ops *ops;
	bool transactional;
};

/* A place for the kind to keep something with a run between start and
   cancel, NULL at first. Guarded by the kind's own lock. */
POSTERN_EXPORT void postern_run_set_data(struct postern_run *run, void *data);
POSTERN_EXPORT void *postern_run_data(const struct postern_run *run);

#ifdef __cplusplus
}
#endif

#endif
