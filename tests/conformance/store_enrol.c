/* SPDX-License-Identifier: MIT */

/*
 * Enrolling: that a key names one stored handler for good, and what becomes of
 * former keys.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

static struct stand_handler enrol(struct stand *stand, const char *key,
		const char *legacy_keys) {
	struct stand_handler handler = { .key = key, .legacy_keys = legacy_keys };
	CHECK_OK(stand_enrol(stand, &handler, 1), &stand->error);
	return handler;
}

static void ids_are_for_good(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	int64_t orders = stand.orders;
	int64_t bills = stand.bills;
	CHECK(orders > 0);
	CHECK(bills > 0);
	CHECK(orders != bills);
	CHECK(stand.handlers[0] > 0);
	CHECK(stand.handlers[1] > 0);
	CHECK(stand.handlers[0] != stand.handlers[1]);

	struct stand_handler handlers[] = {
		{ .key = "c" },
		{ .key = "b" },
		{ .key = "a" },
	};
	for (int life = 0; life < 3; life++) {
		CHECK_OK(stand_enrol(&stand, handlers, 3), &stand.error);
		CHECK_INT(stand.orders, orders);
		CHECK_INT(stand.bills, bills);
		CHECK_INT(handlers[1].id, stand.handlers[1]);
		CHECK_INT(handlers[2].id, stand.handlers[0]);
		CHECK(handlers[0].id != handlers[1].id);
		CHECK(handlers[0].id != handlers[2].id);
		CHECK_INT(handlers[0].alias_count, 0);
		stand_crash(&stand);
	}
	stand_close(&stand);
}

static void keys_are_bytes(void) {
	struct stand stand;
	stand_open(&stand, "order", NULL);
	CHECK(enrol(&stand, "Order", NULL).id != stand.handlers[0]);
	CHECK(enrol(&stand, "order/1", NULL).id != stand.handlers[0]);
	stand_close(&stand);
}

static void both_unknown(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	struct stand_handler handler = enrol(&stand, "new", "old older");
	CHECK_INT(handler.alias_count, 0);
	stand_crash(&stand);
	CHECK_INT(enrol(&stand, "old", NULL).id, handler.id);
	CHECK_INT(enrol(&stand, "older", NULL).id, handler.id);
	CHECK_INT(enrol(&stand, "new", NULL).id, handler.id);
	stand_close(&stand);
}

static void legacy_unknown(void) {
	struct stand stand;
	stand_open(&stand, "new", NULL);
	struct stand_handler handler = enrol(&stand, "new", "old");
	CHECK_INT(handler.id, stand.handlers[0]);
	CHECK_INT(handler.alias_count, 0);
	CHECK_INT(enrol(&stand, "old", NULL).id, handler.id);
	stand_close(&stand);
}

static void renamed(void) {
	struct stand stand;
	stand_open(&stand, "old", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	stand_crash(&stand);
	struct stand_handler handler = enrol(&stand, "new", "old");
	CHECK_INT(handler.id, stand.handlers[0]);
	CHECK_INT(handler.alias_count, 0);
	CHECK_INT(stand_claim(&stand, handler.id, 1).count, 1);
	CHECK_INT(stand_state(&stand, seq, "new"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

static void legacy_key_left(void) {
	struct stand stand;
	stand_open(&stand, "old", NULL);
	enrol(&stand, "new", "old");
	stand_crash(&stand);
	CHECK_INT(enrol(&stand, "new", NULL).id, stand.handlers[0]);
	stand_crash(&stand);
	CHECK_INT(enrol(&stand, "new", NULL).id, stand.handlers[0]);
	CHECK_INT(enrol(&stand, "old", NULL).id, stand.handlers[0]);
	stand_close(&stand);
}

static void renamed_twice(void) {
	struct stand stand;
	stand_open(&stand, "first", NULL);
	CHECK_INT(enrol(&stand, "second", "first").id, stand.handlers[0]);
	CHECK_INT(enrol(&stand, "third", "second").id, stand.handlers[0]);
	CHECK_INT(enrol(&stand, "fourth", "first second third").id,
			stand.handlers[0]);
	CHECK_INT(enrol(&stand, "fourth", NULL).alias_count, 0);
	stand_close(&stand);
}

static void becomes_an_alias(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	struct stand_handler handler = enrol(&stand, "new", "old");
	CHECK_INT(handler.id, stand.handlers[0]);
	if (CHECK_INT(handler.alias_count, 1)) {
		CHECK_INT(handler.aliases[0], stand.handlers[1]);
	}
	stand_close(&stand);
}

static void alias_for_good(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	enrol(&stand, "new", "old");
	stand_crash(&stand);
	for (int i = 0; i < 2; i++) {
		struct stand_handler handler = enrol(&stand, "new", NULL);
		CHECK_INT(handler.id, stand.handlers[0]);
		if (CHECK_INT(handler.alias_count, 1)) {
			CHECK_INT(handler.aliases[0], stand.handlers[1]);
		}
	}
	stand_close(&stand);
}

static void alias_of_an_alias(void) {
	struct stand stand;
	stand_open(&stand, "first", "second", "third", NULL);
	enrol(&stand, "second", "first");
	struct stand_handler handler = enrol(&stand, "third", "second");
	CHECK_INT(handler.id, stand.handlers[2]);
	if (CHECK_INT(handler.alias_count, 2)) {
		CHECK_INT(handler.aliases[0] + handler.aliases[1],
				stand.handlers[0] + stand.handlers[1]);
		CHECK(handler.aliases[0] != handler.aliases[1]);
	}
	stand_close(&stand);
}

static void two_known_legacy_keys(void) {
	struct stand stand;
	stand_open(&stand, "one", "two", NULL);
	struct stand_handler handler = enrol(&stand, "new", "one two");
	CHECK_INT(handler.id, stand.handlers[0]);
	if (CHECK_INT(handler.alias_count, 1)) {
		CHECK_INT(handler.aliases[0], stand.handlers[1]);
	}
	stand_close(&stand);
}

static void key_of_an_alias(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	enrol(&stand, "new", "old");
	struct stand_handler handler = enrol(&stand, "old", NULL);
	CHECK_INT(handler.id, stand.handlers[0]);
	CHECK_INT(handler.alias_count, 1);
	stand_close(&stand);
}

static void two_of_one(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", "other", NULL);
	enrol(&stand, "new", "old");
	struct stand_handler both[] = { { .key = "new" }, { .key = "old" } };
	CHECK_INT(stand_enrol(&stand, both, 2), POSTERN_E_INVALID);
	CHECK_CONTAINS(stand.error.text, "new");
	CHECK_CONTAINS(stand.error.text, "old");

	struct stand_handler by_legacy[] = {
		{ .key = "new" },
		{ .key = "other", .legacy_keys = "old" },
	};
	CHECK_INT(stand_enrol(&stand, by_legacy, 2), POSTERN_E_INVALID);
	/* In the other order as well. */
	struct stand_handler reversed[] = { by_legacy[1], by_legacy[0] };
	CHECK_INT(stand_enrol(&stand, reversed, 2), POSTERN_E_INVALID);

	enrol(&stand, "renamed", "other");
	struct stand_handler renamed_too[] = {
		{ .key = "again", .legacy_keys = "other" },
		{ .key = "renamed" },
	};
	CHECK_INT(stand_enrol(&stand, renamed_too, 2), POSTERN_E_INVALID);
	stand_close(&stand);
}

static void refused_whole(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", "c", NULL);
	struct stand_handler handlers[] = {
		{ .key = "fresh", .legacy_keys = "stale" },
		{ .key = "a", .legacy_keys = "c unheard" },
		{ .key = "c" },
	};
	CHECK_INT(stand_enrol(&stand, handlers, 3), POSTERN_E_INVALID);
	/* "c" is its own again, and the new keys are nobody's. */
	CHECK_INT(enrol(&stand, "c", NULL).id, stand.handlers[2]);
	CHECK_INT(enrol(&stand, "a", NULL).alias_count, 0);
	int64_t fresh = enrol(&stand, "fresh", NULL).id;
	CHECK(enrol(&stand, "stale", NULL).id != fresh);
	CHECK(enrol(&stand, "unheard", NULL).id != stand.handlers[0]);
	stand_close(&stand);
}

static void side_by_side(void) {
	struct stand stand;
	stand_open(&stand, "old", NULL);
	int64_t first = stand_accept(&stand, "1", stand.handlers[0]);
	uint64_t old_node = stand.node;
	uint64_t new_node = old_node + 100;

	stand.node = new_node;
	int64_t id = enrol(&stand, "new", "old").id;
	CHECK_INT(id, stand.handlers[0]);
	stand.node = old_node;
	CHECK_INT(enrol(&stand, "old", NULL).id, id);
	int64_t second = stand_accept(&stand, "2", id);

	/* Each gets what the other accepted, and nobody gets it twice. */
	CHECK_INT(stand_claim(&stand, id, 1).count, 1);
	stand.node = new_node;
	CHECK_INT(stand_claim(&stand, id, 10).count, 1);
	CHECK_INT(stand_settle_to(&stand, second, id, 1, POSTERN_SETTLE_DONE),
			POSTERN_OK);
	stand.node = old_node;
	CHECK_INT(stand_settle_to(&stand, first, id, 1, POSTERN_SETTLE_DONE),
			POSTERN_OK);
	stand_close(&stand);
}

static void shown_under_its_key(void) {
	struct stand stand;
	stand_open(&stand, "old", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_STR(stand_get(&stand, seq).deliveries[0].row.handler, "old");
	enrol(&stand, "new", "old");
	CHECK_STR(stand_get(&stand, seq).deliveries[0].row.handler, "new");
	stand_close(&stand);
}

static void alias_shown_under_its_handler(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[1]);
	enrol(&stand, "new", "old");
	CHECK_STR(stand_get(&stand, seq).deliveries[0].row.handler, "new");
	struct postern_page page =
			stand_list(&stand, &(struct postern_filter){ .handler = "new" });
	if (CHECK_INT(page.count, 1)) {
		CHECK_STR(page.rows[0].handler, "new");
		CHECK_INT(page.last_handler, stand.handlers[1]);
	}
	stand_close(&stand);
}

static void paused_is_told(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	stand_pause(&stand, "a");
	stand_crash(&stand);
	struct stand_handler handlers[] = {
		{ .key = "renamed", .legacy_keys = "a" },
		{ .key = "b" },
	};
	CHECK_OK(stand_enrol(&stand, handlers, 2), &stand.error);
	CHECK(handlers[0].paused);
	CHECK(!handlers[1].paused);
	stand_resume(&stand, "renamed");
	CHECK_OK(stand_enrol(&stand, handlers, 2), &stand.error);
	CHECK(!handlers[0].paused);
	stand_close(&stand);
}

static void nothing_enrolled(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	struct postern_enrolment enrolment = { .node = stand.node };
	CHECK_OK(stand.ops->enrol(stand.store, &enrolment, &stand.error),
			&stand.error);
	stand_close(&stand);
}

const struct tap_case enrol_cases[] = {
	{ "ids of channels and handlers are the same for good", ids_are_for_good },
	{ "keys are compared byte for byte", keys_are_bytes },
	{ "legacy keys of a new handler are bound to it", both_unknown },
	{ "an unknown legacy key of a known handler is bound to it",
			legacy_unknown },
	{ "a new key with a known legacy key is another name of that handler",
			renamed },
	{ "a legacy key stays bound after it left the configuration",
			legacy_key_left },
	{ "a handler may be renamed again and again", renamed_twice },
	{ "if key and legacy key are both known the legacy one is an alias",
			becomes_an_alias },
	{ "an alias is one for good", alias_for_good },
	{ "the aliases of an alias come along", alias_of_an_alias },
	{ "of two known legacy keys the second is an alias of the first",
			two_known_legacy_keys },
	{ "the key of an alias names the handler that owns it", key_of_an_alias },
	{ "two handlers that are stored as one are refused by name", two_of_one },
	{ "a refused enrolment leaves no trace", refused_whole },
	{ "an old and a new node side by side share one handler", side_by_side },
	{ "a delivery is shown under the key its handler was last enrolled by",
			shown_under_its_key },
	{ "a delivery of an alias is shown under its handler",
			alias_shown_under_its_handler },
	{ "enrolling says that a handler is paused, renamed or not",
			paused_is_told },
	{ "a node may enrol nothing", nothing_enrolled },
	{ 0 },
};
