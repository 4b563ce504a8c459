/* SPDX-License-Identifier: MIT */
/* The box of the scenario, its handlers, and what they do. */

#include "crash/world.h"

#include <fcntl.h>
#include <postern/sys/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "crash/faults.h"

#define TRIES 5
#define MAX_ATTEMPTS 3
/* High, because the sweeps kill the process, not the messages. */
#define MAX_CRASHES 20
/* A life starts this much later than the one before: longer than all waits
   within one. */
#define LIFE_MS 1000000000LL
#define EPOCH_MS 1700000000000LL
/* Longer than any delay after a failure of the store. */
#define REST_MS 5000
/* Longer than the node lease. */
#define NODE_LEASE_MS 20000
/* Also how long a stopped process may block others. */
#define COMMAND_TIMEOUT_MS 3000

static int64_t clock_ms(void *context) {
	struct world *world = context;
	int64_t now = EPOCH_MS + atomic_load(world->offset_ms);
	if (world->flowing) {
		const struct postern_clock *real = postern_clock_system();
		now += real->monotonic_ms(real->context);
	}
	return now;
}

static uint64_t roll(void *context) {
	struct world *world = context;
	uint64_t x = world->dice;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	world->dice = x;
	return x;
}

/* Maps the clock's offset from a file that other processes may share. */
static atomic_llong *share_offset(const char *path) {
	atomic_llong *offset = MAP_FAILED;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0 && ftruncate(fd, sizeof *offset) == 0) {
		offset = mmap(NULL, sizeof *offset, PROT_READ | PROT_WRITE, MAP_SHARED,
				fd, 0);
	}
	if (offset == MAP_FAILED) {
		perror(path);
		exit(2);
	}
	(void)close(fd);
	return offset;
}

static void start_clock(struct world *world) {
	const char *shared = getenv("SCENARIO_CLOCK");
	world->offset_ms = &world->own_offset_ms;
	if (shared) {
		world->offset_ms = share_offset(shared);
		atomic_fetch_add(world->offset_ms, LIFE_MS);
	} else {
		atomic_store(world->offset_ms, world->life * LIFE_MS);
	}
}

void world_init(struct world *world, const char *path, const char *history,
		int life, bool forgets, bool shared) {
	*world = (struct world){
		.path = path,
		.life = life,
		.forgets = forgets,
		.dice = 0x9e3779b97f4a7c15u * (uint64_t)life + 1,
	};
	bool is_url = strncmp(path, "postgres:", strlen("postgres:")) == 0;
	(void)snprintf(world->url, sizeof world->url, "%s%s%s",
			is_url ? "" : "sqlite:", path, shared ? "?shared=yes" : "");
	effects_init(&world->effects, world->url);
	start_clock(world);
	world->clock = (struct postern_clock){
		.context = world,
		.wall_ms = clock_ms,
		.monotonic_ms = clock_ms,
	};
	world->random = (struct postern_random){ .context = world, .next = roll };
	history_open(&world->history, history, life, &world->clock);
	if (life == 1) {
		history_write(&world->history,
				"{\"e\":\"config\",\"handlers\":{"
				"\"ledger\":{\"transactional\":true,\"max_attempts\":%d,"
				"\"max_crashes\":%d,\"channel\":\"orders\"},"
				"\"mail\":{\"transactional\":false,\"max_attempts\":%d,"
				"\"max_crashes\":%d,\"channel\":\"orders\"},"
				"\"late\":{\"transactional\":false,\"max_attempts\":%d,"
				"\"max_crashes\":%d,\"channel\":\"notes\"}},"
				"\"retention\":{\"payload_ms\":%d,\"dedupe_ms\":%d}}",
				MAX_ATTEMPTS, MAX_CRASHES, MAX_ATTEMPTS, MAX_CRASHES,
				MAX_ATTEMPTS, MAX_CRASHES, forgets ? WORLD_PAYLOAD_MS : 0,
				forgets ? WORLD_DEDUPE_MS : 0);
	}
}

void world_finish(struct world *world) {
	world_close(world);
	history_close(&world->history);
}

void world_wait(struct world *world, int64_t ms) {
	atomic_fetch_add(world->offset_ms, ms);
}

bool world_is_recorded(const char *handler) {
	return strcmp(handler, "sums") != 0 && strcmp(handler, "gone") != 0 &&
		   strcmp(handler, "erp") != 0;
}

static bool body_is(const struct postern_message *message, const char *body) {
	return message->body_len == strlen(body) &&
		   memcmp(message->body, body, message->body_len) == 0;
}

/* Sets the outcome that the body asks for. */
static void set_outcome(const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	if (body_is(message, "fail once") && delivery->attempt == 1) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "asked to fail once");
	} else if (body_is(message, "fail always")) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "asked to fail");
	} else if (body_is(message, "poison")) {
		postern_outcome_set(outcome, POSTERN_POISON, 0, "asked for poison");
	} else if (body_is(message, "snooze") && delivery->fence < 2) {
		postern_outcome_set(outcome, POSTERN_SNOOZE, 10, NULL);
	} else if (body_is(message, "discard") && !delivery->transaction) {
		postern_outcome_set(outcome, POSTERN_DISCARD, 0, "not wanted");
	}
}

static void run_plain(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	const struct world *world = context;
	history_run(&world->history, message, delivery);
	set_outcome(message, delivery, outcome);
	history_ran(&world->history, delivery, outcome->kind);
}

/* Runs only if the handler could not be paused; not recorded for the
   checker. */
static void run_gone(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)message;
	(void)delivery;
	(void)outcome;
}

/* Writes first, so that a run that does not end as done has to be rolled
   back. */
static void run_transactional(void *context,
		const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	const struct world *world = context;
	history_run(&world->history, message, delivery);
	if (effects_write(&world->effects, delivery->transaction, delivery->seq,
				delivery->handler, delivery->fence)) {
		set_outcome(message, delivery, outcome);
	} else {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "no effect");
	}
	history_ran(&world->history, delivery, outcome->kind);
}

static void record_event(void *context, const struct postern_event *event) {
	const struct world *world = context;
	if (!event->handler || world_is_recorded(event->handler)) {
		history_event(&world->history, event);
	}
}

/* Add the handlers to the next generation, or to a box that was not started
   (NULL). */
static int add_handlers(struct world *world, struct postern_generation *next,
		unsigned cast, struct postern_error *error) {
	static const char *const types[] = { "order.*" };
	static const int64_t backoff_ms[] = { 10 };
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.max_attempts = MAX_ATTEMPTS;
	policy.max_crashes = MAX_CRASHES;
	policy.backoff_ms = backoff_ms;
	policy.backoff_count = 1;
	policy.commit_batch = 3;
	const struct member {
		unsigned who;
		const char *channel;
		struct postern_handler_options options;
	} members[] = {
		{ WORLD_LEDGER, "orders",
				{ .key = "ledger",
						.callback = run_transactional,
						.transactional = true,
						.types = types } },
		{ WORLD_MAIL, "orders",
				{ .key = "mail", .callback = run_plain, .types = types } },
		{ WORLD_SUMS, "orders",
				{ .key = "sums", .sql = world->effects.sums, .types = types } },
		{ WORLD_GONE, "leavings", { .key = "gone", .callback = run_gone } },
		{ WORLD_LATE, "notes", { .key = "late", .callback = run_plain } },
		{ WORLD_ERP, "leavings", { .key = "erp", .kind = "pull" } },
	};
	int r = POSTERN_OK;
	for (size_t i = 0; !r && i < sizeof members / sizeof members[0]; i++) {
		struct postern_handler_options options = members[i].options;
		options.size = sizeof options;
		options.context = world;
		options.type_count = options.types ? 1 : 0;
		options.policy = &policy;
		if (cast & members[i].who) {
			r = next ? postern_generation_add_handler(next, members[i].channel,
							   &options, error)
					 : postern_box_add_handler(world->box, members[i].channel,
							   &options, error);
		}
	}
	return r;
}

static struct postern_channel_options channel_options(
		const struct world *world) {
	return (struct postern_channel_options){
		.size = sizeof(struct postern_channel_options),
		.retention_payload_ms = world->forgets ? WORLD_PAYLOAD_MS : 0,
		.retention_dedupe_ms = world->forgets ? WORLD_DEDUPE_MS : 0,
	};
}

void world_replace(struct world *world, unsigned cast) {
	const struct postern_channel_options channel = channel_options(world);
	struct postern_generation *next = NULL;
	faults_arm(true);
	int r = postern_generation_create(world->box, &next, NULL);
	if (!r) {
		r = postern_generation_add_channel(next, "orders", &channel, NULL);
	}
	if (!r) {
		r = postern_generation_add_channel(next, "notes", &channel, NULL);
	}
	if (!r) {
		r = postern_generation_add_channel(next, "leavings", NULL, NULL);
	}
	if (!r) {
		r = add_handlers(world, next, cast, NULL);
	}
	if (r) {
		postern_generation_destroy(next);
	} else {
		(void)postern_box_replace_taking(world->box, next, NULL);
	}
	faults_arm(false);
}

static int try_open(struct world *world, unsigned cast,
		struct postern_error *error) {
	struct postern_store_options store_options = {
		.size = sizeof store_options,
		.command_timeout_ms = COMMAND_TIMEOUT_MS,
		.clock = &world->clock,
		.random = &world->random,
	};
	struct postern_box_options options = {
		.size = sizeof options,
		.batch_size = 8,
		.command_timeout_ms = 10000,
		.clock = &world->clock,
		.random = &world->random,
		.processing = cast & WORLD_EXCLUSIVE ? POSTERN_PROCESSING_EXCLUSIVE
											 : POSTERN_PROCESSING_PARALLEL,
		.cleanup_batch = 3,
	};
	const struct postern_channel_options channel = channel_options(world);
	struct postern_store *store;
	int r = postern_store_open(world->url, &store_options, &store, error);
	if (r) {
		return r;
	}
	faults_arm(false);
	if (!effects_prepare(&world->effects)) {
		(void)fputs("scenario: cannot make its tables\n", stderr);
		exit(3);
	}
	faults_arm(true);
	store = faults_wrap_taking(store);
	if (!store) {
		error->code = POSTERN_E_NOMEM;
		return POSTERN_E_NOMEM;
	}
	r = postern_box_open_taking(store, &options, &world->box, error);
	if (!r) {
		r = postern_box_subscribe(world->box, POSTERN_LEVEL_DEBUG, record_event,
				world, error);
	}
	if (!r) {
		r = postern_box_add_channel(world->box, "orders", &channel, error);
	}
	if (!r) {
		r = postern_box_add_channel(world->box, "notes", &channel, error);
	}
	if (!r) {
		r = postern_box_add_channel(world->box, "leavings", NULL, error);
	}
	if (!r) {
		r = add_handlers(world, NULL, cast, error);
	}
	return r ? r : postern_box_start(world->box, error);
}

void world_open(struct world *world, unsigned cast) {
	struct postern_error error = { 0 };
	world->opening++;
	history_write(&world->history, "{\"e\":\"start\",\"node\":%d}",
			world->life);
	for (int i = 0; i < TRIES; i++) {
		faults_arm(true);
		int r = try_open(world, cast, &error);
		faults_arm(false);
		if (!r) {
			return;
		}
		world_close(world);
		world_wait(world, REST_MS);
	}
	(void)fprintf(stderr, "scenario: cannot open: %s\n", error.text);
	exit(3);
}

void world_close(struct world *world) {
	postern_box_destroy(world->box);
	world->box = NULL;
}

static struct postern_message message_of(const char *id, const char *type,
		const char *body) {
	return (struct postern_message){
		.size = sizeof(struct postern_message),
		.id = id,
		.source = "scenario",
		.type = type,
		.body = body,
		.body_len = strlen(body),
	};
}

/* The result is unknown: a client sends the message again. */
static bool is_unknown(int code) {
	return code != POSTERN_OK && code != POSTERN_E_DUPLICATE &&
		   code != POSTERN_E_CONFLICT && code != POSTERN_E_INVALID;
}

void world_send(struct world *world, const char *channel, const char *id,
		const char *type, const char *body) {
	struct postern_message message = message_of(id, type, body);
	int r = POSTERN_E_UNAVAILABLE;
	for (int i = 0; i < TRIES && is_unknown(r); i++) {
		int64_t seq = 0;
		history_send(&world->history, channel, &message);
		faults_arm(true);
		r = postern_box_accept(world->box, channel, &message, &seq, NULL);
		faults_arm(false);
		history_receipt(&world->history, channel, &message, r, seq);
		if (is_unknown(r)) {
			world_wait(world, REST_MS);
		}
	}
}

void world_publish(struct world *world, const char *channel, const char *id,
		const char *type, const char *body) {
	struct postern_message message = message_of(id, type, body);
	if (!effects_can_publish(&world->effects)) {
		return;
	}
	history_send(&world->history, channel, &message);
	/* If a failed call has published it after all, the next one is a copy. */
	bool published = false;
	for (int i = 0; i < TRIES && !published; i++) {
		published = effects_publish(&world->effects, channel, &message);
		if (!published) {
			world_wait(world, REST_MS);
		}
	}
	if (!published) {
		(void)fputs("scenario: cannot publish\n", stderr);
		exit(3);
	}
	history_receipt(&world->history, channel, &message, POSTERN_E_UNAVAILABLE,
			0);
}

struct outgoing {
	struct world *world;
	const char *channel;
	struct postern_message message;
};

static void record_receipt(void *context,
		const struct postern_receipt *receipt) {
	struct outgoing *outgoing = context;
	history_receipt(&outgoing->world->history, outgoing->channel,
			&outgoing->message, receipt->error.code, receipt->seq);
	free(outgoing);
}

void world_send_async(struct world *world, const char *channel, const char *id,
		const char *type, const char *body) {
	struct outgoing *outgoing = calloc(1, sizeof *outgoing);
	if (!outgoing) {
		exit(2);
	}
	outgoing->world = world;
	outgoing->channel = channel;
	outgoing->message = message_of(id, type, body);
	history_send(&world->history, channel, &outgoing->message);
	faults_arm(true);
	int r = postern_box_accept_async(world->box, channel, &outgoing->message,
			record_receipt, outgoing, NULL);
	faults_arm(false);
	if (r) {
		history_receipt(&world->history, channel, &outgoing->message, r, 0);
		free(outgoing);
	}
}

void world_send_batch(struct world *world, const char *channel,
		const struct world_item *items, size_t count) {
	struct postern_message messages[WORLD_BATCH_MAX];
	struct postern_receipt receipts[WORLD_BATCH_MAX];
	for (size_t i = 0; i < count; i++) {
		messages[i] = message_of(items[i].id, items[i].type, items[i].body);
		history_send(&world->history, channel, &messages[i]);
	}
	faults_arm(true);
	int r = postern_box_accept_batch(world->box, channel, messages, count,
			receipts, NULL);
	faults_arm(false);
	for (size_t i = 0; i < count; i++) {
		int code = r ? r : receipts[i].error.code;
		history_receipt(&world->history, channel, &messages[i], code,
				r ? 0 : receipts[i].seq);
		if (is_unknown(code)) {
			world_send(world, channel, items[i].id, items[i].type,
					items[i].body);
		}
	}
}

void world_process(struct world *world, size_t max) {
	int r = POSTERN_E_UNAVAILABLE;
	for (int i = 0; i < TRIES && r; i++) {
		faults_arm(true);
		r = postern_box_process(world->box, max, NULL, NULL);
		faults_arm(false);
		if (r) {
			world_wait(world, REST_MS);
		}
	}
}

void world_clean(struct world *world) {
	int r = POSTERN_E_UNAVAILABLE;
	for (int i = 0; i < TRIES && r; i++) {
		struct postern_cleanup cleanup = { .size = sizeof(cleanup) };
		faults_arm(true);
		r = postern_box_cleanup(world->box, &cleanup, NULL);
		faults_arm(false);
		/* After a failure the counts are unknown: record more than can
		   exist. */
		history_write(&world->history,
				"{\"e\":\"cleaned\",\"node\":%d,\"messages\":%llu,"
				"\"keys\":%llu}",
				world->life, r ? 1000 : (unsigned long long)cleanup.messages,
				r ? 1000 : (unsigned long long)cleanup.keys);
	}
}

static size_t count_in(struct world *world, enum postern_state state) {
	struct postern_filter filter = { .size = sizeof filter, .state = state };
	struct postern_listing *listing = NULL;
	for (int i = 0; i < TRIES && !listing; i++) {
		(void)postern_box_list(world->box, &filter, &listing, NULL);
	}
	if (!listing) {
		(void)fputs("scenario: cannot list\n", stderr);
		exit(3);
	}
	size_t count = 0;
	for (size_t i = 0; i < postern_listing_count(listing); i++) {
		/* Deliveries of the orphaned handler "gone" are not run. */
		count += strcmp(postern_listing_get(listing, i)->handler, "gone") != 0;
	}
	postern_listing_destroy(listing);
	return count;
}

static size_t count_open(struct world *world) {
	return count_in(world, POSTERN_STATE_PENDING) +
		   count_in(world, POSTERN_STATE_LEASED);
}

void world_settle(struct world *world) {
	/* Polling more often costs a server more than the scenario itself. */
	const struct timespec moment = { .tv_nsec = 5000000 };
	for (int i = 0; i < 400 && count_open(world) > 0; i++) {
		(void)nanosleep(&moment, NULL);
	}
}

bool world_drain(struct world *world) {
	/* The node of a killed life expires once this one has seen no renewal for
	   the length of its lease. */
	(void)postern_box_sweep(world->box, NULL, NULL);
	world_wait(world, NODE_LEASE_MS);
	(void)postern_box_sweep(world->box, NULL, NULL);
	for (int i = 0; i < 50; i++) {
		world_process(world, 0);
		while (world->pulls && world_pull(world, WORLD_PULL_MAX, false) > 0) {
		}
		if (count_open(world) == 0) {
			return true;
		}
		world_wait(world, REST_MS);
	}
	return false;
}
