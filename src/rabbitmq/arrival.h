/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RABBITMQ_ARRIVAL_H
#define POSTERN_RABBITMQ_ARRIVAL_H

/* A delivery while its frames arrive: a header, then the parts of its body. */

#include <amqp.h>
#include <postern/error.h>
#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

struct postern__rabbitmq_mapping;

/* What has arrived. All of it is in the arena. */
struct postern__rabbitmq_delivery {
	struct postern__arena arena;
	struct postern_message message;
	const char *why; /* it cannot be a message, or is given up; NULL */
	bool given_up;   /* it is rejected when that is published */
	uint32_t retries;
	amqp_bytes_t raw;  /* its properties, if they are kept */
	amqp_bytes_t body; /* as it arrived; NULL: too large */
};

struct postern__rabbitmq_arrival {
	const char *place;                     /* of the broker, for errors */
	struct postern__rabbitmq_delivery *to; /* NULL: none */
	bool returned; /* it is a message that the broker returned: not kept */
	bool has_header;
	bool structured;
	char *body;
	uint64_t size;
	uint64_t received;
	char why[POSTERN_ERROR_TEXT_MAX]; /* it is no message; "": it is one */
};

int postern__rabbitmq_arrival_header(struct postern__rabbitmq_arrival *arrival,
		const amqp_frame_t *frame,
		const struct postern__rabbitmq_mapping *mapping, bool keeps_raw,
		struct postern_error *error);
int postern__rabbitmq_arrival_body(struct postern__rabbitmq_arrival *arrival,
		amqp_bytes_t fragment, struct postern_error *error);
/* Whether all of it has arrived. */
bool postern__rabbitmq_arrival_complete(
		const struct postern__rabbitmq_arrival *arrival);
/* Make the message. */
void postern__rabbitmq_arrival_end(struct postern__rabbitmq_arrival *arrival);

#endif
