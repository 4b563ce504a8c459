/* SPDX-License-Identifier: MIT */
/* Passes every call on, unless the plan makes it fail. */

#include "support/fault_store.h"

#include "base/container.h"
#include "base/fail.h"

#include <stdlib.h>

struct fault_store {
	struct postern_store base;
	struct postern_store_ops
			ops; /* with the inner store's name and abilities */
	struct postern_store *inner;
	struct fault_plan *plan;
};

static struct fault_store *from_base(struct postern_store *store) {
	return container_of(store, struct fault_store, base);
}

static int fail_before(struct fault_store *self, enum fault_op op,
		const struct postern_batch *batch, struct postern_error *error) {
	struct fault_plan *plan = self->plan;
	(void)atomic_fetch_add(&plan->calls[op], 1);
	int code =
			plan->decide ? plan->decide(plan->context, op, batch) : POSTERN_OK;
	return code ? postern__fail(error, code, "the test says no") : POSTERN_OK;
}

/* The result after the inner call: an injected failure, or that of the call. */
static int fail_after(struct fault_store *self, enum fault_op op, int r,
		struct postern_error *error) {
	struct fault_plan *plan = self->plan;
	int code = r == POSTERN_OK && plan->decide_after
					   ? plan->decide_after(plan->context, op)
					   : POSTERN_OK;
	return code ? postern__fail(error, code, "the test lost the answer") : r;
}

static int fault_enrol(struct postern_store *store,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_ENROL, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->enrol(self->inner, enrolment, error);
		r = fail_after(self, FAULT_ENROL, r, error);
	}
	return r;
}

static int fault_apply(struct postern_store *store, struct postern_batch *batch,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_APPLY, batch, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->apply(self->inner, batch, error);
		r = fail_after(self, FAULT_APPLY, r, error);
	}
	return r;
}

static int fault_claim(struct postern_store *store,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_CLAIM, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->claim(self->inner, claim, memory, out, error);
		r = fail_after(self, FAULT_CLAIM, r, error);
	}
	return r;
}

static int fault_transact(struct postern_store *store, uint64_t node,
		const struct postern_lock *lock, struct postern_unit *units,
		size_t count, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_TRANSACT, NULL, error);
	if (r == POSTERN_OK && self->plan->transact) {
		self->plan->transact(self->plan->context, units, count);
	} else if (r == POSTERN_OK) {
		r = self->inner->ops->transact(self->inner, node, lock, units, count,
				error);
		r = fail_after(self, FAULT_TRANSACT, r, error);
	}
	return r;
}

static int fault_recover(struct postern_store *store,
		const struct postern_recovery *recovery, struct postern_recovered *out,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_RECOVER, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->recover(self->inner, recovery, out, error);
		r = fail_after(self, FAULT_RECOVER, r, error);
	}
	return r;
}

static int fault_orphans(struct postern_store *store, uint64_t node,
		const char *only, bool poison, size_t max,
		struct postern_memory *memory, struct postern_orphan **orphans_out,
		size_t *count_out, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_ORPHANS, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->orphans(self->inner, node, only, poison, max,
				memory, orphans_out, count_out, error);
		r = fail_after(self, FAULT_ORPHANS, r, error);
	}
	return r;
}

static int fault_unpark(struct postern_store *store, postern_router *router,
		void *context, size_t max, int64_t *cursor, uint64_t *count_out,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_UNPARK, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->unpark(self->inner, router, context, max, cursor,
				count_out, error);
		r = fail_after(self, FAULT_UNPARK, r, error);
	}
	return r;
}

static int fault_edit(struct postern_store *store, struct postern_edit *edit,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_EDIT, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->edit(self->inner, edit, error);
		r = fail_after(self, FAULT_EDIT, r, error);
	}
	return r;
}

static int fault_read_pauses(struct postern_store *store,
		const int64_t *handlers, size_t count, struct postern_memory *memory,
		struct postern_halt *out, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_READ_PAUSES, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->read_pauses(self->inner, handlers, count, memory,
				out, error);
		r = fail_after(self, FAULT_READ_PAUSES, r, error);
	}
	return r;
}

static int fault_read_closed(struct postern_store *store, int64_t channel,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_READ_CLOSED, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->read_closed(self->inner, channel, memory, out,
				error);
		r = fail_after(self, FAULT_READ_CLOSED, r, error);
	}
	return r;
}

static int fault_list(struct postern_store *store,
		const struct postern_query *query, struct postern_memory *memory,
		struct postern_page *out, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_LIST, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->list(self->inner, query, memory, out, error);
		r = fail_after(self, FAULT_LIST, r, error);
	}
	return r;
}

static int fault_get(struct postern_store *store, int64_t seq,
		struct postern_memory *memory, struct postern_detail *out,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_GET, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->get(self->inner, seq, memory, out, error);
		r = fail_after(self, FAULT_GET, r, error);
	}
	return r;
}

static int fault_find(struct postern_store *store, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_FIND, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->find(self->inner, id, source, channel, seqs, max,
				count_out, error);
		r = fail_after(self, FAULT_FIND, r, error);
	}
	return r;
}

static int fault_stats(struct postern_store *store,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_STATS, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->stats(self->inner, memory, out, error);
		r = fail_after(self, FAULT_STATS, r, error);
	}
	return r;
}

static int fault_renew(struct postern_store *store, uint64_t node,
		int64_t ttl_ms, bool *alive_out, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_RENEW, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->renew(self->inner, node, ttl_ms, alive_out,
				error);
		r = fail_after(self, FAULT_RENEW, r, error);
	}
	return r;
}

static int fault_lock(struct postern_store *store, const char *name,
		uint64_t node, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_LOCK, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->lock(self->inner, name, node, ttl_ms, held_out,
				fence_out, error);
		r = fail_after(self, FAULT_LOCK, r, error);
	}
	return r;
}

static int fault_unlock(struct postern_store *store,
		const struct postern_lock *lock, uint64_t node,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_UNLOCK, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->unlock(self->inner, lock, node, error);
		r = fail_after(self, FAULT_UNLOCK, r, error);
	}
	return r;
}

static int fault_clean(struct postern_store *store,
		struct postern_cleaning *cleaning, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_CLEAN, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->clean(self->inner, cleaning, error);
		r = fail_after(self, FAULT_CLEAN, r, error);
	}
	return r;
}

static void fault_interrupt(struct postern_store *store, const void *context) {
	struct fault_store *self = from_base(store);
	self->inner->ops->interrupt(self->inner, context);
}

static int fault_collect(struct postern_store *store,
		struct postern_collection *collection, struct postern_memory *memory,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_COLLECT, NULL, error);
	if (r == POSTERN_OK) {
		r = self->plan->collect ? self->plan->collect(self->inner, collection,
										  memory, error)
								: self->inner->ops->collect(self->inner,
										  collection, memory, error);
		r = fail_after(self, FAULT_COLLECT, r, error);
	}
	return r;
}

static int fault_engage(struct postern_store *store, uint64_t node,
		const char *lock_name, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_ENGAGE, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->engage(self->inner, node, lock_name, error);
		r = fail_after(self, FAULT_ENGAGE, r, error);
	}
	return r;
}

static int fault_read_pulls(struct postern_store *store,
		struct postern_pull_row *rows, size_t count,
		struct postern_memory *memory, struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_READ_PULLS, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->read_pulls(self->inner, rows, count, memory,
				error);
		r = fail_after(self, FAULT_READ_PULLS, r, error);
	}
	return r;
}

static int fault_extend(struct postern_store *store,
		struct postern_pull_row *row, int64_t lease_ms, int64_t *until_ms_out,
		struct postern_error *error) {
	struct fault_store *self = from_base(store);
	int r = fail_before(self, FAULT_EXTEND, NULL, error);
	if (r == POSTERN_OK) {
		r = self->inner->ops->extend(self->inner, row, lease_ms, until_ms_out,
				error);
		r = fail_after(self, FAULT_EXTEND, r, error);
	}
	return r;
}

static void fault_destroy(struct postern_store *store) {
	struct fault_store *self = from_base(store);
	if (!self->plan->shared) {
		postern_store_destroy(self->inner);
	}
	free(self);
}

struct postern_store *fault_store_create_taking(struct postern_store *inner,
		struct fault_plan *plan) {
	struct fault_store *self = calloc(1, sizeof(*self));
	if (!self) {
		postern_store_destroy(inner);
		return NULL;
	}
	self->ops = (struct postern_store_ops){
		.version = POSTERN_STORE_OPS_VERSION,
		.name = inner->ops->name,
		.transactional = inner->ops->transactional,
		.dialect = inner->ops->dialect,
		.exclusive = inner->ops->exclusive && !plan->shared,
		.enrol = fault_enrol,
		.apply = fault_apply,
		.claim = fault_claim,
		.transact = fault_transact,
		.recover = fault_recover,
		.orphans = fault_orphans,
		.unpark = fault_unpark,
		.edit = fault_edit,
		.read_pauses = fault_read_pauses,
		.read_closed = fault_read_closed,
		.list = fault_list,
		.get = fault_get,
		.find = fault_find,
		.stats = fault_stats,
		.renew = fault_renew,
		.lock = fault_lock,
		.unlock = fault_unlock,
		.clean = fault_clean,
		.interrupt = fault_interrupt,
		.collect = inner->ops->collect || plan->collect ? fault_collect : NULL,
		.engage = inner->ops->engage ? fault_engage : NULL,
		.read_pulls = inner->ops->read_pulls ? fault_read_pulls : NULL,
		.extend = inner->ops->extend ? fault_extend : NULL,
		.destroy = fault_destroy,
	};
	self->base.ops = &self->ops;
	self->base.markers = inner->markers;
	self->inner = inner;
	self->plan = plan;
	return &self->base;
}
