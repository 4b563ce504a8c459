/* SPDX-License-Identifier: MIT */

/*
 * Filters by error, by several ids, and from the oldest, for listings and for
 * edits; the total of an edit.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"
#include "core/error_group.h"

static int64_t poison(struct stand *stand, const char *id, const char *text) {
	int64_t seq = stand_accept_leased(stand, id, stand->handlers[0]);
	CHECK_INT(stand_settle(stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand->handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_POISONED,
							  .failures = 1,
							  .outcome = "poison",
							  .error = text,
					  }),
			POSTERN_OK);
	return seq;
}

/* The ids that a filter finds, each followed by a space. */
static const char *find(struct stand *stand,
		const struct postern_filter *filter) {
	static char ids[200];
	struct postern_page page = stand_list(stand, filter);
	ids[0] = '\0';
	for (size_t i = 0; i < page.count; i++) {
		size_t len = strlen(ids);
		(void)snprintf(ids + len, sizeof ids - len, "%s ",
				page.rows[i].message_id);
	}
	return ids;
}

static void by_error(void) {
	static const struct {
		const char *error;
		const char *ids;
	} rows[] = {
		{ "refused", "2 1 " },
		{ "REFUSED", "2 1 " },
		{ "connection refused", "1 " },
		{ "%", "3 " },
		{ "_", "" },
		{ "100%", "3 " },
		{ "10_%", "" },
		{ "\\", "4 " },
		{ "'", "4 " },
		{ "\xc3\xbc", "5 " },
		{ "\xc3\x9c", "" }, /* only ASCII letters are folded */
		{ "\xff", "" },
		{ "refused by the server", "2 " },
		{ "refused by the servers", "" },
	};
	struct stand stand;
	stand_open(&stand, "a", NULL);
	poison(&stand, "1", "Connection refused");
	poison(&stand, "2", "refused by the server");
	poison(&stand, "3", "disk is 100% full");
	poison(&stand, "4", "bad path 'C:\\x'");
	poison(&stand, "5", "\xc3\xbc is unknown");
	stand_accept(&stand, "6", stand.handlers[0]);
	stand_park(&stand, "7");
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_STR(find(&stand,
						  &(struct postern_filter){ .error = rows[i].error }),
				rows[i].ids);
	}
	uint64_t count = 0;
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_RETRY,
					 &(struct postern_filter){ .error = "%", .limit = 10 },
					 false, &count),
			&stand.error);
	CHECK_INT(count, 1);
	stand_close(&stand);
}

static void by_group(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	poison(&stand, "1", "no order 1");
	poison(&stand, "2", "no order 2");
	poison(&stand, "3", "something else");
	stand_accept(&stand, "4", stand.handlers[0]);
	stand_park(&stand, "5");
	struct postern_filter filter = {
		.group = postern__error_group("no order 3"),
		.limit = 10,
	};
	CHECK_STR(find(&stand, &filter), "2 1 ");
	filter.oldest = true;
	CHECK_STR(find(&stand, &filter), "1 2 ");
	uint64_t count = 0;
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 2);
	CHECK_STR(find(&stand, &filter), "");
	stand_close(&stand);
}

static void by_ids(void) {
	static const char *const ids[] = { "m3", "m1", "m1", "none", "\"],[\"\\",
		"\xff", "" };
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept_many(&stand, 5, stand.handlers[0]);
	struct postern_filter filter = {
		.message_ids = ids,
		.message_id_count = sizeof ids / sizeof ids[0],
		.limit = 10,
	};
	CHECK_STR(find(&stand, &filter), "m3 m1 ");
	filter.message_id = "m1";
	CHECK_STR(find(&stand, &filter), "m1 ");
	filter.message_id = NULL;
	uint64_t count = 0;
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 2);
	filter.message_ids = ids + 3;
	filter.message_id_count = 4;
	CHECK_STR(find(&stand, &filter), "");
	stand_close(&stand);
}

static void many_ids(void) {
	enum { COUNT = POSTERN_FILTER_ID_COUNT_MAX };
	static char texts[COUNT][POSTERN_ID_LEN_MAX + 1];
	const char *ids[COUNT];
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept_many(&stand, 5, stand.handlers[0]);
	for (size_t i = 0; i < COUNT; i++) {
		/* Control characters are the longest when they are escaped. */
		memset(texts[i], 1, POSTERN_ID_LEN_MAX);
		ids[i] = texts[i];
	}
	ids[COUNT - 1] = "m2";
	CHECK_STR(find(&stand, &(struct postern_filter){ .message_ids = ids,
								   .message_id_count = COUNT }),
			"m2 ");
	stand_close(&stand);
}

/* Page by page, both deliveries of each message, in both directions. */
static void from_the_oldest(void) {
	struct stand stand;
	struct parcel parcel;
	int64_t seqs[3];
	stand_open(&stand, "a", "b", NULL);
	for (int i = 0; i < 3; i++) {
		static const char *const ids[] = { "1", "2", "3" };
		parcel_init(&parcel, &stand, ids[i], "body");
		parcel_add_route(&parcel, stand.handlers[0]);
		parcel_add_route(&parcel, stand.handlers[1]);
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
		seqs[i] = parcel.accept.seq;
	}
	stand_finish(&stand, seqs[1], stand.handlers[0], POSTERN_SETTLE_DONE);
	(void)stand_park(&stand, "4");
	CHECK_STR(find(&stand, &(struct postern_filter){ .oldest = true }),
			"1 1 2 2 3 3 4 ");
	struct postern_filter filter = { .oldest = true, .limit = 1 };
	struct postern_query query = { .filter = &filter };
	char walked[50] = "";
	for (int i = 0; i < 10; i++) {
		struct postern_page page = { 0 };
		CHECK_OK(stand.ops->list(stand.store, &query, stand.memory, &page,
						 &stand.error),
				&stand.error);
		if (page.count == 0) {
			break;
		}
		size_t len = strlen(walked);
		(void)snprintf(walked + len, sizeof walked - len, "%s ",
				page.rows[0].message_id);
		query.after_seq = page.last_seq;
		query.after_handler = page.last_handler;
	}
	CHECK_STR(walked, "1 1 2 2 3 3 4 ");
	stand_close(&stand);
}

static void oldest_are_edited(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	poison(&stand, "1", "x");
	poison(&stand, "2", "x");
	poison(&stand, "3", "x");
	uint64_t count = 0;
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD,
					 &(struct postern_filter){ .handler = "a",
							 .oldest = true,
							 .limit = 2 },
					 false, &count),
			&stand.error);
	CHECK_INT(count, 2);
	CHECK_STR(find(&stand,
					  &(struct postern_filter){
							  .state = POSTERN_STATE_POISONED }),
			"3 ");
	stand_close(&stand);
}

static void totals(void) {
	static const struct {
		enum postern_change_kind kind;
		uint32_t limit;
		uint64_t count;
		uint64_t total;
	} rows[] = {
		/* Poisoned, pending and discarded ones; not the one that is done, nor
		   the parked message or the discarded parked one. */
		{ POSTERN_CHANGE_RETRY, 2, 2, 5 },
		{ POSTERN_CHANGE_RETRY, 5, 5, 5 },
		{ POSTERN_CHANGE_RETRY, 6, 5, 5 },
		/* Poisoned, pending and parked ones. */
		{ POSTERN_CHANGE_DISCARD, 1, 1, 5 },
		{ POSTERN_CHANGE_DISCARD, 100, 5, 5 },
	};
	struct stand stand;
	stand_open(&stand, "a", NULL);
	poison(&stand, "1", "x");
	poison(&stand, "2", "x");
	poison(&stand, "3", "x");
	int64_t seq = poison(&stand, "4", "x");
	stand_edit(&stand, POSTERN_CHANGE_DISCARD, seq, "a", NULL);
	seq = stand_accept(&stand, "5", stand.handlers[0]);
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_DONE);
	stand_accept_leased(&stand, "6", stand.handlers[0]);
	seq = stand_park(&stand, "7");
	stand_edit(&stand, POSTERN_CHANGE_DISCARD, seq, "", NULL);
	stand_park(&stand, "8");
	stand_accept(&stand, "9", stand.handlers[0]);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern_filter filter = {
			.channel = "orders",
			.limit = rows[i].limit,
		};
		struct postern_edit edit = {
			.kind = rows[i].kind,
			.filter = &filter,
			.dry_run = true,
		};
		CHECK_OK(stand.ops->edit(stand.store, &edit, &stand.error),
				&stand.error);
		CHECK_INT(edit.count, rows[i].count);
		CHECK_INT(edit.total, rows[i].total);
	}
	stand_close(&stand);
}

const struct tap_case filter_cases[] = {
	{ "a text in the last error is found regardless of case", by_error },
	{ "deliveries are found by the group of their error", by_group },
	{ "several ids match any of them", by_ids },
	{ "a filter may have 1,000 of the longest ids", many_ids },
	{ "a listing may begin with the oldest message", from_the_oldest },
	{ "an edit may begin with the oldest message", oldest_are_edited },
	{ "the total of an edit counts beyond its limit", totals },
	{ NULL, NULL },
};
