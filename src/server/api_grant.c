/* SPDX-License-Identifier: MIT */
/*
 * Checks the channels that a token is narrowed to, where the path alone does
 * not say which channel a request is about.
 */

#include <inttypes.h>
#include <postern/box.h>
#include <postern/error.h>
#include <postern/inspect.h>
#include <stdio.h>
#include <string.h>

#include "server/config.h"
#include "server/grant.h"
#include "server/route.h"

static bool is_narrowed(const struct postern__call *call) {
	const struct postern__grant *grant = call->request->grant;
	return grant && grant->channel_count > 0;
}

static bool has_channel(const struct postern__grant *grant, const char *name) {
	for (size_t i = 0; i < grant->channel_count; i++) {
		if (strcmp(grant->channels[i], name) == 0) {
			return true;
		}
	}
	return false;
}

static bool refuse(struct postern__call *call, const char *what,
		const char *name) {
	postern__call_refuse(call, 403, "the token '%s' is not for the %s '%.80s'",
			call->request->grant->name, what, name);
	return false;
}

/* A channel by any of its names. */
static bool is_granted(const struct postern__call *call, const char *channel) {
	const struct postern__config_channel *known =
			call->api->config
					? postern__config_channel_named(call->api->config, channel)
					: NULL;
	return known && has_channel(call->request->grant, known->name);
}

bool postern__call_may_use(struct postern__call *call, const char *channel) {
	return !is_narrowed(call) || is_granted(call, channel) ||
		   refuse(call, "channel", channel);
}

bool postern__call_may_see(struct postern__call *call, int64_t seq,
		const char *channel) {
	char text[24];
	(void)snprintf(text, sizeof text, "%" PRId64, seq);
	return !is_narrowed(call) || is_granted(call, channel) ||
		   refuse(call, "message", text);
}

/* The channel that has the handler; NULL: none. */
static const struct postern__config_channel *
channel_of(const struct postern__config *config, const char *handler) {
	const struct postern__config_handler *wanted =
			config ? postern__config_handler_named(config, handler) : NULL;
	const struct postern__config_channel *channel;
	for (size_t i = 0; wanted && (channel = postern__config_channel(config, i));
			i++) {
		if (wanted >= channel->handlers &&
				wanted < channel->handlers + channel->handler_count) {
			return channel;
		}
	}
	return NULL;
}

bool postern__call_may_handle(struct postern__call *call, const char *handler) {
	if (!is_narrowed(call)) {
		return true;
	}
	const struct postern__config_channel *channel =
			channel_of(call->api->config, handler);
	return (channel && has_channel(call->request->grant, channel->name)) ||
		   refuse(call, "handler", handler);
}

bool postern__call_may_filter(struct postern__call *call,
		struct postern_filter *filter) {
	if (!is_narrowed(call)) {
		return true;
	}
	if (!filter->channel && !filter->handler) {
		postern__call_refuse(call, 403,
				"the token '%s' is for some channels only: name one with "
				"'channel'",
				call->request->grant->name);
		return false;
	}
	if (filter->handler && !postern__call_may_handle(call, filter->handler)) {
		return false;
	}
	if (filter->channel) {
		return postern__call_may_use(call, filter->channel);
	}
	filter->channel = channel_of(call->api->config, filter->handler)->name;
	return true;
}

bool postern__call_may_edit(struct postern__call *call, struct postern_box *box,
		int64_t seq) {
	struct postern_detail *detail;
	struct postern_error error;
	if (!is_narrowed(call)) {
		return true;
	}
	if (postern_box_get(box, seq, &detail, &error) != POSTERN_OK) {
		postern__call_fail(call, &error);
		return false;
	}
	bool may = postern__call_may_see(call, seq, detail->channel);
	postern_detail_destroy(detail);
	return may;
}

bool postern__call_may_see_bodies(const struct postern__call *call) {
	const struct postern__grant *grant = call->request->grant;
	return !grant || (grant->permissions & POSTERN__PERMIT_BODIES);
}
