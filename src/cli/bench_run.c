/* SPDX-License-Identifier: MIT */
/*
 * Runs the job: threads that send, a runner that delivers, and a subscriber
 * that counts durable completions. The calling thread prints progress.
 *
 * `remaining` counts the messages that are not decided: a copy is decided when
 * it is recognised, any other message when its completion is durable. The
 * thread that decrements it to zero stops the clock. On a shared store the
 * other processes are not counted; there the store is polled.
 */

#include <inttypes.h>
#include <postern/event.h>
#include <postern/inspect.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/wait.h"
#include "cli/bench.h"
#include "cli/out.h"

/* Between two lines of progress. */
#define PROGRESS_MS 200

/* More than may wait in postern_box_accept_async(). A power of two. */
#define TICKETS_MAX 131072
/* How long to wait if the box is full, for the last completion, or for other
   processes. */
#define PAUSE_NS 1000000

/* The table of the sql handler is created by a delivery of its own. */
#define SETUP_NAME "bench-setup"
#define SETUP_SQL                             \
	"CREATE TABLE IF NOT EXISTS bench_effect" \
	" (id TEXT NOT NULL, body TEXT NOT NULL)"
#define EFFECT_SQL "INSERT INTO bench_effect (id, body) VALUES (:id, :body)"

struct sender {
	struct postern__bench *bench;
	pthread_t thread;
	uint64_t messages;
	struct postern__bench_feed feed;
	/* Of one batch. */
	struct postern__bench_letter *letters;
	struct postern_message *batch;
	struct postern_receipt *receipts;
};

/* A message on its way, when there is a rate. */
struct ticket {
	struct postern__bench *bench;
	int64_t due_ns;
};

struct postern__bench {
	struct postern_box *box;
	struct postern__bench_job job;
	struct postern__bench_samples samples;
	struct postern__bench_hung hung;
	struct sender *senders;
	struct ticket *tickets;
	int64_t started_ns;

	_Atomic bool failed;
	_Atomic uint64_t remaining;
	_Atomic uint64_t accepted;
	_Atomic uint64_t duplicates;
	_Atomic uint64_t completed;

	pthread_mutex_t mutex;
	pthread_cond_t changed;
	size_t sending; /* senders that have not finished */
	int64_t accepted_ns;
	int64_t finished_ns; /* 0: not yet */
	struct postern_error failure;
};

/* The first failure is kept, and ends the job. */
static void fail_job(struct postern__bench *bench, int code, const char *text) {
	(void)pthread_mutex_lock(&bench->mutex);
	if (!atomic_load(&bench->failed)) {
		(void)postern__fail(&bench->failure, code, "%s", text);
		atomic_store(&bench->failed, true);
		(void)pthread_cond_signal(&bench->changed);
	}
	(void)pthread_mutex_unlock(&bench->mutex);
}

static void decide_one(struct postern__bench *bench) {
	if (bench->job.shared || atomic_fetch_sub(&bench->remaining, 1) > 1) {
		return;
	}
	(void)pthread_mutex_lock(&bench->mutex);
	bench->finished_ns = postern__clock_ns();
	(void)pthread_cond_signal(&bench->changed);
	(void)pthread_mutex_unlock(&bench->mutex);
}

static void settle_one(struct postern__bench *bench,
		const struct postern_event *event) {
	if (event->kind == POSTERN_EVENT_RETURNED) {
		return; /* another node is idle and can run it */
	}
	if (strcmp(event->outcome, "done") != 0) {
		char text[POSTERN_ERROR_TEXT_MAX];
		(void)snprintf(text, sizeof text, "the handler failed: %s: %s",
				event->outcome, event->error ? event->error : "no reason");
		fail_job(bench, POSTERN_E_CORRUPT, text);
		return;
	}
	atomic_fetch_add(&bench->completed, 1);
	decide_one(bench);
}

static void on_event(void *context, const struct postern_event *event) {
	struct postern__bench *bench = context;
	if (bench->job.hung > 0 && postern__bench_hung_is(event)) {
		return;
	}
	if (event->state != POSTERN_STATE_ANY) {
		settle_one(bench, event);
		return;
	}
	switch (event->kind) {
	case POSTERN_EVENT_STARTED:
		postern__bench_samples_started(&bench->samples, event->seq);
		break;
	case POSTERN_EVENT_DUPLICATE: decide_one(bench); break;
	case POSTERN_EVENT_ACCEPTED:
		if (bench->job.handler == POSTERN__BENCH_NONE) {
			decide_one(bench);
		}
		break;
	case POSTERN_EVENT_CONFLICT:
	case POSTERN_EVENT_FENCED:
		fail_job(bench, POSTERN_E_CORRUPT,
				"a message was a conflict, or its lease was lost");
		break;
	default:
		if (postern_event_info(event->kind)->level >= POSTERN_LEVEL_WARN) {
			fail_job(bench, POSTERN_E_UNAVAILABLE, postern_event_text(event));
		}
		break;
	}
}

/* False: the sender must stop. */
static bool note_receipt(struct postern__bench *bench,
		const struct postern_receipt *receipt, int64_t sent_ns) {
	switch (receipt->error.code) {
	case POSTERN_OK:
		postern__bench_samples_sent(&bench->samples, receipt->seq, sent_ns);
		atomic_fetch_add(&bench->accepted, 1);
		return true;
	case POSTERN_E_DUPLICATE:
		atomic_fetch_add(&bench->duplicates, 1);
		return true;
	default:
		fail_job(bench, receipt->error.code, receipt->error.text);
		return false;
	}
}

static bool send_batch(struct sender *sender, size_t count) {
	struct postern__bench *bench = sender->bench;
	struct postern_error error;
	for (size_t i = 0; i < count; i++) {
		postern__bench_feed_next(&sender->feed, &sender->letters[i],
				&sender->batch[i]);
	}
	int64_t sent_ns = postern__clock_ns();
	if (postern_box_accept_batch(bench->box, POSTERN__BENCH_NAME, sender->batch,
				count, sender->receipts, &error)) {
		fail_job(bench, error.code, error.text);
		return false;
	}
	bool good = true;
	for (size_t i = 0; good && i < count; i++) {
		good = note_receipt(bench, &sender->receipts[i], sent_ns);
	}
	return good;
}

static void send_all(struct sender *sender) {
	uint64_t left = sender->messages;
	bool good = true;
	while (good && left > 0 && !atomic_load(&sender->bench->failed)) {
		uint32_t batch = sender->bench->job.batch;
		size_t count = left < batch ? (size_t)left : batch;
		good = send_batch(sender, count);
		left -= count;
	}
}

static void on_accepted(void *context, const struct postern_receipt *receipt) {
	struct ticket *ticket = context;
	(void)note_receipt(ticket->bench, receipt, ticket->due_ns);
}

/* Accept one message; wait if the box is full. */
static bool send_one(struct sender *sender, struct ticket *ticket) {
	struct postern__bench *bench = sender->bench;
	struct postern_error error = { 0 };
	postern__bench_feed_next(&sender->feed, sender->letters, sender->batch);
	int r = POSTERN_E_BUSY;
	while (r == POSTERN_E_BUSY && !atomic_load(&bench->failed)) {
		r = postern_box_accept_async(bench->box, POSTERN__BENCH_NAME,
				sender->batch, on_accepted, ticket, &error);
		if (r == POSTERN_E_BUSY) {
			postern__clock_sleep_until_ns(postern__clock_ns() + PAUSE_NS);
		}
	}
	if (r) {
		fail_job(bench, r, error.text);
	}
	return r == POSTERN_OK;
}

/* The i-th message is due at a fixed time, however long the messages before it
   took, so that a delay counts as latency. */
static void send_at_rate(struct sender *sender) {
	struct postern__bench *bench = sender->bench;
	bool good = true;
	for (uint64_t i = 0; good && i < sender->messages; i++) {
		struct ticket *ticket = &bench->tickets[i % TICKETS_MAX];
		ticket->bench = bench;
		ticket->due_ns = bench->started_ns +
						 (int64_t)(i * UINT64_C(1000000000) / bench->job.rate);
		if (postern__clock_ns() < ticket->due_ns) {
			postern__clock_sleep_until_ns(ticket->due_ns);
		}
		good = send_one(sender, ticket);
	}
	while (!atomic_load(&bench->failed) &&
			atomic_load(&bench->accepted) + atomic_load(&bench->duplicates) <
					sender->messages) {
		postern__clock_sleep_until_ns(postern__clock_ns() + PAUSE_NS);
	}
}

static void *send_loop(void *context) {
	struct sender *sender = context;
	struct postern__bench *bench = sender->bench;
	if (bench->job.rate > 0) {
		send_at_rate(sender);
	} else {
		send_all(sender);
	}
	(void)pthread_mutex_lock(&bench->mutex);
	bench->sending--;
	bench->accepted_ns = postern__clock_ns();
	(void)pthread_cond_signal(&bench->changed);
	(void)pthread_mutex_unlock(&bench->mutex);
	return NULL;
}

static void finish_senders(struct postern__bench *bench) {
	for (size_t i = 0; bench->senders && i < bench->job.senders; i++) {
		free(bench->senders[i].letters);
		free(bench->senders[i].batch);
		free(bench->senders[i].receipts);
	}
	free(bench->senders);
}

static bool make_senders(struct postern__bench *bench) {
	const struct postern__bench_job *job = &bench->job;
	size_t batch = job->rate > 0 ? 1 : job->batch;
	bench->senders = calloc(job->senders, sizeof *bench->senders);
	if (job->rate > 0) {
		bench->tickets = calloc(TICKETS_MAX, sizeof *bench->tickets);
	}
	bool good = bench->senders && (job->rate == 0 || bench->tickets);
	for (uint32_t i = 0; good && i < job->senders; i++) {
		struct sender *sender = &bench->senders[i];
		sender->bench = bench;
		sender->messages = job->messages / job->senders +
						   (i < job->messages % job->senders);
		postern__bench_feed_init(&sender->feed, job->duplicates);
		sender->letters = calloc(batch, sizeof *sender->letters);
		sender->batch = calloc(batch, sizeof *sender->batch);
		sender->receipts = calloc(batch, sizeof *sender->receipts);
		good = sender->letters && sender->batch && sender->receipts;
	}
	return good;
}

static void print_progress(const struct postern__bench *bench, int64_t now_ns) {
	uint64_t completed = atomic_load(&bench->completed);
	uint64_t accepted = atomic_load(&bench->accepted);
	int64_t ms = (now_ns - bench->started_ns) / 1000000;
	uint64_t done =
			bench->job.handler == POSTERN__BENCH_NONE ? accepted : completed;
	(void)fprintf(stderr,
			"\r%" PRIu64 " accepted  %" PRIu64 " completed  %" PRIu64
			"/s \033[K",
			accepted, completed, ms > 0 ? done * 1000 / (uint64_t)ms : 0);
}

/* Mutex held. Returns at `finished`, or else when all messages were sent. */
static void wait_with_progress(struct postern__bench *bench, bool finished) {
	while (!atomic_load(&bench->failed) &&
			(bench->sending > 0 || (finished && bench->finished_ns == 0))) {
		postern__wait(&bench->changed, &bench->mutex, PROGRESS_MS);
		if (bench->job.progress) {
			print_progress(bench, postern__clock_ns());
		}
	}
}

/* Mutex held, released while waiting. Waits until no delivery of the store is
   open, because another process may deliver a message of this one. */
static int await_all(struct postern__bench *bench,
		struct postern_error *error) {
	int r = POSTERN_OK;
	while (!r && bench->finished_ns == 0 && !atomic_load(&bench->failed)) {
		struct postern_stats *stats = NULL;
		uint64_t open = 0;
		(void)pthread_mutex_unlock(&bench->mutex);
		r = postern_box_stats(bench->box, &stats, error);
		for (size_t i = 0; !r && i < stats->handler_count; i++) {
			open += stats->handlers[i].pending + stats->handlers[i].leased;
		}
		postern_stats_destroy(stats);
		int64_t now = postern__clock_ns();
		if (!r && open > 0) {
			postern__clock_sleep_until_ns(now + PAUSE_NS);
		}
		(void)pthread_mutex_lock(&bench->mutex);
		bench->finished_ns = open == 0 ? now : 0;
	}
	return r;
}

static void start_senders(struct postern__bench *bench) {
	for (uint32_t i = 0; i < bench->job.senders; i++) {
		struct sender *sender = &bench->senders[i];
		(void)pthread_mutex_lock(&bench->mutex);
		bench->sending++;
		(void)pthread_mutex_unlock(&bench->mutex);
		if (pthread_create(&sender->thread, NULL, send_loop, sender)) {
			(void)pthread_mutex_lock(&bench->mutex);
			bench->sending--;
			(void)pthread_mutex_unlock(&bench->mutex);
			sender->bench = NULL; /* no thread to join */
			fail_job(bench, POSTERN_E_NOMEM, "cannot start a thread");
		}
	}
}

static void join_senders(struct postern__bench *bench) {
	for (uint32_t i = 0; i < bench->job.senders; i++) {
		if (bench->senders[i].bench) {
			(void)pthread_join(bench->senders[i].thread, NULL);
		}
	}
}

static int do_job(struct postern__bench *bench, struct postern_runner *runner,
		struct postern__bench_result *out, struct postern_error *error) {
	int r = POSTERN_OK;
	int64_t drain_ns = 0;
	atomic_store(&bench->remaining, bench->job.messages);
	if (!bench->job.drain) {
		r = postern_runner_start(runner, error);
	}
	if (!r) {
		r = postern__bench_hung_start(&bench->hung, bench->box, error);
	}
	if (r) {
		return r;
	}
	bench->started_ns = postern__clock_ns();
	start_senders(bench);
	(void)pthread_mutex_lock(&bench->mutex);
	wait_with_progress(bench, !bench->job.drain && !bench->job.shared);
	if (bench->job.shared) {
		r = await_all(bench, error);
	}
	(void)pthread_mutex_unlock(&bench->mutex);
	join_senders(bench);
	if (bench->job.drain) {
		drain_ns = postern__clock_ns();
		r = postern_runner_start(runner, error);
		(void)pthread_mutex_lock(&bench->mutex);
		if (!r) {
			wait_with_progress(bench, true);
		}
		(void)pthread_mutex_unlock(&bench->mutex);
	}
	/* From here on nothing is counted, and nothing remains to be counted. */
	postern__bench_hung_release(&bench->hung);
	postern_runner_stop(runner);
	if (bench->job.progress) {
		(void)fputs("\r\033[K", stderr);
	}
	if (!r && atomic_load(&bench->failed)) {
		r = postern__fail(error, bench->failure.code, "%s",
				bench->failure.text);
	}
	out->accept_ns = bench->accepted_ns - bench->started_ns;
	out->drain_ns = drain_ns > 0 ? bench->finished_ns - drain_ns : 0;
	out->total_ns = bench->finished_ns - bench->started_ns;
	return r;
}

int postern__bench_set_up(struct postern_box *box,
		struct postern_error *error) {
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = SETUP_NAME,
		.sql = SETUP_SQL,
	};
	const struct postern_message message = {
		.size = sizeof message,
		.id = SETUP_NAME,
	};
	int r = postern_box_add_channel(box, SETUP_NAME, NULL, error);
	if (!r) {
		r = postern_box_add_handler(box, SETUP_NAME, &handler, error);
	}
	if (!r) {
		r = postern_box_start(box, error);
	}
	if (!r) {
		r = postern_box_accept(box, SETUP_NAME, &message, NULL, error);
	}
	return r ? r : postern_box_process(box, 0, NULL, error);
}

static void do_nothing(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)message;
	(void)delivery;
	(void)outcome; /* it starts as POSTERN_DONE */
}

/* Channels with a handler each that get no messages. */
static int add_idle_channels(struct postern__bench *bench,
		struct postern_error *error) {
	int r = POSTERN_OK;
	for (uint32_t i = 1; !r && i < bench->job.channels; i++) {
		char name[32];
		(void)snprintf(name, sizeof name, "idle-%u", (unsigned)i);
		struct postern_handler_options handler = {
			.size = sizeof handler,
			.key = name,
			.callback = do_nothing,
		};
		r = postern_box_add_channel(bench->box, name, NULL, error);
		if (!r) {
			r = postern_box_add_handler(bench->box, name, &handler, error);
		}
	}
	return r;
}

static int add_job(struct postern__bench *bench, struct postern_error *error) {
	static const char *const program[] = { "/bin/true" };
	struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = POSTERN__BENCH_NAME,
		.policy = bench->job.policy,
	};
	switch (bench->job.handler) {
	case POSTERN__BENCH_CALLBACK: handler.callback = do_nothing; break;
	case POSTERN__BENCH_SQL: handler.sql = EFFECT_SQL; break;
	case POSTERN__BENCH_EXEC:
		handler.exec = program;
		handler.exec_count = 1;
		break;
	case POSTERN__BENCH_NONE: break;
	}
	const struct postern_key_rule rule = { .rule = bench->job.key };
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.retention_payload_ms = bench->job.retention_payload_ms,
		.retention_dedupe_ms = bench->job.retention_dedupe_ms,
		.key_rules = &rule,
		.key_rule_count = rule.rule ? 1 : 0,
	};
	int r = postern_box_add_channel(bench->box, POSTERN__BENCH_NAME, &channel,
			error);
	if (!r && bench->job.handler != POSTERN__BENCH_NONE) {
		r = postern_box_add_handler(bench->box, POSTERN__BENCH_NAME, &handler,
				error);
	}
	return r;
}

static int bench_prepare(struct postern__bench *bench,
		struct postern_error *error) {
	int r = add_idle_channels(bench, error);
	if (!r) {
		r = postern__bench_hung_add(&bench->hung, bench->box, bench->job.hung,
				error);
	}
	if (!r) {
		r = add_job(bench, error);
	}
	if (!r) {
		r = postern_box_subscribe(bench->box, POSTERN_LEVEL_DEBUG, on_event,
				bench, error);
	}
	return r ? r : postern_box_start(bench->box, error);
}

/* The counters of the store must equal those of the job. */
static int check(struct postern__bench *bench,
		const struct postern__bench_result *out, struct postern_error *error) {
	struct postern_stats *stats = NULL;
	uint64_t accepted = 0;
	uint64_t duplicates = 0;
	uint64_t done = 0;
	int r = postern_box_stats(bench->box, &stats, error);
	if (r) {
		return r;
	}
	for (size_t i = 0; i < stats->channel_count; i++) {
		if (strcmp(stats->channels[i].name, POSTERN__BENCH_NAME) == 0) {
			accepted = stats->channels[i].accepted;
			duplicates = stats->channels[i].duplicates;
		}
	}
	for (size_t i = 0; i < stats->handler_count; i++) {
		if (strcmp(stats->handlers[i].key, POSTERN__BENCH_NAME) == 0) {
			done = stats->handlers[i].done;
		}
	}
	postern_stats_destroy(stats);
	if (accepted != out->accepted || duplicates != out->duplicates ||
			done != out->completed) {
		r = postern__fail(error, POSTERN_E_CORRUPT,
				"the store counts %" PRIu64 " accepted, %" PRIu64
				" duplicates and %" PRIu64 " completed, not %" PRIu64
				", %" PRIu64 " and %" PRIu64,
				accepted, duplicates, done, out->accepted, out->duplicates,
				out->completed);
	}
	return r;
}

static int run_job(struct postern__bench *bench,
		struct postern__bench_result *out, struct postern_error *error) {
	struct postern_runner_options options = *bench->job.runner;
	struct postern_runner *runner = NULL;
	int r = bench_prepare(bench, error);
	if (!r) {
		r = postern_runner_create(bench->box, &options, &runner, error);
	}
	if (!r) {
		r = do_job(bench, runner, out, error);
	}
	postern_runner_destroy(runner);
	if (r) {
		return r;
	}
	out->accepted = atomic_load(&bench->accepted);
	out->duplicates = atomic_load(&bench->duplicates);
	out->completed = atomic_load(&bench->completed);
	postern__bench_samples_read(&bench->samples, out);
	return bench->job.shared ? POSTERN_OK : check(bench, out, error);
}

int postern__bench_run(struct postern__bench *bench, struct postern_box *box,
		struct postern__bench_result *out, struct postern_error *error) {
	bench->box = box;
	*out = (struct postern__bench_result){ 0 };
	return run_job(bench, out, error);
}

int postern__bench_create(const struct postern__bench_job *job,
		struct postern__bench **out, struct postern_error *error) {
	struct postern__bench *bench = calloc(1, sizeof *bench);
	if (!bench) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	bench->job = *job;
	/* Neither can fail on Linux. */
	(void)pthread_mutex_init(&bench->mutex, NULL);
	(void)postern__wait_init(&bench->changed);
	postern__bench_hung_init(&bench->hung);
	if (!postern__bench_samples_init(&bench->samples, job->messages) ||
			!make_senders(bench)) {
		postern__bench_destroy(bench);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	*out = bench;
	return POSTERN_OK;
}

void postern__bench_destroy(struct postern__bench *bench) {
	if (!bench) {
		return;
	}
	finish_senders(bench);
	free(bench->tickets);
	postern__bench_samples_finish(&bench->samples);
	postern__bench_hung_finish(&bench->hung);
	(void)pthread_cond_destroy(&bench->changed);
	(void)pthread_mutex_destroy(&bench->mutex);
	free(bench);
}
