/* SPDX-License-Identifier: MIT */
/*
 * How many deliveries of a handler a node leases in advance. What one node
 * leases no other node can run, so where nodes share a store a node leases
 * about as much as it can run in one second: slow work spreads over all nodes,
 * and fast work is leased when it is accepted, without a claim. The window
 * follows the mean duration of the handler's latest runs; until one has ended,
 * or while leases wait for longer than that second (share.c), it is as many as
 * can run at the same time.
 */

#include "core/window.h"

#include "core/accept.h"
#include "core/rate.h"
#include "core/reason.h"
#include "core/run.h"

/* The mean is kept in fractions of a millisecond, so that rounding does not
   keep it from becoming small; the latest run counts an eighth of it. */
#define UNIT 1024
#define WEIGHT 8
#define WINDOW_MS 1000

size_t postern__parallel_count(const struct postern_box *box,
		const struct postern__handler *handler) {
	size_t most = handler->policy.concurrency;
	if (handler->impl->transactional) {
		size_t transactions = postern__transactions_max(box);
		size_t limit = most > 0 && most < transactions ? most : transactions;
		return limit * postern__commit_batch_of(handler);
	}
	if (most > 0) {
		return most;
	}
	/* Without a runner, postern_box_process() claims whole batches. */
	return box->workers > 0 ? box->workers : box->options.batch_size;
}

/* How many runs of the handler may start in a second, and at least one. */
static size_t second_of_rate(const struct postern_policy *policy) {
	if (!postern__rate_is_set(policy)) {
		return SIZE_MAX;
	}
	return (size_t)((uint64_t)policy->rate_count * WINDOW_MS /
					(uint64_t)policy->rate_period_ms) +
		   1;
}

size_t postern__window_estimate(const struct postern_box *box,
		const struct postern__handler *handler) {
	const struct postern__handler_state *state = handler->state;
	size_t parallel = postern__parallel_count(box, handler);
	if (state->run_count == 0) {
		return parallel;
	}
	size_t mean = state->run_mean > 0 ? (size_t)state->run_mean : 1;
	size_t window = parallel * WINDOW_MS * UNIT / mean;
	return window > parallel ? window : parallel;
}

size_t postern__window_count(const struct postern_box *box,
		const struct postern__handler *handler) {
	const struct postern__handler_state *state = handler->state;
	size_t share = postern__share_count(box);
	if (box->store->ops->exclusive) {
		return share;
	}
	/* The latest runs say nothing while the present ones take longer. */
	size_t window = state->behind ? postern__parallel_count(box, handler)
								  : postern__window_estimate(box, handler);
	size_t rate = second_of_rate(&handler->policy);
	/* Beside those that run already. */
	rate = rate < SIZE_MAX ? rate + state->running : rate;
	window = window < rate ? window : rate;
	return window < share ? window : share;
}

void postern__window_record(const struct postern_run *run, int64_t now_ms) {
	struct postern__handler_state *state = run->handler->state;
	state->ended_ms = now_ms;
	int64_t ms = state->ended_ms - run->started_ms;
	int64_t latest = (ms > 0 ? ms : 0) * UNIT;
	state->run_mean =
			state->run_count == 0
					? latest
					: state->run_mean + (latest - state->run_mean) / WEIGHT;
	state->run_count++;
}
