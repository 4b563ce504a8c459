/* SPDX-License-Identifier: MIT */

/*
 * Recovery: what happens to the leases of an expired node. Here for handlers
 * that run outside the process; suspects have a file of their own.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

static void released(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t first = stand_accept_leased(&stand, "1", stand.handlers[0]);
	int64_t second = stand_accept(&stand, "2", stand.handlers[0]);
	int64_t third = stand_accept(&stand, "3", stand.handlers[0]);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);

	stand_crash(&stand);
	fake_clock_advance(&stand.clock, 100);
	stand_enrol_one(&stand, "a", NULL);
	struct postern_recovered recovered = stand_recover(&stand);
	CHECK_INT(recovered.released, 2);
	CHECK_INT(recovered.suspects, 0);
	CHECK_INT(recovered.poisoned, 0);
	int64_t seqs[] = { first, second };
	for (size_t i = 0; i < 2; i++) {
		struct postern_row row = stand_row(&stand, seqs[i], "a");
		CHECK_INT(row.state, POSTERN_STATE_PENDING);
		CHECK_INT(row.fence, 1);
		CHECK_INT(row.starts, 1);
		CHECK_INT(row.crashes, 0);
		CHECK_INT(row.next_at_ms, stand_now(&stand));
		CHECK_INT(row.leased_at_ms, 0);
	}
	CHECK_INT(stand_row(&stand, third, "a").fence, 0);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	CHECK_INT(claims.count, 3);
	for (size_t i = 0; i < claims.count; i++) {
		CHECK_INT(claims.items[i].suspicion, POSTERN_NO_SUSPECT);
	}
	stand_close(&stand);
}

static void failures_stay(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand.handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_PENDING,
							  .failures = 3,
							  .outcome = "retry",
							  .error = "no luck",
					  }),
			POSTERN_OK);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK_INT(stand_recover(&stand).released, 1);
	const struct postern_delivery_detail *delivery =
			stand_delivery(&stand, seq, "a");
	if (CHECK(delivery)) {
		CHECK_INT(delivery->row.failures, 3);
		CHECK_INT(delivery->row.fence, 2);
		CHECK_INT(delivery->row.starts, 2);
		CHECK_INT(delivery->attempt_count, 1);
		CHECK_STR(delivery->row.last_error, "no luck");
	}
	stand_close(&stand);
}

static void own_leases_stay(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "2", stand.handlers[0]);
	CHECK_INT(stand_recover(&stand).released, 1);
	CHECK_INT(stand_recover(&stand).released, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	stand_close(&stand);
}

static void late_settlement(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	uint64_t old_node = stand.node;
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	stand_recover(&stand);
	uint64_t new_node = stand.node;

	stand.node = old_node;
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	stand.node = new_node;
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
	stand.node = old_node;
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 2,
					  POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

static void at_most_max(void) {
	struct stand stand;
	struct postern_recovered recovered;
	stand_open(&stand, "a", NULL);
	stand_accept_many(&stand, 25, stand.handlers[0]);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 25).count, 25);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	static const struct {
		uint64_t released;
		bool more;
	} steps[] = { { 10, true }, { 10, true }, { 5, false }, { 0, false } };
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		struct postern_recovery recovery = { .node = stand.node, .max = 10 };
		CHECK_OK(stand.ops->recover(stand.store, &recovery, &recovered,
						 &stand.error),
				&stand.error);
		CHECK_INT(recovered.released, steps[i].released);
		CHECK_INT(recovered.more, steps[i].more);
	}
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 100).count, 25);
	stand_close(&stand);
}

static void nothing_to_recover(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	struct postern_recovered recovered = stand_recover(&stand);
	CHECK_INT(recovered.released, 0);
	CHECK_INT(recovered.suspects, 0);
	CHECK_INT(recovered.poisoned, 0);
	stand_close(&stand);
}

static void unwanted_is_recovered(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand_crash(&stand);
	stand_enrol_one(&stand, "b", NULL);
	CHECK_INT(stand_recover(&stand).released, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void many_processes(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	for (uint64_t number = 1; number <= 20; number++) {
		struct postern_claims claims =
				stand_claim(&stand, stand.handlers[0], 1);
		if (!CHECK_INT(claims.count, 1)) {
			break;
		}
		CHECK_INT(claims.items[0].fence, number);
		stand_crash(&stand);
		stand_enrol_one(&stand, "a", NULL);
		CHECK_INT(stand_recover(&stand).released, 1);
	}
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.starts, 20);
	CHECK_INT(row.crashes, 0);
	CHECK_INT(row.failures, 0);
	stand_close(&stand);
}

const struct tap_case recover_cases[] = {
	{ "leases of an expired node are pending again at once", released },
	{ "recovery keeps fence, failures and attempts", failures_stay },
	{ "a node does not recover its own leases", own_leases_stay },
	{ "an expired node can no longer settle", late_settlement },
	{ "recovery stops at its limit and reports that there is more",
			at_most_max },
	{ "recovery without expired nodes changes nothing", nothing_to_recover },
	{ "leases of handlers that no node has are recovered too",
			unwanted_is_recovered },
	{ "a handler outside the process never becomes a suspect", many_processes },
	{ 0 },
};
