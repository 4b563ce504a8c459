/* SPDX-License-Identifier: MIT */
/*
 * The results of the store, checked for each delivery against the rules: a
 * fence is used for one lease and only grows, a lease has one owner and one
 * end, an end needs a run with that outcome, a number belongs to one message
 * forever.
 *
 * Nothing here calls the box; of the store only the results are used.
 */

#include "sim/sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void sim_oracle_finish(struct sim_oracle *oracle) {
	free(oracle->records);
}

void sim_oracle_broken(struct sim_oracle *oracle, const char *rule,
		const char *format, ...) {
	if (oracle->rule) {
		return; /* later violations are consequences */
	}
	if (getenv("SIM_BLIND")) {
		return; /* the checker is to find it */
	}
	va_list args;
	va_start(args, format);
	(void)vsnprintf(oracle->text, sizeof(oracle->text), format, args);
	va_end(args);
	oracle->rule = rule;
	sim_trace(oracle->sim, "BROKEN %s: %s", rule, oracle->text);
}

struct sim_record *sim_oracle_find(struct sim_oracle *oracle, int64_t seq) {
	size_t from = 0;
	size_t to = oracle->count;
	while (from < to) {
		size_t middle = from + (to - from) / 2;
		if (oracle->records[middle].seq < seq) {
			from = middle + 1;
		} else {
			to = middle;
		}
	}
	return from < oracle->count && oracle->records[from].seq == seq
				   ? &oracle->records[from]
				   : NULL;
}

enum postern_settle_to sim_delivery_settled(const struct sim_delivery *delivery,
		uint64_t fence) {
	return delivery->settled[fence % SIM_SETTLED_KEPT].to;
}

/* The latest message with an identity. */
static struct sim_record *find_number(struct sim_oracle *oracle,
		unsigned number) {
	for (size_t i = oracle->count; i-- > 0;) {
		if (oracle->records[i].number == number) {
			return &oracle->records[i];
		}
	}
	return NULL;
}

/* The delivery that a call of the store names; NULL breaks a rule. */
static struct sim_delivery *find_delivery(struct sim_oracle *oracle,
		int64_t seq, int64_t handler) {
	struct sim_record *record = sim_oracle_find(oracle, seq);
	unsigned index = sim_stored_find(oracle, handler);
	if (!record || index == SIM_STORED_MAX ||
			!record->deliveries[index].exists) {
		sim_oracle_broken(oracle, "phantom",
				"message %lld has no delivery to handler %lld", (long long)seq,
				(long long)handler);
		return NULL;
	}
	return &record->deliveries[index];
}

static int64_t monotonic_ms(const struct sim_oracle *oracle) {
	struct fake_clock *clock = &oracle->sim->clock;
	return clock->base.monotonic_ms(clock->base.context);
}

static int64_t wall_ms(const struct sim_oracle *oracle) {
	return fake_clock_now(&oracle->sim->clock);
}

static struct sim_expiry expiry_after(const struct sim_oracle *oracle,
		int64_t ttl_ms) {
	struct sim_expiry expiry = { 0 };
	if (ttl_ms > 0) {
		expiry.wall_ms = wall_ms(oracle) + ttl_ms;
		expiry.monotonic_ms = monotonic_ms(oracle) + ttl_ms;
	}
	return expiry;
}

static bool is_expired(const struct sim_oracle *oracle,
		const struct sim_expiry *expiry) {
	return expiry->wall_ms > 0 &&
		   (oracle->set_back || wall_ms(oracle) >= expiry->wall_ms ||
				   monotonic_ms(oracle) >= expiry->monotonic_ms);
}

struct sim_node_lease *sim_oracle_node_lease(struct sim_oracle *oracle,
		uint64_t node) {
	for (size_t i = oracle->node_lease_count; i-- > 0;) {
		if (oracle->node_leases[i].node == node) {
			return &oracle->node_leases[i];
		}
	}
	return NULL;
}

void sim_oracle_enrolled(struct sim_oracle *oracle, const struct sim_node *node,
		const struct postern_enrolment *enrolment) {
	sim_stored_enrolled(oracle, enrolment);
	struct sim_node_lease *lease =
			sim_oracle_node_lease(oracle, enrolment->node);
	if (!lease && oracle->node_lease_count < SIM_NODE_LEASE_MAX) {
		lease = &oracle->node_leases[oracle->node_lease_count++];
	}
	if (lease) {
		*lease = (struct sim_node_lease){
			.node = enrolment->node,
			.expiry = expiry_after(oracle, enrolment->node_lease_ms),
		};
		sim_oracle_record_registered(oracle, lease, node, enrolment);
	}
}

void sim_oracle_pauses_read(struct sim_oracle *oracle, const int64_t *handlers,
		size_t count, const struct postern_halt *pauses) {
	for (size_t i = 0; i < count; i++) {
		unsigned stored = sim_stored_find(oracle, handlers[i]);
		if (stored < SIM_STORED_MAX &&
				pauses[i].on != sim_stored_paused(oracle, stored)) {
			sim_oracle_broken(oracle, "pause-forgotten", "handler '%s'",
					oracle->stored[stored].key);
		}
	}
}

void sim_oracle_paused(struct sim_oracle *oracle, const char *key, bool paused,
		int64_t until_ms) {
	unsigned stored = sim_stored_resolve(oracle, key);
	if (stored == SIM_STORED_MAX) {
		sim_oracle_broken(oracle, "phantom", "a handler '%s'", key);
		return;
	}
	oracle->stored[stored].paused = paused;
	oracle->stored[stored].paused_until_ms = until_ms;
}

void sim_oracle_closed(struct sim_oracle *oracle, const char *name,
		bool closed) {
	for (unsigned i = 0; i < SIM_CHANNEL_COUNT; i++) {
		if (strcmp(sim_channels[i].name, name) == 0) {
			oracle->closed[i] = closed;
		}
	}
}

/* Whether the message was refused, which the store does exactly while the
   channel is closed. */
static bool check_refused(struct sim_oracle *oracle,
		const struct postern_accept *accept, const struct sim_parcel *parcel) {
	bool refused = accept->code == POSTERN_E_UNAVAILABLE;
	if (refused != oracle->closed[parcel->channel]) {
		sim_oracle_broken(oracle,
				refused ? "refused-while-open" : "accepted-while-closed",
				"%s: code %d", parcel->id, accept->code);
	}
	oracle->sim->counts.refused += refused;
	return refused;
}

void sim_oracle_renewed(struct sim_oracle *oracle, uint64_t node,
		int64_t ttl_ms) {
	struct sim_node_lease *lease = sim_oracle_node_lease(oracle, node);
	if (!lease || lease->ended) {
		sim_oracle_broken(oracle, "renewed-dead",
				"node %llu renewed after it expired", (unsigned long long)node);
		return;
	}
	lease->ended = ttl_ms == 0;
	lease->expiry = expiry_after(oracle, ttl_ms);
}

bool sim_oracle_expired(const struct sim_oracle *oracle, uint64_t node) {
	for (size_t i = 0; i < oracle->node_lease_count; i++) {
		const struct sim_node_lease *lease = &oracle->node_leases[i];
		if (lease->node == node) {
			return lease->ended || is_expired(oracle, &lease->expiry);
		}
	}
	return true;
}

static struct sim_lock *find_lock(struct sim_oracle *oracle, const char *name) {
	struct sim_lock *lock = oracle->locks;
	while (lock->name[0] && strcmp(lock->name, name) != 0) {
		lock++;
	}
	(void)snprintf(lock->name, sizeof(lock->name), "%s", name);
	return lock;
}

bool sim_oracle_locked(struct sim_oracle *oracle, const char *name,
		uint64_t node, int64_t ttl_ms, uint64_t fence) {
	struct sim_lock *lock = find_lock(oracle, name);
	bool kept = lock->node == node;
	if (kept ? fence != lock->fence : fence <= lock->fence) {
		sim_oracle_broken(oracle, "lock-fence",
				"'%s' has fence %llu after %llu", name,
				(unsigned long long)fence, (unsigned long long)lock->fence);
	}
	if (!kept && lock->node != 0 && !is_expired(oracle, &lock->expiry)) {
		sim_oracle_broken(oracle, "two-owners",
				"'%s' was acquired by another node before it expired", name);
	}
	lock->node = node;
	lock->fence = fence;
	lock->expiry = expiry_after(oracle, ttl_ms);
	return !kept;
}

void sim_oracle_unlocked(struct sim_oracle *oracle,
		const struct postern_lock *lock, uint64_t node) {
	struct sim_lock *found = find_lock(oracle, lock->name);
	if (found->node == node && found->fence == lock->fence) {
		found->node = 0;
	}
}

bool sim_oracle_owns(struct sim_oracle *oracle, const struct postern_lock *lock,
		uint64_t node) {
	const struct sim_lock *found = find_lock(oracle, lock->name);
	return found->node == node && found->fence == lock->fence;
}

void sim_oracle_reopened(struct sim_oracle *oracle) {
	for (size_t i = 0; i < oracle->node_lease_count; i++) {
		oracle->node_leases[i].ended = true;
	}
	for (size_t i = 0; i < SIM_LOCK_MAX; i++) {
		oracle->locks[i].node = 0;
	}
}

/* Checks that the node owned the lock under which it made a change. */
static void check_lock(struct sim_oracle *oracle, uint64_t node,
		const struct postern_lock *lock, const char *what) {
	if (!lock) {
		if (oracle->sim->plan->exclusive) {
			sim_oracle_broken(oracle, "no-lock", "%s without a lock", what);
		}
		return;
	}
	if (!sim_oracle_owns(oracle, lock, node)) {
		sim_oracle_broken(oracle, "stale-lock",
				"%s under fence %llu of the lock, which has %llu", what,
				(unsigned long long)lock->fence,
				(unsigned long long)find_lock(oracle, lock->name)->fence);
	}
}

/* A claim or an accept leased the delivery under a new fence. */
static void record_lease(struct sim_oracle *oracle,
		struct sim_delivery *delivery, int64_t seq, uint64_t node,
		uint64_t fence, bool reply_lost) {
	if (fence <= delivery->fence) {
		sim_oracle_broken(oracle, "fence-backwards",
				"message %lld was leased under fence %llu after %llu",
				(long long)seq, (unsigned long long)fence,
				(unsigned long long)delivery->fence);
	}
	delivery->exists = true;
	delivery->state = POSTERN_STATE_LEASED;
	delivery->node = node;
	delivery->fence = fence;
	delivery->reply_lost = reply_lost;
	delivery->granted_at_ms = monotonic_ms(oracle);
}

static struct sim_record *add_record(struct sim_oracle *oracle, int64_t seq) {
	if (oracle->count == oracle->cap) {
		size_t cap = oracle->cap ? 2 * oracle->cap : 64;
		struct sim_record *records =
				realloc(oracle->records, cap * sizeof(*records));
		if (!records) {
			abort();
		}
		oracle->records = records;
		oracle->cap = cap;
	}
	oracle->seq_max = seq;
	oracle->records[oracle->count] = (struct sim_record){ .seq = seq };
	return &oracle->records[oracle->count++];
}

static bool is_id_removed(const struct sim_oracle *oracle,
		const struct sim_record *record) {
	return record->removed &&
		   (oracle->set_back ||
				   wall_ms(oracle) - record->accepted_ms >= SIM_DEDUPE_MS);
}

/* Whether the routes of a message are those of a generation. */
static bool is_routed_by(const struct sim_oracle *oracle,
		const struct postern_accept *accept, const struct sim_parcel *parcel,
		unsigned generation) {
	bool routed[SIM_HANDLER_COUNT] = { false };
	for (size_t i = 0; i < accept->route_count; i++) {
		unsigned stored = sim_stored_find(oracle, accept->routes[i].handler);
		if (stored < SIM_STORED_MAX) {
			routed[oracle->stored[stored].handler] = true;
		}
	}
	for (unsigned i = 0; i < SIM_HANDLER_COUNT; i++) {
		if (routed[i] != sim_cast_wants(i, generation, parcel->channel,
								 accept->message->type)) {
			return false;
		}
	}
	return true;
}

/* The generation that routed a message: the one in place when it was sent. Two
   copies may have been sent to different ones. */
static unsigned find_routing(struct sim_oracle *oracle,
		const struct sim_node *node, const struct postern_accept *accept,
		const struct sim_parcel *parcel) {
	bool any = false;
	for (size_t i = 0; i < node->sent_count; i++) {
		const struct sim_sent *sent = &node->sent[i];
		if (sent->number != parcel->number ||
				sent->variant != parcel->variant) {
			continue;
		}
		any = true;
		if (is_routed_by(oracle, accept, parcel, sent->generation)) {
			return sent->generation;
		}
	}
	if (any) {
		sim_oracle_broken(oracle, "misrouted",
				"%s is not routed by the generation it was sent to",
				parcel->id);
	}
	return node->generation;
}

static void check_new(struct sim_oracle *oracle, const struct sim_node *node,
		const struct postern_accept *accept, const struct sim_parcel *parcel) {
	const struct sim_record *former = find_number(oracle, parcel->number);
	if (former && !is_id_removed(oracle, former)) {
		sim_oracle_broken(oracle, "accepted-twice",
				"%s was message %lld and is %lld", parcel->id,
				(long long)former->seq, (long long)accept->seq);
	}
	if (accept->seq == 0) {
		return; /* dropped */
	}
	if (accept->seq <= oracle->seq_max) {
		sim_oracle_broken(oracle, "seq-reused", "number %lld after %lld",
				(long long)accept->seq, (long long)oracle->seq_max);
		return;
	}
	struct sim_record *record = add_record(oracle, accept->seq);
	record->parked = accept->fate == POSTERN_FATE_PARK;
	record->number = parcel->number;
	record->variant = parcel->variant;
	record->accepted_ms = wall_ms(oracle);
	unsigned generation = find_routing(oracle, node, accept, parcel);
	for (unsigned i = 0; i < SIM_HANDLER_COUNT; i++) {
		record->expected[i] = sim_cast_wants(i, generation, parcel->channel,
				accept->message->type);
	}
}

static void check_known(struct sim_oracle *oracle,
		const struct postern_accept *accept, const struct sim_parcel *parcel) {
	const struct sim_record *record = find_number(oracle, parcel->number);
	bool same = record && record->variant == parcel->variant;
	if (!record || record->seq != accept->seq ||
			same != (accept->code == POSTERN_E_DUPLICATE)) {
		sim_oracle_broken(oracle, "false-duplicate",
				"%s with body %u: code %d, message %lld", parcel->id,
				parcel->variant, accept->code, (long long)accept->seq);
	}
}

/* The delivery that a route opened: a new one belongs to the owner,
   whichever of the handler's ids the node knows; then no other id of the
   owner has one. */
static struct sim_delivery *find_opened(struct sim_oracle *oracle,
		struct sim_record *record, const struct postern_route *route) {
	unsigned known = sim_stored_find(oracle, route->handler);
	unsigned owner = oracle->stored[known].owner;
	unsigned opened = owner;
	bool again = false;
	for (unsigned i = 0; i < oracle->stored_count; i++) {
		const struct sim_delivery *delivery = &record->deliveries[i];
		if (oracle->stored[i].owner != owner || !delivery->exists) {
			continue;
		}
		again = true;
		opened = i;
		if (delivery->state != POSTERN_STATE_POISONED ||
				!route->retry_poisoned || route->leased ||
				route->fence < delivery->fence) {
			sim_oracle_broken(oracle,
					i == known ? "opened-again" : "opened-under-both-keys",
					"message %lld of '%s' in state %s under '%s'",
					(long long)record->seq, oracle->stored[known].key,
					postern_state_name(delivery->state), oracle->stored[i].key);
		}
	}
	if (!again && route->leased && route->stored != oracle->stored[owner].id) {
		sim_oracle_broken(oracle, "stored-under-alias",
				"message %lld of '%s' under id %lld", (long long)record->seq,
				oracle->stored[owner].key, (long long)route->stored);
	}
	return &record->deliveries[opened];
}

static void record_routes(struct sim_oracle *oracle,
		const struct postern_batch *batch, const struct postern_accept *accept,
		bool reply_lost) {
	struct sim_record *record = sim_oracle_find(oracle, accept->seq);
	for (size_t i = 0; record && i < accept->route_count; i++) {
		const struct postern_route *route = &accept->routes[i];
		unsigned known = sim_stored_find(oracle, route->handler);
		if (!route->opened || known == SIM_STORED_MAX) {
			continue;
		}
		struct sim_delivery *delivery = find_opened(oracle, record, route);
		delivery->exists = true;
		delivery->state = POSTERN_STATE_PENDING;
		delivery->failures = 0;
		delivery->due_ms = wall_ms(oracle);
		if (route->leased && sim_stored_paused(oracle, known)) {
			sim_oracle_broken(oracle, "leased-while-paused", "handler '%s'",
					oracle->stored[known].key);
		}
		if (route->leased) {
			check_lock(oracle, batch->node, batch->lock, "leased");
			record_lease(oracle, delivery, accept->seq, batch->node,
					route->fence, reply_lost);
		} else {
			delivery->fence = route->fence;
		}
	}
}

int64_t sim_oracle_timeout(const struct sim_oracle *oracle, unsigned handler,
		unsigned generation) {
	bool transactional = sim_handlers[handler].transactional &&
						 oracle->sim->plan->store != SIM_MEMORY;
	int64_t timeout_ms = sim_cast_version(handler, generation).timeout_ms;
	if (timeout_ms == 0 && !transactional) {
		return INT64_MAX;
	}
	return timeout_ms > 0 ? timeout_ms : 5000;
}

/* Whether an outcome makes a delivery wait without counting a failure. */
static bool is_uncounted(enum postern_outcome_kind kind) {
	return kind == POSTERN_SNOOZE || kind == POSTERN_HOLD;
}

/* Whether the delivery may be charged for a fault of its handler: it had one
   before, and a later run of the handler has succeeded since. */
static bool may_be_charged(const struct sim_oracle *oracle, unsigned handler,
		const struct sim_delivery *delivery) {
	return delivery->run_ended && delivery->run_outcome == POSTERN_HOLD &&
		   delivery->faulted &&
		   oracle->success_at_ms[handler] > delivery->faulted_at_ms;
}

/* Whether the run failed, or may have exceeded its timeout: a node can also be
   paused before and after the handler. */
static bool may_have_failed(const struct sim_oracle *oracle, unsigned handler,
		const struct sim_delivery *delivery) {
	bool late = monotonic_ms(oracle) - delivery->granted_at_ms >=
				sim_oracle_timeout(oracle, handler, delivery->run_generation);
	return late || may_be_charged(oracle, handler, delivery) ||
		   (delivery->run_ended &&
				   (delivery->run_outcome == POSTERN_RETRY ||
						   delivery->run_outcome == POSTERN_RETRY_AFTER));
}

/* Whether the recorded run can have led to this settlement: by the policy of
   the generation in which it started. */
static bool is_explained(const struct sim_oracle *oracle, unsigned handler,
		const struct sim_delivery *delivery, enum postern_settle_to to,
		uint32_t failures) {
	uint32_t max_attempts =
			sim_cast_version(handler, delivery->run_generation).max_attempts;
	bool ran = delivery->run_fence == delivery->fence;
	bool ended = ran && delivery->run_ended;
	bool failed = ran && may_have_failed(oracle, handler, delivery);
	bool counted = failures == delivery->failures + 1;
	switch (to) {
	case POSTERN_SETTLE_DONE:
		return ended && delivery->run_outcome == POSTERN_DONE &&
			   delivery->run_took_ms < sim_oracle_timeout(oracle, handler,
											   delivery->run_generation);
	case POSTERN_SETTLE_DISCARDED:
		return ended && delivery->run_outcome == POSTERN_DISCARD;
	case POSTERN_SETTLE_POISONED:
		return counted && ((ended && delivery->run_outcome == POSTERN_POISON) ||
								  (failed && failures >= max_attempts));
	case POSTERN_SETTLE_PENDING:
		return counted ? failed && failures < max_attempts
					   : ended && is_uncounted(delivery->run_outcome) &&
								 failures == delivery->failures;
	case POSTERN_SETTLE_RETURNED: return failures == delivery->failures;
	default: return false;
	}
}

enum postern_state sim_settled_state(enum postern_settle_to to) {
	static const enum postern_state states[] = {
		[POSTERN_SETTLE_DONE] = POSTERN_STATE_DONE,
		[POSTERN_SETTLE_POISONED] = POSTERN_STATE_POISONED,
		[POSTERN_SETTLE_DISCARDED] = POSTERN_STATE_DISCARDED,
		[POSTERN_SETTLE_PENDING] = POSTERN_STATE_PENDING,
		[POSTERN_SETTLE_RETURNED] = POSTERN_STATE_PENDING,
	};
	return states[to];
}

static void record_settlement(struct sim_oracle *oracle, uint64_t node,
		const struct postern_settlement *settlement) {
	struct sim_delivery *delivery =
			find_delivery(oracle, settlement->seq, settlement->handler);
	if (!delivery) {
		return;
	}
	const struct sim_stored *stored =
			&oracle->stored[sim_stored_find(oracle, settlement->handler)];
	const char *key = stored->key;
	if (delivery->state != POSTERN_STATE_LEASED || delivery->node != node ||
			delivery->fence != settlement->fence) {
		sim_oracle_broken(oracle, "stale-settle",
				"message %lld of '%s' was settled under fence %llu in state "
				"%s under fence %llu",
				(long long)settlement->seq, key,
				(unsigned long long)settlement->fence,
				postern_state_name(delivery->state),
				(unsigned long long)delivery->fence);
	}
	if (!is_explained(oracle, stored->handler, delivery, settlement->to,
				settlement->failures)) {
		sim_oracle_broken(oracle, "unexplained",
				"message %lld of '%s' became '%s' (%d) with %u failures after "
				"%u; run %llu ended %d with outcome %d",
				(long long)settlement->seq, key, settlement->outcome,
				(int)settlement->to, settlement->failures, delivery->failures,
				(unsigned long long)delivery->run_fence, delivery->run_ended,
				(int)delivery->run_outcome);
	}
	delivery->state = sim_settled_state(settlement->to);
	delivery->suspect = false;
	size_t slot = settlement->fence % SIM_SETTLED_KEPT;
	delivery->settled[slot].fence = settlement->fence;
	delivery->settled[slot].to = settlement->to;
	delivery->settled[slot].reported = false;
	delivery->failures = settlement->failures;
	delivery->due_ms = wall_ms(oracle) + settlement->delay_ms;
	delivery->ended_ms = wall_ms(oracle) - settlement->lag_ms;
	if (settlement->to == POSTERN_SETTLE_DONE) {
		delivery->done_fence = settlement->fence;
	}
}

void sim_oracle_applied(struct sim_oracle *oracle, const struct sim_node *node,
		const struct postern_batch *batch, bool reply_lost) {
	for (size_t i = 0; i < batch->settlement_count; i++) {
		if (batch->settlements[i].code == POSTERN_OK) {
			check_lock(oracle, batch->node, batch->lock, "settled");
			record_settlement(oracle, batch->node, &batch->settlements[i]);
		}
	}
	for (size_t i = 0; i < batch->accept_count; i++) {
		const struct postern_accept *accept = &batch->accepts[i];
		struct sim_parcel parcel;
		sim_parcel_read(oracle->sim, accept->message, &parcel);
		if (check_refused(oracle, accept, &parcel)) {
			continue;
		}
		if (accept->code == POSTERN_OK) {
			check_new(oracle, node, accept, &parcel);
		} else {
			check_known(oracle, accept, &parcel);
		}
		record_routes(oracle, batch, accept, reply_lost);
	}
}

static void check_claimed(struct sim_oracle *oracle,
		const struct postern_want *want, const struct postern_claimed *item,
		const struct sim_delivery *delivery) {
	unsigned stored = sim_stored_find(oracle, item->handler);
	unsigned wanted = sim_stored_find(oracle, want->handler);
	const char *key = oracle->stored[stored].key;
	if (wanted == SIM_STORED_MAX ||
			oracle->stored[wanted].owner != oracle->stored[stored].owner) {
		sim_oracle_broken(oracle, "claimed-for-another",
				"message %lld of '%s' for a want of handler %lld",
				(long long)item->seq, key, (long long)want->handler);
	}
	if (delivery->state != POSTERN_STATE_PENDING) {
		sim_oracle_broken(oracle, "claimed-not-pending",
				"message %lld of '%s' was %s", (long long)item->seq, key,
				postern_state_name(delivery->state));
	}
	if (sim_stored_paused(oracle, stored)) {
		sim_oracle_broken(oracle, "claimed-while-paused",
				"message %lld of '%s'", (long long)item->seq, key);
	}
	if (delivery->failures != item->failures) {
		sim_oracle_broken(oracle, "failure-count",
				"message %lld of '%s' has %u failures, not %u",
				(long long)item->seq, key, item->failures, delivery->failures);
	}
	/* The store may ignore one second. */
	if (!oracle->set_back && wall_ms(oracle) + 1000 < delivery->due_ms) {
		sim_oracle_broken(oracle, "claimed-early",
				"message %lld of '%s' by %lld ms", (long long)item->seq, key,
				(long long)(delivery->due_ms - wall_ms(oracle)));
	}
}

void sim_oracle_claimed(struct sim_oracle *oracle,
		const struct postern_claim *claim, const struct postern_claims *claims,
		bool reply_lost) {
	if (claims->count > 0) {
		check_lock(oracle, claim->node, claim->lock, "claimed");
	}
	for (size_t i = 0; i < claims->count; i++) {
		const struct postern_claimed *item = &claims->items[i];
		struct sim_delivery *delivery =
				find_delivery(oracle, item->seq, item->handler);
		if (delivery) {
			check_claimed(oracle, &claim->wants[item->want], item, delivery);
			record_lease(oracle, delivery, item->seq, claim->node, item->fence,
					reply_lost);
		}
	}
}

void sim_oracle_transacted(struct sim_oracle *oracle, uint64_t node,
		const struct postern_lock *lock, const struct postern_unit *units,
		size_t count) {
	for (size_t i = 0; i < count; i++) {
		const struct postern_unit *unit = &units[i];
		if (unit->code != POSTERN_OK || !unit->committed) {
			continue;
		}
		bool done = unit->outcome.kind == POSTERN_DONE;
		const struct sim_delivery *delivery =
				find_delivery(oracle, unit->seq, unit->handler);
		struct postern_settlement settlement = {
			.seq = unit->seq,
			.handler = unit->handler,
			.fence = unit->fence,
			.to = done ? POSTERN_SETTLE_DONE : POSTERN_SETTLE_DISCARDED,
			.failures = delivery ? delivery->failures : 0,
			.lag_ms = delivery ? wall_ms(oracle) - delivery->run_end_ms : 0,
			.outcome = done ? "done" : "discard",
		};
		check_lock(oracle, node, lock, "committed");
		record_settlement(oracle, node, &settlement);
	}
}

/* A run starts in the generation in place: by a handler that this one has, and
   under the key that this one has for it. */
static void check_generation(struct sim_oracle *oracle,
		const struct sim_role *role, const struct postern_delivery *run) {
	const struct sim_generation *in_place = role->node->generations;
	if (role->generation != in_place) {
		sim_oracle_broken(oracle, "old-generation",
				"message %lld of '%s' starts in generation %u, which was "
				"replaced by generation %u",
				(long long)run->seq, run->handler, role->generation->number,
				in_place->number);
	}
	const char *key =
			sim_cast_version(role->handler, role->generation->number).key;
	if (strcmp(run->handler, key) != 0) {
		sim_oracle_broken(oracle, "wrong-handler",
				"message %lld of '%s' is run by '%s'", (long long)run->seq,
				run->handler, key);
	}
}

void sim_oracle_run(struct sim_oracle *oracle, const struct sim_role *role,
		unsigned stored, const struct postern_delivery *run,
		const struct postern_message *message) {
	check_generation(oracle, role, run);
	sim_oracle_check_share(oracle, role);
	struct sim_delivery *delivery =
			find_delivery(oracle, run->seq, oracle->stored[stored].id);
	if (!delivery) {
		return;
	}
	const struct sim_record *record = sim_oracle_find(oracle, run->seq);
	struct sim_parcel parcel;
	sim_parcel_read(oracle->sim, message, &parcel);
	if (parcel.number != record->number || parcel.variant != record->variant ||
			strcmp(run->channel, sim_channels[parcel.channel].name) != 0) {
		sim_oracle_broken(oracle, "body-changed",
				"message %lld is %s with body %u, not %u", (long long)run->seq,
				parcel.id, parcel.variant, record->variant);
	}
	if (run->fence > delivery->fence) {
		sim_oracle_broken(oracle, "fence-invented",
				"message %lld runs under fence %llu, the last was %llu",
				(long long)run->seq, (unsigned long long)run->fence,
				(unsigned long long)delivery->fence);
	}
	if (run->fence == delivery->fence) {
		delivery->run_fence = run->fence;
		delivery->run_generation = role->generation->number;
		delivery->run_at_ms = monotonic_ms(oracle);
		delivery->run_ended = false;
		if (run->attempt != delivery->failures + 1) {
			sim_oracle_broken(oracle, "failure-count",
					"message %lld of '%s' runs as attempt %u after %u failures",
					(long long)run->seq, run->handler, run->attempt,
					delivery->failures);
		}
	}
}

void sim_oracle_ran(struct sim_oracle *oracle, unsigned stored, int64_t seq,
		uint64_t fence, enum postern_outcome_kind kind) {
	struct sim_delivery *delivery =
			find_delivery(oracle, seq, oracle->stored[stored].id);
	if (delivery && delivery->run_fence == fence) {
		delivery->run_ended = true;
		delivery->run_outcome = kind;
		delivery->run_end_ms = wall_ms(oracle);
		delivery->run_took_ms = monotonic_ms(oracle) - delivery->run_at_ms;
		if (kind == POSTERN_HOLD && !delivery->faulted) {
			delivery->faulted = true;
			delivery->faulted_at_ms = monotonic_ms(oracle);
		}
		if (kind == POSTERN_DONE || kind == POSTERN_DISCARD) {
			oracle->success_at_ms[oracle->stored[stored].handler] =
					delivery->run_at_ms;
		}
	}
}

/* A batch may be refused as a whole and committed later, so its sender gets the
   receipt later; by then the message may have been cleaned up, but it was
   stored. */
void sim_oracle_receipt(struct sim_oracle *oracle, unsigned number,
		unsigned variant, int code, int64_t seq) {
	struct sim_record *record = sim_oracle_find(oracle, seq);
	if (code == POSTERN_OK && seq == 0) {
		return; /* dropped by its channel */
	}
	if (!record || record->number != number) {
		sim_oracle_broken(oracle, "false-receipt",
				"the sender of m%u got code %d and message %lld", number, code,
				(long long)seq);
		return;
	}
	bool same = record->variant == variant;
	if (code == POSTERN_OK && (record->acknowledged || !same)) {
		sim_oracle_broken(oracle, "false-receipt",
				"a copy of m%u was reported as new", number);
	}
	if (code == POSTERN_E_CONFLICT && same) {
		sim_oracle_broken(oracle, "false-conflict",
				"m%u with the same body was reported as a conflict", number);
	}
	record->acknowledged = record->acknowledged || code == POSTERN_OK;
}
