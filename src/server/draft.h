/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_DRAFT_H
#define POSTERN_SERVER_DRAFT_H

/* A message under construction, from a request. */

#include <postern/message.h>
#include <stdbool.h>

#include "core/content_keys.h"
#include "server/api.h"

struct postern__call;

/* How a request carries a message. */
enum postern__form {
	POSTERN__FORM_BINARY,
	POSTERN__FORM_STRUCTURED,
	POSTERN__FORM_BATCH,
	POSTERN__FORM_UNKNOWN /* a content type of CloudEvents that is unknown */
};

enum postern__form postern__request_form(
		const struct postern__request *request);

/* Zero it. The message borrows from the request and from the call's arena. */
struct postern__draft {
	struct postern_message message;
	struct postern_header headers[POSTERN__API_HEADER_COUNT_MAX];
	bool has_specversion;
	/* The channel has a key rule other than `id` for raw messages, so that an
	   id is not needed: it is generated here. */
	bool makes_ids;
	char id[POSTERN__GENERATED_ID_LEN + 1];
};

/* Whether the form of the request is supported. False: refused. */
bool postern__draft_check_form(struct postern__call *call);

/* Copy the headers of the request, the values of ce-* headers decoded, in its
   order. False: refused. */
bool postern__draft_decode_headers(struct postern__call *call,
		const struct postern_header **out);

/* Read a message in any form but a batch. False: refused. */
bool postern__draft_read(struct postern__call *call,
		struct postern__draft *draft);

/* Read an event in structured form. The event is complete: headers of the
   request are no part of it. False: refused. */
bool postern__draft_read_event(struct postern__call *call,
		struct postern__draft *draft);

/* Find the id of a raw message: the first of three headers, or one that is
   generated if the channel needs none. False: refused. */
bool postern__draft_read_id(struct postern__call *call,
		struct postern__draft *draft);

/* Complete a message that has its attributes: the headers that are not ce-*,
   and the body. False: refused. */
bool postern__draft_fill(struct postern__call *call,
		struct postern__draft *draft);

#endif
