/* SPDX-License-Identifier: MIT */
/*
 * Transactional callbacks on SQLite, through the whole engine: their writes and
 * their completion commit together, and no callback can bypass that.
 */

#include "tap.h"

#include "core/box.h"
#include "core/maintenance.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"
#include "support/temp_dir.h"

#include <postern/postern.h>
#include <pthread.h>
#include <semaphore.h>
#include <sqlite3.h>
#include <string.h>

enum trick {
	TRICK_NONE,
	TRICK_FAIL,
	TRICK_COMMIT,
	TRICK_ROLLBACK,
	TRICK_STEAL,  /* write to Postern's own tables */
	TRICK_ACCEPT, /* accept from inside */
	TRICK_ASYNC   /* the same, without waiting */
};

struct bench {
	struct temp_dir dir;
	struct postern_box *box;
	struct postern_error error;
	enum trick trick;
	int calls;
	int trick_code;
};

static int run_sql(void *transaction, const char *sql) {
	return sqlite3_exec(transaction, sql, NULL, NULL, NULL);
}

static void ignore_receipt(void *context,
		const struct postern_receipt *receipt) {
	(void)context;
	(void)receipt;
}

static void run_callback(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct bench *bench = context;
	bench->calls++;
	if (!CHECK(delivery->transaction != NULL)) {
		return;
	}
	CHECK_INT(run_sql(delivery->transaction,
					  "create table if not exists effect(n)"),
			SQLITE_OK);
	CHECK_INT(run_sql(delivery->transaction, "insert into effect values (1)"),
			SQLITE_OK);
	switch (bench->trick) {
	case TRICK_FAIL:
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "no");
		break;
	case TRICK_COMMIT:
		bench->trick_code = run_sql(delivery->transaction, "commit");
		break;
	case TRICK_ROLLBACK:
		bench->trick_code = run_sql(delivery->transaction, "rollback");
		break;
	case TRICK_STEAL:
		bench->trick_code =
				run_sql(delivery->transaction, "delete from postern_open");
		break;
	case TRICK_ACCEPT:
		bench->trick_code =
				postern_box_accept(bench->box, "c", message, NULL, NULL);
		break;
	case TRICK_ASYNC:
		bench->trick_code = postern_box_accept_async(bench->box, "c", message,
				ignore_receipt, NULL, NULL);
		break;
	case TRICK_NONE:
	default: break;
	}
}

static struct postern_handler_options handler_options(struct bench *bench,
		const struct postern_policy *policy) {
	return (struct postern_handler_options){
		.size = sizeof(struct postern_handler_options),
		.key = "h",
		.callback = run_callback,
		.context = bench,
		.transactional = true,
		.policy = policy,
	};
}

static bool open_box(struct bench *bench) {
	*bench = (struct bench){ 0 };
	temp_dir_create(&bench->dir);
	char url[TEMP_DIR_PATH_MAX + 32];
	temp_dir_name(&bench->dir, "sqlite:", "box.db", url, sizeof(url));
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.max_attempts = 1;
	struct postern_handler_options handler = handler_options(bench, &policy);
	struct postern_error *error = &bench->error;
	return CHECK_OK(postern_box_open(url, NULL, &bench->box, error), error) &&
		   CHECK_OK(postern_box_add_channel(bench->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_add_handler(bench->box, "c", &handler, error),
				   error) &&
		   CHECK_OK(postern_box_start(bench->box, error), error);
}

static void close_box(struct bench *bench) {
	postern_box_destroy(bench->box);
	temp_dir_destroy(&bench->dir);
}

/* Closes the box first, because its file has one owner at a time. */
static int count_effects(struct bench *bench) {
	postern_box_destroy(bench->box);
	bench->box = NULL;
	char path[TEMP_DIR_PATH_MAX + 32];
	temp_dir_name(&bench->dir, "", "box.db", path, sizeof(path));
	sqlite3 *database = NULL;
	sqlite3_stmt *statement = NULL;
	int count = 0;
	CHECK_INT(sqlite3_open(path, &database), SQLITE_OK);
	/* A missing table means no effect: its creation was rolled back, too. */
	if (sqlite3_prepare_v2(database, "select count(*) from effect", -1,
				&statement, NULL) == SQLITE_OK &&
			sqlite3_step(statement) == SQLITE_ROW) {
		count = sqlite3_column_int(statement, 0);
	}
	(void)sqlite3_finalize(statement);
	(void)sqlite3_close(database);
	return count;
}

static bool deliver(struct bench *bench, struct postern_detail **out) {
	struct postern_message message = { .size = sizeof(message), .id = "a" };
	int64_t seq;
	size_t count;
	return CHECK_OK(postern_box_accept(bench->box, "c", &message, &seq,
							&bench->error),
				   &bench->error) &&
		   CHECK_OK(postern_box_process(bench->box, 0, &count, &bench->error),
				   &bench->error) &&
		   CHECK_OK(postern_box_get(bench->box, seq, out, &bench->error),
				   &bench->error);
}

/* Runs one delivery with a trick; checks its state and the number of
   effects. */
static void expect_trick(enum trick trick, enum postern_state state,
		int effects) {
	struct bench bench;
	struct postern_detail *detail;
	if (open_box(&bench)) {
		bench.trick = trick;
		if (deliver(&bench, &detail)) {
			const struct postern_row *row = &detail->deliveries[0].row;
			CHECK_INT(row->state, state);
			if (state == POSTERN_STATE_POISONED) {
				CHECK(row->last_error != NULL);
			}
			postern_detail_destroy(detail);
		}
		CHECK_INT(bench.calls, 1);
		if (trick != TRICK_NONE && trick != TRICK_FAIL) {
			CHECK(bench.trick_code != 0);
		}
		CHECK_INT(count_effects(&bench), effects);
	}
	close_box(&bench);
}

static void success_commits_both(void) {
	expect_trick(TRICK_NONE, POSTERN_STATE_DONE, 1);
}

static void failure_rolls_back(void) {
	expect_trick(TRICK_FAIL, POSTERN_STATE_POISONED, 0);
}

/* The COMMIT is refused and the attempt fails with all of its writes. */
static void own_commit_is_refused(void) {
	expect_trick(TRICK_COMMIT, POSTERN_STATE_POISONED, 0);
}

static void own_rollback_is_refused(void) {
	expect_trick(TRICK_ROLLBACK, POSTERN_STATE_POISONED, 0);
}

static void own_tables_are_safe(void) {
	expect_trick(TRICK_STEAL, POSTERN_STATE_POISONED, 0);
}

static void accept_inside_is_busy(void) {
	expect_trick(TRICK_ACCEPT, POSTERN_STATE_DONE, 1);
	expect_trick(TRICK_ASYNC, POSTERN_STATE_DONE, 1);
}

/* Returns the code that all the calls have; -1: they differ. */
static int use_engine(struct postern_box *box) {
	struct postern_generation *next = NULL;
	CHECK_INT(postern_generation_create(box, &next, NULL), POSTERN_OK);
	int codes[] = {
		postern_box_replace_taking(box, next, NULL),
		postern_box_process(box, 0, NULL, NULL),
		postern_box_sweep(box, NULL, NULL),
	};
	return codes[0] == codes[1] && codes[1] == codes[2] ? codes[0] : -1;
}

/* A generation is replaced by another thread while the handler is called. */
struct rival {
	struct bench *bench;
	struct postern_generation *next;
	sem_t registers; /* the other thread is about to write */
	pthread_t thread;
	int code;
};

static int announce_enrol(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct rival *rival = context;
	(void)batch;
	if (op == FAULT_ENROL && rival->next) {
		(void)sem_post(&rival->registers);
	}
	return POSTERN_OK;
}

static void *replace_meanwhile(void *context) {
	struct rival *rival = context;
	rival->code =
			postern_box_replace_taking(rival->bench->box, rival->next, NULL);
	return NULL;
}

static void use_engine_meanwhile(void *context,
		const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct rival *rival = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	CHECK_INT(postern_generation_create(rival->bench->box, &rival->next, NULL),
			POSTERN_OK);
	CHECK_INT(pthread_create(&rival->thread, NULL, replace_meanwhile, rival),
			0);
	(void)sem_wait(&rival->registers);
	rival->bench->calls++;
	rival->bench->trick_code = use_engine(rival->bench->box);
}

/* Otherwise they wait for the other thread, which waits for the handler. */
static void engine_inside_is_busy(void) {
	struct bench bench = { 0 };
	struct rival rival = { .bench = &bench };
	struct fault_plan plan = { .decide = announce_enrol, .context = &rival };
	struct postern_error *error = &bench.error;
	struct postern_store_options options = {
		.size = sizeof(options),
		.command_timeout_ms = 3000,
	};
	struct postern_handler_options handler = handler_options(&bench, NULL);
	struct postern_message message = { .size = sizeof(message), .id = "a" };
	struct postern_store *store = NULL;
	char url[TEMP_DIR_PATH_MAX + 32];
	handler.callback = use_engine_meanwhile;
	handler.context = &rival;
	(void)sem_init(&rival.registers, 0, 0);
	temp_dir_create(&bench.dir);
	temp_dir_name(&bench.dir, "sqlite:", "box.db", url, sizeof(url));
	if (CHECK_OK(postern_store_open(url, &options, &store, error), error) &&
			CHECK_OK(postern_box_open_taking(fault_store_create_taking(store,
													 &plan),
							 NULL, &bench.box, error),
					error)) {
		CHECK_OK(postern_box_add_channel(bench.box, "c", NULL, error), error);
		CHECK_OK(postern_box_add_handler(bench.box, "c", &handler, error),
				error);
		CHECK_OK(postern_box_start(bench.box, error), error);
		CHECK_OK(postern_box_accept(bench.box, "c", &message, NULL, error),
				error);
		CHECK_OK(postern_box_process(bench.box, 0, NULL, error), error);
		if (CHECK_INT(bench.calls, 1)) {
			(void)pthread_join(rival.thread, NULL);
		}
		CHECK_INT(bench.trick_code, POSTERN_E_BUSY);
		CHECK_INT(rival.code, POSTERN_OK);
	}
	(void)sem_destroy(&rival.registers);
	close_box(&bench);
}

/* What was reported of a run that has the writer. */
struct holding {
	struct bench bench;
	struct fake_clock clock;
	int reports;
	int64_t duration_ms;
	char handler[16];
	char message_id[16];
};

static void note_holding(void *context, const struct postern_event *event) {
	struct holding *holding = context;
	if (event->kind == POSTERN_EVENT_WRITER_HELD) {
		holding->reports++;
		holding->duration_ms = event->duration_ms;
		(void)snprintf(holding->handler, sizeof holding->handler, "%s",
				event->handler);
		(void)snprintf(holding->message_id, sizeof holding->message_id, "%s",
				event->message_id);
	}
}

static void hold_writer(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct holding *holding = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	holding->bench.calls++;
	fake_clock_advance(&holding->clock, 999);
	(void)postern__watchdog_step(holding->bench.box);
	CHECK_INT(holding->reports, 0);
	fake_clock_advance(&holding->clock, 501);
	int64_t next = postern__watchdog_step(holding->bench.box);
	CHECK_INT(holding->reports, 1);
	CHECK_INT(holding->duration_ms, 1500);
	CHECK_STR(holding->handler, "h");
	CHECK_STR(holding->message_id, "a");
	CHECK(next > postern__box_now_ms(holding->bench.box));
	fake_clock_advance(&holding->clock, 1000);
	(void)postern__watchdog_step(holding->bench.box);
	CHECK_INT(holding->reports, 1);
}

static void long_transaction_is_reported(void) {
	struct holding holding = { 0 };
	struct bench *bench = &holding.bench;
	struct postern_error *error = &bench->error;
	char url[TEMP_DIR_PATH_MAX + 32];
	fake_clock_init(&holding.clock);
	temp_dir_create(&bench->dir);
	temp_dir_name(&bench->dir, "sqlite:", "box.db", url, sizeof(url));
	struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &holding.clock.base,
	};
	struct postern_handler_options handler = handler_options(bench, NULL);
	handler.callback = hold_writer;
	handler.context = &holding;
	struct postern_message message = { .size = sizeof(message), .id = "a" };
	CHECK_OK(postern_box_open(url, &options, &bench->box, error), error);
	CHECK_OK(postern_box_subscribe(bench->box, POSTERN_LEVEL_WARN, note_holding,
					 &holding, error),
			error);
	CHECK_OK(postern_box_add_channel(bench->box, "c", NULL, error), error);
	CHECK_OK(postern_box_add_handler(bench->box, "c", &handler, error), error);
	CHECK_OK(postern_box_start(bench->box, error), error);
	CHECK_OK(postern_box_accept(bench->box, "c", &message, NULL, error), error);
	CHECK_OK(postern_box_claim(bench->box, 1, NULL, error), error);
	CHECK_OK(postern_box_run(bench->box, 1, NULL, error), error);
	CHECK_INT(bench->calls, 1);
	CHECK_INT(holding.reports, 1);
	close_box(bench);
}

static void end_units(void *context, struct postern_unit *units, size_t count) {
	const int *code = context;
	for (size_t i = 0; i < count; i++) {
		units[i].code = *code;
	}
}

/* Runs the only delivery `count` times; each ends with this code. */
static void run_units(struct bench *bench, struct fake_clock *clock, int *code,
		int ends, int count) {
	struct postern_error *error = &bench->error;
	*code = ends;
	for (int i = 0; i < count; i++) {
		fake_clock_advance(clock, 60000);
		CHECK_OK(postern_box_claim(bench->box, 1, NULL, error), error);
		CHECK_OK(postern_box_run(bench->box, 1, NULL, error), error);
		CHECK_OK(postern_box_commit(bench->box, NULL, error), error);
	}
}

static void check_row(struct bench *bench, enum postern_state state,
		uint32_t failures, uint64_t fence) {
	struct postern_listing *listing = NULL;
	CHECK_OK(postern_box_list(bench->box, NULL, &listing, &bench->error),
			&bench->error);
	const struct postern_row *row = postern_listing_get(listing, 0);
	CHECK_INT(row->state, state);
	CHECK_INT(row->failures, failures);
	CHECK_INT(row->fence, fence);
	postern_listing_destroy(listing);
}

static void returns_are_no_lost_connections(void) {
	struct bench bench = { 0 };
	struct fake_clock clock;
	int code = POSTERN_OK;
	struct fault_plan plan = { .transact = end_units, .context = &code };
	struct postern_error *error = &bench.error;
	struct postern_message message = { .size = sizeof(message), .id = "a" };
	struct postern_store *store = NULL;
	struct postern_policy policy;
	char url[TEMP_DIR_PATH_MAX + 32];
	fake_clock_init(&clock);
	postern_policy_init(&policy);
	policy.max_attempts = 1;
	struct postern_handler_options handler = handler_options(&bench, &policy);
	struct postern_store_options of_store = {
		.size = sizeof(of_store),
		.clock = &clock.base,
	};
	struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &clock.base,
	};
	temp_dir_create(&bench.dir);
	temp_dir_name(&bench.dir, "sqlite:", "box.db", url, sizeof(url));
	CHECK_OK(postern_store_open(url, &of_store, &store, error), error);
	CHECK_OK(postern_box_open_taking(fault_store_create_taking(store, &plan),
					 &options, &bench.box, error),
			error);
	CHECK_OK(postern_box_add_channel(bench.box, "c", NULL, error), error);
	CHECK_OK(postern_box_add_handler(bench.box, "c", &handler, error), error);
	CHECK_OK(postern_box_start(bench.box, error), error);
	CHECK_OK(postern_box_accept(bench.box, "c", &message, NULL, error), error);
	run_units(&bench, &clock, &code, POSTERN_E_TIMEOUT, 30);
	check_row(&bench, POSTERN_STATE_PENDING, 0, 30);
	run_units(&bench, &clock, &code, POSTERN_E_UNAVAILABLE, 20);
	check_row(&bench, POSTERN_STATE_PENDING, 0, 50);
	run_units(&bench, &clock, &code, POSTERN_E_UNAVAILABLE, 1);
	check_row(&bench, POSTERN_STATE_POISONED, 1, 51);
	close_box(&bench);
}

static const struct tap_case cases[] = {
	{ "a success commits effect and completion together",
			success_commits_both },
	{ "a failure leaves no effect", failure_rolls_back },
	{ "a handler that commits by itself fails", own_commit_is_refused },
	{ "a handler that rolls back by itself fails", own_rollback_is_refused },
	{ "a handler cannot write to the store's own tables", own_tables_are_safe },
	{ "accepting from inside a transactional handler is busy",
			accept_inside_is_busy },
	{ "replacing, processing and sweeping from inside are busy",
			engine_inside_is_busy },
	{ "a transaction that has the writer for long is reported once, meanwhile",
			long_transaction_is_reported },
	{ "a returned lease is no lost connection; the twenty-first one is charged",
			returns_are_no_lost_connections },
};

TAP_MAIN(cases)
