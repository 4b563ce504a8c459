/* SPDX-License-Identifier: MIT */

/*
 * Names of channels: a name belongs to one channel for good, so a channel that
 * gets another name keeps its identity, its messages and its retention.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#include <string.h>

/* Enrols one channel; `former` ends with NULL. */
static int enrol_name(struct stand *stand, const char *name,
		const char *const *former, struct postern_enrol_channel *channel) {
	*channel = (struct postern_enrol_channel){
		.name = name,
		.former_names = former,
		.max_size = 1000,
	};
	while (former && former[channel->former_name_count]) {
		channel->former_name_count++;
	}
	struct postern_enrolment enrolment = {
		.node = stand->node,
		.channels = channel,
		.channel_count = 1,
	};
	return stand->ops->enrol(stand->store, &enrolment, &stand->error);
}

static struct postern_enrol_channel rename_channel(struct stand *stand,
		const char *name, const char *former) {
	const char *const names[] = { former, NULL };
	struct postern_enrol_channel channel;
	CHECK_OK(enrol_name(stand, name, former ? names : NULL, &channel),
			&stand->error);
	return channel;
}

static size_t count_of(struct stand *stand, const char *channel,
		const char *source) {
	struct postern_filter filter = {
		.size = sizeof filter,
		.limit = 10,
		.channel = channel,
		.source = source,
	};
	return stand_list(stand, &filter).count;
}

static void renamed_keeps_id(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	struct postern_enrol_channel sales =
			rename_channel(&stand, "sales", "orders");
	CHECK_INT(sales.id, stand.orders);
	CHECK_STR(sales.first_name, "orders");
	CHECK_STR(stand_get(&stand, seq).channel, "sales");
	CHECK_STR(stand_row(&stand, seq, "a").channel, "sales");
	CHECK_STR(stand_channel_stats(&stand, "sales").name, "sales");
	CHECK(!stand_channel_stats(&stand, "orders").name);
	struct postern_stats stats = stand_stats(&stand);
	size_t both = 0;
	for (size_t i = 0; i < stats.name_count; i++) {
		both += strcmp(stats.names[i].channel, "sales") == 0 &&
				(strcmp(stats.names[i].name, "sales") == 0 ||
						strcmp(stats.names[i].name, "orders") == 0);
	}
	CHECK_INT(both, 2);
	/* Another one continues it further. */
	struct postern_enrol_channel shop =
			rename_channel(&stand, "shop", "orders");
	CHECK_INT(shop.id, stand.orders);
	CHECK_STR(shop.first_name, "orders");
	CHECK_STR(stand_get(&stand, seq).channel, "shop");
	stand_close(&stand);
}

static void old_name_changes_nothing(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	rename_channel(&stand, "sales", "orders");
	struct postern_enrol_channel old = rename_channel(&stand, "orders", NULL);
	CHECK_INT(old.id, stand.orders);
	CHECK_STR(stand_get(&stand, seq).channel, "sales");
	/* The new name alone resolves, too, and the old one can come back. */
	CHECK_INT(rename_channel(&stand, "sales", NULL).id, stand.orders);
	CHECK_INT(rename_channel(&stand, "orders", "sales").id, stand.orders);
	CHECK_STR(stand_get(&stand, seq).channel, "orders");
	stand_close(&stand);
}

static void unknown_names_are_one(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	struct postern_enrol_channel made = rename_channel(&stand, "new", "old");
	CHECK_STR(made.first_name, "new");
	CHECK_INT(rename_channel(&stand, "old", NULL).id, made.id);
	CHECK(made.id != stand.orders && made.id != stand.bills);
	stand_close(&stand);
}

static void separate_names_are_refused(void) {
	static const char *const former[] = { "older", "orders", NULL };
	struct stand stand;
	struct postern_enrol_channel channel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(enrol_name(&stand, "bills", former, &channel), POSTERN_E_INVALID);
	CHECK_CONTAINS(stand.error.text, "'bills' cannot continue 'orders'");
	/* Nothing has changed: neither name, and "older" is free. */
	CHECK_STR(stand_get(&stand, seq).channel, "orders");
	CHECK_INT(rename_channel(&stand, "bills", NULL).id, stand.bills);
	struct postern_enrol_channel older = rename_channel(&stand, "older", NULL);
	CHECK(older.id != stand.orders && older.id != stand.bills);
	stand_close(&stand);
}

static void filters_take_every_name(void) {
	struct stand stand;
	struct parcel parcel;
	int64_t seqs[4];
	size_t count = 0;
	uint64_t edited;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel.message.source = "orders"; /* as a message without one has it */
	parcel_add_route(&parcel, stand.handlers[0]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	(void)stand_accept(&stand, "2", stand.handlers[0]);
	rename_channel(&stand, "sales", "orders");
	CHECK_INT(count_of(&stand, "sales", NULL), 2);
	CHECK_INT(count_of(&stand, "orders", NULL), 2);
	CHECK_INT(count_of(&stand, "bills", NULL), 0);
	CHECK_INT(count_of(&stand, NULL, "sales"), 1);
	CHECK_INT(count_of(&stand, NULL, "orders"), 1);
	CHECK_INT(count_of(&stand, NULL, "shop"), 1);
	CHECK_STR(stand_row(&stand, parcel.accept.seq, "a").source, "orders");
	static const char *const names[] = { "sales", "orders" };
	for (int i = 0; i < 2; i++) {
		CHECK_OK(stand.ops->find(stand.store, "1", names[i], names[1 - i], seqs,
						 4, &count, &stand.error),
				&stand.error);
		CHECK_INT(count, 1);
		CHECK_INT(stand_edit_all(&stand, POSTERN_CHANGE_RETRY,
						  &(struct postern_filter){
								  .size = sizeof(struct postern_filter),
								  .channel = names[i],
								  .limit = 10,
						  },
						  true, &edited),
				POSTERN_OK);
	}
	stand_close(&stand);
}

static void copies_are_found_after_a_rename(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel.message.source = "orders";
	parcel_add_route(&parcel, stand.handlers[0]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	rename_channel(&stand, "sales", "orders");
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	parcel.message.body = "Body";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	stand_close(&stand);
}

static size_t read_rules(struct stand *stand, struct postern_retention **out) {
	size_t count = 0;
	CHECK_OK(stand->ops->read_retention(stand->store, stand->memory, out,
					 &count, &stand->error),
			&stand->error);
	return count;
}

static void enrol_retention(struct stand *stand, int64_t payload_ms,
		int64_t dedupe_ms) {
	struct postern_enrol_channel channel = {
		.name = "orders",
		.max_size = 1000,
		.retention = { .payload_ms = payload_ms, .dedupe_ms = dedupe_ms },
	};
	struct postern_enrolment enrolment = {
		.node = stand->node,
		.channels = &channel,
		.channel_count = 1,
	};
	CHECK_OK(stand->ops->enrol(stand->store, &enrolment, &stand->error),
			&stand->error);
}

static void retention_is_kept(void) {
	struct stand stand;
	struct postern_retention *rules = NULL;
	stand_open(&stand, NULL);
	CHECK_INT(read_rules(&stand, &rules), 0);
	enrol_retention(&stand, 1000, 5000);
	stand_crash(&stand);
	if (CHECK_INT(read_rules(&stand, &rules), 1)) {
		CHECK_INT(rules[0].channel, stand.orders);
		CHECK_INT(rules[0].payload_ms, 1000);
		CHECK_INT(rules[0].dedupe_ms, 5000);
	}
	/* The last enrolment decides, also without a limit. */
	enrol_retention(&stand, 2000, -1);
	if (CHECK_INT(read_rules(&stand, &rules), 1)) {
		CHECK_INT(rules[0].payload_ms, 2000);
		CHECK_INT(rules[0].dedupe_ms, -1);
	}
	enrol_retention(&stand, 0, -1);
	CHECK_INT(read_rules(&stand, &rules), 0);
	stand_close(&stand);
}

const struct tap_case name_cases[] = {
	{ "a renamed channel keeps its id and its messages", renamed_keeps_id },
	{ "a node with a former name has the same channel and does not rename it",
			old_name_changes_nothing },
	{ "unknown names of one channel are one channel", unknown_names_are_one },
	{ "a channel cannot continue one with an identity of its own",
			separate_names_are_refused },
	{ "filters accept every name of a channel", filters_take_every_name },
	{ "a copy that is sent after a rename is found",
			copies_are_found_after_a_rename },
	{ "the retention of the last enrolment is kept", retention_is_kept },
	{ 0 },
};
