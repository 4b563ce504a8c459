/* SPDX-License-Identifier: MIT */

/*
 * The daemons: libmicrohttpd with one thread on each of our own listening
 * sockets, the workers, and the deadlines of connections.
 *
 * libmicrohttpd ends a connection that is silent for idle_ms, but one byte now
 * and then keeps it open for good. So each connection also has a deadline for
 * the whole of what it is doing, and the sweep shuts down those that missed
 * it; the daemon then sees a closed connection and clears it away itself.
 */

#include "server/http.h"

#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <postern/error.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/list.h"
#include "server/http_exchange.h"
#include "server/log.h"
#include "server/socket.h"
#include "server/tcp.h"
#include "server/tls.h"

#define BACKLOG 128
#define BACKLOG_TCP 1024

/* Idle connections of an address that keep their memory, for speed. */
#define WARM_COUNT_MAX 256

/* How long responses in progress may take at a stop. */
#define STOP_PATIENCE_S 5

static void fill_defaults(struct postern__http_options *options) {
	if (!options->clock) {
		options->clock = postern_clock_system();
	}
	if (options->connection_count_max == 0) {
		options->connection_count_max = 256;
	}
	if (options->tcp_count_max == 0) {
		options->tcp_count_max = 256;
	}
	if (options->worker_count == 0) {
		options->worker_count = 4;
	}
	if (options->bodies_len_max == 0) {
		options->bodies_len_max = (size_t)128 * 1024 * 1024;
	}
	if (options->answers_len_max == 0) {
		options->answers_len_max = (size_t)512 * 1024 * 1024;
	}
	if (options->memory_max == 0) {
		options->memory_max = (size_t)256 * 1024 * 1024;
	}
	if (options->idle_ms == 0) {
		options->idle_ms = 30000;
	}
	if (options->receive_ms == 0) {
		options->receive_ms = 60000;
	}
	if (options->send_ms == 0) {
		options->send_ms = 300000;
	}
	if (options->slow_ms == 0) {
		options->slow_ms = 10000;
	}
}

static const char *address_text(const struct postern__http_address *address) {
	return address->socket ? address->socket->path : address->tcp->text;
}

static int64_t now_ms(const struct postern__http *http) {
	const struct postern_clock *clock = http->options.clock;
	return clock->monotonic_ms(clock->context);
}

void postern__peer_deadline(struct postern__http *http,
		struct postern__http_peer *peer, int64_t ms) {
	if (peer) {
		(void)pthread_mutex_lock(&http->mutex);
		peer->turn_ms = ms > 0 ? now_ms(http) : 0;
		peer->deadline_ms = ms > 0 ? peer->turn_ms + ms : 0;
		(void)pthread_mutex_unlock(&http->mutex);
	}
}

void postern__peer_begin(struct postern__http *http,
		struct postern__http_peer *peer) {
	peer->busy = true;
	postern__peer_wake(peer);
	(void)pthread_mutex_lock(&http->mutex);
	peer->turn_ms = now_ms(http);
	(void)pthread_mutex_unlock(&http->mutex);
}

void postern__http_relieve(struct postern__http *http) {
	int64_t since = now_ms(http) - http->options.slow_ms;
	struct postern__http_peer *slowest = NULL;
	(void)pthread_mutex_lock(&http->mutex);
	postern__list_each(item, &http->peers) {
		struct postern__http_peer *peer =
				container_of(item, struct postern__http_peer, link);
		if (peer->turn_ms != 0 && peer->turn_ms <= since &&
				(!slowest || peer->turn_ms < slowest->turn_ms)) {
			slowest = peer;
		}
	}
	if (slowest) {
		(void)shutdown(slowest->fd, SHUT_RDWR);
		slowest->turn_ms = 0;
		slowest->deadline_ms = 0;
	}
	(void)pthread_mutex_unlock(&http->mutex);
}

void postern__peer_wake(struct postern__http_peer *peer) {
	if (postern__list_linked(&peer->warm)) {
		postern__list_remove(&peer->warm);
		peer->listener->warm_count--;
	}
}

/*
 * libmicrohttpd keeps the memory of an idle connection and has overwritten all
 * of it with zeros: thousands of them would cost as many times 160 KiB. The
 * pages of those that have been idle longest are given back; what is read from
 * them next is zeros, too. This runs on the thread that uses the memory, and
 * another connection has been served since, so nothing of a request is there.
 */
static void cool_down(struct postern__http_listener *listener) {
	while (listener->warm_count > WARM_COUNT_MAX) {
		struct postern__http_peer *peer =
				container_of(postern__list_first(&listener->warm),
						struct postern__http_peer, warm);
		postern__peer_wake(peer);
		/* If it fails, the memory stays. */
		(void)madvise(peer->pool, POSTERN__CONNECTION_MEMORY, MADV_DONTNEED);
	}
}

static void keep_warm(struct postern__http_peer *peer) {
	struct postern__http_listener *listener = peer->listener;
	/* A further request that was read already is in that memory. */
	bool empty = peer->exchange_count == peer->framing.request_count;
	postern__peer_wake(peer);
	if (peer->pool && empty) {
		cool_down(listener);
		postern__list_push_back(&listener->warm, &peer->warm);
		listener->warm_count++;
	}
}

void postern__peer_rest(struct postern__http *http,
		struct postern__http_peer *peer) {
	peer->busy = false;
	keep_warm(peer);
	(void)pthread_mutex_lock(&http->mutex);
	peer->turn_ms = 0;
	peer->deadline_ms = now_ms(http) + http->options.receive_ms;
	postern__list_remove(&peer->link);
	postern__list_push_back(&http->peers, &peer->link);
	(void)pthread_mutex_unlock(&http->mutex);
}

bool postern__peer_is_regular(struct postern__http_peer *peer) {
	if (peer->listener->peer_count <= peer->listener->peer_count_max) {
		peer->reserved = false;
	}
	return !peer->reserved;
}

/* Whether the connection can be closed without interrupting a request: none is
   in progress, and no received bytes are unread. */
static bool is_idle(const struct postern__http_peer *peer) {
	char byte;
	return !peer->busy && !peer->evicted &&
		   recvfrom(peer->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) <=
				   0;
}

/* Close the connection of this socket that is idle longest. False: none is. */
static bool evict_idlest(struct postern__http_listener *listener) {
	struct postern__http *http = listener->http;
	struct postern__http_peer *idlest = NULL;
	(void)pthread_mutex_lock(&http->mutex);
	postern__list_each(item, &http->peers) {
		struct postern__http_peer *peer =
				container_of(item, struct postern__http_peer, link);
		if (peer->listener != listener || (idlest && peer->held_len > 0) ||
				!is_idle(peer)) {
			continue;
		}
		if (!idlest || idlest->held_len > 0) {
			idlest = peer;
		}
		if (idlest->held_len == 0) {
			break;
		}
	}
	if (idlest) {
		(void)shutdown(idlest->fd, SHUT_RDWR);
		idlest->evicted = true;
		listener->peer_count--;
	}
	(void)pthread_mutex_unlock(&http->mutex);
	return idlest != NULL;
}

static bool speaks_tls(const struct postern__http_listener *listener) {
	return listener->address.tcp && listener->http->secure;
}

static void add_peer(struct postern__http_listener *listener,
		struct MHD_Connection *connection, void **socket_context) {
	struct postern__http *http = listener->http;
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection,
			MHD_CONNECTION_INFO_CONNECTION_FD);
	struct postern__http_peer *peer = calloc(1, sizeof *peer);
	if (!peer || !info) {
		free(peer);
		return; /* then no request of the connection is served */
	}
	peer->listener = listener;
	peer->fd = info->connect_fd;
	if (speaks_tls(listener)) {
		info = MHD_get_connection_info(connection,
				MHD_CONNECTION_INFO_GNUTLS_SESSION);
		peer->session = info ? info->tls_session : NULL;
	}
	if (speaks_tls(listener) != (peer->session != NULL) ||
			!postern__receive_begin(peer)) {
		free(peer);
		return;
	}
	if (listener->peer_count >= listener->peer_count_max) {
		peer->reserved = !evict_idlest(listener);
	}
	listener->peer_count++;
	struct ucred other;
	socklen_t other_len = sizeof other;
	if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &other, &other_len) ==
			0) {
		peer->pid = other.pid;
		peer->uid = other.uid;
	}
	peer->deadline_ms = now_ms(http) + http->options.receive_ms;
	(void)pthread_mutex_lock(&http->mutex);
	postern__list_push_back(&http->peers, &peer->link);
	(void)pthread_mutex_unlock(&http->mutex);
	*socket_context = peer;
}

/* The daemon calls this before it closes the descriptor. */
static void remove_peer(struct postern__http_listener *listener,
		void **socket_context) {
	struct postern__http *http = listener->http;
	struct postern__http_peer *peer = *socket_context;
	if (peer) {
		postern__peer_wake(peer);
		postern__receive_end(peer);
		postern__tls_release(peer->tls);
		listener->peer_count -= !peer->evicted;
		(void)pthread_mutex_lock(&http->mutex);
		postern__list_remove(&peer->link);
		(void)pthread_mutex_unlock(&http->mutex);
		free(peer);
		*socket_context = NULL;
	}
}

static void notice_connection(void *context, struct MHD_Connection *connection,
		void **socket_context, enum MHD_ConnectionNotificationCode code) {
	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		add_peer(context, connection, socket_context);
	} else {
		remove_peer(context, socket_context);
	}
}

void postern__http_replace(struct postern__http *http,
		struct postern__http_site *site) {
	(void)pthread_mutex_lock(&http->mutex);
	http->site = site;
	(void)pthread_mutex_unlock(&http->mutex);
}

bool postern__http_is_unused(struct postern__http *http,
		const struct postern__http_site *site) {
	(void)pthread_mutex_lock(&http->mutex);
	bool unused = site != http->site && site->user_count == 0;
	(void)pthread_mutex_unlock(&http->mutex);
	return unused;
}

void postern__http_replace_tls(struct postern__http *http,
		struct postern__tls *tls) {
	(void)pthread_mutex_lock(&http->mutex);
	struct postern__tls *former = http->tls;
	http->tls = http->secure ? postern__tls_keep(tls) : NULL;
	(void)pthread_mutex_unlock(&http->mutex);
	postern__tls_release(former);
}

void postern__http_sweep(struct postern__http *http) {
	int64_t now = now_ms(http);
	(void)pthread_mutex_lock(&http->mutex);
	postern__list_each(item, &http->peers) {
		struct postern__http_peer *peer =
				container_of(item, struct postern__http_peer, link);
		if (peer->deadline_ms != 0 && now >= peer->deadline_ms) {
			(void)shutdown(peer->fd, SHUT_RDWR);
			peer->deadline_ms = 0;
		}
	}
	(void)pthread_mutex_unlock(&http->mutex);
}

static void *work(void *context) {
	struct postern__http *http = context;
	(void)pthread_mutex_lock(&http->mutex);
	for (;;) {
		struct postern__list *item = postern__list_pop_front(&http->jobs);
		if (item) {
			http->job_count--;
			(void)pthread_mutex_unlock(&http->mutex);
			postern__exchange_run(
					container_of(item, struct postern__exchange, link));
			(void)pthread_mutex_lock(&http->mutex);
		} else if (http->stopping) {
			break;
		} else {
			(void)pthread_cond_wait(&http->queued, &http->mutex);
		}
	}
	(void)pthread_mutex_unlock(&http->mutex);
	return NULL;
}

/* The daemon's complaints are errors of clients; they are not logged. */
__attribute__((format(printf, 2, 0))) static void hear(void *context,
		const char *format, va_list args) {
	struct postern__http *http = context;
	char text[512];
	(void)vsnprintf(text, sizeof text, format, args);
	text[strcspn(text, "\n")] = '\0';
	postern__log(http->options.log, POSTERN__LOG_HTTP, NULL,
			postern__log_text("said", text));
}

static int start_workers(struct postern__http *http,
		struct postern_error *error) {
	http->workers = calloc(http->options.worker_count, sizeof *http->workers);
	if (!http->workers) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	while (http->worker_count < http->options.worker_count) {
		int r = pthread_create(&http->workers[http->worker_count], NULL, work,
				http);
		if (r != 0) {
			return postern__fail(error, POSTERN_E_NOMEM,
					"cannot start a thread: %s", strerror(r));
		}
		http->worker_count++;
	}
	return POSTERN_OK;
}

static int start_daemon(struct postern__http *http,
		struct postern__http_listener *listener, struct postern_error *error) {
	const struct postern__http_options *options = &http->options;
	/* Over TCP there are thousands of connections, which poll() would look at
	   each time. With epoll, 0.9.75 waits for events that are over, see
	   report_rest() in http_receive.c, which has a remedy for TCP only. */
	const unsigned polling = listener->address.socket
									 ? MHD_USE_POLL_INTERNAL_THREAD
									 : MHD_USE_EPOLL_INTERNAL_THREAD;
	unsigned idle_s = (unsigned)((options->idle_ms + 999) / 1000);
	/* Of plain addresses the first of these options ends the list. */
	static char priorities[] = POSTERN__TLS_PRIORITIES;
	struct MHD_OptionItem tls[] = {
		{ MHD_OPTION_HTTPS_CERT_CALLBACK, 0,
				(void *)(uintptr_t)postern__receive_identify },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, priorities },
		{ MHD_OPTION_END, 0, NULL },
	};
	const bool secure = speaks_tls(listener);
	listener->daemon = MHD_start_daemon(polling | (secure ? MHD_USE_TLS : 0U) |
												MHD_ALLOW_SUSPEND_RESUME |
												MHD_USE_ERROR_LOG,
			0, NULL, NULL, postern__exchange_step, http,
			MHD_OPTION_EXTERNAL_LOGGER, hear, http, MHD_OPTION_LISTEN_SOCKET,
			listener->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
			listener->peer_count_max + POSTERN__HTTP_RESERVE_COUNT,
			MHD_OPTION_CONNECTION_TIMEOUT, idle_s,
			MHD_OPTION_CONNECTION_MEMORY_LIMIT, POSTERN__CONNECTION_MEMORY,
			MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK,
			postern__exchange_create, http, MHD_OPTION_NOTIFY_COMPLETED,
			postern__exchange_end, http, MHD_OPTION_NOTIFY_CONNECTION,
			notice_connection, listener, MHD_OPTION_ARRAY,
			secure ? tls : tls + 2, MHD_OPTION_END);
	if (!listener->daemon) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot serve on '%s'", address_text(&listener->address));
	}
	return POSTERN_OK;
}

static int listen_on(struct postern__http_listener *listener,
		struct postern_error *error) {
	const struct postern__http_address *address = &listener->address;
	const struct postern__http_options *options = &listener->http->options;
	listener->peer_count_max = address->socket ? options->connection_count_max
											   : options->tcp_count_max;
	return address->socket ? postern__socket_listen(address->socket, BACKLOG,
									 &listener->listen_fd, error)
						   : postern__tcp_listen(address->tcp, BACKLOG_TCP,
									 &listener->listen_fd, error);
}

/* Listen on every address before the first connection is accepted. */
static int open_listeners(struct postern__http *http,
		struct postern_error *error) {
	const struct postern__http_options *options = &http->options;
	http->listeners =
			calloc(options->address_count + 1, sizeof *http->listeners);
	if (!http->listeners) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	while (http->listener_count < options->address_count) {
		assert(options->addresses);
		struct postern__http_listener *listener =
				&http->listeners[http->listener_count];
		listener->http = http;
		postern__list_init(&listener->warm);
		listener->address = options->addresses[http->listener_count];
		int r = listen_on(listener, error);
		if (r != POSTERN_OK) {
			return r;
		}
		http->listener_count++;
	}
	return POSTERN_OK;
}

int postern__http_start(const struct postern__http_options *options,
		struct postern__http **out, struct postern_error *error) {
	struct postern__http *http = calloc(1, sizeof *http);
	if (!http) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	http->options = *options;
	fill_defaults(&http->options);
	(void)pthread_mutex_init(&http->mutex, NULL);
	(void)pthread_cond_init(&http->changed, NULL);
	(void)pthread_cond_init(&http->queued, NULL);
	postern__list_init(&http->peers);
	postern__list_init(&http->jobs);
	http->first.api = options->api;
	http->first.auth = options->auth;
	http->site = &http->first;
	http->secure = options->tls != NULL;
	http->tls = options->tls ? postern__tls_keep(options->tls) : NULL;

	int r = open_listeners(http, error);
	if (r == POSTERN_OK) {
		r = start_workers(http, error);
	}
	for (size_t i = 0; r == POSTERN_OK && i < http->listener_count; i++) {
		r = start_daemon(http, &http->listeners[i], error);
	}
	if (r != POSTERN_OK) {
		postern__http_stop(http);
		return r;
	}
	*out = http;
	return POSTERN_OK;
}

/* A suspended connection must be resumed before the daemon ends; a response in
   progress should be finished. New requests of existing connections are refused
   with "retry later". */
static void wait_for_answers(struct postern__http *http) {
	const struct postern_clock *clock = postern_clock_system();
	struct timespec until = {
		.tv_sec = (time_t)(clock->wall_ms(clock->context) / 1000) +
				  STOP_PATIENCE_S,
	};

	(void)pthread_mutex_lock(&http->mutex);
	http->closing = true;
	while (http->asked_count > 0) {
		(void)pthread_cond_wait(&http->changed, &http->mutex);
	}
	while (http->active_count > 0 &&
			pthread_cond_timedwait(&http->changed, &http->mutex, &until) == 0) {
	}
	(void)pthread_mutex_unlock(&http->mutex);
}

static void stop_workers(struct postern__http *http) {
	(void)pthread_mutex_lock(&http->mutex);
	http->stopping = true;
	(void)pthread_cond_broadcast(&http->queued);
	(void)pthread_mutex_unlock(&http->mutex);
	for (unsigned i = 0; i < http->worker_count; i++) {
		(void)pthread_join(http->workers[i], NULL);
	}
	free(http->workers);
}

void postern__http_stop(struct postern__http *http) {
	if (!http) {
		return;
	}
	for (size_t i = 0; i < http->listener_count; i++) {
		if (http->listeners[i].address.socket) {
			postern__socket_remove(http->listeners[i].address.socket);
		}
		if (http->listeners[i].daemon) {
			(void)MHD_quiesce_daemon(http->listeners[i].daemon);
		}
	}
	wait_for_answers(http);
	for (size_t i = 0; i < http->listener_count; i++) {
		if (http->listeners[i].daemon) {
			MHD_stop_daemon(http->listeners[i].daemon);
		}
		(void)close(http->listeners[i].listen_fd);
	}
	free(http->listeners);
	stop_workers(http);
	postern__tls_release(http->tls);
	(void)pthread_cond_destroy(&http->changed);
	(void)pthread_cond_destroy(&http->queued);
	(void)pthread_mutex_destroy(&http->mutex);
	free(http);
}
