/* SPDX-License-Identifier: MIT */

/*
 * One of several nodes on one database: it sends its share of the messages,
 * processes deliveries, and records what it observes. The test that started it
 * ends it at any moment and starts it again.
 *
 *   node URL FOLDER NODE LIFE MODE LEASE_MS SEED
 *
 * NODE is 0, 1 or 2, LIFE how often it was started, MODE parallel or exclusive.
 * It reads commands on stdin and confirms them on stdout:
 *
 *   send N     send its share of the first N messages       sent N
 *   stop       end gracefully
 *
 * It also prints "locked" or "unlocked" whenever it acquires or loses the lock,
 * and "begun HANDLER ID" and "ended HANDLER ID" for long runs.
 *
 * Message k belongs to node k % 3. Every tenth is sent twice, the second copy
 * by any of the three, at about the same time. The body selects what the
 * handlers do. The node keeps its position in a file, which the next life
 * reads; so a message whose result is unknown is sent again, as clients do.
 */

#include <libpq-fe.h>
#include <postern/postern.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "crash/history.h"

#define CHANNEL "orders"
#define NODES 3
/* As in the configuration that test_nodes.py gives to the checker. */
#define MAX_ATTEMPTS 5
#define MAX_CRASHES 50
/* Messages sent with one call. */
#define BATCH_MAX 40
/* Small enough that all nodes get a share of a backlog. */
#define RUN_QUEUE_MAX 300
/* How often, and after which pause, an unavailable database is tried again. */
#define OPEN_TRIES 1200
#define PAUSE_MS 50
#define GRACE_MS 60000
/* How long the long runs take. */
#define LONG_STEPS 14
#define LONG_STEP_MS 50

struct node {
	const char *url;
	const char *folder;
	int number;
	bool exclusive;
	int64_t lease_ms;
	uint64_t dice;
	long position; /* messages before this one are sent */
	char position_path[4096];
	struct history history;
	struct postern_box *box;
	struct postern_runner *runner;
};

/* A message that is being sent, and its result. */
struct outgoing {
	struct batch *batch;
	struct postern_message message;
	char id[24];
	char body[32];
	int code;
};

struct batch {
	struct node *node;
	struct outgoing items[BATCH_MAX];
	size_t count;
	pthread_mutex_t mutex;
	pthread_cond_t arrived;
	size_t waiting;
};

static void pause_ms(int64_t ms) {
	const struct timespec time = {
		.tv_sec = ms / 1000,
		.tv_nsec = ms % 1000 * 1000000,
	};
	(void)nanosleep(&time, NULL);
}

static uint64_t roll(struct node *node, uint64_t sides) {
	uint64_t x = node->dice;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	node->dice = x;
	return x % sides;
}

static bool body_starts_with(const struct postern_message *message,
		const char *what) {
	size_t len = strlen(what);
	return message->body_len > len && memcmp(message->body, what, len) == 0;
}

static void print_line(const char *what, const char *handler, const char *id) {
	(void)printf("%s %s %s\n", what, handler, id);
	(void)fflush(stdout);
}

/* Each handler has its own long messages. */
static bool takes_long(const struct postern_message *message,
		const struct postern_delivery *delivery) {
	return body_starts_with(message,
			delivery->transaction ? "heavy " : "long ");
}

/* Sets the outcome that the body asks for. */
static void set_outcome(const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	if (body_starts_with(message, "fail ") && delivery->attempt == 1) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "asked to fail once");
	} else if (body_starts_with(message, "snooze ") && delivery->fence < 2) {
		postern_outcome_set(outcome, POSTERN_SNOOZE, 20, NULL);
	} else if (body_starts_with(message, "poison ")) {
		postern_outcome_set(outcome, POSTERN_POISON, 0, "asked for poison");
	} else if (body_starts_with(message, "discard ") &&
			   !delivery->transaction) {
		postern_outcome_set(outcome, POSTERN_DISCARD, 0, "not wanted");
	} else if (body_starts_with(message, "slow ") && !delivery->transaction) {
		/* At any moment some of these are running. */
		pause_ms(50);
	} else if (takes_long(message, delivery)) {
		print_line("begun", delivery->handler, message->id);
		/* In steps: a process that is stopped meanwhile continues with the
		   remaining ones. */
		for (int i = 0; i < LONG_STEPS; i++) {
			pause_ms(LONG_STEP_MS);
		}
		print_line("ended", delivery->handler, message->id);
	}
}

static void run_plain(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	const struct node *node = context;
	history_run(&node->history, message, delivery);
	set_outcome(message, delivery, outcome);
	history_ran(&node->history, delivery, outcome->kind);
}

static bool write_effect(PGconn *link,
		const struct postern_delivery *delivery) {
	char seq[24];
	char fence[24];
	const char *values[] = { seq, delivery->handler, fence };
	(void)snprintf(seq, sizeof seq, "%lld", (long long)delivery->seq);
	(void)snprintf(fence, sizeof fence, "%llu",
			(unsigned long long)delivery->fence);
	PGresult *result =
			PQexecParams(link, "INSERT INTO public.effect VALUES ($1, $2, $3)",
					3, NULL, values, NULL, NULL, 0);
	bool good = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	return good;
}

/* Writes first, so that a run that does not end as done has to be rolled
   back. */
static void run_transactional(void *context,
		const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	const struct node *node = context;
	history_run(&node->history, message, delivery);
	if (write_effect(delivery->transaction, delivery)) {
		set_outcome(message, delivery, outcome);
	} else {
		/* The database is unavailable: not a failure of the message. */
		postern_outcome_set(outcome, POSTERN_SNOOZE, PAUSE_MS, NULL);
	}
	history_ran(&node->history, delivery, outcome->kind);
}

static void record_event(void *context, const struct postern_event *event) {
	const struct node *node = context;
	history_event(&node->history, event);
	if (event->kind == POSTERN_EVENT_LOCKED) {
		print_line("locked", "", "");
	} else if (event->kind == POSTERN_EVENT_LOCK_LOST) {
		print_line("unlocked", "", "");
	}
}

static void print_notice(const struct node *node, const char *text) {
	(void)fprintf(stderr, "node %d: %s\n", node->number, text);
}

static void print_event(void *context, const struct postern_event *event) {
	print_notice(context, postern_event_text(event));
}

static int add_handlers(struct node *node, struct postern_error *error) {
	static const int64_t backoff_ms[] = { 10 };
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.max_attempts = MAX_ATTEMPTS;
	policy.max_crashes = MAX_CRASHES;
	policy.backoff_ms = backoff_ms;
	policy.backoff_count = 1;
	struct postern_handler_options options = {
		.size = sizeof options,
		.key = "ledger",
		.callback = run_transactional,
		.transactional = true,
		.context = node,
		.policy = &policy,
	};
	int r = postern_box_add_handler(node->box, CHANNEL, &options, error);
	options.key = "mail";
	options.callback = run_plain;
	options.transactional = false;
	return r ? r : postern_box_add_handler(node->box, CHANNEL, &options, error);
}

static int try_open(struct node *node, struct postern_error *error) {
	const struct postern_box_options options = {
		.size = sizeof options,
		.processing = node->exclusive ? POSTERN_PROCESSING_EXCLUSIVE
									  : POSTERN_PROCESSING_PARALLEL,
		.node_lease_ms = node->lease_ms,
		.run_queue_max = RUN_QUEUE_MAX,
		.listener = print_event,
		.listener_context = node,
	};
	const struct postern_runner_options runner_options = {
		.size = sizeof runner_options,
		.restart_delay_ms = 100,
	};
	int r = postern_box_open(node->url, &options, &node->box, error);
	if (!r) {
		r = postern_box_subscribe(node->box, POSTERN_LEVEL_DEBUG, record_event,
				node, error);
	}
	if (!r) {
		r = postern_box_add_channel(node->box, CHANNEL, NULL, error);
	}
	if (!r) {
		r = add_handlers(node, error);
	}
	if (!r) {
		r = postern_box_start(node->box, error);
	}
	if (!r) {
		r = postern_runner_create(node->box, &runner_options, &node->runner,
				error);
	}
	return r ? r : postern_runner_start(node->runner, error);
}

static void close_all(struct node *node) {
	postern_runner_destroy(node->runner);
	postern_box_destroy(node->box);
	node->runner = NULL;
	node->box = NULL;
}

/* The database may be unavailable for long. */
static void open_all(struct node *node) {
	struct postern_error error = { 0 };
	for (int i = 0; i < OPEN_TRIES; i++) {
		if (try_open(node, &error) == POSTERN_OK) {
			return;
		}
		print_notice(node, error.text);
		close_all(node);
		pause_ms(PAUSE_MS);
	}
	exit(3);
}

/* The result is unknown: a client sends the message again. */
static bool is_unknown(int code) {
	return code != POSTERN_OK && code != POSTERN_E_DUPLICATE &&
		   code != POSTERN_E_CONFLICT && code != POSTERN_E_INVALID;
}

static const char *kind_of(long k) {
	static const struct {
		long every;
		const char *kind;
	} kinds[] = {
		{ 500, "long" },
		{ 500, "heavy" },
		{ 61, "slow" },
		{ 89, "snooze" },
		{ 97, "fail" },
		{ 501, "poison" },
		{ 503, "discard" },
	};
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		if (k % kinds[i].every == (long)i + 1) {
			return kinds[i].kind;
		}
	}
	return "plain";
}

static void write_outgoing(struct batch *batch, long k) {
	struct outgoing *outgoing = &batch->items[batch->count++];
	outgoing->batch = batch;
	(void)snprintf(outgoing->id, sizeof outgoing->id, "m-%06ld", k);
	(void)snprintf(outgoing->body, sizeof outgoing->body, "%s %ld", kind_of(k),
			k);
	outgoing->code = POSTERN_E_UNAVAILABLE;
	outgoing->message = (struct postern_message){
		.size = sizeof(struct postern_message),
		.id = outgoing->id,
		.source = "nodes",
		.type = "order",
		.body = outgoing->body,
		.body_len = strlen(outgoing->body),
	};
}

static void record_send(const struct outgoing *outgoing) {
	history_send(&outgoing->batch->node->history, CHANNEL, &outgoing->message);
}

static void record_receipt(struct outgoing *outgoing, int code, int64_t seq) {
	outgoing->code = code;
	history_receipt(&outgoing->batch->node->history, CHANNEL,
			&outgoing->message, code, seq);
}

static void send_alone(struct outgoing *outgoing) {
	int64_t seq = 0;
	record_send(outgoing);
	int r = postern_box_accept(outgoing->batch->node->box, CHANNEL,
			&outgoing->message, &seq, NULL);
	record_receipt(outgoing, r, seq);
}

static void send_together(struct batch *batch) {
	struct postern_message messages[BATCH_MAX];
	struct postern_receipt receipts[BATCH_MAX];
	for (size_t i = 0; i < batch->count; i++) {
		messages[i] = batch->items[i].message;
		record_send(&batch->items[i]);
	}
	int r = postern_box_accept_batch(batch->node->box, CHANNEL, messages,
			batch->count, receipts, NULL);
	for (size_t i = 0; i < batch->count; i++) {
		record_receipt(&batch->items[i], r ? r : receipts[i].error.code,
				r ? 0 : receipts[i].seq);
	}
}

static void count_receipt(void *context,
		const struct postern_receipt *receipt) {
	struct outgoing *outgoing = context;
	struct batch *batch = outgoing->batch;
	record_receipt(outgoing, receipt->error.code, receipt->seq);
	(void)pthread_mutex_lock(&batch->mutex);
	batch->waiting--;
	(void)pthread_cond_signal(&batch->arrived);
	(void)pthread_mutex_unlock(&batch->mutex);
}

static void send_without_waiting(struct batch *batch) {
	batch->waiting = batch->count;
	for (size_t i = 0; i < batch->count; i++) {
		struct outgoing *outgoing = &batch->items[i];
		record_send(outgoing);
		int r = postern_box_accept_async(batch->node->box, CHANNEL,
				&outgoing->message, count_receipt, outgoing, NULL);
		if (r) {
			const struct postern_receipt refused = { .error.code = r };
			count_receipt(outgoing, &refused);
		}
	}
	(void)pthread_mutex_lock(&batch->mutex);
	while (batch->waiting > 0) {
		(void)pthread_cond_wait(&batch->arrived, &batch->mutex);
	}
	(void)pthread_mutex_unlock(&batch->mutex);
}

static void send_batch(struct batch *batch) {
	uint64_t way = roll(batch->node, 10);
	if (way < 6) {
		send_together(batch);
	} else if (way < 8) {
		send_without_waiting(batch);
	}
	for (size_t i = 0; i < batch->count; i++) {
		struct outgoing *outgoing = &batch->items[i];
		if (way >= 8) {
			send_alone(outgoing);
		}
		while (is_unknown(outgoing->code)) {
			pause_ms(PAUSE_MS);
			send_alone(outgoing);
		}
	}
}

/* Replaces the file atomically, so that it always has a number. */
static void keep_position(const struct node *node) {
	char next[4100];
	(void)snprintf(next, sizeof next, "%s+", node->position_path);
	FILE *file = fopen(next, "w");
	if (!file || fprintf(file, "%ld\n", node->position) < 0 ||
			fclose(file) != 0 || rename(next, node->position_path) != 0) {
		perror(node->position_path);
		exit(2);
	}
}

static void read_position(struct node *node) {
	char text[24] = "";
	FILE *file = fopen(node->position_path, "r");
	if (file && fgets(text, sizeof text, file)) {
		node->position = strtol(text, NULL, 10);
	}
	if (file) {
		(void)fclose(file);
	}
}

static void send_until(struct node *node, long end) {
	struct batch batch = { .node = node };
	(void)pthread_mutex_init(&batch.mutex, NULL);
	(void)pthread_cond_init(&batch.arrived, NULL);
	while (node->position < end) {
		size_t max = 1 + (size_t)roll(node, BATCH_MAX - 1);
		batch.count = 0;
		while (node->position < end && batch.count < max) {
			long k = node->position++;
			if (k % NODES == node->number) {
				write_outgoing(&batch, k);
			}
			if (k % 10 == 0 && (k + k / 10) % NODES == node->number) {
				write_outgoing(&batch, k);
			}
		}
		send_batch(&batch);
		keep_position(node);
	}
	(void)pthread_cond_destroy(&batch.arrived);
	(void)pthread_mutex_destroy(&batch.mutex);
}

static void run_commands(struct node *node) {
	char line[64];
	while (fgets(line, sizeof line, stdin) && strcmp(line, "stop\n") != 0) {
		if (strncmp(line, "send ", 5) == 0) {
			long end = strtol(line + 5, NULL, 10);
			send_until(node, end);
			(void)printf("sent %ld\n", end);
			(void)fflush(stdout);
		}
	}
}

int main(int argc, char **argv) {
	if (argc != 8) {
		(void)fputs("usage: node URL FOLDER NODE LIFE MODE LEASE_MS SEED\n",
				stderr);
		return 2;
	}
	static struct node node;
	int life = (int)strtol(argv[4], NULL, 10);
	char path[4096];
	node.url = argv[1];
	node.folder = argv[2];
	node.number = (int)strtol(argv[3], NULL, 10);
	node.exclusive = strcmp(argv[5], "exclusive") == 0;
	node.lease_ms = strtol(argv[6], NULL, 10);
	uint64_t seed = strtoul(argv[7], NULL, 10);
	node.dice = (seed + (uint64_t)life) * NODES + (uint64_t)node.number + 1;
	node.dice *= 0x9e3779b97f4a7c15u;
	(void)snprintf(path, sizeof path, "%s/node-%d-%04d.jsonl", node.folder,
			node.number, life);
	(void)snprintf(node.position_path, sizeof node.position_path,
			"%s/node-%d.position", node.folder, node.number);
	history_open(&node.history, path, node.number, postern_clock_system());
	node.history.timed = true;
	history_write(&node.history, "{\"e\":\"start\",\"node\":%d}", node.number);
	read_position(&node);
	open_all(&node);
	run_commands(&node);
	struct postern_error error = { 0 };
	int r = postern_runner_drain(node.runner, GRACE_MS, &error);
	if (r) {
		print_notice(&node, error.text);
	}
	close_all(&node);
	history_close(&node.history);
	return r ? 1 : 0;
}
