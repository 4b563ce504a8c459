/* SPDX-License-Identifier: MIT */
/*
 * Comparing the whole store with the state that the oracle expects. Some calls
 * of a store change deliveries without returning which; then a comparison finds
 * them, and each change must be one that the call can have made.
 */

#include "sim/sim.h"

#include <postern/sys/memory.h>
#include <stdlib.h>
#include <string.h>

static bool is_open(enum postern_state state) {
	return state == POSTERN_STATE_PENDING || state == POSTERN_STATE_LEASED;
}

/* Whether a recovery may recover this lease. */
static bool is_recoverable(const struct sim_oracle *oracle,
		const struct sim_delivery *delivery) {
	const struct postern_recovery *recovery = oracle->recovery;
	if (delivery->node == recovery->node) {
		return false;
	}
	return recovery->lock || sim_oracle_expired(oracle, delivery->node);
}

/* Whether `cause` can have changed a delivery from the expected state to what
   the store returns. */
static bool is_possible_change(const struct sim_oracle *oracle,
		enum sim_cause cause, unsigned handler, const struct sim_delivery *was,
		const struct postern_row *row) {
	const struct sim_handler *cast = &sim_handlers[handler];
	bool ended = was->state == POSTERN_STATE_POISONED ||
				 was->state == POSTERN_STATE_DISCARDED;
	switch (cause) {
	case SIM_CAUSE_RECOVER:
		if (was->state != POSTERN_STATE_LEASED ||
				!is_recoverable(oracle, was)) {
			return false;
		}
		if (row->state == POSTERN_STATE_POISONED) {
			return cast->in_process && was->lost + 1 >= cast->max_crashes;
		}
		return row->state == POSTERN_STATE_PENDING &&
			   row->failures == was->failures;
	case SIM_CAUSE_UNPARK:
		return !was->exists && row->state == POSTERN_STATE_PENDING;
	case SIM_CAUSE_RETRY:
		return ended && row->state == POSTERN_STATE_PENDING &&
			   row->failures == 0;
	case SIM_CAUSE_DISCARD:
		return (was->state == POSTERN_STATE_PENDING ||
					   was->state == POSTERN_STATE_POISONED) &&
			   row->state == POSTERN_STATE_DISCARDED;
	case SIM_CAUSE_CLEAN:
	case SIM_CAUSE_NONE:
	default: return false;
	}
}

static void check_row(struct sim_oracle *oracle, enum sim_cause cause,
		const struct postern_page *page, size_t index) {
	const struct postern_row *row = &page->rows[index];
	struct sim_record *record = sim_oracle_find(oracle, row->seq);
	if (!record) {
		sim_oracle_broken(oracle, "phantom", "message %lld was never accepted",
				(long long)row->seq);
		return;
	}
	record->found = true;
	record->is_parked = row->state == POSTERN_STATE_PARKED;
	if (row->state == POSTERN_STATE_PARKED) {
		record->parked = true;
		return;
	}
	if (row->handler[0] == '\0' && record->parked &&
			row->state == POSTERN_STATE_DISCARDED) {
		record->discarded = true;
		return;
	}
	unsigned stored = sim_stored_row(oracle, page, index);
	if (stored == SIM_STORED_MAX) {
		sim_oracle_broken(oracle, "phantom", "a handler '%s'", row->handler);
		return;
	}
	unsigned handler = oracle->stored[stored].handler;
	struct sim_delivery *delivery = &record->deliveries[stored];
	if (delivery->found) {
		sim_oracle_broken(oracle, "two-deliveries", "message %lld of '%s'",
				(long long)row->seq, row->handler);
	}
	delivery->found = true;
	bool same = delivery->exists && delivery->state == row->state &&
				delivery->failures == row->failures;
	if (!same && !is_possible_change(oracle, cause, handler, delivery, row)) {
		sim_oracle_broken(oracle, "state-differs",
				"message %lld of '%s' is %s with %u failures, not %s with %u",
				(long long)row->seq, row->handler,
				postern_state_name(row->state), row->failures,
				delivery->exists ? postern_state_name(delivery->state) : "-",
				delivery->failures);
	}
	if (row->fence < delivery->fence ||
			(row->fence > delivery->fence && cause != SIM_CAUSE_RETRY)) {
		sim_oracle_broken(oracle, "fence-backwards",
				"message %lld of '%s' has fence %llu, not %llu",
				(long long)row->seq, row->handler,
				(unsigned long long)row->fence,
				(unsigned long long)delivery->fence);
	}
	if (!same && cause == SIM_CAUSE_RECOVER) {
		delivery->lost++;
		delivery->suspect = true;
		oracle->sim->counts.recoveries++;
	}
	if (!same) {
		delivery->ended_ms = fake_clock_now(&oracle->sim->clock);
		delivery->due_ms = delivery->ended_ms;
	} else if (cause == SIM_CAUSE_RETRY) {
		delivery->due_ms = 0; /* it may have been retried */
	}
	delivery->exists = true;
	delivery->state = row->state;
	delivery->failures = row->failures;
	delivery->fence = row->fence;
}

/* Whether retention allows the removal of a message. */
static bool is_removable(const struct sim_oracle *oracle,
		const struct sim_record *record) {
	int64_t ended = record->accepted_ms;
	bool any = record->discarded;
	for (unsigned i = 0; i < oracle->stored_count; i++) {
		const struct sim_delivery *delivery = &record->deliveries[i];
		if (!delivery->exists) {
			continue;
		}
		any = true;
		if (delivery->state != POSTERN_STATE_DONE &&
				delivery->state != POSTERN_STATE_DISCARDED) {
			return false;
		}
		if (delivery->ended_ms > ended) {
			ended = delivery->ended_ms;
		}
	}
	return any &&
		   (oracle->set_back || fake_clock_now(&oracle->sim->clock) - ended >=
										SIM_PAYLOAD_MS);
}

static void check_missing(struct sim_oracle *oracle, enum sim_cause cause,
		struct sim_record *record) {
	if (record->removed) {
		return;
	}
	if (!record->found && cause == SIM_CAUSE_CLEAN) {
		record->removed = true;
		if (!is_removable(oracle, record)) {
			sim_oracle_broken(oracle, "cleaned-early", "message %lld",
					(long long)record->seq);
		}
		return;
	}
	if (!record->found) {
		sim_oracle_broken(oracle, "lost-message",
				"message %lld is no longer stored", (long long)record->seq);
	}
	for (unsigned i = 0; i < oracle->stored_count; i++) {
		const struct sim_delivery *delivery = &record->deliveries[i];
		if (delivery->exists && !delivery->found) {
			sim_oracle_broken(oracle, "lost-delivery",
					"message %lld no longer has a delivery to '%s'",
					(long long)record->seq, oracle->stored[i].key);
		}
	}
}

void sim_oracle_recovered(struct sim_oracle *oracle,
		const struct postern_recovery *recovery) {
	oracle->recovery = recovery;
	sim_oracle_compare(oracle, SIM_CAUSE_RECOVER);
	oracle->recovery = NULL;
}

void sim_oracle_compare(struct sim_oracle *oracle, enum sim_cause cause) {
	struct sim *sim = oracle->sim;
	struct postern_memory *memory = postern_memory_create();
	if (!memory) {
		abort();
	}
	struct postern_filter filter = { .size = sizeof(filter),
		.limit = POSTERN_LIST_LIMIT_MAX };
	struct postern_query query = { .filter = &filter };
	struct postern_page page = { 0 };
	struct postern_error error;
	bool inside = sim->in_store;
	sim->in_store = true;
	int r = sim->store->ops->list(sim->store, &query, memory, &page, &error);
	sim->in_store = inside;
	if (r || page.more) {
		sim_oracle_broken(oracle, "list", "cannot list: %s",
				r ? error.text : "too many rows");
	} else {
		for (size_t i = 0; i < oracle->count; i++) {
			struct sim_record *record = &oracle->records[i];
			record->found = false;
			for (unsigned j = 0; j < SIM_STORED_MAX; j++) {
				record->deliveries[j].found = false;
			}
		}
		for (size_t i = 0; i < page.count; i++) {
			check_row(oracle, cause, &page, i);
		}
		for (size_t i = 0; i < oracle->count; i++) {
			check_missing(oracle, cause, &oracle->records[i]);
		}
	}
	postern_memory_destroy(memory);
}

bool sim_oracle_has_handler(const struct sim_oracle *oracle,
		const struct sim_node *node, unsigned stored) {
	const struct sim_stored *of = &oracle->stored[stored];
	return sim_stored_of(oracle, of->handler, node->generation) == of->owner;
}

size_t sim_oracle_count_open(const struct sim_oracle *oracle,
		const struct sim_node *node, size_t *forgotten) {
	size_t count = 0;
	*forgotten = 0;
	for (size_t i = 0; i < oracle->count; i++) {
		for (unsigned j = 0; j < oracle->stored_count; j++) {
			const struct sim_delivery *delivery =
					&oracle->records[i].deliveries[j];
			bool open = delivery->exists && is_open(delivery->state) &&
						(!node || sim_oracle_has_handler(oracle, node, j));
			count += open;
			*forgotten += open && delivery->state == POSTERN_STATE_LEASED &&
						  delivery->reply_lost;
		}
	}
	return count;
}

void sim_oracle_node_stopped(struct sim_oracle *oracle, uint64_t node) {
	for (size_t i = 0; i < oracle->count; i++) {
		const struct sim_record *record = &oracle->records[i];
		for (unsigned j = 0; j < oracle->stored_count; j++) {
			const struct sim_delivery *delivery = &record->deliveries[j];
			if (delivery->exists && delivery->state == POSTERN_STATE_LEASED &&
					delivery->node == node && !delivery->reply_lost) {
				sim_oracle_broken(oracle, "lease-kept",
						"message %lld of '%s' is leased to a node that stopped",
						(long long)record->seq, oracle->stored[j].key);
			}
		}
	}
}

void sim_oracle_orphaned(struct sim_oracle *oracle, const struct sim_node *node,
		const char *key) {
	unsigned stored = sim_stored_resolve(oracle, key);
	if (stored == SIM_STORED_MAX ||
			sim_oracle_has_handler(oracle, node, stored)) {
		sim_oracle_broken(oracle, "false-orphan", "handler '%s'", key);
	}
}

/* Whether a handler of this generation wants a message. */
static bool is_wanted(const struct sim_oracle *oracle,
		const struct sim_record *record, unsigned generation) {
	struct sim_parcel parcel;
	sim_parcel_make(oracle->sim, record->number, record->variant, &parcel);
	for (unsigned i = 0; i < SIM_HANDLER_COUNT; i++) {
		if (sim_cast_wants(i, generation, parcel.channel,
					parcel.message.type)) {
			return true;
		}
	}
	return false;
}

void sim_oracle_check_survivor(struct sim_oracle *oracle,
		const struct sim_node *node) {
	/* Another node may have parked a message after this one had unparked. */
	bool only = oracle->sim->plan->nodes == 1;
	sim_oracle_compare(oracle, SIM_CAUSE_NONE);
	for (size_t i = 0; i < oracle->count; i++) {
		const struct sim_record *record = &oracle->records[i];
		if (only && !record->removed && record->is_parked &&
				is_wanted(oracle, record, node->generation)) {
			sim_oracle_broken(oracle, "parked-forever",
					"message %lld, though node %u has a handler that wants it",
					(long long)record->seq, node->index);
		}
		for (unsigned j = 0; j < oracle->stored_count; j++) {
			const struct sim_delivery *delivery = &record->deliveries[j];
			bool forgotten = delivery->state == POSTERN_STATE_LEASED &&
							 delivery->reply_lost;
			if (delivery->exists && is_open(delivery->state) && !forgotten &&
					sim_oracle_has_handler(oracle, node, j)) {
				sim_oracle_broken(oracle, "not-claimed",
						"message %lld of '%s' is %s, though node %u has the "
						"handler",
						(long long)record->seq, oracle->stored[j].key,
						postern_state_name(delivery->state), node->index);
			}
		}
	}
}

/* Whether a delivery exists under any of the handler's ids. */
static bool is_delivered(const struct sim_oracle *oracle,
		const struct sim_record *record, unsigned handler) {
	for (unsigned i = 0; i < oracle->stored_count; i++) {
		if (oracle->stored[i].handler == handler &&
				record->deliveries[i].exists) {
			return true;
		}
	}
	return false;
}

void sim_oracle_check_drained(struct sim_oracle *oracle) {
	sim_oracle_compare(oracle, SIM_CAUSE_NONE);
	for (size_t i = 0; i < oracle->count; i++) {
		const struct sim_record *record = &oracle->records[i];
		if (!record->removed && record->is_parked &&
				is_wanted(oracle, record, SIM_GENERATION_COUNT - 1)) {
			sim_oracle_broken(oracle, "parked-forever", "message %lld",
					(long long)record->seq);
		}
		for (unsigned j = 0; !record->removed && j < SIM_HANDLER_COUNT; j++) {
			if (record->expected[j] && !is_delivered(oracle, record, j)) {
				sim_oracle_broken(oracle, "lost-delivery",
						"message %lld never had a delivery to '%s'",
						(long long)record->seq, sim_handlers[j].key);
			}
		}
		for (unsigned j = 0; !record->removed && j < oracle->stored_count;
				j++) {
			const struct sim_delivery *delivery = &record->deliveries[j];
			if (delivery->exists && is_open(delivery->state)) {
				sim_oracle_broken(oracle, "stuck",
						"message %lld of '%s' stays %s", (long long)record->seq,
						oracle->stored[j].key,
						postern_state_name(delivery->state));
			}
		}
	}
}

void sim_oracle_effect(struct sim_oracle *oracle, int64_t seq,
		const char *handler, uint64_t fence) {
	struct sim_record *record = sim_oracle_find(oracle, seq);
	unsigned index = 0;
	while (index < oracle->stored_count &&
			strcmp(handler, oracle->stored[index].key) != 0) {
		index++;
	}
	if (!record || index == oracle->stored_count) {
		sim_oracle_broken(oracle, "phantom", "an effect of message %lld",
				(long long)seq);
		return;
	}
	struct sim_delivery *delivery = &record->deliveries[index];
	delivery->effects++;
	if (delivery->state != POSTERN_STATE_DONE ||
			delivery->done_fence != fence || delivery->effects > 1) {
		sim_oracle_broken(oracle, "effect-count",
				"message %lld of '%s' is %s under fence %llu, effect %u is of "
				"fence %llu",
				(long long)seq, handler, postern_state_name(delivery->state),
				(unsigned long long)delivery->done_fence, delivery->effects,
				(unsigned long long)fence);
	}
}

void sim_oracle_effects_end(struct sim_oracle *oracle) {
	for (size_t i = 0; i < oracle->count; i++) {
		for (unsigned j = 0; j < oracle->stored_count; j++) {
			const struct sim_stored *stored = &oracle->stored[j];
			const struct sim_delivery *delivery =
					&oracle->records[i].deliveries[j];
			if (sim_handlers[stored->handler].transactional &&
					delivery->exists && delivery->state == POSTERN_STATE_DONE &&
					delivery->effects == 0) {
				sim_oracle_broken(oracle, "effect-count",
						"message %lld of '%s' is done without an effect",
						(long long)oracle->records[i].seq, stored->key);
			}
		}
	}
}
