/* SPDX-License-Identifier: MIT */
/*
 * The mode of a channel: what is stored, what is guarded, and whether all of
 * that fits the store and the option require_inbox.
 */

#include "core/inline.h"
#include "core/pull.h"

#include "base/fail.h"
#include "base/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS_DEFAULT ((int64_t)10000)

bool postern__channel_is_inline(const struct postern__channel *channel) {
	return channel->mode != POSTERN_MODE_INBOX;
}

bool postern__box_runs_inline(struct postern_box *box, const char *name) {
	struct postern_generation *generation = postern__generation_acquire(box);
	const struct postern__channel *channel =
			postern__generation_channel(generation, name);
	bool is_inline = channel && postern__channel_is_inline(channel);
	postern__generation_release(generation);
	return is_inline;
}

static bool copy_list(const char *const *from, size_t count, char ***out,
		size_t *count_out) {
	char **copies = count > 0 ? calloc(count, sizeof(char *)) : NULL;
	*out = copies;
	for (size_t i = 0; copies && i < count; i++) {
		copies[i] = strdup(from[i]);
		if (!copies[i]) {
			return false;
		}
		*count_out = i + 1;
	}
	return copies || count == 0;
}

static void free_list(char **list, size_t count) {
	for (size_t i = 0; i < count; i++) {
		free(list[i]);
	}
	free(list);
}

static int check_types(const struct postern_channel_options *options,
		const char *name, struct postern_error *error) {
	for (size_t i = 0; i < options->guarded_type_count; i++) {
		const char *type = options->guarded_types[i];
		struct postern_error why;
		if (!type || postern__pattern_check(type,
							 strnlen(type, POSTERN_ATTRIBUTE_LEN_MAX), &why)) {
			return postern__fail(error, POSTERN_E_INVALID,
					"channel '%s': guarded type %zu: %s", name, i + 1,
					type ? why.text : "is missing");
		}
	}
	return POSTERN_OK;
}

/* Handlers are compared when all of them are known. */
static int check_handlers(const struct postern_channel_options *options,
		struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; !r && i < options->guarded_handler_count; i++) {
		r = postern__handler_key_check(options->guarded_handlers[i], error);
	}
	return r;
}

static int check_options(const struct postern_channel_options *options,
		const char *name, struct postern_error *error) {
	bool guards = options->mode == POSTERN_MODE_GUARD;
	bool lists = options->guarded_type_count > 0 ||
				 options->guarded_handler_count > 0;
	if (options->mode < POSTERN_MODE_INBOX ||
			options->mode > POSTERN_MODE_DIRECT) {
		return postern__fail(error, POSTERN_E_INVALID,
				"channel '%s': %d is no mode", name, (int)options->mode);
	}
	if (options->guarded_type_count > POSTERN_GUARDED_COUNT_MAX ||
			options->guarded_handler_count > POSTERN_GUARDED_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"channel '%s' guards more than %d types or handlers by name",
				name, POSTERN_GUARDED_COUNT_MAX);
	}
	if (!guards && (lists || options->marker || options->guard_wait_ms != 0)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"channel '%s' has settings of a guard, but its mode is not "
				"guard",
				name);
	}
	if (options->guard_wait_ms > POSTERN_DURATION_MS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"channel '%s': guard_wait is at most ten years", name);
	}
	int r = options->marker ? postern__handler_key_check(options->marker, error)
							: POSTERN_OK;
	if (!r && options->fault_channel) {
		r = postern__channel_name_check(options->fault_channel, error);
	}
	if (!r) {
		r = check_types(options, name, error);
	}
	return r ? r : check_handlers(options, error);
}

static bool copy_text(const char *from, char **out) {
	*out = from ? strdup(from) : NULL;
	return *out || !from;
}

int postern__channel_mode_init(struct postern__channel *channel,
		const struct postern_channel_options *options, const char *name,
		struct postern_error *error) {
	int r = check_options(options, name, error);
	if (r) {
		return r;
	}
	channel->mode = options->mode;
	if (options->without_inbox && options->mode == POSTERN_MODE_INBOX) {
		channel->mode = POSTERN_MODE_DIRECT;
	}
	channel->guard_wait_ms =
			options->guard_wait_ms ? options->guard_wait_ms : WAIT_MS_DEFAULT;
	channel->guard_wait_ms =
			channel->guard_wait_ms < 0 ? 0 : channel->guard_wait_ms;
	bool copied =
			copy_list(options->guarded_types, options->guarded_type_count,
					&channel->guarded_types, &channel->guarded_type_count) &&
			copy_list(options->guarded_handlers, options->guarded_handler_count,
					&channel->guarded_handlers,
					&channel->guarded_handler_count) &&
			copy_text(options->marker, &channel->marker) &&
			copy_text(options->fault_channel, &channel->fault_channel);
	return copied ? POSTERN_OK
				  : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

void postern__channel_mode_finish(struct postern__channel *channel) {
	free_list(channel->guarded_types, channel->guarded_type_count);
	free_list(channel->guarded_handlers, channel->guarded_handler_count);
	free(channel->marker);
	free(channel->fault_channel);
}

static bool guards_all(const struct postern__channel *channel) {
	return channel->mode == POSTERN_MODE_GUARD &&
		   channel->guarded_type_count == 0 &&
		   channel->guarded_handler_count == 0;
}

static bool guards_type(const struct postern__channel *channel,
		const char *type) {
	size_t len = strlen(type);
	for (size_t i = 0; i < channel->guarded_type_count; i++) {
		const char *pattern = channel->guarded_types[i];
		if (postern__pattern_match(pattern, strlen(pattern), type, len)) {
			return true;
		}
	}
	return false;
}

static bool names_handler(const struct postern__channel *channel,
		const char *key) {
	for (size_t i = 0; i < channel->guarded_handler_count; i++) {
		if (strcmp(channel->guarded_handlers[i], key) == 0) {
			return true;
		}
	}
	return false;
}

bool postern__handler_is_guarded(const struct postern__handler *handler,
		const char *type) {
	const struct postern__channel *channel = handler->channel;
	return guards_all(channel) || names_handler(channel, handler->key) ||
		   guards_type(channel, type);
}

bool postern__channel_guards(const struct postern__channel *channel,
		const char *type) {
	return guards_all(channel) || channel->guarded_handler_count > 0 ||
		   guards_type(channel, type);
}

int postern__mode_check_handler(const struct postern__handler *handler,
		struct postern_error *error) {
	const struct postern__channel *channel = handler->channel;
	if (postern__channel_is_inline(channel) &&
			postern__handler_is_pulled(handler)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s' is of the kind '%s', whose workers claim what is "
				"stored: use mode 'inbox' for channel '%s'",
				handler->key, handler->impl->kind->name, channel->name);
	}
	if (!postern__channel_is_inline(channel) || !handler->impl->transactional ||
			guards_all(channel) || names_handler(channel, handler->key)) {
		return POSTERN_OK;
	}
	return postern__fail(error, POSTERN_E_INVALID,
			"handler '%s' is transactional, so all of its messages must be "
			"guarded or stored: use mode 'guard' or 'inbox' for channel '%s'%s",
			handler->key, channel->name,
			channel->mode == POSTERN_MODE_GUARD
					? ", and name the handler in guard.handlers"
					: "");
}

/* Check a channel against the option require_inbox. */
static int check_required(const struct postern__channel *channel,
		struct postern_error *error) {
	struct postern_box *box = channel->generation->box;
	enum postern_require_inbox rule = box->options.require_inbox;
	char text[POSTERN_ERROR_TEXT_MAX];
	if (rule == POSTERN_REQUIRE_INBOX_NONE || channel->allow_without_inbox ||
			!postern__channel_is_inline(channel)) {
		return POSTERN_OK;
	}
	(void)snprintf(text, sizeof(text),
			"channel '%s' has no inbox, but require_inbox is set; set "
			"allow_without_inbox if that is intended",
			channel->name);
	if (rule == POSTERN_REQUIRE_INBOX_FAIL) {
		return postern__fail(error, POSTERN_E_INVALID, "%s", text);
	}
	postern__emit(box, &(struct postern_event){
							   .kind = POSTERN_EVENT_WITHOUT_INBOX,
							   .channel = channel->name,
							   .text = text,
					   });
	return POSTERN_OK;
}

static int check_names(const struct postern__channel *channel,
		struct postern_error *error) {
	for (size_t i = 0; i < channel->guarded_handler_count; i++) {
		const char *key = channel->guarded_handlers[i];
		bool found = false;
		for (size_t j = 0; !found && j < channel->handler_count; j++) {
			found = strcmp(channel->handlers[j]->key, key) == 0;
		}
		if (!found) {
			return postern__fail(error, POSTERN_E_INVALID,
					"channel '%s' guards the handler '%s', which it does not "
					"have",
					channel->name, key);
		}
	}
	const char *faults = channel->fault_channel;
	const struct postern__channel *to =
			postern__generation_channel(channel->generation, faults);
	if (faults && (!to || to == channel)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the fault_channel of channel '%s' is '%s', which is %s",
				channel->name, faults,
				to ? "the channel itself" : "no channel of its store");
	}
	return POSTERN_OK;
}

static int check_store(const struct postern_store *store,
		const struct postern__channel *channel, struct postern_error *error) {
	if (!store->markers_only) {
		return POSTERN_OK;
	}
	if (channel->mode == POSTERN_MODE_INBOX) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"channel '%s' is an inbox, and its store %s: set mode to guard "
				"or direct, or use a store in SQLite or PostgreSQL",
				channel->name,
				store->markers ? "keeps markers only" : "keeps nothing");
	}
	return channel->mode == POSTERN_MODE_GUARD && !store->markers
				   ? postern__fail(error, POSTERN_E_UNSUPPORTED,
							 "channel '%s' has the mode guard, which needs a "
							 "store for its markers",
							 channel->name)
				   : POSTERN_OK;
}

/* Markers in a store that keeps nothing else expire by a setting of its own. */
static int check_windows(const struct postern_store *store,
		const struct postern__channel *channel, struct postern_error *error) {
	for (size_t i = 0; store->markers_only && i < channel->handler_count; i++) {
		const struct postern__handler *handler = channel->handlers[i];
		if (handler->retention_dedupe_ms > 0 &&
				handler->dedupe == POSTERN_DEDUPE_STORE) {
			return postern__fail(error, POSTERN_E_UNSUPPORTED,
					"handler '%s' has retention.dedupe, but markers in this "
					"store expire by the ttl of its URL",
					handler->key);
		}
	}
	return POSTERN_OK;
}

/* The box has a guard as soon as a channel needs it. */
static int need_guard(struct postern_box *box,
		const struct postern__channel *channel, struct postern_error *error) {
	if (channel->mode != POSTERN_MODE_GUARD || box->guard) {
		return POSTERN_OK;
	}
	return box->guarding ? box->guarding->create(box, &box->guard, error)
						 : postern__fail(error, POSTERN_E_UNSUPPORTED,
								   "channel '%s' needs a guard, which this box "
								   "has not",
								   channel->name);
}

int postern__modes_check(const struct postern_generation *generation,
		struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; !r && i < generation->channel_count; i++) {
		const struct postern__channel *channel = generation->channels[i];
		r = check_store(generation->box->store, channel, error);
		if (!r) {
			r = check_windows(generation->box->store, channel, error);
		}
		if (!r) {
			r = check_names(channel, error);
		}
		if (!r) {
			r = check_required(channel, error);
		}
		if (!r) {
			r = need_guard(generation->box, channel, error);
		}
	}
	return r;
}
