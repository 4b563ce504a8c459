/* SPDX-License-Identifier: MIT */

/*
 * Paused handlers and closed channels: reason, author and end, and what a store
 * decides by them.
 */

#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"

#define HOUR_MS INT64_C(3600000)

static struct postern_halt read_pause(struct stand *stand, int64_t handler) {
	struct postern_halt pause = { 0 };
	CHECK_OK(stand->ops->read_pauses(stand->store, &handler, 1, stand->memory,
					 &pause, &stand->error),
			&stand->error);
	return pause;
}

/* Returns how many handlers changed. */
static uint64_t pause_for(struct stand *stand, const char *key, int64_t for_ms,
		const char *reason, const char *by) {
	struct postern_edit edit = {
		.kind = POSTERN_CHANGE_PAUSE,
		.handler = key,
		.for_ms = for_ms,
		.reason = reason,
		.by = by,
		.hold = by && strcmp(by, POSTERN_BY_POSTERN) == 0,
	};
	CHECK_OK(stand->ops->edit(stand->store, &edit, &stand->error),
			&stand->error);
	return edit.count;
}

static uint64_t close_or_open(struct stand *stand, bool close,
		const char *reason) {
	struct postern_edit edit = {
		.kind = close ? POSTERN_CHANGE_CLOSE : POSTERN_CHANGE_OPEN,
		.channel = "orders",
		.reason = reason,
		.by = "anna",
	};
	CHECK_OK(stand->ops->edit(stand->store, &edit, &stand->error),
			&stand->error);
	return edit.count;
}

/* Whether a new message's delivery is leased at once. */
static bool is_leased_at_accept(struct stand *stand, const char *id) {
	struct parcel parcel;
	parcel_init(&parcel, stand, id, "body");
	parcel_add_route(&parcel, stand->handlers[0])->lease = true;
	CHECK_INT(parcel_send(stand, &parcel), POSTERN_OK);
	return parcel.routes[0].leased;
}

static void pause_is_described(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t now = stand_now(&stand);
	CHECK_INT(pause_for(&stand, "a", HOUR_MS, "smtp is \"down\"", "anna"), 1);
	fake_clock_advance(&stand.clock, 1000);
	struct postern_halt pause = read_pause(&stand, stand.handlers[0]);
	CHECK(pause.on);
	CHECK_INT(pause.at_ms, now);
	CHECK_INT(pause.until_ms, now + HOUR_MS);
	CHECK_INT(pause.left_ms, HOUR_MS - 1000);
	CHECK_STR(pause.reason, "smtp is \"down\"");
	CHECK_STR(pause.by, "anna");
	struct postern_handler_stats stats = stand_handler_stats(&stand, "a");
	CHECK(stats.paused);
	CHECK_INT(stats.held_at_ms, now);
	CHECK_INT(stats.held_until_ms, now + HOUR_MS);
	CHECK_STR(stats.held_reason, "smtp is \"down\"");
	CHECK_STR(stats.held_by, "anna");
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	pause = read_pause(&stand, stand.handlers[0]);
	CHECK_INT(pause.until_ms, now + HOUR_MS);
	CHECK_STR(pause.reason, "smtp is \"down\"");
	stand_close(&stand);
}

static void pause_ends(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	pause_for(&stand, "a", HOUR_MS, "reason", NULL);
	fake_clock_advance(&stand.clock, HOUR_MS - 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	CHECK(!is_leased_at_accept(&stand, "2"));
	CHECK(read_pause(&stand, stand.handlers[0]).on);
	fake_clock_advance(&stand.clock, 1);
	CHECK(is_leased_at_accept(&stand, "3"));
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 9).count, 2);
	struct postern_halt pause = read_pause(&stand, stand.handlers[0]);
	CHECK(!pause.on && !pause.at_ms && !pause.until_ms && !pause.reason);
	struct postern_handler_stats stats = stand_handler_stats(&stand, "a");
	CHECK(!stats.paused && !stats.held_until_ms && !stats.held_reason);
	stand_close(&stand);
}

static void pause_replaced(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t handler = stand.handlers[0];
	CHECK_INT(pause_for(&stand, "a", 0, "one", "anna"), 1);
	CHECK_INT(pause_for(&stand, "a", 0, "one", "anna"), 0);
	CHECK_INT(pause_for(&stand, "a", 0, "two", "anna"), 1);
	CHECK_STR(read_pause(&stand, handler).reason, "two");
	CHECK_INT(pause_for(&stand, "a", 0, "two", NULL), 1);
	CHECK(!read_pause(&stand, handler).by);
	CHECK_INT(pause_for(&stand, "a", HOUR_MS, NULL, NULL), 1);
	CHECK_INT(read_pause(&stand, handler).left_ms, HOUR_MS);
	/* Also an earlier end, and none. */
	CHECK_INT(pause_for(&stand, "a", 10, NULL, NULL), 1);
	CHECK_INT(read_pause(&stand, handler).left_ms, 10);
	CHECK_INT(pause_for(&stand, "a", 0, NULL, NULL), 1);
	CHECK(read_pause(&stand, handler).on);
	CHECK_INT(read_pause(&stand, handler).until_ms, 0);
	stand_resume(&stand, "a");
	CHECK(!read_pause(&stand, handler).on);
	/* One that has ended is not there any more. */
	CHECK_INT(pause_for(&stand, "a", 10, "three", NULL), 1);
	fake_clock_advance(&stand.clock, 10);
	CHECK_INT(pause_for(&stand, "a", 0, "three", NULL), 1);
	stand_close(&stand);
}

/* A resume ends a pause for good, also one that is over. */
static void resumed_for_good(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	pause_for(&stand, "a", 1000, NULL, NULL);
	fake_clock_advance(&stand.clock, 2000);
	stand_resume(&stand, "a");
	fake_clock_jump(&stand.clock, -HOUR_MS);
	CHECK(!read_pause(&stand, stand.handlers[0]).on);
	CHECK(is_leased_at_accept(&stand, "1"));
	stand_close(&stand);
}

static void pause_and_the_clock(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	pause_for(&stand, "a", HOUR_MS, NULL, NULL);
	fake_clock_jump(&stand.clock, -HOUR_MS);
	CHECK_INT(read_pause(&stand, stand.handlers[0]).left_ms, 2 * HOUR_MS);
	fake_clock_advance(&stand.clock, HOUR_MS);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	fake_clock_jump(&stand.clock, HOUR_MS);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
	stand_close(&stand);
}

static void hold_yields(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t handler = stand.handlers[0];
	CHECK_INT(pause_for(&stand, "a", 1000, "429", POSTERN_BY_POSTERN), 1);
	CHECK_INT(pause_for(&stand, "a", 500, "429", POSTERN_BY_POSTERN), 0);
	CHECK_INT(read_pause(&stand, handler).left_ms, 1000);
	CHECK_INT(pause_for(&stand, "a", 3000, "503", POSTERN_BY_POSTERN), 1);
	CHECK_STR(read_pause(&stand, handler).reason, "503");
	/* An operator replaces it, and is not replaced. */
	CHECK_INT(pause_for(&stand, "a", 1000, "smtp", "anna"), 1);
	CHECK_INT(pause_for(&stand, "a", HOUR_MS, "429", POSTERN_BY_POSTERN), 0);
	CHECK_STR(read_pause(&stand, handler).by, "anna");
	CHECK_INT(read_pause(&stand, handler).left_ms, 1000);
	CHECK_INT(pause_for(&stand, "a", 0, NULL, NULL), 1);
	CHECK_INT(pause_for(&stand, "a", HOUR_MS, "429", POSTERN_BY_POSTERN), 0);
	CHECK_INT(read_pause(&stand, handler).until_ms, 0);
	stand_resume(&stand, "a");
	CHECK_INT(pause_for(&stand, "a", HOUR_MS, "429", POSTERN_BY_POSTERN), 1);
	stand_close(&stand);
}

static void longer_pause_remains(void) {
	static const struct {
		int64_t owner_ms;
		int64_t alias_ms;
		const char *reason;
	} pauses[] = {
		{ HOUR_MS, 1000, "owner" },
		{ 1000, HOUR_MS, "alias" },
		{ 0, HOUR_MS, "owner" },
		{ HOUR_MS, 0, "alias" },
	};
	for (size_t i = 0; i < sizeof pauses / sizeof pauses[0]; i++) {
		struct stand stand;
		stand_open(&stand, "a", "b", NULL);
		pause_for(&stand, "a", pauses[i].owner_ms, "owner", NULL);
		pause_for(&stand, "b", pauses[i].alias_ms, "alias", NULL);
		int64_t id = stand_enrol_one(&stand, "a", "b");
		CHECK_STR(read_pause(&stand, id).reason, pauses[i].reason);
		CHECK_STR(read_pause(&stand, stand.handlers[1]).reason,
				pauses[i].reason);
		stand_resume(&stand, "b");
		CHECK(!read_pause(&stand, id).on);
		stand_close(&stand);
	}
}

static void closed_refuses(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(close_or_open(&stand, true, "moving"), 1);
	static const struct {
		const char *id;
		const char *body;
		enum postern_fate fate;
	} messages[] = {
		{ "2", "body", POSTERN_FATE_KEEP },
		{ "1", "body", POSTERN_FATE_KEEP },  /* a copy */
		{ "1", "other", POSTERN_FATE_KEEP }, /* a conflict */
		{ "3", "body", POSTERN_FATE_PARK },
		{ "4", "body", POSTERN_FATE_DROP },
	};
	for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
		parcel_init(&parcel, &stand, messages[i].id, messages[i].body);
		if (messages[i].fate == POSTERN_FATE_KEEP) {
			parcel_add_route(&parcel, stand.handlers[0])->lease = true;
		}
		parcel.accept.fate = messages[i].fate;
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_UNAVAILABLE);
		CHECK(!parcel.routes[0].opened && !parcel.routes[0].leased);
		CHECK_INT(parcel.accept.seq, 0);
	}
	struct postern_channel_stats stats = stand_channel_stats(&stand, "orders");
	CHECK_INT(stats.accepted, 1);
	CHECK_INT(stats.duplicates + stats.conflicts + stats.dropped + stats.parked,
			0);
	/* Deliveries go on. */
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 9).count, 1);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	/* What was refused is not remembered. */
	CHECK_INT(close_or_open(&stand, false, NULL), 1);
	CHECK(is_leased_at_accept(&stand, "2"));
	stand_close(&stand);
}

static void closed_among_others(void) {
	struct stand stand;
	struct parcel parcels[5];
	stand_open(&stand, "a", NULL);
	close_or_open(&stand, true, NULL);
	for (size_t i = 0; i < 5; i++) {
		static const char *const ids[] = { "1", "2", "3", "4", "2" };
		parcel_init(&parcels[i], &stand, ids[i], "body");
		parcel_add_route(&parcels[i], stand.handlers[0])->lease = true;
		if (i % 2 == 1 || i == 4) {
			parcels[i].accept.channel = stand.bills;
		}
	}
	parcel_send_all(&stand, parcels, 5);
	CHECK_INT(parcels[0].accept.code, POSTERN_E_UNAVAILABLE);
	CHECK_INT(parcels[1].accept.code, POSTERN_OK);
	CHECK_INT(parcels[2].accept.code, POSTERN_E_UNAVAILABLE);
	CHECK_INT(parcels[3].accept.code, POSTERN_OK);
	CHECK_INT(parcels[4].accept.code, POSTERN_E_DUPLICATE);
	CHECK(parcels[1].routes[0].leased && parcels[3].routes[0].leased);
	CHECK(!parcels[0].routes[0].leased && !parcels[2].routes[0].leased);
	CHECK(parcels[1].accept.seq > 0);
	CHECK(parcels[3].accept.seq > parcels[1].accept.seq);
	CHECK_INT(parcels[4].accept.seq, parcels[1].accept.seq);
	CHECK_STR(stand_row(&stand, parcels[3].accept.seq, "a").message_id, "4");
	CHECK_INT(stand_handler_stats(&stand, "a").leased, 2);
	stand_close(&stand);
}

static void settled_beside_refused(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	close_or_open(&stand, true, NULL);
	parcel_init(&parcel, &stand, "2", "body");
	parcel_add_route(&parcel, stand.handlers[0])->lease = true;
	parcel_pack(&parcel);
	struct postern_settlement settlement = {
		.seq = seq,
		.handler = stand.handlers[0],
		.fence = 1,
		.to = POSTERN_SETTLE_DONE,
		.outcome = "done",
	};
	struct postern_batch batch = {
		.node = stand.node,
		.settlements = &settlement,
		.settlement_count = 1,
		.accepts = &parcel.accept,
		.accept_count = 1,
	};
	CHECK_OK(stand.ops->apply(stand.store, &batch, &stand.error), &stand.error);
	CHECK_INT(settlement.code, POSTERN_OK);
	CHECK_INT(parcel.accept.code, POSTERN_E_UNAVAILABLE);
	CHECK_INT(stand_handler_stats(&stand, "a").done, 1);
	stand_close(&stand);
}

static void closed_is_described(void) {
	struct stand stand;
	struct postern_halt closed;
	stand_open(&stand, "a", NULL);
	int64_t now = stand_now(&stand);
	CHECK_INT(close_or_open(&stand, true, "moving"), 1);
	fake_clock_advance(&stand.clock, 1000);
	CHECK_INT(close_or_open(&stand, true, "moving"), 0);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	struct postern_channel_stats stats = stand_channel_stats(&stand, "orders");
	CHECK(stats.closed);
	CHECK_INT(stats.closed_at_ms, now);
	CHECK_STR(stats.closed_reason, "moving");
	CHECK_STR(stats.closed_by, "anna");
	CHECK(!stand_channel_stats(&stand, "bills").closed);
	CHECK_OK(stand.ops->read_closed(stand.store, stand.orders, stand.memory,
					 &closed, &stand.error),
			&stand.error);
	CHECK(closed.on);
	CHECK_STR(closed.reason, "moving");
	struct parcel parcel;
	parcel_init(&parcel, &stand, "1", "body");
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_UNAVAILABLE);
	CHECK_INT(close_or_open(&stand, false, "moved"), 1);
	CHECK_INT(close_or_open(&stand, false, "moved"), 0);
	stats = stand_channel_stats(&stand, "orders");
	CHECK(!stats.closed && !stats.closed_at_ms && !stats.closed_reason);
	CHECK_OK(stand.ops->read_closed(stand.store, stand.orders, stand.memory,
					 &closed, &stand.error),
			&stand.error);
	CHECK(!closed.on && !closed.reason);
	stand_close(&stand);
}

static void close_unknown(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct postern_edit edit = {
		.kind = POSTERN_CHANGE_CLOSE,
		.channel = "nope",
	};
	CHECK_INT(stand.ops->edit(stand.store, &edit, &stand.error),
			POSTERN_E_NOTFOUND);
	edit.kind = POSTERN_CHANGE_OPEN;
	CHECK_INT(stand.ops->edit(stand.store, &edit, &stand.error),
			POSTERN_E_NOTFOUND);
	stand_close(&stand);
}

const struct tap_case halt_cases[] = {
	{ "a pause keeps its reason, its author and its end, also after a crash",
			pause_is_described },
	{ "a pause with an end is over when the store's clock reaches it",
			pause_ends },
	{ "a pause replaces the one before, and its end", pause_replaced },
	{ "a clock that is set back prolongs a pause, one set forward ends it",
			pause_and_the_clock },
	{ "a pause that was resumed does not return with a clock that is set back",
			resumed_for_good },
	{ "a hold by postern neither shortens nor replaces a pause by an operator",
			hold_yields },
	{ "of a handler and its alias the longer pause remains",
			longer_pause_remains },
	{ "a closed channel refuses every message and remembers none",
			closed_refuses },
	{ "messages for open channels are accepted beside those that are refused",
			closed_among_others },
	{ "a batch with refused messages settles its leases",
			settled_beside_refused },
	{ "a closed channel keeps its reason and its author, also after a crash",
			closed_is_described },
	{ "closing or opening a channel that is not stored fails as not found",
			close_unknown },
	{ 0 },
};
