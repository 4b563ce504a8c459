/* SPDX-License-Identifier: MIT */
/*
 * Inline delivery: the message has a run for each handler that wants it, in the
 * same queues as deliveries that are stored, so that concurrency, rate, pauses,
 * timeouts and the stop of a runner hold for both. Nothing is leased and
 * nothing is settled in the store: what the runs come to is the answer to the
 * sender.
 *
 *   accept -> runs queued -> guard or handler -> settled -> receipt
 *
 * A guarded run has a worker until it has ended, because the guard may wait for
 * a copy and calls the handler on the thread that called the guard.
 *
 * The sender acknowledges what is done and sends again what is not, so among
 * different results the one that needs another delivery is the answer: what is
 * done then is a duplicate, in a guard.
 */

#include "core/inline.h"

#include "core/breaker.h"
#include "core/commit.h"
#include "core/content_keys.h"
#include "core/reason.h"

#include "base/fail.h"
#include "base/point.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long keys in memory are remembered: a day. */
#define MEMORY_MS_DEFAULT ((int64_t)24 * 3600 * 1000)

/* The answer to a message with several results is the one with the highest
   rank. */
static int rank_of(int code) {
	switch (code) {
	case POSTERN_E_DUPLICATE: return 1;
	case POSTERN_OK: return 2;
	case POSTERN_E_INVALID: return 3;
	case POSTERN_E_FAILED: return 4;
	case POSTERN_E_STALE: return 5;
	case POSTERN_E_BUSY: return 6;
	default: return 7;
	}
}

/* With the mutex. */
static void note_result(struct postern__content *content, int code,
		const char *handler, const char *why) {
	struct postern_error *answer = &content->receipt.error;
	bool first = content->accept.code == POSTERN_E_NOTFOUND;
	if (!first && rank_of(code) <= rank_of(content->accept.code)) {
		return;
	}
	content->accept.code = code;
	if (code) {
		(void)postern__fail(answer, code, "handler '%.60s': %s", handler, why);
	} else {
		*answer = (struct postern_error){ 0 };
	}
}

static int code_of(const struct postern_run *run) {
	const struct postern_settlement *settlement = &run->settlement;
	if (run->inline_code) {
		return run->inline_code;
	}
	switch (settlement->to) {
	case POSTERN_SETTLE_DONE:
	case POSTERN_SETTLE_DISCARDED: return POSTERN_OK;
	case POSTERN_SETTLE_POISONED: return POSTERN_E_INVALID;
	case POSTERN_SETTLE_RETURNED: return POSTERN_E_UNAVAILABLE;
	case POSTERN_SETTLE_PENDING:
	default: break;
	}
	return settlement->failures > run->failures ? POSTERN_E_FAILED
												: POSTERN_E_UNAVAILABLE;
}

static const char *reason_of(const struct postern_run *run, int code) {
	if (run->settlement.error) {
		return run->settlement.error;
	}
	switch (code) {
	case POSTERN_E_DUPLICATE: return "was done before";
	case POSTERN_E_BUSY: return "a copy is running";
	case POSTERN_E_STALE: return "took so long that its lease ended";
	case POSTERN_E_UNAVAILABLE:
		return "does not run now: it is paused or held, or the process stops";
	default: return "failed";
	}
}

void postern__inline_settled(struct postern_run *run) {
	struct postern_box *box = run->box;
	struct postern__content *content = run->content;
	int code = code_of(run);
	note_result(content, code, run->handler->key, reason_of(run, code));
	postern__list_push_back(&box->answers, &run->item.link);
	box->settling++;
	(void)pthread_cond_signal(&box->wake);
	if (content->waiter) {
		(void)pthread_cond_signal(&content->waiter->wake);
	}
}

static void emit_answer(struct postern_box *box,
		const struct postern__content *content) {
	int code = content->receipt.error.code;
	enum postern_event_kind kind =
			code ? POSTERN_EVENT_DUPLICATE : POSTERN_EVENT_ACCEPTED;
	if (code && code != POSTERN_E_DUPLICATE) {
		return; /* the events of its runs have the reason */
	}
	postern__emit(box, &(struct postern_event){
							   .kind = kind,
							   .message_id = content->message.id,
							   .channel = content->channel->name,
					   });
}

/* Without the mutex. */
static void decide(struct postern_box *box, struct postern__content *content) {
	emit_answer(box, content);
	postern__point("inline.answered");
	if (content->done) {
		content->done(content->context, &content->receipt);
	}
}

static void finish_content(struct postern_box *box,
		struct postern__content *content) {
	postern__meter_accept(content);
	box->accept_count--;
	box->accept_bytes -= content->item.bytes;
	if (content->waiter && --content->waiter->undecided == 0) {
		(void)pthread_cond_signal(&content->waiter->wake);
	}
	postern__content_release(content);
}

static struct postern__content *content_of(struct postern__item *item,
		struct postern_run **run_out) {
	*run_out = NULL;
	if (item->kind == POSTERN__ITEM_ACCEPT) {
		return container_of(item, struct postern__content, item);
	}
	*run_out = container_of(item, struct postern_run, item);
	return (*run_out)->content;
}

static void emit_run(struct postern_run *run) {
	if (run->settlement.code == POSTERN_E_STALE) {
		postern__emit_fenced(run);
	} else {
		postern__emit_settled(run);
	}
}

void postern__inline_answer(struct postern_box *box) {
	struct postern__list *link;
	bool any = false;
	while ((link = postern__list_pop_front(&box->answers))) {
		struct postern_run *run;
		struct postern__content *content =
				content_of(container_of(link, struct postern__item, link),
						&run);
		bool last = !run || --content->inline_left == 0;
		(void)pthread_mutex_unlock(&box->mutex);
		if (run) {
			emit_run(run);
		}
		if (last) {
			decide(box, content);
		}
		(void)pthread_mutex_lock(&box->mutex);
		if (run) {
			postern__run_settled(run);
		}
		if (last) {
			finish_content(box, content);
		}
		any = true;
	}
	if (any) {
		(void)pthread_cond_broadcast(&box->committed);
		postern__room_announce(box);
	}
}

/* Handlers that are held are tried by the messages that come. */
static void take_probe(struct postern_box *box,
		struct postern__handler_state *state) {
	if (postern__breaker_is_open(state) &&
			postern__breaker_probe_at_ms(state) <= postern__box_now_ms(box)) {
		postern__breaker_take_probe(box, state);
	}
}

static void queue_run(struct postern_box *box, struct postern__content *content,
		size_t index) {
	struct postern_run *run = &content->runs[index];
	struct postern__handler *handler = run->handler;
	const char *refusal = content->accept.routes[index].refusal;
	postern__run_init(run, box, content, handler, 0, handler->id,
			box->random.next(box->random.context) >> 1, 0, POSTERN_NO_SUSPECT);
	run->guarded =
			postern__handler_is_guarded(handler, content->message.type) &&
			(handler->impl->transactional ||
					postern__content_has_guard_key(content, index));
	handler->state->held++;
	handler->state->held_bytes += content->bytes;
	if (refusal) {
		postern__run_settle_to(run, POSTERN_SETTLE_POISONED, 1, 0, "no key",
				refusal);
		return;
	}
	take_probe(box, handler->state);
	postern__run_enqueue(run);
}

void postern__inline_queue(struct postern_box *box,
		struct postern__content *content, struct postern__waiter *waiter) {
	content->accept.code = POSTERN_E_NOTFOUND; /* no result yet */
	content->message.received_at_ms = box->clock.wall_ms(box->clock.context);
	content->inline_left = content->run_count;
	content->waiter = waiter;
	box->accept_count++;
	box->accept_bytes += content->item.bytes;
	if (waiter) {
		content->refs++;
		waiter->undecided++;
	}
	if (content->run_count == 0) {
		content->accept.code = POSTERN_OK; /* unrouted: drop */
		postern__list_push_back(&box->answers, &content->item.link);
		(void)pthread_cond_signal(&box->wake);
		return;
	}
	content->refs++; /* a run may end while the others are queued */
	for (size_t i = 0; i < content->run_count; i++) {
		queue_run(box, content, i);
	}
	postern__content_release(content);
}

/* Without the mutex: the function that is guarded. */
struct guarded_call {
	struct postern_run *run;
	pthread_cond_t finish_wake;
};

/* The time that the run waited for a copy is not its own. False: it is to end
   before it has begun. */
static bool begin_call(struct guarded_call *call, uint64_t fence) {
	struct postern_run *run = call->run;
	struct postern_box *box = run->box;
	const struct postern_policy *policy = &run->handler->policy;
	(void)pthread_mutex_lock(&box->mutex);
	bool goes = !run->stopping && run->state == POSTERN__RUN_RUNNING;
	run->started_ms = postern__box_now_ms(box);
	run->lease_end_ms = postern__box_after_ms(box, policy->lease_ms);
	run->delivery.fence = fence;
	run->finish_wake = &call->finish_wake;
	if (policy->timeout_ms > 0) {
		run->deadline_ms = postern__box_after_ms(box, policy->timeout_ms);
		run->delivery.deadline_ms =
				box->clock.wall_ms(box->clock.context) + policy->timeout_ms;
	}
	postern__run_watch(run);
	(void)pthread_mutex_unlock(&box->mutex);
	return goes;
}

static void end_call(struct guarded_call *call,
		struct postern_outcome *outcome) {
	struct postern_run *run = call->run;
	struct postern_box *box = run->box;
	(void)pthread_mutex_lock(&box->mutex);
	while (!run->finished && !run->handler->impl->transactional) {
		postern__wait(&call->finish_wake, &box->mutex, -1);
	}
	run->finish_wake = NULL;
	run->timed_out = postern__run_timed_out(run, outcome);
	run->deadline_ms = POSTERN__NEVER;
	(void)pthread_mutex_unlock(&box->mutex);
}

static void call_handler(void *context, uint64_t fence, void *transaction,
		uint64_t epoch, struct postern_outcome *outcome) {
	struct guarded_call *call = context;
	struct postern_run *run = call->run;
	struct postern_handler *impl = run->handler->impl;
	if (!begin_call(call, fence)) {
		postern_outcome_set(outcome, POSTERN_SNOOZE, 0, NULL);
		return;
	}
	postern__emit_started(run);
	run->delivery.transaction = transaction;
	run->epoch = epoch;
	postern_outcome_set(outcome, POSTERN_RETRY, 0,
			"the handler returned without finishing");
	run->outcome_out = outcome;
	postern__point("inline.before");
	const struct postern_box *before =
			postern__transaction_enter(transaction ? run->box : NULL);
	impl->ops->start(impl, run);
	(void)postern__transaction_enter(before);
	end_call(call, outcome);
	postern__point("inline.after");
	run->outcome_out = NULL;
	run->delivery.transaction = NULL;
}

static void settle_as(struct postern_run *run, enum postern_settle_to to,
		int code, const char *outcome, const char *reason) {
	run->inline_code = code;
	postern__run_settle_to(run, to, 0, 0, outcome, reason);
}

static void settle_failure(struct postern_run *run, const char *name,
		const char *reason) {
	struct postern_outcome failure;
	postern_outcome_set(&failure, POSTERN_RETRY, 0, reason);
	postern__run_settle(run, &failure, name);
}

/* With the mutex. */
static void settle_guarded(struct postern_run *run, int r,
		const struct postern__guarded_run *request,
		const struct postern_error *error) {
	switch (r) {
	case POSTERN_OK:
	case POSTERN_E_FAILED:
		postern__run_settle(run, &request->outcome,
				run->timed_out ? "timeout" : NULL);
		return;
	case POSTERN_E_DUPLICATE:
		settle_as(run, POSTERN_SETTLE_DISCARDED, r, "duplicate", NULL);
		return;
	case POSTERN_E_BUSY:
		settle_as(run, POSTERN_SETTLE_PENDING, r, "busy", NULL);
		return;
	case POSTERN_E_STALE:
		settle_as(run, POSTERN_SETTLE_PENDING, r, "lost", NULL);
		run->settlement.code = r;
		return;
	case POSTERN_E_TIMEOUT:
		if (request->called) {
			settle_failure(run, "timeout", error->text);
			return;
		}
		break;
	case POSTERN_E_INVALID: settle_failure(run, NULL, error->text); return;
	default: break;
	}
	settle_as(run, POSTERN_SETTLE_PENDING, POSTERN_E_UNAVAILABLE, "snooze",
			error->text);
}

/* The names of the marker: the handler's keys, or the one that is shared. */
static size_t list_names(const struct postern__handler *handler,
		const char *names[POSTERN_MARK_NAME_COUNT_MAX]) {
	size_t count = 1;
	names[0] =
			handler->channel->marker ? handler->channel->marker : handler->key;
	for (size_t i = 0;
			!handler->channel->marker && i < handler->legacy_key_count &&
			count < POSTERN_MARK_NAME_COUNT_MAX;
			i++) {
		names[count++] = handler->legacy_keys[i];
	}
	return count;
}

/* The keys of a handler that remembers them in memory; NULL: in the store, or
   out of memory. */
static struct postern__recent *recent_of(struct postern_box *box,
		const struct postern__handler *handler) {
	struct postern__handler_state *state = handler->state;
	if (handler->dedupe != POSTERN_DEDUPE_MEMORY) {
		return NULL;
	}
	(void)pthread_mutex_lock(&box->mutex);
	if (!state->recent) {
		state->recent = postern__recent_create(&box->random);
	}
	struct postern__recent *recent = state->recent;
	(void)pthread_mutex_unlock(&box->mutex);
	return recent;
}

static void report_forgotten(struct postern_box *box,
		const struct postern__handler *handler) {
	postern__emit(box, &(struct postern_event){
							   .kind = POSTERN_EVENT_DEDUPE_FULL,
							   .channel = handler->channel->name,
							   .handler = handler->key,
					   });
}

static int run_guarded(struct guarded_call *call,
		struct postern__guarded_run *request, struct postern_error *error) {
	struct postern_run *run = call->run;
	const struct postern__handler *handler = run->handler;
	const char *names[POSTERN_MARK_NAME_COUNT_MAX];
	char *value;
	size_t len;
	struct postern__recent *recent = recent_of(run->box, handler);
	if ((!recent && handler->dedupe == POSTERN_DEDUPE_MEMORY) ||
			!postern__content_guard_key(run->content,
					(size_t)(run - run->content->runs), &value, &len)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	*request = (struct postern__guarded_run){
		.mark = {
			.handlers = names,
			.handler_count = list_names(handler, names),
			.value = value,
			.value_len = len,
		},
		.transactional = handler->impl->transactional,
		.wait_ms = handler->channel->guard_wait_ms,
		.timeout_ms = handler->policy.timeout_ms,
		.recent = recent,
		.recent_limits = {
			.count_max = handler->dedupe_count_max,
			.keep_ms = handler->retention_dedupe_ms
							   ? handler->retention_dedupe_ms
							   : MEMORY_MS_DEFAULT,
		},
		.context = call,
		.run = call_handler,
	};
	int r = run->box->guarding->run(run->box->guard, request, error);
	free(value);
	if (request->forgot) {
		report_forgotten(run->box, handler);
	}
	return r;
}

void postern__inline_run_guarded(struct postern_run *run) {
	struct postern_box *box = run->box;
	struct guarded_call call = { .run = run };
	struct postern__guarded_run request = { 0 };
	struct postern_error error = { 0 };
	bool transactional = run->handler->impl->transactional;
	int r = postern__wait_init(&call.finish_wake)
					? postern__fail(&error, POSTERN_E_NOMEM, "out of memory")
					: run_guarded(&call, &request, &error);
	postern__point("inline.guarded");
	(void)pthread_cond_destroy(&call.finish_wake);
	(void)pthread_mutex_lock(&box->mutex);
	box->transacting -= transactional;
	/* It may have been abandoned at the end of its lease. */
	bool ours = run->state == POSTERN__RUN_RUNNING;
	postern__run_detach(run);
	if (ours) {
		settle_guarded(run, r, &request, &error);
	}
	postern__inline_answer(box);
	(void)pthread_mutex_unlock(&box->mutex);
}

/* With the mutex: a queued run of these contents that may start. */
static struct postern_run *find_startable(struct postern_box *box,
		struct postern__content *const *contents, size_t count) {
	for (size_t i = 0; i < count; i++) {
		struct postern__content *content = contents[i];
		for (size_t j = 0;
				content && content->is_inline && j < content->run_count; j++) {
			struct postern_run *run = &content->runs[j];
			if (run->state == POSTERN__RUN_QUEUED &&
					!postern__why_not_start(box, run->handler)) {
				return run;
			}
		}
	}
	return NULL;
}

bool postern__inline_run_here(struct postern_box *box,
		struct postern__content *const *contents, size_t count) {
	struct postern_run *run = box->workers > 0 || box->draining
									  ? NULL
									  : find_startable(box, contents, count);
	if (!run) {
		return false;
	}
	struct postern__handler *handler = run->handler;
	atomic_fetch_add(&handler->generation->refs, 1);
	postern__run_start(run);
	box->transacting += handler->impl->transactional;
	(void)pthread_mutex_unlock(&box->mutex);
	postern__run_execute(box, handler, &run, 1);
	(void)pthread_mutex_lock(&box->mutex);
	return true;
}
