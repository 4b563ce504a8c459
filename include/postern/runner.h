/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RUNNER_H
#define POSTERN_RUNNER_H

/*
 * A runner owns the threads that work a box: one that writes, one that looks
 * after leases and timeouts, and a pool that runs handlers.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/export.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_runner;

#define POSTERN_WORKER_COUNT_MAX 1024

/* Zero the struct and set `size`; zeroes are the defaults named here. */
struct postern_runner_options {
	size_t size;
	uint32_t workers;            /* 4: threads that run handlers */
	int64_t polling_interval_ms; /* 30 s: a backstop, wake-ups are immediate;
									1 s where several processes share a store */
	int64_t restart_delay_ms;    /* 5 s: pause after an internal error */
	int64_t cleanup_interval_ms; /* 1 h */
	/* Told about trouble that no caller waits for, already worded for a log;
	   may be NULL. Called on the runner's threads. */
	postern_remark *trouble;
	void *trouble_context;
};

/* Make a runner for a started box. The box must outlive it. */
POSTERN_EXPORT int postern_runner_create(struct postern_box *box,
		const struct postern_runner_options *options,
		struct postern_runner **out, struct postern_error *error);

/* Start the threads. Accepted messages are from now on leased at once to
   this process where there is room. */
POSTERN_EXPORT int postern_runner_start(struct postern_runner *runner,
		struct postern_error *error);

/*
 * Stop taking new work, let what runs finish for at most grace_ms, give back
 * every lease that was not run, and make all results durable. Programs still
 * running after the grace are killed and given back, not counted as failed.
 * Accepts still work afterwards.
 *
 * Returns POSTERN_OK, or POSTERN_E_TIMEOUT if a callback would not return.
 */
POSTERN_EXPORT int postern_runner_drain(struct postern_runner *runner,
		int64_t grace_ms, struct postern_error *error);

/* Drain with no grace and end the threads. A callback that does not return
   keeps its thread and this call waiting. NULL is fine. */
POSTERN_EXPORT void postern_runner_stop(struct postern_runner *runner);

/* Stop and free. NULL is fine. */
POSTERN_EXPORT void postern_runner_destroy(struct postern_runner *runner);

/* How it is doing: POSTERN_OK, POSTERN_E_TIMEOUT with a text while a callback
   overran its lease or holds the writer, POSTERN_E_UNAVAILABLE while the
   store fails. */
POSTERN_EXPORT int postern_runner_health(struct postern_runner *runner,
		struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
