/* SPDX-License-Identifier: MIT */

/*
 * Orphans: open deliveries of handlers that no live node has.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

static size_t find_orphans(struct stand *stand, bool poison, size_t max,
		struct postern_orphan **out) {
	size_t count = 0;
	CHECK_OK(stand->ops->orphans(stand->store, stand->node, NULL, poison, max,
					 stand->memory, out, &count, &stand->error),
			&stand->error);
	return count;
}

/* Replace the process with one that has only handler "kept". */
static void open_orphaned(struct stand *stand, size_t count) {
	stand_open(stand, "kept", "gone", NULL);
	stand_accept_many(stand, count, stand->handlers[1]);
	stand_accept(stand, "other", stand->handlers[0]);
	stand_crash(stand);
	stand_enrol_one(stand, "kept", NULL);
	stand_recover(stand);
}

static void found(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	open_orphaned(&stand, 3);
	if (CHECK_INT(find_orphans(&stand, false, 100, &orphans), 1)) {
		CHECK_STR(orphans[0].key, "gone");
		CHECK_INT(orphans[0].count, 3);
	}
	CHECK_INT(stand_handler_stats(&stand, "gone").pending, 3);
	stand_close(&stand);
}

static void none(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	stand_open(&stand, "a", "unused", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	stand_accept_leased(&stand, "2", stand.handlers[0]);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 0);
	CHECK_INT(stand_handler_stats(&stand, "a").poisoned, 0);
	stand_close(&stand);
}

static void ended_is_no_orphan(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	stand_open(&stand, "gone", "kept", NULL);
	int64_t done = stand_accept(&stand, "1", stand.handlers[0]);
	stand_finish(&stand, done, stand.handlers[0], POSTERN_SETTLE_DONE);
	int64_t poisoned = stand_accept(&stand, "2", stand.handlers[0]);
	stand_finish(&stand, poisoned, stand.handlers[0], POSTERN_SETTLE_POISONED);
	stand_crash(&stand);
	stand_enrol_one(&stand, "kept", NULL);
	stand_recover(&stand);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 0);
	CHECK_INT(stand_state(&stand, done, "gone"), POSTERN_STATE_DONE);
	stand_close(&stand);
}

static void lost_leases_count(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	stand_open(&stand, "gone", "kept", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand_crash(&stand);
	stand_enrol_one(&stand, "kept", NULL);
	stand_recover(&stand);
	if (CHECK_INT(find_orphans(&stand, true, 100, &orphans), 1)) {
		CHECK_INT(orphans[0].count, 1);
	}
	CHECK_INT(stand_state(&stand, seq, "gone"), POSTERN_STATE_POISONED);
	stand_close(&stand);
}

/* Another node enrols "gone" and ends or expires; the store stays open. */
static void orphaned_by_a_node(bool ends) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	stand_open(&stand, "kept", NULL);
	uint64_t other = stand.node + 50;
	struct postern_enrol_handler handler = { .key = "gone" };
	struct postern_enrolment enrolment = {
		.node = other,
		.node_lease_ms = 1000,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(stand.ops->enrol(stand.store, &enrolment, &stand.error),
			&stand.error);
	(void)stand_accept(&stand, "1", handler.id);
	CHECK_INT(find_orphans(&stand, false, 100, &orphans), 0);
	if (ends) {
		bool alive = false;
		CHECK_OK(stand.ops->renew(stand.store, other, 0, &alive, &stand.error),
				&stand.error);
	} else {
		fake_clock_advance(&stand.clock, 1000);
	}
	(void)stand_recover(&stand);
	if (CHECK_INT(find_orphans(&stand, false, 100, &orphans), 1)) {
		CHECK_STR(orphans[0].key, "gone");
	}
	stand_close(&stand);
}

static void node_expires(void) {
	orphaned_by_a_node(false);
}

static void node_ends(void) {
	orphaned_by_a_node(true);
}

static void poisoned(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	open_orphaned(&stand, 3);
	fake_clock_advance(&stand.clock, 10);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 1);
	struct postern_page page =
			stand_list(&stand, &(struct postern_filter){ .handler = "gone" });
	CHECK_INT(page.count, 3);
	for (size_t i = 0; i < page.count; i++) {
		CHECK_INT(page.rows[i].state, POSTERN_STATE_POISONED);
		CHECK_INT(page.rows[i].finished_at_ms, stand_now(&stand));
		CHECK_INT(page.rows[i].starts, 0);
		CHECK(page.rows[i].last_error);
		const struct postern_delivery_detail *delivery =
				stand_delivery(&stand, page.rows[i].seq, "gone");
		if (CHECK_INT(delivery->attempt_count, 1)) {
			CHECK_STR(delivery->attempts[0].outcome, "poison");
		}
	}
	CHECK_INT(stand_handler_stats(&stand, "kept").pending, 1);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 0);
	stand_close(&stand);
}

static void poisoned_in_steps(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	open_orphaned(&stand, 7);
	for (uint64_t left = 7; left > 0; left -= left < 3 ? left : 3) {
		if (CHECK_INT(find_orphans(&stand, true, 3, &orphans), 1)) {
			CHECK_INT(orphans[0].count, left);
		}
	}
	CHECK_INT(find_orphans(&stand, true, 3, &orphans), 0);
	CHECK_INT(stand_handler_stats(&stand, "gone").poisoned, 7);
	stand_close(&stand);
}

static void only_of_one(void) {
	struct postern_orphan *orphans = NULL;
	size_t count = 0;
	struct stand stand;
	stand_open(&stand, "gone", "away", NULL);
	int64_t gone = stand_accept(&stand, "1", stand.handlers[0]);
	int64_t away = stand_accept(&stand, "2", stand.handlers[1]);
	stand_crash(&stand);
	stand_enrol_one(&stand, "kept", NULL);
	stand_recover(&stand);
	CHECK_OK(stand.ops->orphans(stand.store, stand.node, "kept", true, 100,
					 stand.memory, &orphans, &count, &stand.error),
			&stand.error);
	CHECK_INT(count, 0);
	CHECK_OK(stand.ops->orphans(stand.store, stand.node, "away", true, 100,
					 stand.memory, &orphans, &count, &stand.error),
			&stand.error);
	if (CHECK_INT(count, 1)) {
		CHECK_STR(orphans[0].key, "away");
		CHECK_INT(orphans[0].count, 1);
	}
	CHECK_INT(stand_state(&stand, gone, "gone"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_state(&stand, away, "away"), POSTERN_STATE_POISONED);
	stand_close(&stand);
}

static void delayed_ones_too(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	stand_open(&stand, "gone", "kept", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand.handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_PENDING,
							  .delay_ms = 100000,
							  .failures = 2,
							  .outcome = "retry",
					  }),
			POSTERN_OK);
	stand_crash(&stand);
	stand_enrol_one(&stand, "kept", NULL);
	stand_recover(&stand);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 1);
	struct postern_row row = stand_row(&stand, seq, "gone");
	CHECK_INT(row.state, POSTERN_STATE_POISONED);
	CHECK_INT(row.failures, 2);
	CHECK_INT(row.fence, 1);
	stand_close(&stand);
}

static void suspects_too(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	stand_open(&stand, NULL);
	stand_enrol_in_process(&stand, 3, "gone", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand_crash(&stand);
	stand_enrol_one(&stand, "kept", NULL);
	CHECK_INT(stand_recover(&stand).suspects, 1);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 1);
	CHECK_INT(stand_state(&stand, seq, "gone"), POSTERN_STATE_POISONED);
	stand_close(&stand);
}

static void aliases_have_an_owner(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[1]);
	stand_crash(&stand);
	stand_enrol_one(&stand, "new", "old");
	stand_recover(&stand);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 0);

	/* A node that has neither key: the alias is orphaned with its owner. */
	stand_crash(&stand);
	stand_enrol_one(&stand, "kept", NULL);
	stand_recover(&stand);
	if (CHECK_INT(find_orphans(&stand, true, 100, &orphans), 1)) {
		CHECK_STR(orphans[0].key, "new");
		CHECK_INT(orphans[0].count, 1);
	}
	CHECK_INT(stand_state(&stand, seq, "new"), POSTERN_STATE_POISONED);
	stand_close(&stand);
}

static void renamed_is_no_orphan(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	stand_open(&stand, "old", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	stand_crash(&stand);
	stand_enrol_one(&stand, "new", "old");
	stand_recover(&stand);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 0);
	stand_close(&stand);
}

static void retried_when_back(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	open_orphaned(&stand, 1);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 1);
	stand_enrol_one(&stand, "gone", NULL);
	uint64_t count = 0;
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_RETRY,
					 &(struct postern_filter){ .handler = "gone" }, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 1);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[1], 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].fence, 1);
	}
	stand_close(&stand);
}

/* A late node that is not expired still counts as having its handlers. */
static void late_registers(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	bool alive = false;
	CHECK_OK(stand.ops->renew(stand.store, stand.node, 1000, &alive,
					 &stand.error),
			&stand.error);
	fake_clock_advance(&stand.clock, 2000);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 0);
	CHECK_INT(stand_handler_stats(&stand, "a").poisoned, 0);
	stand_close(&stand);
}

/* The node does not know yet that it is expired. */
static void expired_finds_none(void) {
	struct postern_orphan *orphans = NULL;
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	bool alive = false;
	CHECK_OK(stand.ops->renew(stand.store, stand.node, 0, &alive, &stand.error),
			&stand.error);
	CHECK(alive);
	CHECK_INT(find_orphans(&stand, true, 100, &orphans), 0);
	CHECK_INT(stand_handler_stats(&stand, "a").poisoned, 0);
	CHECK_INT(stand_handler_stats(&stand, "a").pending, 1);
	stand_close(&stand);
}

const struct tap_case orphan_cases[] = {
	{ "a handler that only an expired node had is orphaned", node_expires },
	{ "a handler that only an ended node had is orphaned", node_ends },
	{ "open deliveries of a handler that no node has are orphans", found },
	{ "a handler that a live node has gets no orphans", none },
	{ "an ended delivery is no orphan", ended_is_no_orphan },
	{ "recovered leases of an orphaned handler are orphans",
			lost_leases_count },
	{ "orphans are poisoned with a reason", poisoned },
	{ "orphans are poisoned in steps of at most max", poisoned_in_steps },
	{ "orphans of one handler are found and poisoned without the others",
			only_of_one },
	{ "orphans need not be due, and keep fence and failures",
			delayed_ones_too },
	{ "suspects can be orphans", suspects_too },
	{ "a delivery of an alias is an orphan if its owner is orphaned",
			aliases_have_an_owner },
	{ "a renamed handler leaves no orphans", renamed_is_no_orphan },
	{ "poisoned orphans can be retried when a node has the handler again",
			retried_when_back },
	{ "the handlers of a late node are not orphaned", late_registers },
	{ "an expired node finds no orphans", expired_finds_none },
	{ 0 },
};
