/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RUNNER_H
#define POSTERN_RUNNER_H

/*
 * A runner owns the threads that work a box: workers that run handlers, and
 * threads that commit, claim, renew, recover, clean up and enforce timeouts.
 * Errors that no caller waits for are events of the box (event.h).
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
	int64_t polling_interval_ms; /* 30 s: a fallback, wake-ups are immediate;
									1 s where several processes share a store */
	int64_t restart_delay_ms;    /* 5 s: before a retry after an error */
	int64_t cleanup_interval_ms; /* 1 h */
};

/* Create a runner for a started box. The box must outlive it. */
POSTERN_EXPORT int postern_runner_create(struct postern_box *box,
		const struct postern_runner_options *options,
		struct postern_runner **out, struct postern_error *error);

/* Start the threads. From now on the deliveries of an accepted message are
   leased to this node at once, if there is room. */
POSTERN_EXPORT int postern_runner_start(struct postern_runner *runner,
		struct postern_error *error);

/*
 * Start no new runs, let those in progress finish for at most grace_ms, return
 * all unused leases, and make all settlements durable. After grace_ms the runs
 * in progress are cancelled: programs are killed and their leases returned, no
 * failure is counted. Messages can still be accepted afterwards.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_TIMEOUT      a callback did not return
 *   POSTERN_E_UNAVAILABLE  not every settlement could be written
 */
POSTERN_EXPORT int postern_runner_drain(struct postern_runner *runner,
		int64_t grace_ms, struct postern_error *error);

/* Drain with no grace and end the threads. If a callback does not return, this
   call does not return either. NULL is fine. */
POSTERN_EXPORT void postern_runner_stop(struct postern_runner *runner);

/* Stop and free. NULL is fine. */
POSTERN_EXPORT void postern_runner_destroy(struct postern_runner *runner);

/* Check the runner: POSTERN_OK; POSTERN_E_TIMEOUT while a run is past its lease
   or a transactional handler past its timeout holds the store's writer;
   POSTERN_E_UNAVAILABLE while the store is unavailable. */
POSTERN_EXPORT int postern_runner_health(struct postern_runner *runner,
		struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
