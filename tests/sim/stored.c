/* SPDX-License-Identifier: MIT */
/*
 * Handlers as the store knows them: the oracle resolves each key as the
 * contract of enrol() requires, and compares the ids that the store returns.
 *
 * A node keeps the id that it got when it enrolled. When another node makes
 * that id an alias, both ids are one handler from then on: a message has a
 * delivery under one of them, unless it had both before.
 */

#include "sim/sim.h"

#include <string.h>

static unsigned *find_name(struct sim_oracle *oracle, const char *key) {
	unsigned handler = sim_cast_find(key);
	if (handler == SIM_HANDLER_COUNT) {
		return NULL;
	}
	bool old = strcmp(key, sim_handlers[handler].key) != 0;
	return &oracle->names[handler][old];
}

static unsigned resolve_name(const struct sim_oracle *oracle, unsigned name) {
	return name ? oracle->stored[name - 1].owner : SIM_STORED_MAX;
}

unsigned sim_stored_resolve(const struct sim_oracle *oracle, const char *key) {
	unsigned handler = sim_cast_find(key);
	if (handler == SIM_HANDLER_COUNT) {
		return SIM_STORED_MAX;
	}
	bool old = strcmp(key, sim_handlers[handler].key) != 0;
	return resolve_name(oracle, oracle->names[handler][old]);
}

unsigned sim_stored_of(const struct sim_oracle *oracle, unsigned handler,
		unsigned generation) {
	struct sim_version version = sim_cast_version(handler, generation);
	return version.exists ? sim_stored_resolve(oracle, version.key)
						  : SIM_STORED_MAX;
}

unsigned sim_stored_find(const struct sim_oracle *oracle, int64_t id) {
	for (unsigned i = 0; i < oracle->stored_count; i++) {
		if (oracle->stored[i].id == id) {
			return i;
		}
	}
	return SIM_STORED_MAX;
}

bool sim_stored_paused(const struct sim_oracle *oracle, unsigned stored) {
	const struct sim_stored *owner =
			&oracle->stored[oracle->stored[stored].owner];
	return owner->paused &&
		   (owner->paused_until_ms == 0 || fake_clock_now(&oracle->sim->clock) <
												   owner->paused_until_ms);
}

/* The store made an id for a new key. */
static unsigned add_stored(struct sim_oracle *oracle, const char *key,
		int64_t id) {
	unsigned handler = sim_cast_find(key);
	if (sim_stored_find(oracle, id) < SIM_STORED_MAX ||
			oracle->stored_count == SIM_STORED_MAX) {
		sim_oracle_broken(oracle, "handler-id", "new handler '%s' is %lld", key,
				(long long)id);
		return 0;
	}
	bool old = strcmp(key, sim_handlers[handler].key) != 0;
	oracle->stored[oracle->stored_count] = (struct sim_stored){
		.id = id,
		.key = old ? sim_handlers[handler].old_key : sim_handlers[handler].key,
		.handler = handler,
		.owner = oracle->stored_count,
	};
	return oracle->stored_count++;
}

static void make_alias(struct sim_oracle *oracle, unsigned alias,
		unsigned owner) {
	if (alias == owner) {
		return;
	}
	sim_history_alias(oracle->sim, oracle->stored[alias].key,
			oracle->stored[owner].key);
	oracle->sim->counts.aliases++;
	/* The longer pause remains. */
	struct sim_stored *to = &oracle->stored[owner];
	const struct sim_stored *from = &oracle->stored[alias];
	if (from->paused &&
			(!to->paused || (to->paused_until_ms != 0 &&
									(from->paused_until_ms == 0 ||
											from->paused_until_ms >
													to->paused_until_ms)))) {
		to->paused = true;
		to->paused_until_ms = from->paused_until_ms;
	}
	for (unsigned i = 0; i < oracle->stored_count; i++) {
		if (oracle->stored[i].owner == alias) {
			oracle->stored[i].owner = owner;
		}
	}
}

static void enrol_handler(struct sim_oracle *oracle,
		const struct postern_enrol_handler *from) {
	unsigned *name = find_name(oracle, from->key);
	for (size_t i = 0; !*name && i < from->legacy_key_count; i++) {
		*name = *find_name(oracle, from->legacy_keys[i]);
	}
	if (!*name) {
		*name = add_stored(oracle, from->key, from->id) + 1;
	}
	unsigned owner = resolve_name(oracle, *name);
	for (size_t i = 0; i < from->legacy_key_count; i++) {
		unsigned *legacy = find_name(oracle, from->legacy_keys[i]);
		if (*legacy) {
			make_alias(oracle, resolve_name(oracle, *legacy), owner);
		} else {
			*legacy = owner + 1;
		}
	}
	if (oracle->stored[owner].id != from->id) {
		sim_oracle_broken(oracle, "handler-id",
				"handler '%s' was %lld and is %lld", from->key,
				(long long)oracle->stored[owner].id, (long long)from->id);
	}
}

void sim_stored_enrolled(struct sim_oracle *oracle,
		const struct postern_enrolment *enrolment) {
	for (size_t i = 0; i < enrolment->handler_count; i++) {
		enrol_handler(oracle, &enrolment->handlers[i]);
	}
}

/* The n-th existing delivery of an owner, by id. */
static unsigned find_nth(const struct sim_oracle *oracle,
		const struct sim_record *record, unsigned owner, size_t n) {
	int64_t after = 0;
	for (;;) {
		unsigned found = SIM_STORED_MAX;
		for (unsigned i = 0; i < oracle->stored_count; i++) {
			const struct sim_stored *stored = &oracle->stored[i];
			if (stored->owner == owner && stored->id > after &&
					record->deliveries[i].exists &&
					(found == SIM_STORED_MAX ||
							stored->id < oracle->stored[found].id)) {
				found = i;
			}
		}
		if (found == SIM_STORED_MAX || n-- == 0) {
			return found;
		}
		after = oracle->stored[found].id;
	}
}

unsigned sim_stored_row(struct sim_oracle *oracle,
		const struct postern_page *page, size_t index) {
	const struct postern_row *row = &page->rows[index];
	unsigned owner = sim_stored_resolve(oracle, row->handler);
	const struct sim_record *record = sim_oracle_find(oracle, row->seq);
	if (owner == SIM_STORED_MAX || !record) {
		return owner;
	}
	size_t before = 0;
	while (index-- > 0 && page->rows[index].seq == row->seq) {
		before +=
				sim_stored_resolve(oracle, page->rows[index].handler) == owner;
	}
	unsigned found = find_nth(oracle, record, owner, before);
	return found < SIM_STORED_MAX ? found : owner;
}

/* How well a delivery matches the lease that an event reports. */
static unsigned rate_match(const struct sim_delivery *delivery,
		const struct postern_event *event) {
	size_t slot = event->fence % SIM_SETTLED_KEPT;
	bool settled = delivery->settled[slot].fence == event->fence;
	if (!delivery->exists || delivery->fence < event->fence) {
		return 0;
	}
	if (event->kind == POSTERN_EVENT_FENCED) {
		bool held = delivery->state == POSTERN_STATE_LEASED &&
					delivery->fence == event->fence;
		/* A lease of the former node of this process is still held. */
		return settled ? 1 : held ? 2 : 3;
	}
	bool fits = settled &&
				sim_settled_state(delivery->settled[slot].to) == event->state;
	return fits && !delivery->settled[slot].reported ? 3 : fits ? 2 : 1;
}

unsigned sim_stored_event(const struct sim_oracle *oracle,
		const struct sim_record *record, const struct postern_event *event) {
	unsigned handler = sim_cast_find(event->handler);
	unsigned best = SIM_STORED_MAX;
	unsigned best_rate = 0;
	for (unsigned i = 0; i < oracle->stored_count; i++) {
		unsigned rate = rate_match(&record->deliveries[i], event);
		if (oracle->stored[i].handler == handler &&
				(best == SIM_STORED_MAX || rate > best_rate)) {
			best = i;
			best_rate = rate;
		}
	}
	return best;
}
