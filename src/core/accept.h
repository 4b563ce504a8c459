/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_ACCEPT_H
#define POSTERN_CORE_ACCEPT_H

/*
 * Messages in memory and on their way into the store: their content, the
 * commit queue, the calls that wait for receipts.
 */

#include "core/box.h"
#include "core/run.h"

/*
 * A call that waits for the receipts of its messages. A commit wakes it when
 * all of them are decided, or when it should write the next group: with one
 * condition for all calls, each commit would wake every one of them.
 */
struct postern__waiter {
	struct postern__list link; /* box->waiters, while a message is queued */
	pthread_cond_t wake;
	size_t queued;
	size_t undecided; /* queued, or being written */
};

/*
 * A message in memory, with everything that is needed to accept it and to run
 * its deliveries, in one allocation. Freed with its last reference; `refs` is
 * guarded by the box's mutex.
 */
struct postern__content_keys;

struct postern__content {
	unsigned refs;
	size_t bytes;
	struct postern__channel *channel;
	struct postern_message message;
	struct postern__content_keys *keys; /* NULL: by the rule `id` */

	/* Accepting. */
	struct postern__item item;
	struct postern_accept accept;
	struct postern_receipt receipt;
	struct postern__waiter *waiter; /* the call that waits; NULL: none */
	postern_accepted *done;         /* may be NULL */
	/* NULL: what conflicts is not quarantined */
	void (*quarantined)(void *context, const struct postern_error *why);
	void *context;

	/* Inline delivery: the runs whose results are not passed on, and what they
	   come to, in the receipt. */
	bool is_inline;
	size_t inline_left;

	/* Running: one per route. */
	struct postern_run *runs;
	size_t run_count;
};

/* content.c */
struct postern__content *
postern__content_create(struct postern__channel *channel,
		const struct postern_message *message, size_t run_count);
/* With the mutex held. */
void postern__content_release(struct postern__content *content);

/* accept.c */
/* POSTERN_E_BUSY if the calling thread is in a transactional handler of this
   box: that holds the store's writer. */
int postern__check_no_transaction(struct postern_box *box,
		struct postern_error *error);
/* Create the content of a staged message, which the store will accept, and
   reserve its leases. Its size and the channel's `unrouted: reject` are not
   checked: no sender waits for an error. */
int postern__accept_staged(struct postern_box *box,
		struct postern__channel *channel, const struct postern_message *message,
		struct postern__content **out, struct postern_error *error);
/* With the mutex: the content was removed from box->accepts. */
void postern__accept_dequeued(struct postern_box *box,
		struct postern__content *content);
/* Why messages of a channel are refused; zeroed before the first call. */
struct postern__closed {
	int64_t channel;
	struct postern_error error;
};
/* The store refused the message, because its channel is closed: fill in the
   error, unless it is for that channel already. Without the mutex. Returns
   POSTERN_E_UNAVAILABLE. */
int postern__closed_error(struct postern_box *box,
		const struct postern__content *content, struct postern__closed *closed);
/* After the commit, without the mutex: fill in the receipt and pass it to the
   sender. `code` and `error` are those of the commit; content->accept has the
   code of the message. */
void postern__accept_decide(struct postern_box *box,
		struct postern__content *content, int code,
		const struct postern_error *error);
/* With the mutex: queue the runs that were leased, release the other
   reservations and the commit queue's reference. */
void postern__accept_finish(struct postern_box *box,
		struct postern__content *content);
bool postern__handler_wants(const struct postern__handler *handler,
		const char *type);
/* Whether this process has room for one more lease of the handler. */
bool postern__handler_has_room(const struct postern_box *box,
		const struct postern__handler *handler, size_t bytes);
/* A handler's share of the run queue: the most leases and bytes that it may
   have in memory. */
size_t postern__share_count(const struct postern_box *box);
size_t postern__share_bytes(const struct postern_box *box);

/* collect.c */
struct postern__collected {
	size_t accepted; /* also duplicates and conflicts */
	size_t refused;
	bool more; /* more may be staged */
};
/* Accept one batch of staged messages; none in a store without staging.
   rests: this node will not poll again soon, see postern_collection. */
int postern__collect(struct postern_box *box, bool rests,
		struct postern__collected *out, struct postern_error *error);
/* Count the staged messages of channels that no running node has, for at most
   `max` channels; none in a store without staging. */
int postern__stranded(struct postern_box *box, size_t max,
		struct postern_memory *memory, struct postern_stranded **out,
		size_t *count_out, struct postern_error *error);

#endif
