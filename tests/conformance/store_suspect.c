/* SPDX-License-Identifier: MIT */

/*
 * Suspects: leases that a dead process had for handlers that ran inside it. Any
 * of them may have crashed it, so they are run again in groups that are halved
 * until the guilty one runs alone.
 *
 * The suite also decides what the contract leaves open: members are divided by
 * the number of their message (then by handler), and the first half has the odd
 * one and is claimed first.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"

#define MAX_CRASHES 3

/* The process dies; the next one enrols "a" and "b" in-process and recovers. */
static struct postern_recovered crash_and_recover(struct stand *stand) {
	stand_crash(stand);
	stand_enrol_in_process(stand, MAX_CRASHES, "a", "b", NULL);
	return stand_recover(stand);
}

/* Open a store with `count` messages of handler "a" that were leased when their
   process died. */
static int64_t open_with_lost(struct stand *stand, size_t count) {
	stand_open(stand, NULL);
	stand_enrol_in_process(stand, MAX_CRASHES, "a", "b", NULL);
	int64_t first = stand_accept_many(stand, count, stand->handlers[0]);
	CHECK_INT(stand_claim_in_process(stand, stand->handlers[0], (uint32_t)count)
					  .count,
			count);
	CHECK_INT(crash_and_recover(stand).suspects, count);
	return first;
}

static struct postern_claims claim_a(struct stand *stand) {
	return stand_claim_in_process(stand, stand->handlers[0], 1000);
}

static void check_group(const struct postern_claims *claims, int64_t first,
		size_t count, uint64_t waiting) {
	CHECK_INT(claims->count, count);
	CHECK_INT(claims->suspects_waiting, waiting);
	for (size_t i = 0; i < claims->count; i++) {
		bool found = false;
		for (size_t j = 0; j < claims->count; j++) {
			found = found || claims->items[j].seq == first + (int64_t)i;
		}
		CHECK(found);
		CHECK_INT(claims->items[i].suspicion,
				count == 1 ? POSTERN_SUSPECT_SOLO : POSTERN_SUSPECT_GROUP);
	}
}

static void settle_all(struct stand *stand, const struct postern_claims *claims,
		enum postern_settle_to to) {
	for (size_t i = 0; i < claims->count; i++) {
		CHECK_INT(stand_settle_to(stand, claims->items[i].seq,
						  claims->items[i].handler, claims->items[i].fence, to),
				POSTERN_OK);
	}
}

static void become_suspects(void) {
	struct stand stand;
	int64_t seq = open_with_lost(&stand, 1);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_PENDING);
	CHECK_INT(row.crashes, 0);
	CHECK_INT(row.failures, 0);
	CHECK_INT(row.fence, 1);
	CHECK_INT(row.next_at_ms, stand_now(&stand));
	struct postern_claims claims = claim_a(&stand);
	check_group(&claims, seq, 1, 0);
	CHECK_INT(claims.items[0].fence, 2);
	stand_close(&stand);
}

static void halves(void) {
	struct stand stand;
	int64_t first = open_with_lost(&stand, 8);
	struct postern_claims claims = claim_a(&stand);
	check_group(&claims, first, 4, 4);
	settle_all(&stand, &claims, POSTERN_SETTLE_DONE);
	claims = claim_a(&stand);
	check_group(&claims, first + 4, 4, 0);
	CHECK_INT(crash_and_recover(&stand).suspects, 4);
	claims = claim_a(&stand);
	check_group(&claims, first + 4, 2, 2);
	settle_all(&stand, &claims, POSTERN_SETTLE_DONE);
	claims = claim_a(&stand);
	check_group(&claims, first + 6, 2, 0);
	CHECK_INT(crash_and_recover(&stand).suspects, 2);
	claims = claim_a(&stand);
	check_group(&claims, first + 6, 1, 1);
	settle_all(&stand, &claims, POSTERN_SETTLE_DONE);
	claims = claim_a(&stand);
	check_group(&claims, first + 7, 1, 0);
	stand_close(&stand);
}

static void odd_half(void) {
	struct stand stand;
	int64_t first = open_with_lost(&stand, 5);
	struct postern_claims claims = claim_a(&stand);
	check_group(&claims, first, 3, 2);
	stand_close(&stand);
}

static void oldest_group_first(void) {
	struct stand stand;
	int64_t first = open_with_lost(&stand, 8);
	/* The first half is lost again; the second has been waiting longer. */
	struct postern_claims claims = claim_a(&stand);
	check_group(&claims, first, 4, 4);
	CHECK_INT(crash_and_recover(&stand).suspects, 4);
	claims = claim_a(&stand);
	check_group(&claims, first + 4, 4, 4);
	settle_all(&stand, &claims, POSTERN_SETTLE_DONE);
	claims = claim_a(&stand);
	check_group(&claims, first, 2, 2);
	stand_close(&stand);
}

static void waiting_groups_stay(void) {
	struct stand stand;
	int64_t first = open_with_lost(&stand, 4);
	CHECK_INT(crash_and_recover(&stand).suspects, 0);
	struct postern_claims claims = claim_a(&stand);
	check_group(&claims, first, 2, 2);
	stand_close(&stand);
}

static void settled_members(void) {
	struct stand stand;
	int64_t first = open_with_lost(&stand, 8);
	struct postern_claims claims = claim_a(&stand);
	check_group(&claims, first, 4, 4);
	/* Members that ended before the process died did not crash it. */
	for (int64_t seq = first; seq < first + 3; seq++) {
		CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 2,
						  POSTERN_SETTLE_DONE),
				POSTERN_OK);
	}
	CHECK_INT(crash_and_recover(&stand).suspects, 1);
	CHECK_INT(stand_row(&stand, first + 3, "a").crashes, 0);
	claims = claim_a(&stand);
	settle_all(&stand, &claims, POSTERN_SETTLE_DONE);
	claims = claim_a(&stand);
	check_group(&claims, first + 3, 1, 0);
	stand_close(&stand);
}

static void crashes_are_counted(void) {
	struct stand stand;
	int64_t seq = open_with_lost(&stand, 1);
	for (uint32_t crashes = 1; crashes < MAX_CRASHES; crashes++) {
		CHECK_INT(claim_a(&stand).count, 1);
		fake_clock_advance(&stand.clock, 1000);
		struct postern_recovered recovered = crash_and_recover(&stand);
		CHECK_INT(recovered.suspects, 1);
		CHECK_INT(recovered.poisoned, 0);
		CHECK_INT(stand_row(&stand, seq, "a").crashes, crashes);
		CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	}
	int64_t leased_at = stand_now(&stand);
	CHECK_INT(claim_a(&stand).count, 1);
	fake_clock_advance(&stand.clock, 1000);
	struct postern_recovered recovered = crash_and_recover(&stand);
	CHECK_INT(recovered.suspects, 0);
	CHECK_INT(recovered.poisoned, 1);
	const struct postern_delivery_detail *delivery =
			stand_delivery(&stand, seq, "a");
	if (CHECK(delivery)) {
		CHECK_INT(delivery->row.state, POSTERN_STATE_POISONED);
		CHECK_INT(delivery->row.crashes, MAX_CRASHES);
		CHECK_INT(delivery->row.failures, 0);
		CHECK_INT(delivery->row.fence, MAX_CRASHES + 1);
		CHECK_INT(delivery->row.finished_at_ms, stand_now(&stand));
		CHECK(delivery->row.last_error);
		if (CHECK_INT(delivery->attempt_count, MAX_CRASHES)) {
			const struct postern_attempt *attempt =
					&delivery->attempts[MAX_CRASHES - 1];
			CHECK_STR(attempt->outcome, "crash");
			CHECK_INT(attempt->fence, MAX_CRASHES + 1);
			CHECK_INT(attempt->started_at_ms, leased_at);
			CHECK_INT(attempt->finished_at_ms, stand_now(&stand));
		}
	}
	CHECK_INT(claim_a(&stand).count, 0);
	stand_close(&stand);
}

static void settlement_clears(void) {
	static const enum postern_settle_to ways[] = {
		POSTERN_SETTLE_PENDING,
		POSTERN_SETTLE_RETURNED,
	};
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		struct stand stand;
		int64_t seq = open_with_lost(&stand, 1);
		CHECK_INT(claim_a(&stand).count, 1);
		crash_and_recover(&stand);
		CHECK_INT(stand_row(&stand, seq, "a").crashes, 1);
		struct postern_claims claims = claim_a(&stand);
		settle_all(&stand, &claims, ways[i]);
		CHECK_INT(stand_row(&stand, seq, "a").crashes, 0);
		claims = claim_a(&stand);
		if (CHECK_INT(claims.count, 1)) {
			CHECK_INT(claims.items[0].suspicion, POSTERN_NO_SUSPECT);
			CHECK_INT(claims.suspects_waiting, 0);
		}
		CHECK_INT(crash_and_recover(&stand).suspects, 1);
		CHECK_INT(stand_row(&stand, seq, "a").crashes, 0);
		stand_close(&stand);
	}
}

static void nothing_beside_them(void) {
	struct stand stand;
	int64_t first = open_with_lost(&stand, 2);
	struct stand_handler handlers[] = {
		{ .key = "a", .in_process = true, .max_crashes = MAX_CRASHES },
		{ .key = "b", .in_process = true, .max_crashes = MAX_CRASHES },
		{ .key = "plain" },
	};
	CHECK_OK(stand_enrol(&stand, handlers, 3), &stand.error);
	stand_accept(&stand, "for a", handlers[0].id);
	int64_t for_b = stand_accept(&stand, "for b", handlers[1].id);
	int64_t for_plain = stand_accept(&stand, "for plain", handlers[2].id);
	struct postern_want wants[] = {
		{ .handler = handlers[1].id, .max = 10, .in_process = true },
		{ .handler = handlers[2].id, .max = 10 },
		{ .handler = handlers[0].id, .max = 10, .in_process = true },
	};
	struct postern_claims claims = stand_claim_wants(&stand, wants, 3, 10);
	CHECK_INT(claims.count, 2);
	CHECK_INT(claims.suspects_waiting, 1);
	CHECK_INT(claims.next_due_ms, 0);
	CHECK_INT(stand_state(&stand, first, "a"), POSTERN_STATE_LEASED);
	CHECK_INT(stand_state(&stand, for_plain, "plain"), POSTERN_STATE_LEASED);
	for (size_t i = 0; i < claims.count; i++) {
		CHECK_INT(claims.items[i].suspicion, claims.items[i].seq == first
													 ? POSTERN_SUSPECT_SOLO
													 : POSTERN_NO_SUSPECT);
	}
	settle_all(&stand, &claims, POSTERN_SETTLE_DONE);
	claims = stand_claim_wants(&stand, wants, 3, 10);
	CHECK_INT(claims.count, 1);
	CHECK_INT(claims.suspects_waiting, 0);
	CHECK_INT(stand_state(&stand, for_b, "b"), POSTERN_STATE_PENDING);
	settle_all(&stand, &claims, POSTERN_SETTLE_DONE);
	/* Without suspects the other deliveries are claimed. */
	CHECK_INT(stand_claim_wants(&stand, wants, 3, 10).count, 2);
	stand_close(&stand);
}

static void unwanted_suspects(void) {
	struct stand stand;
	open_with_lost(&stand, 2);
	int64_t seq = stand_accept(&stand, "for b", stand.handlers[1]);
	struct postern_claims claims =
			stand_claim_in_process(&stand, stand.handlers[1], 10);
	CHECK_INT(claims.count, 1);
	CHECK_INT(claims.suspects_waiting, 0);
	CHECK_INT(stand_state(&stand, seq, "b"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

static void paused_suspects(void) {
	struct stand stand;
	open_with_lost(&stand, 2);
	stand_accept(&stand, "for b", stand.handlers[1]);
	stand_pause(&stand, "a");
	struct postern_want wants[] = {
		{ .handler = stand.handlers[0], .max = 10, .in_process = true },
		{ .handler = stand.handlers[1], .max = 10, .in_process = true },
	};
	struct postern_claims claims = stand_claim_wants(&stand, wants, 2, 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].handler, stand.handlers[1]);
	}
	CHECK_INT(claims.suspects_waiting, 0);
	stand_resume(&stand, "a");
	claims = stand_claim_wants(&stand, wants, 2, 10);
	CHECK_INT(claims.count, 1);
	CHECK_INT(claims.suspects_waiting, 1);
	stand_close(&stand);
}

static void whole_past_every_limit(void) {
	struct stand stand;
	int64_t first = open_with_lost(&stand, 10);
	struct postern_want want = {
		.handler = stand.handlers[0],
		.max = 2,
		.in_process = true,
	};
	struct postern_claim claim = {
		.node = stand.node,
		.wants = &want,
		.want_count = 1,
		.max = 1,
		.bytes_max = 1,
	};
	struct postern_claims claims = stand_claim_full(&stand, &claim);
	check_group(&claims, first, 5, 5);
	stand_close(&stand);
}

static void group_of_two_handlers(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	stand_enrol_in_process(&stand, MAX_CRASHES, "a", "b", NULL);
	int64_t first = stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand_accept_leased(&stand, "2", stand.handlers[1]);
	stand_accept_leased(&stand, "3", stand.handlers[0]);
	stand_accept_leased(&stand, "4", stand.handlers[1]);
	CHECK_INT(crash_and_recover(&stand).suspects, 4);
	struct postern_want wants[] = {
		{ .handler = stand.handlers[0], .max = 10, .in_process = true },
		{ .handler = stand.handlers[1], .max = 10, .in_process = true },
	};
	struct postern_claims claims = stand_claim_wants(&stand, wants, 2, 10);
	check_group(&claims, first, 2, 2);
	CHECK(claims.items[0].handler != claims.items[1].handler);
	stand_close(&stand);
}

static void part_of_a_group(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	stand_enrol_in_process(&stand, MAX_CRASHES, "a", "b", NULL);
	int64_t first = stand_accept_leased(&stand, "1", stand.handlers[0]);
	int64_t second = stand_accept_leased(&stand, "2", stand.handlers[1]);
	stand_accept_leased(&stand, "3", stand.handlers[0]);
	stand_accept_leased(&stand, "4", stand.handlers[1]);
	CHECK_INT(crash_and_recover(&stand).suspects, 4);
	struct postern_want wants[] = {
		{ .handler = stand.handlers[0], .max = 10, .in_process = true },
		{ .handler = stand.handlers[1], .max = 10, .in_process = true },
	};
	stand_pause(&stand, "b");
	struct postern_claims claims = stand_claim_wants(&stand, wants, 2, 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].seq, first);
		CHECK_INT(claims.items[0].suspicion, POSTERN_SUSPECT_GROUP);
	}
	/* The other member is not solo while the first one runs. */
	stand_resume(&stand, "b");
	claims = stand_claim_wants(&stand, wants, 2, 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].seq, second);
		CHECK_INT(claims.items[0].suspicion, POSTERN_SUSPECT_GROUP);
	}
	CHECK_INT(crash_and_recover(&stand).suspects, 2);
	CHECK_INT(stand_row(&stand, first, "a").crashes, 0);
	CHECK_INT(stand_row(&stand, second, "b").crashes, 0);
	stand_close(&stand);
}

static void last_of_a_group(void) {
	struct stand stand;
	int64_t first = open_with_lost(&stand, 4);
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_DISCARD, first, "a", NULL),
			&stand.error);
	struct postern_claims claims = claim_a(&stand);
	check_group(&claims, first + 1, 1, 2);
	stand_close(&stand);
}

static void lost_alias(void) {
	struct stand stand;
	stand_open(&stand, "a", "old", NULL);
	int64_t old = stand.handlers[1];
	int64_t seq = stand_accept_leased(&stand, "1", old);
	stand_crash(&stand);
	struct stand_handler handler = {
		.key = "a",
		.legacy_keys = "old",
		.in_process = true,
		.max_crashes = MAX_CRASHES,
	};
	CHECK_OK(stand_enrol(&stand, &handler, 1), &stand.error);
	CHECK_INT(stand_recover(&stand).suspects, 1);
	struct postern_claims claims = stand_claim_in_process(&stand, old, 10);
	check_group(&claims, seq, 1, 0);
	stand_close(&stand);
}

static void plain_and_suspects(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	struct stand_handler handlers[] = {
		{ .key = "a", .in_process = true, .max_crashes = MAX_CRASHES },
		{ .key = "plain" },
	};
	CHECK_OK(stand_enrol(&stand, handlers, 2), &stand.error);
	stand_accept_leased(&stand, "1", handlers[0].id);
	stand_accept_leased(&stand, "2", handlers[1].id);
	stand_accept_leased(&stand, "3", handlers[1].id);
	stand_crash(&stand);
	CHECK_OK(stand_enrol(&stand, handlers, 2), &stand.error);
	struct postern_recovered recovered = stand_recover(&stand);
	CHECK_INT(recovered.suspects, 1);
	CHECK_INT(recovered.released, 2);
	CHECK_INT(stand_claim(&stand, handlers[1].id, 10).count, 2);
	stand_close(&stand);
}

static void no_longer_in_process(void) {
	struct stand stand;
	open_with_lost(&stand, 4);
	stand_enrol_one(&stand, "a", NULL);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	CHECK_INT(claims.count, 4);
	CHECK_INT(claims.suspects_waiting, 0);
	for (size_t i = 0; i < claims.count; i++) {
		CHECK_INT(claims.items[i].suspicion, POSTERN_NO_SUSPECT);
	}
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK_INT(stand_recover(&stand).released, 4);
	stand_close(&stand);
}

static void suspects_no_more_in_steps(void) {
	struct stand stand;
	int64_t first = open_with_lost(&stand, 4);
	stand_enrol_one(&stand, "a", NULL);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 1);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].seq, first);
	}
	CHECK_INT(claims.next_due_ms, 0);
	const struct postern_want want = {
		.handler = stand.handlers[0],
		.max = 10,
	};
	CHECK_INT(stand_claim_wants(&stand, &want, 1, 2).count, 2);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 1);
	stand_close(&stand);
}

static void edited_suspects(void) {
	struct stand stand;
	int64_t first = open_with_lost(&stand, 2);
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_DISCARD, first, "a", NULL),
			&stand.error);
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, first + 1, "a", NULL),
			&stand.error);
	struct postern_claims claims = claim_a(&stand);
	check_group(&claims, first + 1, 1, 0);
	stand_close(&stand);
}

static void retried_after_crashes(void) {
	struct stand stand;
	int64_t seq = open_with_lost(&stand, 1);
	for (uint32_t i = 0; i < MAX_CRASHES; i++) {
		CHECK_INT(claim_a(&stand).count, 1);
		crash_and_recover(&stand);
	}
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_POISONED);
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
			&stand.error);
	CHECK_INT(stand_row(&stand, seq, "a").crashes, 0);
	struct postern_claims claims = claim_a(&stand);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].suspicion, POSTERN_NO_SUSPECT);
		CHECK_INT(claims.items[0].fence, MAX_CRASHES + 2);
	}
	stand_close(&stand);
}

static void limited_recovery(void) {
	struct stand stand;
	struct postern_recovered recovered;
	stand_open(&stand, NULL);
	stand_enrol_in_process(&stand, MAX_CRASHES, "a", "b", NULL);
	stand_accept_many(&stand, 10, stand.handlers[0]);
	CHECK_INT(claim_a(&stand).count, 10);
	stand_crash(&stand);
	stand_enrol_in_process(&stand, MAX_CRASHES, "a", "b", NULL);
	uint64_t suspects = 0;
	do {
		struct postern_recovery recovery = { .node = stand.node, .max = 4 };
		CHECK_OK(stand.ops->recover(stand.store, &recovery, &recovered,
						 &stand.error),
				&stand.error);
		CHECK(recovered.suspects <= 4);
		suspects += recovered.suspects;
	} while (recovered.more && recovered.suspects > 0);
	CHECK_INT(suspects, 10);
	/* However the suspects are divided, all are claimed, group by group. */
	size_t count = 0;
	for (int i = 0; i < 10 && count < 10; i++) {
		struct postern_claims claims = claim_a(&stand);
		CHECK(claims.count <= 5);
		settle_all(&stand, &claims, POSTERN_SETTLE_DONE);
		count += claims.count;
	}
	CHECK_INT(count, 10);
	stand_close(&stand);
}

/* Whether this message crashes its process. */
static bool is_killer(int64_t seq, int64_t first) {
	return seq == first || seq == first + 40 || seq == first + 41;
}

static void killers_are_found(void) {
	enum { COUNT = 100 };
	struct stand stand;
	stand_open(&stand, NULL);
	stand_enrol_in_process(&stand, MAX_CRASHES, "a", "b", NULL);
	int64_t first = stand_accept_many(&stand, COUNT, stand.handlers[0]);
	size_t process_count = 0;
	for (; process_count < 200; process_count++) {
		bool killed = false;
		struct postern_claims claims = claim_a(&stand);
		while (claims.count > 0 && !killed) {
			for (size_t i = 0; i < claims.count; i++) {
				killed = killed || is_killer(claims.items[i].seq, first);
			}
			if (!killed) {
				settle_all(&stand, &claims, POSTERN_SETTLE_DONE);
				claims = claim_a(&stand);
			}
		}
		if (!killed) {
			break;
		}
		crash_and_recover(&stand);
	}
	CHECK(process_count < 50);
	for (int64_t seq = first; seq < first + COUNT; seq++) {
		CHECK_INT(stand_state(&stand, seq, "a"),
				is_killer(seq, first) ? POSTERN_STATE_POISONED
									  : POSTERN_STATE_DONE);
	}
	stand_close(&stand);
}

const struct tap_case suspect_cases[] = {
	{ "a lease that an in-process handler lost is a suspect", become_suspects },
	{ "a lost group is claimed as two halves", halves },
	{ "the first half of a group has the odd one", odd_half },
	{ "the oldest group is claimed first", oldest_group_first },
	{ "a group that was not claimed is not halved", waiting_groups_stay },
	{ "a member that was settled before the crash is no suspect",
			settled_members },
	{ "only a solo suspect counts crashes, and max_crashes poison it",
			crashes_are_counted },
	{ "any settlement clears crashes and suspicion", settlement_clears },
	{ "while there are suspects nothing else is claimed in-process",
			nothing_beside_them },
	{ "suspects of unwanted handlers delay no other handler",
			unwanted_suspects },
	{ "suspects of paused handlers delay no other handler", paused_suspects },
	{ "a group is claimed completely, beyond every limit",
			whole_past_every_limit },
	{ "a group can have several handlers", group_of_two_handlers },
	{ "a member of a group is not solo while others of it wait or run",
			part_of_a_group },
	{ "the last member of a group is solo", last_of_a_group },
	{ "a lost lease of an alias is a suspect if its handler is in-process",
			lost_alias },
	{ "leases of handlers outside the process are pending at once",
			plain_and_suspects },
	{ "a handler that is no longer in-process has no suspects",
			no_longer_in_process },
	{ "former suspects are claimed up to the limits",
			suspects_no_more_in_steps },
	{ "a suspect can be discarded, and stays a suspect if retried",
			edited_suspects },
	{ "a retry resets the crashes", retried_after_crashes },
	{ "suspects are recovered in steps, and none is lost", limited_recovery },
	{ "three crashing messages of a hundred are poisoned, the others done",
			killers_are_found },
	{ 0 },
};
