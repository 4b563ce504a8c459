/* SPDX-License-Identifier: MIT */

/*
 * The rows that cleanup leaves in the file: no table may keep anything of a
 * message that cannot be read any more. Which messages are removed when is
 * tested in tests/conformance/.
 */

#include "unit/sqlite_stand.h"

#define BATCH 3
#define PAYLOAD_MS 1000
#define DEDUPE_MS 5000

/* All rows about any message, except remembered ids. */
#define ROWS                                        \
	"SELECT (SELECT count(*) FROM postern_message)" \
	" + (SELECT count(*) FROM postern_open)"        \
	" + (SELECT count(*) FROM postern_ledger)"      \
	" + (SELECT count(*) FROM postern_attempt)"     \
	" + (SELECT count(*) FROM postern_parked)"      \
	" + (SELECT count(*) FROM postern_duplicate)"   \
	" + (SELECT count(*) FROM postern_conflict)"

static int64_t count(const struct stand *stand, const char *sql) {
	return file_number(stand->path, sql);
}

static void clean(struct stand *stand) {
	struct postern_retention rule = {
		.channel = stand->channel,
		.payload_ms = PAYLOAD_MS,
		.dedupe_ms = DEDUPE_MS,
	};
	struct postern_cleaning cleaning = {
		.rules = &rule,
		.rule_count = 1,
		.max = BATCH,
		.bytes_max = SIZE_MAX,
	};
	do {
		if (!CHECK_OK(stand->store->ops->clean(stand->store, &cleaning,
							  &stand->error),
					&stand->error)) {
			return;
		}
	} while (cleaning.more);
}

static void settle(struct stand *stand, int64_t seq, uint64_t fence,
		enum postern_settle_to to, const char *outcome) {
	struct postern_settlement settlement = {
		.seq = seq,
		.handler = stand->handler,
		.fence = fence,
		.to = to,
		.outcome = outcome,
		.error = "card 4711 declined",
	};
	struct postern_batch batch = {
		.node = NODE,
		.settlements = &settlement,
		.settlement_count = 1,
	};
	CHECK_OK(stand->store->ops->apply(stand->store, &batch, &stand->error),
			&stand->error);
	CHECK_INT(settlement.code, POSTERN_OK);
}

static void claim(struct stand *stand) {
	struct postern_want want = { .handler = stand->handler, .max = 10 };
	struct postern_claim request = {
		.node = NODE,
		.wants = &want,
		.want_count = 1,
		.max = 10,
		.bytes_max = 1000,
	};
	struct postern_claims claims = { 0 };
	CHECK_OK(stand->store->ops->claim(stand->store, &request, stand->memory,
					 &claims, &stand->error),
			&stand->error);
	CHECK_INT(claims.count, 1);
}

static void send_again(struct stand *stand, size_t len, int expected) {
	int code = 0;
	int64_t seq = 0;
	CHECK_OK(stand_send(stand, "a", len, &code, &seq), &stand->error);
	CHECK_INT(code, expected);
}

/* A copy with the same body, and one with another. */
static void send_copies(struct stand *stand) {
	send_again(stand, 4, POSTERN_E_DUPLICATE);
	send_again(stand, 5, POSTERN_E_CONFLICT);
}

static void nothing_of_the_message(void) {
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		int64_t seq = stand_accept(&stand, "a");
		send_copies(&stand);
		settle(&stand, seq, 1, POSTERN_SETTLE_PENDING, "retry");
		claim(&stand);
		settle(&stand, seq, 2, POSTERN_SETTLE_DISCARDED, "discard");
		CHECK(count(&stand, "SELECT count(*) FROM postern_attempt") > 0);
		CHECK(count(&stand, "SELECT count(*) FROM postern_ledger") > 0);
		CHECK(count(&stand, "SELECT count(*) FROM postern_duplicate") > 0);
		CHECK(count(&stand, "SELECT count(*) FROM postern_conflict") > 0);
		fake_clock_advance(&stand.clock, PAYLOAD_MS);
		clean(&stand);
		CHECK_INT(count(&stand, ROWS), 0);
		CHECK_INT(count(&stand, "SELECT count(*) FROM postern_seen"), 1);
	}
	stand_finish(&stand);
}

static void nothing_of_the_id(void) {
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		int64_t seq = stand_accept(&stand, "a");
		settle(&stand, seq, 1, POSTERN_SETTLE_DONE, "done");
		fake_clock_advance(&stand.clock, PAYLOAD_MS);
		clean(&stand);
		/* Copies are counted although the message was removed. */
		send_copies(&stand);
		CHECK(count(&stand, "SELECT count(*) FROM postern_duplicate") > 0);
		CHECK(count(&stand, "SELECT count(*) FROM postern_conflict") > 0);
		fake_clock_advance(&stand.clock, DEDUPE_MS);
		clean(&stand);
		CHECK_INT(count(&stand, ROWS), 0);
		CHECK_INT(count(&stand, "SELECT count(*) FROM postern_seen"), 0);
	}
	stand_finish(&stand);
}

static void keys_of_others(void) {
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		for (int i = 0; i < 3 * BATCH; i++) {
			char id[8];
			(void)snprintf(id, sizeof id, "%d", i);
			settle(&stand, stand_accept(&stand, id), 1, POSTERN_SETTLE_DONE,
					"done");
		}
		/* More than a batch of foreign keys, before and after all others. */
		for (int i = 0; i < BATCH + 1; i++) {
			char sql[200];
			(void)snprintf(sql, sizeof sql,
					"INSERT INTO postern_seen VALUES (x'00%02x', 1, x'', 0, 1, "
					"0),"
					" (x'ff%02xff', 1, x'', 0, 1, 0)",
					(unsigned)i, (unsigned)i);
			CHECK(file_exec(stand.path, sql));
		}
		fake_clock_advance(&stand.clock, PAYLOAD_MS + DEDUPE_MS);
		clean(&stand);
		CHECK_INT(count(&stand, "SELECT count(*) FROM postern_seen"),
				2 * (BATCH + 1));
	}
	stand_finish(&stand);
}

static const struct tap_case cases[] = {
	{ "the file keeps only the id of a message that cleanup removed",
			nothing_of_the_message },
	{ "the file keeps nothing of an id that cleanup removed",
			nothing_of_the_id },
	{ "keys of unknown messages stay and do not block the cleanup of others",
			keys_of_others },
};

TAP_MAIN(cases)
