/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_WEBHOOK_ENGINE_H
#define POSTERN_WEBHOOK_ENGINE_H

/*
 * The requests in progress: one thread of this process sends all of them,
 * hundreds at a time, over connections that are kept; another one makes the
 * calls of the store that some answers ask for.
 */

#include <curl/curl.h>
#include <postern/error.h>
#include <stdatomic.h>

#include "base/list.h"

struct postern__webhook_transfer {
	/* Set by the owner, valid until ended() is called. */
	CURL *easy;
	/* Called once on the thread of the engine; the transfer may be freed in
	   it, or passed to postern__webhook_engine_defer(). */
	void (*ended)(struct postern__webhook_transfer *transfer, CURLcode code);
	/* Called once on the thread for what may block; may free the transfer. */
	void (*deferred)(struct postern__webhook_transfer *transfer);

	/* Used by the engine. */
	struct postern__list link;
	atomic_bool abort;
};

/* Start the threads, unless another owner has. Every call needs one of
   postern__webhook_engine_release(), when no transfer of the caller is in
   progress; the last one ends the threads. */
int postern__webhook_engine_acquire(struct postern_error *error);
void postern__webhook_engine_release(void);

/* Send, soon. */
void postern__webhook_engine_start(struct postern__webhook_transfer *transfer);
/* End a transfer soon, with CURLE_ABORTED_BY_CALLBACK. It must not have been
   freed yet. */
void postern__webhook_engine_abort(struct postern__webhook_transfer *transfer);
/* In ended(): call deferred() on the other thread. */
void postern__webhook_engine_defer(struct postern__webhook_transfer *transfer);

#endif
