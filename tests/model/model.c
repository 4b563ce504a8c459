/* SPDX-License-Identifier: MIT */

/*
 * The model of a store: see model.h.
 */

#include "model/model.h"

#include <assert.h>

static struct model_delivery *delivery_at(struct model *model, size_t index) {
	return &model->messages[index / MODEL_HANDLER_MAX]
					.deliveries[index % MODEL_HANDLER_MAX];
}

static void make_pending(const struct model *model, struct model_delivery *d,
		int64_t delay_ms) {
	d->state = POSTERN_STATE_PENDING;
	d->since_ms = model->now;
	d->due_at_ms = model->now + delay_ms;
	d->finished_at_ms = 0;
	d->node = 0;
	d->group = 0;
	d->solo = false;
}

void model_lease(struct model *model, struct model_delivery *d) {
	d->state = POSTERN_STATE_LEASED;
	d->node = model->node;
	d->fence++;
	d->starts++;
}

static void make_ended(struct model *model, struct model_delivery *d,
		int handler, enum postern_state state) {
	d->state = state;
	d->finished_at_ms = model->now;
	d->node = 0;
	d->group = 0;
	d->solo = false;
	d->error = state == POSTERN_STATE_POISONED ? d->error : NULL;
	model->done[handler] += state == POSTERN_STATE_DONE;
	model->discarded[handler] += state == POSTERN_STATE_DISCARDED;
}

static void reopen_delivery(struct model *model, struct model_delivery *d) {
	make_pending(model, d, 0);
	d->failures = 0;
	d->crashes = 0;
	d->error = NULL;
}

static struct model_key *find_key(struct model *model,
		const struct model_accept *accept, int handler, int value) {
	for (size_t i = 0; i < model->key_count; i++) {
		struct model_key *key = &model->keys[i];
		if (key->channel == accept->channel && key->handler == handler &&
				key->value == value) {
			return key;
		}
	}
	return NULL;
}

/* Remember the key of a handler, under all its ids; returns the message it
   belongs to. */
static struct model_message *take_key(struct model *model,
		const struct model_accept *accept, int handler) {
	struct model_message *first = NULL;
	int value = accept->keys[handler];
	for (int i = 1; i < MODEL_HANDLER_MAX && first != accept->message; i++) {
		struct model_key *key = model->owner[i] == handler
										? find_key(model, accept, i, value)
										: NULL;
		if (key && (!first || key->first < first ||
						   key->first == accept->message)) {
			first = key->first;
		}
	}
	first = first ? first : accept->message;
	for (int i = 1; i < MODEL_HANDLER_MAX; i++) {
		if (model->owner[i] == handler && !find_key(model, accept, i, value)) {
			assert(model->key_count < MODEL_MESSAGE_MAX * MODEL_HANDLER_MAX);
			model->keys[model->key_count++] = (struct model_key){
				.channel = accept->channel,
				.handler = i,
				.value = value,
				.first = first,
			};
		}
	}
	return first;
}

/* The handler's delivery of a message, under any of its ids. */
static struct model_delivery *find_delivery(struct model *model,
		struct model_message *message, int handler) {
	struct model_delivery *d = &message->deliveries[handler];
	for (int i = 1; i < MODEL_HANDLER_MAX; i++) {
		if (d->state == POSTERN_STATE_ANY && model->owner[i] == handler) {
			d = &message->deliveries[i];
		}
	}
	return d;
}

/* A delivery that has ended from the beginning. */
static void end_route(struct model *model, struct model_accept *accept,
		int handler, enum postern_state state) {
	struct model_delivery *d = find_delivery(model, accept->message, handler);
	if (d->state == POSTERN_STATE_ANY) {
		d = &accept->message->deliveries[handler];
		d->attempts++;
		d->error = state == POSTERN_STATE_POISONED ? MODEL_NO_KEY : NULL;
		make_ended(model, d, handler, state);
	}
}

static void open_route(struct model *model, struct model_accept *accept,
		int handler) {
	struct model_message *message = accept->message;
	if (accept->keys[handler]) {
		struct model_message *first = take_key(model, accept, handler);
		if (first != message) {
			accept->suppressed_by[handler] = first;
			end_route(model, accept, handler, POSTERN_STATE_DISCARDED);
			return;
		}
	}
	if (accept->refused[handler]) {
		end_route(model, accept, handler, POSTERN_STATE_POISONED);
		return;
	}
	struct model_delivery *d = find_delivery(model, message, handler);
	if (d->state == POSTERN_STATE_ANY) {
		d = &message->deliveries[handler];
		make_pending(model, d, 0);
		if (accept->lease[handler] && accept->code == POSTERN_OK &&
				!model_is_paused(model, handler)) {
			model_lease(model, d);
			accept->leased[handler] = true;
		}
	} else if (d->state == POSTERN_STATE_POISONED &&
			   accept->retry_poisoned[handler]) {
		reopen_delivery(model, d);
	} else {
		return;
	}
	accept->opened[handler] = true;
	accept->fence[handler] = d->fence;
}

bool model_is_paused(const struct model *model, int handler) {
	int owner = model->owner[handler];
	return model->paused[owner] &&
		   (model->paused_until[owner] == 0 ||
				   model->now < model->paused_until[owner]);
}

void model_pause(struct model *model, int handler, bool pause, int64_t for_ms) {
	int owner = model->owner[handler];
	model->paused[owner] = pause;
	model->paused_until[owner] = for_ms > 0 ? model->now + for_ms : 0;
}

void model_join_pauses(struct model *model, int alias, int owner) {
	int64_t longest = INT64_MAX;
	int64_t ends[] = { 0, 0 };
	const int both[] = { alias, owner };
	for (int i = 0; i < 2; i++) {
		int64_t until = model->paused_until[both[i]];
		if (model->paused[both[i]]) {
			ends[i] = until == 0 ? longest : until;
		}
	}
	if (ends[0] > ends[1]) {
		model->paused[owner] = true;
		model->paused_until[owner] = model->paused_until[alias];
	}
}

void model_accept(struct model *model, struct model_accept *accept) {
	if (model->closed[accept->channel]) {
		accept->code = POSTERN_E_UNAVAILABLE;
		return;
	}
	for (size_t i = 0; i < model->count && !accept->message; i++) {
		struct model_message *message = &model->messages[i];
		if (message->channel == accept->channel && message->id == accept->id &&
				message->by_id == accept->by_id) {
			accept->message = message;
		}
	}
	if (!accept->message) {
		accept->code = POSTERN_OK;
		if (accept->fate == POSTERN_FATE_DROP) {
			return;
		}
		assert(model->count < MODEL_MESSAGE_MAX);
		accept->message = &model->messages[model->count++];
		*accept->message = (struct model_message){
			.channel = accept->channel,
			.id = accept->id,
			.by_id = accept->by_id,
			.body = accept->body,
		};
		if (accept->fate == POSTERN_FATE_PARK) {
			accept->message->deliveries[0].state = POSTERN_STATE_PARKED;
		}
	} else if (accept->message->body != accept->body) {
		accept->code = POSTERN_E_CONFLICT;
		accept->message->conflicts++;
		return;
	} else {
		accept->code = POSTERN_E_DUPLICATE;
		accept->message->duplicates++;
	}
	for (int handler = 1; handler < MODEL_HANDLER_MAX; handler++) {
		if (accept->wanted[handler]) {
			open_route(model, accept, handler);
			struct model_delivery *parked = &accept->message->deliveries[0];
			if (parked->state == POSTERN_STATE_PARKED) {
				*parked = (struct model_delivery){ 0 };
			}
		}
	}
}

int model_settle(struct model *model, struct model_message *message,
		int handler, uint64_t fence, uint64_t node, enum postern_settle_to to,
		int64_t delay_ms, uint32_t failures, const char *error) {
	struct model_delivery *d = &message->deliveries[handler];
	if (d->state != POSTERN_STATE_LEASED || d->fence != fence ||
			d->node != node) {
		return POSTERN_E_STALE;
	}
	d->crashes = 0;
	d->failures = to == POSTERN_SETTLE_RETURNED ? d->failures : failures;
	d->starts -= to == POSTERN_SETTLE_RETURNED;
	d->attempts += to != POSTERN_SETTLE_RETURNED && to != POSTERN_SETTLE_DONE;
	if (error && to != POSTERN_SETTLE_RETURNED) {
		d->error = error;
	}
	switch (to) {
	case POSTERN_SETTLE_PENDING: make_pending(model, d, delay_ms); break;
	case POSTERN_SETTLE_RETURNED: make_pending(model, d, 0); break;
	case POSTERN_SETTLE_DONE:
		make_ended(model, d, handler, POSTERN_STATE_DONE);
		break;
	case POSTERN_SETTLE_POISONED:
		make_ended(model, d, handler, POSTERN_STATE_POISONED);
		break;
	case POSTERN_SETTLE_DISCARDED:
		make_ended(model, d, handler, POSTERN_STATE_DISCARDED);
		break;
	}
	return POSTERN_OK;
}

struct model_message *model_find(struct model *model, int64_t seq) {
	for (size_t i = 0; i < model->count; i++) {
		if (model->messages[i].seq == seq) {
			return &model->messages[i];
		}
	}
	return NULL;
}

bool model_is_due(const struct model *model, const struct model_delivery *d,
		int handler) {
	return d->state == POSTERN_STATE_PENDING && d->due_at_ms <= model->now &&
		   d->group == 0 && !model_is_paused(model, handler);
}

bool model_is_suspect(const struct model *model, const struct model_delivery *d,
		int handler) {
	return d->state == POSTERN_STATE_PENDING && d->group != 0 &&
		   !model_is_paused(model, handler);
}

size_t model_group_count(const struct model *model, uint64_t group) {
	size_t count = 0;
	for (size_t i = 0; i < model->count; i++) {
		for (int j = 1; j < MODEL_HANDLER_MAX; j++) {
			count += model->messages[i].deliveries[j].group == group;
		}
	}
	return count;
}

void model_set_back(struct model *model, int64_t ms) {
	model->now -= ms;
	for (size_t i = 0; i < model->count * MODEL_HANDLER_MAX; i++) {
		struct model_delivery *d = delivery_at(model, i);
		if (d->state == POSTERN_STATE_PENDING && d->since_ms > model->now) {
			d->since_ms = model->now;
			d->due_at_ms = model->now;
		}
	}
}

static bool is_lost(const struct model *model, const struct model_delivery *d) {
	return d->state == POSTERN_STATE_LEASED && d->node != model->node;
}

static uint64_t new_group(struct model *model) {
	model->last_group++;
	assert(model->last_group < MODEL_MESSAGE_MAX * 8);
	model->group_age[model->last_group] = model->recoveries;
	return model->last_group;
}

static bool is_lost_member(const struct model *model,
		const struct model_delivery *d, int handler) {
	return is_lost(model, d) && !d->solo &&
		   model->in_process[model->owner[handler]];
}

/* Take the group of the first lost member; divide its lost members, in the
   order of their messages, into two new groups. Returns their number. */
static uint64_t halve_lost_group(struct model *model) {
	struct model_delivery *members[MODEL_MESSAGE_MAX * MODEL_HANDLER_MAX];
	size_t count = 0;
	for (size_t i = 0; i < model->count * MODEL_HANDLER_MAX; i++) {
		struct model_delivery *d = delivery_at(model, i);
		if (is_lost_member(model, d, (int)(i % MODEL_HANDLER_MAX)) &&
				(count == 0 || d->group == members[0]->group)) {
			members[count++] = d;
		}
	}
	uint64_t first = count > 0 ? new_group(model) : 0;
	uint64_t second = count > 1 ? new_group(model) : 0;
	for (size_t i = 0; i < count; i++) {
		make_pending(model, members[i], 0);
		members[i]->group = i < (count + 1) / 2 ? first : second;
	}
	return count;
}

struct postern_recovered model_recover(struct model *model) {
	struct postern_recovered out = { 0 };
	model->recoveries++;
	for (uint64_t count; (count = halve_lost_group(model)) > 0;) {
		out.suspects += count;
	}
	for (size_t i = 0; i < model->count * MODEL_HANDLER_MAX; i++) {
		int handler = (int)(i % MODEL_HANDLER_MAX);
		struct model_delivery *d = delivery_at(model, i);
		if (!is_lost(model, d)) {
			continue;
		}
		if (!d->solo) {
			make_pending(model, d, 0);
			out.released++;
			continue;
		}
		d->attempts++;
		d->error = "the process ended while this ran alone";
		if (++d->crashes == MODEL_MAX_CRASHES) {
			make_ended(model, d, handler, POSTERN_STATE_POISONED);
			out.poisoned++;
		} else {
			make_pending(model, d, 0);
			d->group = new_group(model);
			out.suspects++;
		}
	}
	return out;
}

uint64_t model_orphans(struct model *model) {
	uint64_t count = 0;
	for (size_t i = 0; i < model->count * MODEL_HANDLER_MAX; i++) {
		int handler = (int)(i % MODEL_HANDLER_MAX);
		struct model_delivery *d = delivery_at(model, i);
		if (d->state == POSTERN_STATE_PENDING &&
				!model->registered[model->owner[handler]]) {
			d->attempts++;
			d->error = "no handler is registered under its key";
			make_ended(model, d, handler, POSTERN_STATE_POISONED);
			count++;
		}
	}
	return count;
}

uint64_t model_unpark(struct model *model, int channel, int handler, int key,
		bool refused) {
	uint64_t count = 0;
	for (size_t i = 0; i < model->count; i++) {
		struct model_message *message = &model->messages[i];
		if (message->channel == channel &&
				message->deliveries[0].state == POSTERN_STATE_PARKED) {
			struct model_accept accept = {
				.channel = channel,
				.message = message,
			};
			accept.keys[handler] = key;
			accept.refused[handler] = refused;
			message->deliveries[0] = (struct model_delivery){ 0 };
			open_route(model, &accept, handler);
			count++;
		}
	}
	return count;
}

int model_edit(struct model *model, enum postern_change_kind kind,
		struct model_delivery *d, int handler) {
	bool retry = kind == POSTERN_CHANGE_RETRY;
	switch (d->state) {
	case POSTERN_STATE_ANY: return POSTERN_E_NOTFOUND;
	case POSTERN_STATE_LEASED: return POSTERN_E_BUSY;
	case POSTERN_STATE_DONE: return POSTERN_E_INVALID;
	default: break;
	}
	if (retry && handler == 0) {
		return POSTERN_E_INVALID;
	}
	if (retry && d->state == POSTERN_STATE_PENDING) {
		d->since_ms = model->now;
		d->due_at_ms = model->now;
	} else if (retry) {
		reopen_delivery(model, d);
	} else if (d->state != POSTERN_STATE_DISCARDED) {
		make_ended(model, d, handler, POSTERN_STATE_DISCARDED);
	}
	return POSTERN_OK;
}
