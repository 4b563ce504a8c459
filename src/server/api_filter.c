/* SPDX-License-Identifier: MIT */

/*
 * Parses a filter: the listing's query and the JSON of the bulk edits have the
 * same members.
 */

#include <inttypes.h>
#include <postern/error.h>
#include <postern/inspect.h>
#include <postern/sys/clock.h>
#include <string.h>

#include "base/pattern.h"
#include "base/text.h"
#include "base/time.h"
#include "core/error_group.h"
#include "server/route.h"

static bool set_state(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	filter->state = postern_state_parse(value);
	if (filter->state != POSTERN_STATE_ANY) {
		return true;
	}
	static const char *const names[] = { "pending", "leased", "done",
		"poisoned", "discarded", "parked", "retrying", "waiting", "held",
		"queued", "running", "stuck" };
	const char *near =
			postern__closest(value, names, sizeof names / sizeof names[0]);
	postern__call_refuse(call, 400,
			"unknown state '%s'%s%s%s The states are pending (waiting, held, "
			"retrying), leased (queued, running, stuck), done, poisoned, "
			"discarded and parked",
			value, near ? ", did you mean '" : "", near ? near : "",
			near ? "'?" : ".");
	return false;
}

static bool set_type(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	struct postern_error error;
	if (postern__pattern_check(value, strlen(value), &error) != POSTERN_OK) {
		postern__call_refuse(call, 400, "type: %s", error.text);
		return false;
	}
	filter->type = value;
	return true;
}

/* A time, or how long ago it was. 0 would mean that there is no filter. */
static bool read_moment(struct postern__call *call, const char *name,
		const char *value, int64_t *out) {
	int64_t ms;
	if (postern__duration_parse(value, &ms, NULL) == POSTERN_OK) {
		const struct postern_clock *clock = call->api->clock;
		if (!clock) {
			clock = postern_clock_system();
		}
		int64_t now_ms = clock->wall_ms(clock->context);
		*out = ms < now_ms ? now_ms - ms : 1;
		return true;
	}
	if (postern__time_parse(value, strlen(value), &ms, NULL) == POSTERN_OK) {
		*out = ms > 0 ? ms : 1;
		return true;
	}
	postern__call_refuse(call, 400,
			"%s: '%s' is neither a time such as 2026-01-31T12:00:00Z nor a "
			"time ago such as 90s, 15m, 2h or 7d",
			name, value);
	return false;
}

static bool set_since(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	return read_moment(call, "since", value, &filter->since_ms);
}

static bool set_until(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	return read_moment(call, "until", value, &filter->until_ms);
}

static bool set_seq(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	uint64_t seq;
	if (postern__count_parse(value, 1, INT64_MAX, &seq, NULL) != POSTERN_OK) {
		postern__call_refuse(call, 400,
				"seq: '%s' is not the number of a message", value);
		return false;
	}
	filter->seq = (int64_t)seq;
	return true;
}

static bool set_channel(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	(void)call;
	filter->channel = value;
	return true;
}

static bool set_handler(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	(void)call;
	filter->handler = value;
	return true;
}

static bool set_message_id(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	(void)call;
	filter->message_id = value;
	return true;
}

static bool set_source(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	(void)call;
	filter->source = value;
	return true;
}

static bool set_error(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	if (strlen(value) > POSTERN_FILTER_ERROR_LEN_MAX) {
		postern__call_refuse(call, 400, "error: the text is over %d bytes",
				POSTERN_FILTER_ERROR_LEN_MAX);
		return false;
	}
	filter->error = value;
	return true;
}

static bool set_group(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	uint64_t group = 0;
	size_t len = 0;
	for (; postern__hex_value(value[len]) >= 0 &&
			len < POSTERN__ERROR_GROUP_DIGITS;
			len++) {
		group = group << 4 | (uint64_t)postern__hex_value(value[len]);
	}
	/* The beginning of a group is no filter, and would be another group. */
	if (value[len] != '\0' || len < POSTERN__ERROR_GROUP_DIGITS || group == 0) {
		postern__call_refuse(call, 400,
				"group: '%.40s' is not the group of an error: all %d "
				"hexadecimal digits, as in 'postern list --group-by error'",
				value, POSTERN__ERROR_GROUP_DIGITS);
		return false;
	}
	filter->group = group;
	return true;
}

static bool set_oldest(struct postern__call *call, const char *value,
		struct postern_filter *filter) {
	filter->oldest = strcmp(value, "true") == 0;
	if (!filter->oldest && strcmp(value, "false") != 0) {
		postern__call_refuse(call, 400, "oldest: '%.40s' is not true or false",
				value);
		return false;
	}
	return true;
}

static const struct member {
	const char *name;
	bool (*set)(struct postern__call *call, const char *value,
			struct postern_filter *filter);
} members[] = {
	{ "state", set_state },
	{ "channel", set_channel },
	{ "handler", set_handler },
	{ "type", set_type },
	{ "since", set_since },
	{ "until", set_until },
	{ "message_id", set_message_id },
	{ "source", set_source },
	{ "seq", set_seq },
	{ "error", set_error },
	{ "group", set_group },
	{ "oldest", set_oldest },
};

bool postern__call_filter(struct postern__call *call, const char *name,
		const char *value, struct postern_filter *filter) {
	/* An empty value would match everything, and a bulk edit would change
	   everything. */
	if (!*value) {
		postern__call_refuse(call, 400, "'%s' is empty", name);
		return false;
	}
	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
		if (strcmp(members[i].name, name) == 0) {
			return members[i].set(call, value, filter);
		}
	}
	postern__call_refuse(call, 400, "unknown filter '%s'", name);
	return false;
}

bool postern__call_limit(struct postern__call *call, const char *text,
		uint32_t *out) {
	uint64_t limit;
	if (postern__count_parse(text, 1, POSTERN_LIST_LIMIT_MAX, &limit, NULL) !=
			POSTERN_OK) {
		postern__call_refuse(call, 400,
				"limit: '%s' is not a number from 1 to %d", text,
				POSTERN_LIST_LIMIT_MAX);
		return false;
	}
	*out = (uint32_t)limit;
	return true;
}
