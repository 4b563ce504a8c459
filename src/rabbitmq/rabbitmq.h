/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RABBITMQ_RABBITMQ_H
#define POSTERN_RABBITMQ_RABBITMQ_H

/*
 * Shared by the files of this room: address.c parses a URL, link.c has a
 * connection with its channel, envelope.c makes a message of a delivery,
 * source.c is the source, topology.c declares what it needs and
 * starts its consumer, retry.c publishes
 * what failed to the retry queue, outgoing.c and
 * template.c make what is published of a message, confirms.c counts what the
 * broker has confirmed, publish.c is the kind of handlers.
 */

#include <amqp.h>
#include <postern/error.h>
#include <postern/message.h>
#include <postern/sys/handler.h>
#include <postern/sys/source.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

#define RABBITMQ_HOST_COUNT_MAX 8
#define RABBITMQ_HOST_LEN_MAX 255
/* A short string of AMQP, in bytes. */
#define RABBITMQ_SHORT_LEN_MAX 255
/* All that is done over a connection is done on one channel. */
#define RABBITMQ_CHANNEL 1
#define RABBITMQ_CONSUMER_TAG "postern"

/* A parsed URL. Without pointers, so that it needs no destructor but _wipe. */
struct postern__rabbitmq_address {
	bool tls;
	size_t host_count;
	struct postern__rabbitmq_host {
		char name[RABBITMQ_HOST_LEN_MAX + 1];
		int port;
	} hosts[RABBITMQ_HOST_COUNT_MAX];
	char user[RABBITMQ_SHORT_LEN_MAX + 1];
	char password[1024];
	char vhost[RABBITMQ_SHORT_LEN_MAX + 1];
};

/* Errors quote no value of the URL. */
int postern__rabbitmq_address_parse(const char *url,
		struct postern__rabbitmq_address *out, struct postern_error *error);
void postern__rabbitmq_address_wipe(struct postern__rabbitmq_address *address);
/* For the tables of options. */
int postern__rabbitmq_url_check(const char *url, struct postern_error *error);

/* Where and how to connect. */
struct postern__rabbitmq_peer {
	struct postern__rabbitmq_address address;
	int heartbeat_s;
	char *ca_file; /* NULL: those of the system */
	pthread_mutex_t mutex;
	pthread_cond_t left_cond;
	/* With the mutex. */
	int fd;    /* of the link to it; -1: none */
	bool left; /* the thread that uses the link is about to end */
};

/* Copies the texts. It is to be finished also after a failure. */
int postern__rabbitmq_peer_init(struct postern__rabbitmq_peer *peer,
		const char *url, int64_t heartbeat_ms, const char *ca_file,
		struct postern_error *error);
void postern__rabbitmq_peer_finish(struct postern__rabbitmq_peer *peer);
/* The thread that uses the link begins, and ends. */
void postern__rabbitmq_peer_enter(struct postern__rabbitmq_peer *peer);
void postern__rabbitmq_peer_leave(struct postern__rabbitmq_peer *peer);
/* Join the thread that uses the link: after a moment the connection is cut, so
   that it cannot wait for a broker that takes nothing. */
void postern__rabbitmq_peer_join(struct postern__rabbitmq_peer *peer,
		pthread_t thread);

/* A connection with one channel. Used by one thread. */
struct postern__rabbitmq_link {
	struct postern__rabbitmq_peer *peer;
	amqp_connection_state_t state; /* NULL: not connected */
	int fd;
	int heartbeat_s;
	bool blocked; /* the broker takes no messages now */
	char blocked_why[128];
	int64_t beat_at_ms; /* when the last heartbeat was sent by hand */
	char place[RABBITMQ_HOST_LEN_MAX + 32]; /* "RabbitMQ at 'host:5672'" */
};

/* Connect to one of the hosts, log in and open the channel. Waits at most some
   seconds for each step. */
int postern__rabbitmq_link_open(struct postern__rabbitmq_link *link,
		struct postern__rabbitmq_peer *peer, size_t host,
		struct postern_error *error);
/* politely  tell the broker, and wait for its answer for a moment. */
void postern__rabbitmq_link_close(struct postern__rabbitmq_link *link,
		bool politely);

enum postern__rabbitmq_read {
	RABBITMQ_READ_NONE = 0, /* nothing more is there now */
	RABBITMQ_READ_FRAME,    /* a frame of the channel */
	RABBITMQ_READ_LOST      /* the connection or the channel has ended */
};

/* Read one frame without waiting. What concerns the connection is done here.
   A frame is valid until postern__rabbitmq_link_release(). */
enum postern__rabbitmq_read
postern__rabbitmq_link_read(struct postern__rabbitmq_link *link,
		amqp_frame_t *out, struct postern_error *error);
void postern__rabbitmq_link_release(struct postern__rabbitmq_link *link);
/* Whether frames were received that poll() does not know of. */
bool postern__rabbitmq_link_has_more(const struct postern__rabbitmq_link *link);
/* Send a heartbeat if one is due, while nothing is read. */
int postern__rabbitmq_link_beat(struct postern__rabbitmq_link *link,
		struct postern_error *error);
/* The end of a request that waits for an answer. `what`: "declare queue
   'q'". */
int postern__rabbitmq_link_check(struct postern__rabbitmq_link *link,
		amqp_rpc_reply_t reply, const char *what, struct postern_error *error);
/* The result of a call that only sends. */
int postern__rabbitmq_link_sent(struct postern__rabbitmq_link *link, int status,
		struct postern_error *error);

/* How long to wait before the n-th attempt in a row to connect: 1 to 30 s, half
   of it random. base_ms: at most a second. */
int64_t postern__rabbitmq_delay_ms(unsigned failures, int64_t base_ms);
int64_t postern__rabbitmq_now_ms(void);

/* What a source declares each time it connects. */
struct postern__rabbitmq_topology {
	bool declare;
	bool classic;      /* queues; else quorum */
	int exchange_type; /* topic, direct, fanout */
	char *queue;
	char *dead;  /* the queue for what is rejected; NULL: none */
	char *retry; /* the queue for what is retried; NULL: none */
	int64_t retry_delay_ms;
	char *exchange;     /* NULL: the queue is not bound */
	char *binding_keys; /* separated by commas */
};

struct postern__rabbitmq_source_settings;

/* Copies the texts. To be finished also after a failure. */
int postern__rabbitmq_topology_init(struct postern__rabbitmq_topology *topology,
		const struct postern__rabbitmq_source_settings *settings,
		struct postern_error *error);
void postern__rabbitmq_topology_finish(
		struct postern__rabbitmq_topology *topology);
int postern__rabbitmq_topology_check(const struct postern__rabbitmq_topology
											 *topology,
		struct postern_error *error);
int postern__rabbitmq_declare(struct postern__rabbitmq_link *link,
		const struct postern__rabbitmq_topology *topology,
		struct postern_error *error);
/* Start the consumer of the link. */
int postern__rabbitmq_consume(struct postern__rabbitmq_link *link,
		const char *queue, uint32_t prefetch, struct postern_error *error);

/* The options of a source that decide what a delivery becomes. */
struct postern__rabbitmq_mapping {
	const char *source; /* NULL: the channel's name */
};

/*
 * Make a message of the properties of a delivery; its body is not yet known.
 * All texts are copied into the arena.
 *
 * structured_out  the body is the event: postern__rabbitmq_envelope_event().
 *
 * POSTERN_E_INVALID if it cannot become a message, POSTERN_E_NOMEM.
 */
int postern__rabbitmq_envelope_read(const amqp_basic_properties_t *properties,
		const struct postern__rabbitmq_mapping *mapping,
		struct postern__arena *arena, struct postern_message *out,
		bool *structured_out, struct postern_error *error);
/* What there is of a delivery that cannot become a message, for a quarantine:
   texts that may be invalid. POSTERN_E_NOMEM. */
int postern__rabbitmq_envelope_salvage(const amqp_basic_properties_t
											   *properties,
		struct postern__arena *arena, struct postern_message *out,
		struct postern_error *error);
/* Replace the message by the CloudEvent in its body. */
int postern__rabbitmq_envelope_event(struct postern_message *message,
		struct postern__arena *arena, struct postern_error *error);
/* The value of a header as text, in the arena; nested ones as JSON. */
int postern__rabbitmq_value_text(const amqp_field_value_t *value,
		struct postern__arena *arena, const char **out,
		struct postern_error *error);

/* For the table of options, and before _fill. */
int postern__rabbitmq_template_check(const char *text,
		struct postern_error *error);
/* Replace {id}, {source}, {type}, {subject} and {header:NAME}; what the message
   does not have is empty. False: the result is too long. */
bool postern__rabbitmq_template_fill(const char *text,
		const struct postern_message *message,
		char out[RABBITMQ_SHORT_LEN_MAX + 1]);

/* The most attributes of a message that become headers. */
#define RABBITMQ_ATTRIBUTE_COUNT 8

/* The properties of a message that is published. They point into the message.
   Zeroes are an empty one; it is used again and again. */
struct postern__rabbitmq_outgoing {
	amqp_basic_properties_t properties;
	amqp_table_entry_t *headers;
	size_t size; /* at least that of the encoded properties */
	struct postern__arena arena;
};

/* False: a name is too long, or memory is exhausted. */
bool postern__rabbitmq_outgoing_fill(struct postern__rabbitmq_outgoing *self,
		const struct postern_message *message);

enum postern__rabbitmq_unacceptable {
	RABBITMQ_UNACCEPTABLE_QUARANTINE,
	RABBITMQ_UNACCEPTABLE_REJECT,
	RABBITMQ_UNACCEPTABLE_DROP
};

/* A run that failed, in a channel that is a guard or direct. */
enum postern__rabbitmq_failed {
	RABBITMQ_FAILED_HOLD, /* runs again later, as if the store had failed */
	RABBITMQ_FAILED_REJECT,
	/* Runs again after a time in the retry queue; rejected in the end. */
	RABBITMQ_FAILED_RETRY
};

/* What the options of a source refer to. */
struct postern__rabbitmq_source_settings {
	const char *url;
	const char *queue;
	uint32_t prefetch;
	uint64_t prefetch_bytes;
	const char *source;
	int on_unacceptable; /* enum postern__rabbitmq_unacceptable */
	int on_failed;       /* enum postern__rabbitmq_failed */
	int64_t heartbeat_ms;
	const char *ca_file;
	bool declare;
	int queue_type;
	const char *exchange;
	int exchange_type;
	const char *binding_keys;
	bool dead_letters;
	uint32_t max_retries;
	int64_t retry_delay_ms;
	const char *retry_suffix;
	const char *dead_suffix;
};

/* As create() of a kind of sources. */
int postern__rabbitmq_source_create(const void *given,
		struct postern_source **out, struct postern_error *error);
/* Tests only: how many deliveries of all its connections it has settled with
   the broker. From any thread. */
size_t postern__rabbitmq_source_settled(struct postern_source *source);

/* Start a thread with the stack that decoding needs. */
int postern__rabbitmq_thread_start(pthread_t *thread, void *(*run)(void *),
		void *context, struct postern_error *error);

extern const struct postern_source_kind postern__rabbitmq_source_kind;
extern const struct postern_handler_kind postern__rabbitmq_publish_kind;

#endif
