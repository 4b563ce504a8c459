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

#include <errno.h>
#include <microhttpd.h>
#include <postern/error.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/list.h"
#include "server/http_exchange.h"
#include "server/log.h"
#include "server/socket.h"

#define BACKLOG 128

/* Per connection: twice the longest headers, because the daemon also needs
   room to read. Only what is used is touched. */
#define CONNECTION_MEMORY ((size_t)2 * POSTERN__API_HEADERS_LEN_MAX)

/* How long answers on their way may take when we stop. */
#define STOP_PATIENCE_S 5

static void fill_defaults(struct postern__http_options *options) {
	if (!options->clock) {
		options->clock = postern_clock_system();
	}
	if (options->connection_count_max == 0) {
		options->connection_count_max = 256;
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
	if (options->idle_ms == 0) {
		options->idle_ms = 30000;
	}
	if (options->receive_ms == 0) {
		options->receive_ms = 60000;
	}
	if (options->send_ms == 0) {
		options->send_ms = 300000;
	}
}

static int64_t now_ms(const struct postern__http *http) {
	const struct postern_clock *clock = http->options.clock;
	return clock->monotonic_ms(clock->context);
}

void postern__peer_deadline(struct postern__http *http,
		struct postern__http_peer *peer, int64_t ms) {
	if (peer) {
		(void)pthread_mutex_lock(&http->mutex);
		peer->deadline_ms = ms > 0 ? now_ms(http) + ms : 0;
		(void)pthread_mutex_unlock(&http->mutex);
	}
}

static void add_peer(struct postern__http *http,
		struct MHD_Connection *connection, void **socket_context) {
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection,
			MHD_CONNECTION_INFO_CONNECTION_FD);
	struct postern__http_peer *peer = calloc(1, sizeof *peer);
	if (!peer || !info) {
		free(peer);
		return; /* then only the daemon's own timeout holds */
	}
	peer->fd = info->connect_fd;
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

/* The daemon tells us before it closes the descriptor. */
static void remove_peer(struct postern__http *http, void **socket_context) {
	struct postern__http_peer *peer = *socket_context;
	if (peer) {
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
			(void)pthread_cond_wait(&http->changed, &http->mutex);
		}
	}
	(void)pthread_mutex_unlock(&http->mutex);
	return NULL;
}

/* What the daemon complains about is what clients did wrong. */
__attribute__((format(printf, 2, 0))) static void hear(void *context,
		const char *format, va_list args) {
	struct postern__http *http = context;
	char text[512];
	(void)vsnprintf(text, sizeof text, format, args);
	text[strcspn(text, "\n")] = '\0';
	postern__log(http->options.log, POSTERN__LOG_DEBUG, "http",
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
		struct postern__http_door *door, struct postern_error *error) {
	const struct postern__http_options *options = &http->options;
	/* With epoll a client that hangs up in the middle of a request is not
	   noticed before idle_ms: 0.9.75 waits for an event that has been. */
	unsigned idle_s = (unsigned)((options->idle_ms + 999) / 1000);
	door->daemon = MHD_start_daemon(MHD_USE_POLL_INTERNAL_THREAD |
											MHD_ALLOW_SUSPEND_RESUME |
											MHD_USE_ERROR_LOG,
			0, NULL, NULL, postern__exchange_step, http,
			MHD_OPTION_EXTERNAL_LOGGER, hear, http, MHD_OPTION_LISTEN_SOCKET,
			door->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
			options->connection_count_max, MHD_OPTION_CONNECTION_TIMEOUT,
			idle_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY,
			MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK,
			postern__exchange_create, http, MHD_OPTION_NOTIFY_COMPLETED,
			postern__exchange_end, http, MHD_OPTION_NOTIFY_CONNECTION,
			notice_connection, http, MHD_OPTION_END);
	if (!door->daemon) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot serve on '%s'", door->socket->path);
	}
	return POSTERN_OK;
}

/* Listen everywhere before anybody is let in. */
static int open_doors(struct postern__http *http, struct postern_error *error) {
	const struct postern__http_options *options = &http->options;
	http->doors = calloc(options->socket_count + 1, sizeof *http->doors);
	if (!http->doors) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	while (http->door_count < options->socket_count) {
		struct postern__http_door *door = &http->doors[http->door_count];
		door->socket = &options->sockets[http->door_count];
		int r = postern__socket_listen(door->socket, BACKLOG, &door->listen_fd,
				error);
		if (r != POSTERN_OK) {
			return r;
		}
		http->door_count++;
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
	postern__list_init(&http->peers);
	postern__list_init(&http->jobs);

	int r = open_doors(http, error);
	if (r == POSTERN_OK) {
		r = start_workers(http, error);
	}
	for (size_t i = 0; r == POSTERN_OK && i < http->door_count; i++) {
		r = start_daemon(http, &http->doors[i], error);
	}
	if (r != POSTERN_OK) {
		postern__http_stop(http);
		return r;
	}
	*out = http;
	return POSTERN_OK;
}

/* A connection that is suspended must come back before the daemon ends; an
   answer on its way only should. Connections that were taken before may still
   ask something: from now on they are told to try later. */
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
	(void)pthread_cond_broadcast(&http->changed);
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
	for (size_t i = 0; i < http->door_count; i++) {
		postern__socket_remove(http->doors[i].socket);
		if (http->doors[i].daemon) {
			(void)MHD_quiesce_daemon(http->doors[i].daemon);
		}
	}
	wait_for_answers(http);
	for (size_t i = 0; i < http->door_count; i++) {
		if (http->doors[i].daemon) {
			MHD_stop_daemon(http->doors[i].daemon);
		}
		(void)close(http->doors[i].listen_fd);
	}
	free(http->doors);
	stop_workers(http);
	(void)pthread_cond_destroy(&http->changed);
	(void)pthread_mutex_destroy(&http->mutex);
	free(http);
}
