/* SPDX-License-Identifier: MIT */

/*
 * Operations on a store and on the model, compared step by step, with process
 * deaths in between: see match.h.
 */

#include "model/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/stand.h"
#include "core/error_group.h"
#include "model/model.h"

#define COMPARE_EVERY 100
#define LEASED_MAX 64
/* Higher than any node id of the stand, which counts up. */
#define JOINING_NODE 1000000
/* More than a store may ignore between two operations. */
#define SET_BACK_MS_MIN 10000

/* The store, the model, and the ids that connect them. */
struct match {
	struct stand stand;
	struct model *model;
	const struct match_choices *choices;
	int64_t ids[MODEL_HANDLER_MAX]; /* handler ids of the store */
	int64_t channels[2];
	bool has_alias; /* "d" is an alias of "a" */
};

static const char *const keys[MODEL_HANDLER_MAX] = { "", "a", "b", "c", "d" };
static const char *const errors[] = { "no luck 1", "no luck 2", "out of ink" };
static const char *const bodies[] = { "body", "another body" };

static size_t choose_below(struct match *match, size_t bound) {
	return match->choices->below(match->choices->context, bound);
}

static bool one_chance_in(struct match *match, size_t bound) {
	return choose_below(match, bound) == 0;
}

/* The id by which a node knows a handler: a node that enrolled before "d"
   became an alias of "a" may still use the id of "d". */
static int64_t known_id(struct match *match, int handler) {
	bool by_alias = match->has_alias && handler == 1 && one_chance_in(match, 2);
	return match->ids[by_alias ? 4 : handler];
}

/* A new process enrols some of the handlers, usually all. */
static void enrol_some(struct match *match) {
	struct model *model = match->model;
	struct stand_handler handlers[MODEL_HANDLER_MAX] = { 0 };
	size_t count = 0;
	/* The first process enrols all, so that the ids have the order of the
	   keys. */
	bool all = !match->ids[1] || !one_chance_in(match, 4);
	for (int i = 1; i < MODEL_HANDLER_MAX; i++) {
		model->registered[i] =
				model->owner[i] == i && (all || one_chance_in(match, 2));
		if (model->registered[i]) {
			handlers[count].key = keys[i];
			handlers[count].in_process = model->in_process[i];
			handlers[count].max_crashes = MODEL_MAX_CRASHES;
			handlers[count].legacy_keys =
					match->has_alias && i == 1 ? "d" : NULL;
			count++;
		}
	}
	CHECK_OK(stand_enrol(&match->stand, handlers, count), &match->stand.error);
	for (size_t i = 0; i < count; i++) {
		int handler = handlers[i].key[0] - 'a' + 1;
		CHECK_INT(handlers[i].paused, model_is_paused(model, handler));
		if (match->ids[handler]) {
			CHECK_INT(handlers[i].id, match->ids[handler]);
		}
		match->ids[handler] = handlers[i].id;
	}
}

/* The stand's node makes "d" an alias of "a". A node that had "d" has "a"
   now. */
static void make_d_alias(struct match *match) {
	struct model *model = match->model;
	match->has_alias = true;
	model->owner[4] = 1;
	model_join_pauses(model, 4, 1);
	model->registered[1] = model->registered[1] || model->registered[4];
	model->registered[4] = false;
	struct stand_handler handler = {
		.key = "a",
		.legacy_keys = "d",
		.in_process = model->in_process[1],
		.max_crashes = MODEL_MAX_CRASHES,
	};
	CHECK_OK(stand_enrol(&match->stand, &handler, 1), &match->stand.error);
	CHECK_INT(handler.id, match->ids[1]);
}

/* Another node enrols, makes the alias and ends; the stand's node keeps using
   the ids that it got when it enrolled. */
static void step_join(struct match *match) {
	struct stand *stand = &match->stand;
	uint64_t node = stand->node;
	if (match->has_alias) {
		return;
	}
	stand->node = node + JOINING_NODE;
	make_d_alias(match);
	bool alive;
	CHECK_OK(stand->ops->renew(stand->store, stand->node, 0, &alive,
					 &stand->error),
			&stand->error);
	stand->node = node;
}

static void step_crash(struct match *match) {
	struct model *model = match->model;
	stand_crash(&match->stand);
	model->node = match->stand.node;
	if (!match->has_alias && one_chance_in(match, 4)) {
		make_d_alias(match); /* with the node id of the new process */
	}
	enrol_some(match);
	struct postern_recovered expected = model_recover(model);
	struct postern_recovered actual = stand_recover(&match->stand);
	CHECK_INT(actual.released, expected.released);
	CHECK_INT(actual.suspects, expected.suspects);
	CHECK_INT(actual.poisoned, expected.poisoned);
}

struct leased {
	struct model_message *message;
	int handler;
};

static size_t find_leased(struct model *model, struct leased *out) {
	size_t count = 0;
	for (size_t i = 0; i < model->count; i++) {
		for (int j = 1; j < MODEL_HANDLER_MAX && count < LEASED_MAX; j++) {
			struct model_message *message = &model->messages[i];
			if (message->deliveries[j].state == POSTERN_STATE_LEASED) {
				out[count++] = (struct leased){ message, j };
			}
		}
	}
	return count;
}

static size_t make_settlements(struct match *match,
		struct postern_settlement *settlements, int *codes) {
	struct leased leased[LEASED_MAX];
	size_t leased_count = find_leased(match->model, leased);
	size_t count = leased_count > 0 ? choose_below(match, 4) : 0;
	for (size_t i = 0; i < count; i++) {
		struct leased *one = &leased[choose_below(match, leased_count)];
		struct model_delivery *d = &one->message->deliveries[one->handler];
		settlements[i] = (struct postern_settlement){
			.seq = one->message->seq,
			.handler = match->ids[one->handler],
			.fence = one_chance_in(match, 10) ? choose_below(match, 4)
											  : d->fence,
			.to = (enum postern_settle_to)choose_below(match, 5),
			.delay_ms = (int64_t)choose_below(match, 3) * 500,
			.failures = d->failures + (uint32_t)choose_below(match, 2),
			.outcome = "whatever",
			.error = one_chance_in(match, 2) ? errors[one->message->seq % 3]
											 : NULL,
		};
		settlements[i].group = postern__error_group(settlements[i].error);
		codes[i] = model_settle(match->model, one->message, one->handler,
				settlements[i].fence, match->stand.node, settlements[i].to,
				settlements[i].delay_ms, settlements[i].failures,
				settlements[i].error);
	}
	return count;
}

/* A message to send, for the model and for the store, with its texts. */
struct sending {
	struct model_accept accept;
	struct parcel parcel;
	char id[32];
	/* Of the message, and of the handlers. */
	struct postern_dedupe_key keys[MODEL_HANDLER_MAX];
	char values[MODEL_HANDLER_MAX][32];
};

static struct postern_dedupe_key *make_key(struct sending *sending, int slot,
		int value) {
	struct postern_dedupe_key *key = &sending->keys[slot];
	char *text = sending->values[slot];
	(void)snprintf(text, sizeof sending->values[slot], "id-%d", value);
	*key = (struct postern_dedupe_key){
		.value = text,
		.value_len = strlen(text),
	};
	return key;
}

/* Few values, so that many routes are suppressed. */
static int choose_key(struct match *match) {
	return one_chance_in(match, 3)
				   ? 1 + (int)choose_below(match, match->model->count / 4 + 4)
				   : 0;
}

static void make_accept(struct match *match, struct sending *sending) {
	struct model *model = match->model;
	struct model_accept *accept = &sending->accept;
	struct parcel *parcel = &sending->parcel;
	*accept = (struct model_accept){
		.channel = (int)choose_below(match, 2),
		.id = (int)choose_below(match, model->count + 8),
		.by_id = !one_chance_in(match, 8),
		.body = one_chance_in(match, 10),
	};
	/* Under another rule than `id`, copies have different ids. */
	(void)snprintf(sending->id, sizeof sending->id, "id-%d",
			accept->by_id ? accept->id : (int)choose_below(match, 4));
	parcel_init(parcel, &match->stand, sending->id, bodies[accept->body]);
	parcel->key = accept->by_id ? NULL : make_key(sending, 0, accept->id);
	parcel->accept.channel = match->channels[accept->channel];
	for (int i = 1; i < MODEL_HANDLER_MAX; i++) {
		accept->wanted[i] = model->owner[i] == i && one_chance_in(match, 3);
		if (accept->wanted[i]) {
			struct postern_route *route =
					parcel_add_route(parcel, known_id(match, i));
			route->lease = accept->lease[i] = one_chance_in(match, 2);
			route->retry_poisoned = accept->retry_poisoned[i] =
					one_chance_in(match, 2);
			accept->keys[i] = choose_key(match);
			route->key = accept->keys[i] ? make_key(sending, i, accept->keys[i])
										 : NULL;
			accept->refused[i] = !route->key && one_chance_in(match, 10);
			route->refusal = accept->refused[i] ? MODEL_NO_KEY : NULL;
		}
	}
	if (parcel->accept.route_count == 0 && one_chance_in(match, 4)) {
		parcel->accept.fate = POSTERN_FATE_DROP;
	}
	accept->fate = parcel->accept.fate;
	model_accept(model, accept);
}

static void check_accept(struct match *match, const struct model_accept *accept,
		const struct parcel *parcel) {
	CHECK_INT(parcel->accept.code, accept->code);
	if (!accept->message) {
		CHECK_INT(parcel->accept.seq, 0);
		return;
	}
	if (accept->code == POSTERN_OK) {
		size_t index = (size_t)(accept->message - match->model->messages);
		CHECK(index == 0 ||
				parcel->accept.seq > match->model->messages[index - 1].seq);
		accept->message->seq = parcel->accept.seq;
	}
	CHECK_INT(parcel->accept.seq, accept->message->seq);
	CHECK_INT(parcel->accept.received_at_ms, match->model->now);
	size_t count = 0;
	for (int i = 1; i < MODEL_HANDLER_MAX; i++) {
		if (accept->wanted[i]) {
			const struct postern_route *route = &parcel->routes[count++];
			const struct model_message *first = accept->suppressed_by[i];
			CHECK_INT(route->opened, accept->opened[i]);
			CHECK_INT(route->leased, accept->leased[i]);
			CHECK_INT(route->fence, accept->fence[i]);
			CHECK_INT(route->suppressed_by, first ? first->seq : 0);
		}
	}
}

static void step_apply(struct match *match) {
	struct postern_settlement settlements[4];
	int codes[4];
	struct sending sendings[4];
	struct postern_accept items[4];
	size_t settlement_count = make_settlements(match, settlements, codes);
	size_t room = MODEL_MESSAGE_MAX - match->model->count;
	size_t accept_count = room < 4 ? 0 : choose_below(match, 4);
	for (size_t i = 0; i < accept_count; i++) {
		make_accept(match, &sendings[i]);
		parcel_pack(&sendings[i].parcel);
		items[i] = sendings[i].parcel.accept;
	}
	struct postern_batch batch = {
		.node = match->stand.node,
		.settlements = settlements,
		.settlement_count = settlement_count,
		.accepts = items,
		.accept_count = accept_count,
	};
	CHECK_OK(match->stand.ops->apply(match->stand.store, &batch,
					 &match->stand.error),
			&match->stand.error);
	for (size_t i = 0; i < settlement_count; i++) {
		CHECK_INT(settlements[i].code, codes[i]);
	}
	for (size_t i = 0; i < accept_count; i++) {
		sendings[i].parcel.accept = items[i];
		check_accept(match, &sendings[i].accept, &sendings[i].parcel);
	}
}

/* The deliveries that a claim can and must return, by the model. */
struct expected {
	/* By owner, which also claims deliveries that are stored under its
	   aliases. */
	uint32_t max[MODEL_HANDLER_MAX]; /* 0: not wanted */
	size_t due[MODEL_HANDLER_MAX];
	size_t claimed[MODEL_HANDLER_MAX];
	size_t want[MODEL_HANDLER_MAX];
	/* By handler, aliases separately. */
	int64_t last_due_at[MODEL_HANDLER_MAX];
	bool has_suspects;
	uint64_t oldest;
	uint64_t group; /* that was claimed */
	size_t group_claimed;
};

static bool is_in_process(const struct model *model, int handler) {
	return model->in_process[model->owner[handler]];
}

static void expect_claim(struct model *model, struct expected *expected) {
	for (size_t i = 0; i < model->count; i++) {
		for (int j = 1; j < MODEL_HANDLER_MAX; j++) {
			const struct model_delivery *d = &model->messages[i].deliveries[j];
			int owner = model->owner[j];
			if (expected->max[owner] == 0) {
				continue;
			}
			expected->due[owner] += model_is_due(model, d, j);
			if (model_is_suspect(model, d, j)) {
				uint64_t age = model->group_age[d->group];
				if (!expected->has_suspects || age < expected->oldest) {
					expected->oldest = age;
				}
				expected->has_suspects = true;
			}
		}
	}
	for (int j = 1; j < MODEL_HANDLER_MAX; j++) {
		if (expected->has_suspects && is_in_process(model, j)) {
			expected->due[j] = 0;
		}
	}
}

static void model_follow(struct match *match, struct expected *expected,
		const struct postern_claimed *item) {
	struct model *model = match->model;
	struct model_message *message = model_find(model, item->seq);
	int handler = 1;
	while (handler < MODEL_HANDLER_MAX &&
			match->ids[handler] != item->handler) {
		handler++;
	}
	if (!CHECK(message) || !CHECK(handler < MODEL_HANDLER_MAX) ||
			!CHECK(expected->max[model->owner[handler]] > 0)) {
		return;
	}
	CHECK_INT(expected->want[model->owner[handler]], item->want);
	struct model_delivery *d = &message->deliveries[handler];
	CHECK_INT(item->channel, match->channels[message->channel]);
	CHECK_STR(item->message->body, bodies[message->body]);
	CHECK_INT(item->failures, d->failures);
	if (item->suspicion == POSTERN_NO_SUSPECT) {
		CHECK(model_is_due(model, d, handler));
		CHECK(d->due_at_ms >= expected->last_due_at[handler]);
		expected->last_due_at[handler] = d->due_at_ms;
		expected->claimed[model->owner[handler]]++;
	} else {
		CHECK(model_is_suspect(model, d, handler));
		CHECK_INT(model->group_age[d->group], expected->oldest);
		CHECK(expected->group == 0 || expected->group == d->group);
		expected->group = d->group;
		expected->group_claimed++;
		d->solo = model_group_count(model, d->group) == 1;
		CHECK_INT(item->suspicion,
				d->solo ? POSTERN_SUSPECT_SOLO : POSTERN_SUSPECT_GROUP);
	}
	model_lease(model, d);
	CHECK_INT(item->fence, d->fence);
}

/* Check that the deliveries which were not claimed did not have to be. */
static void check_not_claimed(struct match *match,
		const struct expected *expected, const struct postern_claims *claims) {
	struct model *model = match->model;
	uint64_t suspects = 0;
	int64_t next = -1;
	for (size_t i = 0; i < model->count; i++) {
		for (int j = 1; j < MODEL_HANDLER_MAX; j++) {
			const struct model_delivery *d = &model->messages[i].deliveries[j];
			int owner = model->owner[j];
			if (expected->max[owner] == 0 ||
					d->state != POSTERN_STATE_PENDING ||
					model_is_paused(model, j)) {
				continue;
			}
			suspects += d->group != 0;
			CHECK(d->group == 0 || d->group != expected->group);
			CHECK(d->group != 0 || d->due_at_ms >= expected->last_due_at[j]);
			int64_t wait =
					d->due_at_ms > model->now ? d->due_at_ms - model->now : 0;
			next = next < 0 || wait < next ? wait : next;
		}
	}
	CHECK_INT(claims->suspects_waiting, suspects);
	CHECK_INT(claims->next_due_ms, next);
}

static void step_claim(struct match *match) {
	struct model *model = match->model;
	struct expected expected = { 0 };
	struct postern_want wants[MODEL_HANDLER_MAX];
	size_t want_count = 0;
	for (int i = 1; i < MODEL_HANDLER_MAX; i++) {
		if (model->registered[i] && !one_chance_in(match, 4)) {
			expected.max[i] = 1 + (uint32_t)choose_below(match, 6);
			expected.want[i] = want_count;
			wants[want_count++] = (struct postern_want){
				.handler = known_id(match, i),
				.max = expected.max[i],
				.in_process = is_in_process(model, i),
			};
		}
	}
	size_t max = 1 + choose_below(match, 12);
	expect_claim(model, &expected);
	struct postern_claims claims =
			stand_claim_wants(&match->stand, wants, want_count, max);
	for (size_t i = 0; i < claims.count; i++) {
		model_follow(match, &expected, &claims.items[i]);
	}
	CHECK_INT(expected.group_claimed > 0, expected.has_suspects);
	size_t possible = 0;
	for (int i = 1; i < MODEL_HANDLER_MAX; i++) {
		size_t most = expected.due[i] < expected.max[i] ? expected.due[i]
														: expected.max[i];
		CHECK(expected.claimed[i] <= most);
		possible += most;
	}
	size_t left =
			max > expected.group_claimed ? max - expected.group_claimed : 0;
	CHECK_INT(claims.count - expected.group_claimed,
			possible < left ? possible : left);
	check_not_claimed(match, &expected, &claims);
}

/* A store may detect the step only at the next claim. */
static void step_set_back(struct match *match) {
	int64_t ms = SET_BACK_MS_MIN + (int64_t)choose_below(match, 60000);
	fake_clock_jump(&match->stand.clock, -ms);
	model_set_back(match->model, ms);
	step_claim(match);
}

static void step_edit(struct match *match) {
	struct model *model = match->model;
	enum postern_change_kind kind = one_chance_in(match, 2)
											? POSTERN_CHANGE_RETRY
											: POSTERN_CHANGE_DISCARD;
	if (model->count == 0) {
		return;
	}
	struct model_message *message =
			&model->messages[choose_below(match, model->count)];
	int handler = (int)choose_below(match, MODEL_HANDLER_MAX);
	int owner = model->owner[handler];
	/* If a key has two deliveries, the store chooses. */
	if (owner == 1 && match->has_alias &&
			message->deliveries[1].state != POSTERN_STATE_ANY &&
			message->deliveries[4].state != POSTERN_STATE_ANY) {
		return;
	}
	if (owner == 1 && match->has_alias) {
		handler = message->deliveries[4].state != POSTERN_STATE_ANY ? 4 : 1;
	}
	int code = model_edit(model, kind, &message->deliveries[handler], handler);
	CHECK_INT(stand_edit(&match->stand, kind, message->seq, keys[owner], NULL),
			code);
}

static void step_edit_all(struct match *match) {
	static const enum postern_state states[] = {
		POSTERN_STATE_PENDING,
		POSTERN_STATE_POISONED,
		POSTERN_STATE_DISCARDED,
		POSTERN_STATE_PARKED,
	};
	struct model *model = match->model;
	enum postern_state state = states[choose_below(match, 4)];
	enum postern_change_kind kind = one_chance_in(match, 4)
											? POSTERN_CHANGE_DISCARD
											: POSTERN_CHANGE_RETRY;
	uint64_t expected = 0;
	uint64_t count = 0;
	for (size_t i = 0; i < model->count; i++) {
		for (int j = 0; j < MODEL_HANDLER_MAX; j++) {
			struct model_delivery *d = &model->messages[i].deliveries[j];
			if (d->state == state &&
					!(kind == POSTERN_CHANGE_DISCARD &&
							state == POSTERN_STATE_DISCARDED)) {
				expected += model_edit(model, kind, d, j) == POSTERN_OK;
			}
		}
	}
	struct postern_filter filter = {
		.state = state,
		.limit = POSTERN_LIST_LIMIT_MAX,
	};
	CHECK_OK(stand_edit_all(&match->stand, kind, &filter, false, &count),
			&match->stand.error);
	CHECK_INT(count, expected);
}

static void step_halt(struct match *match) {
	match_halt(&match->stand, match->model, match->choices, match->ids);
}

static void step_orphans(struct match *match) {
	struct postern_orphan *orphans = NULL;
	size_t count = 0;
	uint64_t found = 0;
	CHECK_OK(match->stand.ops->orphans(match->stand.store, match->stand.node,
					 NULL, true, 100000, match->stand.memory, &orphans, &count,
					 &match->stand.error),
			&match->stand.error);
	for (size_t i = 0; i < count; i++) {
		found += orphans[i].count;
	}
	CHECK_INT(found, model_orphans(match->model));
}

struct routing {
	int64_t channel;
	int64_t handler;
	const struct postern_dedupe_key *key; /* NULL: none */
	const char *refusal;
};

static size_t route_all_parked(void *context, int64_t channel, const char *type,
		const struct postern_message *message, struct postern_route *routes,
		size_t max) {
	const struct routing *routing = context;
	if (channel != routing->channel || max == 0 ||
			!CHECK_STR(type, "order.paid")) {
		return 0;
	}
	routes[0] = (struct postern_route){
		.handler = routing->handler,
		.key = message ? routing->key : NULL,
		.refusal = message ? routing->refusal : NULL,
		.by_message = routing->key || routing->refusal,
	};
	return 1;
}

static void step_unpark(struct match *match) {
	int channel = (int)choose_below(match, 2);
	int handler = 1 + (int)choose_below(match, 2);
	struct sending sending;
	int value = choose_key(match);
	bool refused = value == 0 && one_chance_in(match, 4);
	struct routing routing = {
		.channel = match->channels[channel],
		.handler = known_id(match, handler),
		.key = value ? make_key(&sending, handler, value) : NULL,
		.refusal = refused ? MODEL_NO_KEY : NULL,
	};
	uint64_t expected =
			model_unpark(match->model, channel, handler, value, refused);
	uint64_t total = 0;
	int64_t cursor = 0;
	do {
		uint64_t count = 0;
		if (!CHECK_OK(match->stand.ops->unpark(match->stand.store,
							  route_all_parked, &routing, 5, &cursor, &count,
							  &match->stand.error),
					&match->stand.error)) {
			return;
		}
		total += count;
	} while (cursor != 0);
	CHECK_INT(total, expected);
}

static void compare_row(struct match *match, const struct postern_row *row,
		const struct model_message *message, int handler) {
	const struct model_delivery *d = &message->deliveries[handler];
	bool pending = d->state == POSTERN_STATE_PENDING;
	CHECK_INT(row->seq, message->seq);
	CHECK_STR(row->handler, keys[match->model->owner[handler]]);
	CHECK_INT(row->state, d->state);
	CHECK_INT(row->fence, d->fence);
	CHECK_INT(row->failures, d->failures);
	CHECK_INT(row->starts, d->starts);
	CHECK_INT(row->crashes, d->crashes);
	CHECK(row->group == postern__error_group(d->error));
	CHECK_INT(row->next_at_ms, pending ? d->due_at_ms : 0);
	CHECK_INT(row->finished_at_ms, d->finished_at_ms);
}

static void compare_rows(struct match *match) {
	struct model *model = match->model;
	struct postern_filter filter = { .size = sizeof filter, .limit = 37 };
	struct postern_query query = { .filter = &filter };
	struct postern_page page = { 0 };
	size_t index = 0;
	for (size_t i = model->count; i > 0; i--) {
		for (int j = 0; j < MODEL_HANDLER_MAX; j++) {
			const struct model_message *message = &model->messages[i - 1];
			if (message->deliveries[j].state == POSTERN_STATE_ANY) {
				continue;
			}
			if (index == page.count) {
				query.after_seq = page.last_seq;
				query.after_handler = page.last_handler;
				CHECK_OK(match->stand.ops->list(match->stand.store, &query,
								 match->stand.memory, &page,
								 &match->stand.error),
						&match->stand.error);
				index = 0;
			}
			if (!CHECK(index < page.count)) {
				return;
			}
			compare_row(match, &page.rows[index++], message, j);
		}
	}
	CHECK_INT(index, page.count);
	CHECK(!page.more);
}

static void compare_message(struct match *match) {
	struct model *model = match->model;
	if (model->count == 0) {
		return;
	}
	const struct model_message *message =
			&model->messages[choose_below(match, model->count)];
	struct postern_detail detail = stand_get(&match->stand, message->seq);
	CHECK_INT(detail.duplicate_count, message->duplicates);
	CHECK_INT(detail.conflict_count, message->conflicts);
	size_t count = 0;
	for (int i = 0; i < MODEL_HANDLER_MAX; i++) {
		const struct model_delivery *d = &message->deliveries[i];
		if (d->state == POSTERN_STATE_ANY) {
			continue;
		}
		if (CHECK(count < detail.delivery_count)) {
			CHECK_INT(detail.deliveries[count].attempt_count,
					d->attempts < POSTERN_ATTEMPTS_KEPT
							? d->attempts
							: POSTERN_ATTEMPTS_KEPT);
		}
		count++;
	}
	CHECK_INT(detail.delivery_count, count);
}

static const struct {
	const char *name;
	size_t weight;
	void (*run)(struct match *match);
} steps[] = {
	{ "apply", 40, step_apply },
	{ "claim", 25, step_claim },
	{ "edit", 8, step_edit },
	{ "crash", 4, step_crash },
	{ "halt", 4, step_halt },
	{ "unpark", 2, step_unpark },
	{ "orphans", 1, step_orphans },
	{ "edit all", 1, step_edit_all },
	{ "set back", 1, step_set_back },
	{ "join", 1, step_join },
};
#define STEP_KIND_COUNT (sizeof steps / sizeof steps[0])

static size_t choose_step(struct match *match) {
	size_t total = 0;
	for (size_t i = 0; i < STEP_KIND_COUNT; i++) {
		total += steps[i].weight;
	}
	size_t number = choose_below(match, total);
	size_t kind = 0;
	while (number >= steps[kind].weight) {
		number -= steps[kind++].weight;
	}
	return kind;
}

static bool has_failed(void) {
	return atomic_load(&tap_failures) > 0;
}

static void match_open(struct match *match,
		const struct match_choices *choices) {
	*match = (struct match){ .choices = choices };
	match->model = calloc(1, sizeof *match->model);
	stand_open(&match->stand, NULL);
	struct model *model = match->model;
	for (int i = 0; i < MODEL_HANDLER_MAX; i++) {
		model->owner[i] = i;
		model->in_process[i] = i == 1 || i == 3;
	}
	model->node = match->stand.node;
	model->now = stand_now(&match->stand);
	enrol_some(match);
	match->channels[0] = match->stand.orders;
	match->channels[1] = match->stand.bills;
}

static bool is_last_step(const struct match *match, size_t step,
		size_t step_count) {
	return step == step_count ||
		   (match->choices->has_ended &&
				   match->choices->has_ended(match->choices->context));
}

const char *match_run(const struct match_choices *choices, size_t step_count,
		size_t *step_out) {
	struct match match;
	const char *failed = NULL;
	match_open(&match, choices);
	for (size_t i = 1; !failed; i++) {
		size_t kind = choose_step(&match);
		steps[kind].run(&match);
		bool last = is_last_step(&match, i, step_count);
		if (i % COMPARE_EVERY == 0 || last) {
			compare_rows(&match);
			model_compare_groups(match.model, &match.stand, errors[0]);
			model_compare_counters(match.model, &match.stand, keys);
			/* The results of the previous steps are no longer needed. */
			postern_memory_destroy(match.stand.memory);
			match.stand.memory = postern_memory_create();
		}
		compare_message(&match);
		if (has_failed()) {
			failed = steps[kind].name;
			*step_out = i;
		}
		if (last) {
			break;
		}
		int64_t ms = one_chance_in(&match, 3)
							 ? (int64_t)choose_below(&match, 400)
							 : 0;
		fake_clock_advance(&match.stand.clock, ms);
		match.model->now += ms;
	}
	stand_close(&match.stand);
	free(match.model);
	return failed;
}
