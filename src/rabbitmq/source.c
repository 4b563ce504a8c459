/* SPDX-License-Identifier: MIT */

/*
 * The source: one thread owns the connection, reads deliveries, passes them on
 * and acknowledges them.
 *
 * A position counts the deliveries of all connections, from 1, and is the tag
 * of the sink. `base` is the last position of the former connections: positions
 * up to it have nothing to be acknowledged any more, whatever is still said
 * about them, and those above it minus `base` are the delivery tags of the
 * present channel.
 *
 * A delivery is kept until its result is known. If the store cannot take it, it
 * stays here and is passed on again later: to give it back to the broker would
 * count as a delivery there, and a quorum queue dead-letters after some of
 * them. Acknowledged is only a prefix, by the last tag of it, with `multiple`;
 * what was rejected within it was settled before.
 */

#include <assert.h>
#include <poll.h>
#include <postern/source.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/fail.h"
#include "rabbitmq/arrival.h"
#include "rabbitmq/rabbitmq.h"
#include "rabbitmq/retry.h"

#define IDLE_MS 5000
/* How often the broker is asked for the length of the queue. */
#define LAG_MS 1000
#define DELAY_MS_FIRST 1000
/* Frames that are read before completions are looked at again. */
#define READ_COUNT_MAX 512
/* More than this is not kept for the next delivery. */
#define KEPT_BYTES_MAX 16384

enum slot_state {
	SLOT_FREE,
	SLOT_ARRIVING, /* its body is not complete */
	SLOT_READY,    /* to be passed on */
	SLOT_SENT,     /* the sink has it */
	SLOT_FAILED,   /* to be copied to the retry queue */
	SLOT_DONE,     /* to be acknowledged */
	SLOT_GONE      /* was rejected: nothing to be acknowledged */
};

/* A delivery. */
struct slot {
	enum slot_state state;
	struct postern__rabbitmq_delivery delivery;
	size_t bytes;
};

struct rabbit {
	struct postern_source base_source;
	struct postern__rabbitmq_peer peer;
	struct postern__rabbitmq_topology topology;
	char *source; /* may be NULL */
	uint32_t prefetch;
	size_t bytes_max;
	enum postern__rabbitmq_unacceptable on_unacceptable;
	enum postern__rabbitmq_failed on_failed;
	uint32_t max_retries;
	struct postern__rabbitmq_reasons reasons;

	struct postern_sink *sink;
	struct postern_completions *completions;
	struct postern_prefix *prefix;
	pthread_t thread;
	atomic_bool stopping;
	atomic_bool ending;
	atomic_size_t settled; /* with the broker */

	/* Used by the thread alone. */
	struct postern__rabbitmq_link link;
	struct slot *slots; /* of position p at p % prefetch */
	uint64_t base;
	uint64_t received; /* deliveries of this connection */
	uint64_t next_ack; /* the first position that is not acknowledged */
	uint64_t cursor;   /* the first that was not passed on */
	size_t in_flight;  /* of all connections */
	size_t bytes;
	struct postern__rabbitmq_arrival arriving;
	struct postern__rabbitmq_retry retry;
	size_t failed;  /* slots with this state */
	bool cancelled; /* the consumer, because of the stop */
	unsigned failures;
	size_t host;
	int64_t connect_at_ms;
	int64_t retry_at_ms;
	int64_t lag_at_ms;
};

static const struct postern_source_ops rabbit_ops;

static struct rabbit *from_base(struct postern_source *source) {
	assert(source->ops == &rabbit_ops);
	return container_of(source, struct rabbit, base_source);
}

static struct slot *slot_at(struct rabbit *self, uint64_t position) {
	return &self->slots[position % self->prefetch];
}

static void empty_slot(struct rabbit *self, struct slot *slot) {
	self->bytes -= slot->bytes;
	slot->bytes = 0;
	if (slot->delivery.arena.bytes_held > KEPT_BYTES_MAX) {
		postern__arena_finish(&slot->delivery.arena);
	} else {
		postern__arena_reset(&slot->delivery.arena);
	}
}

/* The connection is of no use any more. why: NULL if that is no error. */
static void disconnect(struct rabbit *self, const char *why, bool politely) {
	int64_t retry_ms = postern_sink_retry_delay_ms(self->sink);
	postern_sink_disconnected(self->sink, why);
	postern_sink_set_lag(self->sink, -1);
	postern_sink_set_dead_letters(self->sink, -1);
	postern__rabbitmq_link_close(&self->link, politely);
	for (uint32_t i = 0; i < self->prefetch; i++) {
		if (self->slots[i].state != SLOT_FREE) {
			empty_slot(self, &self->slots[i]);
			self->slots[i].state = SLOT_FREE;
		}
	}
	self->arriving = (struct postern__rabbitmq_arrival){ 0 };
	self->retry.moving = 0;
	self->failed = 0;
	self->base += self->received;
	self->received = 0;
	self->next_ack = self->base + 1;
	self->cursor = self->next_ack;
	postern_prefix_reset(self->prefix, self->next_ack);
	self->connect_at_ms =
			postern__rabbitmq_now_ms() +
			postern__rabbitmq_delay_ms(self->failures++,
					retry_ms < DELAY_MS_FIRST ? retry_ms : DELAY_MS_FIRST);
	self->host = (self->host + 1) % self->peer.address.host_count;
}

static bool is_connected(const struct rabbit *self) {
	return self->link.state != NULL;
}

/* Whether a call that sends has succeeded; if not, the connection is lost. */
static bool sent(struct rabbit *self, int status) {
	struct postern_error error;
	int r = postern__rabbitmq_link_sent(&self->link, status, &error);
	if (r) {
		disconnect(self, error.text, false);
	}
	return !r;
}

static int consume(struct rabbit *self, struct postern_error *error) {
	int r = self->topology.declare ? postern__rabbitmq_declare(&self->link,
											 &self->topology, error)
								   : POSTERN_OK;
	if (!r) {
		r = postern__rabbitmq_retry_begin(&self->retry, &self->link, error);
	}
	return r ? r
			 : postern__rabbitmq_consume(&self->link, self->topology.queue,
					   self->prefetch, error);
}

static void connect_broker(struct rabbit *self) {
	struct postern_error error;
	/* What cannot be stored is not consumed: the broker takes it back after a
	   while, and counts that as a delivery. */
	if (!postern_sink_store_works(self->sink)) {
		self->connect_at_ms = postern__rabbitmq_now_ms() +
							  postern_sink_retry_delay_ms(self->sink);
		return;
	}
	int r = postern__rabbitmq_link_open(&self->link, &self->peer, self->host,
			&error);
	if (!r) {
		r = consume(self, &error);
	}
	if (r) {
		disconnect(self, error.text, false);
		return;
	}
	self->failures = 0;
	self->cancelled = false;
	self->lag_at_ms = 0;
	postern_sink_connected(self->sink);
}

/* Acknowledge the prefix that is done. */
static void acknowledge(struct rabbit *self) {
	uint64_t end = postern_prefix_first(self->prefix);
	uint64_t last = 0;
	size_t count = (size_t)(end - self->next_ack);
	for (uint64_t i = self->next_ack; i < end; i++) {
		struct slot *slot = slot_at(self, i);
		last = slot->state == SLOT_DONE ? i : last;
		slot->state = SLOT_FREE;
	}
	self->next_ack = end;
	/* The last tag must be one that is not settled yet. */
	if (last > 0) {
		if (!sent(self, amqp_basic_ack(self->link.state, RABBITMQ_CHANNEL,
								last - self->base, 1))) {
			return;
		}
	}
	self->settled += count;
}

static void settle(struct rabbit *self, uint64_t position,
		enum slot_state state) {
	struct slot *slot = slot_at(self, position);
	empty_slot(self, slot);
	self->failed -= slot->state == SLOT_FAILED;
	slot->state = state;
	(void)postern_prefix_done(self->prefix, position);
}

/* A message that will never be accepted, and is not quarantined. */
static void refuse(struct rabbit *self, uint64_t position) {
	if (self->on_unacceptable == RABBITMQ_UNACCEPTABLE_DROP) {
		settle(self, position, SLOT_DONE);
		return;
	}
	if (sent(self, amqp_basic_reject(self->link.state, RABBITMQ_CHANNEL,
						   position - self->base, 0))) {
		settle(self, position, SLOT_GONE);
	}
}

/* To be passed on again. */
static void again(struct rabbit *self, uint64_t position) {
	slot_at(self, position)->state = SLOT_READY;
	self->cursor = position < self->cursor ? position : self->cursor;
}

static void retry_later(struct rabbit *self) {
	self->retry_at_ms = postern__rabbitmq_now_ms() +
						postern_sink_retry_delay_ms(self->sink);
}

/* It goes to the dead-letter exchange when the fault event is published. */
static void give_up(struct rabbit *self, uint64_t position, const char *why) {
	struct slot *slot = slot_at(self, position);
	slot->delivery.given_up = true;
	slot->delivery.why =
			postern__arena_strdup(&slot->delivery.arena, why ? why : "");
	again(self, position);
}

/* A handler has failed. */
static void fail_delivery(struct rabbit *self, uint64_t position,
		const char *why) {
	struct slot *slot = slot_at(self, position);
	char text[POSTERN_ERROR_TEXT_MAX];
	if (self->on_failed == RABBITMQ_FAILED_HOLD) {
		again(self, position);
		retry_later(self);
	} else if (self->on_failed == RABBITMQ_FAILED_RETRY &&
			   slot->delivery.retries < self->max_retries) {
		slot->state = SLOT_FAILED;
		self->failed++;
	} else {
		(void)snprintf(text, sizeof text, "given up after %u attempts: %s",
				slot->delivery.retries + 1, why ? why : "");
		postern_sink_reject(self->sink, position, text);
		give_up(self, position, why);
	}
}

static void take_verdict(struct rabbit *self,
		const struct postern_completed *item, const char *why) {
	struct slot *slot = slot_at(self, item->tag);
	enum postern_verdict verdict = item->verdict;
	if (slot->delivery.given_up && verdict != POSTERN_VERDICT_UNAVAILABLE) {
		refuse(self, item->tag);
		return;
	}
	switch (verdict) {
	case POSTERN_VERDICT_ACCEPTED:
	case POSTERN_VERDICT_DUPLICATE: settle(self, item->tag, SLOT_DONE); return;
	case POSTERN_VERDICT_CONFLICT: refuse(self, item->tag); return;
	case POSTERN_VERDICT_REJECTED: give_up(self, item->tag, why); return;
	case POSTERN_VERDICT_FAILED: fail_delivery(self, item->tag, why); return;
	case POSTERN_VERDICT_UNAVAILABLE:
	default: break;
	}
	again(self, item->tag);
	retry_later(self);
}

static void take_completion(struct rabbit *self,
		const struct postern_completed *item) {
	char *why = postern__rabbitmq_reasons_take(&self->reasons, item->tag);
	self->in_flight--;
	/* Of a former connection: the broker delivers it again. */
	if (item->tag > self->base && is_connected(self)) {
		take_verdict(self, item, why);
	}
	free(why);
}

static void take_completions(struct rabbit *self) {
	struct postern_completed items[256];
	size_t count;
	do {
		count = postern_completions_take(self->completions, items,
				sizeof items / sizeof items[0]);
		for (size_t i = 0; i < count; i++) {
			take_completion(self, &items[i]);
		}
	} while (count == sizeof items / sizeof items[0]);
	if (is_connected(self)) {
		acknowledge(self);
	}
}

static bool pass_slot(struct rabbit *self, struct slot *slot) {
	bool taken;
	slot->state = SLOT_SENT;
	if (slot->delivery.given_up) {
		taken = postern_sink_fault(self->sink, NULL, &slot->delivery.message,
				slot->delivery.retries + 1, slot->delivery.why, self->cursor);
	} else if (slot->delivery.why) {
		taken = postern_sink_quarantine(self->sink, NULL,
				&slot->delivery.message, slot->delivery.why, self->cursor);
	} else {
		taken = postern_sink_accept(self->sink, NULL, &slot->delivery.message,
				self->cursor);
	}
	if (!taken) {
		slot->state = SLOT_READY;
	}
	return taken;
}

/* Pass on what has arrived, in its order. */
static void pass_on(struct rabbit *self) {
	uint64_t end =
			self->base + self->received + 1 - (self->arriving.to != NULL);
	if (self->stopping || !is_connected(self) ||
			postern__rabbitmq_now_ms() < self->retry_at_ms) {
		return;
	}
	while (self->cursor < end && self->in_flight < self->prefetch) {
		struct slot *slot = slot_at(self, self->cursor);
		/* Positions from next_ack on have a slot of their own. */
		bool ready =
				self->cursor >= self->next_ack && slot->state == SLOT_READY;
		if (ready && !pass_slot(self, slot)) {
			return;
		}
		self->in_flight += ready;
		self->cursor++;
	}
}

/* Copy one delivery that failed to the retry queue. */
static void move_failed(struct rabbit *self) {
	struct postern_error error;
	uint64_t position = self->next_ack;
	if (self->failed == 0 || self->retry.moving || self->stopping ||
			!is_connected(self)) {
		return;
	}
	while (slot_at(self, position)->state != SLOT_FAILED) {
		position++;
	}
	const struct slot *slot = slot_at(self, position);
	int r = postern__rabbitmq_retry_publish(&self->retry, &self->link, position,
			slot->delivery.retries + 1, slot->delivery.raw, slot->delivery.body,
			&error);
	if (r == POSTERN_E_INVALID) {
		self->failed--;
		give_up(self, position, error.text);
	} else if (r) {
		disconnect(self, error.text, false);
	}
}

/* What the broker says of a copy. */
static int read_confirm(struct rabbit *self, const amqp_method_t *method,
		struct postern_error *error) {
	uint64_t moved;
	int r = postern__rabbitmq_retry_method(&self->retry, method, &moved, error);
	if (method->id == AMQP_BASIC_RETURN_METHOD) {
		self->arriving = (struct postern__rabbitmq_arrival){
			.place = self->link.place,
			.returned = true,
		};
	}
	if (moved) {
		settle(self, moved, SLOT_DONE);
	}
	return r;
}

static int fail_protocol(const struct rabbit *self, const char *what,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_UNAVAILABLE, "%s sent %s",
			self->link.place, what);
}

static int begin_delivery(struct rabbit *self,
		const amqp_basic_deliver_t *deliver, struct postern_error *error) {
	uint64_t position = self->base + self->received + 1;
	if (self->arriving.to) {
		return fail_protocol(self, "a delivery inside another one", error);
	}
	if (deliver->delivery_tag != self->received + 1) {
		return fail_protocol(self, "delivery tags with a gap", error);
	}
	if (position - self->next_ack >= self->prefetch) {
		return fail_protocol(self, "more messages than the prefetch", error);
	}
	self->received++;
	struct slot *slot = slot_at(self, position);
	slot->state = SLOT_ARRIVING;
	self->arriving = (struct postern__rabbitmq_arrival){
		.place = self->link.place,
		.to = &slot->delivery,
	};
	return POSTERN_OK;
}

/* The queue, or that of its dead letters. */
static void count_messages(struct rabbit *self,
		const amqp_queue_declare_ok_t *queue) {
	const char *dead = self->topology.dead;
	uint64_t unread = self->base + self->received + 1 - self->next_ack;
	if (dead && queue->queue.len == strlen(dead) &&
			memcmp(queue->queue.bytes, dead, queue->queue.len) == 0) {
		postern_sink_set_dead_letters(self->sink, queue->message_count);
	} else {
		postern_sink_set_lag(self->sink,
				(int64_t)queue->message_count + (int64_t)unread);
	}
}

static int read_method(struct rabbit *self, const amqp_method_t *method,
		struct postern_error *error) {
	const amqp_queue_declare_ok_t *queue = method->decoded;
	switch (method->id) {
	case AMQP_BASIC_DELIVER_METHOD:
		return begin_delivery(self, method->decoded, error);
	case AMQP_BASIC_CANCEL_METHOD:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"%s ended the consumer: queue '%s' was deleted or has moved",
				self->link.place, self->topology.queue);
	case AMQP_QUEUE_DECLARE_OK_METHOD:
		count_messages(self, queue);
		return POSTERN_OK;
	case AMQP_BASIC_ACK_METHOD:
	case AMQP_BASIC_NACK_METHOD:
	case AMQP_BASIC_RETURN_METHOD: return read_confirm(self, method, error);
	default: return POSTERN_OK;
	}
}

static int read_frame(struct rabbit *self, const amqp_frame_t *frame,
		struct postern_error *error) {
	const struct postern__rabbitmq_mapping mapping = { self->source };
	int r = POSTERN_OK;
	switch (frame->frame_type) {
	case AMQP_FRAME_METHOD:
		r = read_method(self, &frame->payload.method, error);
		break;
	case AMQP_FRAME_HEADER:
		r = postern__rabbitmq_arrival_header(&self->arriving, frame, &mapping,
				self->retry.queue != NULL, error);
		break;
	case AMQP_FRAME_BODY:
		r = postern__rabbitmq_arrival_body(&self->arriving,
				frame->payload.body_fragment, error);
		break;
	default: break;
	}
	return r;
}

static bool may_read(const struct rabbit *self) {
	return is_connected(self) && !self->stopping &&
		   (self->bytes < self->bytes_max || self->arriving.to);
}

/* All of it has arrived. */
static void delivery_complete(struct rabbit *self) {
	uint64_t position = self->base + self->received;
	struct slot *slot = slot_at(self, position);
	const struct postern__rabbitmq_delivery *delivery = &slot->delivery;
	slot->state = SLOT_READY;
	slot->bytes = delivery->arena.bytes_held;
	self->bytes += slot->bytes;
	if (delivery->why && !(delivery->body.bytes &&
								 self->on_unacceptable ==
										 RABBITMQ_UNACCEPTABLE_QUARANTINE)) {
		postern_sink_reject(self->sink, position, delivery->why);
		refuse(self, position);
	}
}

static void end_arriving(struct rabbit *self) {
	bool kept = self->arriving.to != NULL;
	if (postern__rabbitmq_arrival_complete(&self->arriving)) {
		postern__rabbitmq_arrival_end(&self->arriving);
		self->arriving = (struct postern__rabbitmq_arrival){ 0 };
		if (kept) {
			delivery_complete(self);
		}
	}
}

static void read_frames(struct rabbit *self) {
	struct postern_error error;
	for (size_t i = 0; i < READ_COUNT_MAX && may_read(self); i++) {
		amqp_frame_t frame;
		enum postern__rabbitmq_read read =
				postern__rabbitmq_link_read(&self->link, &frame, &error);
		if (read == RABBITMQ_READ_NONE) {
			return;
		}
		if (read == RABBITMQ_READ_LOST || read_frame(self, &frame, &error)) {
			disconnect(self, error.text, false);
			return;
		}
		postern__rabbitmq_link_release(&self->link);
		end_arriving(self);
	}
}

static void ask_for(struct rabbit *self, const char *queue) {
	amqp_queue_declare_t declare = {
		.queue = amqp_cstring_bytes(queue),
		.passive = 1,
	};
	if (is_connected(self)) {
		(void)sent(self, amqp_send_method(self->link.state, RABBITMQ_CHANNEL,
								 AMQP_QUEUE_DECLARE_METHOD, &declare));
	}
}

static void ask_for_lag(struct rabbit *self) {
	int64_t now_ms = postern__rabbitmq_now_ms();
	if (now_ms < self->lag_at_ms) {
		return;
	}
	self->lag_at_ms = now_ms + LAG_MS;
	ask_for(self, self->topology.queue);
	if (self->topology.dead) {
		ask_for(self, self->topology.dead);
	}
}

/* The stop: no further deliveries. */
static void cancel_consumer(struct rabbit *self) {
	amqp_basic_cancel_t cancel = {
		.consumer_tag = amqp_cstring_bytes(RABBITMQ_CONSUMER_TAG),
		.nowait = 1,
	};
	if (!self->cancelled) {
		self->cancelled = true;
		(void)sent(self, amqp_send_method(self->link.state, RABBITMQ_CHANNEL,
								 AMQP_BASIC_CANCEL_METHOD, &cancel));
	}
}

static void keep_alive(struct rabbit *self) {
	struct postern_error error;
	if (is_connected(self) && !may_read(self) &&
			postern__rabbitmq_link_beat(&self->link, &error)) {
		disconnect(self, error.text, false);
	}
}

static void work(struct rabbit *self) {
	take_completions(self);
	if (!is_connected(self) && !self->stopping &&
			postern__rabbitmq_now_ms() >= self->connect_at_ms) {
		connect_broker(self);
	}
	read_frames(self);
	pass_on(self);
	move_failed(self);
	if (is_connected(self)) {
		acknowledge(self); /* what was refused on arrival */
	}
	if (is_connected(self) && self->stopping) {
		cancel_consumer(self);
	} else if (is_connected(self)) {
		ask_for_lag(self);
	}
	keep_alive(self);
}

static int64_t wait_ms(const struct rabbit *self) {
	int64_t now_ms = postern__rabbitmq_now_ms();
	int64_t until_ms = now_ms + IDLE_MS;
	if (is_connected(self) && self->link.heartbeat_s > 0) {
		int64_t beat_ms = now_ms + self->link.heartbeat_s * INT64_C(400);
		until_ms = beat_ms < until_ms ? beat_ms : until_ms;
	}
	if (!is_connected(self) && !self->stopping &&
			self->connect_at_ms < until_ms) {
		until_ms = self->connect_at_ms;
	}
	if (is_connected(self) && self->retry_at_ms > now_ms &&
			self->retry_at_ms < until_ms) {
		until_ms = self->retry_at_ms;
	}
	return until_ms > now_ms ? until_ms - now_ms : 0;
}

static void wait_for_input(struct rabbit *self) {
	bool reads = may_read(self);
	struct pollfd fds[] = {
		{ .fd = postern_completions_fd(self->completions), .events = POLLIN },
		{ .fd = self->link.fd, .events = reads ? POLLIN : 0 },
	};
	bool more = reads && postern__rabbitmq_link_has_more(&self->link);
	(void)poll(fds, is_connected(self) ? 2 : 1, more ? 0 : (int)wait_ms(self));
	if (!reads && is_connected(self) &&
			(fds[1].revents & (POLLERR | POLLHUP))) {
		disconnect(self, "the connection was closed", false);
	}
}

static void *rabbit_loop(void *context) {
	struct rabbit *self = context;
	while (!self->ending) {
		work(self);
		wait_for_input(self);
	}
	take_completions(self);
	if (is_connected(self)) {
		disconnect(self, NULL, true);
	}
	postern__rabbitmq_peer_leave(&self->peer);
	return NULL;
}

static int rabbit_start(struct postern_source *source,
		struct postern_sink *sink, struct postern_error *error) {
	struct rabbit *self = from_base(source);
	self->sink = sink;
	self->stopping = false;
	self->ending = false;
	self->failures = 0;
	self->host = 0;
	self->connect_at_ms = 0;
	self->retry_at_ms = 0;
	postern_sink_set_quarantine(sink,
			self->on_unacceptable == RABBITMQ_UNACCEPTABLE_QUARANTINE);
	postern__rabbitmq_peer_enter(&self->peer);
	return postern__rabbitmq_thread_start(&self->thread, rabbit_loop, self,
			error);
}

size_t postern__rabbitmq_source_settled(struct postern_source *source) {
	return from_base(source)->settled;
}

static void rabbit_complete(struct postern_source *source,
		const struct postern_completion *completion) {
	struct rabbit *self = from_base(source);
	if (completion->verdict == POSTERN_VERDICT_REJECTED ||
			completion->verdict == POSTERN_VERDICT_FAILED) {
		postern__rabbitmq_reasons_put(&self->reasons, completion->tag,
				completion->error->text);
	}
	postern_completions_put(self->completions, completion);
}

static void rabbit_resume(struct postern_source *source) {
	postern_completions_wake(from_base(source)->completions);
}

static void rabbit_stop(struct postern_source *source) {
	struct rabbit *self = from_base(source);
	self->stopping = true;
	postern_completions_wake(self->completions);
}

static void rabbit_end(struct postern_source *source) {
	struct rabbit *self = from_base(source);
	self->ending = true;
	postern_completions_wake(self->completions);
	postern__rabbitmq_peer_join(&self->peer, self->thread);
	assert(self->in_flight == 0);
}

static void rabbit_destroy(struct postern_source *source) {
	struct rabbit *self = from_base(source);
	for (uint32_t i = 0; self->slots && i < self->prefetch; i++) {
		postern__arena_finish(&self->slots[i].delivery.arena);
	}
	postern_completions_destroy(self->completions);
	postern_prefix_destroy(self->prefix);
	postern__rabbitmq_peer_finish(&self->peer);
	free(self->slots);
	postern__rabbitmq_reasons_finish(&self->reasons);
	postern__rabbitmq_topology_finish(&self->topology);
	free(self->source);
	free(self);
}

static const struct postern_source_ops rabbit_ops = {
	.version = POSTERN_SOURCE_OPS_VERSION,
	.name = "rabbitmq",
	.tag_name = "delivery",
	.start = rabbit_start,
	.complete = rabbit_complete,
	.resume = rabbit_resume,
	.stop = rabbit_stop,
	.end = rabbit_end,
	.destroy = rabbit_destroy,
};

static int fill(struct rabbit *self,
		const struct postern__rabbitmq_source_settings *settings,
		struct postern_error *error) {
	self->slots = calloc(self->prefetch, sizeof *self->slots);
	self->source = settings->source ? strdup(settings->source) : NULL;
	if (!self->slots || (settings->source && !self->source)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = postern__rabbitmq_topology_init(&self->topology, settings, error);
	if (!r) {
		r = postern_completions_create(self->prefetch, &self->completions,
				error);
	}
	if (!r) {
		r = postern_prefix_create(self->prefetch, &self->prefix, error);
	}
	if (!r) {
		r = postern__rabbitmq_topology_check(&self->topology, error);
	}
	return r ? r
			 : postern__rabbitmq_peer_init(&self->peer, settings->url,
					   settings->heartbeat_ms, settings->ca_file, error);
}

int postern__rabbitmq_source_create(const void *given,
		struct postern_source **out, struct postern_error *error) {
	const struct postern__rabbitmq_source_settings *settings = given;
	struct rabbit *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base_source.ops = &rabbit_ops;
	self->link.fd = -1;
	self->prefetch = settings->prefetch;
	self->bytes_max = (size_t)settings->prefetch_bytes;
	self->on_unacceptable =
			(enum postern__rabbitmq_unacceptable)settings->on_unacceptable;
	self->on_failed = (enum postern__rabbitmq_failed)settings->on_failed;
	self->max_retries = settings->max_retries;
	self->next_ack = 1;
	self->cursor = 1;
	postern__rabbitmq_reasons_init(&self->reasons);
	int r = fill(self, settings, error);
	if (r) {
		rabbit_destroy(&self->base_source);
		return r;
	}
	self->retry.queue = self->topology.retry;
	*out = &self->base_source;
	return POSTERN_OK;
}
