/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_RENAME_H
#define POSTERN_TESTS_RENAME_H

/*
 * A channel gets another name: what a box and its nodes make of that, on a
 * store of any kind, whose URL and schema the including test supplies.
 */

#include "tap.h"

#include <postern/postern.h>
#include <stdlib.h>
#include <string.h>

static const char *scene_url(void);
static const char *scene_schema(void);
static const struct postern_clock *scene_clock(void);

static void count_run(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)delivery;
	(void)outcome;
	(void)message;
	(*(int *)context)++;
}

/* A box with one channel and one handler; former may be NULL. */
static struct postern_box *open_box(const char *url, const char *name,
		const char *former, int64_t keep_ms, void *runs) {
	struct postern_error error;
	struct postern_box *box = NULL;
	const struct postern_box_options options = {
		.size = sizeof(options),
		.schema = scene_schema(),
		.clock = scene_clock(),
	};
	const struct postern_channel_options channel = {
		.size = sizeof(channel),
		.former_names = &former,
		.former_name_count = former != NULL,
		.retention_payload_ms = keep_ms,
	};
	const struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = count_run,
		.context = runs,
	};
	CHECK_OK(postern_box_open(url, &options, &box, &error), &error);
	CHECK_OK(postern_box_add_channel(box, name, &channel, &error), &error);
	CHECK_OK(postern_box_add_handler(box, name, &handler, &error), &error);
	return box;
}

static struct postern_box *start_box(const char *url, const char *name,
		const char *former, int64_t keep_ms, int *runs) {
	struct postern_error error;
	struct postern_box *box = open_box(url, name, former, keep_ms, runs);
	CHECK_OK(postern_box_start(box, &error), &error);
	return box;
}

static int send_to(struct postern_box *box, const char *channel, const char *id,
		const char *source) {
	const struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.source = source,
		.body = "x",
		.body_len = 1,
	};
	return postern_box_accept(box, channel, &message, NULL, NULL);
}

/* A raw message is the same one by every name, whoever sends it. */
static void check_copies(struct postern_box *box, const char *channel) {
	CHECK_INT(send_to(box, channel, "raw", NULL), POSTERN_E_DUPLICATE);
	CHECK_INT(send_to(box, channel, "raw", "orders"), POSTERN_E_DUPLICATE);
	CHECK_INT(send_to(box, channel, "raw", "sales"), POSTERN_E_DUPLICATE);
}

static size_t process(struct postern_box *box) {
	struct postern_error error;
	size_t count = 0;
	CHECK_OK(postern_box_process(box, 0, &count, &error), &error);
	return count;
}

static void renamed_after_a_restart(void) {
	const char *url = scene_url();
	int runs = 0;
	struct postern_box *box = start_box(url, "orders", NULL, 0, &runs);
	CHECK_INT(send_to(box, "orders", "raw", NULL), POSTERN_OK);
	postern_box_destroy(box);

	box = start_box(url, "sales", "orders", 0, &runs);
	check_copies(box, "sales");
	check_copies(box, "orders");
	CHECK_INT(send_to(box, "orders", "late", NULL), POSTERN_OK);
	CHECK_INT(send_to(box, "sales", "late", "sales"), POSTERN_E_DUPLICATE);
	CHECK_INT(send_to(box, "sales", "raw", "shop"), POSTERN_OK);
	CHECK_INT(process(box), 3);
	CHECK_INT(runs, 3);
	postern_box_destroy(box);

	/* Without the former name the channel is still the same one. */
	box = start_box(url, "sales", NULL, 0, &runs);
	CHECK_INT(send_to(box, "sales", "raw", NULL), POSTERN_E_DUPLICATE);
	CHECK_INT(send_to(box, "sales", "raw", "orders"), POSTERN_E_DUPLICATE);
	CHECK_INT(send_to(box, "orders", "raw", NULL), POSTERN_E_NOTFOUND);
	postern_box_destroy(box);
}

static void two_identities(void) {
	const char *url = scene_url();
	struct postern_error error;
	int runs = 0;
	postern_box_destroy(start_box(url, "orders", NULL, 0, &runs));
	postern_box_destroy(start_box(url, "sales", NULL, 0, &runs));
	struct postern_box *box = open_box(url, "sales", "orders", 0, &runs);
	CHECK_INT(postern_box_start(box, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "'sales' cannot continue 'orders'");
	postern_box_destroy(box);
}

static struct postern_generation *next_generation(struct postern_box *box,
		const char *name, const char *former, void *runs) {
	struct postern_error error;
	struct postern_generation *next = NULL;
	const struct postern_channel_options channel = {
		.size = sizeof(channel),
		.former_names = &former,
		.former_name_count = former != NULL,
	};
	const struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = count_run,
		.context = runs,
	};
	CHECK_OK(postern_generation_create(box, &next, &error), &error);
	CHECK_OK(postern_generation_add_channel(next, name, &channel, &error),
			&error);
	CHECK_OK(postern_generation_add_handler(next, name, &handler, &error),
			&error);
	return next;
}

static void renamed_in_a_generation(void) {
	struct postern_error error;
	int runs = 0;
	struct postern_box *box = start_box(scene_url(), "orders", NULL, 0, &runs);
	CHECK_INT(send_to(box, "orders", "raw", NULL), POSTERN_OK);
	CHECK_OK(postern_box_replace_taking(box,
					 next_generation(box, "sales", "orders", &runs), &error),
			&error);
	check_copies(box, "sales");
	check_copies(box, "orders");
	CHECK_INT(process(box), 1);
	postern_box_destroy(box);
}

static void bad_names(void) {
	static const struct {
		const char *names[3];
		const char *text;
	} table[] = {
		{ { "", NULL }, "name" },
		{ { "a b", NULL }, "may only have" },
		{ { "sales", NULL }, "has the name 'sales' twice" },
		{ { "a", "a", NULL }, "has the name 'a' twice" },
		{ { "bills", NULL }, "there are two channels named 'bills'" },
		{ { "invoices", NULL }, "a former name of channel 'bills'" },
	};
	static const char *const invoices = "invoices";
	const char *many[POSTERN_FORMER_NAME_COUNT_MAX + 1] = { 0 };
	struct postern_error error;
	int runs = 0;
	const struct postern_channel_options bills = {
		.size = sizeof(bills),
		.former_names = &invoices,
		.former_name_count = 1,
	};
	struct postern_box *box = open_box(scene_url(), "x", NULL, 0, &runs);
	CHECK_OK(postern_box_add_channel(box, "bills", &bills, &error), &error);
	CHECK_INT(postern_box_add_channel(box, "invoices", NULL, &error),
			POSTERN_E_INVALID);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct postern_channel_options options = {
			.size = sizeof(options),
			.former_names = table[i].names,
		};
		while (table[i].names[options.former_name_count]) {
			options.former_name_count++;
		}
		CHECK_INT(postern_box_add_channel(box, "sales", &options, &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, table[i].text);
	}
	const struct postern_channel_options options = {
		.size = sizeof(options),
		.former_names = many,
		.former_name_count = POSTERN_FORMER_NAME_COUNT_MAX + 1,
	};
	CHECK_INT(postern_box_add_channel(box, "sales", &options, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "more than 16 former names");
	postern_box_destroy(box);
}

/* Filters know former names also if nothing has been found under them. */
static void filter_finds_former_name(void) {
	struct postern_error error;
	struct postern_stats *stats = NULL;
	struct postern_listing *listing = NULL;
	struct postern_filter filter = { .size = sizeof(filter),
		.channel = "orders" };
	const char *url = scene_url();
	int runs = 0;
	postern_box_destroy(start_box(url, "orders", NULL, 0, &runs));
	struct postern_box *box = start_box(url, "sales", "orders", 0, &runs);
	CHECK_OK(postern_box_list(box, &filter, &listing, &error), &error);
	CHECK_INT(postern_listing_count(listing), 0);
	postern_listing_destroy(listing);
	filter.channel = "order";
	CHECK_INT(postern_box_list(box, &filter, &listing, &error),
			POSTERN_E_NOTFOUND);
	CHECK_CONTAINS(error.text, "did you mean 'orders'?");
	CHECK_OK(postern_box_stats(box, &stats, &error), &error);
	CHECK_INT(stats->channel_count, 1);
	CHECK(stats->channels[0].registered);
	postern_stats_destroy(stats);
	postern_box_destroy(box);
	box = start_box(url, "bills", NULL, 0, &runs);
	CHECK_OK(postern_box_stats(box, &stats, &error), &error);
	CHECK_STR(stats->channels[0].name, "sales");
	CHECK(!stats->channels[0].registered);
	CHECK(stats->channels[1].registered);
	postern_stats_destroy(stats);
	postern_box_destroy(box);
}

#define RENAME_CASES                                                   \
	{ "a renamed channel keeps identities and open deliveries",        \
		renamed_after_a_restart },                                     \
			{ "a channel is not renamed to one with its own identity", \
				two_identities },                                      \
			{ "a generation renames a channel while the box works",    \
				renamed_in_a_generation },                             \
			{ "a filter accepts a former name of a channel",           \
				filter_finds_former_name },                            \
	{                                                                  \
		"bad former names are refused", bad_names                      \
	}

#endif
