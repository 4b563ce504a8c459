/* SPDX-License-Identifier: MIT */

/*
 * The source `rabbitmq` as a target, with a queue of the broker that
 * $POSTERN_TEST_RABBITMQ names. What the broker regards as acknowledged cannot
 * be asked for while messages are with a consumer: until the source is
 * destroyed, what it has sent is counted; afterwards the queue.
 */

#include <amqp_tcp_socket.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fail.h"
#include "conformance/source_target.h"
#include "rabbitmq/rabbitmq.h"
#include "source/kinds.h"

#define QUEUE "conformance"
#define PREFETCH "150"

static struct {
	struct postern__rabbitmq_peer peer;
	struct postern__rabbitmq_link link;
	size_t put;
	struct postern_source *source;
	size_t former; /* acknowledgements of the former sources */
} broker;

static void must(int r, const struct postern_error *error) {
	if (r) {
		(void)fprintf(stderr, "%s\n", error->text);
		abort();
	}
}

static void answered(const char *what) {
	struct postern_error error;
	must(postern__rabbitmq_link_check(&broker.link,
				 amqp_get_rpc_reply(broker.link.state), what, &error),
			&error);
}

static const char *url(void) {
	const char *text = getenv("POSTERN_TEST_RABBITMQ");
	if (!text) {
		(void)fprintf(stderr, "POSTERN_TEST_RABBITMQ is not set\n");
		abort();
	}
	return text;
}

static void open_queue(void) {
	struct postern_error error;
	broker.put = 0;
	broker.former = 0;
	broker.source = NULL;
	must(postern__rabbitmq_peer_init(&broker.peer, url(), 0, NULL, &error),
			&error);
	must(postern__rabbitmq_link_open(&broker.link, &broker.peer, 0, &error),
			&error);
	(void)amqp_queue_declare(broker.link.state, RABBITMQ_CHANNEL,
			amqp_cstring_bytes(QUEUE), 0, 1, 0, 0, amqp_empty_table);
	answered("declare the queue");
	(void)amqp_queue_purge(broker.link.state, RABBITMQ_CHANNEL,
			amqp_cstring_bytes(QUEUE));
	answered("purge the queue");
	(void)amqp_confirm_select(broker.link.state, RABBITMQ_CHANNEL);
	answered("select confirms");
}

static void close_queue(void) {
	postern__rabbitmq_link_close(&broker.link, true);
	postern__rabbitmq_peer_finish(&broker.peer);
}

static void publish(const char *id) {
	struct postern_error error;
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
		.delivery_mode = AMQP_DELIVERY_PERSISTENT,
	};
	amqp_method_t method;
	if (*id) {
		properties._flags |= AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG;
		properties.message_id = amqp_cstring_bytes(id);
		properties.type = amqp_cstring_bytes("t");
	}
	must(postern__rabbitmq_link_sent(&broker.link,
				 amqp_basic_publish(broker.link.state, RABBITMQ_CHANNEL,
						 amqp_empty_bytes, amqp_cstring_bytes(QUEUE), 0, 0,
						 &properties, amqp_cstring_bytes(id)),
				 &error),
			&error);
	must(postern__rabbitmq_link_sent(&broker.link,
				 amqp_simple_wait_method(broker.link.state, RABBITMQ_CHANNEL,
						 AMQP_BASIC_ACK_METHOD, &method),
				 &error),
			&error);
	broker.put++;
}

/* Without an id it cannot become a message. */
static void put_bad(void) {
	publish("");
}

static size_t acknowledged(bool exists) {
	if (exists) {
		return broker.former + postern__rabbitmq_source_settled(broker.source);
	}
	const amqp_queue_declare_ok_t *queue =
			amqp_queue_declare(broker.link.state, RABBITMQ_CHANNEL,
					amqp_cstring_bytes(QUEUE), 1, 1, 0, 0, amqp_empty_table);
	answered("ask for the queue");
	broker.former = broker.put - queue->message_count;
	amqp_maybe_release_buffers(broker.link.state);
	return broker.former;
}

static struct postern_source *create(void) {
	const struct postern_source_setting settings[] = {
		{ "url", url() },
		{ "queue", QUEUE },
		{ "prefetch", PREFETCH },
		{ "source", "test" },
		{ "on_unacceptable", "reject" },
	};
	struct postern_error error;
	must(postern__source_create(&postern__rabbitmq_source_kind, settings,
				 sizeof settings / sizeof settings[0], &broker.source, &error),
			&error);
	return broker.source;
}

static int port_of(int fd) {
	struct sockaddr_in name;
	socklen_t size = sizeof name;
	bool found = getpeername(fd, (struct sockaddr *)&name, &size) == 0 &&
				 name.sin_family == AF_INET;
	return found ? ntohs(name.sin_port) : 0;
}

/* End every connection of this process to the broker but the one of this
   file. */
static void disconnect(void) {
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;
	while ((entry = readdir(folder))) {
		int fd = (int)strtol(entry->d_name, NULL, 10);
		if (fd != broker.link.fd && port_of(fd) == port_of(broker.link.fd)) {
			(void)shutdown(fd, SHUT_RDWR);
		}
	}
	(void)closedir(folder);
}

const struct source_target source_target = {
	.name = "rabbitmq",
	.open = open_queue,
	.close = close_queue,
	.create = create,
	.put = publish,
	.put_bad = put_bad,
	.acknowledged = acknowledged,
	.disconnect = disconnect,
	.pauses = true,
};
