/* SPDX-License-Identifier: MIT */
/*
 * Key rules applied to a message that is accepted.
 *
 * Nearly every channel has the rule `id`, whose key borrows the texts of the
 * message. For any other rule the content gets a second allocation, with room
 * for the text of each key.
 *
 * The rule `composite` of a channel is one of its handlers: the message itself
 * is identified by its id, and each handler without a rule of its own has its
 * key.
 */

#include "core/content_keys.h"

#include "base/fail.h"
#include "core/box.h"
#include "core/identity.h"
#include "core/inline.h"
#include "core/key_rules.h"

#include <inttypes.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The place of the source in keys that no other message has. */
#define NO_KEY_SPACE "\x01"

#define DEDUPE_COUNT_DEFAULT 1000000

struct route_key {
	struct postern_dedupe_key key;
	struct postern__key_text text;
	char reason[POSTERN_ERROR_TEXT_MAX]; /* why there is none */
};

struct postern__content_keys {
	struct postern__key_text text; /* of the message's key */
	struct route_key routes[];
};

static bool needs_more_than_id(const struct postern__key_rules *rules) {
	for (size_t i = 0; i < rules->count; i++) {
		if (!postern__key_rule_is_id(&rules->items[i].rule)) {
			return true;
		}
	}
	return false;
}

int postern__channel_keys_init(struct postern__channel *channel,
		const struct postern_channel_options *options, const char *name,
		struct postern_error *error) {
	char what[POSTERN_CHANNEL_NAME_LEN_MAX + 16];
	(void)snprintf(what, sizeof(what), "channel '%s'", name);
	channel->missing_key = options->missing_key;
	int r = postern__key_rules_init(&channel->key_rules, options->key_rules,
			options->key_rule_count, what, error);
	channel->has_key_rules = needs_more_than_id(&channel->key_rules);
	return r ? r
			 : postern__key_rules_set_callback(&channel->key_rules,
					   options->key_callback, options->key_context, what,
					   error);
}

/* Whether a handler of the channel can have keys of its own. */
static bool has_own_keys(const struct postern__handler *handler) {
	const struct postern__key_rules *rules = &handler->channel->key_rules;
	bool any = handler->key_rules.count > 0;
	for (size_t i = 0; !any && i < rules->count; i++) {
		any = postern__key_rule_is_composite(&rules->items[i].rule);
	}
	return any;
}

static int check_retention(const struct postern__handler *handler,
		struct postern_error *error) {
	const struct postern__channel *channel = handler->channel;
	int64_t keep = handler->retention_dedupe_ms;
	const char *why = NULL;
	if (keep < 0 || keep > POSTERN_DURATION_MS_MAX) {
		why = "is out of range";
	} else if (keep > 0 && channel->mode == POSTERN_MODE_DIRECT) {
		why = "remembers nothing: its channel has the mode direct";
	} else if (keep > 0 && channel->marker) {
		why = "is not its own: the channel's handlers share a marker";
	} else if (keep > 0 && channel->mode == POSTERN_MODE_INBOX &&
			   !has_own_keys(handler)) {
		why = "needs a key of its own; for the ids of messages set it on the "
			  "channel";
	}
	return why ? postern__fail(error, POSTERN_E_INVALID,
						 "handler '%s': retention.dedupe %s", handler->key, why)
			   : POSTERN_OK;
}

static int check_dedupe(const struct postern__handler *handler,
		struct postern_error *error) {
	const struct postern__channel *channel = handler->channel;
	bool memory = handler->dedupe == POSTERN_DEDUPE_MEMORY;
	const char *why = NULL;
	if (!memory && handler->dedupe != POSTERN_DEDUPE_STORE) {
		why = "is out of range";
	} else if (handler->dedupe_count_max > POSTERN_DEDUPE_COUNT_MAX) {
		why = "has too many keys: dedupe_max is at most 10000000";
	} else if (memory && channel->mode != POSTERN_MODE_GUARD) {
		why = "can be memory only in a channel with the mode guard: an inbox "
			  "stores each message in any case";
	} else if (memory && handler->impl->transactional) {
		why = "cannot be memory: the handler is transactional, and its marker "
			  "is part of its transaction";
	} else if (memory && channel->marker) {
		why = "cannot be memory: the channel's handlers share a marker";
	}
	return why ? postern__fail(error, POSTERN_E_INVALID,
						 "handler '%s': dedupe %s", handler->key, why)
			   : POSTERN_OK;
}

int postern__handler_keys_init(struct postern__handler *handler,
		const struct postern_handler_options *options,
		struct postern_error *error) {
	char what[POSTERN_KEY_LEN_MAX + 16];
	(void)snprintf(what, sizeof(what), "handler '%s'", options->key);
	int r = postern__key_rules_init(&handler->key_rules, options->key_rules,
			options->key_rule_count, what, error);
	handler->channel->has_key_rules |= needs_more_than_id(&handler->key_rules);
	handler->retention_dedupe_ms = options->retention_dedupe_ms;
	handler->dedupe = options->dedupe;
	handler->dedupe_count_max = options->dedupe_count_max
										? options->dedupe_count_max
										: DEDUPE_COUNT_DEFAULT;
	if (!r) {
		r = postern__key_rules_set_callback(&handler->key_rules,
				options->key_callback, options->key_context, what, error);
	}
	if (!r) {
		r = check_retention(handler, error);
	}
	return r ? r : check_dedupe(handler, error);
}

/* The rule of the message itself; NULL: `id`. */
static const struct postern__typed_rule *
message_rule(const struct postern__channel *channel, const char *type) {
	return postern__key_rules_of_message(&channel->key_rules, type);
}

/* The rule of a handler; NULL: it has none of its own. */
static const struct postern__typed_rule *
handler_rule(const struct postern__handler *handler, const char *type) {
	return postern__key_rules_of_handler(&handler->channel->key_rules,
			&handler->key_rules, type);
}

bool postern__channel_makes_ids(const struct postern__channel *channel,
		const char *type) {
	if (!channel->has_key_rules && !postern__channel_is_inline(channel)) {
		return false; /* nearly all channels */
	}
	const struct postern__typed_rule *rule =
			message_rule(channel, type ? type : "");
	bool has_key = !postern__channel_is_inline(channel) ||
				   postern__channel_guards(channel, type ? type : "");
	return !has_key || (rule && !postern__key_rule_is_id(&rule->rule));
}

void postern__generated_id(const struct postern_box *box,
		char out[POSTERN__GENERATED_ID_LEN + 1]) {
	const struct postern_random *random = &box->random;
	(void)snprintf(out, POSTERN__GENERATED_ID_LEN + 1,
			"%016" PRIx64 "%016" PRIx64, random->next(random->context),
			random->next(random->context));
}

/* A key that no other message has. */
static void make_unique(const struct postern_box *box,
		struct postern__key_text *text, struct postern_dedupe_key *out) {
	postern__generated_id(box, text->text);
	text->len = POSTERN__GENERATED_ID_LEN;
	*out = (struct postern_dedupe_key){
		.source = NO_KEY_SPACE,
		.value = text->text,
		.value_len = text->len,
	};
}

static int make_message_key(struct postern__content *content,
		struct postern__content_keys *keys, struct postern_error *error) {
	struct postern__channel *channel = content->channel;
	const struct postern__typed_rule *rule =
			message_rule(channel, content->message.type);
	if (!rule) {
		return POSTERN_OK;
	}
	int r = postern__typed_rule_apply(rule, &content->message, NULL,
			&keys->text, &content->accept.key, error);
	if (r != POSTERN_E_NOTFOUND) {
		return r;
	}
	postern__meter_missing_key(channel->generation->box, channel);
	if (channel->missing_key == POSTERN_MISSING_KEY_REJECT) {
		if (error) {
			error->code = POSTERN_E_INVALID;
		}
		return POSTERN_E_INVALID;
	}
	make_unique(channel->generation->box, &keys->text, &content->accept.key);
	return POSTERN_OK;
}

/* A handler that has no key for the message: the message is accepted, and the
   delivery is poisoned at once, or runs. */
static void make_route_key(const struct postern_message *message,
		const struct postern__handler *handler, struct postern_route *route,
		struct route_key *room) {
	struct postern_error error;
	const struct postern__typed_rule *rule =
			handler_rule(handler, message->type);
	if (!rule) {
		return;
	}
	int r = postern__typed_rule_apply(rule, message, NULL, &room->text,
			&room->key, &error);
	if (!r) {
		route->key = &room->key;
		return;
	}
	postern__meter_missing_key(handler->generation->box, handler->channel);
	if (handler->channel->missing_key == POSTERN_MISSING_KEY_REJECT) {
		(void)snprintf(room->reason, sizeof(room->reason), "%s", error.text);
		route->refusal = room->reason;
	}
}

/* An inline message needs keys only for what is guarded. */
static bool needs_keys(const struct postern__content *content) {
	return !content->is_inline ||
		   postern__channel_guards(content->channel, content->message.type);
}

int postern__content_keys_make(struct postern__content *content,
		struct postern_error *error) {
	content->accept.key = postern__dedupe_key_by_id(&content->message);
	if (!content->channel->has_key_rules || !needs_keys(content)) {
		return POSTERN_OK;
	}
	size_t count = content->accept.route_count;
	struct postern__content_keys *keys =
			malloc(sizeof(*keys) + count * sizeof(struct route_key));
	if (!keys) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	content->keys = keys;
	int r = make_message_key(content, keys, error);
	for (size_t i = 0; !r && i < count; i++) {
		make_route_key(&content->message, content->runs[i].handler,
				&content->accept.routes[i], &keys->routes[i]);
	}
	return r;
}

/* The key of one run; NULL: it has none. */
static const struct postern_dedupe_key *
run_key(const struct postern__content *content, size_t index) {
	const struct postern_dedupe_key *own = content->accept.routes[index].key;
	const struct postern_dedupe_key *key = own ? own : &content->accept.key;
	bool lacks_own =
			!own && content->channel->has_key_rules &&
			handler_rule(content->runs[index].handler, content->message.type);
	bool unique = key->source && strcmp(key->source, NO_KEY_SPACE) == 0;
	return lacks_own || unique ? NULL : key;
}

bool postern__content_has_guard_key(const struct postern__content *content,
		size_t index) {
	return run_key(content, index) != NULL;
}

bool postern__content_guard_key(const struct postern__content *content,
		size_t index, char **out, size_t *len_out) {
	const struct postern__channel *channel = content->channel;
	const struct postern_dedupe_key *key = run_key(content, index);
	struct postern__key_text room;
	struct postern_dedupe_key unique;
	if (!key) {
		make_unique(channel->generation->box, &room, &unique);
		key = &unique;
	}
	*out = postern__marker_value(key, channel->first_name, len_out);
	return *out != NULL;
}

bool postern__box_make_id(struct postern_box *box, const char *channel_name,
		char out[POSTERN__GENERATED_ID_LEN + 1]) {
	struct postern_generation *generation = postern__generation_acquire(box);
	const struct postern__channel *channel =
			postern__generation_channel(generation, channel_name);
	bool makes = channel && postern__channel_makes_ids(channel, "");
	postern__generation_release(generation);
	if (makes) {
		postern__generated_id(box, out);
	}
	return makes;
}

struct postern__parked_routes {
	struct postern_generation *generation;
	struct route_key keys[]; /* one for each handler */
};

struct postern__parked_routes *postern__parked_routes_create(
		struct postern_generation *generation) {
	struct postern__parked_routes *parked =
			malloc(sizeof(*parked) +
					generation->handler_count * sizeof(struct route_key));
	if (parked) {
		parked->generation = generation;
	}
	return parked;
}

void postern__parked_routes_destroy(struct postern__parked_routes *parked) {
	free(parked);
}

size_t postern__parked_route(void *context, int64_t channel_id,
		const char *type, const struct postern_message *message,
		struct postern_route *routes, size_t max) {
	struct postern__parked_routes *parked = context;
	const struct postern__channel *channel =
			postern__generation_channel_by_id(parked->generation, channel_id);
	size_t count = 0;
	for (size_t i = 0; channel && i < channel->handler_count && count < max;
			i++) {
		const struct postern__handler *handler = channel->handlers[i];
		if (!postern__handler_wants(handler, type)) {
			continue;
		}
		struct postern_route *route = &routes[count++];
		*route = (struct postern_route){ .handler = handler->id };
		if (message) {
			make_route_key(message, handler, route, &parked->keys[i]);
		} else {
			route->by_message = channel->has_key_rules &&
								handler_rule(handler, type) != NULL;
		}
	}
	return count;
}
