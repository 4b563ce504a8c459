/* SPDX-License-Identifier: MIT */

/*
 * The route that counts errors by group. Each store has its own groups; they
 * are not added up, because their examples and times are of the stores.
 */

#include <inttypes.h>
#include <postern/box.h>
#include <postern/error.h>
#include <postern/inspect.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "core/error_group.h"
#include "server/api.h"
#include "server/route.h"

void postern__write_group(struct postern__buf *buf, uint64_t group) {
	/* More digits than a JSON number can hold exactly. */
	char text[POSTERN__ERROR_GROUP_DIGITS + 1];
	(void)snprintf(text, sizeof text, "%016" PRIx64, group);
	postern__json_pair_text(buf, "group", group ? text : NULL);
}

static bool read_filter(struct postern__call *call,
		struct postern_filter *filter) {
	static const char *const names[] = { "state", "channel", "handler", "type",
		"since", "until", "error", "group", "store", NULL };
	struct postern__parameter parameters[POSTERN__PARAMETER_COUNT_MAX];
	size_t count;
	*filter = (struct postern_filter){ .size = sizeof *filter };
	if (!postern__call_query(call, names, parameters, &count)) {
		return false;
	}
	for (size_t i = 0; i < count; i++) {
		const char *name = parameters[i].name;
		const char *value = parameters[i].value;
		bool good = strcmp(name, "store") == 0
							? postern__call_choose(call, value)
							: postern__call_filter(call, name, value, filter);
		if (!good) {
			return false;
		}
	}
	return true;
}

static void write_groups(struct postern__buf *buf, const char *store,
		const struct postern_groups *groups) {
	for (size_t i = 0; i < postern_groups_count(groups); i++) {
		const struct postern_group *group = postern_groups_get(groups, i);
		postern__json_open(buf, '{');
		postern__json_pair_text(buf, "store", store);
		postern__write_group(buf, group->group);
		postern__json_pair_text(buf, "handler", group->handler);
		postern__json_pair_uint(buf, "count", group->count);
		postern__write_time(buf, "first_at", group->first_at_ms);
		postern__write_time(buf, "last_at", group->last_at_ms);
		postern__json_pair_text(buf, "example", group->example);
		postern__json_close(buf, '}');
	}
}

void postern__route_groups(struct postern__call *call) {
	struct postern__buf *body = &call->response->body;
	struct postern_filter filter;
	struct postern_error error;
	bool known = false;
	if (!read_filter(call, &filter) ||
			!postern__call_may_filter(call, &filter)) {
		return;
	}
	postern__json_open(body, '{');
	postern__json_key(body, "items");
	postern__json_open(body, '[');
	for (size_t i = 0; i < call->store_count; i++) {
		const struct postern__open_store *store = call->stores[i];
		struct postern_groups *groups;
		int r = postern_box_groups(store->box, &filter, &groups, &error);
		if (r == POSTERN_OK) {
			known = true;
			write_groups(body, store->name, groups);
			postern_groups_destroy(groups);
		} else if (r != POSTERN_E_NOTFOUND) {
			postern__call_fail_in(call, store, &error);
			return;
		}
	}
	if (!known) {
		postern__call_fail(call, &error);
		return;
	}
	postern__json_close(body, ']');
	postern__json_close(body, '}');
	call->response->status = 200;
}
