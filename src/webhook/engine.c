/* SPDX-License-Identifier: MIT */

/*
 * The thread that sends requests, with libcurl's multi interface, and the
 * thread for what may block: calls of the store, which may take as long as the
 * store does, and no request waits for them.
 *
 * Both exist from the first handler that needs them to the last. Other threads
 * put transfers into `added` and `deferred`; the list of those in progress and
 * the multi handle, but for its wake-up, belong to the sending thread alone.
 */

#include "webhook/engine.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "base/container.h"
#include "base/fail.h"

/* Connections that are kept after their requests, of all handlers. */
#define IDLE_CONNECTIONS_MAX 256L
/* Only limits how long libcurl may sleep: wake-ups end that. */
#define POLL_MS 1000

static struct {
	/* Serialises owners, so that threads that end are gone before the next ones
	   start. */
	pthread_mutex_t owners_mutex;
	size_t owner_count;
	pthread_t sender;
	pthread_t helper;

	pthread_mutex_t mutex;
	pthread_cond_t helper_wake;
	/* With the mutex. */
	struct postern__list added;
	struct postern__list deferred;
	bool aborts; /* a transfer has `abort` set */
	bool ending;

	CURLM *multi;
	struct postern__list running;
} engine = {
	.owners_mutex = PTHREAD_MUTEX_INITIALIZER,
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.helper_wake = PTHREAD_COND_INITIALIZER,
};

static void init_libcurl(void) {
	(void)curl_global_init(CURL_GLOBAL_DEFAULT); /* else each use fails */
}

void postern__webhook_engine_start(struct postern__webhook_transfer *transfer) {
	(void)pthread_mutex_lock(&engine.mutex);
	/* Whoever put the first one there wakes the thread for all of them. */
	bool first = postern__list_empty(&engine.added);
	postern__list_push_back(&engine.added, &transfer->link);
	(void)pthread_mutex_unlock(&engine.mutex);
	if (first) {
		(void)curl_multi_wakeup(engine.multi);
	}
}

void postern__webhook_engine_abort(struct postern__webhook_transfer *transfer) {
	atomic_store(&transfer->abort, true);
	(void)pthread_mutex_lock(&engine.mutex);
	engine.aborts = true;
	(void)pthread_mutex_unlock(&engine.mutex);
	(void)curl_multi_wakeup(engine.multi);
}

void postern__webhook_engine_defer(struct postern__webhook_transfer *transfer) {
	(void)pthread_mutex_lock(&engine.mutex);
	postern__list_push_back(&engine.deferred, &transfer->link);
	(void)pthread_cond_signal(&engine.helper_wake);
	(void)pthread_mutex_unlock(&engine.mutex);
}

static void end_transfer(struct postern__webhook_transfer *transfer,
		CURLcode code) {
	postern__list_remove(&transfer->link);
	/* Fails only for a handle that is not in it. */
	(void)curl_multi_remove_handle(engine.multi, transfer->easy);
	transfer->ended(transfer, code);
}

/* A transfer that was aborted before it came here is not begun. */
static CURLcode begin_transfer(struct postern__webhook_transfer *transfer) {
	if (atomic_load(&transfer->abort)) {
		return CURLE_ABORTED_BY_CALLBACK;
	}
	bool ok = curl_easy_setopt(transfer->easy, CURLOPT_PRIVATE, transfer) ==
					  CURLE_OK &&
			  curl_multi_add_handle(engine.multi, transfer->easy) == CURLM_OK;
	return ok ? CURLE_OK : CURLE_OUT_OF_MEMORY;
}

static void add_transfer(struct postern__webhook_transfer *transfer) {
	CURLcode code = begin_transfer(transfer);
	if (code == CURLE_OK) {
		postern__list_push_back(&engine.running, &transfer->link);
	} else {
		transfer->ended(transfer, code);
	}
}

static void abort_marked(void) {
	struct postern__list *link = engine.running.next;
	while (link != &engine.running) {
		struct postern__webhook_transfer *transfer =
				container_of(link, struct postern__webhook_transfer, link);
		link = link->next;
		if (atomic_load(&transfer->abort)) {
			end_transfer(transfer, CURLE_ABORTED_BY_CALLBACK);
		}
	}
}

/* Take what waits; false: the thread ends. */
static bool take_added(void) {
	struct postern__list taken;
	struct postern__list *link;
	postern__list_init(&taken);
	(void)pthread_mutex_lock(&engine.mutex);
	while ((link = postern__list_pop_front(&engine.added))) {
		postern__list_push_back(&taken, link);
	}
	bool aborts = engine.aborts;
	bool ending = engine.ending;
	engine.aborts = false;
	(void)pthread_mutex_unlock(&engine.mutex);
	while ((link = postern__list_pop_front(&taken))) {
		add_transfer(
				container_of(link, struct postern__webhook_transfer, link));
	}
	if (aborts) {
		abort_marked();
	}
	return !ending;
}

static void report_ended(void) {
	int left;
	CURLMsg *message;
	while ((message = curl_multi_info_read(engine.multi, &left))) {
		char *transfer = NULL;
		CURLcode code = message->data.result;
		if (message->msg == CURLMSG_DONE &&
				curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE,
						&transfer) == CURLE_OK) {
			end_transfer((struct postern__webhook_transfer *)(void *)transfer,
					code);
		}
	}
}

static void *send_loop(void *context) {
	(void)context;
	while (take_added()) {
		int running;
		/* What can fail here is reported for each transfer. */
		(void)curl_multi_perform(engine.multi, &running);
		report_ended();
		(void)curl_multi_poll(engine.multi, NULL, 0, POLL_MS, NULL);
	}
	return NULL;
}

static void *help_loop(void *context) {
	(void)context;
	(void)pthread_mutex_lock(&engine.mutex);
	while (!engine.ending) {
		struct postern__list *link = postern__list_pop_front(&engine.deferred);
		if (!link) {
			(void)pthread_cond_wait(&engine.helper_wake, &engine.mutex);
			continue;
		}
		struct postern__webhook_transfer *transfer =
				container_of(link, struct postern__webhook_transfer, link);
		(void)pthread_mutex_unlock(&engine.mutex);
		transfer->deferred(transfer);
		(void)pthread_mutex_lock(&engine.mutex);
	}
	(void)pthread_mutex_unlock(&engine.mutex);
	return NULL;
}

/* Signals are for other threads, and a connection that breaks is no SIGPIPE. */
static bool start_threads(void) {
	sigset_t all;
	sigset_t before;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	bool helps = pthread_create(&engine.helper, NULL, help_loop, NULL) == 0;
	bool sends =
			helps && pthread_create(&engine.sender, NULL, send_loop, NULL) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (helps && !sends) {
		(void)pthread_mutex_lock(&engine.mutex);
		engine.ending = true;
		(void)pthread_cond_signal(&engine.helper_wake);
		(void)pthread_mutex_unlock(&engine.mutex);
		(void)pthread_join(engine.helper, NULL);
	}
	return sends;
}

static int start_engine(struct postern_error *error) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)pthread_once(&once, init_libcurl);
	postern__list_init(&engine.added);
	postern__list_init(&engine.deferred);
	postern__list_init(&engine.running);
	engine.aborts = false;
	engine.ending = false;
	engine.multi = curl_multi_init();
	if (!engine.multi ||
			curl_multi_setopt(engine.multi, CURLMOPT_MAXCONNECTS,
					IDLE_CONNECTIONS_MAX) != CURLM_OK ||
			!start_threads()) {
		(void)curl_multi_cleanup(engine.multi);
		engine.multi = NULL;
		return postern__fail(error, POSTERN_E_NOMEM,
				"cannot start the threads that send webhooks");
	}
	return POSTERN_OK;
}

int postern__webhook_engine_acquire(struct postern_error *error) {
	(void)pthread_mutex_lock(&engine.owners_mutex);
	int r = engine.owner_count > 0 ? POSTERN_OK : start_engine(error);
	engine.owner_count += r == POSTERN_OK;
	(void)pthread_mutex_unlock(&engine.owners_mutex);
	return r;
}

void postern__webhook_engine_release(void) {
	(void)pthread_mutex_lock(&engine.owners_mutex);
	if (--engine.owner_count == 0) {
		(void)pthread_mutex_lock(&engine.mutex);
		engine.ending = true;
		(void)pthread_cond_signal(&engine.helper_wake);
		(void)pthread_mutex_unlock(&engine.mutex);
		(void)curl_multi_wakeup(engine.multi);
		(void)pthread_join(engine.sender, NULL);
		(void)pthread_join(engine.helper, NULL);
		(void)curl_multi_cleanup(engine.multi);
		engine.multi = NULL;
	}
	(void)pthread_mutex_unlock(&engine.owners_mutex);
}
