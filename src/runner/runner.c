/* SPDX-License-Identifier: MIT */
/*
 * The runner: threads around the steps of the core.
 *
 *   writer       commits queued items, tests a store that failed
 *   claimer      claims due deliveries, reads which handlers are paused
 *                (claimer.c)
 *   workers      start runs; a handler that blocks blocks its worker only, and
 *                more workers are added while handlers hang (workers.c)
 *   renewer      renews the node's lease and the processing lock; it does
 *                nothing else that could wait for the store (maintenance.c)
 *   maintenance  recovers leases, poisons orphans, cleans up (maintenance.c)
 *   wakeup       waits for notifications of other nodes (wakeup.c)
 *   watchdog     enforces timeouts and leases of runs; never waits for the
 *                store, which may itself wait for a run to be interrupted
 *
 * Sources have threads of their own (sources.c).
 *
 * The threads share nothing but the box: each waits for its condition, takes
 * one step and checks again. An error of the store stops no thread: the step is
 * retried after restart_delay, and the error is reported when it begins and
 * when it ends, not on every retry.
 */

#include <postern/runner.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/point.h"
#include "base/sized.h"
#include "core/box.h"
#include "core/commit.h"
#include "core/maintenance.h"
#include "core/pull.h"
#include "core/run.h"
#include "core/tenure.h"
#include "runner/runner.h"

#include <stdlib.h>
#include <string.h>

/* How long settlements wait for accepts to be committed with (about the time in
   which a sender sends its next message), and how many at most: enough to
   justify a commit of their own. */
#define LINGER_NS ((int64_t)2 * 1000 * 1000)
#define LINGER_COUNT (POSTERN__COMMIT_ITEMS_MAX / 2)
#define WORKERS_DEFAULT 4
#define WORKERS_MAX_DEFAULT 256
/* A fallback; but in a shared store it may be the only way to find deliveries
   that other nodes accepted. */
#define POLLING_INTERVAL_MS_DEFAULT ((int64_t)30 * 1000)
#define POLLING_INTERVAL_MS_SHARED ((int64_t)1000)
#define RESTART_DELAY_MS_DEFAULT ((int64_t)5 * 1000)
#define CLEANUP_INTERVAL_MS_DEFAULT ((int64_t)60 * 60 * 1000)
/* How long a drain waits for cancelled runs after the grace: a killed program
   needs a moment to exit. */
#define KILL_MS ((int64_t)5 * 1000)
/* How often a drain that waits for settlements checks whether the store
   fails. */
#define FAILING_POLL_MS 100

void postern__runner_store_result(struct postern_runner *runner, int code,
		const struct postern_error *error) {
	bool failed = code != POSTERN_OK;
	(void)pthread_mutex_lock(&runner->box->mutex);
	bool changed = failed != runner->store_unavailable;
	runner->store_unavailable = failed;
	runner->box->store_failing = failed;
	if (failed) {
		/* The writer tests the store, though there is nothing to write. */
		(void)pthread_cond_signal(&runner->box->wake);
	}
	(void)pthread_mutex_unlock(&runner->box->mutex);
	if (!changed) {
		return;
	}
	if (failed) {
		postern__emit_text(runner->box,
				&(struct postern_event){
						.kind = POSTERN_EVENT_STORE_FAILED,
						.error = error->text,
				},
				"store unavailable: %s", error->text);
	} else {
		postern__emit(runner->box,
				&(struct postern_event){ .kind = POSTERN_EVENT_STORE_WORKS });
	}
}

/*
 * With the mutex: how long the writer delays the queued settlements; 0: not at
 * all. No caller waits for settlements, and in the commit of the next accepts
 * they cost almost nothing; a commit of their own would delay those accepts.
 */
static int64_t linger_left_ns(struct postern_runner *runner) {
	const struct postern_box *box = runner->box;
	if (postern__list_empty(&box->settlements) ||
			!postern__list_empty(&box->answers) ||
			!postern__list_empty(&box->accepts) || box->draining ||
			box->settling >= LINGER_COUNT) {
		runner->linger_first = NULL;
		return 0;
	}
	if (!postern__commit_free(box)) {
		/* The time counts from the end of the commit in progress: only then
		   can its sender send the next message. */
		runner->linger_first = NULL;
		return LINGER_NS;
	}
	const struct postern__list *first = postern__list_first(&box->settlements);
	int64_t now = postern__clock_ns();
	if (runner->linger_first != first) {
		runner->linger_first = first;
		runner->linger_ns = now;
	}
	int64_t left = runner->linger_ns + LINGER_NS - now;
	return left > 0 ? left : 0;
}

static int64_t writer_sleep_ms(const struct postern_runner *runner,
		int64_t linger_ns) {
	const struct postern_box *box = runner->box;
	int64_t at = POSTERN__NEVER;
	if (!postern__list_empty(&box->settlements) && linger_ns == 0 &&
			box->commit_retry_at_ms < at) {
		at = box->commit_retry_at_ms;
	}
	at = runner->probe_at_ms < at ? runner->probe_at_ms : at;
	int64_t left = at - postern__box_now_ms(box);
	int64_t linger = linger_ns / 1000000 + 1;
	left = linger_ns > 0 && linger < left ? linger : left;
	return left > 1 ? left : 1;
}

/*
 * With the mutex: whether to test a store in which a write failed. Senders that
 * stopped because of the failure make no write that would show its end.
 */
static bool probe_due(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	if (!box->store_failing) {
		runner->probe_at_ms = POSTERN__NEVER;
		return false;
	}
	if (runner->probe_at_ms == POSTERN__NEVER) {
		runner->probe_at_ms =
				postern__box_after_ms(box, runner->options.restart_delay_ms);
	}
	return postern__box_now_ms(box) >= runner->probe_at_ms;
}

static void probe_store(struct postern_runner *runner) {
	struct postern_error error = { 0 };
	int r = postern__enrol(runner->box, true, &error);
	if (r == POSTERN_E_STALE) {
		r = POSTERN_OK; /* the store works; the renewer registers a new node */
	} else if (!r) {
		r = postern__engage(runner->box, &error);
	}
	postern__runner_store_result(runner, r, &error);
	runner->probe_at_ms = POSTERN__NEVER;
}

/* What the writer has to do now. */
struct writer_duties {
	bool commit;
	bool probe;
};

/* With the mutex, which is released during each duty. */
static void run_writer_duties(struct postern_runner *runner,
		const struct writer_duties *duties) {
	struct postern_box *box = runner->box;
	struct postern_error error = { 0 };
	int r = POSTERN_OK;
	if (duties->commit) {
		r = postern__commit_group(box, NULL, &error);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	if (duties->commit) {
		postern__point("writer.committed");
		postern__runner_store_result(runner, r, &error);
	}
	if (duties->probe) {
		probe_store(runner);
	}
	(void)pthread_mutex_lock(&box->mutex);
}

static void *writer_loop(void *context) {
	struct postern_runner *runner = context;
	struct postern_box *box = runner->box;
	(void)pthread_mutex_lock(&box->mutex);
	while (!runner->stopping) {
		int64_t linger_ns = linger_left_ns(runner);
		struct writer_duties duties = {
			.commit = linger_ns == 0 && postern__commit_ready(box),
			.probe = probe_due(runner),
		};
		if (duties.commit || duties.probe) {
			run_writer_duties(runner, &duties);
		} else {
			postern__wait(&box->wake, &box->mutex,
					writer_sleep_ms(runner, linger_ns));
		}
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return NULL;
}

static void *watchdog_loop(void *context) {
	struct postern_runner *runner = context;
	int64_t next;
	do {
		next = postern__watchdog_step(runner->box);
		int64_t end = postern__right_watch(runner->box);
		next = end < next ? end : next;
		int64_t grow = postern__workers_grow(runner);
		next = grow < next ? grow : next;
	} while (postern__watchdog_sleep(runner->box, next, &runner->stopping));
	return NULL;
}

static int set_runner_options(struct postern_runner *runner,
		const struct postern_runner_options *given,
		struct postern_error *error) {
	struct postern_runner_options *options = &runner->options;
	if (given) {
		int r = postern__sized_copy(options, sizeof(*options), given,
				"struct postern_runner_options", error);
		if (r) {
			return r;
		}
	}
	if (options->workers == 0) {
		options->workers = WORKERS_DEFAULT;
	}
	if (options->workers_max == 0) {
		options->workers_max = WORKERS_MAX_DEFAULT;
	}
	if (options->workers_max < options->workers) {
		options->workers_max = options->workers;
	}
	if (options->polling_interval_ms == 0) {
		options->polling_interval_ms = runner->box->store->ops->exclusive
											   ? POLLING_INTERVAL_MS_DEFAULT
											   : POLLING_INTERVAL_MS_SHARED;
	}
	if (options->restart_delay_ms == 0) {
		options->restart_delay_ms = RESTART_DELAY_MS_DEFAULT;
	}
	if (options->cleanup_interval_ms == 0) {
		options->cleanup_interval_ms = CLEANUP_INTERVAL_MS_DEFAULT;
	}
	if (options->workers_max > POSTERN_WORKER_COUNT_MAX ||
			options->cleanup_interval_ms < 0 ||
			options->cleanup_interval_ms > POSTERN_DURATION_MS_MAX ||
			options->polling_interval_ms < 0 ||
			options->polling_interval_ms > POSTERN_DURATION_MS_MAX ||
			options->restart_delay_ms < 0 ||
			options->restart_delay_ms > POSTERN_DURATION_MS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"workers, polling_interval, restart_delay or cleanup_interval "
				"is out of range");
	}
	return POSTERN_OK;
}

int postern_runner_create(struct postern_box *box,
		const struct postern_runner_options *options,
		struct postern_runner **out, struct postern_error *error) {
	int r = postern__box_check_started(box, error);
	if (r) {
		return r;
	}
	struct postern_runner *runner = calloc(1, sizeof(*runner));
	if (!runner) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	runner->box = box;
	r = set_runner_options(runner, options, error);
	if (!r) {
		r = postern__workers_create(runner, error);
	}
	if (!r && (postern__wait_init(&runner->maintenance_wake) ||
					  postern__wait_init(&runner->renewer_wake))) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (!r) {
		r = postern__sources_add_staged(runner, error);
	}
	if (r) {
		postern_runner_destroy(runner);
		return r;
	}
	*out = runner;
	return POSTERN_OK;
}

static int start_thread(pthread_t *thread, void *(*loop)(void *),
		struct postern_runner *runner, struct postern_error *error) {
	int r = pthread_create(thread, NULL, loop, runner);
	return r ? postern__fail(error, POSTERN_E_NOMEM,
					   "cannot start a thread: %s", strerror(r))
			 : POSTERN_OK;
}

static int start_threads(struct postern_runner *runner,
		struct postern_error *error) {
	postern__point("runner.starting");
	int r = start_thread(&runner->writer, writer_loop, runner, error);
	runner->writer_started = r == POSTERN_OK;
	if (!r) {
		r = postern__workers_start(runner, error);
	}
	if (!r) {
		r = start_thread(&runner->watchdog, watchdog_loop, runner, error);
		runner->watchdog_started = r == POSTERN_OK;
	}
	if (!r) {
		r = start_thread(&runner->claimer, postern__claimer_loop, runner,
				error);
		runner->claimer_started = r == POSTERN_OK;
	}
	if (!r) {
		r = start_thread(&runner->renewer, postern__renewer_loop, runner,
				error);
		runner->renewer_started = r == POSTERN_OK;
	}
	if (!r) {
		r = start_thread(&runner->maintenance, postern__maintenance_loop,
				runner, error);
		runner->maintenance_started = r == POSTERN_OK;
	}
	if (!r && runner->box->store->ops->wait) {
		r = start_thread(&runner->wakeup, postern__wakeup_loop, runner, error);
		runner->wakeup_started = r == POSTERN_OK;
	}
	return r ? r : postern__sources_start(runner, error);
}

int postern_runner_start(struct postern_runner *runner,
		struct postern_error *error) {
	struct postern_box *box = runner->box;
	(void)pthread_mutex_lock(&box->mutex);
	bool taken = box->leasing || runner->writer_started;
	if (!taken) {
		box->leasing = true;
		box->draining = false;
		box->watch_at_ms = POSTERN__NEVER;
		runner->stopping = false;
		runner->poll_at_ms = 0;
		runner->clean_at_ms = 0;
		runner->probe_at_ms = POSTERN__NEVER;
		postern__claim_hint_all(box);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	if (taken) {
		return postern__fail(error, POSTERN_E_BUSY,
				"the box already has a runner");
	}
	int r = start_threads(runner, error);
	if (r) {
		postern_runner_stop(runner);
		(void)pthread_mutex_lock(&box->mutex);
		box->leasing = false;
		(void)pthread_mutex_unlock(&box->mutex);
	}
	return r;
}

/* With the mutex: wait until `count` is 0; false if it is not at until_ms. */
static bool wait_for_none(struct postern_box *box, const size_t *count,
		int64_t until_ms) {
	while (*count > 0) {
		int64_t left = until_ms - postern__box_now_ms(box);
		if (left <= 0) {
			return false;
		}
		postern__wait(&box->committed, &box->mutex, left);
	}
	return true;
}

/* With the mutex: wait until all settlements and the messages of sources are
   durable; false if a settlement is not. A commit may take the command timeout,
   but a store that fails is waited for until until_ms only. */
static bool wait_for_results(const struct postern_runner *runner,
		int64_t until_ms) {
	struct postern_box *box = runner->box;
	int64_t limit_ms =
			postern__box_after_ms(box, box->options.command_timeout_ms);
	while (box->settling > 0 || postern__sources_in_flight(runner)) {
		bool failing = box->store_failing && until_ms < limit_ms;
		int64_t left =
				(failing ? until_ms : limit_ms) - postern__box_now_ms(box);
		if (left <= 0) {
			return box->settling == 0;
		}
		/* `committed` is not signalled when the store begins to fail. */
		postern__wait(&box->committed, &box->mutex,
				left < FAILING_POLL_MS ? left : FAILING_POLL_MS);
	}
	return true;
}

int postern_runner_drain(struct postern_runner *runner, int64_t grace_ms,
		struct postern_error *error) {
	struct postern_box *box = runner->box;
	int64_t until_ms = postern__box_after_ms(box, grace_ms > 0 ? grace_ms : 0);
	postern__sources_stop(runner);
	(void)pthread_mutex_lock(&box->mutex);
	box->leasing = false;
	box->draining = true;
	(void)pthread_mutex_unlock(&box->mutex);
	postern__point("drain.before");
	postern__pulls_end(box);
	postern__return_queued(box, true);
	postern__point("drain.given-back");

	(void)pthread_mutex_lock(&box->mutex);
	bool quiet = wait_for_none(box, &box->running_count, until_ms);
	(void)pthread_mutex_unlock(&box->mutex);
	if (!quiet) {
		postern__cancel_running(box, true);
	}
	/* Again: a transaction that the store failed has requeued its runs. */
	postern__return_queued(box, true);

	(void)pthread_mutex_lock(&box->mutex);
	quiet = wait_for_none(box, &box->running_count,
			postern__box_after_ms(box, KILL_MS));
	bool written = wait_for_results(runner, until_ms);
	(void)pthread_mutex_unlock(&box->mutex);
	postern__point("drain.after");
	if (!quiet) {
		return postern__fail(error, POSTERN_E_TIMEOUT,
				"a handler did not return before the end of the grace period");
	}
	if (!written) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"not every settlement could be written; their deliveries will "
				"be run again");
	}
	return POSTERN_OK;
}

void postern_runner_stop(struct postern_runner *runner) {
	if (!runner || !runner->writer_started) {
		return;
	}
	struct postern_box *box = runner->box;
	(void)postern_runner_drain(runner, 0, NULL);
	postern__sources_end(runner);
	(void)pthread_mutex_lock(&box->mutex);
	runner->stopping = true;
	(void)pthread_cond_broadcast(&box->wake);
	(void)pthread_cond_broadcast(&box->watch);
	(void)pthread_cond_broadcast(&box->work);
	(void)pthread_cond_broadcast(&box->claim);
	(void)pthread_cond_broadcast(&runner->maintenance_wake);
	(void)pthread_cond_broadcast(&runner->renewer_wake);
	(void)pthread_mutex_unlock(&box->mutex);
	if (runner->watchdog_started) {
		(void)pthread_join(runner->watchdog, NULL);
		runner->watchdog_started = false;
	}
	postern__workers_stop(runner);
	if (runner->claimer_started) {
		(void)pthread_join(runner->claimer, NULL);
		runner->claimer_started = false;
	}
	if (runner->maintenance_started) {
		(void)pthread_join(runner->maintenance, NULL);
		runner->maintenance_started = false;
	}
	if (runner->renewer_started) {
		(void)pthread_join(runner->renewer, NULL);
		runner->renewer_started = false;
	}
	if (runner->wakeup_started) {
		box->store->ops->end_wait(box->store);
		(void)pthread_join(runner->wakeup, NULL);
		runner->wakeup_started = false;
	}
	(void)pthread_join(runner->writer, NULL);
	postern__point("runner.stopped");
	runner->writer_started = false;
	(void)pthread_mutex_lock(&box->mutex);
	box->commit_retry_at_ms = 0;
	(void)pthread_mutex_unlock(&box->mutex);
	/* Commit the outcomes of callbacks that returned late. */
	(void)postern_box_commit(box, NULL, NULL);
	(void)pthread_mutex_lock(&box->mutex);
	box->draining = false;
	(void)pthread_mutex_unlock(&box->mutex);
	postern__lock_release(box);
}

void postern_runner_destroy(struct postern_runner *runner) {
	if (!runner) {
		return;
	}
	postern_runner_stop(runner);
	(void)pthread_cond_destroy(&runner->maintenance_wake);
	(void)pthread_cond_destroy(&runner->renewer_wake);
	postern__sources_destroy(runner);
	free(runner->workers);
	free(runner);
}

/* With the mutex: whether a transactional handler that is past its deadline
   holds the store's writer. */
static bool writer_is_held(const struct postern_box *box) {
	int64_t now = postern__box_now_ms(box);
	postern__list_each(link, &box->running) {
		const struct postern_run *run =
				container_of(link, struct postern_run, link);
		if (run->in_unit && now >= run->deadline_ms) {
			return true;
		}
	}
	return false;
}

/* With the mutex: count the runs that are past their lease and not abandoned:
   those without a timeout and those of transactional handlers. */
static size_t count_stuck(const struct postern_box *box) {
	int64_t now = postern__box_now_ms(box);
	size_t count = 0;
	postern__list_each(link, &box->running) {
		const struct postern_run *run =
				container_of(link, struct postern_run, link);
		count += now >= run->lease_end_ms;
	}
	return count;
}

int postern_runner_ready(struct postern_runner *runner,
		struct postern_error *error) {
	struct postern_box *box = runner->box;
	(void)pthread_mutex_lock(&box->mutex);
	bool held = writer_is_held(box);
	bool failing = box->store_failing || runner->store_unavailable;
	(void)pthread_mutex_unlock(&box->mutex);
	if (failing) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "store unavailable");
	}
	return held ? postern__fail(error, POSTERN_E_TIMEOUT,
						  "a transactional handler overran its timeout and "
						  "holds the store's writer")
				: POSTERN_OK;
}

int postern_runner_health(struct postern_runner *runner,
		struct postern_error *error) {
	struct postern_box *box = runner->box;
	int r = postern_runner_ready(runner, error);
	if (r) {
		return r;
	}
	(void)pthread_mutex_lock(&box->mutex);
	size_t lost = box->lost_slots + count_stuck(box);
	(void)pthread_mutex_unlock(&box->mutex);
	if (lost > 0) {
		return postern__fail(error, POSTERN_E_TIMEOUT,
				"%zu handler%s lease and still run%s", lost,
				lost == 1 ? " overran its" : "s overran their",
				lost == 1 ? "s" : "");
	}
	return POSTERN_OK;
}
