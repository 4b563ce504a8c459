/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_HANDLER_H
#define POSTERN_SYS_HANDLER_H

/*
 * The interface between the core and the handler kinds: callback, sql and exec
 * implement it.
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

/* A run of one delivery. Owned by the core; an implementation may use it from
   start() until it has finished the run. */
struct postern_run;

POSTERN_EXPORT const struct postern_message *postern_run_message(
		const struct postern_run *run);
/* `transaction` is set for transactional handlers only. */
POSTERN_EXPORT const struct postern_delivery *postern_run_delivery(
		const struct postern_run *run);
/* Changes whenever the transaction is on another connection than that of the
   run before: what an implementation kept for the old connection (prepared
   statements) was freed by the store and must not be used. */
POSTERN_EXPORT uint64_t postern_run_epoch(const struct postern_run *run);
/* Milliseconds until the deadline, at least 0; -1 if there is none. */
POSTERN_EXPORT int64_t postern_run_remaining_ms(const struct postern_run *run);

/*
 * Finish a run with its outcome, which is copied. Exactly once per run, from
 * any thread, before or after `start` has returned; do not use the run
 * afterwards.
 */
POSTERN_EXPORT void postern_run_finish(struct postern_run *run,
		const struct postern_outcome *outcome);

/*
 * Finish a run that was cancelled with POSTERN_CANCEL_STOP: its lease is
 * returned and no failure is counted. Otherwise as postern_run_finish().
 */
POSTERN_EXPORT void postern_run_return(struct postern_run *run);

#define POSTERN_HANDLER_OPS_VERSION 1

enum postern_cancel {
	POSTERN_CANCEL_TIMEOUT, /* the deadline has passed: finish as a retry */
	POSTERN_CANCEL_STOP     /* the runner stops: postern_run_return() */
};

/*
 * The functions of a handler kind. Every one is required.
 */
struct postern_handler_ops {
	unsigned version; /* POSTERN_HANDLER_OPS_VERSION; new slots at the end */
	const char *name; /* "callback", "sql", "exec" */

	/* A run can crash this process: leases of a process that died become
	   suspects. */
	bool in_process;
	/* Supports commit_batch. */
	bool batches;

	/*
	 * Start a run. An implementation may block the calling thread (a worker),
	 * or return and finish the run on another thread; in both cases it calls
	 * postern_run_finish(). A transactional handler is called inside the
	 * store's open transaction and must finish the run before it returns.
	 */
	void (*start)(struct postern_handler *handler, struct postern_run *run);

	/*
	 * Make a run end soon; called on another thread. The run may have finished
	 * meanwhile, but is not freed before this returns. An implementation that
	 * cannot cancel does nothing. Must not block.
	 */
	void (*cancel)(struct postern_handler *handler, struct postern_run *run,
			enum postern_cancel why);

	void (*destroy)(struct postern_handler *handler);

	/*
	 * Transactional, on PostgreSQL: if the connection is in pipeline mode,
	 * start() only sends its statements and finishes with the outcome for the
	 * case that none of them fails, POSTERN_DONE. The store reads the results;
	 * if a statement fails, it rolls back and calls start() again without a
	 * pipeline. Prepared statements are valid until the epoch changes, which
	 * may be with every transaction. The statements must not begin or end a
	 * transaction.
	 */
	bool sends_ahead;
};

/* The common head. An implementation embeds it as the first member, named
   `base`. */
struct postern_handler {
	const struct postern_handler_ops *ops;
	bool transactional;
};

/* A pointer that the implementation may keep with a run between start() and
   cancel(), initially NULL. Guarded by a mutex of the implementation. */
POSTERN_EXPORT void postern_run_set_data(struct postern_run *run, void *data);
POSTERN_EXPORT void *postern_run_data(const struct postern_run *run);

#ifdef __cplusplus
}
#endif

#endif
