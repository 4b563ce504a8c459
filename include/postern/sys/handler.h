/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_HANDLER_H
#define POSTERN_SYS_HANDLER_H

/*
 * Handler kinds: callback, sql and exec, and those that a program or a library
 * adds. To add one,
 *
 *   1. implement struct postern_handler_ops: how a run starts, is cancelled;
 *   2. fill a row, struct postern_handler_kind: its name, its options, its
 *      defaults, how a handler is created and checked;
 *   3. register the row with postern_handler_kind_register(), before the first
 *      box or configuration uses it.
 *
 * Handlers of the kind are then added with the members `kind` and `settings` of
 * struct postern_handler_options, or in the configuration of a server that the
 * row was registered in:
 *
 *   handlers:
 *     billing:
 *       NAME: {OPTION: VALUE, …}
 *
 * With a single option its value follows the name: `exec: [/bin/prog]`.
 * examples/kind.c is a complete kind.
 */

#include <postern/error.h>
#include <postern/export.h>
#include <postern/handler.h>
#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_handler;
struct postern_handler_kind;
struct postern_option;

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
 * How long to snooze a run that was prevented by this machine, the store or the
 * handler and not by the message: fork failed, the disk is full. No failure is
 * counted. With a reason such a snooze is reported as
 * POSTERN_EVENT_HINDERED.
 */
#define POSTERN_HINDERED_DELAY_MS 5000

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
	/* The deadline has passed, or an operator cancelled the run: finish as a
	   retry. */
	POSTERN_CANCEL_TIMEOUT,
	POSTERN_CANCEL_STOP /* the runner stops: postern_run_return() */
};

/*
 * How the runs of a handler are made. Every function is required.
 */
struct postern_handler_ops {
	unsigned version; /* POSTERN_HANDLER_OPS_VERSION; new slots at the end */

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
	/* The run is a part of a transaction of the store. Always true if the
	   kind's `transactional` is. */
	bool transactional;
	/* Set by the library after create(). */
	const struct postern_handler_kind *kind;
};

/* A handler to create or to check. Valid for the call. */
struct postern_handler_setup {
	size_t size;
	const struct postern_handler_kind *kind;
	const char *key;
	/* The struct that the offsets of the kind's options refer to. From a
	   configuration it is complete: fallbacks are set, and required options
	   have a value. From a program it may be NULL. */
	const void *settings;
	enum postern_sql_dialect dialect; /* of the handler's store */
	/* For check(), of a transactional handler: the file of a store on SQLite,
	   which may not exist yet, or a connection to the database, a PGconn * in a
	   read-only transaction. NULL: there is none. */
	const char *store_file;
	void *connection;
	/* For create(), of a transactional handler: the schema of its store on
	   PostgreSQL. */
	const char *schema;
};

/* Limits of the claims of a pull handler. */
struct postern_pull_limits {
	int64_t lease_ms; /* of a claim that names none */
	uint32_t max;     /* deliveries of one claim */
};

#define POSTERN_HANDLER_KIND_NAME_LEN_MAX 32
#define POSTERN_HANDLER_KIND_COUNT_MAX 64
#define POSTERN_HANDLER_KIND_OPTION_COUNT_MAX 32

/*
 * A handler kind. Zero the struct, set `size` and the members that apply; what
 * it points to must stay valid until the process ends.
 */
struct postern_handler_kind {
	size_t size;

	/* Its name, also in a configuration: a lower-case letter, then letters,
	   digits and '_'. */
	const char *name;
	const char *help; /* a few words, no full stop */

	/*
	 * The options of a handler of this kind, and the size of the struct that
	 * their offsets refer to. Without options only programs can use the kind.
	 */
	const struct postern_option *options;
	size_t option_count;
	size_t settings_size;

	/* A run can crash this process: leases of a process that died become
	   suspects. */
	bool in_process;
	/* Every run is a part of a transaction of the store. Handlers of other
	   kinds may be transactional, too: create() decides. */
	bool transactional;
	/* start() returns before the run has finished, so the runner's threads do
	   not limit the number of runs: needs a default concurrency, and cannot be
	   transactional. */
	bool asynchronous;

	/* Defaults of a handler's policy. */
	int64_t timeout_ms;    /* 0: none; POSTERN_TIMEOUT_DEFAULT: none, or 5 s if
							  the handler is transactional */
	uint32_t max_attempts; /* 0: 5 */
	uint32_t concurrency;  /* 0: as many as the runner has threads */
	const int64_t *backoff_ms;
	size_t backoff_count; /* 0: exponential */

	/*
	 * Validate the settings by themselves, whatever else exists on this
	 * machine: POSTERN_E_INVALID with a text about the option. Called when a
	 * configuration is read, and before create(). NULL: everything is valid.
	 */
	int (*validate)(const struct postern_handler_setup *setup,
			struct postern_error *error);

	/*
	 * Create a handler. Called for a configuration, too, before a store is
	 * opened, and then the handler is destroyed at once: nothing may be started
	 * or written, and what is missing now but may be there later is no failure.
	 */
	int (*create)(const struct postern_handler_setup *setup,
			struct postern_handler **out, struct postern_error *error);

	/*
	 * Check whether the deliveries of such a handler could succeed now, without
	 * any effect, for `postern check`. Called once, and once more with a
	 * connection if the kind is transactional and the store has connections.
	 * NULL: nothing to check.
	 *
	 * POSTERN_E_INVALID      none could: an error
	 * POSTERN_E_NOTFOUND     something is missing that may come later: a note
	 * any other code         the check could not be made
	 */
	int (*check)(const struct postern_handler_setup *setup,
			struct postern_error *error);

	/*
	 * Not NULL: workers outside of the process claim the deliveries, see
	 * postern/pull.h, and no run is ever started. Writes the limits of the
	 * claims of a handler. Excludes in_process, transactional and asynchronous.
	 */
	void (*pull)(const struct postern_handler *handler,
			struct postern_pull_limits *out);
};

/*
 * Add a kind to this process. The row is copied, what it points to is not. From
 * any thread; there is no way to remove it.
 *
 * POSTERN_E_INVALID  the row is not valid, or there is a kind of that name; the
 *                    text names the member or the option
 */
POSTERN_EXPORT int
postern_handler_kind_register(const struct postern_handler_kind *kind,
		struct postern_error *error);

/* A pointer that the implementation may keep with a run between start() and
   cancel(), initially NULL. Guarded by a mutex of the implementation. */
POSTERN_EXPORT void postern_run_set_data(struct postern_run *run, void *data);
POSTERN_EXPORT void *postern_run_data(const struct postern_run *run);

#ifdef __cplusplus
}
#endif

#endif
