/* SPDX-License-Identifier: MIT */
/*
 * The flags that filter, and what the API calls them.
 */

#include "cli/filters.h"

#include "cli/cli.h"

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
};

const char *postern__filter_next(const struct postern__cli *cli, size_t *index,
		const char **name_out) {
	while (*index < sizeof filters / sizeof filters[0]) {
		const struct filter *filter = &filters[(*index)++];
		const char *value = postern__args_value(&cli->args, filter->flag);
		if (value) {
			*name_out = filter->name;
			return value;
		}
	}
	return NULL;
}
