/* SPDX-License-Identifier: MIT */
/*
 * Cancelling: an operator ends a run. The node that has the run marks it and
 * makes its implementation end it; from that moment its outcome is ignored, and
 * when it ends it is settled as "cancelled". So a run that ends at the same
 * time has one outcome: whoever acquires the mutex first decides.
 *
 * A run of this box is marked directly. One of another node is requested in the
 * store; nodes read the requests for their leases every second while they have
 * any, and when they are notified. A request names the fence of a lease and has
 * no effect on any other. A delivery that waits in a node's queue has no run to
 * cancel: its node withdraws the request, which is the answer.
 */

#include "core/cancel.h"

#include "base/fail.h"
#include "base/utf8.h"
#include "core/accept.h"
#include "core/maintenance.h"
#include "core/pull.h"
#include "core/run.h"
#include "core/shown.h"
#include "core/tenure.h"

#include <inttypes.h>
#include <postern/sys/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a call waits for the end of the run, in steps that grow. By the
   number of steps and not by the clock of the box, which may stand still. */
#define WAIT_STEPS 155
#define WAIT_STEP_MS 100
#define QUICK_STEPS 10
#define QUICK_STEP_MS 10

enum found { FOUND_NONE, FOUND_QUEUED, FOUND_RUN };

static bool is_wanted(const struct postern_run *run,
		const struct postern_cancel_request *request) {
	return run->delivery.seq == request->seq &&
		   run->stored_handler == request->handler &&
		   run->delivery.fence == request->fence;
}

static struct postern_run *find_run(const struct postern__list *list,
		const struct postern_cancel_request *request) {
	postern__list_each(link, list) {
		struct postern_run *run = container_of(link, struct postern_run, link);
		if (is_wanted(run, request)) {
			return run;
		}
	}
	return NULL;
}

static bool is_queued(const struct postern_box *box,
		const struct postern_cancel_request *request) {
	postern__list_each(ready, &box->ready) {
		const struct postern__handler_state *state =
				container_of(ready, struct postern__handler_state, ready);
		if (find_run(&state->queue, request)) {
			return true;
		}
	}
	return false;
}

/* Without the mutex. */
static enum found cancel_here(struct postern_box *box,
		const struct postern_cancel_request *request) {
	(void)pthread_mutex_lock(&box->mutex);
	struct postern_run *run = find_run(&box->running, request);
	if (!run) {
		bool queued = is_queued(box, request);
		(void)pthread_mutex_unlock(&box->mutex);
		return queued ? FOUND_QUEUED : FOUND_NONE;
	}
	bool first = !run->cancel;
	bool in_unit = run->in_unit;
	if (first) {
		run->cancel_uncounted = request->uncounted;
		run->cancel_reason = request->reason ? strdup(request->reason) : NULL;
		run->cancel = true;
	}
	run->content->refs++;
	(void)pthread_mutex_unlock(&box->mutex);
	if (first) {
		struct postern_handler *impl = run->handler->impl;
		if (in_unit) {
			box->store->ops->interrupt(box->store, run);
		}
		impl->ops->cancel(impl, run, POSTERN_CANCEL_TIMEOUT);
	}
	(void)pthread_mutex_lock(&box->mutex);
	postern__content_release(run->content);
	(void)pthread_mutex_unlock(&box->mutex);
	return FOUND_RUN;
}

void postern__run_settle_cancelled(struct postern_run *run) {
	const struct postern_policy *policy = &run->handler->policy;
	char text[POSTERN_REASON_LEN_MAX + 1];
	(void)snprintf(text, sizeof(text), "cancelled by an operator%s%s",
			run->cancel_reason ? ": " : "",
			run->cancel_reason ? run->cancel_reason : "");
	uint32_t failures = run->failures + (run->cancel_uncounted ? 0 : 1);
	bool last = !run->cancel_uncounted && failures >= policy->max_attempts;
	postern__run_settle_to(run,
			last ? POSTERN_SETTLE_POISONED : POSTERN_SETTLE_PENDING, failures,
			last ? 0 : postern__run_backoff_ms(run), "cancelled", text);
}

bool postern_delivery_cancelled(const struct postern_delivery *delivery) {
	if (!delivery) {
		return false;
	}
	const struct postern_run *run =
			container_of(delivery, const struct postern_run, delivery);
	struct postern_box *box = run->box;
	(void)pthread_mutex_lock(&box->mutex);
	int64_t now = postern__box_now_ms(box);
	bool over = run->cancel || run->stopping || now >= run->deadline_ms ||
				now >= run->lease_end_ms || run->state != POSTERN__RUN_RUNNING;
	(void)pthread_mutex_unlock(&box->mutex);
	return over;
}

int postern__cancels_poll(struct postern_box *box,
		struct postern_error *error) {
	if (!box->store->ops->read_cancels) {
		return POSTERN_OK;
	}
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t node = box->node;
	bool any = box->running_count > 0 || !postern__list_empty(&box->ready);
	(void)pthread_mutex_unlock(&box->mutex);
	if (!any) {
		return POSTERN_OK;
	}
	struct postern_cancel_request *requests = NULL;
	size_t count = 0;
	struct postern_memory *memory = postern_memory_create();
	int r = memory ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	if (!r) {
		r = box->store->ops->read_cancels(box->store, node, memory, &requests,
				&count, error);
	}
	for (size_t i = 0; !r && i < count; i++) {
		if (cancel_here(box, &requests[i]) == FOUND_QUEUED) {
			bool leased;
			r = box->store->ops->request_cancel(box->store, &requests[i], true,
					&leased, error);
		}
	}
	postern_memory_destroy(memory);
	return r;
}

/* The delivery of the message to this handler, as it is now: the leased one if
   a handler and its alias have one each. False in found_out: there is none. */
static int find_row(struct postern_box *box, const struct postern_edit *edit,
		struct postern_memory *memory, struct postern_row *out,
		struct postern_error *error) {
	struct postern_filter filter = {
		.size = sizeof(filter),
		.seq = edit->seq > 0 ? edit->seq : -1,
		.handler = edit->handler,
		.limit = POSTERN_LIST_LIMIT_DEFAULT,
	};
	struct postern_query query = { .filter = &filter };
	struct postern_page page = { 0 };
	int r = box->store->ops->list(box->store, &query, memory, &page, error);
	if (r) {
		return r;
	}
	if (page.count == 0) {
		return postern__fail(error, POSTERN_E_NOTFOUND,
				"message %" PRId64 " has no delivery to '%s'", edit->seq,
				edit->handler);
	}
	*out = page.rows[0];
	for (size_t i = 1; i < page.count; i++) {
		if (page.rows[i].state == POSTERN_STATE_LEASED) {
			*out = page.rows[i];
		}
	}
	return POSTERN_OK;
}

static int fail_not_running(const struct postern_edit *edit, const char *state,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_STALE,
			"message %" PRId64 ", handler '%s': not cancelled, because the "
			"delivery is %s and does not run",
			edit->seq, edit->handler, state);
}

/* How the lease of the request ended. */
static int read_end(struct postern_box *box, const struct postern_edit *edit,
		const struct postern_cancel_request *request,
		struct postern_memory *memory, struct postern_error *error) {
	struct postern_detail detail = { 0 };
	int r = box->store->ops->get(box->store, request->seq, memory, &detail,
			error);
	if (r && r != POSTERN_E_NOTFOUND) {
		return r;
	}
	const char *state = "done";
	for (size_t i = 0; !r && i < detail.delivery_count; i++) {
		const struct postern_delivery_detail *delivery = &detail.deliveries[i];
		if (delivery->row.handler_id != request->handler) {
			continue;
		}
		state = postern_state_name(delivery->row.state);
		for (size_t n = 0; n < delivery->attempt_count; n++) {
			if (delivery->attempts[n].fence == request->fence &&
					strcmp(delivery->attempts[n].outcome, "cancelled") == 0) {
				return POSTERN_OK;
			}
		}
	}
	return fail_not_running(edit, state, error);
}

/* Whether the request to another node is still in the store. */
static int is_requested(struct postern_box *box,
		const struct postern_cancel_request *request, uint64_t node,
		struct postern_memory *memory, bool *out, struct postern_error *error) {
	struct postern_cancel_request *requests = NULL;
	size_t count = 0;
	int r = box->store->ops->read_cancels(box->store, node, memory, &requests,
			&count, error);
	*out = false;
	for (size_t i = 0; !r && i < count; i++) {
		*out = *out || (requests[i].seq == request->seq &&
							   requests[i].handler == request->handler &&
							   requests[i].fence == request->fence);
	}
	return r;
}

static void wait_step(struct postern_box *box, int step) {
	(void)pthread_mutex_lock(&box->mutex);
	bool writer = box->leasing || box->processors > 0;
	postern__wait(&box->committed, &box->mutex,
			step < QUICK_STEPS ? QUICK_STEP_MS : WAIT_STEP_MS);
	(void)pthread_mutex_unlock(&box->mutex);
	if (!writer && box->started) {
		/* Nobody else writes the settlement. */
		(void)postern_box_commit(box, NULL, NULL);
	}
}

/* Look once: POSTERN_OK with *over_out, if the run ended as cancelled; an error
   if it did not; else wait. node: that the request was made to, which withdraws
   it if the run has not started; 0: none. */
static int look(struct postern_box *box, const struct postern_edit *edit,
		const struct postern_cancel_request *request, uint64_t node,
		bool *over_out, struct postern_error *error) {
	struct postern_row row = { 0 };
	struct postern_memory *memory = postern_memory_create();
	bool kept = true;
	int r = memory ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	if (!r && node) {
		/* Before the row: the end of the lease ends the request, too. */
		r = is_requested(box, request, node, memory, &kept, error);
	}
	if (!r) {
		r = find_row(box, edit, memory, &row, error);
	}
	bool leased = !r && row.state == POSTERN_STATE_LEASED &&
				  row.handler_id == request->handler &&
				  row.fence == request->fence;
	*over_out = !leased;
	if (!leased && (!r || r == POSTERN_E_NOTFOUND)) {
		r = read_end(box, edit, request, memory, error);
	} else if (!r && !kept) {
		r = fail_not_running(edit, "queued", error);
	}
	postern_memory_destroy(memory);
	return r;
}

/* Wait until the lease has ended, or its node has answered that the run has not
   started. */
static int wait_for_end(struct postern_box *box,
		const struct postern_edit *edit,
		const struct postern_cancel_request *request, uint64_t node,
		struct postern_error *error) {
	for (int step = 0; step < WAIT_STEPS; step++) {
		bool over = false;
		int r = look(box, edit, request, node, &over, error);
		if (r || over) {
			return r;
		}
		wait_step(box, step);
	}
	return postern__fail(error, POSTERN_E_TIMEOUT,
			"message %" PRId64 ", handler '%s': the run was asked to end and "
			"has not ended yet; it is cancelled when it does",
			edit->seq, edit->handler);
}

/* Mark the run, or request that of its node. *requested_out: of another one. */
static int ask(struct postern_box *box, const struct postern_edit *edit,
		const struct postern_row *row,
		const struct postern_cancel_request *request, bool *requested_out,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&box->mutex);
	bool own = box->started && row->node == box->node;
	(void)pthread_mutex_unlock(&box->mutex);
	*requested_out = false;
	if (own) {
		/* If it is not found, its settlement is being written. */
		return cancel_here(box, request) == FOUND_QUEUED
					   ? fail_not_running(edit, "queued", error)
					   : POSTERN_OK;
	}
	if (!box->store->ops->request_cancel) {
		return fail_not_running(edit, "leased by a process that has ended",
				error);
	}
	bool leased = false;
	int r = box->store->ops->request_cancel(box->store, request, false, &leased,
			error);
	*requested_out = !r && leased;
	return r;
}

int postern__cancel(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error) {
	if (box->options.read_only) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the box is open for reading only");
	}
	if (edit->filter || edit->seq <= 0 || !edit->handler ||
			edit->handler[0] == '\0') {
		return postern__fail(error, POSTERN_E_INVALID,
				"a cancel names one delivery, by seq and handler");
	}
	struct postern_row row = { 0 };
	struct postern_memory *memory = postern_memory_create();
	int r = memory ? find_row(box, edit, memory, &row, error)
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	if (!r && row.state != POSTERN_STATE_LEASED) {
		r = fail_not_running(edit, postern_state_name(row.state), error);
	}
	const struct postern_cancel_request request = {
		.seq = row.seq,
		.handler = row.handler_id,
		.fence = row.fence,
		.uncounted = edit->uncounted,
		.reason = edit->reason,
	};
	if (r || edit->dry_run) {
		edit->count = !r;
		goto out;
	}
	if (row.node == POSTERN_NODE_PULL) {
		r = postern__pull_cancel(box, edit, &row, error);
		edit->count = !r;
		goto out;
	}
	bool requested = false;
	r = ask(box, edit, &row, &request, &requested, error);
	if (!r) {
		r = wait_for_end(box, edit, &request, requested ? row.node : 0, error);
	}
	if (requested && r != POSTERN_E_TIMEOUT) {
		/* The lease has ended, so the request has no effect any more; if this
		   fails, the next read of requests removes it. */
		bool leased;
		(void)box->store->ops->request_cancel(box->store, &request, true,
				&leased, NULL);
	}
	edit->count = !r;
out:
	postern_memory_destroy(memory);
	return r;
}
