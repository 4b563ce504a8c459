/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RABBITMQ_H
#define POSTERN_RABBITMQ_H

/*
 * RabbitMQ, in a library of its own: link with libpostern-rabbitmq (pkg-config
 * postern-rabbitmq) and register it before a runner or a box uses it:
 *
 *   postern_rabbitmq_register(&error);
 *
 *   const struct postern_source_setting settings[] = {
 *       { "url", "amqp://guest:guest@localhost/" },
 *       { "queue", "orders.events" },
 *   };
 *   postern_runner_add_source(runner, &options, "rabbitmq", settings, 2,
 *       &error);
 *
 * The source kind "rabbitmq" feeds a channel from a queue and acknowledges a
 * message after the transaction that stored it. The handler kind
 * "publish_rabbitmq" publishes each message and is done when the broker has
 * confirmed it. docs/rabbitmq.md lists the options and says what is promised.
 *
 *   amqp://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/VHOST]
 *   amqps://…    with TLS; the broker's certificate must be valid for HOST
 *
 * Several hosts are tried one after the other. A '@', '/', ',' or ':' in a
 * user, a password or a vhost is percent-encoded; without a vhost it is "/".
 */

#include <postern/error.h>
#include <postern/export.h>
#include <postern/handler.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Register both kinds for the rest of the process. Calling it again changes
   nothing. */
POSTERN_EXPORT int postern_rabbitmq_register(struct postern_error *error);

#define POSTERN_RABBITMQ_PUBLISH_KIND "publish_rabbitmq"

enum postern_rabbitmq_unroutable {
	POSTERN_RABBITMQ_UNROUTABLE_FAIL = 0, /* a failure of the run */
	POSTERN_RABBITMQ_UNROUTABLE_DROP      /* published: the broker drops it */
};

/* The settings of a handler of that kind. Zeroes are the defaults named here;
   `size` is ignored in this version, set it to the size of the struct. */
struct postern_rabbitmq_publish {
	size_t size;
	const char *url;         /* required */
	const char *exchange;    /* NULL: the default exchange */
	const char *routing_key; /* NULL: "{type}" */
	int on_unroutable;       /* enum postern_rabbitmq_unroutable */
	int64_t heartbeat_ms;    /* 0: 30 s */
	const char *ca_file;     /* amqps; NULL: the certificates of the system */
};

#ifdef __cplusplus
}
#endif

#endif
