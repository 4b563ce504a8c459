/* SPDX-License-Identifier: MIT */

/*
 * From a request to a message.
 *
 * Four forms. A CloudEvent in binary form has its attributes in ce-* headers,
 * quoted or percent-encoded as the HTTP binding defines. A raw message has none
 * of those and is identified by the first of three headers that senders use for
 * that. In both forms the body is opaque, and headers that are not about the
 * HTTP exchange itself become headers of the message. An event in structured
 * form is a JSON object in the body (source/cloudevent.h), a batch is an array
 * of them (api_batch.c).
 *
 * The box validates the limits of a message again; here they are validated
 * where the response has a status of its own.
 */

#include "server/draft.h"

#include <assert.h>
#include <postern/error.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/json_scan.h"
#include "base/percent.h"
#include "base/time.h"
#include "base/utf8.h"
#include "server/receipt.h"
#include "server/route.h"
#include "source/cloudevent.h"

/* The beginning of the media types of CloudEvents. */
#define EVENTS "application/cloudevents"

/* CloudEvents attributes that are members of a message. */
static const struct attribute {
	const char *name; /* after "ce-" */
	size_t offset;    /* in struct postern_message */
	bool required;
} attributes[] = {
	{ "id", offsetof(struct postern_message, id), true },
	{ "source", offsetof(struct postern_message, source), true },
	{ "type", offsetof(struct postern_message, type), true },
	{ "subject", offsetof(struct postern_message, subject), false },
	{ "time", offsetof(struct postern_message, time), false },
	{ "correlationid", offsetof(struct postern_message, correlation_id),
			false },
	{ "traceparent", offsetof(struct postern_message, traceparent), false },
};

#define ATTRIBUTE_COUNT (sizeof attributes / sizeof attributes[0])

static const char **member_of(struct postern_message *message,
		const struct attribute *attribute) {
	return (const char **)(void *)((char *)message + attribute->offset);
}

/* The id of a raw message: the first of these headers. */
static const char *const key_headers[] = { "idempotency-key", "webhook-id",
	"x-message-id" };

#define KEY_HEADER_COUNT (sizeof key_headers / sizeof key_headers[0])

/* Headers of the exchange, the sender's credentials, or members of the message:
   not stored as headers. Names that end in '-' are prefixes. */
static const char *const exchange_headers[] = {
	"accept",
	"accept-",
	"access-control-",
	"api-key",
	"authorization",
	"cache-control",
	"connection",
	"content-encoding",
	"content-length",
	"content-type",
	"cookie",
	"correlation-id",
	"date",
	"dnt",
	"expect",
	"forwarded",
	"host",
	"http2-settings",
	"idempotency-key",
	"if-",
	"keep-alive",
	"origin",
	"postern-store",
	"pragma",
	"priority",
	"proxy-",
	"range",
	"referer",
	"sec-",
	"stripe-signature",
	"te",
	"traceparent",
	"trailer",
	"transfer-encoding",
	"upgrade",
	"upgrade-",
	"user-agent",
	"via",
	"webhook-signature",
	"x-access-token",
	"x-api-key",
	"x-auth-token",
	"x-correlation-id",
	"x-forwarded-",
	"x-gitlab-token",
	"x-hub-signature",
	"x-hub-signature-256",
	"x-real-ip",
};

static bool is_exchange_header(const char *name) {
	for (size_t i = 0; i < sizeof exchange_headers / sizeof exchange_headers[0];
			i++) {
		const char *known = exchange_headers[i];
		size_t len = strlen(known);
		if (known[len - 1] == '-' ? strncasecmp(name, known, len) == 0
								  : strcasecmp(name, known) == 0) {
			return true;
		}
	}
	return false;
}

static bool is_ce(const char *name) {
	return strncasecmp(name, "ce-", 3) == 0;
}

bool postern__api_keeps_header(const char *name) {
	return !is_ce(name) && !is_exchange_header(name);
}

static bool has_ce(const struct postern__request *request) {
	for (size_t i = 0; i < request->header_count; i++) {
		if (is_ce(request->headers[i].name)) {
			return true;
		}
	}
	return false;
}

/* Whether received text is valid. False: refused. */
static bool check_text(struct postern__call *call, const char *name,
		const char *text, size_t len) {
	if (!postern__utf8_valid(text, len)) {
		postern__call_refuse(call, 400, "%s is not valid UTF-8", name);
		return false;
	}
	if (postern__utf8_has_control(text, len)) {
		postern__call_refuse(call, 400, "%s has control characters", name);
		return false;
	}
	return true;
}

/*
 * Remove the quotes: "a \"b\"" becomes a "b". Quoted and plain parts may follow
 * each other. NULL: refused.
 */
static char *unquote(struct postern__call *call, const char *name,
		const char *text) {
	char *out = postern__arena_strdup(&call->arena, text);
	if (!out) {
		postern__call_refuse(call, 503, "out of memory");
		return NULL;
	}
	size_t n = 0;
	bool quoted = false;
	for (size_t i = 0; text[i]; i++) {
		if (text[i] == '"') {
			quoted = !quoted;
			continue;
		}
		if (quoted && text[i] == '\\' && text[i + 1]) {
			i++;
		}
		out[n++] = text[i];
	}
	out[n] = '\0';
	if (quoted) {
		postern__call_refuse(call, 400, "%s has an unterminated quote", name);
		return NULL;
	}
	return out;
}

/* Whether the quote at the beginning of a text ends at its end. */
static bool is_quoted(const char *text) {
	size_t i = 1;
	while (text[i] && text[i] != '"') {
		i += text[i] == '\\' && text[i + 1] ? 2 : 1;
	}
	return text[i] == '"' && text[i + 1] == '\0';
}

/* The decoded value of a ce-* header. NULL: refused. */
static const char *read_ce_value(struct postern__call *call,
		const struct postern_header *header) {
	const char *plain = unquote(call, header->name, header->value);
	if (!plain) {
		return NULL;
	}
	size_t len;
	bool malformed;
	const char *text = postern__percent_decode(&call->arena, plain,
			strlen(plain), &len, &malformed);
	if (malformed) {
		postern__call_refuse(call, 400,
				"%s has a '%%' that is not followed by two hex digits",
				header->name);
		return NULL;
	}
	if (!text) {
		postern__call_refuse(call, 503, "out of memory");
		return NULL;
	}
	return check_text(call, header->name, text, len) ? text : NULL;
}

bool postern__draft_decode_headers(struct postern__call *call,
		const struct postern_header **out) {
	const struct postern__request *request = call->request;
	struct postern_header *headers = postern__arena_array(&call->arena,
			request->header_count, sizeof *headers);
	if (!headers) {
		postern__call_refuse(call, 503, "out of memory");
		return false;
	}
	for (size_t i = 0; i < request->header_count; i++) {
		headers[i] = request->headers[i];
		if (is_ce(headers[i].name)) {
			headers[i].value = read_ce_value(call, &headers[i]);
		}
		if (!headers[i].value) {
			return false;
		}
	}
	*out = headers;
	return true;
}

/* "ce-foo" in lower case, because attribute names have no other. NULL:
   refused. */
static const char *read_ce_name(struct postern__call *call, const char *name) {
	char *lower = postern__arena_strdup(&call->arena, name);
	if (!lower) {
		postern__call_refuse(call, 503, "out of memory");
		return NULL;
	}
	bool good = lower[3] != '\0';
	for (size_t i = 0; lower[i]; i++) {
		if (lower[i] >= 'A' && lower[i] <= 'Z') {
			lower[i] = (char)(lower[i] - 'A' + 'a');
		}
		good = good && (i < 3 || (lower[i] >= 'a' && lower[i] <= 'z') ||
							   (lower[i] >= '0' && lower[i] <= '9'));
	}
	if (!good) {
		postern__call_refuse(call, 400,
				"'%s' is not an attribute name: only letters and digits may "
				"follow 'ce-'",
				name);
		return NULL;
	}
	return lower;
}

static void add_header(struct postern__draft *draft, const char *name,
		const char *value) {
	assert(draft);
	draft->headers[draft->message.header_count++] =
			(struct postern_header){ name, value };
}

/* Set the attribute of one ce-* header. False: refused. */
static bool read_ce(struct postern__call *call,
		const struct postern_header *header, struct postern__draft *draft) {
	const char *name = read_ce_name(call, header->name);
	const char *value = name ? read_ce_value(call, header) : NULL;
	if (!value) {
		return false;
	}
	if (strcmp(name, "ce-specversion") == 0) {
		if (strcmp(value, "1.0") != 0 || draft->has_specversion) {
			postern__call_refuse(call, 400,
					"ce-specversion must be 1.0, given once");
			return false;
		}
		draft->has_specversion = true;
		return true;
	}
	if (strcmp(name, "ce-datacontenttype") == 0) {
		postern__call_refuse(call, 400,
				"in binary form send Content-Type instead of "
				"ce-datacontenttype");
		return false;
	}
	for (size_t i = 0; i < ATTRIBUTE_COUNT; i++) {
		if (strcmp(name + 3, attributes[i].name) == 0) {
			const char **member = member_of(&draft->message, &attributes[i]);
			if (*member) {
				postern__call_refuse(call, 400, "%s is given twice", name);
				return false;
			}
			*member = value;
			return true;
		}
	}
	for (size_t i = 0; i < draft->message.header_count; i++) {
		if (strcmp(draft->headers[i].name, name) == 0) {
			postern__call_refuse(call, 400, "%s is given twice", name);
			return false;
		}
	}
	add_header(draft, name, value);
	return true;
}

/* Check the required attributes of a CloudEvent. */
static bool check_ce(struct postern__call *call, struct postern__draft *draft) {
	if (!draft->has_specversion) {
		postern__call_refuse(call, 400, "ce-specversion is missing");
		return false;
	}
	for (size_t i = 0; i < ATTRIBUTE_COUNT; i++) {
		const char *value = *member_of(&draft->message, &attributes[i]);
		if (!value && attributes[i].required) {
			postern__call_refuse(call, 400, "ce-%s is missing",
					attributes[i].name);
			return false;
		}
		if (value && !*value) {
			/* A raw message without an id is well-formed but cannot be
			   deduplicated. */
			postern__call_refuse(call, i == 0 ? 422 : 400, "ce-%s is empty",
					attributes[i].name);
			return false;
		}
	}
	return true;
}

/* Whether a body may be a CloudEvent in JSON whose content type is wrong: for a
   hint only, so it is not parsed. */
static bool resembles_event(const struct postern__request *request) {
	static const char member[] = "\"specversion\"";
	return request->body_len > 0 &&
		   memmem(request->body, request->body_len, member, sizeof member - 1);
}

bool postern__draft_read_id(struct postern__call *call,
		struct postern__draft *draft) {
	for (size_t i = 0; i < KEY_HEADER_COUNT; i++) {
		const char *value = NULL;
		for (size_t n = 0; n < call->request->header_count; n++) {
			const struct postern_header *header = &call->request->headers[n];
			if (strcasecmp(header->name, key_headers[i]) != 0) {
				continue;
			}
			if (value) {
				postern__call_refuse(call, 400, "%s is given twice",
						key_headers[i]);
				return false;
			}
			value = header->value;
		}
		if (!value) {
			continue;
		}
		/* Only Idempotency-Key is defined as a quoted string. */
		if (i == 0 && value[0] == '"') {
			if (!is_quoted(value)) {
				postern__call_refuse(call, 400,
						"%s is not a valid quoted string", key_headers[i]);
				return false;
			}
			value = unquote(call, key_headers[i], value);
			if (!value) {
				return false;
			}
		}
		if (!check_text(call, key_headers[i], value, strlen(value))) {
			return false;
		}
		draft->message.id = value;
		break;
	}
	if (!draft->message.id && draft->makes_ids) {
		draft->message.id = draft->id;
	}
	if (!draft->message.id || !*draft->message.id) {
		postern__call_refuse(call, 422,
				"the message has no id: send ce-id, Idempotency-Key, "
				"webhook-id or X-Message-Id%s",
				resembles_event(call->request)
						? ", or is this application/cloudevents+json?"
						: "");
		return false;
	}
	return true;
}

/* Read a header that is not ce-*. False: refused. */
static bool read_raw(struct postern__call *call,
		const struct postern_header *header, struct postern__draft *draft) {
	struct postern_message *message = &draft->message;
	const char *name = header->name;
	const char **member = NULL;
	if (strcasecmp(name, "content-type") == 0) {
		member = &message->content_type;
	} else if (strcasecmp(name, "traceparent") == 0) {
		member = &message->traceparent;
	} else if (strcasecmp(name, "correlation-id") == 0 ||
			   strcasecmp(name, "x-correlation-id") == 0) {
		member = &message->correlation_id;
	} else if (is_exchange_header(name)) {
		return true;
	}
	if (!check_text(call, name, header->value, strlen(header->value))) {
		return false;
	}
	if (!member) {
		add_header(draft, name, header->value);
	} else if (!*member && *header->value) {
		/* The attribute of the event was read first and has precedence. */
		*member = header->value;
	}
	return true;
}

static bool check_lengths(struct postern__call *call,
		const struct postern_message *message) {
	size_t characters = postern__utf8_count(message->id, strlen(message->id));
	if (characters > POSTERN_ID_CHARACTERS_MAX) {
		postern__call_refuse(call, 422,
				"the id has %zu characters; the maximum is %d", characters,
				POSTERN_ID_CHARACTERS_MAX);
		return false;
	}
	for (size_t i = 1; i < ATTRIBUTE_COUNT; i++) {
		const char *value =
				*member_of((struct postern_message *)message, &attributes[i]);
		if (value && strlen(value) > POSTERN_ATTRIBUTE_LEN_MAX) {
			postern__call_refuse(call, 400, "%s exceeds %d bytes",
					attributes[i].name, POSTERN_ATTRIBUTE_LEN_MAX);
			return false;
		}
	}
	struct postern_error error;
	if (message->time &&
			postern__time_parse(message->time, strlen(message->time), NULL,
					&error) != POSTERN_OK) {
		postern__call_refuse(call, 400, "ce-time: %s", error.text);
		return false;
	}
	return true;
}

static bool is_media_type(const char *content_type, const char *name) {
	size_t len = strlen(name);
	return strncasecmp(content_type, name, len) == 0 &&
		   strchr("; \t", content_type[len]) != NULL;
}

enum postern__form postern__request_form(
		const struct postern__request *request) {
	const char *type = postern__request_header(request, "content-type");
	if (!type || strncasecmp(type, EVENTS, sizeof EVENTS - 1) != 0) {
		return POSTERN__FORM_BINARY;
	}
	if (is_media_type(type, EVENTS "+json")) {
		return POSTERN__FORM_STRUCTURED;
	}
	return is_media_type(type, EVENTS "-batch+json") ? POSTERN__FORM_BATCH
													 : POSTERN__FORM_UNKNOWN;
}

bool postern__request_has_event(const struct postern__request *request) {
	return postern__request_form(request) != POSTERN__FORM_BINARY;
}

bool postern__draft_check_form(struct postern__call *call) {
	if (postern__request_form(call->request) == POSTERN__FORM_UNKNOWN) {
		postern__call_refuse(call, 415,
				"CloudEvents are accepted in binary form, as " EVENTS
				"+json, and as " EVENTS "-batch+json");
		return false;
	}
	const char *encoding = postern__call_header(call, "content-encoding");
	if (encoding && strcasecmp(encoding, "identity") != 0) {
		postern__call_refuse(call, 415, "Content-Encoding is not supported");
		return false;
	}
	return true;
}

/* Check what all forms have in common. False: refused. */
static bool finish(struct postern__call *call, struct postern__draft *draft) {
	const struct postern__request *request = call->request;
	size_t len_max = postern__api_message_len_max(call->api, request->path);
	if (draft->message.body_len > len_max) {
		postern__call_refuse(call, 413, "the data exceeds %zu bytes", len_max);
		return false;
	}
	draft->message.transport = request->transport;
	return check_lengths(call, &draft->message);
}

bool postern__draft_read_event(struct postern__call *call,
		struct postern__draft *draft) {
	const struct postern__request *request = call->request;
	struct postern__json_value event;
	struct postern_error error;
	int r = postern__json_scan(request->body, request->body_len, &event,
			&error);
	if (!r) {
		r = postern__cloudevent_read(&event, &call->arena, &draft->message,
				&error);
	}
	if (r) {
		postern__call_refuse(call, r == POSTERN_E_NOMEM ? 503 : 400, "%s",
				error.text);
		return false;
	}
	return finish(call, draft);
}

bool postern__draft_fill(struct postern__call *call,
		struct postern__draft *draft) {
	const struct postern__request *request = call->request;
	for (size_t i = 0; i < request->header_count; i++) {
		if (!is_ce(request->headers[i].name) &&
				!read_raw(call, &request->headers[i], draft)) {
			return false;
		}
	}
	draft->message.size = sizeof draft->message;
	draft->message.headers = draft->headers;
	draft->message.body = request->body;
	draft->message.body_len = request->body_len;
	return finish(call, draft);
}

bool postern__draft_read(struct postern__call *call,
		struct postern__draft *draft) {
	const struct postern__request *request = call->request;
	bool ce = has_ce(request);
	if (postern__request_form(request) == POSTERN__FORM_STRUCTURED) {
		return postern__draft_read_event(call, draft);
	}
	for (size_t i = 0; ce && i < request->header_count; i++) {
		if (is_ce(request->headers[i].name) &&
				!read_ce(call, &request->headers[i], draft)) {
			return false;
		}
	}
	return (ce ? check_ce(call, draft) : postern__draft_read_id(call, draft)) &&
		   postern__draft_fill(call, draft);
}
