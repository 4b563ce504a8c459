/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SOURCE_CLOUDEVENT_H
#define POSTERN_SOURCE_CLOUDEVENT_H

/*
 * A CloudEvent in the JSON format (structured form) as a message: a line of a
 * file, a body of application/cloudevents+json, an AMQP message.
 *
 * The attributes become members of the message, other extensions become
 * headers named "ce-NAME", as in the binary form over HTTP. `data` under a JSON
 * content type (the default) is the body as it stands, byte for byte; under
 * another content type a string is the body as text. `data_base64` is decoded.
 */

#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/json_scan.h"

struct postern_error;

/*
 * Read one event. Limits of message.h are left to the box; what CloudEvents
 * itself demands is validated here.
 *
 * event  a value of postern__json_scan(); its text must outlive the message.
 * arena  keeps what had to be copied; the message lives as long.
 *
 * Returns POSTERN_OK, or POSTERN_E_INVALID, or POSTERN_E_NOMEM.
 */
int postern__cloudevent_read(const struct postern__json_value *event,
		struct postern__arena *arena, struct postern_message *out,
		struct postern_error *error);

/* The member of a message that has this attribute ("id", "correlationid");
   NULL: the attribute is an extension. */
const char **postern__cloudevent_member(struct postern_message *message,
		const char *name);

/* Whether a header "ce-NAME" of a message, in any case, is an extension: not
   one that would be sent as an attribute beside that of the message. */
bool postern__cloudevent_is_extension(const char *header);

/* Whether a content type names JSON: "application/json", "text/json",
   "application/problem+json; charset=utf-8". NULL does. */
bool postern__is_json_type(const char *content_type);

#endif
