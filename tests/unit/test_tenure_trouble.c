/* SPDX-License-Identifier: MIT */
/*
 * Tenure in trouble: the store fails, or somebody else comes, at the very
 * moment when a box begins a new life or lets go of its lock.
 */

#include "tap.h"

#include "core/box.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"

#include <postern/inspect.h>
#include <postern/postern.h>
#include <sched.h>
#include <stdatomic.h>

#define LOCK_NAME "InboxProcessor_default"
#define LEASE_MS 9000
#define STRANGER 12345

struct house {
	struct fake_clock clock;
	struct fake_random random;
	struct fault_plan plan;
	struct postern_store *store;
	struct postern_box *box;
	struct postern_error error;
	atomic_bool no_enrol;
	atomic_bool hold; /* the handler waits */
	atomic_int running;
	/* Done by somebody else while the answer to an enrolment is on its way. */
	int (*meanwhile)(struct postern_box *box, const char *handler,
			struct postern_error *error);
};

static int decide(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct house *house = context;
	(void)batch;
	return op == FAULT_ENROL && atomic_load(&house->no_enrol)
				   ? POSTERN_E_UNAVAILABLE
				   : POSTERN_OK;
}

static int decide_after(void *context, enum fault_op op) {
	struct house *house = context;
	if (op == FAULT_ENROL && house->meanwhile) {
		CHECK_OK(house->meanwhile(house->box, "h", &house->error),
				&house->error);
	}
	return POSTERN_OK;
}

static void handle(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct house *house = context;
	(void)message;
	(void)delivery;
	atomic_fetch_add(&house->running, 1);
	while (atomic_load(&house->hold)) {
		(void)sched_yield();
	}
	outcome->kind = POSTERN_DONE;
}

static bool open_leased(struct house *house, enum postern_processing processing,
		int64_t lease_ms) {
	*house = (struct house){ 0 };
	fake_clock_init(&house->clock);
	fake_random_init(&house->random, 7);
	house->plan.decide = decide;
	house->plan.decide_after = decide_after;
	house->plan.context = house;
	house->plan.shared = true;
	struct postern_store_options store = {
		.size = sizeof(store),
		.clock = &house->clock.base,
		.random = &house->random.base,
	};
	struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &house->clock.base,
		.random = &house->random.base,
		.processing = processing,
		.node_lease_ms = lease_ms,
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = handle,
		.context = house,
	};
	struct postern_error *error = &house->error;
	return CHECK_OK(postern_store_open("memory:", &store, &house->store, error),
				   error) &&
		   CHECK_OK(postern_box_open_taking(fault_store_create_taking(
													house->store, &house->plan),
							&options, &house->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(house->box, "orders", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_add_handler(house->box, "orders", &handler,
							error),
				   error) &&
		   CHECK_OK(postern_box_start(house->box, error), error);
}

static bool open_house(struct house *house,
		enum postern_processing processing) {
	return open_leased(house, processing, 0);
}

static void close_house(struct house *house) {
	postern_box_destroy(house->box);
	postern_store_destroy(house->store);
}

static void send(struct house *house, const char *id) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = "t",
	};
	CHECK_OK(postern_box_accept(house->box, "orders", &message, NULL,
					 &house->error),
			&house->error);
}

static size_t process(struct house *house) {
	size_t count = 0;
	CHECK_OK(postern_box_process(house->box, 0, &count, &house->error),
			&house->error);
	return count;
}

static size_t poison_orphans(struct house *house) {
	size_t count = 0;
	CHECK_OK(postern__poison_orphans(house->box, &count, &house->error),
			&house->error);
	return count;
}

static void unknown_life(void) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_EXCLUSIVE)) {
		CHECK_INT(process(&house), 0);
		send(&house, "1");
		/* The next life begins with an enrolment, which fails. */
		atomic_store(&house.no_enrol, true);
		CHECK_INT(postern_box_sweep(house.box, NULL, &house.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_INT(poison_orphans(&house), 0);
		atomic_store(&house.no_enrol, false);
		CHECK_OK(postern_box_sweep(house.box, NULL, &house.error),
				&house.error);
		CHECK_INT(poison_orphans(&house), 0);
		CHECK_INT(process(&house), 1);
	}
	close_house(&house);
}

static void gone_life(void) {
	struct house house;
	if (open_leased(&house, POSTERN_PROCESSING_PARALLEL, LEASE_MS)) {
		send(&house, "1");
		/* It was found gone, and cannot begin again yet. */
		bool alive;
		CHECK_OK(house.store->ops->renew(house.store, house.box->node, 0,
						 &alive, &house.error),
				&house.error);
		atomic_store(&house.no_enrol, true);
		CHECK_INT(postern_box_sweep(house.box, NULL, &house.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_INT(poison_orphans(&house), 0);
		atomic_store(&house.no_enrol, false);
		CHECK_OK(postern_box_sweep(house.box, NULL, &house.error),
				&house.error);
		CHECK_INT(poison_orphans(&house), 0);
		CHECK_INT(process(&house), 1);
	}
	close_house(&house);
}

static void pause_during(bool paused) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_PARALLEL)) {
		if (!paused) {
			CHECK_OK(postern_box_pause(house.box, "h", &house.error),
					&house.error);
		}
		house.meanwhile = paused ? postern_box_pause : postern_box_resume;
		CHECK_OK(postern__enrol(house.box, &house.error), &house.error);
		house.meanwhile = NULL;
		CHECK_INT(house.box->entries[0]->paused, paused);
		send(&house, "1");
		CHECK_INT(process(&house), paused ? 0 : 1);
	}
	close_house(&house);
}

static void paused_meanwhile(void) {
	pause_during(true);
}

static void resumed_meanwhile(void) {
	pause_during(false);
}

static void *process_thread(void *context) {
	struct house *house = context;
	(void)postern_box_process(house->box, 0, NULL, NULL);
	return NULL;
}

static bool stranger_gets_lock(struct house *house) {
	bool held = true;
	uint64_t fence;
	CHECK_OK(house->store->ops->lock(house->store, LOCK_NAME, STRANGER, 1000,
					 &held, &fence, &house->error),
			&house->error);
	return held;
}

static void two_process(void) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_EXCLUSIVE)) {
		pthread_t thread;
		send(&house, "1");
		atomic_store(&house.hold, true);
		CHECK_INT(pthread_create(&thread, NULL, process_thread, &house), 0);
		while (atomic_load(&house.running) == 0) {
			(void)sched_yield();
		}
		CHECK_INT(process(&house), 0);
		CHECK(!stranger_gets_lock(&house));
		atomic_store(&house.hold, false);
		(void)pthread_join(thread, NULL);
		CHECK(stranger_gets_lock(&house));
	}
	close_house(&house);
}

static void *enrol_thread(void *context) {
	struct house *house = context;
	do {
		(void)postern__enrol(house->box, NULL);
		atomic_fetch_add(&house->running, 1);
	} while (atomic_load(&house->hold));
	return NULL;
}

/* For the thread sanitizer. */
static void enrol_beside_accepts(void) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_PARALLEL)) {
		pthread_t thread;
		atomic_store(&house.hold, true);
		CHECK_INT(pthread_create(&thread, NULL, enrol_thread, &house), 0);
		while (atomic_load(&house.running) == 0) {
			(void)sched_yield();
		}
		for (int i = 0; i < 1000; i++) {
			char id[16];
			(void)snprintf(id, sizeof(id), "%d", i);
			send(&house, id);
		}
		atomic_store(&house.hold, false);
		(void)pthread_join(thread, NULL);
		CHECK_INT(process(&house), 1000);
	}
	close_house(&house);
}

static const struct tap_case cases[] = {
	{ "a life that could not be enrolled makes no orphans", unknown_life },
	{ "a node that was found gone makes no orphans of its own", gone_life },
	{ "a pause outlives an enrolment that was under way", paused_meanwhile },
	{ "a handler that is resumed during an enrolment runs", resumed_meanwhile },
	{ "who ends processing by hand leaves the lock to who goes on",
			two_process },
	{ "enrolling again disturbs no accept", enrol_beside_accepts },
};

TAP_MAIN(cases)
