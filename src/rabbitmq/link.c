/* SPDX-License-Identifier: MIT */

/*
 * A connection to a broker with its channel, and what the broker says about
 * either. A channel that the broker has closed ends the connection, too: one
 * channel is all there is on it, and tags of the former one must not be used.
 */

#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fail.h"
#include "base/wait.h"
#include "rabbitmq/rabbitmq.h"

#define CONNECT_S 5
/* For the login, and for each request that has an answer. */
#define ANSWER_S 10
#define CLOSE_S 2
#define JOIN_MS 3000
#define FRAME_MAX 131072
#define DELAY_MS_MAX 30000
#define SYSTEM_CA_FILE "/etc/ssl/certs/ca-certificates.crt"

int64_t postern__rabbitmq_now_ms(void) {
	const struct postern_clock *clock = postern_clock_system();
	return clock->monotonic_ms(clock->context);
}

int64_t postern__rabbitmq_delay_ms(unsigned failures, int64_t base_ms) {
	const struct postern_random *random = postern_random_system();
	int64_t ms = base_ms;
	for (unsigned i = 0; i < failures && ms < DELAY_MS_MAX; i++) {
		ms *= 2;
	}
	ms = ms < DELAY_MS_MAX ? ms : DELAY_MS_MAX;
	uint64_t half = (uint64_t)ms / 2;
	return ms - (int64_t)(random->next(random->context) % (half + 1));
}

int postern__rabbitmq_peer_init(struct postern__rabbitmq_peer *peer,
		const char *url, int64_t heartbeat_ms, const char *ca_file,
		struct postern_error *error) {
	*peer = (struct postern__rabbitmq_peer){
		.heartbeat_s = (int)(heartbeat_ms / 1000),
		.fd = -1,
	};
	(void)pthread_mutex_init(&peer->mutex,
			NULL); /* no attributes: cannot fail */
	if (postern__wait_init(&peer->left_cond)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = postern__rabbitmq_address_parse(url, &peer->address, error);
	if (!r && ca_file && !(peer->ca_file = strdup(ca_file))) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (!r && ca_file && !peer->address.tls) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"'ca_file' is for TLS; write amqps://");
	}
	return r;
}

void postern__rabbitmq_peer_finish(struct postern__rabbitmq_peer *peer) {
	postern__rabbitmq_address_wipe(&peer->address);
	(void)pthread_cond_destroy(&peer->left_cond);
	(void)pthread_mutex_destroy(&peer->mutex);
	free(peer->ca_file);
	peer->ca_file = NULL;
}

static void set_fd(struct postern__rabbitmq_peer *peer, int fd) {
	(void)pthread_mutex_lock(&peer->mutex);
	peer->fd = fd;
	(void)pthread_mutex_unlock(&peer->mutex);
}

static void set_left(struct postern__rabbitmq_peer *peer, bool left) {
	(void)pthread_mutex_lock(&peer->mutex);
	peer->left = left;
	(void)pthread_cond_broadcast(&peer->left_cond);
	(void)pthread_mutex_unlock(&peer->mutex);
}

void postern__rabbitmq_peer_enter(struct postern__rabbitmq_peer *peer) {
	set_left(peer, false);
}

void postern__rabbitmq_peer_leave(struct postern__rabbitmq_peer *peer) {
	set_left(peer, true);
}

void postern__rabbitmq_peer_join(struct postern__rabbitmq_peer *peer,
		pthread_t thread) {
	int64_t end_ms = postern__rabbitmq_now_ms() + JOIN_MS;
	int64_t left_ms = JOIN_MS;
	(void)pthread_mutex_lock(&peer->mutex);
	while (!peer->left && left_ms > 0) {
		postern__wait(&peer->left_cond, &peer->mutex, left_ms);
		left_ms = end_ms - postern__rabbitmq_now_ms();
	}
	if (!peer->left && peer->fd >= 0) {
		(void)shutdown(peer->fd, SHUT_RDWR);
	}
	(void)pthread_mutex_unlock(&peer->mutex);
	(void)pthread_join(thread, NULL);
}

/* The text of the broker, as it was received. */
static int fail_said(const struct postern__rabbitmq_link *link,
		const char *what, int code, amqp_bytes_t text,
		struct postern_error *error) {
	int r = code == AMQP_ACCESS_REFUSED || code == AMQP_NOT_FOUND ||
							code == AMQP_PRECONDITION_FAILED
					? POSTERN_E_INVALID
					: POSTERN_E_UNAVAILABLE;
	int len = text.len < RABBITMQ_SHORT_LEN_MAX ? (int)text.len
												: RABBITMQ_SHORT_LEN_MAX;
	return postern__fail(error, r, "%s %s: %.*s", link->place, what, len,
			(const char *)text.bytes);
}

static int fail_closed(const struct postern__rabbitmq_link *link,
		const char *what, const amqp_method_t *method,
		struct postern_error *error) {
	if (method->id == AMQP_CONNECTION_CLOSE_METHOD) {
		const amqp_connection_close_t *close = method->decoded;
		return fail_said(link, what, close->reply_code, close->reply_text,
				error);
	}
	if (method->id == AMQP_CHANNEL_CLOSE_METHOD) {
		const amqp_channel_close_t *close = method->decoded;
		return fail_said(link, what, close->reply_code, close->reply_text,
				error);
	}
	return postern__fail(error, POSTERN_E_UNAVAILABLE,
			"%s sent the method %#x, which is not an answer", link->place,
			method->id);
}

int postern__rabbitmq_link_sent(struct postern__rabbitmq_link *link, int status,
		struct postern_error *error) {
	if (status == AMQP_STATUS_OK) {
		return POSTERN_OK;
	}
	return postern__fail(error,
			status == AMQP_STATUS_NO_MEMORY ? POSTERN_E_NOMEM
											: POSTERN_E_UNAVAILABLE,
			"%s: %s", link->place, amqp_error_string2(status));
}

int postern__rabbitmq_link_check(struct postern__rabbitmq_link *link,
		amqp_rpc_reply_t reply, const char *what, struct postern_error *error) {
	char text[400];
	switch (reply.reply_type) {
	case AMQP_RESPONSE_NORMAL: return POSTERN_OK;
	case AMQP_RESPONSE_SERVER_EXCEPTION:
		(void)snprintf(text, sizeof text, "refused to %s", what);
		return fail_closed(link, text, &reply.reply, error);
	case AMQP_RESPONSE_LIBRARY_EXCEPTION:
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "%s: cannot %s: %s",
				link->place, what, amqp_error_string2(reply.library_error));
	case AMQP_RESPONSE_NONE:
	default:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"%s: cannot %s: the connection was closed", link->place, what);
	}
}

static int set_tls(amqp_socket_t *socket,
		const struct postern__rabbitmq_peer *peer,
		struct postern_error *error) {
	const char *file = peer->ca_file ? peer->ca_file : SYSTEM_CA_FILE;
	amqp_ssl_socket_set_verify_peer(socket, 1);
	amqp_ssl_socket_set_verify_hostname(socket, 1);
	int status = amqp_ssl_socket_set_cacert(socket, file);
	if (status == AMQP_STATUS_OK) {
		status = amqp_ssl_socket_set_ssl_versions(socket, AMQP_TLSv1_2,
				AMQP_TLSvLATEST);
	}
	return status == AMQP_STATUS_OK
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_INVALID,
							 "cannot use the certificates in '%s': %s", file,
							 amqp_error_string2(status));
}

static int connect_socket(struct postern__rabbitmq_link *link,
		const struct postern__rabbitmq_peer *peer,
		const struct postern__rabbitmq_host *host,
		struct postern_error *error) {
	const struct timeval timeout = { .tv_sec = CONNECT_S };
	amqp_socket_t *socket = peer->address.tls
									? amqp_ssl_socket_new(link->state)
									: amqp_tcp_socket_new(link->state);
	if (!socket) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = peer->address.tls ? set_tls(socket, peer, error) : POSTERN_OK;
	if (r) {
		return r;
	}
	int status =
			amqp_socket_open_noblock(socket, host->name, host->port, &timeout);
	if (status != AMQP_STATUS_OK) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot connect to %s: %s", link->place,
				amqp_error_string2(status));
	}
	link->fd = amqp_get_sockfd(link->state);
	set_fd(link->peer, link->fd);
	/* What was sent and is not received by the broker in that time ends the
	   connection. If this fails, the system's limit applies. */
	unsigned ms = (unsigned)link->heartbeat_s * 2000U;
	(void)setsockopt(link->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
	return POSTERN_OK;
}

static amqp_field_value_t value_true(void) {
	return (amqp_field_value_t){
		.kind = AMQP_FIELD_KIND_BOOLEAN,
		.value.boolean = 1,
	};
}

static amqp_table_entry_t entry_of(const char *key, amqp_field_value_t value) {
	return (amqp_table_entry_t){ amqp_cstring_bytes(key), value };
}

/* What the broker is to tell: a refused login, a lost consumer, that it takes
   no messages. */
static amqp_rpc_reply_t log_in(struct postern__rabbitmq_link *link,
		const struct postern__rabbitmq_address *address) {
	amqp_table_entry_t capabilities[] = {
		entry_of("authentication_failure_close", value_true()),
		entry_of("basic.nack", value_true()),
		entry_of("connection.blocked", value_true()),
		entry_of("consumer_cancel_notify", value_true()),
		entry_of("publisher_confirms", value_true()),
	};
	amqp_table_entry_t properties[] = {
		entry_of("product",
				(amqp_field_value_t){
						.kind = AMQP_FIELD_KIND_UTF8,
						.value.bytes = amqp_cstring_bytes("Postern"),
				}),
		entry_of("capabilities",
				(amqp_field_value_t){
						.kind = AMQP_FIELD_KIND_TABLE,
						.value.table = { sizeof capabilities /
												 sizeof capabilities[0],
								capabilities },
				}),
	};
	const amqp_table_t table = { sizeof properties / sizeof properties[0],
		properties };
	return amqp_login_with_properties(link->state, address->vhost, 0, FRAME_MAX,
			link->heartbeat_s, &table, AMQP_SASL_METHOD_PLAIN, address->user,
			address->password);
}

static int open_all(struct postern__rabbitmq_link *link,
		const struct postern__rabbitmq_peer *peer, size_t host,
		struct postern_error *error) {
	const struct timeval answer = { .tv_sec = ANSWER_S };
	link->state = amqp_new_connection();
	if (!link->state) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = connect_socket(link, peer, &peer->address.hosts[host], error);
	if (r) {
		return r;
	}
	(void)amqp_set_handshake_timeout(link->state, &answer);
	(void)amqp_set_rpc_timeout(link->state, &answer);
	r = postern__rabbitmq_link_check(link, log_in(link, &peer->address),
			"let this user in", error);
	if (r) {
		return r;
	}
	link->heartbeat_s = amqp_get_heartbeat(link->state);
	(void)amqp_channel_open(link->state, RABBITMQ_CHANNEL);
	return postern__rabbitmq_link_check(link, amqp_get_rpc_reply(link->state),
			"open a channel", error);
}

int postern__rabbitmq_link_open(struct postern__rabbitmq_link *link,
		struct postern__rabbitmq_peer *peer, size_t host,
		struct postern_error *error) {
	const struct postern__rabbitmq_host *to = &peer->address.hosts[host];
	bool brackets = strchr(to->name, ':') != NULL;
	*link = (struct postern__rabbitmq_link){
		.peer = peer,
		.fd = -1,
		.heartbeat_s = peer->heartbeat_s,
		.beat_at_ms = postern__rabbitmq_now_ms(),
	};
	(void)snprintf(link->place, sizeof link->place, "RabbitMQ at '%s%s%s:%d'",
			brackets ? "[" : "", to->name, brackets ? "]" : "", to->port);
	int r = open_all(link, peer, host, error);
	if (r) {
		postern__rabbitmq_link_close(link, false);
	}
	return r;
}

void postern__rabbitmq_link_close(struct postern__rabbitmq_link *link,
		bool politely) {
	const struct timeval timeout = { .tv_sec = CLOSE_S };
	if (!link->state) {
		return;
	}
	if (politely) {
		(void)amqp_set_rpc_timeout(link->state, &timeout);
		/* If this fails, the broker notices the end of the socket. */
		(void)amqp_connection_close(link->state, AMQP_REPLY_SUCCESS);
	}
	set_fd(link->peer, -1);
	(void)amqp_destroy_connection(link->state);
	link->state = NULL;
	link->fd = -1;
}

static void set_blocked(struct postern__rabbitmq_link *link,
		const amqp_connection_blocked_t *blocked) {
	link->blocked = true;
	(void)snprintf(link->blocked_why, sizeof link->blocked_why, "%.*s",
			(int)(blocked->reason.len < sizeof link->blocked_why
							? blocked->reason.len
							: sizeof link->blocked_why - 1),
			(const char *)blocked->reason.bytes);
}

/* A method of the connection, not of the channel. */
static enum postern__rabbitmq_read
read_method(struct postern__rabbitmq_link *link, const amqp_method_t *method,
		struct postern_error *error) {
	switch (method->id) {
	case AMQP_CONNECTION_BLOCKED_METHOD:
		set_blocked(link, method->decoded);
		return RABBITMQ_READ_NONE;
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		link->blocked = false;
		return RABBITMQ_READ_NONE;
	case AMQP_CONNECTION_CLOSE_METHOD:
	case AMQP_CHANNEL_CLOSE_METHOD:
		(void)fail_closed(link,
				method->id == AMQP_CHANNEL_CLOSE_METHOD
						? "closed the channel"
						: "closed the connection",
				method, error);
		return RABBITMQ_READ_LOST;
	default: return RABBITMQ_READ_FRAME;
	}
}

enum postern__rabbitmq_read
postern__rabbitmq_link_read(struct postern__rabbitmq_link *link,
		amqp_frame_t *out, struct postern_error *error) {
	const struct timeval now = { 0 };
	for (;;) {
		int status = amqp_simple_wait_frame_noblock(link->state, out, &now);
		if (status == AMQP_STATUS_TIMEOUT) {
			return RABBITMQ_READ_NONE;
		}
		if (status != AMQP_STATUS_OK) {
			(void)postern__rabbitmq_link_sent(link, status, error);
			return RABBITMQ_READ_LOST;
		}
		enum postern__rabbitmq_read read =
				out->frame_type == AMQP_FRAME_METHOD
						? read_method(link, &out->payload.method, error)
						: RABBITMQ_READ_FRAME;
		if (read != RABBITMQ_READ_NONE) {
			return read;
		}
	}
}

void postern__rabbitmq_link_release(struct postern__rabbitmq_link *link) {
	amqp_maybe_release_buffers(link->state);
}

bool postern__rabbitmq_link_has_more(
		const struct postern__rabbitmq_link *link) {
	return amqp_frames_enqueued(link->state) ||
		   amqp_data_in_buffer(link->state);
}

int postern__rabbitmq_link_beat(struct postern__rabbitmq_link *link,
		struct postern_error *error) {
	int64_t now_ms = postern__rabbitmq_now_ms();
	const amqp_frame_t beat = { .frame_type = AMQP_FRAME_HEARTBEAT };
	if (link->heartbeat_s == 0 ||
			now_ms < link->beat_at_ms + link->heartbeat_s * INT64_C(500)) {
		return POSTERN_OK;
	}
	link->beat_at_ms = now_ms;
	return postern__rabbitmq_link_sent(link,
			amqp_send_frame(link->state, &beat), error);
}

/* The library decodes nested headers by recursion, a few bytes of a frame at
   each level. */
#define STACK_BYTES ((size_t)64 * 1024 * 1024)

int postern__rabbitmq_thread_start(pthread_t *thread, void *(*run)(void *),
		void *context, struct postern_error *error) {
	pthread_attr_t attributes;
	int r = pthread_attr_init(&attributes);
	if (!r) {
		r = pthread_attr_setstacksize(&attributes, STACK_BYTES);
		if (!r) {
			r = pthread_create(thread, &attributes, run, context);
		}
		(void)pthread_attr_destroy(&attributes);
	}
	return r ? postern__fail(error, POSTERN_E_NOMEM,
					   "cannot start a thread: %s", strerror(r))
			 : POSTERN_OK;
}
