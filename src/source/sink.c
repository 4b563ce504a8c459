/* SPDX-License-Identifier: MIT */
/*
 * A message in flight is an entry: in the list of its sink until its completion
 * is delivered, and allocated until the box has called back. When the source
 * ends before that, the entry is completed as unavailable and left to the box;
 * the late receipt then meets an entry without a place in the list, and is
 * dropped. The transport delivers that message again, as a duplicate.
 *
 * The mutex of a sink is a leaf: nothing is called with it locked. `busy`
 * counts the calls in progress, of the sink by the source and of the source by
 * the box, so that the end of the source can wait for them: only then is every
 * message that was taken in the list, and no other.
 */

#include "source/sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/list.h"
#include "base/wait.h"
#include "core/fault.h"
#include "core/quarantine.h"

#define IN_FLIGHT_DEFAULT 10000
#define IN_FLIGHT_BYTES_DEFAULT ((size_t)32 * 1024 * 1024)

struct postern_sink {
	struct postern_source *source;
	struct postern__sink_context context;
	char *name;
	char *channel; /* may be NULL */
	size_t count_max;
	size_t bytes_max;
	bool quarantines; /* set before the first message */

	pthread_mutex_t mutex;
	pthread_cond_t idle; /* busy became 0 */
	/* All below is guarded by the mutex. */
	unsigned refs; /* of the runner, each entry, and the room waiter */
	struct postern__list entries;
	size_t count; /* of messages whose completion was not delivered */
	size_t bytes;
	size_t busy;
	bool started;
	bool stopped; /* no further messages */
	bool paused;
	struct postern__room_waiter room;
	bool awaiting_room;

	bool connected;
	int64_t since_ms;
	int64_t lag;
	int64_t dead_letters;
	int64_t error_at_ms;
	char error[POSTERN_ERROR_TEXT_MAX];
	uint64_t verdicts[POSTERN_VERDICT_COUNT];
	uint64_t quarantined;
};

/* A message in flight. */
struct entry {
	struct postern__list link;
	struct postern_sink *sink;
	uint64_t tag;
	size_t bytes;
	bool default_channel;
	bool fault; /* about a message that was counted when it failed */
	/* Why it is quarantined, unless the store has such a message; NULL: it is
	   not. */
	struct postern_error *why;
};

const char *postern_verdict_name(enum postern_verdict verdict) {
	static const char *const names[POSTERN_VERDICT_COUNT] = { "accepted",
		"duplicate", "conflict", "rejected", "unavailable", "failed" };
	return (size_t)verdict < POSTERN_VERDICT_COUNT ? names[verdict] : "unknown";
}

/* What a code of postern_box_accept() means to a source. */
static enum postern_verdict verdict_of(int code, bool default_channel) {
	switch (code) {
	case POSTERN_OK: return POSTERN_VERDICT_ACCEPTED;
	case POSTERN_E_DUPLICATE: return POSTERN_VERDICT_DUPLICATE;
	case POSTERN_E_CONFLICT: return POSTERN_VERDICT_CONFLICT;
	case POSTERN_E_INVALID: return POSTERN_VERDICT_REJECTED;
	case POSTERN_E_FAILED: return POSTERN_VERDICT_FAILED;
	case POSTERN_E_NOTFOUND:
	case POSTERN_E_UNSUPPORTED:
		/* A configuration without the channel of a source is no fault of its
		   messages. */
		return default_channel ? POSTERN_VERDICT_UNAVAILABLE
							   : POSTERN_VERDICT_REJECTED;
	default: return POSTERN_VERDICT_UNAVAILABLE;
	}
}

static void leave(struct postern_sink *sink) {
	(void)pthread_mutex_lock(&sink->mutex);
	if (--sink->busy == 0) {
		(void)pthread_cond_broadcast(&sink->idle);
	}
	(void)pthread_mutex_unlock(&sink->mutex);
}

static int64_t wall_ms(const struct postern_sink *sink) {
	const struct postern_clock *clock = &sink->context.box->clock;
	return clock->wall_ms(clock->context);
}

static void free_sink(struct postern_sink *sink) {
	(void)pthread_cond_destroy(&sink->idle);
	(void)pthread_mutex_destroy(&sink->mutex);
	free(sink->name);
	free(sink->channel);
	free(sink);
}

static void unref(struct postern_sink *sink) {
	(void)pthread_mutex_lock(&sink->mutex);
	bool last = --sink->refs == 0;
	(void)pthread_mutex_unlock(&sink->mutex);
	if (last) {
		free_sink(sink);
	}
}

static int check_name(const char *name, struct postern_error *error) {
	size_t len = name ? strlen(name) : 0;
	return len == 0 || len > POSTERN_SOURCE_NAME_LEN_MAX
				   ? postern__fail(error, POSTERN_E_INVALID,
							 "the name of a source has 1 to %d bytes",
							 POSTERN_SOURCE_NAME_LEN_MAX)
				   : POSTERN_OK;
}

static bool has_channel(struct postern_box *box, const char *name) {
	struct postern_generation *generation = postern__generation_acquire(box);
	bool found = postern__generation_channel(generation, name) != NULL;
	postern__generation_release(generation);
	return found;
}

int postern__sink_check(struct postern_box *box,
		const struct postern_source_options *options,
		const struct postern_source *source, struct postern_error *error) {
	int r = check_name(options->name, error);
	if (r) {
		return r;
	}
	if (source->ops->version == 0 ||
			source->ops->version > POSTERN_SOURCE_OPS_VERSION) {
		return postern__fail(error, POSTERN_E_INVALID,
				"source '%s' was written for version %u of the interface; this "
				"libpostern has version %d",
				options->name, source->ops->version,
				POSTERN_SOURCE_OPS_VERSION);
	}
	if (options->in_flight_max > POSTERN_SOURCE_IN_FLIGHT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"source '%s': in_flight_max is at most %d", options->name,
				POSTERN_SOURCE_IN_FLIGHT_MAX);
	}
	if (options->channel && !has_channel(box, options->channel)) {
		return postern__fail(error, POSTERN_E_NOTFOUND,
				"source '%s': no channel '%s'", options->name,
				options->channel);
	}
	return POSTERN_OK;
}

static void room_appeared(struct postern__room_waiter *waiter);

int postern__sink_create(const struct postern__sink_context *context,
		const struct postern_source_options *options,
		struct postern_source *source, struct postern_sink **out,
		struct postern_error *error) {
	struct postern_sink *sink = calloc(1, sizeof(*sink));
	char *name = strdup(options->name);
	char *channel = options->channel ? strdup(options->channel) : NULL;
	if (!sink || !name || (options->channel && !channel) ||
			pthread_mutex_init(&sink->mutex, NULL) ||
			postern__wait_init(&sink->idle)) {
		free(sink);
		free(name);
		free(channel);
		source->ops->destroy(source);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	sink->source = source;
	sink->context = *context;
	sink->name = name;
	sink->channel = channel;
	sink->count_max =
			options->in_flight_max ? options->in_flight_max : IN_FLIGHT_DEFAULT;
	sink->bytes_max = options->in_flight_bytes_max
							  ? options->in_flight_bytes_max
							  : IN_FLIGHT_BYTES_DEFAULT;
	sink->refs = 1;
	postern__list_init(&sink->entries);
	sink->room.call = room_appeared;
	sink->lag = -1;
	sink->dead_letters = -1;
	*out = sink;
	return POSTERN_OK;
}

void postern__sink_destroy(struct postern_sink *sink) {
	if (!sink) {
		return;
	}
	sink->source->ops->destroy(sink->source);
	unref(sink);
}

const char *postern__sink_name(const struct postern_sink *sink) {
	return sink->name;
}

struct postern_source *postern__sink_source(const struct postern_sink *sink,
		const char **channel_out) {
	*channel_out = sink->channel ? sink->channel : "";
	return sink->source;
}

/* Log a message that cannot be accepted, and keep why. */
static void report_unacceptable(struct postern_sink *sink,
		enum postern_event_kind kind, uint64_t tag, const char *why) {
	int64_t now_ms = wall_ms(sink);
	(void)pthread_mutex_lock(&sink->mutex);
	sink->error_at_ms = now_ms;
	(void)snprintf(sink->error, sizeof(sink->error), "%s", why);
	(void)pthread_mutex_unlock(&sink->mutex);
	postern__emit_text(sink->context.box,
			&(struct postern_event){
					.kind = kind,
					.source = sink->name,
					.tag = tag,
					.error = why,
			},
			"source '%s': %s %llu %s: %s", sink->name,
			sink->source->ops->tag_name, (unsigned long long)tag,
			kind == POSTERN_EVENT_SOURCE_QUARANTINED ? "quarantined"
													 : "rejected",
			why);
}

static void report_rejected(struct postern_sink *sink, uint64_t tag,
		const char *why) {
	report_unacceptable(sink, POSTERN_EVENT_SOURCE_REJECTED, tag, why);
}

/* With the mutex: whether a paused source should continue. */
static bool take_resume(struct postern_sink *sink) {
	bool resumes = sink->paused && !sink->stopped &&
				   sink->count <= sink->count_max / 2 &&
				   sink->bytes <= sink->bytes_max / 2;
	if (resumes) {
		sink->paused = false;
	}
	return resumes;
}

/* With the mutex. What is quarantined is counted by its reason. */
static void count_verdict(struct postern_sink *sink, const struct entry *entry,
		enum postern_verdict verdict) {
	bool kept = entry->why && verdict == POSTERN_VERDICT_ACCEPTED;
	if (kept) {
		verdict = verdict_of(entry->why->code, entry->default_channel);
	}
	sink->verdicts[verdict] += !entry->fault;
	sink->quarantined += kept;
}

/* Deliver the completion of an entry that is no longer in the list; `busy` was
   raised for this call. */
static void deliver(struct postern_sink *sink, const struct entry *entry,
		const struct postern_receipt *receipt) {
	const struct postern_completion completion = {
		.tag = entry->tag,
		.verdict = verdict_of(receipt->error.code, entry->default_channel),
		.seq = receipt->seq,
		.error = &receipt->error,
	};
	if (completion.verdict == POSTERN_VERDICT_REJECTED) {
		report_rejected(sink, entry->tag, receipt->error.text);
	} else if (completion.verdict == POSTERN_VERDICT_ACCEPTED && entry->why) {
		report_unacceptable(sink, POSTERN_EVENT_SOURCE_QUARANTINED, entry->tag,
				entry->why->text);
	}
	sink->source->ops->complete(sink->source, &completion);
	(void)pthread_mutex_lock(&sink->mutex);
	count_verdict(sink, entry, completion.verdict);
	sink->count--;
	sink->bytes -= entry->bytes;
	bool resumes = take_resume(sink);
	(void)pthread_mutex_unlock(&sink->mutex);
	if (resumes) {
		sink->source->ops->resume(sink->source);
	}
	leave(sink);
}

/* The box has stored a message, or failed to. */
static void entry_decided(void *context,
		const struct postern_receipt *receipt) {
	struct entry *entry = context;
	struct postern_sink *sink = entry->sink;
	(void)pthread_mutex_lock(&sink->mutex);
	bool awaited = postern__list_linked(&entry->link);
	postern__list_remove(&entry->link);
	sink->busy += awaited;
	(void)pthread_mutex_unlock(&sink->mutex);
	if (awaited) {
		deliver(sink, entry, receipt);
	}
	free(entry->why);
	free(entry);
	unref(sink);
}

/* The box keeps a message that it cannot accept. */
static void entry_quarantined(void *context, const struct postern_error *why) {
	struct entry *entry = context;
	struct postern_error *copy =
			entry->why ? entry->why : malloc(sizeof(*copy));
	if (copy) { /* else it counts as accepted */
		*copy = *why;
		(void)pthread_mutex_lock(&entry->sink->mutex);
		entry->why = copy;
		(void)pthread_mutex_unlock(&entry->sink->mutex);
	}
}

static void room_appeared(struct postern__room_waiter *waiter) {
	struct postern_sink *sink = container_of(waiter, struct postern_sink, room);
	(void)pthread_mutex_lock(&sink->mutex);
	sink->awaiting_room = false;
	bool resumes = sink->paused && !sink->stopped;
	sink->paused = sink->paused && !resumes;
	sink->busy += resumes;
	(void)pthread_mutex_unlock(&sink->mutex);
	if (resumes) {
		sink->source->ops->resume(sink->source);
		leave(sink);
	}
	unref(sink);
}

/* Reserve a place for a message, and begin a call; false if there is none, and
   the source is paused: something is in flight then, whose completion resumes
   it. */
static bool reserve(struct postern_sink *sink, size_t bytes) {
	(void)pthread_mutex_lock(&sink->mutex);
	bool full = sink->count >= sink->count_max ||
				(sink->count > 0 && sink->bytes + bytes > sink->bytes_max);
	bool reserved = !full && !sink->stopped;
	if (reserved) {
		sink->count++;
		sink->bytes += bytes;
		sink->busy++;
	} else {
		sink->paused = true;
	}
	(void)pthread_mutex_unlock(&sink->mutex);
	return reserved;
}

/* The message was not queued: complete it on this thread. */
static void fail_at_once(struct postern_sink *sink, const struct entry *entry,
		const struct postern_receipt *receipt) {
	(void)pthread_mutex_lock(&sink->mutex);
	sink->busy++;
	(void)pthread_mutex_unlock(&sink->mutex);
	deliver(sink, entry, receipt);
}

/* The box was full: give the place back, and pause the source until there is
   room. */
static void pause_for_room(struct postern_sink *sink, size_t bytes) {
	(void)pthread_mutex_lock(&sink->mutex);
	sink->count--;
	sink->bytes -= bytes;
	sink->paused = true;
	bool waits = !sink->awaiting_room;
	sink->awaiting_room = true;
	sink->refs += waits;
	(void)pthread_mutex_unlock(&sink->mutex);
	if (waits && !postern__room_await(sink->context.box, &sink->room)) {
		room_appeared(&sink->room);
	}
}

static int queue_entry(struct postern_sink *sink, const char *channel,
		const struct postern_message *message, const char *reason,
		struct entry *entry, struct postern_error *error) {
	struct postern_box *box = sink->context.box;
	const struct postern__accept_call call = {
		.done = entry_decided,
		.quarantined = reason || (sink->quarantines && !entry->fault)
							   ? entry_quarantined
							   : NULL,
		.context = entry,
	};
	return reason ? postern__quarantine_async(box, channel, message, reason,
							&call, error)
				  : postern__accept_async(box, channel, message, &call, error);
}

/* Queue a message whose place is reserved.
   reason: why it is quarantined; NULL: it is accepted. */
static int queue_message(struct postern_sink *sink, const char *channel,
		const struct postern_message *message, const char *reason,
		const struct entry *given, struct postern_error *error) {
	struct entry *entry = malloc(sizeof(*entry));
	if (!entry) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	*entry = *given;
	(void)pthread_mutex_lock(&sink->mutex);
	postern__list_push_back(&sink->entries, &entry->link);
	sink->refs++;
	(void)pthread_mutex_unlock(&sink->mutex);
	int r = queue_entry(sink, channel, message, reason, entry, error);
	if (r) {
		(void)pthread_mutex_lock(&sink->mutex);
		postern__list_remove(&entry->link);
		sink->refs--; /* never the last: the runner has one */
		(void)pthread_mutex_unlock(&sink->mutex);
		free(entry->why);
		free(entry);
	}
	return r;
}

static bool accept_entry(struct postern_sink *sink, const char *channel,
		const struct postern_message *message, const char *reason, uint64_t tag,
		bool fault) {
	const struct entry entry = {
		.sink = sink,
		.tag = tag,
		.bytes = message->body_len,
		.default_channel = channel == NULL,
		.fault = fault,
	};
	if (!reserve(sink, entry.bytes)) {
		return false;
	}
	struct postern_receipt receipt = { 0 };
	int r = queue_message(sink, channel ? channel : sink->channel, message,
			reason, &entry, &receipt.error);
	if (r == POSTERN_E_BUSY) {
		pause_for_room(sink, entry.bytes);
	} else if (r) {
		fail_at_once(sink, &entry, &receipt);
	}
	leave(sink); /* NOLINT(clang-analyzer-unix.Malloc): the caller has a ref */
	return r != POSTERN_E_BUSY;
}

bool postern_sink_accept(struct postern_sink *sink, const char *channel,
		const struct postern_message *message, uint64_t tag) {
	return accept_entry(sink, channel, message, NULL, tag, false);
}

bool postern_sink_quarantine(struct postern_sink *sink, const char *channel,
		const struct postern_message *message, const char *reason,
		uint64_t tag) {
	return accept_entry(sink, channel, message, reason, tag, false);
}

void postern_sink_set_quarantine(struct postern_sink *sink, bool on) {
	sink->quarantines = on;
}

/* Nothing has to be published: complete it on this thread. */
static bool complete_at_once(struct postern_sink *sink, uint64_t tag,
		const struct postern_receipt *receipt) {
	const struct entry entry = { .sink = sink, .tag = tag, .fault = true };
	if (!reserve(sink, 0)) {
		return false;
	}
	fail_at_once(sink, &entry, receipt);
	leave(sink);
	return true;
}

bool postern_sink_fault(struct postern_sink *sink, const char *channel,
		const struct postern_message *message, uint32_t attempts,
		const char *reason, uint64_t tag) {
	struct postern_receipt receipt = { 0 };
	struct postern__fault fault;
	int r = postern__fault_init(&fault, sink->context.box,
			channel ? channel : sink->channel, message, attempts, reason,
			&receipt.error);
	if (r || !fault.to[0]) {
		return complete_at_once(sink, tag, &receipt);
	}
	return accept_entry(sink, fault.to, &fault.message, NULL, tag, true);
}

void postern_sink_reject(struct postern_sink *sink, uint64_t tag,
		const char *why) {
	(void)pthread_mutex_lock(&sink->mutex);
	sink->verdicts[POSTERN_VERDICT_REJECTED]++;
	(void)pthread_mutex_unlock(&sink->mutex);
	report_rejected(sink, tag, why);
}

/* Returns whether the state changed. */
static bool set_connected(struct postern_sink *sink, bool connected,
		const char *why) {
	(void)pthread_mutex_lock(&sink->mutex);
	bool changed = sink->connected != connected || sink->since_ms == 0;
	sink->connected = connected;
	if (changed) {
		sink->since_ms = wall_ms(sink);
	}
	if (why) {
		changed = changed ||
				  strncmp(sink->error, why, sizeof(sink->error) - 1) != 0;
		sink->error_at_ms = wall_ms(sink);
		(void)snprintf(sink->error, sizeof(sink->error), "%s", why);
	}
	(void)pthread_mutex_unlock(&sink->mutex);
	return changed;
}

void postern_sink_connected(struct postern_sink *sink) {
	if (set_connected(sink, true, NULL)) {
		postern__emit_text(sink->context.box,
				&(struct postern_event){
						.kind = POSTERN_EVENT_SOURCE_CONNECTED,
						.source = sink->name,
				},
				"connected source '%s'", sink->name);
	}
}

void postern_sink_disconnected(struct postern_sink *sink, const char *why) {
	if (set_connected(sink, false, why) && why) {
		postern__emit_text(sink->context.box,
				&(struct postern_event){
						.kind = POSTERN_EVENT_SOURCE_DISCONNECTED,
						.source = sink->name,
						.error = why,
				},
				"source '%s': %s", sink->name, why);
	}
}

void postern_sink_set_lag(struct postern_sink *sink, int64_t lag) {
	(void)pthread_mutex_lock(&sink->mutex);
	sink->lag = lag < 0 ? -1 : lag;
	(void)pthread_mutex_unlock(&sink->mutex);
}

void postern_sink_set_dead_letters(struct postern_sink *sink, int64_t count) {
	(void)pthread_mutex_lock(&sink->mutex);
	sink->dead_letters = count < 0 ? -1 : count;
	(void)pthread_mutex_unlock(&sink->mutex);
}

int64_t postern_sink_retry_delay_ms(const struct postern_sink *sink) {
	return sink->context.retry_delay_ms;
}

bool postern_sink_store_works(const struct postern_sink *sink) {
	struct postern_box *box = sink->context.box;
	(void)pthread_mutex_lock(&box->mutex);
	bool works = !box->store_failing;
	(void)pthread_mutex_unlock(&box->mutex);
	return works;
}

int postern__sink_collect(struct postern_sink *sink, bool rests,
		struct postern__collected *out, struct postern_error *error) {
	*out = (struct postern__collected){ 0 };
	/* The batch counts as one message in flight, so that a drain waits for
	   it. */
	if (!reserve(sink, 0)) {
		return POSTERN_OK;
	}
	int r = postern__collect(sink->context.box, rests, out, error);
	(void)pthread_mutex_lock(&sink->mutex);
	sink->count--;
	sink->verdicts[POSTERN_VERDICT_ACCEPTED] += out->accepted;
	sink->verdicts[POSTERN_VERDICT_REJECTED] += out->refused;
	(void)pthread_mutex_unlock(&sink->mutex);
	leave(sink);
	return r;
}

int postern__sink_start(struct postern_sink *sink,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&sink->mutex);
	sink->stopped = false;
	sink->paused = false;
	sink->connected = false;
	sink->since_ms = 0;
	(void)pthread_mutex_unlock(&sink->mutex);
	int r = sink->source->ops->start(sink->source, sink, error);
	(void)pthread_mutex_lock(&sink->mutex);
	sink->started = r == POSTERN_OK;
	(void)pthread_mutex_unlock(&sink->mutex);
	return r;
}

void postern__sink_stop(struct postern_sink *sink) {
	(void)pthread_mutex_lock(&sink->mutex);
	bool stops = sink->started && !sink->stopped;
	sink->stopped = true;
	(void)pthread_mutex_unlock(&sink->mutex);
	if (stops) {
		sink->source->ops->stop(sink->source);
	}
}

size_t postern__sink_in_flight(struct postern_sink *sink) {
	(void)pthread_mutex_lock(&sink->mutex);
	size_t count = sink->count;
	(void)pthread_mutex_unlock(&sink->mutex);
	return count;
}

/* Wait for the end of the calls in progress. */
static void await_idle(struct postern_sink *sink) {
	(void)pthread_mutex_lock(&sink->mutex);
	while (sink->busy > 0) {
		postern__wait(&sink->idle, &sink->mutex, -1);
	}
	(void)pthread_mutex_unlock(&sink->mutex);
}

/* Complete the entries of the list as unavailable. The box still has them, and
   frees them. */
static void abandon_entries(struct postern_sink *sink) {
	struct postern_receipt receipt = { 0 };
	(void)postern__fail(&receipt.error, POSTERN_E_UNAVAILABLE,
			"the runner stopped before the message was stored");
	(void)pthread_mutex_lock(&sink->mutex);
	struct postern__list *link;
	while ((link = postern__list_pop_front(&sink->entries))) {
		/* The box may free the entry as soon as the mutex is released. */
		struct entry entry = *container_of(link, struct entry, link);
		entry.why = NULL;
		sink->busy++;
		(void)pthread_mutex_unlock(&sink->mutex);
		deliver(sink, &entry, &receipt);
		(void)pthread_mutex_lock(&sink->mutex);
	}
	(void)pthread_mutex_unlock(&sink->mutex);
}

void postern__sink_end(struct postern_sink *sink) {
	(void)pthread_mutex_lock(&sink->mutex);
	bool ends = sink->started;
	sink->started = false;
	(void)pthread_mutex_unlock(&sink->mutex);
	if (!ends) {
		return;
	}
	await_idle(sink); /* it is stopped: no further call begins */
	if (postern__room_forget(sink->context.box, &sink->room)) {
		(void)pthread_mutex_lock(&sink->mutex);
		sink->awaiting_room = false;
		sink->refs--; /* the caller has another */
		(void)pthread_mutex_unlock(&sink->mutex);
	}
	abandon_entries(sink);
	await_idle(sink);
	sink->source->ops->end(sink->source);
}

void postern__sink_state(struct postern_sink *sink,
		struct postern_source_state *out) {
	*out = (struct postern_source_state){ .kind = sink->source->ops->name };
	(void)snprintf(out->name, sizeof(out->name), "%s", sink->name);
	(void)snprintf(out->channel, sizeof(out->channel), "%s",
			sink->channel ? sink->channel : "");
	(void)pthread_mutex_lock(&sink->mutex);
	out->running = sink->started && !sink->stopped;
	out->connected = sink->connected;
	out->paused = sink->paused && out->running;
	out->since_ms = sink->since_ms;
	out->lag = sink->lag;
	out->error_at_ms = sink->error_at_ms;
	memcpy(out->error, sink->error, sizeof(out->error));
	out->in_flight = sink->count;
	out->accepted = sink->verdicts[POSTERN_VERDICT_ACCEPTED];
	out->duplicates = sink->verdicts[POSTERN_VERDICT_DUPLICATE];
	out->conflicts = sink->verdicts[POSTERN_VERDICT_CONFLICT];
	out->rejected = sink->verdicts[POSTERN_VERDICT_REJECTED];
	out->unavailable = sink->verdicts[POSTERN_VERDICT_UNAVAILABLE];
	out->failed = sink->verdicts[POSTERN_VERDICT_FAILED];
	out->quarantined = sink->quarantined;
	out->dead_letters = sink->dead_letters;
	(void)pthread_mutex_unlock(&sink->mutex);
}
