/* SPDX-License-Identifier: MIT */
/*
 * Generations: the channels and handlers of a box, which never change once the
 * generation is in place. A change of the configuration puts another generation
 * in place (replace.c); contents, runs and calls in progress keep the one that
 * they began with, and the last of them to end retires it.
 */

#include "core/generation.h"
#include "core/content_keys.h"

#include "base/fail.h"
#include "base/pattern.h"
#include "base/sized.h"
#include "core/box.h"
#include "core/breaker.h"
#include "core/inline.h"
#include "core/maintenance.h"
#include "core/pull.h"
#include "core/recent.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void destroy_texts(char **texts, size_t count) {
	for (size_t i = 0; i < count; i++) {
		free(texts[i]);
	}
	free(texts);
}

static void release_channel_state(struct postern__channel *channel) {
	struct postern_box *box = channel->generation->box;
	if (!channel->state) {
		return;
	}
	(void)pthread_mutex_lock(&box->mutex);
	bool last = --channel->state->refs == 0;
	(void)pthread_mutex_unlock(&box->mutex);
	if (last) {
		free(channel->state);
	}
}

static void destroy_channel(struct postern__channel *channel) {
	if (!channel) {
		return;
	}
	release_channel_state(channel);
	postern__policy_finish(&channel->policy);
	destroy_texts(channel->former_names, channel->former_name_count);
	postern__key_rules_finish(&channel->key_rules);
	postern__channel_mode_finish(channel);
	free(channel->handlers);
	free(channel->name);
	free(channel);
}

static void release_state(struct postern__handler *handler) {
	struct postern_box *box = handler->generation->box;
	struct postern__handler_state *state = handler->state;
	if (!state) {
		return;
	}
	(void)pthread_mutex_lock(&box->mutex);
	state->refs--;
	if (state->handler == handler) {
		state->handler = NULL;
	}
	if (state->refs == 0) {
		postern__list_remove(&state->ready);
		postern__list_remove(&state->due);
		postern__breaker_destroy(state->breaker);
		postern__recent_destroy(state->recent);
		free(state->pause_reason);
		free(state->pause_by);
		free(state);
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

static void destroy_handler(struct postern__handler *handler) {
	if (!handler) {
		return;
	}
	release_state(handler);
	if (handler->impl) {
		handler->impl->ops->destroy(handler->impl);
	}
	postern__policy_finish(&handler->policy);
	postern__key_rules_finish(&handler->key_rules);
	destroy_texts(handler->legacy_keys, handler->legacy_key_count);
	destroy_texts(handler->types, handler->type_count);
	free(handler->key);
	free(handler);
}

/* A policy of any version; NULL: the defaults. */
static int take_policy(const struct postern_policy *given,
		struct postern_policy *out, struct postern_error *error) {
	postern_policy_init(out);
	return given ? postern__sized_copy(out, sizeof(*out), given,
						   "struct postern_policy", error)
				 : POSTERN_OK;
}

static char **copy_texts(const char *const *texts, size_t count) {
	char **copies = calloc(count ? count : 1, sizeof(char *));
	for (size_t i = 0; copies && i < count; i++) {
		copies[i] = strdup(texts[i]);
		if (!copies[i]) {
			destroy_texts(copies, count);
			return NULL;
		}
	}
	return copies;
}

/* Names and former names of all channels share one name space. */
static int check_channel_name_free(const struct postern_generation *generation,
		const char *name, struct postern_error *error) {
	const struct postern__channel *other =
			postern__generation_channel(generation, name);
	if (!other) {
		return POSTERN_OK;
	}
	return strcmp(other->name, name) == 0
				   ? postern__fail(error, POSTERN_E_INVALID,
							 "there are two channels named '%s'", name)
				   : postern__fail(error, POSTERN_E_INVALID,
							 "the channel name '%s' is a former name of "
							 "channel '%s'",
							 name, other->name);
}

static int check_former_names(const struct postern_generation *generation,
		const char *channel, const struct postern_channel_options *options,
		struct postern_error *error) {
	if (options->former_name_count > POSTERN_FORMER_NAME_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"channel '%s' has more than %d former names", channel,
				POSTERN_FORMER_NAME_COUNT_MAX);
	}
	for (size_t i = 0; i < options->former_name_count; i++) {
		const char *name = options->former_names[i];
		int r = postern__channel_name_check(name, error);
		if (!r) {
			r = check_channel_name_free(generation, name, error);
		}
		if (r) {
			return r;
		}
		bool again = strcmp(name, channel) == 0;
		for (size_t j = 0; !again && j < i; j++) {
			again = strcmp(name, options->former_names[j]) == 0;
		}
		if (again) {
			return postern__fail(error, POSTERN_E_INVALID,
					"channel '%s' has the name '%s' twice", channel, name);
		}
	}
	return POSTERN_OK;
}

static int fill_channel(struct postern__channel *channel,
		const struct postern_generation *generation, const char *name,
		const struct postern_channel_options *given,
		struct postern_error *error) {
	struct postern_channel_options options = { .size = sizeof(options) };
	struct postern_policy policy;
	int r = given ? postern__sized_copy(&options, sizeof(options), given,
							"struct postern_channel_options", error)
				  : POSTERN_OK;
	channel->unrouted = options.unrouted;
	channel->on_conflict = options.on_conflict;
	channel->allow_without_inbox = options.allow_without_inbox;
	channel->retention_payload_ms = options.retention_payload_ms;
	channel->retention_dedupe_ms = options.retention_dedupe_ms;
	channel->max_message_size =
			options.max_message_size
					? options.max_message_size
					: generation->box->options.max_message_size;
	if (!r) {
		r = check_former_names(generation, name, &options, error);
	}
	if (!r) {
		r = take_policy(options.policy, &policy, error);
	}
	if (!r) {
		r = postern__policy_check(&policy, name, error);
	}
	if (!r) {
		r = postern__retention_check(channel, name, error);
	}
	if (!r) {
		r = postern__channel_keys_init(channel, &options, name, error);
	}
	if (!r) {
		r = postern__channel_mode_init(channel, &options, name, error);
	}
	if (r) {
		return r;
	}
	if (channel->max_message_size > POSTERN_BODY_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"channel '%s': max_message_size is %zu bytes, and the limit is "
				"%zu bytes (POSTERN_BODY_LEN_MAX)",
				name, channel->max_message_size, POSTERN_BODY_LEN_MAX);
	}
	channel->name = strdup(name);
	channel->former_names =
			copy_texts(options.former_names, options.former_name_count);
	channel->former_name_count =
			channel->former_names ? options.former_name_count : 0;
	(void)snprintf(channel->first_name, sizeof(channel->first_name), "%s",
			name);
	channel->state = calloc(1, sizeof(*channel->state));
	if (channel->state) {
		channel->state->refs = 1;
	}
	if (!channel->name || !channel->former_names || !channel->state ||
			postern__policy_copy(&policy, &channel->policy)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	return POSTERN_OK;
}

/* Grow an array of pointers by one; false: out of memory. */
static bool grow(void *array_pointer, size_t count) {
	void **array = array_pointer;
	void *grown = realloc(*array, (count + 1) * sizeof(void *));
	if (grown) {
		*array = grown;
	}
	return grown != NULL;
}

static int append_channel(struct postern_generation *generation,
		struct postern__channel *channel, struct postern_error *error) {
	size_t count = generation->channel_count;
	if (!grow((void *)&generation->channels, count) ||
			!grow((void *)&generation->by_name, count) ||
			!grow((void *)&generation->by_id, count)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	size_t at = count;
	for (; at > 0 &&
			strcmp(generation->by_name[at - 1]->name, channel->name) > 0;
			at--) {
		generation->by_name[at] = generation->by_name[at - 1];
	}
	generation->by_name[at] = channel;
	generation->by_id[count] = channel; /* sorted when the ids are known */
	generation->channels[count] = channel;
	generation->channel_count++;
	return POSTERN_OK;
}

static int check_new_channel(const struct postern_generation *generation,
		const char *name, struct postern_error *error) {
	int r = postern__channel_name_check(name, error);
	if (r) {
		return r;
	}
	r = check_channel_name_free(generation, name, error);
	if (r) {
		return r;
	}
	if (generation->channel_count == POSTERN_CHANNEL_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID, "more than %d channels",
				POSTERN_CHANNEL_COUNT_MAX);
	}
	return POSTERN_OK;
}

int postern_generation_add_channel(struct postern_generation *generation,
		const char *name, const struct postern_channel_options *options,
		struct postern_error *error) {
	int r = check_new_channel(generation, name, error);
	if (r) {
		return r;
	}
	struct postern__channel *channel = calloc(1, sizeof(*channel));
	if (!channel) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	channel->generation = generation;
	r = fill_channel(channel, generation, name, options, error);
	if (!r) {
		r = append_channel(generation, channel, error);
	}
	if (r) {
		destroy_channel(channel);
	}
	return r;
}

/* Keys and legacy keys of all channels share one name space. */
static int check_key_free(const struct postern_generation *generation,
		const char *key, struct postern_error *error) {
	int r = postern__handler_key_check(key, error);
	if (r) {
		return r;
	}
	for (size_t i = 0; i < generation->handler_count; i++) {
		const struct postern__handler *handler = generation->handlers[i];
		bool taken = strcmp(handler->key, key) == 0;
		for (size_t j = 0; !taken && j < handler->legacy_key_count; j++) {
			taken = strcmp(handler->legacy_keys[j], key) == 0;
		}
		if (taken) {
			return postern__fail(error, POSTERN_E_INVALID,
					"handler key '%s' is already used by handler '%s' of "
					"channel '%s'",
					key, handler->key, handler->channel->name);
		}
	}
	return POSTERN_OK;
}

static int check_keys(const struct postern_generation *generation,
		const struct postern_handler_options *options,
		struct postern_error *error) {
	int r = check_key_free(generation, options->key, error);
	if (r) {
		return r;
	}
	if (options->legacy_key_count > POSTERN_LEGACY_KEY_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s' has more than %d legacy keys", options->key,
				POSTERN_LEGACY_KEY_COUNT_MAX);
	}
	for (size_t i = 0; i < options->legacy_key_count; i++) {
		const char *legacy = options->legacy_keys[i];
		r = check_key_free(generation, legacy, error);
		if (r) {
			return r;
		}
		bool again = strcmp(legacy, options->key) == 0;
		for (size_t j = 0; !again && j < i; j++) {
			again = strcmp(legacy, options->legacy_keys[j]) == 0;
		}
		if (again) {
			return postern__fail(error, POSTERN_E_INVALID,
					"handler '%s' names the key '%s' twice", options->key,
					legacy);
		}
	}
	return POSTERN_OK;
}

static int check_types(const struct postern_handler_options *options,
		struct postern_error *error) {
	if (options->type_count > POSTERN_TYPE_PATTERN_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s' has more than %d types", options->key,
				POSTERN_TYPE_PATTERN_COUNT_MAX);
	}
	for (size_t i = 0; i < options->type_count; i++) {
		struct postern_error why;
		if (!options->types[i] ||
				postern__pattern_check(options->types[i],
						strnlen(options->types[i], POSTERN_ATTRIBUTE_LEN_MAX),
						&why)) {
			return postern__fail(error, POSTERN_E_INVALID,
					"handler '%s': type %zu: %s", options->key, i + 1,
					options->types[i] ? why.text : "is missing");
		}
	}
	return POSTERN_OK;
}

static int fill_handler(struct postern__handler *handler,
		struct postern__channel *channel,
		const struct postern_handler_options *options,
		struct postern_error *error) {
	struct postern_policy policy;
	int r = take_policy(options->policy ? options->policy : &channel->policy,
			&policy, error);
	if (!r) {
		postern__policy_complete(&policy, handler->impl->kind,
				handler->impl->transactional);
		r = postern__policy_check(&policy, options->key, error);
	}
	if (r) {
		return r;
	}
	handler->channel = channel;
	handler->key = strdup(options->key);
	handler->legacy_keys =
			copy_texts(options->legacy_keys, options->legacy_key_count);
	handler->types = copy_texts(options->types, options->type_count);
	handler->legacy_key_count =
			handler->legacy_keys ? options->legacy_key_count : 0;
	handler->type_count = handler->types ? options->type_count : 0;
	if (!handler->key || !handler->legacy_keys || !handler->types ||
			postern__policy_copy(&policy, &handler->policy)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	return POSTERN_OK;
}

static int append_handler(struct postern_generation *generation,
		struct postern__handler *handler, struct postern_error *error) {
	struct postern__channel *channel = handler->channel;
	if (!grow((void *)&channel->handlers, channel->handler_count) ||
			!grow((void *)&generation->handlers, generation->handler_count)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	channel->handlers[channel->handler_count++] = handler;
	generation->handlers[generation->handler_count++] = handler;
	generation->transactional_count += handler->impl->transactional;
	generation->rated_count += handler->policy.rate_count > 0;
	generation->pulled_count += postern__handler_is_pulled(handler);
	return POSTERN_OK;
}

static int create_state(struct postern__handler *handler,
		struct postern_error *error) {
	struct postern__handler_state *state = calloc(1, sizeof(*state));
	if (!state) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	state->refs = 1;
	state->handler = handler;
	state->due_at_ms = POSTERN__NEVER;
	postern__list_init(&state->queue);
	postern__list_init(&state->pulls);
	handler->state = state;
	return POSTERN_OK;
}

static int register_handler(struct postern_generation *generation,
		const char *channel_name, const struct postern_handler_options *options,
		struct postern__handler *handler, struct postern_error *error) {
	struct postern__channel *channel =
			postern__generation_channel(generation, channel_name);
	if (!channel) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "no channel '%s'",
				channel_name ? channel_name : "");
	}
	if (generation->handler_count == POSTERN_HANDLER_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID, "more than %d handlers",
				POSTERN_HANDLER_COUNT_MAX);
	}
	int r = check_keys(generation, options, error);
	if (!r) {
		r = check_types(options, error);
	}
	if (!r) {
		r = fill_handler(handler, channel, options, error);
	}
	if (!r) {
		r = postern__handler_keys_init(handler, options, error);
	}
	if (!r) {
		r = postern__mode_check_handler(handler, error);
	}
	if (!r) {
		r = create_state(handler, error);
	}
	if (!r) {
		r = append_handler(generation, handler, error);
	}
	return r;
}

int postern__generation_register_taking(struct postern_generation *generation,
		const char *channel, const struct postern_handler_options *options,
		struct postern_handler *impl, struct postern_error *error) {
	struct postern__handler *handler = calloc(1, sizeof(*handler));
	if (!handler) {
		impl->ops->destroy(impl);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	handler->impl = impl;
	handler->generation = generation;
	int r = register_handler(generation, channel, options, handler, error);
	if (r) {
		destroy_handler(handler);
	}
	return r;
}

int postern_generation_create(struct postern_box *box,
		struct postern_generation **out, struct postern_error *error) {
	struct postern_generation *generation = calloc(1, sizeof(*generation));
	if (!generation) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	generation->box = box;
	atomic_init(&generation->refs, 1);
	*out = generation;
	return POSTERN_OK;
}

void postern_generation_destroy(struct postern_generation *generation) {
	if (!generation) {
		return;
	}
	for (size_t i = 0; i < generation->handler_count; i++) {
		destroy_handler(generation->handlers[i]);
	}
	for (size_t i = 0; i < generation->channel_count; i++) {
		destroy_channel(generation->channels[i]);
	}
	free(generation->handlers);
	free(generation->channels);
	free(generation->by_name);
	free(generation->by_id);
	free(generation);
}

struct postern_generation *postern__generation_acquire(
		struct postern_box *box) {
	(void)pthread_mutex_lock(&box->generation_mutex);
	struct postern_generation *generation = box->generation;
	atomic_fetch_add(&generation->refs, 1);
	(void)pthread_mutex_unlock(&box->generation_mutex);
	return generation;
}

void postern__generation_release(struct postern_generation *generation) {
	/* What nothing refers to is destroyed by postern__generations_reap(): a
	   handler's destroy() may wait, and the caller may hold a mutex. */
	atomic_fetch_sub(&generation->refs, 1);
}

static int compare_name(const void *name, const void *element) {
	return strcmp(name, (*(struct postern__channel *const *)element)->name);
}

bool postern__handler_in_place(const struct postern__handler *handler) {
	return handler->generation == handler->generation->box->generation;
}

bool postern__channel_has_name(const struct postern__channel *channel,
		const char *name) {
	bool has = strcmp(channel->name, name) == 0;
	for (size_t i = 0; !has && i < channel->former_name_count; i++) {
		has = strcmp(channel->former_names[i], name) == 0;
	}
	return has;
}

bool postern__channels_share_name(const struct postern__channel *left,
		const struct postern__channel *right) {
	bool share = postern__channel_has_name(right, left->name);
	for (size_t i = 0; !share && i < left->former_name_count; i++) {
		share = postern__channel_has_name(right, left->former_names[i]);
	}
	return share;
}

static struct postern__channel *
find_former(const struct postern_generation *generation, const char *name) {
	for (size_t i = 0; i < generation->channel_count; i++) {
		if (postern__channel_has_name(generation->channels[i], name)) {
			return generation->channels[i];
		}
	}
	return NULL;
}

struct postern__channel *
postern__generation_channel(const struct postern_generation *generation,
		const char *name) {
	struct postern__channel **found =
			name && generation->channel_count > 0
					? bsearch(name, generation->by_name,
							  generation->channel_count,
							  sizeof(struct postern__channel *), compare_name)
					: NULL;
	return found || !name ? (found ? *found : NULL)
						  : find_former(generation, name);
}

static int compare_channels(const void *left, const void *right) {
	int64_t a = (*(struct postern__channel *const *)left)->id;
	int64_t b = (*(struct postern__channel *const *)right)->id;
	return (a > b) - (a < b);
}

void postern__generation_sort_ids(struct postern_generation *generation) {
	if (generation->channel_count > 0) {
		qsort(generation->by_id, generation->channel_count,
				sizeof(struct postern__channel *), compare_channels);
	}
}

struct postern__channel *
postern__generation_channel_by_id(const struct postern_generation *generation,
		int64_t id) {
	struct postern__channel wanted = { .id = id };
	const struct postern__channel *key = &wanted;
	struct postern__channel **found =
			generation->channel_count > 0
					? bsearch(&key, generation->by_id,
							  generation->channel_count,
							  sizeof(struct postern__channel *),
							  compare_channels)
					: NULL;
	return found ? *found : NULL;
}
