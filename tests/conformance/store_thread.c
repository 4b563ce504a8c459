/* SPDX-License-Identifier: MIT */

/*
 * Threads: every operation may be called from several threads at once.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "conformance/cases.h"
#include "conformance/stand.h"

#define THREAD_COUNT 64

/* State that the threads of one case share. */
struct crowd {
	struct stand *stand;
	pthread_barrier_t start;
	int64_t seq;
	size_t message_count;
	atomic_int ok;
	atomic_int refused;
	atomic_int next;
	atomic_uint *claims; /* by seq - crowd->seq */
};

/* Run a function on THREAD_COUNT threads that start at the same time. */
static void run_crowd(struct crowd *crowd, void *(*thread_main)(void *)) {
	pthread_t threads[THREAD_COUNT];
	pthread_barrier_init(&crowd->start, NULL, THREAD_COUNT);
	for (size_t i = 0; i < THREAD_COUNT; i++) {
		if (pthread_create(&threads[i], NULL, thread_main, crowd) != 0) {
			(void)fprintf(stderr, "cannot start a thread\n");
			abort();
		}
	}
	for (size_t i = 0; i < THREAD_COUNT; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	pthread_barrier_destroy(&crowd->start);
}

/* Enough ids for contention between the threads. */
#define ID_COUNT 16

static void accept_one(struct crowd *crowd, const char *id) {
	struct postern_error error;
	struct parcel parcel;
	parcel_init(&parcel, crowd->stand, id, "body");
	parcel_add_route(&parcel, crowd->stand->handlers[0]);
	parcel_pack(&parcel);
	struct postern_batch batch = {
		.node = crowd->stand->node,
		.accepts = &parcel.accept,
		.accept_count = 1,
	};
	CHECK_OK(crowd->stand->ops->apply(crowd->stand->store, &batch, &error),
			&error);
	if (parcel.accept.code == POSTERN_OK) {
		atomic_fetch_add(&crowd->ok, 1);
		CHECK(parcel.routes[0].opened);
	} else if (CHECK_INT(parcel.accept.code, POSTERN_E_DUPLICATE)) {
		atomic_fetch_add(&crowd->refused, 1);
		CHECK(!parcel.routes[0].opened);
	}
	CHECK(parcel.accept.seq > 0);
}

static void *accept_body(void *context) {
	struct crowd *crowd = context;
	pthread_barrier_wait(&crowd->start);
	for (int i = 0; i < ID_COUNT; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "same-%d", i);
		accept_one(crowd, id);
	}
	return NULL;
}

static void one_id(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct crowd crowd = { .stand = &stand };
	run_crowd(&crowd, accept_body);
	CHECK_INT(crowd.ok, ID_COUNT);
	CHECK_INT(crowd.refused, ID_COUNT * (THREAD_COUNT - 1));
	struct postern_channel_stats stats = stand_channel_stats(&stand, "orders");
	CHECK_INT(stats.accepted, ID_COUNT);
	CHECK_INT(stats.duplicates, ID_COUNT * (THREAD_COUNT - 1));
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 100).count, ID_COUNT);
	stand_close(&stand);
}

static void *claim_body(void *context) {
	struct crowd *crowd = context;
	struct stand *stand = crowd->stand;
	struct postern_memory *memory = postern_memory_create();
	struct postern_error error;
	struct postern_want want = { .handler = stand->handlers[0], .max = 3 };
	struct postern_claim claim = {
		.node = stand->node + (uint64_t)atomic_fetch_add(&crowd->next, 1),
		.wants = &want,
		.want_count = 1,
		.max = 3,
		.bytes_max = SIZE_MAX,
	};
	pthread_barrier_wait(&crowd->start);
	for (struct postern_claims claims = { .count = 1 }; claims.count > 0;) {
		if (!CHECK_OK(stand->ops->claim(stand->store, &claim, memory, &claims,
							  &error),
					&error)) {
			break;
		}
		for (size_t i = 0; i < claims.count; i++) {
			CHECK_INT(claims.items[i].fence, 1);
			atomic_fetch_add(&crowd->claims[claims.items[i].seq - crowd->seq],
					1);
		}
	}
	postern_memory_destroy(memory);
	return NULL;
}

/* A store may refuse claims of a node that is not enrolled. */
static void enrol_crowd(struct stand *stand) {
	for (uint64_t i = 1; i < THREAD_COUNT; i++) {
		struct postern_enrol_handler handler = { .key = "a" };
		struct postern_enrolment enrolment = {
			.node = stand->node + i,
			.handlers = &handler,
			.handler_count = 1,
		};
		CHECK_OK(stand->ops->enrol(stand->store, &enrolment, &stand->error),
				&stand->error);
	}
}

static void claims_do_not_overlap(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	enrol_crowd(&stand);
	struct crowd crowd = { .stand = &stand, .message_count = 500 };
	crowd.claims = calloc(crowd.message_count, sizeof *crowd.claims);
	crowd.seq =
			stand_accept_many(&stand, crowd.message_count, stand.handlers[0]);
	run_crowd(&crowd, claim_body);
	for (size_t i = 0; i < crowd.message_count; i++) {
		CHECK_INT(crowd.claims[i], 1);
	}
	CHECK_INT(stand_handler_stats(&stand, "a").leased, 500);
	free(crowd.claims);
	stand_close(&stand);
}

static void *settle_body(void *context) {
	struct crowd *crowd = context;
	struct postern_error error;
	struct postern_settlement settlement = {
		.seq = crowd->seq,
		.handler = crowd->stand->handlers[0],
		.fence = 1,
		.to = POSTERN_SETTLE_DONE,
		.outcome = "done",
	};
	struct postern_batch batch = {
		.node = crowd->stand->node,
		.settlements = &settlement,
		.settlement_count = 1,
	};
	pthread_barrier_wait(&crowd->start);
	CHECK_OK(crowd->stand->ops->apply(crowd->stand->store, &batch, &error),
			&error);
	atomic_fetch_add(settlement.code == POSTERN_OK ? &crowd->ok
												   : &crowd->refused,
			1);
	return NULL;
}

static void settled_once(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct crowd crowd = { .stand = &stand };
	crowd.seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	run_crowd(&crowd, settle_body);
	CHECK_INT(crowd.ok, 1);
	CHECK_INT(crowd.refused, THREAD_COUNT - 1);
	CHECK_INT(stand_handler_stats(&stand, "a").done, 1);
	stand_close(&stand);
}

/* Calls most operations; each thread has messages of its own. */
static void *mixed_body(void *context) {
	struct crowd *crowd = context;
	struct stand *stand = crowd->stand;
	struct postern_error error;
	int number = atomic_fetch_add(&crowd->next, 1);
	struct postern_memory *memory = postern_memory_create();
	struct postern_filter filter = { .size = sizeof filter, .limit = 10 };
	struct postern_query query = { .filter = &filter };
	struct postern_page page;
	struct postern_stats stats;
	struct postern_detail detail;
	struct postern_recovered recovered;
	pthread_barrier_wait(&crowd->start);
	for (int i = 0; i < 5; i++) {
		char id[32];
		struct parcel parcel;
		(void)snprintf(id, sizeof id, "%d-%d", number, i);
		parcel_init(&parcel, stand, id, "body");
		parcel_add_route(&parcel, stand->handlers[0])->lease = true;
		parcel_pack(&parcel);
		struct postern_batch batch = {
			.node = stand->node,
			.accepts = &parcel.accept,
			.accept_count = 1,
		};
		CHECK_OK(stand->ops->apply(stand->store, &batch, &error), &error);
		CHECK_INT(parcel.accept.code, POSTERN_OK);
		int64_t seq = parcel.accept.seq;
		CHECK_OK(stand->ops->get(stand->store, seq, memory, &detail, &error),
				&error);
		CHECK_STR(detail.message->id, id);
		CHECK_OK(stand->ops->list(stand->store, &query, memory, &page, &error),
				&error);
		CHECK_OK(stand->ops->stats(stand->store, memory, &stats, &error),
				&error);
		struct postern_recovery recovery = { .node = stand->node, .max = 10 };
		CHECK_OK(stand->ops->recover(stand->store, &recovery, &recovered,
						 &error),
				&error);
		struct postern_settlement settlement = {
			.seq = seq,
			.handler = stand->handlers[0],
			.fence = 1,
			.to = POSTERN_SETTLE_DONE,
			.outcome = "done",
		};
		batch = (struct postern_batch){
			.node = stand->node,
			.settlements = &settlement,
			.settlement_count = 1,
		};
		CHECK_OK(stand->ops->apply(stand->store, &batch, &error), &error);
		CHECK_INT(settlement.code, POSTERN_OK);
	}
	postern_memory_destroy(memory);
	return NULL;
}

static void everything_at_once(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct crowd crowd = { .stand = &stand };
	run_crowd(&crowd, mixed_body);
	CHECK_INT(stand_channel_stats(&stand, "orders").accepted, THREAD_COUNT * 5);
	struct postern_handler_stats stats = stand_handler_stats(&stand, "a");
	CHECK_INT(stats.done, THREAD_COUNT * 5);
	CHECK_INT(stats.pending, 0);
	CHECK_INT(stats.leased, 0);
	stand_close(&stand);
}

/* Remove everything that has ended, without retention. */
static void clean_ended(struct stand *stand) {
	struct postern_error error;
	struct postern_retention rule = { .channel = stand->orders };
	struct postern_cleaning cleaning = {
		.rules = &rule,
		.rule_count = 1,
		.max = ID_COUNT / 2,
		.bytes_max = SIZE_MAX,
		.more = true,
	};
	for (int i = 0; cleaning.more && i < 100; i++) {
		CHECK_OK(stand->ops->clean(stand->store, &cleaning, &error), &error);
	}
}

/* Send a message that may be stored already, for one of two handlers. */
static void send_maybe_copy(struct crowd *crowd, int number) {
	struct stand *stand = crowd->stand;
	struct postern_error error;
	struct parcel parcel;
	char id[16];
	(void)snprintf(id, sizeof id, "%d", number % ID_COUNT);
	parcel_init(&parcel, stand, id, "body");
	parcel_add_route(&parcel, stand->handlers[number / ID_COUNT % 2]);
	parcel_pack(&parcel);
	struct postern_batch batch = {
		.node = stand->node,
		.accepts = &parcel.accept,
		.accept_count = 1,
	};
	CHECK_OK(stand->ops->apply(stand->store, &batch, &error), &error);
	if (parcel.accept.code == POSTERN_OK) {
		atomic_fetch_add(&crowd->ok, 1);
	} else if (CHECK_INT(parcel.accept.code, POSTERN_E_DUPLICATE)) {
		atomic_fetch_add(&crowd->refused, 1);
	}
}

static void edit_by_state(struct stand *stand, enum postern_change_kind kind,
		enum postern_state state) {
	struct postern_error error;
	struct postern_filter filter = {
		.size = sizeof filter,
		.state = state,
		.channel = "orders",
		.limit = 4,
	};
	struct postern_edit edit = { .kind = kind, .filter = &filter };
	CHECK_OK(stand->ops->edit(stand->store, &edit, &error), &error);
}

static void claim_and_settle(struct stand *stand, int number) {
	struct postern_error error;
	struct postern_memory *memory = postern_memory_create();
	struct postern_claims claims = { 0 };
	struct postern_want want = { .handler = stand->handlers[number % 2],
		.max = 3 };
	struct postern_claim claim = {
		.node = stand->node,
		.wants = &want,
		.want_count = 1,
		.max = 3,
		.bytes_max = SIZE_MAX,
	};
	CHECK_OK(stand->ops->claim(stand->store, &claim, memory, &claims, &error),
			&error);
	for (size_t i = 0; i < claims.count; i++) {
		CHECK(claims.items[i].message);
		struct postern_settlement settlement = {
			.seq = claims.items[i].seq,
			.handler = want.handler,
			.fence = claims.items[i].fence,
			.to = number / 2 % 2 ? POSTERN_SETTLE_DONE
								 : POSTERN_SETTLE_DISCARDED,
			.outcome = "whatever",
		};
		struct postern_batch batch = {
			.node = stand->node,
			.settlements = &settlement,
			.settlement_count = 1,
		};
		CHECK_OK(stand->ops->apply(stand->store, &batch, &error), &error);
		CHECK_INT(settlement.code, POSTERN_OK);
	}
	postern_memory_destroy(memory);
}

static void *cleanup_body(void *context) {
	struct crowd *crowd = context;
	int number = atomic_fetch_add(&crowd->next, 1);
	pthread_barrier_wait(&crowd->start);
	for (int i = 0; i < 20; i++) {
		switch (number % 8) {
		case 0: clean_ended(crowd->stand); break;
		case 1:
			edit_by_state(crowd->stand, POSTERN_CHANGE_RETRY,
					POSTERN_STATE_DISCARDED);
			break;
		case 2:
			edit_by_state(crowd->stand, POSTERN_CHANGE_DISCARD,
					POSTERN_STATE_PENDING);
			break;
		case 3: claim_and_settle(crowd->stand, number / 8 + i); break;
		default: send_maybe_copy(crowd, 7 * number + 5 * i); break;
		}
	}
	return NULL;
}

static void removed_while_sent_again(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	struct crowd crowd = { .stand = &stand };
	run_crowd(&crowd, cleanup_body);
	struct postern_channel_stats stats = stand_channel_stats(&stand, "orders");
	CHECK_INT(stats.accepted, crowd.ok);
	CHECK_INT(stats.duplicates, crowd.refused);
	/* Every remaining delivery has its message. */
	struct postern_page page =
			stand_list(&stand, &(struct postern_filter){ 0 });
	for (size_t i = 0; i < page.count; i++) {
		CHECK(page.rows[i].message_id[0] != '\0');
	}
	stand_close(&stand);
}

const struct tap_case thread_cases[] = {
	{ "of 64 threads with one id exactly one is accepted", one_id },
	{ "of 64 nodes no two claim the same delivery", claims_do_not_overlap },
	{ "of 64 settlements of one lease exactly one succeeds", settled_once },
	{ "64 threads can call all operations at once", everything_at_once },
	{ "a message sent during its cleanup is stored completely or a duplicate",
			removed_while_sent_again },
	{ 0 },
};
