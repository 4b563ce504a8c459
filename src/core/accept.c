/* SPDX-License-Identifier: MIT */
/*
 * Accepting: a message is checked, routed, copied and committed before its
 * sender gets a receipt. Single, batch and asynchronous accepts share every
 * step and differ only in who waits for the commit.
 *
 * If a runner is active and has room, the write that creates a delivery also
 * leases it to this node, so that in the steady state nothing is claimed. Room
 * is reserved before the write and released if the message is a duplicate.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/breaker.h"
#include "core/commit.h"
#include "core/content_keys.h"
#include "core/inline.h"
#include "core/quarantine.h"
#include "core/reason.h"
#include "core/run.h"
#include "core/tenure.h"
#include "core/window.h"

#include "base/fail.h"
#include "base/pattern.h"
#include "base/point.h"
#include "base/sized.h"
#include "base/text.h"

#include <postern/sys/memory.h>
#include <stdio.h>
#include <string.h>

/* A batch is cut into pieces of this size, which bounds the copies. */
#define PIECE_COUNT_MAX 1000
/* How often a call without a runner looks whether its runs may start. */
#define UNAIDED_WAIT_MS 20
#define PIECE_BYTES_MAX ((size_t)8 * 1024 * 1024)

bool postern__handler_wants(const struct postern__handler *handler,
		const char *type) {
	if (handler->type_count == 0) {
		return true;
	}
	size_t len = strlen(type);
	for (size_t i = 0; i < handler->type_count; i++) {
		const char *pattern = handler->types[i];
		if (postern__pattern_match(pattern, strlen(pattern), type, len)) {
			return true;
		}
	}
	return false;
}

size_t postern__share_count(const struct postern_box *box) {
	size_t count = box->generation->handler_count;
	size_t share = box->options.run_queue_max / (count ? count : 1);
	return share > box->options.batch_size ? share : box->options.batch_size;
}

size_t postern__share_bytes(const struct postern_box *box) {
	size_t count = box->generation->handler_count;
	return box->options.run_queue_bytes_max / (count ? count : 1);
}

bool postern__handler_has_room(const struct postern_box *box,
		const struct postern__handler *handler, size_t bytes) {
	const struct postern__handler_state *state = handler->state;
	return state->held < postern__window_count(box, handler) &&
		   (state->held == 0 ||
				   state->held_bytes + bytes <= postern__share_bytes(box));
}

static bool may_lease(const struct postern_box *box,
		const struct postern__handler *handler, size_t bytes) {
	if (!box->leasing || postern__why_not_process(box)) {
		return false;
	}
	/* What the store may have of suspects must be claimed first. A probe is
	   claimed: this message may be a copy, which runs nothing. */
	return !postern__breaker_is_open(handler->state) &&
		   !(handler->impl->kind->in_process && box->suspects_waiting) &&
		   !postern__why_not_lease(box, handler, bytes);
}

/* With the mutex: decide which deliveries to lease, and reserve room. */
static void reserve_leases(struct postern_box *box,
		struct postern__content *content) {
	for (size_t i = 0; i < content->run_count; i++) {
		struct postern__handler *handler = content->runs[i].handler;
		struct postern_route *route = &content->accept.routes[i];
		route->lease = may_lease(box, handler, content->bytes);
		if (route->lease) {
			handler->state->held++;
			handler->state->held_bytes += content->bytes;
		}
	}
}

static size_t count_routes(const struct postern__channel *channel,
		const char *type) {
	size_t count = 0;
	for (size_t i = 0; i < channel->handler_count; i++) {
		count += postern__handler_wants(channel->handlers[i], type);
	}
	return count;
}

static void fill_routes(struct postern__content *content) {
	const struct postern__channel *channel = content->channel;
	size_t filled = 0;
	for (size_t i = 0; i < channel->handler_count; i++) {
		struct postern__handler *handler = channel->handlers[i];
		if (!postern__handler_wants(handler, content->message.type)) {
			continue;
		}
		content->runs[filled].handler = handler;
		content->accept.routes[filled] = (struct postern_route){
			.handler = handler->id,
			.retry_poisoned = handler->policy.on_poisoned_duplicate ==
							  POSTERN_POISONED_DUPLICATE_RETRY,
		};
		filled++;
	}
	content->accept.route_count = filled;
}

/* Create the content of a checked message, with one run per route. */
static int create_content(struct postern__channel *channel,
		const struct postern_message *message, size_t routes,
		struct postern__content **out, struct postern_error *error) {
	struct postern__content *content =
			postern__content_create(channel, message, routes);
	if (!content) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	content->is_inline = postern__channel_is_inline(channel);
	fill_routes(content);
	int r = postern__content_keys_make(content, error);
	if (r) {
		postern__content_release(content);
		return r;
	}
	if (routes == 0) {
		content->accept.fate = channel->unrouted == POSTERN_UNROUTED_DROP
									   ? POSTERN_FATE_DROP
									   : POSTERN_FATE_PARK;
	}
	*out = content;
	return POSTERN_OK;
}

/* What is not stored cannot be parked, either. */
static bool rejects_unrouted(const struct postern__channel *channel) {
	return channel->unrouted == POSTERN_UNROUTED_REJECT ||
		   (channel->unrouted == POSTERN_UNROUTED_PARK &&
				   postern__channel_is_inline(channel));
}

/* Check a message and create its content.
   parks: what is unrouted is parked, whatever the channel says. */
static int prepare_content(struct postern__channel *channel,
		const struct postern_message *given, bool parks,
		struct postern__content **out, struct postern_error *error) {
	struct postern_message copy = { 0 };
	char id[POSTERN__GENERATED_ID_LEN + 1];
	const struct postern_message *message = given;
	int r = POSTERN_OK;
	if (given->size != sizeof(copy)) {
		message = &copy;
		r = postern__sized_copy(&copy, sizeof(copy), given,
				"struct postern_message", error);
	}
	if (!r && !message->id &&
			postern__channel_makes_ids(channel, message->type)) {
		postern__generated_id(channel->generation->box, id);
		copy = *message;
		copy.id = id;
		message = &copy;
	}
	if (!r) {
		r = postern__message_check(message, error);
	}
	if (!r) {
		r = postern__message_check_size(channel, message, error);
	}
	if (r) {
		return r;
	}
	const char *type = message->type ? message->type : "";
	size_t routes = count_routes(channel, type);
	if (routes == 0 && !parks && rejects_unrouted(channel)) {
		postern__meter_reject(channel->generation->box, channel);
		return postern__fail(error, POSTERN_E_INVALID,
				"no handler of channel '%s' wants the type '%s'", channel->name,
				type);
	}
	return create_content(channel, message, routes, out, error);
}

int postern__accept_staged(struct postern_box *box,
		struct postern__channel *channel, const struct postern_message *message,
		struct postern__content **out, struct postern_error *error) {
	int r = postern__message_check(message, error);
	if (!r) {
		const char *type = message->type ? message->type : "";
		r = create_content(channel, message, count_routes(channel, type), out,
				error);
	}
	if (!r) {
		(void)pthread_mutex_lock(&box->mutex);
		reserve_leases(box, *out);
		(void)pthread_mutex_unlock(&box->mutex);
	}
	return r;
}

static int fail_no_channel(const struct postern_generation *generation,
		const char *name, struct postern_error *error) {
	const char *names[POSTERN_CHANNEL_COUNT_MAX];
	size_t count = 0;
	for (; count < generation->channel_count; count++) {
		names[count] = generation->channels[count]->name;
	}
	const char *near = postern__closest(name, names, count);
	return postern__fail(error, POSTERN_E_NOTFOUND, "no channel '%s'%s%s%s",
			name, near ? "; did you mean '" : "", near ? near : "",
			near ? "'?" : "");
}

/* Find a channel, whose generation the caller must release. */
static int acquire_channel(struct postern_box *box, const char *name,
		struct postern__channel **out, struct postern_error *error) {
	int r = postern__box_check_started(box, error);
	if (!r) {
		r = postern__check_no_transaction(box, error);
	}
	if (r) {
		return r;
	}
	struct postern_generation *generation = postern__generation_acquire(box);
	struct postern__channel *channel =
			postern__generation_channel(generation, name);
	if (!channel) {
		r = fail_no_channel(generation, name ? name : "", error);
	}
	if (r) {
		postern__generation_release(generation);
	} else {
		*out = channel;
	}
	return r;
}

/* A transactional handler may hold the store's only writer: a write that is
   waited for inside the handler would never start. */
int postern__check_no_transaction(struct postern_box *box,
		struct postern_error *error) {
	if (postern__in_transaction(box)) {
		return postern__fail(error, POSTERN_E_BUSY,
				"this call is not possible inside a transactional handler, "
				"which holds the store's writer");
	}
	return POSTERN_OK;
}

static void queue_accept(struct postern_box *box,
		struct postern__content *content, struct postern__waiter *waiter) {
	if (content->is_inline) {
		postern__inline_queue(box, content, waiter);
		return;
	}
	reserve_leases(box, content);
	postern__list_push_back(&box->accepts, &content->item.link);
	box->accept_count++;
	box->accept_bytes += content->item.bytes;
	content->waiter = waiter;
	if (waiter) {
		content->refs++; /* of the call, besides that of the queue */
		waiter->undecided++;
		if (waiter->queued++ == 0) {
			postern__list_push_back(&box->waiters, &waiter->link);
		}
	}
}

void postern__accept_dequeued(struct postern_box *box,
		struct postern__content *content) {
	box->accept_count--;
	box->accept_bytes -= content->item.bytes;
	if (content->waiter && --content->waiter->queued == 0) {
		postern__list_remove(&content->waiter->link);
	}
}

static const char *receipt_text(const struct postern__content *content,
		int code) {
	switch (code) {
	case POSTERN_E_DUPLICATE: return "this message was accepted before";
	case POSTERN_E_CONFLICT:
		return "a message with this identity and another body was accepted "
			   "before; it is kept";
	default: return content->channel->name;
	}
}

static void emit_accept(struct postern_box *box,
		const struct postern__content *content) {
	int code = content->accept.code;
	enum postern_event_kind kind = code == POSTERN_OK ? POSTERN_EVENT_ACCEPTED
								   : code == POSTERN_E_DUPLICATE
										   ? POSTERN_EVENT_DUPLICATE
										   : POSTERN_EVENT_CONFLICT;
	if (!postern__event_wanted(&box->subscribers, kind)) {
		return;
	}
	struct postern_event event = {
		.kind = kind,
		.seq = content->accept.seq,
		.message_id = content->message.id,
		.channel = content->channel->name,
	};
	postern__emit(box, &event);
}

int postern__closed_error(struct postern_box *box,
		const struct postern__content *content,
		struct postern__closed *closed) {
	int64_t channel = content->accept.channel;
	if (closed->channel == channel) {
		return POSTERN_E_UNAVAILABLE;
	}
	closed->channel = channel;
	struct postern_halt halt = { 0 };
	struct postern_memory *memory = postern_memory_create();
	if (memory) {
		/* Without the reason, if it cannot be read or the channel was opened
		   meanwhile. */
		(void)box->store->ops->read_closed(box->store, channel, memory, &halt,
				NULL);
	}
	int r = postern__fail(&closed->error, POSTERN_E_UNAVAILABLE,
			"channel '%s' is closed%s%s", content->channel->name,
			halt.reason ? ": " : "", halt.reason ? halt.reason : "");
	postern_memory_destroy(memory);
	return r;
}

/* A parked message is accepted; the text says why it does not run. */
static void explain_parked(const struct postern__content *content,
		struct postern_error *error) {
	if (content->accept.fate == POSTERN_FATE_PARK) {
		(void)snprintf(error->text, sizeof(error->text),
				"no handler wants type '%s'", content->message.type);
	}
}

/* Events that are published again with the same business key often differ in a
   time. */
static bool ignores_conflict(const struct postern__content *content) {
	enum postern_on_conflict wanted = content->channel->on_conflict;
	return wanted == POSTERN_CONFLICT_IGNORE ||
		   (wanted == POSTERN_CONFLICT_REJECT && !content->accept.key.is_id);
}

/* Keep a message whose identity another one has. True: the copy that is kept
   has the receipt. */
static bool quarantine_conflict(struct postern_box *box,
		struct postern__content *content) {
	struct postern__content *copy;
	struct postern_receipt *receipt = &content->receipt;
	struct postern_error why = receipt->error;
	if (!content->quarantined || content->is_inline) {
		return false;
	}
	int r = postern__quarantine_content(content->channel, &content->message,
			why.text, &copy, &receipt->error);
	if (r) {
		return false;
	}
	content->quarantined(content->context, &why);
	copy->done = content->done;
	copy->context = content->context;
	(void)pthread_mutex_lock(&box->mutex);
	queue_accept(box, copy, NULL);
	(void)pthread_cond_signal(&box->wake);
	(void)pthread_mutex_unlock(&box->mutex);
	return true;
}

void postern__accept_decide(struct postern_box *box,
		struct postern__content *content, int code,
		const struct postern_error *error) {
	struct postern_receipt *receipt = &content->receipt;
	if (code) {
		content->accept.code = code;
		receipt->error = *error;
		receipt->error.code = code;
	} else {
		emit_accept(box, content);
		int reported = content->accept.code;
		if (reported == POSTERN_E_CONFLICT && ignores_conflict(content)) {
			reported = POSTERN_E_DUPLICATE;
		}
		receipt->seq = content->accept.seq;
		receipt->error.code = reported;
		if (reported) {
			(void)postern__fail(&receipt->error, reported, "%s",
					receipt_text(content, reported));
			if (reported == POSTERN_E_CONFLICT &&
					quarantine_conflict(box, content)) {
				return;
			}
		} else {
			explain_parked(content, &receipt->error);
		}
	}
	postern__point("receipt.before");
	if (content->done) {
		content->done(content->context, receipt);
	}
}

void postern__accept_finish(struct postern_box *box,
		struct postern__content *content) {
	bool written = content->accept.code == POSTERN_OK ||
				   content->accept.code == POSTERN_E_DUPLICATE;
	postern__meter_accept(content);
	for (size_t i = 0; i < content->run_count; i++) {
		struct postern_route *route = &content->accept.routes[i];
		struct postern_run *run = &content->runs[i];
		struct postern__handler *handler = run->handler;
		if (written && route->opened && route->leased) {
			postern__run_init(run, box, content, handler, content->accept.seq,
					route->stored, route->fence, 0, POSTERN_NO_SUSPECT);
			content->message.received_at_ms = content->accept.received_at_ms;
			postern__run_enqueue(run);
			continue;
		}
		if (written && route->opened) {
			postern__claim_hint(box, handler, 0);
		}
		if (route->lease) {
			handler->state->held--;
			handler->state->held_bytes -= content->bytes;
		}
	}
	if (content->waiter && --content->waiter->undecided == 0) {
		(void)pthread_cond_signal(&content->waiter->wake);
	}
	postern__content_release(content);
}

static int init_waiter(struct postern__waiter *waiter,
		struct postern_error *error) {
	*waiter = (struct postern__waiter){ 0 };
	/* On Linux this fails only when memory is exhausted. */
	return postern__wait_init(&waiter->wake)
				   ? postern__fail(error, POSTERN_E_NOMEM, "out of memory")
				   : POSTERN_OK;
}

/* With the mutex: answer what is still queued, and therefore not stored. */
static void give_up_queued(struct postern_box *box,
		struct postern__content *const *contents, size_t count) {
	struct postern_error late;
	(void)postern__fail(&late, POSTERN_E_TIMEOUT,
			"the store's writer was busy for too long");
	for (size_t i = 0; i < count; i++) {
		if (contents[i] && postern__list_linked(&contents[i]->item.link)) {
			postern__list_remove(&contents[i]->item.link);
			postern__accept_dequeued(box, contents[i]);
			postern__accept_decide(box, contents[i], late.code, &late);
			postern__accept_finish(box, contents[i]);
		}
	}
}

/* How long a caller waits at most for a signal. Without a runner nobody else
   starts a run that waits for its place. */
static int64_t longest_wait_ms(const struct postern_box *box,
		const struct postern__waiter *waiter, int64_t left_ms) {
	bool unaided = box->workers == 0 && waiter->queued < waiter->undecided;
	return unaided && left_ms > UNAIDED_WAIT_MS ? UNAIDED_WAIT_MS : left_ms;
}

/* With the mutex: wait until each content (NULL: none) has its receipt, and
   commit if a writer is free. */
static void wait_decided(struct postern_box *box,
		struct postern__waiter *waiter,
		struct postern__content *const *contents, size_t count) {
	int64_t until =
			postern__box_after_ms(box, 2 * box->options.command_timeout_ms);
	while (waiter->undecided > 0) {
		if (!postern__list_empty(&box->answers)) {
			postern__inline_answer(box);
			continue;
		}
		if (waiter->queued > 0 && postern__commit_free(box)) {
			(void)postern__commit_group(box, NULL, NULL);
			continue;
		}
		if (postern__inline_run_here(box, contents, count)) {
			continue;
		}
		int64_t left = until - postern__box_now_ms(box);
		if (left <= 0 && waiter->queued > 0) {
			give_up_queued(box, contents, count);
			continue;
		}
		postern__wait(&waiter->wake, &box->mutex,
				left > 0 ? longest_wait_ms(box, waiter, left) : 100);
	}
}

/* Find the channel of one message, and create its content. */
static int prepare_message(struct postern_box *box, const char *channel_name,
		const struct postern_message *message, struct postern__content **out,
		struct postern_error *error) {
	struct postern__channel *channel;
	int r = acquire_channel(box, channel_name, &channel, error);
	if (!r) {
		struct postern_generation *generation = channel->generation;
		r = prepare_content(channel, message, false, out, error);
		postern__generation_release(generation);
	}
	return r;
}

int postern_box_accept(struct postern_box *box, const char *channel_name,
		const struct postern_message *message, int64_t *seq_out,
		struct postern_error *error) {
	struct postern__content *content;
	struct postern__waiter waiter;
	int r = prepare_message(box, channel_name, message, &content, error);
	if (r) {
		return r;
	}
	r = init_waiter(&waiter, error);
	if (r) {
		postern__content_release(content);
		return r;
	}
	postern__point("accept.before");
	(void)pthread_mutex_lock(&box->mutex);
	queue_accept(box, content, &waiter);
	wait_decided(box, &waiter, &content, 1);
	struct postern_receipt receipt = content->receipt;
	postern__content_release(content);
	(void)pthread_mutex_unlock(&box->mutex);
	(void)pthread_cond_destroy(&waiter.wake);

	postern__point("accept.after");
	r = receipt.error.code;
	bool known = r == POSTERN_OK || r == POSTERN_E_DUPLICATE ||
				 r == POSTERN_E_CONFLICT;
	if (known && seq_out) {
		*seq_out = receipt.seq;
	}
	if (r && error) {
		*error = receipt.error;
	}
	return r;
}

/* An element of a caller's array, whose elements may be shorter or longer than
   in this version; stride 0: each is refused as the first is. */
static const struct postern_message *
message_at(const struct postern_message *messages, size_t stride,
		size_t index) {
	return (const void *)((const char *)messages + index * stride);
}

/* Accept the first messages of [0, count) as one piece of a batch. Returns how
   many messages it handled, at least one. */
static size_t accept_piece(struct postern_box *box,
		struct postern__channel *channel,
		const struct postern_message *messages, size_t stride, size_t count,
		struct postern_receipt *receipts, struct postern__waiter *waiter) {
	struct postern__content *pieces[PIECE_COUNT_MAX];
	size_t taken = 0;
	size_t bytes = 0;
	while (taken < count && taken < PIECE_COUNT_MAX &&
			bytes < PIECE_BYTES_MAX) {
		struct postern_receipt *receipt = &receipts[taken];
		*receipt = (struct postern_receipt){ 0 };
		pieces[taken] = NULL;
		int r = prepare_content(channel, message_at(messages, stride, taken),
				false, &pieces[taken], &receipt->error);
		if (!r) {
			bytes += pieces[taken]->bytes;
		}
		taken++;
	}
	postern__point("accept-batch.before");
	(void)pthread_mutex_lock(&box->mutex);
	for (size_t i = 0; i < taken; i++) {
		if (pieces[i]) {
			queue_accept(box, pieces[i], waiter);
		}
	}
	wait_decided(box, waiter, pieces, taken);
	for (size_t i = 0; i < taken; i++) {
		if (pieces[i]) {
			receipts[i] = pieces[i]->receipt;
			postern__content_release(pieces[i]);
		}
	}
	(void)pthread_mutex_unlock(&box->mutex);
	postern__point("accept-batch.after");
	return taken;
}

int postern_box_accept_batch(struct postern_box *box, const char *channel_name,
		const struct postern_message *messages, size_t count,
		struct postern_receipt *receipts_out, struct postern_error *error) {
	struct postern__channel *channel;
	struct postern__waiter waiter;
	if (count > POSTERN_ACCEPT_BATCH_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a batch has at most %d messages", POSTERN_ACCEPT_BATCH_MAX);
	}
	int r = acquire_channel(box, channel_name, &channel, error);
	if (r) {
		return r;
	}
	r = init_waiter(&waiter, error);
	if (r) {
		postern__generation_release(channel->generation);
		return r;
	}
	size_t stride = count > 0 ? postern__sized_stride(messages) : 0;
	for (size_t done = 0; done < count;) {
		done += accept_piece(box, channel, message_at(messages, stride, done),
				stride, count - done, receipts_out + done, &waiter);
	}
	postern__generation_release(channel->generation);
	(void)pthread_cond_destroy(&waiter.wake);
	return POSTERN_OK;
}

/* Queue a content that nobody waits for; it is released if that fails. */
static int queue_async(struct postern_box *box,
		struct postern__content *content,
		const struct postern__accept_call *call, struct postern_error *error) {
	postern__point("accept-async.before");
	content->done = call->done;
	content->quarantined = call->quarantined;
	content->context = call->context;
	(void)pthread_mutex_lock(&box->mutex);
	bool full = box->accept_count >= POSTERN__ASYNC_COUNT_MAX ||
				box->accept_bytes + content->bytes > POSTERN__ASYNC_BYTES_MAX;
	if (full) {
		postern__content_release(content);
	} else {
		queue_accept(box, content, NULL);
		(void)pthread_cond_signal(&box->wake);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	if (full) {
		return postern__fail(error, POSTERN_E_BUSY,
				"too many messages are waiting to be stored; retry later");
	}
	return POSTERN_OK;
}

int postern_box_accept_async(struct postern_box *box, const char *channel_name,
		const struct postern_message *message, postern_accepted *done,
		void *context, struct postern_error *error) {
	const struct postern__accept_call call = { .done = done,
		.context = context };
	struct postern__content *content;
	/* Refused inside a transaction: this call would not wait, but the message
	   would be accepted even if the transaction is rolled back. */
	int r = prepare_message(box, channel_name, message, &content, error);
	return r ? r : queue_async(box, content, &call, error);
}

/* What cannot be accepted, as the content that is kept instead. */
static int prepare_kept(struct postern__channel *channel,
		const struct postern_message *message,
		const struct postern__accept_call *call, struct postern__content **out,
		struct postern_error *error) {
	bool stores = call->quarantined && !postern__channel_is_inline(channel);
	struct postern_error why;
	int r = prepare_content(channel, message, stores, out, &why);
	if (r == POSTERN_E_INVALID && stores) {
		r = postern__quarantine_content(channel, message, why.text, out, error);
	} else if (!r && stores && (*out)->accept.fate == POSTERN_FATE_PARK &&
			   channel->unrouted == POSTERN_UNROUTED_REJECT) {
		(void)postern__fail(&why, POSTERN_E_INVALID,
				"no handler of channel '%s' wants the type '%s'; parked",
				channel->name, (*out)->message.type);
	} else {
		if (r && error) {
			*error = why;
		}
		return r;
	}
	if (!r) {
		call->quarantined(call->context, &why);
	}
	return r;
}

int postern__accept_async(struct postern_box *box, const char *channel_name,
		const struct postern_message *message,
		const struct postern__accept_call *call, struct postern_error *error) {
	struct postern__content *content;
	struct postern__channel *channel;
	int r = acquire_channel(box, channel_name, &channel, error);
	if (!r) {
		struct postern_generation *generation = channel->generation;
		r = prepare_kept(channel, message, call, &content, error);
		postern__generation_release(generation);
	}
	return r ? r : queue_async(box, content, call, error);
}

int postern__quarantine_async(struct postern_box *box, const char *channel_name,
		const struct postern_message *message, const char *reason,
		const struct postern__accept_call *call, struct postern_error *error) {
	struct postern__content *content;
	struct postern__channel *channel;
	struct postern_error why;
	int r = acquire_channel(box, channel_name, &channel, error);
	if (r) {
		return r;
	}
	struct postern_generation *generation = channel->generation;
	(void)postern__fail(&why, POSTERN_E_INVALID, "%s", reason);
	if (postern__channel_is_inline(channel)) {
		r = POSTERN_E_INVALID;
		if (error) {
			*error = why;
		}
	} else {
		r = postern__quarantine_content(channel, message, reason, &content,
				error);
	}
	postern__generation_release(generation);
	if (!r) {
		call->quarantined(call->context, &why);
	}
	return r ? r : queue_async(box, content, call, error);
}
