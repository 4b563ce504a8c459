/* SPDX-License-Identifier: MIT */

/*
 * Enrolling: a key names the same stored handler forever; and what happens to
 * former keys.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#include <stdio.h>

static struct stand_handler enrol_key(struct stand *stand, const char *key,
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
		stand_crash(&stand);
	}
	stand_close(&stand);
}

static void keys_are_bytes(void) {
	struct stand stand;
	stand_open(&stand, "order", NULL);
	CHECK(enrol_key(&stand, "Order", NULL).id != stand.handlers[0]);
	CHECK(enrol_key(&stand, "order/1", NULL).id != stand.handlers[0]);
	stand_close(&stand);
}

static void both_unknown(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	struct stand_handler handler = enrol_key(&stand, "new", "old older");
	stand_crash(&stand);
	CHECK_INT(enrol_key(&stand, "old", NULL).id, handler.id);
	CHECK_INT(enrol_key(&stand, "older", NULL).id, handler.id);
	CHECK_INT(enrol_key(&stand, "new", NULL).id, handler.id);
	stand_close(&stand);
}

static void legacy_unknown(void) {
	struct stand stand;
	stand_open(&stand, "new", NULL);
	struct stand_handler handler = enrol_key(&stand, "new", "old");
	CHECK_INT(handler.id, stand.handlers[0]);
	CHECK_INT(enrol_key(&stand, "old", NULL).id, handler.id);
	stand_close(&stand);
}

static void renamed(void) {
	struct stand stand;
	stand_open(&stand, "old", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	stand_crash(&stand);
	struct stand_handler handler = enrol_key(&stand, "new", "old");
	CHECK_INT(handler.id, stand.handlers[0]);
	CHECK_INT(stand_claim(&stand, handler.id, 1).count, 1);
	CHECK_INT(stand_state(&stand, seq, "new"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

static void legacy_key_left(void) {
	struct stand stand;
	stand_open(&stand, "old", NULL);
	enrol_key(&stand, "new", "old");
	stand_crash(&stand);
	CHECK_INT(enrol_key(&stand, "new", NULL).id, stand.handlers[0]);
	stand_crash(&stand);
	CHECK_INT(enrol_key(&stand, "new", NULL).id, stand.handlers[0]);
	CHECK_INT(enrol_key(&stand, "old", NULL).id, stand.handlers[0]);
	stand_close(&stand);
}

static void renamed_twice(void) {
	struct stand stand;
	stand_open(&stand, "first", NULL);
	CHECK_INT(enrol_key(&stand, "second", "first").id, stand.handlers[0]);
	CHECK_INT(enrol_key(&stand, "third", "second").id, stand.handlers[0]);
	CHECK_INT(enrol_key(&stand, "fourth", "first second third").id,
			stand.handlers[0]);
	stand_close(&stand);
}

/* A delivery for this handler id is claimed by the handler with this key. */
static void check_claimed_by_key(struct stand *stand, const char *key,
		int64_t id) {
	static int number;
	char text[16];
	int64_t handler = enrol_key(stand, key, NULL).id;
	(void)snprintf(text, sizeof text, "a%d", ++number);
	int64_t seq = stand_accept(stand, text, id);
	struct postern_claims claims = stand_claim(stand, handler, 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].seq, seq);
	}
}

static void becomes_an_alias(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	struct stand_handler handler = enrol_key(&stand, "new", "old");
	CHECK_INT(handler.id, stand.handlers[0]);
	check_claimed_by_key(&stand, "new", stand.handlers[1]);
	stand_close(&stand);
}

static void alias_for_good(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	enrol_key(&stand, "new", "old");
	stand_crash(&stand);
	for (int i = 0; i < 2; i++) {
		struct stand_handler handler = enrol_key(&stand, "new", NULL);
		CHECK_INT(handler.id, stand.handlers[0]);
		check_claimed_by_key(&stand, "new", stand.handlers[1]);
	}
	stand_close(&stand);
}

static void alias_of_an_alias(void) {
	struct stand stand;
	stand_open(&stand, "first", "second", "third", NULL);
	enrol_key(&stand, "second", "first");
	struct stand_handler handler = enrol_key(&stand, "third", "second");
	CHECK_INT(handler.id, stand.handlers[2]);
	check_claimed_by_key(&stand, "third", stand.handlers[0]);
	check_claimed_by_key(&stand, "third", stand.handlers[1]);
	stand_close(&stand);
}

static void two_known_legacy_keys(void) {
	struct stand stand;
	stand_open(&stand, "one", "two", NULL);
	struct stand_handler handler = enrol_key(&stand, "new", "one two");
	CHECK_INT(handler.id, stand.handlers[0]);
	check_claimed_by_key(&stand, "new", stand.handlers[1]);
	stand_close(&stand);
}

static void key_of_an_alias(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	enrol_key(&stand, "new", "old");
	struct stand_handler handler = enrol_key(&stand, "old", NULL);
	CHECK_INT(handler.id, stand.handlers[0]);
	stand_close(&stand);
}

static void two_of_one(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", "other", NULL);
	enrol_key(&stand, "new", "old");
	struct stand_handler both[] = { { .key = "new" }, { .key = "old" } };
	CHECK_INT(stand_enrol(&stand, both, 2), POSTERN_E_INVALID);
	CHECK_CONTAINS(stand.error.text, "new");
	CHECK_CONTAINS(stand.error.text, "old");

	struct stand_handler by_legacy[] = {
		{ .key = "new" },
		{ .key = "other", .legacy_keys = "old" },
	};
	CHECK_INT(stand_enrol(&stand, by_legacy, 2), POSTERN_E_INVALID);
	/* Also in the other order. */
	struct stand_handler reversed[] = { by_legacy[1], by_legacy[0] };
	CHECK_INT(stand_enrol(&stand, reversed, 2), POSTERN_E_INVALID);

	enrol_key(&stand, "renamed", "other");
	struct stand_handler renamed_too[] = {
		{ .key = "again", .legacy_keys = "other" },
		{ .key = "renamed" },
	};
	CHECK_INT(stand_enrol(&stand, renamed_too, 2), POSTERN_E_INVALID);
	stand_close(&stand);
}

/* Returns the handler that owns a key, according to the stats; "" if none. */
static const char *owner_of_key(struct stand *stand, const char *key) {
	struct postern_stats stats = stand_stats(stand);
	for (size_t i = 0; i < stats.key_count; i++) {
		if (strcmp(stats.keys[i].key, key) == 0) {
			return stats.keys[i].handler;
		}
	}
	return "";
}

static void keys_in_stats(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", "other", NULL);
	CHECK_STR(owner_of_key(&stand, "old"), "old");
	enrol_key(&stand, "new", "old older");
	CHECK_STR(owner_of_key(&stand, "new"), "new");
	CHECK_STR(owner_of_key(&stand, "old"), "new");
	CHECK_STR(owner_of_key(&stand, "older"), "new");
	CHECK_STR(owner_of_key(&stand, "other"), "other");
	CHECK_STR(owner_of_key(&stand, "nobody"), "");
	CHECK_INT(stand_stats(&stand).key_count, 4);
	enrol_key(&stand, "renamed", "new");
	CHECK_STR(owner_of_key(&stand, "old"), "renamed");
	stand_close(&stand);
}

static void refused_whole(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", "c", NULL);
	struct stand_handler handlers[] = {
		{ .key = "fresh", .legacy_keys = "stale" },
		{ .key = "a", .legacy_keys = "c unknown" },
		{ .key = "c" },
	};
	CHECK_INT(stand_enrol(&stand, handlers, 3), POSTERN_E_INVALID);
	/* "c" is a handler of its own again, and the new keys are free. */
	CHECK_INT(enrol_key(&stand, "c", NULL).id, stand.handlers[2]);
	int64_t fresh = enrol_key(&stand, "fresh", NULL).id;
	CHECK(enrol_key(&stand, "stale", NULL).id != fresh);
	CHECK(enrol_key(&stand, "unknown", NULL).id != stand.handlers[0]);
	stand_close(&stand);
}

static void side_by_side(void) {
	struct stand stand;
	stand_open(&stand, "old", NULL);
	int64_t first = stand_accept(&stand, "1", stand.handlers[0]);
	uint64_t old_node = stand.node;
	uint64_t new_node = old_node + 100;

	stand.node = new_node;
	int64_t id = enrol_key(&stand, "new", "old").id;
	CHECK_INT(id, stand.handlers[0]);
	stand.node = old_node;
	CHECK_INT(enrol_key(&stand, "old", NULL).id, id);
	int64_t second = stand_accept(&stand, "2", id);

	/* Each node claims what the other accepted, and no delivery twice. */
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
	enrol_key(&stand, "new", "old");
	CHECK_STR(stand_get(&stand, seq).deliveries[0].row.handler, "new");
	stand_close(&stand);
}

static void alias_shown_under_its_handler(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[1]);
	enrol_key(&stand, "new", "old");
	CHECK_STR(stand_get(&stand, seq).deliveries[0].row.handler, "new");
	struct postern_page page =
			stand_list(&stand, &(struct postern_filter){ .handler = "new" });
	if (CHECK_INT(page.count, 1)) {
		CHECK_STR(page.rows[0].handler, "new");
		CHECK_INT(page.last_handler, stand.handlers[1]);
	}
	stand_close(&stand);
}

static void paused_is_reported(void) {
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

/* Nodes of three generations: "old" alone, "new" alone, and "new" with "old" as
   a legacy key. The first two enrolled before the third made the alias, and
   keep using the one id they got. */
struct generations {
	struct stand stand;
	uint64_t nodes[3];
	int64_t ids[3];
};

static void open_generations(struct generations *g) {
	static const char *const keys[] = { "old", "new", "new" };
	struct stand *stand = &g->stand;
	stand_open(stand, NULL);
	for (size_t i = 0; i < 3; i++) {
		g->nodes[i] = stand->node + 100 * i;
	}
	for (size_t i = 0; i < 2; i++) {
		stand->node = g->nodes[i];
		g->ids[i] = enrol_key(stand, keys[i], NULL).id;
	}
	g->ids[2] = g->ids[1];
	CHECK(g->ids[0] != g->ids[1]);
}

static void make_alias(struct generations *g) {
	g->stand.node = g->nodes[2];
	CHECK_INT(enrol_key(&g->stand, "new", "old").id, g->ids[1]);
}

/* Accept a message and settle it as done for this handler. */
static void accept_done(struct generations *g, const char *id,
		int64_t handler) {
	int64_t seq = stand_accept(&g->stand, id, handler);
	stand_finish(&g->stand, seq, handler, POSTERN_SETTLE_DONE);
}

static void copy_after_the_alias(void) {
	struct generations g;
	open_generations(&g);
	g.stand.node = g.nodes[0];
	accept_done(&g, "by-old", g.ids[0]);
	g.stand.node = g.nodes[1];
	accept_done(&g, "by-new", g.ids[1]);
	make_alias(&g);
	for (size_t i = 0; i < 3; i++) {
		static const char *const messages[] = { "by-old", "by-new" };
		g.stand.node = g.nodes[i];
		for (size_t j = 0; j < 2; j++) {
			struct parcel parcel;
			parcel_init(&parcel, &g.stand, messages[j], "body");
			struct postern_route *route = parcel_add_route(&parcel, g.ids[i]);
			route->lease = true;
			CHECK_INT(parcel_send(&g.stand, &parcel), POSTERN_E_DUPLICATE);
			CHECK(!route->opened);
			CHECK(!route->leased);
			CHECK_INT(stand_claim(&g.stand, g.ids[i], 10).count, 0);
		}
	}
	stand_close(&g.stand);
}

static void any_generation_claims(void) {
	for (size_t i = 0; i < 3; i++) {
		struct generations g;
		open_generations(&g);
		g.stand.node = g.nodes[0];
		stand_accept(&g.stand, "1", g.ids[0]);
		g.stand.node = g.nodes[1];
		stand_accept(&g.stand, "2", g.ids[1]);
		make_alias(&g);
		g.stand.node = g.nodes[i];
		struct postern_claims claims = stand_claim(&g.stand, g.ids[i], 10);
		CHECK_INT(claims.count, 2);
		for (size_t j = 0; j < claims.count; j++) {
			const struct postern_claimed *item = &claims.items[j];
			CHECK_INT(item->want, 0);
			CHECK_INT(stand_settle_to(&g.stand, item->seq, item->handler,
							  item->fence, POSTERN_SETTLE_DONE),
					POSTERN_OK);
		}
		stand_close(&g.stand);
	}
}

static void stored_under_the_owner(void) {
	struct generations g;
	struct parcel parcel;
	open_generations(&g);
	make_alias(&g);
	g.stand.node = g.nodes[0];
	parcel_init(&parcel, &g.stand, "1", "body");
	struct postern_route *route = parcel_add_route(&parcel, g.ids[0]);
	route->lease = true;
	CHECK_INT(parcel_send(&g.stand, &parcel), POSTERN_OK);
	CHECK(route->leased);
	CHECK_INT(route->stored, g.ids[1]);
	CHECK_INT(stand_settle_to(&g.stand, parcel.accept.seq, route->stored, 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	stand_close(&g.stand);
}

static void routed_to_both(void) {
	struct generations g;
	struct parcel parcel;
	open_generations(&g);
	make_alias(&g);
	for (int copy = 0; copy < 2; copy++) {
		parcel_init(&parcel, &g.stand, "1", "body");
		struct postern_route *first = parcel_add_route(&parcel, g.ids[0]);
		struct postern_route *second = parcel_add_route(&parcel, g.ids[1]);
		first->lease = true;
		second->lease = true;
		CHECK_INT(parcel_send(&g.stand, &parcel),
				copy ? POSTERN_E_DUPLICATE : POSTERN_OK);
		CHECK_INT(first->leased, copy == 0);
		CHECK(!second->opened);
		CHECK(!second->leased);
		CHECK_INT(stand_get(&g.stand, parcel.accept.seq).delivery_count, 1);
	}
	stand_close(&g.stand);
}

static void wanted_by_both(void) {
	struct generations g;
	open_generations(&g);
	stand_accept(&g.stand, "1", g.ids[0]);
	stand_accept(&g.stand, "2", g.ids[1]);
	make_alias(&g);
	struct postern_want wants[] = {
		{ .handler = g.ids[0], .max = 10 },
		{ .handler = g.ids[1], .max = 10 },
	};
	struct postern_claims claims = stand_claim_wants(&g.stand, wants, 2, 10);
	CHECK_INT(claims.count, 2);
	stand_close(&g.stand);
}

/* Whichever of the two was paused, by whichever key it is resumed. */
static void pause_survives_the_alias(void) {
	static const char *const keys[] = { "old", "new" };
	for (size_t i = 0; i < 4; i++) {
		struct stand stand;
		stand_open(&stand, "new", "old", NULL);
		stand_accept(&stand, "1", stand.handlers[i % 2]);
		stand_pause(&stand, keys[i % 2]);
		CHECK(enrol_key(&stand, "new", "old").paused);
		CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 0);
		stand_resume(&stand, keys[i / 2]);
		CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 1);
		CHECK(!enrol_key(&stand, "new", "old").paused);
		stand_close(&stand);
	}
}

static void not_leased_while_paused(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", NULL);
	stand_pause(&stand, "a");
	parcel_init(&parcel, &stand, "1", "body");
	struct postern_route *paused = parcel_add_route(&parcel, stand.handlers[0]);
	struct postern_route *other = parcel_add_route(&parcel, stand.handlers[1]);
	paused->lease = true;
	other->lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK(paused->opened);
	CHECK(!paused->leased);
	CHECK_INT(paused->fence, 0);
	CHECK(other->leased);
	CHECK_INT(other->fence, 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	stand_resume(&stand, "a");
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
	stand_close(&stand);
}

static void alone_not_leased_while_paused(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_pause(&stand, "a");
	for (int i = 0; i < 3; i++) {
		struct parcel parcel;
		char id[2] = { (char)('1' + i), '\0' };
		parcel_init(&parcel, &stand, id, "body");
		struct postern_route *route =
				parcel_add_route(&parcel, stand.handlers[0]);
		route->lease = true;
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
		CHECK(!route->leased);
	}
	stand_resume(&stand, "a");
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 3);
	stand_close(&stand);
}

static void expired_enrols_again(void) {
	struct stand stand;
	bool alive;
	stand_open(&stand, "a", NULL);
	struct postern_enrolment again = { .node = stand.node, .again = true };
	CHECK_OK(stand.ops->enrol(stand.store, &again, &stand.error), &stand.error);
	CHECK_OK(stand.ops->renew(stand.store, stand.node, 0, &alive, &stand.error),
			&stand.error);
	CHECK_INT(stand.ops->enrol(stand.store, &again, &stand.error),
			POSTERN_E_STALE);
	CHECK_OK(stand.ops->renew(stand.store, stand.node, 1000, &alive,
					 &stand.error),
			&stand.error);
	CHECK(!alive);
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
	{ "ids of channels and handlers never change", ids_are_for_good },
	{ "keys are compared byte for byte", keys_are_bytes },
	{ "legacy keys of a new handler are bound to it", both_unknown },
	{ "an unknown legacy key of a known handler is bound to it",
			legacy_unknown },
	{ "a new key with a known legacy key is another name of that handler",
			renamed },
	{ "a legacy key stays bound after it was removed from the configuration",
			legacy_key_left },
	{ "a handler can be renamed several times", renamed_twice },
	{ "if key and legacy key are both known, the legacy one becomes an alias",
			becomes_an_alias },
	{ "an alias stays an alias", alias_for_good },
	{ "the aliases of an alias move to the new owner", alias_of_an_alias },
	{ "of two known legacy keys the second becomes an alias of the first",
			two_known_legacy_keys },
	{ "the key of an alias names the handler that owns it", key_of_an_alias },
	{ "two keys of one stored handler are refused by name", two_of_one },
	{ "stats report which handler owns each key", keys_in_stats },
	{ "a refused enrolment changes nothing", refused_whole },
	{ "an old and a new node share one handler", side_by_side },
	{ "a delivery is shown under the key its handler was last enrolled by",
			shown_under_its_key },
	{ "a delivery of an alias is shown under its handler",
			alias_shown_under_its_handler },
	{ "a paused handler is reported as paused, renamed or not",
			paused_is_reported },
	{ "a copy of a message done under either key is suppressed on every node",
			copy_after_the_alias },
	{ "deliveries under either key are claimed by nodes of each generation",
			any_generation_claims },
	{ "a node that knows only the alias stores deliveries under the owner",
			stored_under_the_owner },
	{ "two routes to one stored handler make one delivery", routed_to_both },
	{ "two wants of one stored handler claim each delivery once",
			wanted_by_both },
	{ "a handler that becomes an alias keeps its pause",
			pause_survives_the_alias },
	{ "a delivery of a paused handler is not leased at accept",
			not_leased_while_paused },
	{ "a batch for one paused handler leases nothing at accept",
			alone_not_leased_while_paused },
	{ "an expired node cannot enrol again under its node id",
			expired_enrols_again },
	{ "a node can enrol without channels and handlers", nothing_enrolled },
	{ 0 },
};
