/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_BENCH_H
#define POSTERN_CLI_BENCH_H

/*
 * The job that speed is measured by: messages with random ids, some of them
 * sent twice, each accepted durably and completed by a handler that does
 * nothing. All through the public API of the library.
 */

#include <postern/box.h>
#include <postern/event.h>
#include <postern/runner.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POSTERN__BENCH_MESSAGES_MAX 1000000000
#define POSTERN__BENCH_SENDERS_MAX 256
#define POSTERN__BENCH_CHANNELS_MAX 1000
#define POSTERN__BENCH_HUNG_MAX 200
#define POSTERN__BENCH_RATE_MAX 1000000
#define POSTERN__BENCH_DUPLICATES_MAX 90

#define POSTERN__BENCH_BODY_LEN 256
#define POSTERN__BENCH_ID_LEN 36

/* Channel and handler of the job. */
#define POSTERN__BENCH_NAME "bench"

enum postern__bench_handler {
	POSTERN__BENCH_CALLBACK,
	POSTERN__BENCH_SQL,
	POSTERN__BENCH_EXEC,
	POSTERN__BENCH_NONE
};

struct postern__bench_job {
	uint64_t messages; /* sent, copies included */
	uint32_t batch;
	uint32_t senders;
	uint32_t channels;   /* with a handler each; messages go to one */
	uint32_t hung;       /* handlers that hang beside the job's */
	uint32_t duplicates; /* per cent of what is sent */
	uint32_t rate;       /* per second; 0: as fast as it goes */
	bool drain;          /* accept everything, and only then deliver */
	bool shared;         /* other processes do the same on this store */
	enum postern__bench_handler handler;
	const char *key; /* the channel's key rule; NULL: id */
	const struct postern_policy *policy;
	/* Messages that expire by these are cleaned up during the job. */
	int64_t retention_payload_ms;
	int64_t retention_dedupe_ms;
	const struct postern_runner_options *runner;
	bool progress; /* on stderr */
};

struct postern__bench_result {
	uint64_t accepted;
	uint64_t duplicates;
	uint64_t completed;
	int64_t accept_ns; /* until the last one was reported */
	int64_t drain_ns;  /* job.drain: from there on */
	int64_t total_ns;  /* until the last completion was durable */
	/* From the call that accepts (with a rate: from when it was due) to the
	   start of the handler; -1: nothing was started. */
	int64_t p50_ns;
	int64_t p99_ns;
	int64_t max_ns;
	uint64_t sample_count;
};

struct postern__bench;

/*
 * Get ready for a job. The result must outlive the box it is run on; so must
 * what the job points to.
 *
 * out  yours; end it with postern__bench_destroy().
 */
int postern__bench_create(const struct postern__bench_job *job,
		struct postern__bench **out, struct postern_error *error);

/* NULL is fine. */
void postern__bench_destroy(struct postern__bench *bench);

/*
 * Create the table that POSTERN__BENCH_SQL writes to. Uses a box of its own,
 * because one more handler would reduce the memory of the job's handler.
 */
int postern__bench_set_up(struct postern_box *box, struct postern_error *error);

/*
 * Add the job's channel and handler to a box, start the box, run the job, and
 * compare the counters of the store with the job's. Call it once.
 * POSTERN_E_CORRUPT: the counters differ, or a handler failed.
 */
int postern__bench_run(struct postern__bench *bench, struct postern_box *box,
		struct postern__bench_result *out, struct postern_error *error);

/* bench_hung.c: handlers that hang. */

struct postern__bench_hung {
	uint32_t count;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	size_t waiting; /* callbacks that have started */
	bool released;
};

void postern__bench_hung_init(struct postern__bench_hung *hung);
void postern__bench_hung_finish(struct postern__bench_hung *hung);
int postern__bench_hung_add(struct postern__bench_hung *hung,
		struct postern_box *box, uint32_t count, struct postern_error *error);
/* Send each of them a message, and wait until the callbacks hang. */
int postern__bench_hung_start(struct postern__bench_hung *hung,
		struct postern_box *box, struct postern_error *error);
/* Let the callbacks return. */
void postern__bench_hung_release(struct postern__bench_hung *hung);
/* Whether an event is about one of them. */
bool postern__bench_hung_is(const struct postern_event *event);

/* bench_feed.c: messages. */

/* How far back the original of a copy is at most. */
#define POSTERN__BENCH_WINDOW 1000

/* The messages of one sender, one after the other. */
struct postern__bench_feed {
	uint64_t random;
	uint32_t duplicates; /* per cent */
	uint64_t sent;
	uint64_t made; /* the rest were copies */
	char recent[POSTERN__BENCH_WINDOW][POSTERN__BENCH_ID_LEN + 1];
};

/* Room for what a message points to. */
struct postern__bench_letter {
	char id[POSTERN__BENCH_ID_LEN + 1];
	char body[POSTERN__BENCH_BODY_LEN];
};

void postern__bench_feed_init(struct postern__bench_feed *feed,
		uint32_t duplicates);
/* The next message; it points into the letter. */
void postern__bench_feed_next(struct postern__bench_feed *feed,
		struct postern__bench_letter *letter, struct postern_message *out);

/* bench_samples.c: latency. */

/* The number of messages that are measured at most, evenly chosen, so that
   measuring takes little memory for any job. A power of two. */
#define POSTERN__BENCH_SAMPLES_MAX 65536

struct postern__bench_samples {
	uint64_t stride; /* one in so many is measured */
	struct {
		_Atomic int64_t sent_ns;
		_Atomic int64_t started_ns;
	} * slots;
};

/* False: no memory. */
bool postern__bench_samples_init(struct postern__bench_samples *samples,
		uint64_t messages);
void postern__bench_samples_finish(struct postern__bench_samples *samples);
/* In any order and from any thread. */
void postern__bench_samples_sent(struct postern__bench_samples *samples,
		int64_t seq, int64_t ns);
void postern__bench_samples_started(struct postern__bench_samples *samples,
		int64_t seq);
/* Fills in the percentiles. */
void postern__bench_samples_read(struct postern__bench_samples *samples,
		struct postern__bench_result *out);

#endif
