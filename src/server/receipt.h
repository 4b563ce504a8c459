/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_RECEIPT_H
#define POSTERN_SERVER_RECEIPT_H

/* Responses to accepted messages, one or a batch. */

#include <stdbool.h>
#include <stdint.h>

struct postern_receipt;
struct postern__buf;
struct postern__call;
struct postern__open_store;
struct postern__request;
struct postern__draft;
struct postern__response;

/* Write members into an open object: those that name a stored message (an id of
   NULL is left out), and whether an accepted message is parked, and why. */
void postern__write_identity(struct postern__buf *body, const char *store,
		const char *id, const char *source, int64_t seq);
void postern__write_parked(struct postern__buf *body,
		const struct postern_receipt *receipt);

/* Write the response to one message. answered: its handlers have run, and the
   receipt has their result. */
void postern__write_receipt(struct postern__response *response,
		const struct postern_receipt *receipt, bool answered, const char *store,
		const char *id, const char *source);
/* Members of an open object that name a message whose handlers have run. */
void postern__write_answered(struct postern__buf *body, const char *store,
		const char *id, const char *source);

/*
 * A response that waits for the receipt of its message: create it, then have
 * postern__awaited_finish() called with it, exactly once, or free() it. The
 * response belongs to that call, which completes it. NULL: out of memory.
 * An id that was generated is not in the response to a copy.
 */
struct postern__awaited;
struct postern__awaited *postern__awaited_create(struct postern__call *call,
		const struct postern__open_store *store,
		const struct postern__draft *draft, const char *source, bool answered);
void postern__awaited_finish(void *context,
		const struct postern_receipt *receipt);

/* draft.c: whether the content type is one of CloudEvents, so that the
   body has the attributes, too. */
bool postern__request_has_event(const struct postern__request *request);

/* api_batch.c: accept the batch of events in the body of a request. */
void postern__accept_batch(struct postern__call *call,
		const struct postern__open_store *store);

#endif
