/* SPDX-License-Identifier: MIT */

/*
 * A SQLite store on a failing disk: at every write, at every fsync, full, and
 * without memory. In every case acknowledged changes are stored and failed ones
 * are not, and the store continues by itself once the fault ends.
 */

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "support/fault_vfs.h"
#include "unit/dice.h"
#include "unit/sqlite_stand.h"

/* More calls than any operation here makes. */
#define CALLS_MAX 30000

static uint64_t last_epoch;

static void note_epoch(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	(void)context;
	(void)transaction;
	last_epoch = epoch;
	outcome->kind = POSTERN_RETRY;
}

static uint64_t epoch(struct stand *stand, int64_t seq) {
	struct postern_unit unit = {
		.seq = seq,
		.handler = stand->handler,
		.fence = 1,
		.run = note_epoch,
	};
	CHECK_OK(stand->store->ops->transact(stand->store, NODE, NULL, &unit, 1,
					 &stand->error),
			&stand->error);
	CHECK_INT(unit.code, POSTERN_OK);
	return last_epoch;
}

static void failed_fsync(void) {
	struct stand stand;
	int code;
	int64_t seq;
	stand_init(&stand);
	if (stand_open(&stand)) {
		int64_t first = stand_accept(&stand, "a");
		uint64_t before = epoch(&stand, first);

		fault_vfs_fail(FAULT_SYNC, 1, false, SQLITE_IOERR_FSYNC);
		CHECK_INT(stand_send(&stand, "b", 4, &code, &seq),
				POSTERN_E_UNAVAILABLE);
		CHECK(fault_vfs_heal());
		CHECK_CONTAINS(stand.error.text, stand.path);
		CHECK_INT(stand_state(&stand, first + 1), POSTERN_STATE_ANY);

		/* Not a duplicate: the failed message is not stored. */
		CHECK_INT(stand_accept(&stand, "b"), first + 1);
		CHECK_INT(epoch(&stand, first), before + 1);
		stand_close(&stand);
		CHECK_INT(file_number(stand.path,
						  "SELECT count(*) FROM postern_message"),
				2);
	}
	stand_finish(&stand);
}

static void failing_reopen(void) {
	struct stand stand;
	int code;
	int64_t seq;
	stand_init(&stand);
	if (stand_open(&stand)) {
		(void)stand_accept(&stand, "a");
		fault_vfs_fail(FAULT_SYNC, 1, true, SQLITE_IOERR_FSYNC);
		for (int i = 0; i < 3; i++) {
			CHECK_INT(stand_send(&stand, "b", 4, &code, &seq),
					POSTERN_E_UNAVAILABLE);
		}
		CHECK(fault_vfs_heal());
		fault_vfs_fail(FAULT_READ, 1, true, SQLITE_IOERR_READ);
		CHECK_INT(stand_send(&stand, "b", 4, &code, &seq),
				POSTERN_E_UNAVAILABLE);
		CHECK(fault_vfs_heal());
		CHECK(stand_accept(&stand, "b") > 0);
	}
	stand_finish(&stand);
}

static void disk_full(void) {
	struct stand stand;
	int code;
	int64_t seq;
	stand_init(&stand);
	if (stand_open(&stand)) {
		int64_t first = stand_accept(&stand, "a");
		uint64_t before = epoch(&stand, first);
		fault_vfs_fail(FAULT_WRITE, 1, true, SQLITE_FULL);
		CHECK_INT(stand_send(&stand, "b", 4, &code, &seq),
				POSTERN_E_UNAVAILABLE);
		CHECK_CONTAINS(stand.error.text, "disk is full");
		CHECK_INT(stand_state(&stand, first), POSTERN_STATE_LEASED);
		CHECK(fault_vfs_heal());
		CHECK(stand_accept(&stand, "b") > first);
		CHECK_INT(epoch(&stand, first), before);
	}
	stand_finish(&stand);
}

/* Accept "b" and settle "a" in one batch; returns what apply returned. */
static int settle_and_accept(struct stand *stand, int64_t first) {
	struct postern_message message = {
		.size = sizeof message,
		.id = "b",
		.source = "elsewhere",
		.type = "order.paid",
		.body = "b",
		.body_len = 1,
	};
	struct postern_route route = { .handler = stand->handler };
	struct postern_accept accept = {
		.message = &message,
		.key = postern__dedupe_key_by_id(&message),
		.channel = stand->channel,
		.routes = &route,
		.route_count = 1,
	};
	struct postern_settlement settlement = {
		.seq = first,
		.handler = stand->handler,
		.fence = 1,
		.to = POSTERN_SETTLE_POISONED,
		.failures = 1,
		.outcome = "poison",
		.error = "no reason",
	};
	struct postern_batch batch = {
		.node = NODE,
		.settlements = &settlement,
		.settlement_count = 1,
		.accepts = &accept,
		.accept_count = 1,
	};
	int r = stand->store->ops->apply(stand->store, &batch, &stand->error);
	CHECK(r != POSTERN_OK ||
			(accept.code == POSTERN_OK && settlement.code == POSTERN_OK));
	return r;
}

/* The batch is committed completely or not at all. */
static void check_batch(struct stand *stand, int64_t first, bool done) {
	struct postern_stats stats = { 0 };
	CHECK_INT(stand_state(stand, first),
			done ? POSTERN_STATE_POISONED : POSTERN_STATE_LEASED);
	CHECK_INT(stand_state(stand, first + 1),
			done ? POSTERN_STATE_PENDING : POSTERN_STATE_ANY);
	CHECK_OK(stand->store->ops->stats(stand->store, stand->memory, &stats,
					 &stand->error),
			&stand->error);
	if (CHECK_INT(stats.handler_count, 1)) {
		CHECK_INT(stats.handlers[0].poisoned, done);
		CHECK_INT(stats.handlers[0].pending, done);
		CHECK_INT(stats.handlers[0].leased, !done);
		CHECK_INT(stats.channels[0].accepted, done ? 2 : 1);
	}
}

static void fail_each(enum fault_kind kind, int code, int expected) {
	bool fault_hit = true;
	for (long n = 1; fault_hit && n < CALLS_MAX; n++) {
		struct stand stand;
		stand_init(&stand);
		if (!stand_open(&stand)) {
			stand_finish(&stand);
			return;
		}
		int64_t first = stand_accept(&stand, "a");
		fault_vfs_fail(kind, n, false, code);
		int r = settle_and_accept(&stand, first);
		fault_hit = fault_vfs_heal();
		CHECK(r == POSTERN_OK || r == expected);
		/* The call succeeds if no fault was hit, or if SQLite did not need the
		   call. */
		check_batch(&stand, first, r == POSTERN_OK);
		if (r != POSTERN_OK) {
			CHECK(fault_hit);
			CHECK_OK(settle_and_accept(&stand, first), &stand.error);
			check_batch(&stand, first, true);
		}
		stand_close(&stand);
		CHECK_INT(file_number(stand.path,
						  "SELECT count(*) FROM pragma_integrity_check"
						  " WHERE integrity_check = 'ok'"),
				1);
		CHECK(stand_open(&stand));
		check_batch(&stand, first, true);
		stand_finish(&stand);
	}
	CHECK(!fault_hit); /* or CALLS_MAX is too few */
}

static void every_write_fails(void) {
	fail_each(FAULT_WRITE, SQLITE_IOERR_WRITE, POSTERN_E_UNAVAILABLE);
}

static void every_write_finds_no_room(void) {
	fail_each(FAULT_WRITE, SQLITE_FULL, POSTERN_E_UNAVAILABLE);
}

static void every_sync_fails(void) {
	fail_each(FAULT_SYNC, SQLITE_IOERR_FSYNC, POSTERN_E_UNAVAILABLE);
}

static void every_allocation_fails(void) {
	fail_each(FAULT_MALLOC, SQLITE_NOMEM, POSTERN_E_NOMEM);
}

static void open_each(enum fault_kind kind, int code) {
	bool fault_hit = true;
	/* Thousands of allocations: every one at first, then every so many. */
	for (long n = 1; fault_hit && n < CALLS_MAX; n += 1 + n / 40) {
		struct stand stand;
		stand_init(&stand);
		fault_vfs_fail(kind, n, false, code);
		int r = stand_open_path(&stand, stand.path, &stand.store);
		fault_hit = fault_vfs_heal();
		CHECK(r == POSTERN_OK || fault_hit);
		if (r != POSTERN_OK) {
			CHECK(r == POSTERN_E_UNAVAILABLE || r == POSTERN_E_NOMEM);
			CHECK(!stand.store);
		}
		stand_close(&stand);
		if (stand_open(&stand)) {
			CHECK_INT(stand_accept(&stand, "a"), 1);
		}
		stand_finish(&stand);
	}
	CHECK(!fault_hit);
}

static void open_with_failing_writes(void) {
	open_each(FAULT_WRITE, SQLITE_IOERR_WRITE);
}

static void open_with_failing_syncs(void) {
	open_each(FAULT_SYNC, SQLITE_IOERR_FSYNC);
}

static void open_without_memory(void) {
	open_each(FAULT_MALLOC, SQLITE_NOMEM);
}

static int claim(struct stand *stand, struct postern_claims *out) {
	struct postern_want want = { .handler = stand->handler, .max = 10 };
	struct postern_claim wanted = {
		.node = NODE,
		.wants = &want,
		.want_count = 1,
		.max = 10,
		.bytes_max = 1000,
	};
	return stand->store->ops->claim(stand->store, &wanted, stand->memory, out,
			&stand->error);
}

static void claim_without_memory(void) {
	struct stand stand;
	struct postern_claims claims;
	bool fault_hit = true;
	stand_init(&stand);
	if (!stand_open(&stand)) {
		stand_finish(&stand);
		return;
	}
	int64_t first = stand_accept(&stand, "a");
	CHECK_OK(settle_and_accept(&stand, first), &stand.error);
	for (long n = 1; fault_hit && n < CALLS_MAX; n++) {
		fault_vfs_fail(FAULT_MALLOC, n, false, SQLITE_NOMEM);
		int r = claim(&stand, &claims);
		fault_hit = fault_vfs_heal();
		if (r != POSTERN_OK) {
			CHECK_INT(r, POSTERN_E_NOMEM);
			CHECK_INT(stand_state(&stand, first + 1), POSTERN_STATE_PENDING);
		} else {
			CHECK_INT(claims.count, 1);
			CHECK_INT(stand_state(&stand, first + 1), POSTERN_STATE_LEASED);
			break;
		}
	}
	stand_finish(&stand);
}

static void read_on_failing_disk(void) {
	static const enum fault_kind kinds[] = { FAULT_READ, FAULT_MALLOC };
	struct stand stand;
	stand_init(&stand);
	if (!stand_open(&stand)) {
		stand_finish(&stand);
		return;
	}
	int64_t seq = stand_accept(&stand, "a");
	for (size_t i = 0; i < 2; i++) {
		bool fault_hit = true;
		for (long n = 1; fault_hit && n < CALLS_MAX; n++) {
			struct postern_detail detail;
			fault_vfs_fail(kinds[i], n, false,
					i ? SQLITE_NOMEM : SQLITE_IOERR_READ);
			int r = stand.store->ops->get(stand.store, seq, stand.memory,
					&detail, &stand.error);
			fault_hit = fault_vfs_heal();
			CHECK(r == POSTERN_OK ||
					r == (i ? POSTERN_E_NOMEM : POSTERN_E_UNAVAILABLE));
		}
		CHECK_INT(stand_state(&stand, seq), POSTERN_STATE_LEASED);
	}
	stand_finish(&stand);
}

#define DAMAGE_ROUNDS 300

/* Flip a few bits of the file after its header. */
static void damage_file(const char *path, struct dice *dice) {
	FILE *file = fopen(path, "r+b");
	if (!CHECK(file)) {
		return;
	}
	CHECK_INT(fseek(file, 0, SEEK_END), 0);
	long len = ftell(file);
	for (size_t i = 0; i < 4; i++) {
		long at = 100 + (long)dice_below(dice, (size_t)len - 100);
		int bit = 1 << dice_below(dice, 8);
		(void)fseek(file, at, SEEK_SET);
		int byte = fgetc(file);
		(void)fseek(file, at, SEEK_SET);
		(void)fputc(byte ^ bit, file);
	}
	CHECK_INT(fclose(file), 0);
}

/* Call every kind of operation; results do not matter, only that all calls
   return. */
static void call_everything(struct stand *stand) {
	const struct postern_store_ops *ops = stand->store->ops;
	struct postern_store *store = stand->store;
	struct postern_filter filter = { .size = sizeof filter, .limit = 100 };
	struct postern_query query = { .filter = &filter };
	struct postern_page page;
	struct postern_stats stats;
	struct postern_claims claims;
	struct postern_recovered recovered;
	struct postern_orphan *orphans;
	size_t count;
	int code;
	int64_t seqs[4];
	struct postern_edit edit = {
		.kind = POSTERN_CHANGE_RETRY,
		.filter = &filter,
	};
	(void)stand_enrol(stand);
	struct postern_recovery recovery = { .node = NODE + 1, .max = 100 };
	(void)ops->recover(store, &recovery, &recovered, &stand->error);
	(void)claim(stand, &claims);
	(void)stand_send(stand, "a", 4, &code, &seqs[0]);
	(void)stand_send(stand, "d", 4, &code, &seqs[0]);
	(void)ops->list(store, &query, stand->memory, &page, &stand->error);
	(void)ops->stats(store, stand->memory, &stats, &stand->error);
	(void)ops->find(store, "a", NULL, NULL, seqs, 4, &count, &stand->error);
	(void)ops->edit(store, &edit, &stand->error);
	(void)ops->orphans(store, NODE, NULL, true, 10, stand->memory, &orphans,
			&count, &stand->error);
	(void)stand_state(stand, 1);
}

static void damaged_file(void) {
	struct dice dice = { .state = 7 };
	int refused = 0;
	for (int i = 0; i < DAMAGE_ROUNDS; i++) {
		struct stand stand;
		stand_init(&stand);
		if (stand_open(&stand)) {
			CHECK_OK(settle_and_accept(&stand, stand_accept(&stand, "a")),
					&stand.error);
			(void)stand_accept(&stand, "c");
			stand_close(&stand);
			damage_file(stand.path, &dice);
			int r = stand_open_path(&stand, stand.path, &stand.store);
			CHECK(r == POSTERN_OK || stand.error.text[0]);
			refused += r != POSTERN_OK;
			if (r == POSTERN_OK) {
				call_everything(&stand);
			}
		}
		stand_finish(&stand);
	}
	CHECK(refused > 0);
}

static bool write_file(const char *path, size_t len) {
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	bool ok = fd >= 0 && posix_fallocate(fd, 0, (off_t)len) == 0;
	return fd >= 0 && close(fd) == 0 && ok;
}

static void real_full_disk(void) {
	struct stand stand;
	char filler[PATH_LEN_MAX];
	int code = 0;
	int64_t seq = 0;
	int64_t accepted = 0;
	stand_init(&stand);
	/* Needs root. */
	if (!CHECK_INT(mount("none", stand.dir.path, "tmpfs", 0, "size=4m"), 0)) {
		stand_finish(&stand);
		return;
	}
	temp_dir_name(&stand.dir, "", "filler", filler, sizeof filler);
	CHECK(write_file(filler, 2 << 20));
	if (stand_open(&stand)) {
		int r = POSTERN_OK;
		for (int i = 0; r == POSTERN_OK && i < 1000; i++) {
			char id[16];
			(void)snprintf(id, sizeof id, "m%d", i);
			r = stand_send(&stand, id, 60000, &code, &seq);
			accepted += r == POSTERN_OK;
		}
		CHECK_INT(r, POSTERN_E_UNAVAILABLE);
		CHECK_CONTAINS(stand.error.text, "disk is full");
		CHECK(accepted > 0);
		CHECK_INT(stand_state(&stand, 1), POSTERN_STATE_LEASED);
		CHECK_INT(unlink(filler), 0);
		CHECK_OK(stand_send(&stand, "after", 60000, &code, &seq), &stand.error);
		CHECK_INT(code, POSTERN_OK);
		stand_close(&stand);
		CHECK_INT(file_number(stand.path,
						  "SELECT count(*) FROM postern_message"),
				accepted + 1);
	}
	stand_close(&stand);
	CHECK_INT(umount(stand.dir.path), 0);
	stand_finish(&stand);
}

static const struct tap_case cases[] = {
	{ "a commit that cannot be synced fails and reopens the file",
			failed_fsync },
	{ "a store continues as soon as the disk works again", failing_reopen },
	{ "a full disk is reported, can be read, and is recovered from",
			disk_full },
	{ "a batch commits completely or not at all, whichever write fails",
			every_write_fails },
	{ "a batch commits completely or not at all, wherever the disk is full",
			every_write_finds_no_room },
	{ "a batch commits completely or not at all, whichever fsync fails",
			every_sync_fails },
	{ "a batch commits completely or not at all, whichever allocation fails",
			every_allocation_fails },
	{ "a file can be opened again, whichever write failed",
			open_with_failing_writes },
	{ "a file can be opened again, whichever fsync failed",
			open_with_failing_syncs },
	{ "a file can be opened again, whichever allocation failed",
			open_without_memory },
	{ "a claim that runs out of memory leases nothing", claim_without_memory },
	{ "reading fails cleanly, whichever call fails", read_on_failing_disk },
	{ "a damaged file does not crash the process", damaged_file },
	{ "a store recovers from a real full disk", real_full_disk },
};

int main(int argc, char **argv) {
	/* The faults do not need a real disk, which is slow. */
	if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0) {
		(void)setenv("TMPDIR", "/dev/shm", 0);
	}
	fault_vfs_install();
	return tap_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
