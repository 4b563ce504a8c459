/* SPDX-License-Identifier: MIT */

/*
 * Random operations on the markers of a store, and on a model of them: changes
 * of every kind, units with a mark, expiry, restarts, and time that passes. A
 * case is a seed, as in test_model.c:
 *
 *   POSTERN_SEED=123 POSTERN_STEPS=400 model_markers_sqlite
 */

#include <inttypes.h>
#include <postern/sys/marker.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <stdlib.h>

#include "conformance/marker_target.h"
#include "conformance/target.h"
#include "support/fake_clock.h"
#include "tap.h"
#include "unit/dice.h"

#define STEP_COUNT_DEFAULT 1000
#define KEY_COUNT 4
#define FENCE_COUNT 3
#define LEASE_MS 10000

struct row {
	bool exists;
	uint64_t fence;
	int64_t until_ms; /* 0: done */
	int64_t at_ms;
	int effects; /* of units that committed */
};

struct play {
	struct postern_markers *markers;
	struct fake_clock clock;
	struct fake_random random;
	struct dice dice;
	int64_t now_ms; /* since the beginning */
	struct row rows[KEY_COUNT];
	uint64_t seed;
	size_t step;
	bool failed;
};

static void expect(struct play *play, bool good, const char *what) {
	if (!good && !play->failed) {
		play->failed = true;
		FAIL("POSTERN_SEED=%" PRIu64 ": step %zu, %s", play->seed, play->step,
				what);
	}
}

static struct postern_store_options options_of(struct play *play) {
	return (struct postern_store_options){
		.size = sizeof(struct postern_store_options),
		.clock = &play->clock.base,
		.random = &play->random.base,
	};
}

static enum postern_mark_state state_of(const struct play *play,
		const struct row *row) {
	if (!row->exists) {
		return POSTERN_MARK_UNKNOWN;
	}
	return row->until_ms == 0             ? POSTERN_MARK_DONE
		   : play->now_ms < row->until_ms ? POSTERN_MARK_RUNNING
										  : POSTERN_MARK_UNKNOWN;
}

static void set_row(const struct play *play, struct row *row, uint64_t fence,
		int64_t lease_ms) {
	row->exists = true;
	row->fence = fence;
	row->until_ms = lease_ms > 0 ? play->now_ms + lease_ms : 0;
	row->at_ms = play->now_ms;
}

/* What a change leads to; the model is changed too. */
static int model_change(const struct play *play, struct row *row,
		enum postern_mark_kind kind, uint64_t fence,
		enum postern_mark_state *before_out) {
	enum postern_mark_state state = state_of(play, row);
	bool own = row->exists && row->fence == fence;
	bool again = own && state == POSTERN_MARK_DONE;
	bool mine = own && state != POSTERN_MARK_DONE;
	int r = POSTERN_OK;
	*before_out = state;
	switch (kind) {
	case POSTERN_MARK_BEGIN:
		if (state == POSTERN_MARK_UNKNOWN ||
				(own && state == POSTERN_MARK_RUNNING)) {
			*before_out = POSTERN_MARK_UNKNOWN;
			set_row(play, row, fence, LEASE_MS);
		}
		break;
	case POSTERN_MARK_EXTEND:
		r = mine && state == POSTERN_MARK_RUNNING ? POSTERN_OK
												  : POSTERN_E_STALE;
		if (r == POSTERN_OK) {
			set_row(play, row, fence, LEASE_MS);
		}
		break;
	case POSTERN_MARK_FINISH:
		r = mine || again ? POSTERN_OK : POSTERN_E_STALE;
		if (mine) {
			set_row(play, row, fence, 0);
		}
		break;
	case POSTERN_MARK_RELEASE:
		r = mine ? POSTERN_OK : POSTERN_E_STALE;
		row->exists = row->exists && !mine;
		break;
	case POSTERN_MARK_TRY:
	case POSTERN_MARK_RECORD:
		*before_out = again ? POSTERN_MARK_UNKNOWN : state;
		if (state == POSTERN_MARK_UNKNOWN ||
				(kind == POSTERN_MARK_RECORD &&
						state == POSTERN_MARK_RUNNING)) {
			set_row(play, row, fence, 0);
		}
		break;
	case POSTERN_MARK_FORGET: row->exists = false; break;
	case POSTERN_MARK_READ: break;
	}
	return r;
}

static size_t roll(struct play *play, size_t bound) {
	return dice_below(&play->dice, bound);
}

static struct postern_mark mark_of(const char *const *handler, size_t key,
		char text[8]) {
	(void)snprintf(text, 8, "k%zu", key);
	return (struct postern_mark){ handler, 1, text, strlen(text) };
}

static const char *const handlers[] = { "mail" };

static void change(struct play *play) {
	char text[8];
	size_t key = roll(play, KEY_COUNT);
	const struct postern_mark mark = mark_of(handlers, key, text);
	struct postern_mark_request request = {
		.kind = (enum postern_mark_kind)roll(play, POSTERN_MARK_FORGET + 1),
		.fence = 1 + roll(play, FENCE_COUNT),
		.lease_ms = LEASE_MS,
	};
	enum postern_mark_state before;
	struct postern_error error;
	int wanted = model_change(play, &play->rows[key], request.kind,
			request.fence, &before);
	int r = play->markers->ops->change(play->markers, &mark, &request, &error);
	expect(play, r == wanted, "another result of a change");
	expect(play, r != POSTERN_OK || request.before == before,
			"another state before a change");
}

struct job {
	int calls;
	bool succeeds;
};

static void run_job(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct job *job = context;
	(void)epoch;
	job->calls++;
	conformance_target.write(transaction);
	postern_outcome_set(outcome, job->succeeds ? POSTERN_DONE : POSTERN_RETRY,
			0, NULL);
}

/* A function runs if its key is unknown, and leaves nothing if it fails. */
static void transact(struct play *play) {
	struct postern_store *store = marker_target.store();
	char text[8];
	size_t key = roll(play, KEY_COUNT);
	struct row *row = &play->rows[key];
	const struct postern_mark mark = mark_of(handlers, key, text);
	struct job job = { .succeeds = roll(play, 3) > 0 };
	struct postern_unit unit = {
		.mark = &mark,
		.fence = 1 + roll(play, FENCE_COUNT),
		.wait_ms = 1000,
		.context = &job,
		.run = run_job,
	};
	enum postern_mark_state state = state_of(play, row);
	struct postern_error error;
	if (!store) {
		return;
	}
	int r = store->ops->transact(store, 0, NULL, &unit, 1, &error);
	bool runs = state == POSTERN_MARK_UNKNOWN;
	expect(play, r == POSTERN_OK, "a transaction failed");
	expect(play, job.calls == runs, "a function ran, or did not");
	expect(play, unit.committed == (runs && job.succeeds),
			"a unit committed, or did not");
	expect(play,
			runs || unit.code == (state == POSTERN_MARK_DONE
												 ? POSTERN_E_DUPLICATE
												 : POSTERN_E_BUSY),
			"another code of a unit");
	if (unit.committed) {
		set_row(play, row, unit.fence, 0);
		row->effects++;
	}
}

static void read_count(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	int64_t *count = context;
	(void)epoch;
	*count = conformance_target.count(transaction);
	postern_outcome_set(outcome, POSTERN_RETRY, 0, NULL);
}

/* There is an effect for every unit that committed, and no other. */
static void count(struct play *play) {
	static const char *const reader[] = { "reader" };
	struct postern_store *store = marker_target.store();
	const struct postern_mark mark = { reader, 1, "count", 5 };
	int64_t found = -1;
	int64_t wanted = 0;
	struct postern_unit unit = {
		.mark = &mark,
		.fence = 1,
		.wait_ms = 1000,
		.context = &found,
		.run = read_count,
	};
	for (size_t i = 0; i < KEY_COUNT; i++) {
		wanted += play->rows[i].effects;
	}
	if (store) {
		(void)store->ops->transact(store, 0, NULL, &unit, 1, NULL);
		expect(play, found == wanted, "another number of effects");
	}
}

static void expire(struct play *play) {
	struct postern_mark_expiry expiry = {
		.handler = roll(play, 2) ? handlers[0] : NULL,
		.older_ms = (int64_t)roll(play, 3 * LEASE_MS),
		.max = 1 + roll(play, 2 * KEY_COUNT),
		.more = true,
	};
	uint64_t wanted = 0;
	uint64_t found = 0;
	int r = POSTERN_OK;
	for (size_t i = 0; i < KEY_COUNT; i++) {
		struct row *row = &play->rows[i];
		bool old = row->exists && row->until_ms == 0 &&
				   row->at_ms <= play->now_ms - expiry.older_ms;
		wanted += old;
		row->exists = row->exists && !old;
	}
	for (int i = 0; i < 100 && r == POSTERN_OK && expiry.more; i++) {
		r = play->markers->ops->expire(play->markers, &expiry, NULL);
		found += expiry.count;
	}
	expect(play, r == POSTERN_OK && found == wanted,
			"another number of markers expired");
}

static void restart(struct play *play) {
	struct postern_store_options options = options_of(play);
	play->markers = marker_target.reopen(play->markers, &options);
	expect(play, play->markers != NULL, "the markers cannot be opened again");
}

static void pass_time(struct play *play) {
	int64_t ms = (int64_t)roll(play, LEASE_MS);
	fake_clock_advance(&play->clock, ms);
	play->now_ms += ms;
}

static void take_step(struct play *play) {
	size_t choice = roll(play, 100);
	if (choice < 60) {
		change(play);
	} else if (choice < 75) {
		transact(play);
	} else if (choice < 90) {
		pass_time(play);
	} else if (choice < 95) {
		expire(play);
	} else if (choice < 99) {
		count(play);
	} else {
		restart(play);
	}
}

static void run_seed(uint64_t seed, size_t step_count) {
	struct play play = { .seed = seed, .dice = { .state = seed } };
	fake_clock_init(&play.clock);
	fake_random_init(&play.random, 1);
	/* Later than any age. */
	play.now_ms = INT64_C(1) << 40;
	struct postern_store_options options = options_of(&play);
	play.markers = marker_target.open(&options);
	expect(&play, play.markers != NULL, "the markers cannot be opened");
	for (; play.step < step_count && !play.failed; play.step++) {
		take_step(&play);
	}
	if (play.markers) {
		marker_target.close(play.markers);
	}
}

static size_t env_number(const char *name, size_t fallback) {
	const char *text = getenv(name);
	return text && *text ? strtoull(text, NULL, 10) : fallback;
}

static void fixed_seeds(void) {
	size_t steps = env_number("POSTERN_STEPS", STEP_COUNT_DEFAULT);
	for (uint64_t seed = 1; seed <= 3; seed++) {
		run_seed(seed, steps);
	}
}

static void new_seed(void) {
	const struct postern_random *random = postern_random_system();
	uint64_t seed = random->next(random->context);
	run_seed(env_number("POSTERN_SEED", seed),
			env_number("POSTERN_STEPS", STEP_COUNT_DEFAULT));
}

static const struct tap_case cases[] = {
	{ "markers and model agree for the same seeds", fixed_seeds },
	{ "markers and model agree for a new seed", new_seed },
};

TAP_MAIN(cases)
