/* SPDX-License-Identifier: MIT */

/*
 * Responses, and how an error becomes one. Only this file maps POSTERN_E_ codes
 * to statuses; a route that needs another status sets it itself.
 */

#include <assert.h>
#include <postern/error.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/json_text.h"
#include "server/api.h"
#include "server/route.h"

/* The longest body there may be, as bytes; JSON stays far below. */
#define BODY_LEN_MAX (POSTERN_BODY_LEN_MAX + (size_t)1024 * 1024)

void postern__response_init(struct postern__response *response) {
	*response = (struct postern__response){
		.status = 500,
		.content_type = "application/json",
	};
	postern__buf_init(&response->body, BODY_LEN_MAX);
}

void postern__response_finish(struct postern__response *response) {
	postern__buf_finish(&response->body);
}

const char *postern__status_text(int status) {
	static const struct {
		int status;
		const char *text;
	} texts[] = {
		{ 200, "OK" },
		{ 202, "Accepted" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 413, "Content Too Large" },
		{ 414, "URI Too Long" },
		{ 415, "Unsupported Media Type" },
		{ 421, "Misdirected Request" },
		{ 422, "Unprocessable Content" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 505, "HTTP Version Not Supported" },
	};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		if (texts[i].status == status) {
			return texts[i].text;
		}
	}
	return "Unknown";
}

const char *postern__code_name(int code) {
	switch (code) {
	case POSTERN_E_INVALID: return "invalid";
	case POSTERN_E_NOMEM: return "nomem";
	case POSTERN_E_NOTFOUND: return "notfound";
	case POSTERN_E_DUPLICATE: return "duplicate";
	case POSTERN_E_STALE: return "stale";
	case POSTERN_E_BUSY: return "busy";
	case POSTERN_E_UNAVAILABLE: return "unavailable";
	case POSTERN_E_TIMEOUT: return "timeout";
	case POSTERN_E_CORRUPT: return "corrupt";
	case POSTERN_E_UNSUPPORTED: return "unsupported";
	case POSTERN_E_CONFLICT: return "conflict";
	case POSTERN_E_FAILED: return "failed";
	default: return NULL;
	}
}

void postern__response_open_problem(struct postern__response *response,
		int status, int code, const char *detail) {
	response->status = status;
	response->content_type = "application/problem+json";
	postern__buf_reset(&response->body);
	postern__json_open(&response->body, '{');
	postern__json_pair_text(&response->body, "type", "about:blank");
	postern__json_pair_text(&response->body, "title",
			postern__status_text(status));
	postern__json_pair_int(&response->body, "status", status);
	if (detail) {
		postern__json_pair_text(&response->body, "detail", detail);
	}
	if (postern__code_name(code)) {
		postern__json_pair_text(&response->body, "code",
				postern__code_name(code));
	}
}

void postern__response_problem(struct postern__response *response, int status,
		int code, const char *detail) {
	postern__response_open_problem(response, status, code, detail);
	postern__json_close(&response->body, '}');
}

void postern__response_header(struct postern__response *response,
		const char *name, const char *value) {
	assert(response->header_count < POSTERN__RESPONSE_HEADER_COUNT_MAX);
	struct postern__response_header *header =
			&response->headers[response->header_count++];
	header->name = name;
	(void)snprintf(header->value, sizeof header->value, "%s", value);
}

static int status_of(int code) {
	switch (code) {
	case POSTERN_E_INVALID: return 400;
	case POSTERN_E_NOTFOUND: return 404;
	case POSTERN_E_CONFLICT:
	case POSTERN_E_STALE: return 409;
	case POSTERN_E_UNSUPPORTED: return 501;
	case POSTERN_E_FAILED: return 502;
	case POSTERN_E_NOMEM:
	case POSTERN_E_BUSY:
	case POSTERN_E_TIMEOUT:
	case POSTERN_E_UNAVAILABLE: return 503;
	default: return 500;
	}
}

/* Retry-After in seconds while the store is unavailable. */
#define RETRY_AFTER_TROUBLE "5"

void postern__response_open_fail(struct postern__response *response,
		const struct postern_error *error) {
	int status = status_of(error->code);
	postern__response_open_problem(response, status, error->code, error->text);
	if (status == 503) {
		postern__response_header(response, "Retry-After", RETRY_AFTER_TROUBLE);
	}
}

void postern__response_fail(struct postern__response *response,
		const struct postern_error *error) {
	postern__response_open_fail(response, error);
	postern__json_close(&response->body, '}');
}

void postern__response_check(struct postern__response *response) {
	struct postern_error error;
	if (postern__buf_check(&response->body, "the answer", &error) !=
			POSTERN_OK) {
		postern__response_problem(response, 500, error.code, error.text);
	}
}

void postern__call_fail(struct postern__call *call,
		const struct postern_error *error) {
	postern__response_fail(call->response, error);
}

void postern__call_refuse(struct postern__call *call, int status,
		const char *format, ...) {
	/* Sanitized like an error's text: it may quote the request. */
	char text[POSTERN_ERROR_TEXT_MAX];
	struct postern_error error;
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof text, format, args);
	va_end(args);
	(void)postern__fail(&error, POSTERN_E_INVALID, "%s", text);
	postern__response_problem(call->response, status, POSTERN_OK, error.text);
}

void postern__write_time(struct postern__buf *buf, const char *name,
		int64_t ms) {
	if (ms == 0) {
		postern__json_pair_null(buf, name);
	} else {
		postern__json_pair_time(buf, name, ms);
	}
}
