/* SPDX-License-Identifier: MIT */

/*
 * The kind of handlers that publish. A handler has one thread with one
 * connection, since its first run: it publishes what waits, many messages
 * before the first is confirmed, and finishes a run when the broker has
 * confirmed its message.
 *
 * What is wrong with the broker is no fault of a message: such a run ends with
 * POSTERN_HOLD, and the breaker of the handler probes until it works again.
 * After a lost connection it is unknown whether the broker has what was not
 * confirmed. It is published again, with the same id.
 */

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <postern/rabbitmq.h>
#include <postern/sys/option.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/container.h"
#include "base/fail.h"
#include "base/list.h"
#include "rabbitmq/confirms.h"
#include "rabbitmq/rabbitmq.h"

#define IDLE_MS 5000
/* Of each name in the reason of a returned message. */
#define SHOWN_LEN_MAX 60
#define HEARTBEAT_MS 30000
#define ROUTING_KEY "{type}"
#define CONCURRENCY_DEFAULT 500
#define TIMEOUT_MS 30000
/* A run that waits for a broker that takes nothing ends this long before its
   deadline: a timeout would count as its failure. */
#define MARGIN_MS 2000
/* Rooms of AMQP in a frame around what outgoing.c counts. */
#define FRAME_REST 64

/* A run that this handler has. */
struct job {
	struct postern__list link;
	struct postern_run *run;
	int cancel;    /* with the mutex: 0, or 1 + enum postern_cancel */
	char why[300]; /* it was returned; "": it was not */
};

/* Set instead of a job that does not exist yet. */
static char mark_stop;

/* A message that is being returned. */
struct returning {
	bool active;
	bool has_header;
	uint64_t size;
	uint64_t received;
	char key[RABBITMQ_SHORT_LEN_MAX + 1]; /* the routing key */
	char why[300];
};

struct publisher {
	struct postern_handler base;
	struct postern__rabbitmq_peer peer;
	char *exchange;
	char *routing_key;
	bool mandatory;
	int wake; /* an eventfd */

	pthread_mutex_t mutex;
	/* With the mutex. */
	bool has_thread;
	bool ending;
	bool cancels; /* a job has `cancel` set */
	struct postern__list waiting;

	/* Used by the thread alone. */
	pthread_t thread;
	struct postern__list queue; /* taken, not published */
	struct postern__rabbitmq_link link;
	struct postern__rabbitmq_confirms *confirms;
	struct postern__rabbitmq_outgoing outgoing;
	struct returning returning;
	size_t host;
};

static const struct postern_handler_ops publish_ops;

static struct publisher *from_base(struct postern_handler *handler) {
	assert(handler->ops == &publish_ops);
	return container_of(handler, struct publisher, base);
}

static bool is_connected(const struct publisher *self) {
	return self->link.state != NULL;
}

/* The end of a run; the job is freed. */
static void finish_job(struct publisher *self, struct job *job,
		enum postern_outcome_kind kind, const char *reason) {
	struct postern_run *run = job->run;
	struct postern_outcome outcome;
	(void)pthread_mutex_lock(&self->mutex);
	postern_run_set_data(run, NULL);
	bool stops = job->cancel == 1 + POSTERN_CANCEL_STOP;
	(void)pthread_mutex_unlock(&self->mutex);
	free(job);
	if (stops && kind != POSTERN_DONE) {
		postern_run_return(run);
		return;
	}
	postern_outcome_set(&outcome, kind,
			kind == POSTERN_SNOOZE ? POSTERN_HINDERED_DELAY_MS : 0, reason);
	postern_run_finish(run, &outcome);
}

static void finish_queue(struct publisher *self, const char *reason) {
	struct postern__list *link;
	while ((link = postern__list_pop_front(&self->queue))) {
		finish_job(self, container_of(link, struct job, link), POSTERN_HOLD,
				reason);
	}
}

/* How many bytes a message has that the broker finds too large; 0: the channel
   was closed for another reason. */
static uint64_t oversized_len(const char *why) {
	static const char words[] = "message size ";
	const char *at = strstr(why, words);
	return at ? strtoull(at + strlen(words), NULL, 10) : 0;
}

struct loss {
	struct publisher *self;
	const char *why;
	uint64_t oversized;
};

static void lose_item(void *context, void *item) {
	const struct loss *loss = context;
	struct job *job = item;
	char reason[POSTERN_ERROR_TEXT_MAX + 100];
	if (loss->oversized > 0 &&
			postern_run_message(job->run)->body_len == loss->oversized) {
		finish_job(loss->self, job, POSTERN_POISON, loss->why);
		return;
	}
	(void)snprintf(reason, sizeof reason,
			"%s; whether the broker has the message is unknown", loss->why);
	finish_job(loss->self, job, POSTERN_HOLD, reason);
}

/* The connection is of no use any more. */
static void disconnect(struct publisher *self, const char *why) {
	struct loss loss = { self, why, oversized_len(why) };
	postern__rabbitmq_link_close(&self->link, false);
	(void)postern__rabbitmq_confirms_take(self->confirms, 0, true, lose_item,
			&loss);
	postern__rabbitmq_confirms_reset(self->confirms);
	self->returning = (struct returning){ 0 };
	self->host = (self->host + 1) % self->peer.address.host_count;
}

static void connect_broker(struct publisher *self) {
	struct postern_error error;
	int r = postern__rabbitmq_link_open(&self->link, &self->peer, self->host,
			&error);
	if (!r) {
		(void)amqp_confirm_select(self->link.state, RABBITMQ_CHANNEL);
		r = postern__rabbitmq_link_check(&self->link,
				amqp_get_rpc_reply(self->link.state),
				"confirm what is published", &error);
	}
	if (r) {
		disconnect(self, error.text);
		finish_queue(self, error.text);
	}
}

static bool same_text(amqp_bytes_t bytes, const char *text) {
	return text && bytes.len == strlen(text) &&
		   memcmp(bytes.bytes, text, bytes.len) == 0;
}

/* Whether a header that was published, if it was, has this value. The
   attributes of an event come before the headers of its message. */
static bool has_value(const amqp_basic_properties_t *properties,
		const char *name, const char *value) {
	for (int i = 0; i < properties->headers.num_entries; i++) {
		const amqp_table_entry_t *entry = &properties->headers.entries[i];
		if (same_text(entry->key, name)) {
			return entry->value.kind == AMQP_FIELD_KIND_UTF8 &&
				   same_text(entry->value.value.bytes, value);
		}
	}
	return true;
}

/* Whether this is what was published for a message. An id that is too long for
   its property, of a message that is no event, was not: then the routing key
   and the length decide, and the broker routes such messages alike. */
static bool is_of(const struct publisher *self,
		const amqp_basic_properties_t *properties,
		const struct postern_message *message) {
	char key[RABBITMQ_SHORT_LEN_MAX + 1];
	bool event = message->type && *message->type;
	bool named = (properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG) != 0;
	bool fits = strlen(message->id) <= RABBITMQ_SHORT_LEN_MAX;
	return message->body_len == self->returning.size && named == fits &&
		   (!named || same_text(properties->message_id, message->id)) &&
		   (!event || (has_value(properties, "cloudEvents_id", message->id) &&
							  has_value(properties, "cloudEvents_source",
									  message->source))) &&
		   postern__rabbitmq_template_fill(self->routing_key, message, key) &&
		   strcmp(key, self->returning.key) == 0;
}

static void mark_returned(struct publisher *self,
		const amqp_basic_properties_t *properties) {
	const struct postern__rabbitmq_confirms *confirms = self->confirms;
	for (uint64_t tag = confirms->first; tag < confirms->next; tag++) {
		struct postern__rabbitmq_unconfirmed *entry =
				postern__rabbitmq_confirms_at(self->confirms, tag);
		struct job *job = entry ? entry->item : NULL;
		if (job && !job->why[0] &&
				is_of(self, properties, postern_run_message(job->run))) {
			(void)snprintf(job->why, sizeof job->why, "%s",
					self->returning.why);
			return;
		}
	}
}

static int shown_len(amqp_bytes_t bytes) {
	return bytes.len < SHOWN_LEN_MAX ? (int)bytes.len : SHOWN_LEN_MAX;
}

static void begin_return(struct publisher *self,
		const amqp_basic_return_t *method) {
	self->returning = (struct returning){ .active = true };
	(void)snprintf(self->returning.key, sizeof self->returning.key, "%.*s",
			(int)method->routing_key.len,
			(const char *)method->routing_key.bytes);
	(void)snprintf(self->returning.why, sizeof self->returning.why,
			"the broker returned the message: %.*s (%u), exchange '%.*s', "
			"routing key '%.*s'",
			shown_len(method->reply_text),
			(const char *)method->reply_text.bytes, method->reply_code,
			shown_len(method->exchange), (const char *)method->exchange.bytes,
			shown_len(method->routing_key),
			(const char *)method->routing_key.bytes);
}

static void confirm_item(void *context, void *item) {
	struct publisher *self = context;
	struct job *job = item;
	char why[sizeof job->why];
	memcpy(why, job->why, sizeof why);
	finish_job(self, job, why[0] ? POSTERN_RETRY : POSTERN_DONE, why);
}

static void refuse_item(void *context, void *item) {
	finish_job(context, item, POSTERN_RETRY,
			"the broker refused the message (nack)");
}

static int confirm(struct publisher *self, uint64_t tag, bool multiple,
		postern__rabbitmq_confirmed *call, struct postern_error *error) {
	return postern__rabbitmq_confirms_take(self->confirms, tag, multiple, call,
				   self)
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_UNAVAILABLE,
							 "%s confirmed %" PRIu64
							 ", which was never published",
							 self->link.place, tag);
}

static int read_method(struct publisher *self, const amqp_method_t *method,
		struct postern_error *error) {
	const amqp_basic_ack_t *ack = method->decoded;
	const amqp_basic_nack_t *nack = method->decoded;
	switch (method->id) {
	case AMQP_BASIC_ACK_METHOD:
		return confirm(self, ack->delivery_tag, ack->multiple, confirm_item,
				error);
	case AMQP_BASIC_NACK_METHOD:
		return confirm(self, nack->delivery_tag, nack->multiple, refuse_item,
				error);
	case AMQP_BASIC_RETURN_METHOD:
		begin_return(self, method->decoded);
		return POSTERN_OK;
	default: return POSTERN_OK;
	}
}

static int read_content(struct publisher *self, const amqp_frame_t *frame,
		struct postern_error *error) {
	struct returning *returning = &self->returning;
	bool header = frame->frame_type == AMQP_FRAME_HEADER;
	if (!returning->active || returning->has_header == header) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"%s sent a message that was not returned", self->link.place);
	}
	if (header) {
		returning->has_header = true;
		returning->size = frame->payload.properties.body_size;
		mark_returned(self, frame->payload.properties.decoded);
	} else {
		returning->received += frame->payload.body_fragment.len;
	}
	returning->active = returning->received < returning->size;
	return POSTERN_OK;
}

static void read_frames(struct publisher *self) {
	struct postern_error error;
	while (is_connected(self)) {
		amqp_frame_t frame;
		enum postern__rabbitmq_read read =
				postern__rabbitmq_link_read(&self->link, &frame, &error);
		if (read == RABBITMQ_READ_NONE) {
			return;
		}
		int r = read == RABBITMQ_READ_LOST ? POSTERN_E_UNAVAILABLE
				: frame.frame_type == AMQP_FRAME_METHOD
						? read_method(self, &frame.payload.method, &error)
						: read_content(self, &frame, &error);
		if (r) {
			disconnect(self, error.text);
			return;
		}
		postern__rabbitmq_link_release(&self->link);
	}
}

/* Whether a message can be published at all; if not, its run ends. */
static bool check_job(struct publisher *self, struct job *job, char *key) {
	const struct postern_message *message = postern_run_message(job->run);
	size_t frame = (size_t)amqp_get_frame_max(self->link.state);
	if (!postern__rabbitmq_outgoing_fill(&self->outgoing, message)) {
		finish_job(self, job, POSTERN_SNOOZE, "out of memory");
		return false;
	}
	if (!postern__rabbitmq_template_fill(self->routing_key, message, key)) {
		finish_job(self, job, POSTERN_POISON,
				"the routing key is over 255 bytes");
		return false;
	}
	if (message->content_type &&
			strlen(message->content_type) > RABBITMQ_SHORT_LEN_MAX) {
		finish_job(self, job, POSTERN_POISON,
				"the content type is over 255 bytes");
		return false;
	}
	if (self->outgoing.size + FRAME_REST > frame) {
		finish_job(self, job, POSTERN_POISON,
				"the attributes and headers have no room in a frame");
		return false;
	}
	return true;
}

static void publish_job(struct publisher *self, struct job *job) {
	const struct postern_message *message = postern_run_message(job->run);
	char key[RABBITMQ_SHORT_LEN_MAX + 1];
	struct postern_error error;
	if (!check_job(self, job, key)) {
		return;
	}
	/* Before the call: if it fails, the message may have been sent. */
	(void)postern__rabbitmq_confirms_add(self->confirms, job);
	int status = amqp_basic_publish(self->link.state, RABBITMQ_CHANNEL,
			amqp_cstring_bytes(self->exchange), amqp_cstring_bytes(key),
			self->mandatory, 0, &self->outgoing.properties,
			(amqp_bytes_t){ message->body_len, (void *)message->body });
	if (postern__rabbitmq_link_sent(&self->link, status, &error)) {
		disconnect(self, error.text);
	}
}

static bool is_writable(const struct publisher *self) {
	struct pollfd fd = { .fd = self->link.fd, .events = POLLOUT };
	return poll(&fd, 1, 0) == 1 && (fd.revents & POLLOUT);
}

static void publish_queue(struct publisher *self) {
	if (!postern__list_empty(&self->queue) && !is_connected(self)) {
		connect_broker(self);
	}
	while (is_connected(self) && !self->link.blocked &&
			!postern__list_empty(&self->queue) &&
			!postern__rabbitmq_confirms_full(self->confirms) &&
			is_writable(self)) {
		struct postern__list *link = postern__list_pop_front(&self->queue);
		publish_job(self, container_of(link, struct job, link));
	}
}

/* The broker takes no messages now: what waits gives up, and what was sent
   before it would time out. */
static void give_up(struct publisher *self) {
	const struct postern__rabbitmq_confirms *confirms = self->confirms;
	char why[POSTERN_ERROR_TEXT_MAX + 200];
	if (!is_connected(self) || !self->link.blocked) {
		return;
	}
	(void)snprintf(why, sizeof why, "%s takes no messages now: %s",
			self->link.place, self->link.blocked_why);
	finish_queue(self, why);
	for (uint64_t tag = confirms->first; tag < confirms->next; tag++) {
		struct postern__rabbitmq_unconfirmed *entry =
				postern__rabbitmq_confirms_at(self->confirms, tag);
		struct job *job = entry ? entry->item : NULL;
		int64_t left_ms = job ? postern_run_remaining_ms(job->run) : -1;
		if (left_ms >= 0 && left_ms < MARGIN_MS) {
			entry->item = NULL;
			finish_job(self, job, POSTERN_HOLD, why);
		}
	}
}

static bool take_cancel(struct publisher *self, const struct job *job,
		int *why_out) {
	(void)pthread_mutex_lock(&self->mutex);
	*why_out = job->cancel - 1;
	(void)pthread_mutex_unlock(&self->mutex);
	return *why_out >= 0;
}

static void end_cancelled(struct publisher *self) {
	const struct postern__rabbitmq_confirms *confirms = self->confirms;
	struct postern__list *link = self->queue.next;
	int why;
	while (link != &self->queue) {
		struct job *job = container_of(link, struct job, link);
		link = link->next;
		if (take_cancel(self, job, &why)) {
			postern__list_remove(&job->link);
			finish_job(self, job, POSTERN_RETRY,
					"the message could not be sent in time");
		}
	}
	for (uint64_t tag = confirms->first; tag < confirms->next; tag++) {
		struct postern__rabbitmq_unconfirmed *entry =
				postern__rabbitmq_confirms_at(self->confirms, tag);
		if (entry && entry->item && take_cancel(self, entry->item, &why)) {
			struct job *job = entry->item;
			entry->item = NULL;
			finish_job(self, job, POSTERN_RETRY,
					"the broker has not confirmed the message in time; whether "
					"it has the message is unknown");
		}
	}
}

/* Take what waits; false: the thread ends. */
static bool take_jobs(struct publisher *self) {
	struct postern__list *link;
	eventfd_t value;
	(void)eventfd_read(self->wake, &value); /* fails if nobody has written */
	(void)pthread_mutex_lock(&self->mutex);
	while ((link = postern__list_pop_front(&self->waiting))) {
		postern__list_push_back(&self->queue, link);
	}
	bool cancels = self->cancels;
	bool ending = self->ending;
	self->cancels = false;
	(void)pthread_mutex_unlock(&self->mutex);
	if (cancels) {
		end_cancelled(self);
	}
	return !ending;
}

static void wait_for_input(struct publisher *self) {
	bool queued = !postern__list_empty(&self->queue) &&
				  !postern__rabbitmq_confirms_full(self->confirms) &&
				  !self->link.blocked;
	struct pollfd fds[] = {
		{ .fd = self->wake, .events = POLLIN },
		{
				.fd = self->link.fd,
				.events = queued ? POLLIN | POLLOUT : POLLIN,
		},
	};
	int64_t ms = IDLE_MS;
	if (is_connected(self) && self->link.heartbeat_s > 0) {
		ms = self->link.heartbeat_s * INT64_C(400);
	}
	if (self->link.blocked && ms > MARGIN_MS / 2) {
		ms = MARGIN_MS / 2;
	}
	bool more =
			is_connected(self) && postern__rabbitmq_link_has_more(&self->link);
	(void)poll(fds, is_connected(self) ? 2 : 1,
			more ? 0 : (int)(ms < IDLE_MS ? ms : IDLE_MS));
}

static void *publish_loop(void *context) {
	struct publisher *self = context;
	while (take_jobs(self)) {
		read_frames(self);
		publish_queue(self);
		read_frames(self);
		give_up(self);
		wait_for_input(self);
	}
	postern__rabbitmq_link_close(&self->link, true);
	postern__rabbitmq_peer_leave(&self->peer);
	return NULL;
}

/* With the mutex. */
static bool has_thread(struct publisher *self) {
	if (!self->has_thread) {
		self->has_thread =
				pthread_create(&self->thread, NULL, publish_loop, self) == 0;
	}
	return self->has_thread;
}

static void publish_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct publisher *self = from_base(handler);
	struct postern_outcome outcome;
	struct job *job = calloc(1, sizeof *job);
	(void)pthread_mutex_lock(&self->mutex);
	bool stopped = postern_run_data(run) == &mark_stop;
	bool started = !stopped && job && has_thread(self);
	if (started) {
		job->run = run;
		postern_run_set_data(run, job);
		postern__list_push_back(&self->waiting, &job->link);
	}
	(void)pthread_mutex_unlock(&self->mutex);
	if (started) {
		(void)eventfd_write(self->wake, 1);
		return;
	}
	free(job);
	if (stopped) {
		postern_run_return(run);
		return;
	}
	postern_outcome_set(&outcome, POSTERN_SNOOZE, POSTERN_HINDERED_DELAY_MS,
			"cannot start a thread");
	postern_run_finish(run, &outcome);
}

static void publish_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	struct publisher *self = from_base(handler);
	(void)pthread_mutex_lock(&self->mutex);
	void *data = postern_run_data(run);
	if (!data && why == POSTERN_CANCEL_STOP) {
		postern_run_set_data(run, &mark_stop);
	} else if (data && data != &mark_stop) {
		struct job *job = data;
		/* The first reason is kept. */
		job->cancel = job->cancel ? job->cancel : 1 + (int)why;
		self->cancels = true;
		(void)eventfd_write(self->wake, 1);
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

static void publish_destroy(struct postern_handler *handler) {
	struct publisher *self = from_base(handler);
	(void)pthread_mutex_lock(&self->mutex);
	self->ending = true;
	bool running = self->has_thread;
	(void)pthread_mutex_unlock(&self->mutex);
	if (running) {
		(void)eventfd_write(self->wake, 1);
		postern__rabbitmq_peer_join(&self->peer, self->thread);
	}
	if (self->wake >= 0) {
		(void)close(self->wake); /* nothing is buffered */
	}
	(void)pthread_mutex_destroy(&self->mutex);
	postern__rabbitmq_peer_finish(&self->peer);
	postern__arena_finish(&self->outgoing.arena);
	free(self->confirms);
	free(self->exchange);
	free(self->routing_key);
	free(self);
}

static const struct postern_handler_ops publish_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = publish_start,
	.cancel = publish_cancel,
	.destroy = publish_destroy,
};

static const char *routing_key_of(
		const struct postern_rabbitmq_publish *settings) {
	return settings->routing_key ? settings->routing_key : ROUTING_KEY;
}

/* From a program the settings were not checked by the table. */
static int publish_validate(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	const struct postern_rabbitmq_publish *settings = setup->settings;
	struct postern__rabbitmq_peer peer;
	if (!settings || !settings->url) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s needs the URL of a broker", setup->kind->name);
	}
	if (settings->exchange &&
			strlen(settings->exchange) > RABBITMQ_SHORT_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the name of the exchange is over %d bytes",
				RABBITMQ_SHORT_LEN_MAX);
	}
	struct postern_error why;
	int r = postern__rabbitmq_template_check(routing_key_of(settings), &why);
	if (r) {
		return postern__fail(error, r, "the routing key: %s", why.text);
	}
	r = postern__rabbitmq_peer_init(&peer, settings->url, 0, settings->ca_file,
			error);
	postern__rabbitmq_peer_finish(&peer);
	return r;
}

static int fill(struct publisher *self,
		const struct postern_rabbitmq_publish *settings,
		struct postern_error *error) {
	self->exchange = strdup(settings->exchange ? settings->exchange : "");
	self->routing_key = strdup(routing_key_of(settings));
	self->confirms = calloc(1, sizeof *self->confirms);
	self->mandatory =
			settings->on_unroutable == POSTERN_RABBITMQ_UNROUTABLE_FAIL;
	self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!self->exchange || !self->routing_key || !self->confirms ||
			self->wake < 0) {
		return postern__fail(error, POSTERN_E_NOMEM,
				"out of memory or descriptors");
	}
	postern__rabbitmq_confirms_reset(self->confirms);
	return postern__rabbitmq_peer_init(&self->peer, settings->url,
			settings->heartbeat_ms > 0 ? settings->heartbeat_ms : HEARTBEAT_MS,
			settings->ca_file, error);
}

static int publish_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	struct publisher *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &publish_ops;
	self->link.fd = -1;
	self->wake = -1;
	(void)pthread_mutex_init(&self->mutex,
			NULL); /* no attributes: cannot fail */
	postern__list_init(&self->waiting);
	postern__list_init(&self->queue);
	int r = fill(self, setup->settings, error);
	if (r) {
		publish_destroy(&self->base);
		return r;
	}
	*out = &self->base;
	return POSTERN_OK;
}

static const struct postern_option publish_options[] = {
	{
			.name = "url",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern_rabbitmq_publish, url),
			.flags = POSTERN_OPTION_REQUIRED | POSTERN_OPTION_SECRET,
			.help = "the broker: amqp://USER:PASSWORD@HOST/VHOST",
			.form = "URL",
			.check = postern__rabbitmq_url_check,
	},
	{
			.name = "exchange",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern_rabbitmq_publish, exchange),
			.help = "where to publish (the default exchange)",
			.form = "NAME",
	},
	{
			.name = "routing_key",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern_rabbitmq_publish, routing_key),
			.fallback = ROUTING_KEY,
			.help = "with {id}, {source}, {type}, {subject}, {header:NAME}",
			.form = "TEXT",
			.check = postern__rabbitmq_template_check,
	},
	{
			.name = "on_unroutable",
			.type = POSTERN_OPTION_CHOICE,
			.offset = offsetof(struct postern_rabbitmq_publish, on_unroutable),
			.choices = "fail|drop",
			.fallback = "fail",
			.help = "what a message is that no queue gets",
	},
	{
			.name = "heartbeat",
			.type = POSTERN_OPTION_DURATION,
			.offset = offsetof(struct postern_rabbitmq_publish, heartbeat_ms),
			.min = 1000,
			.max = 600000,
			.fallback = "30s",
			.help = "a connection that is silent for as long is lost",
	},
	{
			.name = "ca_file",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern_rabbitmq_publish, ca_file),
			.flags = POSTERN_OPTION_PATH,
			.help = "amqps: the certificates that are trusted",
			.form = "FILE",
	},
};

const struct postern_handler_kind postern__rabbitmq_publish_kind = {
	.size = sizeof(struct postern_handler_kind),
	.name = POSTERN_RABBITMQ_PUBLISH_KIND,
	.help = "an exchange of RabbitMQ",
	.options = publish_options,
	.option_count = sizeof publish_options / sizeof publish_options[0],
	.settings_size = sizeof(struct postern_rabbitmq_publish),
	.asynchronous = true,
	.timeout_ms = TIMEOUT_MS,
	.concurrency = CONCURRENCY_DEFAULT,
	.validate = publish_validate,
	.create = publish_create,
};
