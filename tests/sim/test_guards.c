/* SPDX-License-Identifier: MIT */

/*
 * Guards of several processes on the markers of one store, on one thread and
 * with a clock of their own. At each call of the store, and inside each guarded
 * function, a guard may be paused: other guards take steps then, or time
 * passes, or the paused process dies. A call may fail before it takes effect,
 * or take effect while its answer is lost. A case is a seed:
 *
 *   POSTERN_SEED=123 POSTERN_STEPS=2000 test_guards
 */

#include <inttypes.h>
#include <postern/postern.h>
#include <postern/sys/marker.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "support/fake_clock.h"
#include "tap.h"
#include "unit/dice.h"

#define NODE_COUNT 3
#define KEY_COUNT 4
#define LEASE_MS ((int64_t)1000)
#define EXPIRY_MS (50 * LEASE_MS)
#define DEPTH_MAX 4
#define STEPS_DEFAULT 4000

struct sim;

struct key {
	bool done;     /* FINISH took effect, and nothing has removed it */
	bool was_done; /* at any time */
	int64_t done_ms;
};

/* A process: a guard, and the markers as it sees them. */
struct node {
	struct postern_markers base;
	struct sim *sim;
	struct postern_box *box;
	struct postern_guard *guard;
	unsigned calls; /* in progress */
	bool dead;
	/* By key: when the lease ends that the store has given; whether the
	   function runs, and whether its last run succeeded. */
	int64_t lease_ms[KEY_COUNT];
	unsigned running[KEY_COUNT];
	bool succeeded[KEY_COUNT];
};

struct sim {
	struct fake_clock clock;
	struct fake_random random;
	struct dice dice;
	struct postern_store *store; /* which all nodes share */
	struct node nodes[NODE_COUNT];
	struct key keys[KEY_COUNT];
	pthread_t thread;
	unsigned depth;
	uint64_t seed;
	size_t step;
	bool failed;
	/* What happened: a run in which nothing did shows nothing. */
	size_t done, duplicates, busy, stale, lost, deaths, expired;
};

static void expect(struct sim *sim, bool good, const char *what) {
	if (!good && !sim->failed) {
		sim->failed = true;
		FAIL("POSTERN_SEED=%" PRIu64 ": step %zu, %s", sim->seed, sim->step,
				what);
	}
}

static bool chance(struct sim *sim, size_t of) {
	return dice_below(&sim->dice, of) == 0;
}

static void take_step(struct sim *sim);

/* The node is paused here; others go on. */
static void pause_here(struct node *node) {
	struct sim *sim = node->sim;
	while (sim->depth < DEPTH_MAX && chance(sim, 3)) {
		sim->depth++;
		take_step(sim);
		sim->depth--;
	}
	if (chance(sim, 60)) {
		node->dead = true;
		sim->deaths++;
	}
}

static size_t key_of(const struct postern_mark *mark) {
	return (size_t)(((const char *)mark->value)[0] - 'a');
}

/* What the store has done is a fact, whether the node learns of it or not. */
static void note_effect(struct node *node, size_t index,
		const struct postern_mark_request *request) {
	struct sim *sim = node->sim;
	struct key *key = &sim->keys[index];
	int64_t now = fake_clock_now(&sim->clock);
	if (request->kind == POSTERN_MARK_BEGIN &&
			request->before == POSTERN_MARK_UNKNOWN) {
		expect(sim, !key->done, "a lease was given of what is done");
		node->lease_ms[index] = now + request->lease_ms;
	} else if (request->kind == POSTERN_MARK_FINISH) {
		expect(sim, node->succeeded[index],
				"a marker was finished without its run");
		*key = (struct key){ true, true, now };
	}
}

static int lose(struct postern_error *error) {
	*error = (struct postern_error){ .code = POSTERN_E_UNAVAILABLE };
	return POSTERN_E_UNAVAILABLE;
}

static int node_change(struct postern_markers *markers,
		const struct postern_mark *mark, struct postern_mark_request *request,
		struct postern_error *error) {
	struct node *node = (struct node *)markers; /* its first member */
	struct sim *sim = node->sim;
	struct postern_markers *inner = sim->store->markers;
	struct postern_error room;
	error = error ? error : &room;
	if (!pthread_equal(pthread_self(), sim->thread)) {
		return lose(error); /* leases are not renewed */
	}
	pause_here(node);
	if (node->dead || chance(sim, 20)) {
		return lose(error);
	}
	int r = inner->ops->change(inner, mark, request, error);
	if (!r) {
		note_effect(node, key_of(mark), request);
	}
	pause_here(node);
	if (node->dead || (!r && chance(sim, 20))) {
		sim->lost++;
		return lose(error);
	}
	return r;
}

static int node_expire(struct postern_markers *markers,
		struct postern_mark_expiry *expiry, struct postern_error *error) {
	struct node *node = (struct node *)markers;
	struct postern_markers *inner = node->sim->store->markers;
	return inner->ops->expire(inner, expiry, error);
}

static const struct postern_marker_ops node_ops = {
	.version = POSTERN_MARKER_OPS_VERSION,
	.name = "memory",
	.change = node_change,
	.expire = node_expire,
};

struct work {
	struct node *node;
	size_t key;
	bool called;
	bool succeeds;
};

static void check_alone(struct sim *sim, const struct work *work) {
	int64_t now = fake_clock_now(&sim->clock);
	for (size_t i = 0; i < NODE_COUNT; i++) {
		const struct node *other = &sim->nodes[i];
		expect(sim,
				other == work->node || !other->running[work->key] ||
						other->lease_ms[work->key] <= now,
				"two processes run one key under leases");
	}
}

static void do_work(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	struct work *work = context;
	struct node *node = work->node;
	struct sim *sim = node->sim;
	(void)call;
	expect(sim, !work->called, "a call has run its function twice");
	expect(sim, !node->dead, "a dead process runs a function");
	expect(sim, !sim->keys[work->key].done, "what is done runs again");
	check_alone(sim, work);
	work->called = true;
	node->running[work->key]++;
	node->succeeded[work->key] = work->succeeds;
	pause_here(node);
	node->running[work->key]--;
	postern_outcome_set(outcome, work->succeeds ? POSTERN_DONE : POSTERN_RETRY,
			0, NULL);
}

static void check_result(struct sim *sim, const struct work *work, int r,
		bool was_done) {
	const struct key *key = &sim->keys[work->key];
	switch (r) {
	case POSTERN_OK:
		sim->done++;
		expect(sim, work->called && work->succeeds && key->was_done,
				"done, and the function has not succeeded");
		break;
	case POSTERN_E_DUPLICATE:
		sim->duplicates++;
		expect(sim, !work->called && (was_done || key->was_done),
				"a duplicate of what was never done");
		break;
	case POSTERN_E_FAILED:
		expect(sim, work->called && !work->succeeds,
				"failed, and the function has not");
		break;
	case POSTERN_E_BUSY:
		sim->busy++;
		expect(sim, !work->called, "busy, and the function was called");
		break;
	case POSTERN_E_STALE:
		sim->stale++;
		expect(sim, work->called, "stale, and the function was not called");
		break;
	default: expect(sim, r == POSTERN_E_UNAVAILABLE, "another error");
	}
}

static void run_key(struct node *node) {
	/* Nodes of the former generation have the old key only. */
	static const char *const legacy = "old";
	struct sim *sim = node->sim;
	bool old = node == &sim->nodes[0];
	struct work work = {
		.node = node,
		.key = dice_below(&sim->dice, KEY_COUNT),
		.succeeds = !chance(sim, 4),
	};
	const char value[2] = { (char)('a' + work.key), '\0' };
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = old ? "old" : "new",
		.legacy_keys = &legacy,
		.legacy_key_count = !old,
		.key = value,
	};
	bool was_done = sim->keys[work.key].was_done;
	node->calls++;
	int r = postern_guard_run(node->guard, &guarded, do_work, &work, NULL,
			NULL);
	node->calls--;
	check_result(sim, &work, r, was_done);
}

static void node_open(struct sim *sim, struct node *node) {
	struct postern_box_options box = {
		.size = sizeof box,
		.clock = &sim->clock.base,
		.random = &sim->random.base,
	};
	const struct postern_guard_options options = {
		.size = sizeof options,
		.wait_ms = -1,
		.lease_ms = LEASE_MS,
		.clock = &sim->clock.base,
		.random = &sim->random.base,
	};
	struct postern_error error;
	*node = (struct node){ .base.ops = &node_ops, .sim = sim };
	CHECK_OK(postern_box_open("memory:", &box, &node->box, &error), &error);
	node->box->store->markers = &node->base;
	CHECK_OK(postern_guard_create(node->box, &options, &node->guard, &error),
			&error);
}

static void node_close(struct node *node) {
	postern_guard_destroy(node->guard);
	postern_box_destroy(node->box);
}

static void expire(struct sim *sim, struct node *node) {
	int64_t before = fake_clock_now(&sim->clock) - EXPIRY_MS;
	uint64_t count = 0;
	struct postern_error error;
	CHECK_OK(postern_mark_expire(node->guard, NULL, EXPIRY_MS, &count, &error),
			&error);
	for (size_t i = 0; i < KEY_COUNT; i++) {
		struct key *key = &sim->keys[i];
		if (key->done && key->done_ms <= before) {
			key->done = false;
			sim->expired++;
		}
	}
}

static void take_step(struct sim *sim) {
	struct node *node = &sim->nodes[dice_below(&sim->dice, NODE_COUNT)];
	size_t what = dice_below(&sim->dice, 100);
	if (node->dead && node->calls == 0) {
		node_close(node);
		node_open(sim, node);
	}
	if (what < 20) {
		fake_clock_advance(&sim->clock,
				(int64_t)dice_below(&sim->dice,
						what < 4 ? 20 * LEASE_MS : LEASE_MS));
	} else if (what < 25) {
		expire(sim, node);
	} else if (!node->dead) {
		run_key(node);
	}
}

static size_t env_number(const char *name, size_t fallback) {
	const char *text = getenv(name);
	return text && *text ? strtoull(text, NULL, 10) : fallback;
}

static void run_seed(uint64_t seed) {
	struct sim sim = {
		.seed = seed,
		.dice = { .state = seed },
		.thread = pthread_self(),
	};
	size_t steps = env_number("POSTERN_STEPS", STEPS_DEFAULT);
	struct postern_error error;
	fake_clock_init(&sim.clock);
	fake_random_init(&sim.random, seed);
	const struct postern_store_options options = {
		.size = sizeof options,
		.clock = &sim.clock.base,
		.random = &sim.random.base,
	};
	if (!CHECK_OK(postern_store_open("memory:", &options, &sim.store, &error),
				&error)) {
		return;
	}
	for (size_t i = 0; i < NODE_COUNT; i++) {
		node_open(&sim, &sim.nodes[i]);
	}
	for (; sim.step < steps && !sim.failed; sim.step++) {
		take_step(&sim);
	}
	CHECK(steps < STEPS_DEFAULT || sim.failed ||
			(sim.done && sim.duplicates && sim.busy && sim.stale && sim.lost &&
					sim.deaths && sim.expired));
	for (size_t i = 0; i < NODE_COUNT; i++) {
		node_close(&sim.nodes[i]);
	}
	postern_store_destroy(sim.store);
}

static void fixed_seeds(void) {
	for (uint64_t seed = 1; seed <= 10; seed++) {
		run_seed(seed);
	}
}

static void new_seed(void) {
	const struct postern_random *random = postern_random_system();
	run_seed(env_number("POSTERN_SEED", random->next(random->context)));
}

static const struct tap_case cases[] = {
	{ "guards keep their promises wherever they are paused, by the same seeds",
			fixed_seeds },
	{ "guards keep their promises wherever they are paused, by a new seed",
			new_seed },
};

TAP_MAIN(cases)
