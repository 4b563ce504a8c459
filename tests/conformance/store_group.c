/* SPDX-License-Identifier: MIT */

/*
 * Groups of errors: which deliveries have one, how they are counted, and the
 * examples that a store keeps.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"
#include "core/error_group.h"

static struct postern_groups_page {
	struct postern_group *groups;
	size_t count;
} count_groups(struct stand *stand, const struct postern_filter *filter) {
	struct postern_groups_page page = { 0 };
	CHECK_OK(stand->ops->groups(stand->store, filter, stand->memory,
					 &page.groups, &page.count, &stand->error),
			&stand->error);
	return page;
}

static const struct postern_filter everything = { 0 };

/* Settle a leased delivery with an error. */
static void fail_as(struct stand *stand, int64_t seq, uint64_t fence,
		enum postern_settle_to to, const char *text) {
	CHECK_INT(stand_settle(stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand->handlers[0],
							  .fence = fence,
							  .to = to,
							  .failures = (uint32_t)fence,
							  .outcome = to == POSTERN_SETTLE_POISONED
												 ? "poison"
												 : "retry",
							  .error = text,
					  }),
			POSTERN_OK);
}

/* A message that has failed. */
static int64_t fail_new(struct stand *stand, const char *id,
		enum postern_settle_to to, const char *text) {
	int64_t seq = stand_accept_leased(stand, id, stand->handlers[0]);
	fail_as(stand, seq, 1, to, text);
	return seq;
}

static uint64_t group_of(struct stand *stand, int64_t seq) {
	return stand_row(stand, seq, "a").group;
}

static void who_has_one(void) {
	static const char text[] = "no order 17";
	const uint64_t group = postern__error_group(text);
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t handler = stand.handlers[0];
	int64_t fresh = stand_accept(&stand, "fresh", handler);
	int64_t open = fail_new(&stand, "open", POSTERN_SETTLE_PENDING, text);
	int64_t dead = fail_new(&stand, "dead", POSTERN_SETTLE_POISONED, text);
	int64_t dropped =
			fail_new(&stand, "dropped", POSTERN_SETTLE_DISCARDED, text);
	CHECK_INT(group_of(&stand, fresh), 0);
	CHECK(group_of(&stand, open) == group);
	CHECK(group_of(&stand, dead) == group);
	CHECK_INT(group_of(&stand, dropped), 0);
	CHECK(stand_get(&stand, dead).deliveries[0].row.group == group);

	/* A claim and a return keep it, an end as done does not. */
	struct postern_claims claims = stand_claim(&stand, handler, 10);
	CHECK_INT(claims.count, 2);
	CHECK(group_of(&stand, open) == group);
	CHECK_INT(stand_settle_to(&stand, open, handler, 2,
					  POSTERN_SETTLE_RETURNED),
			POSTERN_OK);
	CHECK(group_of(&stand, open) == group);
	stand_claim(&stand, handler, 10);
	CHECK_INT(stand_settle_to(&stand, open, handler, 3, POSTERN_SETTLE_DONE),
			POSTERN_OK);
	CHECK_INT(group_of(&stand, open), 0);
	stand_close(&stand);
}

static void last_error_counts(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t handler = stand.handlers[0];
	int64_t seq = fail_new(&stand, "1", POSTERN_SETTLE_PENDING, "first");
	stand_claim(&stand, handler, 1);
	fail_as(&stand, seq, 2, POSTERN_SETTLE_PENDING, "second");
	CHECK(group_of(&stand, seq) == postern__error_group("second"));
	/* Without an error the last one stays. */
	stand_claim(&stand, handler, 1);
	fail_as(&stand, seq, 3, POSTERN_SETTLE_PENDING, NULL);
	CHECK(group_of(&stand, seq) == postern__error_group("second"));
	stand_claim(&stand, handler, 1);
	fail_as(&stand, seq, 4, POSTERN_SETTLE_POISONED, NULL);
	CHECK(group_of(&stand, seq) == postern__error_group("second"));
	stand_close(&stand);
}

static void edits(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t open = fail_new(&stand, "open", POSTERN_SETTLE_PENDING, "x");
	int64_t dead = fail_new(&stand, "dead", POSTERN_SETTLE_POISONED, "x");
	int64_t gone = fail_new(&stand, "gone", POSTERN_SETTLE_POISONED, "x");
	int64_t back = fail_new(&stand, "back", POSTERN_SETTLE_PENDING, "x");
	/* A retry of a pending delivery keeps its failures. */
	stand_edit(&stand, POSTERN_CHANGE_RETRY, open, "a", NULL);
	CHECK(group_of(&stand, open) == postern__error_group("x"));
	stand_edit(&stand, POSTERN_CHANGE_RETRY, dead, "a", NULL);
	CHECK_INT(group_of(&stand, dead), 0);
	stand_edit(&stand, POSTERN_CHANGE_DISCARD, gone, "a", NULL);
	CHECK_INT(group_of(&stand, gone), 0);
	stand_edit(&stand, POSTERN_CHANGE_DISCARD, back, "a", NULL);
	CHECK_INT(group_of(&stand, back), 0);
	CHECK_INT(count_groups(&stand, &everything).count, 1);
	stand_close(&stand);
}

static void counting(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	int64_t begin = stand_now(&stand);
	fail_new(&stand, "1", POSTERN_SETTLE_PENDING, "no order 1");
	fake_clock_advance(&stand.clock, 5000);
	fail_new(&stand, "2", POSTERN_SETTLE_POISONED, "no order 2");
	fail_new(&stand, "3", POSTERN_SETTLE_POISONED, "'%_\\ \xc3\xbc' is odd");
	stand_accept(&stand, "4", stand.handlers[1]);
	struct postern_groups_page page = count_groups(&stand, &everything);
	if (CHECK_INT(page.count, 2)) {
		CHECK_INT(page.groups[0].count, 2);
		CHECK(page.groups[0].group == postern__error_group("no order 3"));
		CHECK_STR(page.groups[0].handler, "a");
		CHECK_STR(page.groups[0].example, "no order 1");
		CHECK_INT(page.groups[0].first_at_ms, begin);
		CHECK_INT(page.groups[0].last_at_ms, begin + 5000);
		CHECK_INT(page.groups[1].count, 1);
		CHECK_STR(page.groups[1].example, "'%_\\ \xc3\xbc' is odd");
	}
	const struct {
		struct postern_filter filter;
		size_t count;
	} rows[] = {
		{ { .state = POSTERN_STATE_PENDING }, 1 },
		{ { .state = POSTERN_STATE_POISONED }, 2 },
		{ { .state = POSTERN_STATE_DONE }, 0 },
		{ { .channel = "orders" }, 2 },
		{ { .channel = "others" }, 0 },
		{ { .handler = "a" }, 2 },
		{ { .handler = "b" }, 0 },
		{ { .error = "ORDER" }, 1 },
		{ { .group = postern__error_group("no order 1") }, 1 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_INT(count_groups(&stand, &rows[i].filter).count, rows[i].count);
	}
	stand_close(&stand);
}

static void aliases(void) {
	struct stand stand;
	stand_open(&stand, "a", "old", NULL);
	fail_new(&stand, "1", POSTERN_SETTLE_POISONED, "x");
	int64_t seq = stand_accept_leased(&stand, "2", stand.handlers[1]);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand.handlers[1],
							  .fence = 1,
							  .to = POSTERN_SETTLE_POISONED,
							  .outcome = "poison",
							  .error = "x",
					  }),
			POSTERN_OK);
	CHECK_INT(count_groups(&stand, &everything).count, 2);
	(void)stand_enrol_one(&stand, "a", "old");
	struct postern_groups_page page = count_groups(&stand, &everything);
	if (CHECK_INT(page.count, 1)) {
		CHECK_INT(page.groups[0].count, 2);
		CHECK_STR(page.groups[0].handler, "a");
	}
	stand_close(&stand);
}

/* The n-th of many errors with different texts. */
static const char *text_of(size_t n, char out[32]) {
	size_t len = 0;
	out[len++] = 'e';
	for (; n > 0; n /= 26) {
		out[len++] = (char)('a' + n % 26);
	}
	out[len] = '\0';
	return out;
}

/* Poison deliveries in a few batches, the n-th with the n-th text. */
static void poison_many(struct stand *stand, size_t count) {
	enum { BATCH = 500 };
	struct postern_settlement settlements[BATCH];
	char texts[BATCH][32];
	(void)stand_accept_many(stand, count, stand->handlers[0]);
	for (size_t done = 0; done < count;) {
		struct postern_claims claims =
				stand_claim(stand, stand->handlers[0], BATCH);
		if (!CHECK(claims.count > 0)) {
			return;
		}
		for (size_t i = 0; i < claims.count; i++) {
			const char *text = text_of(done + i, texts[i]);
			settlements[i] = (struct postern_settlement){
				.seq = claims.items[i].seq,
				.handler = stand->handlers[0],
				.fence = claims.items[i].fence,
				.to = POSTERN_SETTLE_POISONED,
				.outcome = "poison",
				.error = text,
				.group = postern__error_group(text),
			};
		}
		struct postern_batch batch = {
			.node = stand->node,
			.settlements = settlements,
			.settlement_count = claims.count,
		};
		CHECK_OK(stand->ops->apply(stand->store, &batch, &stand->error),
				&stand->error);
		done += claims.count;
	}
}

static void too_many(void) {
	enum { MANY = POSTERN_GROUP_COUNT_MAX + 500 };
	struct stand stand;
	stand_open(&stand, "a", NULL);
	poison_many(&stand, MANY);
	struct postern_groups_page page = count_groups(&stand, &everything);
	/* The examples, and group 0. */
	if (CHECK_INT(page.count, POSTERN_GROUP_COUNT_MAX + 1)) {
		CHECK_INT(page.groups[0].group, 0);
		CHECK_INT(page.groups[0].count, MANY - POSTERN_GROUP_COUNT_MAX);
		CHECK_INT(page.groups[1].count, 1);
		CHECK(page.groups[0].first_at_ms > 0);
		CHECK(page.groups[0].example[0] == 'e');
	}
	/* Deliveries are found by their own group nevertheless. */
	char text[32];
	struct postern_filter last = {
		.group = postern__error_group(text_of(MANY - 1, text)),
	};
	CHECK_INT(stand_list(&stand, &last).count, 1);
	CHECK_INT(count_groups(&stand, &last).groups[0].group, 0);

	/* When they are gone, there is room again after a minute. */
	uint64_t count;
	for (int i = 0; i < 2; i++) {
		CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD,
						 &(struct postern_filter){ .handler = "a",
								 .limit = 1000 },
						 false, &count),
				&stand.error);
	}
	fake_clock_advance(&stand.clock, 61000);
	fail_new(&stand, "new", POSTERN_SETTLE_POISONED, "something new");
	page = count_groups(&stand, &everything);
	if (CHECK_INT(page.count, 1)) {
		CHECK(page.groups[0].group == postern__error_group("something new"));
		CHECK_STR(page.groups[0].example, "something new");
	}
	stand_close(&stand);
}

/* A cleanup to its end, without rules. */
static void clean_all(struct stand *stand) {
	struct postern_cleaning cleaning = { .max = 100, .bytes_max = 1000000 };
	do {
		CHECK_OK(stand->ops->clean(stand->store, &cleaning, &stand->error),
				&stand->error);
	} while (cleaning.more);
}

/* An example that was removed is made anew, with a new beginning. */
static void cleanup(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t kept = fail_new(&stand, "1", POSTERN_SETTLE_POISONED, "stays");
	int64_t gone = fail_new(&stand, "2", POSTERN_SETTLE_POISONED, "goes");
	int64_t begin = stand_now(&stand);
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, gone, "a", NULL),
			&stand.error);
	clean_all(&stand);
	fake_clock_advance(&stand.clock, 90000);
	stand_claim(&stand, stand.handlers[0], 10);
	fail_as(&stand, gone, 2, POSTERN_SETTLE_POISONED, "goes");
	struct postern_groups_page page = count_groups(&stand, &everything);
	if (CHECK_INT(page.count, 2)) {
		for (size_t i = 0; i < 2; i++) {
			bool stays = strcmp(page.groups[i].example, "stays") == 0;
			CHECK_INT(page.groups[i].first_at_ms,
					stays ? begin : begin + 90000);
		}
	}
	CHECK(group_of(&stand, kept) != 0);
	stand_close(&stand);
}

const struct tap_case group_cases[] = {
	{ "open and poisoned deliveries with an error have its group",
			who_has_one },
	{ "the group is that of the last error", last_error_counts },
	{ "a delivery that is reopened or discarded has no group", edits },
	{ "groups are counted with an example, most first", counting },
	{ "deliveries of an alias are counted with its handler", aliases },
	{ "errors beyond the limit of examples are counted in group 0", too_many },
	{ "a cleanup removes the examples that no delivery uses", cleanup },
	{ NULL, NULL },
};
