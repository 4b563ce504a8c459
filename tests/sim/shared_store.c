/* SPDX-License-Identifier: MIT */
/*
 * The store as a node sees it: the operations of the store that all nodes
 * share, with a site before and after each, and the oracle in between.
 * Destroying it leaves the shared store open.
 *
 * To show that the oracle detects bugs, a run may have a mutant: a store with a
 * bug, named by the rule it breaks.
 */

#include "sim/sim.h"

#include "base/container.h"
#include "base/fail.h"
#include "core/box.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct shared_store {
	struct postern_store base;
	struct postern_store_ops ops; /* with the inner store's name and flags */
	struct sim_node *node;
	/* For the mutant that reads pauses only once. */
	bool pauses_read;
	struct postern_halt paused[SIM_HANDLER_COUNT];
};

static struct sim_node *node_of(struct postern_store *store) {
	return container_of(store, struct shared_store, base)->node;
}

static struct postern_store *begin_call(struct sim_node *node) {
	node->sim->in_store = true;
	return node->sim->store;
}

static bool is_mutant(const struct sim_node *node, const char *name) {
	const char *mutant = node->sim->options.mutant;
	return mutant && strcmp(mutant, name) == 0;
}

/* After a call of the store that returned r: what the node gets. The oracle has
   the result already. */
static int end_call(struct sim_node *node, const char *name, int r,
		struct postern_error *error) {
	return r ? r : sim_site(node, SIM_SITE_AFTER, name, error);
}

/* Whether the node will not get the result of this call; the oracle needs to
   know that before. A pause after the call also comes after the oracle. */
static bool loses_reply(const struct sim_node *node) {
	const struct sim_op *op = node->op;
	return op && !node->sim->quiet && !node->fault_done &&
		   node->sites >= op->at &&
		   (op->fault == SIM_FAULT_ERROR || op->fault == SIM_FAULT_CRASH);
}

static int shared_enrol(struct postern_store *store,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "enrol", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->enrol(inner, enrolment, error);
	node->sim->in_store = false;
	if (!r) {
		sim_oracle_enrolled(&node->sim->oracle, node, enrolment);
	}
	node->enrol_refused = r == POSTERN_E_INVALID;
	return end_call(node, "enrol", r, error);
}

/* Mutants of accepting and settling. True if the batch must not be applied. */
static bool mutate_batch(struct sim_node *node, struct postern_batch *batch) {
	struct sim_oracle *oracle = &node->sim->oracle;
	if (is_mutant(node, "lost-message") && batch->settlement_count == 0 &&
			batch->accept_count == 1 && oracle->count > 2 &&
			batch->accepts[0].fate == POSTERN_FATE_PARK) {
		batch->accepts[0].code = POSTERN_OK;
		batch->accepts[0].seq = oracle->seq_max + 1;
		return true;
	}
	for (size_t i = 0; i < batch->settlement_count; i++) {
		struct postern_settlement *settlement = &batch->settlements[i];
		struct sim_record *record = sim_oracle_find(oracle, settlement->seq);
		for (unsigned j = 0; record && j < oracle->stored_count; j++) {
			const struct sim_delivery *delivery = &record->deliveries[j];
			if (is_mutant(node, "stale-settle") &&
					oracle->stored[j].id == settlement->handler &&
					delivery->state == POSTERN_STATE_LEASED) {
				settlement->fence = delivery->fence;
				batch->node = delivery->node;
			}
		}
	}
	return false;
}

static int shared_apply(struct postern_store *store,
		struct postern_batch *batch, struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "apply", error);
	if (r) {
		return r;
	}
	struct postern_batch copy = *batch;
	if (!mutate_batch(node, &copy)) {
		struct postern_store *inner = begin_call(node);
		r = inner->ops->apply(inner, &copy, error);
		node->sim->in_store = false;
	}
	for (size_t i = 0;
			is_mutant(node, "accepted-twice") && i < batch->accept_count; i++) {
		if (batch->accepts[i].code == POSTERN_E_DUPLICATE) {
			batch->accepts[i].code = POSTERN_OK;
		}
	}
	if (!r) {
		sim_oracle_applied(&node->sim->oracle, node, batch, loses_reply(node));
	}
	return end_call(node, "apply", r, error);
}

static int shared_claim(struct postern_store *store,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "claim", error);
	if (r) {
		return r;
	}
	struct postern_claim copy = *claim;
	if (is_mutant(node, "stale-lock")) {
		copy.lock = NULL;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->claim(inner, &copy, memory, out, error);
	node->sim->in_store = false;
	node->sim->counts.late_claims += r == POSTERN_E_STALE;
	if (is_mutant(node, "survives") && !r && out->count > 2) {
		(void)raise(SIGKILL);
	}
	if (is_mutant(node, "fence-backwards") && !r && out->count > 0 &&
			out->items[0].fence > 1) {
		out->items[0].fence--;
	}
	if (!r) {
		sim_oracle_claimed(&node->sim->oracle, claim, out, loses_reply(node));
	}
	return end_call(node, "claim", r, error);
}

/* A mutant's unit runs twice. */
struct twice {
	struct postern_unit *unit;
	void *context;
	void (*run)(void *context, void *transaction, uint64_t epoch,
			struct postern_outcome *outcome);
};

static void run_twice(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	const struct twice *twice = context;
	twice->run(twice->context, transaction, epoch, outcome);
	twice->run(twice->context, transaction, epoch, outcome);
}

static int shared_transact(struct postern_store *store, uint64_t node_id,
		const struct postern_lock *lock, struct postern_unit *units,
		size_t count, struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "transact", error);
	if (r) {
		return r;
	}
	struct twice twice;
	if (is_mutant(node, "effect-count")) {
		twice = (struct twice){ units, units->context, units->run };
		units->context = &twice;
		units->run = run_twice;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->transact(inner, node_id, lock, units, count, error);
	node->sim->in_store = false;
	if (!r) {
		sim_oracle_transacted(&node->sim->oracle, node_id, lock, units, count);
	}
	return end_call(node, "transact", r, error);
}

static int shared_recover(struct postern_store *store,
		const struct postern_recovery *recovery, struct postern_recovered *out,
		struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "recover", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->recover(inner, recovery, out, error);
	node->sim->in_store = false;
	if (!r && out->released + out->suspects + out->poisoned > 0) {
		sim_oracle_recovered(&node->sim->oracle, recovery);
	}
	return end_call(node, "recover", r, error);
}

static int shared_orphans(struct postern_store *store, uint64_t node_id,
		const char *only, bool poison, size_t max,
		struct postern_memory *memory, struct postern_orphan **orphans_out,
		size_t *count_out, struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "orphans", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->orphans(inner, node_id, only, poison, max, memory,
			orphans_out, count_out, error);
	node->sim->in_store = false;
	for (size_t i = 0; !r && i < *count_out; i++) {
		sim_oracle_orphaned(&node->sim->oracle, node, (*orphans_out)[i].key);
	}
	return end_call(node, "orphans", r, error);
}

static int shared_unpark(struct postern_store *store, postern_router *router,
		void *context, size_t max, int64_t *cursor, uint64_t *count_out,
		struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "unpark", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->unpark(inner, router, context, max, cursor, count_out,
			error);
	node->sim->in_store = false;
	if (!r && *count_out > 0) {
		sim_oracle_compare(&node->sim->oracle, SIM_CAUSE_UNPARK);
	}
	return end_call(node, "unpark", r, error);
}

/* A mutant keeps what it read when it started. */
static void mutate_pauses(struct shared_store *self, size_t count,
		struct postern_halt *paused) {
	if (is_mutant(self->node, "pause-cached") && count <= SIM_HANDLER_COUNT) {
		if (self->pauses_read) {
			memcpy(paused, self->paused, count * sizeof(*paused));
		} else {
			memcpy(self->paused, paused, count * sizeof(*paused));
		}
		self->pauses_read = true;
	}
}

static int shared_read_pauses(struct postern_store *store,
		const int64_t *handlers, size_t count, struct postern_memory *memory,
		struct postern_halt *out, struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "read-pauses", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->read_pauses(inner, handlers, count, memory, out, error);
	node->sim->in_store = false;
	if (!r) {
		sim_oracle_pauses_read(&node->sim->oracle, handlers, count, out);
		mutate_pauses(container_of(store, struct shared_store, base), count,
				out);
	}
	return end_call(node, "read-pauses", r, error);
}

static int shared_read_closed(struct postern_store *store, int64_t channel,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "read-closed", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->read_closed(inner, channel, memory, out, error);
	node->sim->in_store = false;
	return end_call(node, "read-closed", r, error);
}

static int shared_edit(struct postern_store *store, struct postern_edit *edit,
		struct postern_error *error) {
	struct sim_node *node = node_of(store);
	struct sim_oracle *oracle = &node->sim->oracle;
	int r = sim_site(node, SIM_SITE_BEFORE, "edit", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->edit(inner, edit, error);
	node->sim->in_store = false;
	if (!r) {
		switch (edit->kind) {
		case POSTERN_CHANGE_RETRY:
			sim_oracle_compare(oracle, SIM_CAUSE_RETRY);
			break;
		case POSTERN_CHANGE_DISCARD:
			sim_oracle_compare(oracle, SIM_CAUSE_DISCARD);
			break;
		case POSTERN_CHANGE_CLOSE:
		case POSTERN_CHANGE_OPEN:
			sim_oracle_closed(oracle, edit->channel,
					edit->kind == POSTERN_CHANGE_CLOSE);
			break;
		case POSTERN_CHANGE_PAUSE:
		case POSTERN_CHANGE_RESUME:
		default:
			sim_oracle_paused(oracle, edit->handler,
					edit->kind == POSTERN_CHANGE_PAUSE, edit->until_ms);
			break;
		}
	}
	return end_call(node, "edit", r, error);
}

static int shared_list(struct postern_store *store,
		const struct postern_query *query, struct postern_memory *memory,
		struct postern_page *out, struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "list", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->list(inner, query, memory, out, error);
	node->sim->in_store = false;
	return end_call(node, "list", r, error);
}

static int shared_get(struct postern_store *store, int64_t seq,
		struct postern_memory *memory, struct postern_detail *out,
		struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "get", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->get(inner, seq, memory, out, error);
	node->sim->in_store = false;
	return end_call(node, "get", r, error);
}

static int shared_find(struct postern_store *store, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "find", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->find(inner, id, source, channel, seqs, max, count_out,
			error);
	node->sim->in_store = false;
	return end_call(node, "find", r, error);
}

static int shared_stats(struct postern_store *store,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "stats", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->stats(inner, memory, out, error);
	node->sim->in_store = false;
	return end_call(node, "stats", r, error);
}

static int shared_renew(struct postern_store *store, uint64_t node_id,
		int64_t ttl_ms, bool *alive_out, struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "renew", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->renew(inner, node_id, ttl_ms, alive_out, error);
	node->sim->in_store = false;
	if (!r && *alive_out) {
		sim_oracle_renewed(&node->sim->oracle, node_id, ttl_ms);
	}
	return end_call(node, "renew", r, error);
}

/* A node acquired the lock: count the other nodes that believe to own it. */
static void count_double_owners(struct sim_node *node) {
	struct sim *sim = node->sim;
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		struct sim_node *other = &sim->nodes[i];
		if (other != node && other->box && !other->dead) {
			(void)pthread_mutex_lock(&other->box->mutex);
			sim->counts.double_owners += other->box->lock_held.fence > 0;
			(void)pthread_mutex_unlock(&other->box->mutex);
		}
	}
}

static int shared_lock(struct postern_store *store, const char *name,
		uint64_t node_id, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "lock", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->lock(inner, name, node_id, ttl_ms, held_out, fence_out,
			error);
	node->sim->in_store = false;
	if (!r && *held_out &&
			sim_oracle_locked(&node->sim->oracle, name, node_id, ttl_ms,
					*fence_out) &&
			strstr(name, "Processor")) {
		count_double_owners(node);
		sim_history_locked(node, *fence_out);
	}
	return end_call(node, "lock", r, error);
}

static int shared_unlock(struct postern_store *store,
		const struct postern_lock *lock, uint64_t node_id,
		struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "unlock", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->unlock(inner, lock, node_id, error);
	node->sim->in_store = false;
	if (!r) {
		sim_oracle_unlocked(&node->sim->oracle, lock, node_id);
	}
	return end_call(node, "unlock", r, error);
}

static int shared_clean(struct postern_store *store,
		struct postern_cleaning *cleaning, struct postern_error *error) {
	struct sim_node *node = node_of(store);
	int r = sim_site(node, SIM_SITE_BEFORE, "clean", error);
	if (r) {
		return r;
	}
	struct postern_store *inner = begin_call(node);
	r = inner->ops->clean(inner, cleaning, error);
	node->sim->in_store = false;
	if (!r) {
		sim_history_cleaned(node->sim, cleaning->messages, cleaning->keys);
		sim_oracle_compare(&node->sim->oracle, SIM_CAUSE_CLEAN);
	}
	return end_call(node, "clean", r, error);
}

static void shared_interrupt(struct postern_store *store, const void *context) {
	/* There is one thread, so nothing can be running. */
	(void)store;
	(void)context;
}

static void shared_destroy(struct postern_store *store) {
	free(container_of(store, struct shared_store, base));
}

struct postern_store *sim_store_create(struct sim_node *node) {
	struct shared_store *self = calloc(1, sizeof(*self));
	if (!self) {
		abort();
	}
	const struct postern_store_ops *inner = node->sim->store->ops;
	self->ops = (struct postern_store_ops){
		.version = POSTERN_STORE_OPS_VERSION,
		.name = inner->name,
		.transactional = inner->transactional,
		.dialect = inner->dialect,
		.exclusive = inner->exclusive,
		.enrol = shared_enrol,
		.apply = shared_apply,
		.claim = shared_claim,
		.transact = shared_transact,
		.interrupt = shared_interrupt,
		.recover = shared_recover,
		.orphans = shared_orphans,
		.unpark = shared_unpark,
		.edit = shared_edit,
		.read_pauses = shared_read_pauses,
		.read_closed = shared_read_closed,
		.list = shared_list,
		.get = shared_get,
		.find = shared_find,
		.stats = shared_stats,
		.renew = shared_renew,
		.lock = shared_lock,
		.unlock = shared_unlock,
		.clean = shared_clean,
		.destroy = shared_destroy,
	};
	self->base.ops = &self->ops;
	self->node = node;
	return &self->base;
}
