/* SPDX-License-Identifier: MIT */

/*
 * The URL of a message: a text with {type}, {subject} and {id}. A value is
 * percent-encoded completely, so it cannot leave its place in the path or the
 * query; in the host it must be a part of a name. libcurl parses the URL here
 * and when it connects, so there are no two opinions about where its host is.
 */

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/percent.h"
#include "webhook/webhook.h"

static const struct part_name {
	const char *name;
	size_t offset; /* in struct postern_message */
} names[] = {
	{ "type", offsetof(struct postern_message, type) },
	{ "subject", offsetof(struct postern_message, subject) },
	{ "id", offsetof(struct postern_message, id) },
};
#define NAME_COUNT (sizeof names / sizeof names[0])

static const struct part_name *find_name(const char *at, size_t len) {
	for (size_t i = 0; i < NAME_COUNT; i++) {
		if (strlen(names[i].name) == len &&
				memcmp(names[i].name, at, len) == 0) {
			return &names[i];
		}
	}
	return NULL;
}

static const char *value_of(const struct postern_message *message,
		const struct part_name *name) {
	const char *const *member =
			(const char *const *)(const void *)((const char *)message +
												name->offset);
	return *member && **member ? *member : NULL;
}

/* Where the host, with what surrounds it, begins and ends. */
static void find_authority(const char *url, size_t *start_out,
		size_t *end_out) {
	const char *slashes = strstr(url, "://");
	*start_out = slashes ? (size_t)(slashes - url) + 3 : 0;
	*end_out = *start_out + strcspn(url + *start_out, "/?#");
}

static int check_names(const char *url, struct postern_error *error) {
	for (const char *at = strpbrk(url, "{}"); at; at = strpbrk(at, "{}")) {
		size_t len = strcspn(at + 1, "{}");
		if (*at == '}' || at[1 + len] != '}' || !find_name(at + 1, len)) {
			return postern__fail(error, POSTERN_E_INVALID,
					"'%.*s' is none of {type}, {subject} and {id}",
					(int)(len < 60 ? len : 60) + 2, at);
		}
		at += len + 2;
	}
	return POSTERN_OK;
}

int postern__webhook_url_form_check(const char *url,
		struct postern_error *error) {
	if (strncasecmp(url, "http://", 7) != 0 &&
			strncasecmp(url, "https://", 8) != 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the URL must begin with http:// or https://");
	}
	if (strlen(url) > WEBHOOK_URL_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the URL is over %d bytes", WEBHOOK_URL_LEN_MAX);
	}
	for (const char *at = url; *at; at++) {
		if (*at <= ' ' || *at >= 0x7f || *at == '\\' || *at == '#') {
			return postern__fail(error, POSTERN_E_INVALID,
					"the URL has a blank, '#', '\\' or a character that is not "
					"ASCII; percent-encode it");
		}
	}
	return check_names(url, error);
}

/* Between '@' and ':' of the authority, no name is elsewhere. */
static int check_authority(const char *url, bool templated_host,
		struct postern_error *error) {
	char authority[WEBHOOK_URL_LEN_MAX + 1];
	size_t start;
	size_t end;
	find_authority(url, &start, &end);
	memcpy(authority, url + start, end - start);
	authority[end - start] = '\0';
	char *last = strrchr(authority, '{');
	if (!last) {
		return templated_host
					   ? postern__fail(error, POSTERN_E_INVALID,
								 "templated_host is on, but the host has none "
								 "of {type}, {subject} and {id}")
					   : POSTERN_OK;
	}
	if (!templated_host) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the host comes from the message; set templated_host: true if "
				"whoever sends messages may choose where they are sent");
	}
	const char *colon = strchr(authority, ':');
	if (strchr(authority, '@') || (colon && colon < last)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a host from the message cannot have credentials or a port "
				"from it");
	}
	return POSTERN_OK;
}

static bool has_dot_segment(const char *url) {
	size_t start;
	size_t end;
	find_authority(url, &start, &end);
	const char *at = url + end;
	while (*at == '/') {
		size_t len = strcspn(at + 1, "/?#");
		if ((len == 1 && at[1] == '.') ||
				(len == 2 && at[1] == '.' && at[2] == '.')) {
			return true;
		}
		at += 1 + len;
	}
	return false;
}

/* Parse with the values that a message could have. */
static int check_parts(const char *url, bool templated_host,
		struct postern_error *error) {
	static const struct postern_message example = {
		.id = "x",
		.type = "x",
		.subject = "x",
	};
	const struct postern__webhook_guard guard = { 0 };
	struct postern__buf filled;
	char *host = NULL;
	int r = POSTERN_OK;
	postern__buf_init(&filled, WEBHOOK_URL_FILLED_LEN_MAX);
	CURLU *parts = curl_url();
	r = parts ? postern__webhook_url_fill(url, &example, &filled, error)
			  : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	CURLUcode code = r ? CURLUE_OK
					   : curl_url_set(parts, CURLUPART_URL,
								 postern__buf_text(&filled), CURLU_PATH_AS_IS);
	if (!r && !code) {
		code = curl_url_get(parts, CURLUPART_HOST, &host, 0);
	}
	if (code) {
		r = postern__fail(error, POSTERN_E_INVALID, "not a URL: %s",
				curl_url_strerror(code));
	}
	const char *why = r || templated_host
							  ? NULL
							  : postern__webhook_host_refuse(&guard, host);
	if (why) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"'%.80s' is %s, where nothing is ever sent", host, why);
	}
	curl_free(host);
	curl_url_cleanup(parts);
	postern__buf_finish(&filled);
	return r;
}

int postern__webhook_url_check(const char *url, bool templated_host,
		struct postern_error *error) {
	int r = postern__webhook_url_form_check(url, error);
	if (!r) {
		r = check_authority(url, templated_host, error);
	}
	if (!r && has_dot_segment(url)) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"the path has a part '.' or '..'");
	}
	return r ? r : check_parts(url, templated_host, error);
}

/* A value in the host: labels of a name. */
static bool is_host_part(const char *value) {
	return strspn(value,
				   "abcdefghijklmnopqrstuvwxyz"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == strlen(value);
}

static int add_value(const struct part_name *name, bool in_host,
		const struct postern_message *message, struct postern__buf *out,
		struct postern_error *error) {
	const char *value = value_of(message, name);
	if (!value) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the URL needs the %s, and the message has none", name->name);
	}
	if (!in_host) {
		postern__percent_segment(out, value);
		return POSTERN_OK;
	}
	if (!is_host_part(value)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the %s '%.80s' is no part of the name of a host", name->name,
				value);
	}
	postern__buf_append_text(out, value);
	return POSTERN_OK;
}

int postern__webhook_url_fill(const char *url,
		const struct postern_message *message, struct postern__buf *out,
		struct postern_error *error) {
	size_t start;
	size_t end;
	int r = POSTERN_OK;
	find_authority(url, &start, &end);
	const char *at = url;
	while (!r && *at) {
		size_t plain = strcspn(at, "{");
		postern__buf_append(out, at, plain);
		at += plain;
		if (*at) {
			size_t len = strcspn(at + 1, "}");
			r = add_value(find_name(at + 1, len), (size_t)(at - url) < end,
					message, out, error);
			at += len + 2;
		}
	}
	if (!r) {
		r = postern__buf_check(out, "the URL of the message", error);
	}
	if (!r && has_dot_segment(postern__buf_text(out))) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"the URL of the message has a part '.' or '..' in its path");
	}
	return r;
}

void postern__webhook_url_shown(const char *url, char *out, size_t size) {
	size_t start;
	size_t end;
	find_authority(url, &start, &end);
	size_t host = start;
	for (size_t i = start; i < end; i++) {
		host = url[i] == '@' ? i + 1 : host;
	}
	(void)snprintf(out, size, "%.*s%.*s", (int)start, url, (int)(end - host),
			url + host);
}
