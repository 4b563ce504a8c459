/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_SOURCE_H
#define POSTERN_SYS_SOURCE_H

/*
 * The interface between a runner and the message sources: what reads messages
 * from a transport (a queue of a broker, a file, a table, HTTP requests) and
 * feeds them to channels.
 *
 *   transport --message--> source --postern_sink_accept(tag)--> sink --> box
 *   transport <----ack---- source <-------complete(tag)-------- sink <-- box
 *
 * A source passes each message to its sink with a tag, a number of its own
 * choice. Every message that the sink takes gets exactly one completion, which
 * names the tag and the verdict. The source acknowledges the message to its
 * transport because of the completion and never before: only then is the
 * message durable. Completions come in any order and on any thread.
 *
 * The life of a source, as the runner drives it:
 *
 *   start -> (complete | resume)* -> stop -> complete* -> end -> destroy
 *                                                          |
 *   start <------------------------------------------------+
 *
 * Acknowledging on the thread of the connection. Most client libraries allow
 * one thread per connection, and complete() is called on another one. So
 * complete() queues the completion and wakes the connection's thread, which
 * acknowledges. struct postern_completions below is that queue, with a file
 * descriptor to poll beside the socket:
 *
 *   complete(): postern_completions_put()
 *   resume():   postern_completions_wake()
 *   stop():     set a flag; postern_completions_wake()
 *   thread:     poll(socket, postern_completions_fd()), then take completions
 *               and acknowledge, then read messages while the sink takes them
 *
 * Acknowledging a whole prefix (Kafka and Redis Streams offsets, `multiple` of
 * AMQP): number the messages 1, 2, 3 … as they arrive, use that as the tag, and
 * let struct postern_prefix below find up to where all are completed.
 *
 * Answering a request (HTTP): the tag finds the request; complete() wakes the
 * thread that waits for it, or resumes the suspended connection. A program that
 * just wants to wait needs no source: postern_box_accept().
 */

#include <postern/error.h>
#include <postern/export.h>
#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_option;
struct postern_source;

/* Where a source puts its messages. Owned by the runner; valid from start()
   until end() has returned. Its functions may be called from any thread, but
   not from inside complete(), resume() and stop(). */
struct postern_sink;

enum postern_verdict {
	/* Durable. Acknowledge. */
	POSTERN_VERDICT_ACCEPTED,
	/* Was accepted before. Acknowledge. */
	POSTERN_VERDICT_DUPLICATE,
	/* Another message with this identity was accepted before, and is kept.
	   Acknowledge, or move it to where such messages are examined: sending it
	   again changes nothing. */
	POSTERN_VERDICT_CONFLICT,
	/* Can never be accepted; the error has the reason. As for a conflict. */
	POSTERN_VERDICT_REJECTED,
	/* Not accepted, or not known to be: the store is unavailable, or the
	   runner stops. Do not acknowledge; send it again later. */
	POSTERN_VERDICT_UNAVAILABLE,
	/* A handler failed, in a channel that answers with its result. Send it
	   again, as often as the transport does that; then give it up:
	   postern_sink_fault(). */
	POSTERN_VERDICT_FAILED
};
#define POSTERN_VERDICT_COUNT 6

/* "accepted", "duplicate", … */
POSTERN_EXPORT const char *postern_verdict_name(enum postern_verdict verdict);

/* The result of one message. */
struct postern_completion {
	uint64_t tag;
	enum postern_verdict verdict;
	/* The message's number; 0 if it is not stored. */
	int64_t seq;
	/* The code and why it was not accepted. Borrowed for the call. */
	const struct postern_error *error;
};

/*
 * Pass a message to the box. The message is copied.
 *
 * Returns true if the sink takes the message: complete() will be called with
 * this tag, possibly before this call returns, and possibly on this thread (a
 * message that breaks a limit). So call it with no mutex locked that
 * complete() or resume() locks.
 *
 * Returns false if too many messages are waiting to be stored: the source keeps
 * this message, or leaves it in its transport, and is paused. resume() will be
 * called when there is room, possibly before this call returns: count the
 * calls of resume(), or use an eventfd, rather than set a flag after it. After
 * stop() every call returns false, and resume() is not called.
 *
 * channel  NULL: the one that the source was added for.
 */
POSTERN_EXPORT bool postern_sink_accept(struct postern_sink *sink,
		const char *channel, const struct postern_message *message,
		uint64_t tag);

/*
 * Publish that the transport gives up a message that failed or was rejected, as
 * postern_box_fault() does. As postern_sink_accept(): the completion says
 * whether the event is durable (accepted or duplicate, also if the channel
 * publishes none), and only then the message is removed from the transport.
 *
 * attempts  how often it was delivered.
 * reason    the text of the last completion's error.
 */
POSTERN_EXPORT bool postern_sink_fault(struct postern_sink *sink,
		const char *channel, const struct postern_message *message,
		uint32_t attempts, const char *reason, uint64_t tag);

/*
 * What can never be accepted is quarantined: kept by the store under an id of
 * its own, poisoned with the reason, as far as there is room
 * (POSTERN_QUARANTINE_BODY_LEN_MAX); a message that no handler wants is parked.
 * For the source it is accepted then. In a channel that stores no messages
 * (mode `guard` or `direct`) such a message is rejected. To be called in
 * start(); off at first.
 */
POSTERN_EXPORT void postern_sink_set_quarantine(struct postern_sink *sink,
		bool on);

/* Quarantine a message that cannot even be decoded: what there is of it. As
   postern_sink_accept(), also while it is off. */
POSTERN_EXPORT bool postern_sink_quarantine(struct postern_sink *sink,
		const char *channel, const struct postern_message *message,
		const char *reason, uint64_t tag);

/* Count and log a message that cannot even be decoded. */
POSTERN_EXPORT void postern_sink_reject(struct postern_sink *sink, uint64_t tag,
		const char *why);

/* The state of the connection, reported when it changes; the runner logs each
   change. A source is disconnected at first. why: NULL if this is no error (the
   input ended). */
POSTERN_EXPORT void postern_sink_connected(struct postern_sink *sink);
POSTERN_EXPORT void postern_sink_disconnected(struct postern_sink *sink,
		const char *why);

/* How much of the transport is not accepted yet, as far as the source knows;
   negative: unknown, as at first. Messages, unless the documentation of the
   source names another unit. */
POSTERN_EXPORT void postern_sink_set_lag(struct postern_sink *sink,
		int64_t lag);

/* How many messages are where the transport keeps those it has given up;
   negative: unknown, as at first. */
POSTERN_EXPORT void postern_sink_set_dead_letters(struct postern_sink *sink,
		int64_t count);

/* How long to wait before a reconnect, or before an unavailable message is
   sent again: the runner's restart_delay_ms. */
POSTERN_EXPORT int64_t postern_sink_retry_delay_ms(
		const struct postern_sink *sink);

/* Whether the store works, as far as the runner knows, which tests a store that
   has failed every restart_delay_ms. A source whose transport limits how often
   a message is received need not receive any meanwhile. */
POSTERN_EXPORT bool postern_sink_store_works(const struct postern_sink *sink);

#define POSTERN_SOURCE_OPS_VERSION 1

/*
 * The functions of a source. Every one is required. Except for complete() and
 * resume(), the runner makes one call at a time.
 */
struct postern_source_ops {
	unsigned version;     /* POSTERN_SOURCE_OPS_VERSION; new slots at the end */
	const char *name;     /* the kind: "lines" */
	const char *tag_name; /* what a tag counts, for the log: "line" */

	/*
	 * Start threads, and connect on them: a transport that cannot be reached
	 * is reported as disconnected and tried again, it is no error of this call.
	 */
	int (*start)(struct postern_source *source, struct postern_sink *sink,
			struct postern_error *error);

	/* One message has its result. Called on the thread that committed it: must
	   return quickly and not call functions of sink, box or runner. */
	void (*complete)(struct postern_source *source,
			const struct postern_completion *completion);

	/* There is room again after postern_sink_accept() returned false. May also
	   be called when it did not. As complete() otherwise. */
	void (*resume)(struct postern_source *source);

	/* Read no further messages from the transport. Must not wait: messages
	   that the sink has taken are completed afterwards, and are still to be
	   acknowledged. */
	void (*stop)(struct postern_source *source);

	/*
	 * Every message that was taken has its completion (unavailable, if the
	 * store did not answer in time). Acknowledge what there is to acknowledge,
	 * disconnect, end the threads. The source may be started again.
	 */
	void (*end)(struct postern_source *source);

	/* Free the source. It was never started, or has ended. */
	void (*destroy)(struct postern_source *source);
};

/* The common head. A source embeds it as the first member, named `base`. */
struct postern_source {
	const struct postern_source_ops *ops;
};

#define POSTERN_SOURCE_KIND_COUNT_MAX 64

/*
 * A kind of source, so that it can be added by its name, from a configuration
 * or by postern_runner_add_source(). Zero the struct, set `size` and the
 * members that apply; what it points to must stay valid until the process ends.
 */
struct postern_source_kind {
	size_t size;
	/* Also in a configuration: a lower-case letter, then letters, digits and
	   '_'. */
	const char *name;
	const char *help; /* a few words, no full stop */

	/* Its options, and the size of the struct that their offsets refer to. */
	const struct postern_option *options;
	size_t option_count;
	size_t settings_size;

	/* Create a source. `settings` is that struct: fallbacks are set, required
	   options have a value, texts are valid for the call. Nothing may be
	   connected yet; POSTERN_E_INVALID with a text about an option. */
	int (*create)(const void *settings, struct postern_source **out,
			struct postern_error *error);

	/* What is valid and may lose messages: writes one sentence, or an empty
	   text. `settings` is as for create(). May be NULL. */
	void (*caution)(const void *settings, char *out, size_t size);
};

/*
 * Register a kind, before the first runner or configuration uses it; the row is
 * copied. POSTERN_E_INVALID: the row is wrong, its name is in use, or there are
 * POSTERN_SOURCE_KIND_COUNT_MAX already.
 */
POSTERN_EXPORT int
postern_source_kind_register(const struct postern_source_kind *kind,
		struct postern_error *error);

/*
 * A bounded queue of completions for the thread that owns a connection.
 *
 * capacity  the most messages that the source has in flight: passed to the
 *           sink, and their completions not yet taken. The source must not
 *           exceed it.
 */
struct postern_completions;

struct postern_completed {
	uint64_t tag;
	enum postern_verdict verdict;
};

POSTERN_EXPORT int postern_completions_create(size_t capacity,
		struct postern_completions **out, struct postern_error *error);
/* NULL is fine. */
POSTERN_EXPORT void postern_completions_destroy(
		struct postern_completions *completions);
/* Readable when completions were put or wake() was called since the last
   take(). */
POSTERN_EXPORT int postern_completions_fd(
		const struct postern_completions *completions);
POSTERN_EXPORT void
postern_completions_put(struct postern_completions *completions,
		const struct postern_completion *completion);
POSTERN_EXPORT void postern_completions_wake(
		struct postern_completions *completions);
/* Take up to `max` completions; returns how many. */
POSTERN_EXPORT size_t
postern_completions_take(struct postern_completions *completions,
		struct postern_completed *out, size_t max);

/*
 * Finds up to where all of a sequence of positions are done, when they are done
 * in any order. Positions are 1, 2, 3 …; those from `first` to
 * first + capacity - 1 can be done at any time. One thread at a time.
 */
struct postern_prefix;

POSTERN_EXPORT int postern_prefix_create(size_t capacity,
		struct postern_prefix **out, struct postern_error *error);
/* NULL is fine. */
POSTERN_EXPORT void postern_prefix_destroy(struct postern_prefix *prefix);
/* The first position that is not done: all before it are. */
POSTERN_EXPORT uint64_t postern_prefix_first(
		const struct postern_prefix *prefix);
/* A position is done; again is fine. Returns postern_prefix_first(). */
POSTERN_EXPORT uint64_t postern_prefix_done(struct postern_prefix *prefix,
		uint64_t position);
/* Begin again with `first`: another connection, other positions. */
POSTERN_EXPORT void postern_prefix_reset(struct postern_prefix *prefix,
		uint64_t first);

#ifdef __cplusplus
}
#endif

#endif
