/* SPDX-License-Identifier: MIT */
/*
 * Sharing leases between nodes: what waits in this node's queue goes back to
 * the store while another node is idle.
 *
 * A node leases about a second of work, by the duration of the latest runs. If
 * the runs become slower, or hang, that is too much: the rest waits here while
 * other nodes sleep. So each node records for which handlers it would start a
 * delivery at once, if that changed, and a node with a surplus asks which
 * handlers have such nodes. A lease that is returned counts neither as a start
 * nor as a failure, but as a return: this node leaves the delivery to others
 * for a second, and it is returned at most twice, so that it cannot go back and
 * forth for ever.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/inline.h"
#include "core/rate.h"
#include "core/reason.h"
#include "core/run.h"
#include "core/window.h"

#include "base/fail.h"

#include <stdlib.h>

/* How often the lease of a delivery is returned to idle nodes. */
#define RETURNS_MAX 2
/* Leases of more windows than this are a surplus: durations vary. */
#define WINDOWS_MAX 2
/* A queue whose first run was there at the second to last look is behind. */
#define BEHIND_ROUNDS 2

static bool is_idle(const struct postern_box *box,
		const struct postern__handler *handler) {
	const struct postern__handler_state *state = handler->state;
	bool used_up = postern__rate_left(box, handler) == 0 &&
				   state->rate_at_ms > postern__box_now_ms(box);
	return box->leasing && !postern__why_not_process(box) && !used_up &&
		   !postern__channel_is_inline(handler->channel) &&
		   state->queued == 0 &&
		   state->running < postern__parallel_count(box, handler) &&
		   !postern__why_not_lease(box, handler, 0);
}

/* Whether the first run of the queue waits for longer than a window. What waits
   for the rate, which all nodes share, starts nowhere else either. */
static bool is_waiting(const struct postern_box *box,
		const struct postern__handler *handler) {
	const struct postern__list *first =
			postern__list_first(&handler->state->queue);
	return first &&
		   box->share_round -
						   container_of(first, const struct postern_run, link)
								   ->queued_round >=
				   BEHIND_ROUNDS &&
		   postern__why_not_start(box, handler) != POSTERN__REASON_RATE;
}

/* The window is as small as before the first run until a run has ended since
   and the queue does not wait any more. */
static void update_behind(const struct postern_box *box,
		struct postern__handler *handler) {
	struct postern__handler_state *state = handler->state;
	if (is_waiting(box, handler)) {
		state->behind = state->run_count + 1;
	} else if (state->behind != state->run_count + 1) {
		state->behind = 0;
	}
}

static size_t held_here(const struct postern__handler_state *state) {
	return state->queued + state->running;
}

static bool has_surplus(const struct postern_box *box,
		const struct postern__handler *handler) {
	const struct postern__handler_state *state = handler->state;
	if (state->queued == 0 || !postern__handler_in_place(handler) ||
			postern__channel_is_inline(handler->channel)) {
		return false;
	}
	return is_waiting(box, handler) ||
		   (held_here(state) > WINDOWS_MAX *
									   postern__window_estimate(box, handler) &&
				   postern__why_not_start(box, handler) !=
						   POSTERN__REASON_RATE);
}

/* With the mutex: what this node tells and asks; false: nothing. */
static bool fill_shares(struct postern_box *box,
		const struct postern_generation *generation,
		struct postern_share *shares) {
	bool news = false;
	bool known = box->shared_node == box->node;
	for (size_t i = 0; i < generation->handler_count; i++) {
		struct postern__handler *handler = generation->handlers[i];
		struct postern__handler_state *state = handler->state;
		update_behind(box, handler);
		shares[i] = (struct postern_share){
			.handler = handler->id,
			.idle = is_idle(box, handler),
			.surplus = has_surplus(box, handler),
		};
		bool told = known && state->idle_told;
		news = news || shares[i].surplus || shares[i].idle != told;
		state->idle_told = shares[i].idle;
	}
	box->share_round++;
	box->shared_node = box->node;
	return news;
}

/* With the mutex: return the runs that would start last. This node keeps its
   part of all that the idle nodes and it could run, at most a window. */
static void return_surplus(struct postern_box *box,
		struct postern__handler *handler, size_t idle_nodes) {
	struct postern__handler_state *state = handler->state;
	size_t total = held_here(state);
	size_t part = (total + idle_nodes) / (idle_nodes + 1);
	size_t window = postern__window_estimate(box, handler);
	size_t keep = part < window ? part : window;
	keep = keep > state->running ? keep : state->running;
	struct postern__list *link = state->queue.prev;
	while (total > keep && link != &state->queue) {
		struct postern_run *run = container_of(link, struct postern_run, link);
		link = link->prev;
		if (run->suspicion == POSTERN_NO_SUSPECT &&
				run->returns < RETURNS_MAX) {
			postern__run_share_lease(run);
			total--;
		}
	}
}

/* With the mutex. */
static void return_surpluses(struct postern_box *box,
		const struct postern_generation *generation,
		const struct postern_share *shares) {
	for (size_t i = 0; i < generation->handler_count; i++) {
		struct postern__handler *handler = generation->handlers[i];
		if (shares[i].idle_nodes > 0 && has_surplus(box, handler)) {
			return_surplus(box, handler, shares[i].idle_nodes);
		}
	}
}

static int share(struct postern_box *box,
		const struct postern_generation *generation,
		struct postern_share *shares, struct postern_error *error) {
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t node = box->node;
	bool news = fill_shares(box, generation, shares);
	(void)pthread_mutex_unlock(&box->mutex);
	if (!news) {
		return POSTERN_OK;
	}
	int r = box->store->ops->share(box->store, node, shares,
			generation->handler_count, error);
	(void)pthread_mutex_lock(&box->mutex);
	if (r) {
		box->shared_node = 0;
	} else if (node == box->node) {
		return_surpluses(box, generation, shares);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return r;
}

int postern__share(struct postern_box *box, struct postern_error *error) {
	if (!box->store->ops->share) {
		return POSTERN_OK;
	}
	int r;
	struct postern_generation *generation = postern__generation_acquire(box);
	struct postern_share *shares =
			calloc(generation->handler_count + 1, sizeof(*shares));
	if (shares) {
		r = share(box, generation, shares, error);
	} else {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	free(shares);
	postern__generation_release(generation);
	return r;
}
