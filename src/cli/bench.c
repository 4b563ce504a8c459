/* SPDX-License-Identifier: MIT */
/*
 * `postern bench`: how fast this machine and this store are.
 */

#include "cli/bench.h"

#include <inttypes.h>
#include <jansson.h>
#include <postern/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/own_store.h"
#include "server/config.h"

#define MESSAGES_DEFAULT 100000
#define BATCH_DEFAULT 1000
#define DUPLICATES_DEFAULT 10

/* By enum postern__bench_handler. */
static const char *const handlers[] = { "callback", "sql", "exec", "none" };
#define HANDLER_COUNT (sizeof handlers / sizeof handlers[0])

static int parse_handler(const struct postern__cli *cli,
		enum postern__bench_handler *out) {
	const char *name = postern__args_value(&cli->args, "handler");
	for (size_t i = 0; name && i < HANDLER_COUNT; i++) {
		if (strcmp(name, handlers[i]) == 0) {
			*out = (enum postern__bench_handler)i;
			return POSTERN__EXIT_OK;
		}
	}
	return name ? postern__cli_usage(cli,
						  "--handler must be callback, sql, exec or none, not "
						  "'%.80s'",
						  name)
				: POSTERN__EXIT_OK;
}

/* "10%" or "10". */
static int parse_duplicates(const struct postern__cli *cli, uint32_t *out) {
	const char *text = postern__args_value(&cli->args, "duplicates");
	char digits[16];
	uint64_t percent;
	if (!text) {
		return POSTERN__EXIT_OK;
	}
	size_t len = strlen(text);
	if (len > 0 && text[len - 1] == '%') {
		len--;
	}
	bool fits = len < sizeof digits;
	(void)snprintf(digits, sizeof digits, "%.*s", fits ? (int)len : 0, text);
	if (postern__count_parse(digits, 0, POSTERN__BENCH_DUPLICATES_MAX, &percent,
				NULL)) {
		return postern__cli_usage(cli,
				"--duplicates must be a percentage from 0%% to %d%%, not "
				"'%.80s'",
				POSTERN__BENCH_DUPLICATES_MAX, text);
	}
	*out = (uint32_t)percent;
	return POSTERN__EXIT_OK;
}

static int parse_counts(const struct postern__cli *cli,
		struct postern__bench_job *job) {
	unsigned long messages = MESSAGES_DEFAULT;
	unsigned long batch = BATCH_DEFAULT;
	unsigned long senders = 1;
	unsigned long channels = 1;
	unsigned long rate = 0;
	unsigned long hung = 0;
	int r = postern__cli_count(cli, "messages", 1, POSTERN__BENCH_MESSAGES_MAX,
			&messages);
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_count(cli, "batch", 1, POSTERN_ACCEPT_BATCH_MAX,
				&batch);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_count(cli, "senders", 1, POSTERN__BENCH_SENDERS_MAX,
				&senders);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_count(cli, "channels", 1, POSTERN__BENCH_CHANNELS_MAX,
				&channels);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_count(cli, "rate", 1, POSTERN__BENCH_RATE_MAX, &rate);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_count(cli, "hung", 1, POSTERN__BENCH_HUNG_MAX, &hung);
	}
	job->hung = (uint32_t)hung;
	job->messages = messages;
	job->batch = (uint32_t)batch;
	job->senders = (uint32_t)senders;
	job->channels = (uint32_t)channels;
	job->rate = (uint32_t)rate;
	return r;
}

static int parse_job(const struct postern__cli *cli,
		struct postern__bench_job *job) {
	const struct postern__args *args = &cli->args;
	*job = (struct postern__bench_job){
		.duplicates = DUPLICATES_DEFAULT,
		.drain = postern__args_has(args, "drain"),
		.shared = postern__args_has(args, "shared"),
		.progress = !cli->json && isatty(STDERR_FILENO),
	};
	int r = parse_counts(cli, job);
	if (r == POSTERN__EXIT_OK) {
		r = parse_duplicates(cli, &job->duplicates);
	}
	if (r == POSTERN__EXIT_OK) {
		r = parse_handler(cli, &job->handler);
	}
	if (r) {
		return r;
	}
	if (job->rate > 0 && (job->drain || postern__args_has(args, "batch") ||
								 postern__args_has(args, "senders"))) {
		return postern__cli_usage(cli, "--rate sends messages one by one: "
									   "remove --batch, --senders and --drain");
	}
	if (job->hung > 0 && (job->drain || job->shared)) {
		return postern__cli_usage(cli,
				"--hung needs a runner from the "
				"beginning: remove --drain and --shared");
	}
	if (job->shared && (job->drain || job->handler == POSTERN__BENCH_NONE)) {
		return postern__cli_usage(cli,
				"--shared ends when every delivery has ended: remove --drain "
				"and --handler none");
	}
	if (!postern__args_has(args, "store") &&
			!postern__args_has(args, "store-file")) {
		return postern__cli_usage(cli,
				"--store is required, because bench does not fill the store of "
				"a configuration: use 'memory:', 'sqlite:FILE' with a file "
				"that does not exist, or "
				"'postgres://USER@HOST/DATABASE?schema=NAME' with a schema "
				"that does not exist");
	}
	return r;
}

/* Refuse a store that has been used; a store without channels never had a
   message. */
static int check_fresh(const struct postern__cli *cli,
		struct postern_box *box) {
	struct postern_error error;
	struct postern_stats *stats = NULL;
	if (postern_box_stats(box, &stats, &error)) {
		return postern__print_error(cli, &error);
	}
	bool fresh = stats->channel_count == 0 && stats->handler_count == 0;
	postern_stats_destroy(stats);
	if (!fresh) {
		postern__err_print(
				"bench: the store has been used before: choose a new one, "
				"such as a file or a ?schema=NAME that does not exist");
		return POSTERN__EXIT_FAILED;
	}
	return POSTERN__EXIT_OK;
}

/* The peak memory of this process; 0 if the kernel does not report it. */
static uint64_t peak_rss_kib(void) {
	char line[256];
	uint64_t kib = 0;
	FILE *file = fopen("/proc/self/status", "re");
	while (file && fgets(line, sizeof line, file)) {
		static const char name[] = "VmHWM:";
		if (strncmp(line, name, strlen(name)) == 0) {
			kib = strtoull(line + strlen(name), NULL, 10);
		}
	}
	if (file) {
		(void)fclose(file); /* only read */
	}
	return kib;
}

static double seconds_of(int64_t ns) {
	return (double)ns / 1e9;
}

static uint64_t rate_of(uint64_t count, int64_t ns) {
	return ns > 0 ? (uint64_t)((double)count / seconds_of(ns) + 0.5) : 0;
}

/* Print the result: completions, or accepts if there is no handler. */
static uint64_t done_count(const struct postern__bench_job *job,
		const struct postern__bench_result *result) {
	return job->handler == POSTERN__BENCH_NONE ? result->accepted
											   : result->completed;
}

static json_t *ms_of(int64_t ns) {
	return ns < 0 ? json_null() : json_real((double)ns / 1e6);
}

static void print_json(const struct postern__bench_job *job,
		const struct postern__bench_result *result) {
	json_t *json =
			json_pack("{s:I, s:I, s:I, s:f, s:I, s:{s:o, s:o, s:o},"
					  " s:I, s:I, s:i, s:i, s:i, s:i, s:s, s:b, s:f, s:f}",
					"accepted", (json_int_t)result->accepted, "duplicates",
					(json_int_t)result->duplicates, "completed",
					(json_int_t)result->completed, "seconds",
					seconds_of(result->total_ns), "messages_per_second",
					(json_int_t)rate_of(done_count(job, result),
							result->total_ns),
					"latency_ms", "p50", ms_of(result->p50_ns), "p99",
					ms_of(result->p99_ns), "max", ms_of(result->max_ns),
					"rss_kib", (json_int_t)peak_rss_kib(), "messages",
					(json_int_t)job->messages, "batch",
					job->rate > 0 ? 1 : (int)job->batch, "senders",
					(int)job->senders, "channels", (int)job->channels, "rate",
					(int)job->rate, "handler", handlers[job->handler], "drain",
					(int)job->drain, "accept_seconds",
					seconds_of(result->accept_ns), "drain_seconds",
					seconds_of(result->drain_ns));
	/* Seven digits are more precise than the measurement. A write error is
	   found when stdout is closed. */
	(void)json_dumpf(json, stdout, JSON_REAL_PRECISION(7));
	(void)putchar('\n');
	json_decref(json);
}

static void print_line(const char *name, double value, int digits,
		const char *unit) {
	(void)printf("%-14s%14.*f%s\n", name, digits, value, unit);
}

static void print_lines(const struct postern__bench_job *job,
		const struct postern__bench_result *result) {
	print_line("accepted", (double)result->accepted, 0, "");
	print_line("duplicates", (double)result->duplicates, 0, "");
	print_line("completed", (double)result->completed, 0, "");
	print_line("time", seconds_of(result->total_ns), 3, " s");
	print_line("throughput",
			(double)rate_of(done_count(job, result), result->total_ns), 0,
			" messages/s");
	if (job->drain) {
		print_line("  accept",
				(double)rate_of(result->accepted, result->accept_ns), 0,
				" messages/s");
		print_line("  drain",
				(double)rate_of(result->completed, result->drain_ns), 0,
				" messages/s");
	}
	if (result->p50_ns >= 0) {
		print_line("latency p50", (double)result->p50_ns / 1e6, 3,
				" ms, accept to handler start");
		print_line("latency p99", (double)result->p99_ns / 1e6, 3, " ms");
	}
	print_line("memory", (double)peak_rss_kib() / 1024, 1, " MiB maximum");
}

/* Check that the store is new, and create the tables that the job needs. */
static int set_up(const struct postern__cli *cli,
		const struct postern__bench_job *job, struct postern_box *box) {
	struct postern_error error;
	int r = job->shared ? POSTERN__EXIT_OK : check_fresh(cli, box);
	if (r == POSTERN__EXIT_OK && job->handler == POSTERN__BENCH_SQL &&
			postern__bench_set_up(box, &error)) {
		r = postern__print_error(cli, &error);
	}
	return r;
}

static int run_on(const struct postern__cli *cli,
		const struct postern__bench_job *job, struct postern__bench *bench,
		struct postern__bench_result *result) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	struct postern_error error;
	postern__own_store_options(cli->stores[0], &options);
	int r = postern__own_store_open(cli, cli->stores[0], &options, &box);
	if (r == POSTERN__EXIT_OK) {
		r = set_up(cli, job, box);
	}
	if (r == POSTERN__EXIT_OK && job->handler == POSTERN__BENCH_SQL) {
		postern_box_destroy(box);
		box = NULL;
		r = postern__own_store_open(cli, cli->stores[0], &options, &box);
	}
	if (r == POSTERN__EXIT_OK &&
			postern__bench_run(bench, box, result, &error)) {
		r = postern__print_error(cli, &error);
	}
	postern_box_destroy(box);
	return r;
}

/* The store that --store names. */
static void choose_store(struct postern__cli *cli) {
	const struct postern__config_store *store =
			postern__config_store_named(cli->config, POSTERN__STORE_DEFAULT,
					NULL);
	if (store) {
		cli->stores[0] = store;
	}
	cli->store_count = 1;
}

int postern__command_bench(struct postern__cli *cli) {
	struct postern__bench_job job;
	struct postern__bench_result result;
	struct postern_runner_options runner;
	struct postern_policy policy;
	struct postern__bench *bench = NULL;
	struct postern_error error;
	int r = parse_job(cli, &job);
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_configure(cli);
	}
	if (r) {
		return r;
	}
	choose_store(cli);
	postern__config_runner_options(cli->stores[0], &runner);
	postern_policy_init(&policy);
	policy.commit_batch = cli->stores[0]->values.commit_batch;
	job.retention_payload_ms = cli->stores[0]->values.retention_payload_ms;
	job.retention_dedupe_ms = cli->stores[0]->values.retention_dedupe_ms;
	job.key = postern__args_value(&cli->args, "key");
	job.runner = &runner;
	job.policy = &policy;
	if (postern__bench_create(&job, &bench, &error)) {
		return postern__print_error(cli, &error);
	}
	r = run_on(cli, &job, bench, &result);
	postern__bench_destroy(bench);
	if (r) {
		return r;
	}
	if (cli->json) {
		print_json(&job, &result);
	} else {
		print_lines(&job, &result);
	}
	return r;
}
