/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_FAULT_STORE_H
#define POSTERN_TESTS_FAULT_STORE_H

/*
 * A store around a store that fails when the test wants. It implements the same
 * table as every store, which shows that the table is sufficient.
 */

#include <postern/sys/store.h>
#include <stdatomic.h>

enum fault_op {
	FAULT_ENROL,
	FAULT_APPLY,
	FAULT_CLAIM,
	FAULT_TRANSACT,
	FAULT_RECOVER,
	FAULT_ORPHANS,
	FAULT_UNPARK,
	FAULT_EDIT,
	FAULT_READ_PAUSES,
	FAULT_READ_CLOSED,
	FAULT_LIST,
	FAULT_GET,
	FAULT_FIND,
	FAULT_STATS,
	FAULT_RENEW,
	FAULT_LOCK,
	FAULT_UNLOCK,
	FAULT_CLEAN,
	FAULT_COLLECT,
	FAULT_ENGAGE,
	FAULT_READ_PULLS,
	FAULT_EXTEND,
	FAULT_OP_COUNT
};

struct fault_plan {
	/*
	 * Called before every operation: returns the code to fail with, or
	 * POSTERN_OK to pass the call on. `batch` is set for FAULT_APPLY only. May
	 * be NULL. Runs on the thread that calls the store.
	 */
	int (*decide)(void *context, enum fault_op op,
			const struct postern_batch *batch);
	/* Called after every operation that succeeded: returns the code to fail
	   with although it took effect, as when the reply is lost. May be NULL. */
	int (*decide_after)(void *context, enum fault_op op);
	void *context;
	/* Staging for a store that has none: called with the inner store instead
	   of its collect(). May be NULL. */
	int (*collect)(struct postern_store *inner,
			struct postern_collection *collection,
			struct postern_memory *memory, struct postern_error *error);
	/* Sets the results of units, which are not called. May be NULL. */
	void (*transact)(void *context, struct postern_unit *units, size_t count);
	/* Several wrappers share one store, as nodes do: destroying one leaves it
	   open. */
	bool shared;
	/* How often each operation was called. */
	atomic_uint calls[FAULT_OP_COUNT];
};

/* Wrap a store, which is taken; `plan` must outlive it. Returns NULL if out of
   memory; then the store is destroyed. */
struct postern_store *fault_store_create_taking(struct postern_store *inner,
		struct fault_plan *plan);

#endif
