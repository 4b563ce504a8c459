/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_GUARD_H
#define POSTERN_GUARD_H

/*
 * A guard makes a function idempotent: for one handler and key the function
 * runs once, however often the message is delivered. Messages are not stored,
 * only that they were done, and the transport keeps its own retries:
 *
 *   postern_guard_open("sqlite:shop.db", NULL, &guard, &error);
 *   …
 *   struct postern_guarded guarded = {
 *       .size = sizeof(guarded),
 *       .handler = "charge-v1",
 *       .key = message_id,
 *       .transactional = true,
 *   };
 *   int r = postern_guard_run(guard, &guarded, charge, order, NULL, &error);
 *   if (r == POSTERN_OK || r == POSTERN_E_DUPLICATE) acknowledge();
 *   else requeue();
 *
 * A transactional function runs inside one transaction of the store. Its marker
 * is written first, and what the function writes through the handle commits
 * with it, or neither does: exactly once.
 *
 * Any other function (it calls a service, sends mail) runs under a lease, which
 * is renewed while it runs, and is recorded as done afterwards. If the process
 * dies in between, the lease ends and the next delivery runs the function
 * again: at least once, and never two at the same time.
 *
 * Threads: a guard may be used from any thread. A copy of a message that is
 * being handled waits for the outcome.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/export.h>
#include <postern/handler.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_guard;

#define POSTERN_GUARD_KEY_LEN_MAX 1000
#define POSTERN_GUARD_LEASE_MS_MIN 1000

/* Zero the struct and set `size`; zeroes are the defaults named here. */
struct postern_guard_options {
	size_t size;
	/* 10 s: how long a copy waits for the one that is running; negative: not at
	   all. */
	int64_t wait_ms;
	/* 30 s: how long a function that is not transactional keeps its marker
	   after its process died; renewed while it runs. */
	int64_t lease_ms;
	/* 5 s: a transactional function that runs for longer is interrupted;
	   negative: never. */
	int64_t timeout_ms;
	/* As in struct postern_box_options; for postern_guard_open() only. */
	bool must_exist;
	bool no_migrate;
	int64_t command_timeout_ms;
	int32_t command_retries;
	const char *schema;
	uint32_t connections;
	/* NULL: the system's. Both must outlive the guard. */
	const struct postern_clock *clock;
	const struct postern_random *random;
};

/*
 * Open a guard on a store: "memory:", "sqlite:FILE", "postgres://…", as for
 * postern_box_open(), whose errors it has; or on a store that keeps markers
 * only and is registered, as "redis://…" by postern/redis.h. Of a file with
 * ?shared=yes it uses the markers without owning it, beside a box or a server.
 *
 * options  may be NULL.
 * out      yours; end it with postern_guard_destroy().
 */
POSTERN_EXPORT int postern_guard_open(const char *url,
		const struct postern_guard_options *options, struct postern_guard **out,
		struct postern_error *error);
/* The same on the store of a box, which must outlive the guard. */
POSTERN_EXPORT int postern_guard_create(struct postern_box *box,
		const struct postern_guard_options *options, struct postern_guard **out,
		struct postern_error *error);
/* No function may be running. NULL is fine. */
POSTERN_EXPORT void postern_guard_destroy(struct postern_guard *guard);

/*
 * Which settings of a store's server can lose a marker that is done, and how
 * much of it. A store that is opened with less than it promises fails to open,
 * so this asks only stores that keep markers alone.
 *
 * warning_out  one line, truncated to size bytes; "" if nothing was found. 512
 *              bytes are enough.
 */
POSTERN_EXPORT int postern_guard_check(struct postern_guard *guard,
		char *warning_out, size_t size, struct postern_error *error);

/* What is guarded. Zero the struct, set `size`, handler and key. */
struct postern_guarded {
	size_t size;
	/* Who does it, as a handler's key: stable, 1 to 200 bytes. All that share
	   one handler share its markers. */
	const char *handler;
	/* Keys that the handler had before: what is done under them is done. */
	const char *const *legacy_keys;
	size_t legacy_key_count;
	/* What is done once: at most POSTERN_GUARD_KEY_LEN_MAX bytes. key_len 0:
	   the length of the text. */
	const char *key;
	size_t key_len;
	/* Run inside a transaction of the store. */
	bool transactional;
};

/* A call of the function. Valid until it returns. */
struct postern_guard_call {
	size_t size;
	const char *handler;
	const char *key;
	size_t key_len;
	/* Transactional: the open transaction, a sqlite3 * or PGconn *; never
	   commit or roll back on it. Else NULL. */
	void *transaction;
	/* A number that no other call has, for services that take one to refuse
	   repetitions and late calls. */
	uint64_t fence;
};

/*
 * The function. It returns its outcome as a handler does: POSTERN_DONE (the
 * initial value) and POSTERN_DISCARD mark the message as done, every other
 * outcome leaves no trace. It must return; it must not throw, longjmp or exit.
 */
typedef void postern_guard_function(void *context,
		const struct postern_guard_call *call, struct postern_outcome *outcome);

/*
 * Run the function unless it was done before. It is called at most once.
 *
 * outcome_out  may be NULL; set if the function was called.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_DUPLICATE    done before: acknowledge
 *   POSTERN_E_FAILED       the function did not succeed, the text has its
 *                          reason; a later delivery runs it again
 *   POSTERN_E_BUSY         a copy is still running after wait_ms, or on SQLite
 *                          the only writer is busy: requeue. Also, at once, if
 *                          the function is inside one on the same SQLite store
 *   POSTERN_E_STALE        the function took so long, or this process was
 *                          suspended so long, that the lease ended and another
 *                          one may have run it too
 *   POSTERN_E_TIMEOUT      a transactional function was interrupted and rolled
 *                          back
 *   POSTERN_E_INVALID      a member breaks a limit, or the function ended the
 *                          transaction itself, which was rolled back
 *   POSTERN_E_UNSUPPORTED  transactional, on a store without transactions
 *   POSTERN_E_UNAVAILABLE  the store cannot be reached. If the function had
 * been called, outcome_out is set: without a transaction it may have had an
 * effect.
 */
POSTERN_EXPORT int postern_guard_run(struct postern_guard *guard,
		const struct postern_guarded *guarded, postern_guard_function *function,
		void *context, struct postern_outcome *outcome_out,
		struct postern_error *error);

/*
 * The markers by themselves, for programs that have their own way to run.
 *
 * try     the first caller gets POSTERN_OK, and from then on it is done; all
 *         others POSTERN_E_DUPLICATE. POSTERN_E_BUSY: it is running.
 * has     *done_out: it is done.
 * record  it is done, whether it was before or not.
 * forget  nobody has done it; POSTERN_E_NOTFOUND: nobody had.
 * expire  forget what has been done for longer than older_ms, of one handler
 *         or (NULL) of all. *count_out (may be NULL): how many.
 */
POSTERN_EXPORT int postern_mark_try(struct postern_guard *guard,
		const char *handler, const char *key, struct postern_error *error);
POSTERN_EXPORT int postern_mark_has(struct postern_guard *guard,
		const char *handler, const char *key, bool *done_out,
		struct postern_error *error);
POSTERN_EXPORT int postern_mark_record(struct postern_guard *guard,
		const char *handler, const char *key, struct postern_error *error);
POSTERN_EXPORT int postern_mark_forget(struct postern_guard *guard,
		const char *handler, const char *key, struct postern_error *error);
POSTERN_EXPORT int postern_mark_expire(struct postern_guard *guard,
		const char *handler, int64_t older_ms, uint64_t *count_out,
		struct postern_error *error);

/*
 * Mark inside a transaction of your own: what is written commits or vanishes
 * with it, the marker too, and a marker that was rolled back leaves nothing.
 *
 * transaction  PostgreSQL: a PGconn * to the database of the guard, any
 *              connection, with an open transaction. SQLite: the sqlite3 * that
 *              a transactional function was called with, as long as it runs, to
 *              mark further keys; and if the guard was opened with
 *              ?shared=yes, any connection to the file with an open
 *              transaction, best begun with BEGIN IMMEDIATE. Otherwise it is
 *              refused, because the file belongs to the store.
 * guarded      handler, key and legacy keys; `transactional` is ignored.
 *
 * Returns POSTERN_OK: it was not done before, and is when the transaction
 * commits. Otherwise the transaction is as it was, and goes on:
 *   POSTERN_E_DUPLICATE    done before: skip the work
 *   POSTERN_E_BUSY         somebody does it now, also after wait_ms, or did it
 *                          after a transaction with a stronger isolation than
 *                          READ COMMITTED had begun; SQLite: another connection
 *                          writes: roll back and requeue
 *   POSTERN_E_INVALID      no transaction is open, or it has failed, or the
 *                          connection is not to the guard's store
 *   POSTERN_E_UNSUPPORTED  the store has no transactions, or not this one
 *   POSTERN_E_UNAVAILABLE  the connection was lost
 */
POSTERN_EXPORT int postern_mark_in(struct postern_guard *guard,
		void *transaction, const struct postern_guarded *guarded,
		struct postern_error *error);

/*
 * A lease held step by step, for work that is no function of this process:
 * `postern once` runs a command. The caller chooses a random fence, never 0.
 *
 * begin   POSTERN_OK: the caller does it; POSTERN_E_DUPLICATE: done before;
 *         POSTERN_E_BUSY: somebody does it, for at most *left_ms_out (may be
 *         NULL) unless they renew.
 * extend  renew it for lease_ms from now; POSTERN_E_STALE: it is lost.
 * finish  it is done; POSTERN_E_STALE: the lease was lost.
 * release nobody has done it; POSTERN_E_STALE as before.
 */
POSTERN_EXPORT int postern_mark_begin(struct postern_guard *guard,
		const char *handler, const char *key, uint64_t fence, int64_t lease_ms,
		int64_t *left_ms_out, struct postern_error *error);
POSTERN_EXPORT int postern_mark_extend(struct postern_guard *guard,
		const char *handler, const char *key, uint64_t fence, int64_t lease_ms,
		struct postern_error *error);
POSTERN_EXPORT int postern_mark_finish(struct postern_guard *guard,
		const char *handler, const char *key, uint64_t fence,
		struct postern_error *error);
POSTERN_EXPORT int postern_mark_release(struct postern_guard *guard,
		const char *handler, const char *key, uint64_t fence,
		struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
