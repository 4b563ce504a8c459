/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_REDIS_REDIS_H
#define POSTERN_REDIS_REDIS_H

/*
 * Shared by the files of this room: address.c parses a URL, socket.c and tls.c
 * carry bytes, connection.c requests and replies, script.c has the script that
 * decides about a marker, reply.c the meaning of its replies, markers.c the
 * queue of calls, examine.c the settings of the server.
 */

#include <hiredis/hiredis.h>
#include <openssl/ssl.h>
#include <postern/sys/clock.h>
#include <postern/sys/marker_kind.h>
#include <stdbool.h>
#include <stdint.h>

#define REDIS_CONNECTION_MAX 64
#define REDIS_CONNECTION_DEFAULT 2
#define REDIS_TTL_MS_DEFAULT (INT64_C(7) * 24 * 3600 * 1000)
#define REDIS_TTL_MS_MIN 60000

/* A parsed URL. Without pointers, so that it needs no destructor but _wipe. */
struct postern__redis_address {
	bool tls;
	char host[256];
	char port[6];
	char socket[108]; /* "": by host and port */
	char user[256];   /* "": the default user */
	char password[1024];
	bool has_password;
	uint32_t database;
	char key_prefix[65];
	int64_t ttl_ms;
	char ca_file[1024]; /* "": those of the system */
	uint32_t connections;
	char place[400]; /* for errors, without secrets */
};

/* Errors quote no value of the URL. */
int postern__redis_address_parse(const char *url,
		struct postern__redis_address *out, struct postern_error *error);
void postern__redis_address_wipe(struct postern__redis_address *address);

/* Until when an attempt may take, by the monotonic clock. */
struct postern__redis_deadline {
	const struct postern_clock *clock;
	int64_t until_ms;
};

struct postern__redis_socket {
	int fd;   /* -1: closed */
	SSL *ssl; /* NULL: without TLS */
};

/* tls  NULL: without TLS. */
int postern__redis_socket_open(struct postern__redis_socket *self,
		const struct postern__redis_address *address, SSL_CTX *tls,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error);
void postern__redis_socket_close(struct postern__redis_socket *self);
int postern__redis_socket_send(struct postern__redis_socket *self,
		const char *bytes, size_t len,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error);
/* At least one byte. */
int postern__redis_socket_receive(struct postern__redis_socket *self,
		char *bytes, size_t size, size_t *len_out,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error);
/* Wait until the descriptor is ready for `events` of poll(). */
int postern__redis_socket_wait(int fd, short events,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error);

/* tls.c */
int postern__redis_tls_create(const struct postern__redis_address *address,
		SSL_CTX **out, struct postern_error *error);
int postern__redis_tls_open(struct postern__redis_socket *self,
		const struct postern__redis_address *address, SSL_CTX *tls,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error);
int postern__redis_tls_send(struct postern__redis_socket *self,
		const char *bytes, size_t len,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error);
int postern__redis_tls_receive(struct postern__redis_socket *self, char *bytes,
		size_t size, size_t *len_out,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error);

/* What is done about a failure. */
enum postern__redis_action {
	REDIS_FAIL = 0,  /* the call fails at once */
	REDIS_DENIED,    /* the same: the user may not do that */
	REDIS_AGAIN,     /* the same is sent again after a while */
	REDIS_RECONNECT, /* the same over a new connection */
	REDIS_EVAL       /* the script is sent in full */
};

/* The meaning of an error reply, whose text may be from anywhere. */
int postern__redis_fail_reply(const redisReply *reply, const char *place,
		enum postern__redis_action *action_out, struct postern_error *error);
/* The result of the script. */
int postern__redis_take_reply(const redisReply *reply, const char *place,
		struct postern_mark_request *request,
		enum postern__redis_action *action_out, struct postern_error *error);

struct postern__redis_connection {
	struct postern__redis_socket socket;
	redisReader *reader; /* NULL: not connected */
};

/* Connects, authenticates, selects the database and asks for the role. */
int postern__redis_connection_open(struct postern__redis_connection *self,
		const struct postern__redis_address *address, SSL_CTX *tls,
		const struct postern__redis_deadline *deadline,
		enum postern__redis_action *action_out, struct postern_error *error);
void postern__redis_connection_close(struct postern__redis_connection *self);
int postern__redis_connection_send(struct postern__redis_connection *self,
		const char *bytes, size_t len,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error);
/* *out is yours: freeReplyObject(). */
int postern__redis_connection_receive(struct postern__redis_connection *self,
		const struct postern__redis_deadline *deadline, redisReply **out,
		struct postern_error *error);

/* Room for a script's digest in hexadecimal, its zero byte included. */
#define REDIS_DIGEST_SIZE 41

/* script.c */
extern const char postern__redis_script[];
int postern__redis_script_digest(char out[REDIS_DIGEST_SIZE],
		struct postern_error *error);
/*
 * A call of the script.
 *
 * digest  NULL: with the whole script.
 * now_ms  negative: the server's clock.
 * out     free it with redisFreeCommand().
 */
int postern__redis_script_format(const struct postern__redis_address *address,
		const char *digest, const struct postern_mark *mark,
		const struct postern_mark_request *request, int64_t now_ms, char **out,
		size_t *len_out, struct postern_error *error);

/* markers.c */
int postern__redis_open(const char *url,
		const struct postern_store_options *options,
		struct postern_markers **out, struct postern_error *error);
/* Tests only: the script gets the time of this clock. */
void postern__redis_use_clock(struct postern_markers *markers,
		const struct postern_clock *clock);
/* A request of other kinds, over a connection of its own. */
struct postern__redis_session {
	struct postern__redis_connection connection;
	struct postern__redis_deadline deadline;
	const char *place;
};
int postern__redis_session_open(struct postern_markers *markers,
		struct postern__redis_session *session, struct postern_error *error);
/* *out is yours, and may be an error reply. */
int postern__redis_session_call(struct postern__redis_session *session,
		const char *const *words, size_t count, redisReply **out,
		struct postern_error *error);
void postern__redis_session_close(struct postern__redis_session *session);

/* examine.c */
int postern__redis_examine(struct postern_markers *markers,
		postern_store_find *find, void *context, struct postern_error *error);

#endif
