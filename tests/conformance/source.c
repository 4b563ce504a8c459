/* SPDX-License-Identifier: MIT */

/*
 * The specification of a source. Each case has a transport, a box on a store
 * that the case can stop or make fail, and a runner; it states one rule of
 * postern/sys/source.h in its name. Two invariants hold in all of them: every
 * message that is put into the transport is accepted, and none is acknowledged
 * before it is durable.
 *
 * The cases use real time, but no result depends on it: every wait is for an
 * event.
 */

#include "conformance/source_target.h"

#include <postern/postern.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "support/fault_store.h"
#include "tap.h"

/* Long enough for any machine; reached only when something is broken. */
#define PATIENCE_MS 10000
#define STEP_MS 2
#define RETRY_MS 20
#define MANY 200

/* The store, as the case controls it. */
struct gate {
	pthread_mutex_t mutex;
	pthread_cond_t opened;
	bool closed; /* writes of messages wait */
	size_t waiting;
	int failing; /* writes of messages fail with this code */
};

struct scene {
	struct gate gate;
	struct fault_plan plan;
	struct postern_box *box;
	struct postern_runner *runner;
	struct postern_error error;
	/* Events of the box. */
	atomic_size_t accepted;
	atomic_size_t duplicates;
	size_t put; /* into the transport */
};

static int decide(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct gate *gate = context;
	bool writes = (op == FAULT_APPLY && batch->accept_count > 0) ||
				  op == FAULT_COLLECT;
	if (!writes) {
		return POSTERN_OK;
	}
	(void)pthread_mutex_lock(&gate->mutex);
	gate->waiting++;
	while (gate->closed) {
		(void)pthread_cond_wait(&gate->opened, &gate->mutex);
	}
	gate->waiting--;
	int code = gate->failing;
	(void)pthread_mutex_unlock(&gate->mutex);
	return code;
}

static void set_gate(struct scene *scene, bool closed, int failing) {
	(void)pthread_mutex_lock(&scene->gate.mutex);
	scene->gate.closed = closed;
	scene->gate.failing = failing;
	(void)pthread_cond_broadcast(&scene->gate.opened);
	(void)pthread_mutex_unlock(&scene->gate.mutex);
}

static void count_event(void *context, const struct postern_event *event) {
	struct scene *scene = context;
	scene->accepted += event->kind == POSTERN_EVENT_ACCEPTED;
	scene->duplicates += event->kind == POSTERN_EVENT_DUPLICATE;
}

static void pause_test(void) {
	const struct timespec time = { .tv_nsec = STEP_MS * 1000000L };
	(void)nanosleep(&time, NULL);
}

/* Wait until `condition` holds. */
#define AWAIT(condition) \
	tap_check(await_##condition, __FILE__, __LINE__, #condition)

/* A case that has failed need not be patient. */
static int patience_ms(void) {
	return tap_failures > 0 ? 0 : PATIENCE_MS;
}

static bool await_accepted(struct scene *scene, size_t count) {
	for (int ms = 0; scene->accepted < count && ms < patience_ms();
			ms += STEP_MS) {
		pause_test();
	}
	return scene->accepted >= count;
}

static struct postern_source_state state_of(struct scene *scene) {
	struct postern_source_state state = { 0 };
	CHECK_INT(postern_runner_sources(scene->runner, &state, sizeof(state), 1),
			1);
	return state;
}

/* The transport is read after the store: what it regards as acknowledged must
   be durable by then. */
static size_t read_acknowledged(struct scene *scene, size_t bad) {
	size_t acknowledged = source_target.acknowledged(scene->runner != NULL);
	CHECK(acknowledged <= scene->accepted + bad);
	return acknowledged;
}

static bool await_acknowledged(struct scene *scene, size_t count, size_t bad) {
	size_t acknowledged = read_acknowledged(scene, bad);
	for (int ms = 0; acknowledged < count && ms < patience_ms();
			ms += STEP_MS) {
		pause_test();
		acknowledged = read_acknowledged(scene, bad);
	}
	return acknowledged >= count;
}

static bool await_waiting(struct scene *scene) {
	bool waits = false;
	for (int ms = 0; !waits && ms < patience_ms(); ms += STEP_MS) {
		(void)pthread_mutex_lock(&scene->gate.mutex);
		waits = scene->gate.waiting > 0;
		(void)pthread_mutex_unlock(&scene->gate.mutex);
		if (!waits) {
			pause_test();
		}
	}
	return waits;
}

static bool await_state(struct scene *scene, bool connected) {
	for (int ms = 0;
			state_of(scene).connected != connected && ms < patience_ms();
			ms += STEP_MS) {
		pause_test();
	}
	return state_of(scene).connected == connected;
}

static bool await_error(struct scene *scene) {
	for (int ms = 0; state_of(scene).error_at_ms == 0 && ms < patience_ms();
			ms += STEP_MS) {
		pause_test();
	}
	return state_of(scene).error_at_ms > 0;
}

static bool await_paused(struct scene *scene) {
	for (int ms = 0; !state_of(scene).paused && ms < patience_ms();
			ms += STEP_MS) {
		pause_test();
	}
	return state_of(scene).paused;
}

static bool open_box(struct scene *scene) {
	struct postern_error *error = &scene->error;
	struct postern_store *store = NULL;
	if (!CHECK_OK(postern_store_open("memory:", NULL, &store, error), error)) {
		return false;
	}
	scene->plan.decide = decide;
	scene->plan.context = &scene->gate;
	scene->plan.collect = source_target.collect;
	store = fault_store_create_taking(store, &scene->plan);
	struct postern_box_options options = {
		.size = sizeof options,
		.command_timeout_ms = PATIENCE_MS,
	};
	return CHECK_OK(postern_box_open_taking(store, &options, &scene->box,
							error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_subscribe(scene->box, POSTERN_LEVEL_DEBUG,
							count_event, scene, error),
				   error) &&
		   CHECK_OK(postern_box_start(scene->box, error), error);
}

/* A runner with a new source on the transport. */
static bool open_runner(struct scene *scene, uint32_t in_flight_max) {
	struct postern_error *error = &scene->error;
	struct postern_runner_options options = {
		.size = sizeof options,
		.workers = 1,
		.restart_delay_ms = RETRY_MS,
	};
	if (!CHECK_OK(postern_runner_create(scene->box, &options, &scene->runner,
						  error),
				error)) {
		return false;
	}
	if (source_target.create) {
		struct postern_source_options source = {
			.size = sizeof source,
			.name = "s",
			.channel = "c",
			.in_flight_max = in_flight_max,
		};
		return CHECK_OK(postern_runner_add_source_taking(scene->runner, &source,
								source_target.create(), error),
				error);
	}
	return true;
}

static void start_runner(struct scene *scene) {
	CHECK_OK(postern_runner_start(scene->runner, &scene->error), &scene->error);
}

static void end_runner(struct scene *scene) {
	postern_runner_stop(scene->runner);
	(void)source_target.acknowledged(scene->runner != NULL);
	postern_runner_destroy(scene->runner);
	scene->runner = NULL;
}

static bool open_scene(struct scene *scene, uint32_t in_flight_max) {
	*scene = (struct scene){ 0 };
	(void)pthread_mutex_init(&scene->gate.mutex, NULL);
	(void)pthread_cond_init(&scene->gate.opened, NULL);
	source_target.open();
	return open_box(scene) && open_runner(scene, in_flight_max);
}

static void close_scene(struct scene *scene) {
	set_gate(scene, false, 0);
	end_runner(scene);
	postern_box_destroy(scene->box);
	source_target.close();
	(void)pthread_cond_destroy(&scene->gate.opened);
	(void)pthread_mutex_destroy(&scene->gate.mutex);
}

/* Put `count` further messages, "m0", "m1" …, into the transport. */
static void put_many(struct scene *scene, size_t count) {
	for (size_t i = 0; i < count; i++) {
		char id[32];
		(void)snprintf(id, sizeof id, "m%zu", scene->put++);
		source_target.put(id);
	}
}

/* All that was put is accepted once, and acknowledged. */
static void check_all(struct scene *scene, size_t bad) {
	AWAIT(accepted(scene, scene->put));
	AWAIT(acknowledged(scene, scene->put + bad, bad));
	CHECK_INT(scene->accepted, scene->put);
}

static void every_message_is_accepted(void) {
	struct scene scene;
	if (open_scene(&scene, 0)) {
		put_many(&scene, MANY);
		start_runner(&scene);
		check_all(&scene, 0);
		put_many(&scene, MANY);
		check_all(&scene, 0);
		AWAIT(state(&scene, true));
		CHECK_INT(state_of(&scene).accepted, 2 * MANY);
		CHECK_INT(state_of(&scene).in_flight, 0);
	}
	close_scene(&scene);
}

static void no_early_acknowledgement(void) {
	struct scene scene;
	if (open_scene(&scene, 0)) {
		set_gate(&scene, true, 0);
		put_many(&scene, MANY);
		start_runner(&scene);
		AWAIT(waiting(&scene));
		/* Time enough for an acknowledgement that does not wait. */
		for (int i = 0; i < 20; i++) {
			pause_test();
			CHECK_INT(read_acknowledged(&scene, 0), 0);
		}
		set_gate(&scene, false, 0);
		check_all(&scene, 0);
	}
	close_scene(&scene);
}

static void unavailable_is_sent_again(void) {
	struct scene scene;
	if (open_scene(&scene, 0)) {
		set_gate(&scene, false, POSTERN_E_UNAVAILABLE);
		put_many(&scene, MANY);
		start_runner(&scene);
		for (int ms = 0; scene.plan.calls[FAULT_APPLY] +
										 scene.plan.calls[FAULT_COLLECT] <
								 3 &&
						 ms < patience_ms();
				ms += STEP_MS) {
			pause_test();
		}
		CHECK_INT(read_acknowledged(&scene, 0), 0);
		set_gate(&scene, false, 0);
		check_all(&scene, 0);
	}
	close_scene(&scene);
}

static void bad_messages_stop_nothing(void) {
	struct scene scene;
	if (open_scene(&scene, 0)) {
		put_many(&scene, 3);
		source_target.put_bad();
		put_many(&scene, 3);
		source_target.put_bad();
		start_runner(&scene);
		check_all(&scene, 2);
		put_many(&scene, 3);
		check_all(&scene, 2);
		CHECK_INT(state_of(&scene).rejected, 2);
	}
	close_scene(&scene);
}

static void paused_and_resumed(void) {
	struct scene scene;
	if (open_scene(&scene, 3)) {
		set_gate(&scene, true, 0);
		put_many(&scene, MANY);
		start_runner(&scene);
		AWAIT(paused(&scene));
		CHECK_INT(state_of(&scene).in_flight, 3);
		set_gate(&scene, false, 0);
		check_all(&scene, 0);
	}
	close_scene(&scene);
}

static void stopped_in_the_middle(void) {
	struct scene scene;
	if (!open_scene(&scene, 5)) {
		return;
	}
	/* Each runner gets a part of the way; the last one gets the rest. */
	for (size_t round = 0; round < 8; round++) {
		put_many(&scene, MANY);
		start_runner(&scene);
		AWAIT(accepted(&scene, (round + 1) * MANY / 2));
		CHECK_OK(postern_runner_drain(scene.runner, PATIENCE_MS, &scene.error),
				&scene.error);
		CHECK(!state_of(&scene).running);
		CHECK_INT(state_of(&scene).in_flight, 0);
		size_t accepted = scene.accepted;
		pause_test();
		pause_test();
		CHECK_INT(scene.accepted, accepted);
		end_runner(&scene);
		CHECK(read_acknowledged(&scene, 0) <= scene.accepted);
		if (!open_runner(&scene, 5)) {
			break;
		}
	}
	start_runner(&scene);
	check_all(&scene, 0);
	close_scene(&scene);
}

static void started_again(void) {
	struct scene scene;
	if (open_scene(&scene, 0)) {
		put_many(&scene, 3);
		start_runner(&scene);
		check_all(&scene, 0);
		postern_runner_stop(scene.runner);
		CHECK(!state_of(&scene).running);
		put_many(&scene, 3);
		start_runner(&scene);
		check_all(&scene, 0);
	}
	close_scene(&scene);
}

/* Opens the gate when the runner is being stopped. */
static void *open_later(void *context) {
	for (int i = 0; i < 25; i++) {
		pause_test();
	}
	set_gate(context, false, 0);
	return NULL;
}

static void stop_waits_for_completions(void) {
	struct scene scene;
	pthread_t thread;
	if (open_scene(&scene, 0)) {
		set_gate(&scene, true, 0);
		put_many(&scene, MANY);
		start_runner(&scene);
		AWAIT(waiting(&scene));
		CHECK_INT(pthread_create(&thread, NULL, open_later, &scene), 0);
		CHECK_OK(postern_runner_drain(scene.runner, 0, &scene.error),
				&scene.error);
		end_runner(&scene);
		(void)pthread_join(thread, NULL);
		/* What was in flight was completed, and acknowledged at the end. */
		CHECK(scene.accepted > 0);
		CHECK_INT(read_acknowledged(&scene, 0), scene.accepted);
		if (open_runner(&scene, 0)) {
			start_runner(&scene);
			check_all(&scene, 0);
		}
	}
	close_scene(&scene);
}

static void stop_while_unavailable(void) {
	struct scene scene;
	if (open_scene(&scene, 0)) {
		put_many(&scene, 5);
		start_runner(&scene);
		check_all(&scene, 0);
		set_gate(&scene, false, POSTERN_E_UNAVAILABLE);
		put_many(&scene, MANY);
		for (int i = 0; i < 10; i++) {
			pause_test();
		}
		end_runner(&scene);
		CHECK_INT(read_acknowledged(&scene, 0), 5);
		set_gate(&scene, false, 0);
		if (open_runner(&scene, 0)) {
			start_runner(&scene);
			check_all(&scene, 0);
		}
	}
	close_scene(&scene);
}

static void connection_cut(void) {
	struct scene scene;
	if (open_scene(&scene, 0)) {
		set_gate(&scene, true, 0);
		put_many(&scene, MANY);
		start_runner(&scene);
		AWAIT(waiting(&scene));
		source_target.disconnect();
		AWAIT(error(&scene));
		CHECK(state_of(&scene).error[0] != '\0');
		/* Completions of the former connection arrive in the new one. */
		set_gate(&scene, false, 0);
		check_all(&scene, 0);
		AWAIT(state(&scene, true));
		for (int i = 0; i < 5; i++) {
			put_many(&scene, MANY);
			source_target.disconnect();
		}
		check_all(&scene, 0);
	}
	close_scene(&scene);
}

static void repeated_and_reordered(void) {
	struct scene scene;
	if (open_scene(&scene, 7)) {
		source_target.shuffle();
		put_many(&scene, MANY);
		start_runner(&scene);
		check_all(&scene, 0);
		if (source_target.disconnect) {
			for (int i = 0; i < 5; i++) {
				put_many(&scene, MANY);
				source_target.disconnect();
			}
			check_all(&scene, 0);
		}
		CHECK(scene.duplicates > 0);
	}
	close_scene(&scene);
}

static void sent_again(void) {
	struct scene scene;
	if (open_scene(&scene, 0)) {
		put_many(&scene, 3);
		start_runner(&scene);
		check_all(&scene, 0);
		source_target.put("m1");
		source_target.put("m2");
		AWAIT(acknowledged(&scene, 5, 2));
		CHECK_INT(scene.accepted, 3);
		CHECK_INT(scene.duplicates, 2);
	}
	close_scene(&scene);
}

int main(int argc, char **argv) {
	static const struct tap_case always[] = {
		{ "every message of the transport is accepted once",
				every_message_is_accepted },
		{ "no message is acknowledged before it is durable",
				no_early_acknowledgement },
		{ "a message that the store could not take is sent again",
				unavailable_is_sent_again },
		{ "a message that cannot be accepted stops no other",
				bad_messages_stop_nothing },
		{ "a copy is a duplicate and is acknowledged", sent_again },
		{ "a source stopped in the middle continues later",
				stopped_in_the_middle },
		{ "a stopped source can be started again", started_again },
		{ "a stop waits for what is in flight, and acknowledges it",
				stop_waits_for_completions },
		{ "a stop while the store is unavailable acknowledges nothing",
				stop_while_unavailable },
	};
	struct tap_case cases[16];
	size_t count = sizeof always / sizeof always[0];
	memcpy(cases, always, sizeof always);
	if (source_target.pauses) {
		cases[count++] = (struct tap_case){
			"a source is paused when too much is in flight, and resumed",
			paused_and_resumed
		};
	}
	if (source_target.disconnect) {
		cases[count++] = (struct tap_case){
			"what was not acknowledged when the connection was cut is not lost",
			connection_cut
		};
	}
	if (source_target.shuffle) {
		cases[count++] = (struct tap_case){
			"repeated and reordered messages are accepted once",
			repeated_and_reordered
		};
	}
	return tap_main(argc, argv, cases, count);
}
