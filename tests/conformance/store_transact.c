/* SPDX-License-Identifier: MIT */

/*
 * Transactions: the writes of a handler and the end of its delivery commit
 * together or not at all. A store without transactions returns an error and
 * runs nothing.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

/* What a unit does when it runs. */
enum action { NOTHING, WRITE, WRITE_AND_COMMIT, WRITE_AND_ROLL_BACK };

struct work {
	struct stand *stand;
	enum action action;
	enum postern_outcome_kind outcome;
	int64_t delay_ms;
	const char *reason;
	int runs;
	int64_t rows;
	uint64_t epoch;
};

static void run_work(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct work *work = context;
	work->runs++;
	work->epoch = epoch;
	CHECK_INT(outcome->kind, POSTERN_DONE);
	switch (work->action) {
	case NOTHING: work->rows = conformance_target.count(transaction); break;
	case WRITE: conformance_target.write(transaction); break;
	case WRITE_AND_COMMIT:
		conformance_target.write(transaction);
		conformance_target.commit(transaction);
		break;
	case WRITE_AND_ROLL_BACK:
		conformance_target.write(transaction);
		conformance_target.roll_back(transaction);
		break;
	}
	fake_clock_advance(&work->stand->clock, 250);
	outcome->kind = work->outcome;
	outcome->delay_ms = work->delay_ms;
	(void)snprintf(outcome->reason, sizeof outcome->reason, "%s",
			work->reason ? work->reason : "");
}

static struct postern_unit unit_of(struct work *work, int64_t seq) {
	return (struct postern_unit){
		.seq = seq,
		.handler = work->stand->handlers[0],
		.fence = 1,
		.context = work,
		.run = run_work,
		.code = -99,
	};
}

static int transact(struct stand *stand, struct postern_unit *units,
		size_t count) {
	return stand->ops->transact(stand->store, stand->node, NULL, units, count,
			&stand->error);
}

/* Count the rows, in a unit whose transaction is rolled back. */
static int64_t count_rows(struct stand *stand) {
	static int number;
	char id[24];
	(void)snprintf(id, sizeof id, "count-%d", number++);
	struct work work = {
		.stand = stand,
		.action = NOTHING,
		.outcome = POSTERN_RETRY,
	};
	int64_t seq = stand_accept_leased(stand, id, stand->handlers[0]);
	struct postern_unit unit = unit_of(&work, seq);
	CHECK_OK(transact(stand, &unit, 1), &stand->error);
	CHECK_INT(stand_settle_to(stand, seq, stand->handlers[0], 1,
					  POSTERN_SETTLE_DISCARDED),
			POSTERN_OK);
	return work.rows;
}

static void unsupported(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct work work = { .stand = &stand };
	struct postern_unit unit = unit_of(&work, seq);
	CHECK_INT(transact(&stand, &unit, 1), POSTERN_E_UNSUPPORTED);
	CHECK_INT(work.runs, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	stand.ops->interrupt(stand.store, NULL);
	stand_close(&stand);
}

static void done_commits(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct work work = { .stand = &stand, .action = WRITE };
	struct postern_unit unit = unit_of(&work, seq);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK_INT(work.runs, 1);
	CHECK_INT(unit.code, POSTERN_OK);
	CHECK(unit.committed);
	CHECK_INT(unit.outcome.kind, POSTERN_DONE);
	CHECK_INT(unit.duration_ms, 250);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_DONE);
	CHECK_INT(row.fence, 1);
	CHECK(row.finished_at_ms > 0);
	CHECK_INT(stand_handler_stats(&stand, "a").done, 1);

	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	stand_recover(&stand);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_DONE);
	CHECK_INT(count_rows(&stand), 1);
	stand_close(&stand);
}

static void discard_commits(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct work work = {
		.stand = &stand,
		.action = WRITE,
		.outcome = POSTERN_DISCARD,
		.reason = "not for us",
	};
	struct postern_unit unit = unit_of(&work, seq);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK_INT(unit.code, POSTERN_OK);
	CHECK(unit.committed);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_DISCARDED);
	CHECK_STR(row.last_error, "not for us");
	CHECK_INT(stand_handler_stats(&stand, "a").discarded, 1);
	CHECK_INT(count_rows(&stand), 1);
	stand_close(&stand);
}

static void others_roll_back(void) {
	static const enum postern_outcome_kind outcomes[] = {
		POSTERN_RETRY,
		POSTERN_RETRY_AFTER,
		POSTERN_SNOOZE,
		POSTERN_POISON,
	};
	for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++) {
		struct stand stand;
		stand_open(&stand, "a", NULL);
		int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
		struct work work = {
			.stand = &stand,
			.action = WRITE,
			.outcome = outcomes[i],
			.delay_ms = 77,
			.reason = "no luck",
		};
		struct postern_unit unit = unit_of(&work, seq);
		CHECK_OK(transact(&stand, &unit, 1), &stand.error);
		CHECK_INT(unit.code, POSTERN_OK);
		CHECK(!unit.committed);
		CHECK_INT(unit.outcome.kind, outcomes[i]);
		CHECK_INT(unit.outcome.delay_ms, 77);
		CHECK_STR(unit.outcome.reason, "no luck");
		CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
		CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
						  POSTERN_SETTLE_PENDING),
				POSTERN_OK);
		CHECK_INT(count_rows(&stand), 0);
		stand_close(&stand);
	}
}

static void stale_is_not_run(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct work work = { .stand = &stand, .action = WRITE };
	struct postern_unit unit = unit_of(&work, seq);
	unit.fence = 2;
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK_INT(unit.code, POSTERN_E_STALE);
	CHECK(!unit.committed);
	unit = unit_of(&work, seq);
	stand.node++;
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK_INT(unit.code, POSTERN_E_STALE);
	stand.node--;
	unit = unit_of(&work, seq + 1);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK_INT(unit.code, POSTERN_E_STALE);
	CHECK_INT(work.runs, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

/* A later lease: a store may check the first lease in another way. */
static void stale_later_lease(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_RETURNED),
			POSTERN_OK);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
	struct work work = { .stand = &stand, .action = WRITE };
	struct postern_unit unit = unit_of(&work, seq);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK_INT(unit.code, POSTERN_E_STALE);
	unit = unit_of(&work, seq);
	unit.fence = 2;
	stand.node++;
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK_INT(unit.code, POSTERN_E_STALE);
	CHECK(!unit.committed);
	stand.node--;
	CHECK_INT(work.runs, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK(unit.committed);
	stand_close(&stand);
}

static void several_units(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct work works[] = {
		{ .action = WRITE },
		{ .action = WRITE, .outcome = POSTERN_RETRY },
		{ .action = WRITE },
		{ .action = WRITE, .outcome = POSTERN_DISCARD },
		{ .action = WRITE },
	};
	static const char *const ids[] = { "0", "1", "2", "3", "4" };
	struct postern_unit units[5];
	int64_t seqs[5];
	for (size_t i = 0; i < 5; i++) {
		works[i].stand = &stand;
		seqs[i] = stand_accept_leased(&stand, ids[i], stand.handlers[0]);
		units[i] = unit_of(&works[i], seqs[i]);
	}
	units[4].fence = 9;
	CHECK_OK(transact(&stand, units, 5), &stand.error);
	static const int codes[] = { POSTERN_OK, POSTERN_OK, POSTERN_OK, POSTERN_OK,
		POSTERN_E_STALE };
	static const bool committed[] = { true, false, true, true, false };
	static const enum postern_state states[] = {
		POSTERN_STATE_DONE,
		POSTERN_STATE_LEASED,
		POSTERN_STATE_DONE,
		POSTERN_STATE_DISCARDED,
		POSTERN_STATE_LEASED,
	};
	for (size_t i = 0; i < 5; i++) {
		CHECK_INT(units[i].code, codes[i]);
		CHECK_INT(units[i].committed, committed[i]);
		CHECK_INT(stand_state(&stand, seqs[i], "a"), states[i]);
	}
	CHECK_INT(count_rows(&stand), 3);
	stand_close(&stand);
}

static void unit_ends_transaction(void) {
	static const enum action deeds[] = { WRITE_AND_COMMIT,
		WRITE_AND_ROLL_BACK };
	for (size_t i = 0; i < 2; i++) {
		struct stand stand;
		stand_open(&stand, "a", NULL);
		int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
		struct work work = { .stand = &stand, .action = deeds[i] };
		struct postern_unit unit = unit_of(&work, seq);
		CHECK_OK(transact(&stand, &unit, 1), &stand.error);
		CHECK_INT(unit.code, POSTERN_E_INVALID);
		CHECK(!unit.committed);
		CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
		/* The store still works. */
		CHECK_INT(count_rows(&stand), 0);
		work.action = WRITE;
		unit = unit_of(&work, seq);
		CHECK_OK(transact(&stand, &unit, 1), &stand.error);
		CHECK(unit.committed);
		CHECK_INT(count_rows(&stand), 1);
		stand_close(&stand);
	}
}

static void not_kept_on_crash(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct work work = {
		.stand = &stand,
		.action = WRITE,
		.outcome = POSTERN_RETRY,
	};
	struct postern_unit unit = unit_of(&work, seq);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK_INT(stand_recover(&stand).released, 1);
	CHECK_INT(count_rows(&stand), 0);
	stand_close(&stand);
}

static void epoch(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct work work = {
		.stand = &stand,
		.action = WRITE,
		.outcome = POSTERN_RETRY,
	};
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct postern_unit unit = unit_of(&work, seq);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	uint64_t first = work.epoch;
	unit = unit_of(&work, seq);
	CHECK_OK(transact(&stand, &unit, 1), &stand.error);
	CHECK_INT(work.runs, 2);
	CHECK(work.epoch == first);
	stand_close(&stand);
}

static void lost_lock(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct work work = { .stand = &stand, .action = WRITE };
	struct postern_unit unit = unit_of(&work, seq);
	struct postern_lock lock = { .name = "l" };
	bool held = false;
	CHECK_OK(stand.ops->lock(stand.store, "l", stand.node, 1000, &held,
					 &lock.fence, &stand.error),
			&stand.error);
	CHECK(held);
	lock.fence--;
	CHECK_OK(stand.ops->transact(stand.store, stand.node, &lock, &unit, 1,
					 &stand.error),
			&stand.error);
	CHECK_INT(work.runs, 0);
	CHECK_INT(unit.code, POSTERN_E_STALE);
	CHECK(!unit.committed);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	lock.fence++;
	CHECK_OK(stand.ops->transact(stand.store, stand.node, &lock, &unit, 1,
					 &stand.error),
			&stand.error);
	CHECK_INT(work.runs, 1);
	CHECK(unit.committed);
	stand_close(&stand);
}

const struct tap_case transact_cases[] = {
	{ "done commits what was written and the completion together",
			done_commits },
	{ "discard commits what was written and the completion together",
			discard_commits },
	{ "any other outcome rolls back and leaves the lease", others_roll_back },
	{ "a unit whose fence is stale is not run", stale_is_not_run },
	{ "a unit of another node's lease is not run, the first or a later one",
			stale_later_lease },
	{ "under a lost lock no unit is run", lost_lock },
	{ "units of one transaction commit or roll back one by one",
			several_units },
	{ "a unit that commits or rolls back itself is refused and undone",
			unit_ends_transaction },
	{ "a rolled back unit leaves nothing after a crash", not_kept_on_crash },
	{ "the epoch stays the same on one connection", epoch },
	{ 0 },
};

const struct tap_case no_transact_cases[] = {
	{ "a store without transactions returns unsupported and runs nothing",
			unsupported },
	{ 0 },
};
