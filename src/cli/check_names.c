/* SPDX-License-Identifier: MIT */
/*
 * The names of each configured channel are resolved by the function with which
 * stores do it when a server starts, on a copy of the names that the store has.
 */

#include "cli/check_names.h"

#include <inttypes.h>
#include <postern/error.h>
#include <postern/sys/store_enrol.h>
#include <stdio.h>
#include <string.h>

#include "server/left.h"
#include "store/common.h"

/* The id of a channel here is its place in the statistics, from 1. */
static int find_name(void *context, const char *name, int64_t *id_out,
		struct postern_error *error) {
	const struct postern_stats *stats = context;
	(void)error;
	*id_out = 0;
	for (size_t i = 0; i < stats->name_count; i++) {
		for (size_t n = 0; strcmp(stats->names[i].name, name) == 0 &&
						   n < stats->channel_count;
				n++) {
			if (strcmp(stats->channels[n].name, stats->names[i].channel) == 0) {
				*id_out = (int64_t)n + 1;
			}
		}
	}
	return POSTERN_OK;
}

static int create_name(void *context, const char *name, int64_t *id_out,
		struct postern_error *error) {
	const struct postern_stats *stats = context;
	(void)name;
	(void)error;
	*id_out = (int64_t)stats->channel_count + 1;
	return POSTERN_OK;
}

static int add_name(void *context, int64_t id, const char *name,
		struct postern_error *error) {
	(void)context;
	(void)id;
	(void)name;
	(void)error;
	return POSTERN_OK;
}

static int rename_channel(void *context, int64_t id, const char *name,
		const char *from, struct postern_error *error) {
	(void)context;
	(void)id;
	(void)name;
	(void)from;
	(void)error;
	return POSTERN_OK;
}

/* Changes nothing. */
static const struct postern__channel_namer reader = {
	.find = find_name,
	.create = create_name,
	.add = add_name,
	.rename = rename_channel,
};

/* Whether the store has no name of the channel yet; reports names that belong
   to different channels. */
static bool is_new(const struct postern__config_channel *channel,
		const struct postern_stats *stats, postern__names_report *report,
		void *context) {
	struct postern_error error;
	struct postern_enrol_channel enrol = {
		.name = channel->name,
		.former_names = channel->former_names,
		.former_name_count = channel->former_name_count,
	};
	int r = postern__channel_resolve(&enrol, &reader, (void *)(uintptr_t)stats,
			&error);
	if (r) {
		report(context, r, error.text);
	}
	return !r && enrol.id > (int64_t)stats->channel_count;
}

/* A channel that left while another one is new has probably been renamed. */
static void suspect_rename(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_stats *stats, const char *name,
		postern__names_report *report, void *context) {
	for (size_t i = 0; i < stats->channel_count; i++) {
		const struct postern_channel_stats *left = &stats->channels[i];
		char text[POSTERN__LEFT_TEXT_MAX];
		if (left->accepted == 0 ||
				!postern__left_channel(config, store, stats, left)) {
			continue;
		}
		(void)snprintf(text, sizeof text,
				"channel '%s' is new, and '%s' with %" PRIu64
				" accepted message%s is not in the configuration any more: if "
				"it was renamed, add former_names: [%s] to '%s' before the "
				"server starts, or copies of old messages are new",
				name, left->name, left->accepted,
				left->accepted == 1 ? "" : "s", left->name, name);
		report(context, POSTERN_OK, text);
	}
}

void postern__names_check(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_stats *stats, postern__names_report *report,
		void *context) {
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		if (channel->store == store &&
				is_new(channel, stats, report, context)) {
			suspect_rename(config, store, stats, channel->name, report,
					context);
		}
	}
}
