/* SPDX-License-Identifier: MIT */
/*
 * The flags that filter, and their names in the API.
 */

#include "cli/filters.h"

#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/reply.h"
#include "server/api.h"
#include "server/route.h"

static const struct filter {
	const char *flag;
	const char *name;
} filters[] = {
	{ "state", "state" },
	{ "channel", "channel" },
	{ "handler", "handler" },
	{ "type", "type" },
	{ "source", "source" },
	{ "since", "since" },
	{ "until", "until" },
	{ "id", "message_id" },
	{ "seq", "seq" },
	{ "error", "error" },
	{ "group", "group" },
	{ "older-than", "until" },
	{ "oldest", "oldest" },
};

const char *postern__filter_next(const struct postern__cli *cli, size_t *index,
		const char **name_out) {
	while (*index < sizeof filters / sizeof filters[0]) {
		const struct filter *filter = &filters[(*index)++];
		const char *value = postern__args_value(&cli->args, filter->flag);
		if (!value && postern__args_has(&cli->args, filter->flag)) {
			value = "true"; /* a switch */
		}
		if (value) {
			*name_out = filter->name;
			return value;
		}
	}
	return NULL;
}

/* The filter flags of a command, validated as the API does. */
static bool set_all(const struct postern__cli *cli, struct postern__call *call,
		enum postern__edit edit) {
	struct postern_filter filter = { .size = sizeof filter };
	const char *limit = postern__args_value(&cli->args, "limit");
	const char *name;
	const char *value;
	size_t index = 0;
	while ((value = postern__filter_next(cli, &index, &name))) {
		if (!postern__call_filter(call, name, value, &filter)) {
			return false;
		}
	}
	return (!limit || postern__call_limit(call, limit, &filter.limit)) &&
		   postern__call_edit_state(call, filter.state, edit);
}

int postern__filters_check(const struct postern__cli *cli,
		enum postern__edit edit) {
	const struct postern__api api = { 0 };
	struct postern__response response;
	struct postern__call call = { .api = &api, .response = &response };
	int r = POSTERN__EXIT_OK;
	if (postern__args_has(&cli->args, "until") &&
			postern__args_has(&cli->args, "older-than")) {
		return postern__cli_usage(cli,
				"--older-than and --until cannot be combined");
	}
	const char *age = postern__args_value(&cli->args, "older-than");
	if (age && *age && age[strspn(age, "0123456789")] == '\0') {
		return postern__cli_usage(cli,
				"--older-than: '%s' has no unit, write %ss, %sm, %sh or %sd",
				age, age, age, age, age);
	}
	postern__response_init(&response);
	if (!set_all(cli, &call, edit)) {
		const struct postern__reply answer = {
			.status = response.status,
			.json = json_loadb(postern__buf_text(&response.body),
					response.body.len, 0, NULL),
		};
		r = postern__reply_problem(cli, &answer);
		json_decref(answer.json);
	}
	postern__response_finish(&response);
	return r;
}
