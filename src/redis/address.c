/* SPDX-License-Identifier: MIT */

/*
 * Parsing the URL. It has a password, so an error names the part that is wrong
 * and never quotes it; only the name of an unknown parameter is shown, and only
 * if it is plain letters.
 */

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/utf8.h"
#include "redis/redis.h"

#define URL_LEN_MAX 4096
#define DATABASE_MAX 9999
#define DURATION_MS_MAX (INT64_C(3650) * 24 * 3600 * 1000)

struct slice {
	const char *at;
	size_t len;
};

/* Undo percent-encoding. `what` names the part. */
static int decode(struct slice from, char *out, size_t size, const char *what,
		struct postern_error *error) {
	size_t len = 0;
	for (size_t i = 0; i < from.len; i++) {
		unsigned char c = (unsigned char)from.at[i];
		if (c == '%') {
			int high =
					i + 2 < from.len ? postern__hex_value(from.at[i + 1]) : -1;
			int low = high >= 0 ? postern__hex_value(from.at[i + 2]) : -1;
			if (high < 0 || low < 0 || (high == 0 && low == 0)) {
				return postern__fail(error, POSTERN_E_INVALID,
						"the %s has a '%%' that is not followed by the two "
						"hexadecimal digits of a byte other than 0",
						what);
			}
			c = (unsigned char)(high * 16 + low);
			i += 2;
		}
		if (len + 1 >= size) {
			return postern__fail(error, POSTERN_E_INVALID,
					"the %s is over %zu bytes", what, size - 1);
		}
		out[len++] = (char)c;
	}
	out[len] = '\0';
	return POSTERN_OK;
}

static int parse_user(struct postern__redis_address *address, struct slice user,
		struct postern_error *error) {
	const char *colon = memchr(user.at, ':', user.len);
	if (!colon) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'@' follows neither 'user:password' nor ':password'");
	}
	size_t len = (size_t)(colon - user.at);
	int r = decode((struct slice){ user.at, len }, address->user,
			sizeof address->user, "user", error);
	if (!r) {
		r = decode((struct slice){ colon + 1, user.len - len - 1 },
				address->password, sizeof address->password, "password", error);
	}
	address->has_password = address->password[0] != '\0';
	if (!r && !address->has_password) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the password is empty; leave out everything before the host "
				"if the server needs none");
	}
	return r;
}

static int parse_port(struct postern__redis_address *address, struct slice text,
		struct postern_error *error) {
	uint64_t port;
	char digits[6] = "";
	if (text.len > 0 && text.len < sizeof digits) {
		memcpy(digits, text.at, text.len);
	}
	if (postern__count_parse(digits, 1, 65535, &port, NULL)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the port is not a number from 1 to 65535; a '@', '/', '?', "
				"'#' or '%%' in a password is written %%40, %%2F, %%3F, %%23 "
				"or "
				"%%25");
	}
	(void)snprintf(address->port, sizeof address->port, "%u", (unsigned)port);
	return POSTERN_OK;
}

/* HOST, HOST:PORT or [IPV6]:PORT. */
static int parse_host(struct postern__redis_address *address, struct slice text,
		struct postern_error *error) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
								  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
	struct slice host = text;
	const char *end = text.at + text.len;
	if (text.len > 0 && text.at[0] == '[') {
		const char *close = memchr(text.at, ']', text.len);
		host.at++;
		host.len = close ? (size_t)(close - host.at) : 0;
		text.at = close ? close + 1 : end;
		if (strspn(host.at, "0123456789abcdefABCDEF:.") < host.len) {
			host.len = 0;
		}
	} else {
		const char *colon = memchr(text.at, ':', text.len);
		host.len = colon ? (size_t)(colon - host.at) : text.len;
		text.at = host.at + host.len;
		if (strspn(host.at, letters) < host.len) {
			host.len = 0;
		}
	}
	if (host.len == 0 || host.len >= sizeof address->host) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the host is missing or not a valid name");
	}
	memcpy(address->host, host.at, host.len);
	if (text.at == end) {
		return POSTERN_OK;
	}
	if (*text.at != ':') {
		return postern__fail(error, POSTERN_E_INVALID,
				"']' is followed by neither a port nor a '/'");
	}
	text.at++;
	return parse_port(address,
			(struct slice){ text.at, (size_t)(end - text.at) }, error);
}

static int parse_database(struct postern__redis_address *address,
		struct slice text, struct postern_error *error) {
	char digits[8] = "";
	uint64_t database = 0;
	if (text.len == 0) {
		return POSTERN_OK;
	}
	if (text.len < sizeof digits) {
		memcpy(digits, text.at, text.len);
	}
	if (postern__count_parse(digits, 0, DATABASE_MAX, &database, NULL)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the database is not a number from 0 to %d", DATABASE_MAX);
	}
	address->database = (uint32_t)database;
	return POSTERN_OK;
}

static int take_key_prefix(struct postern__redis_address *address,
		const char *text, struct postern_error *error) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
								  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
	size_t len = strlen(text);
	/* A '{' would begin a hash tag, and names of one marker would be in
	   different slots. */
	if (len == 0 || len >= sizeof address->key_prefix ||
			strspn(text, letters) < len) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'key_prefix' must have 1 to %zu letters, digits and '.', '_', "
				"':', '-'",
				sizeof address->key_prefix - 1);
	}
	memcpy(address->key_prefix, text, len + 1);
	return POSTERN_OK;
}

static int take_ttl(struct postern__redis_address *address, const char *text,
		struct postern_error *error) {
	int64_t ms = 0;
	if (postern__duration_parse(text, &ms, NULL) || ms < REDIS_TTL_MS_MIN ||
			ms > DURATION_MS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'ttl' must be a duration of 1m to 3650d");
	}
	address->ttl_ms = ms;
	return POSTERN_OK;
}

static int take_connections(struct postern__redis_address *address,
		const char *text, struct postern_error *error) {
	uint64_t count;
	if (postern__count_parse(text, 1, REDIS_CONNECTION_MAX, &count, NULL)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'connections' must be a number from 1 to %d",
				REDIS_CONNECTION_MAX);
	}
	address->connections = (uint32_t)count;
	return POSTERN_OK;
}

static int take_path(char *out, size_t size, const char *name, const char *text,
		struct postern_error *error) {
	size_t len = strlen(text);
	if (len == 0 || len >= size) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%s' must be a path of 1 to %zu bytes", name, size - 1);
	}
	memcpy(out, text, len + 1);
	return POSTERN_OK;
}

static int take_ca_file(struct postern__redis_address *address,
		const char *text, struct postern_error *error) {
	return take_path(address->ca_file, sizeof address->ca_file, "ca_file", text,
			error);
}

static int take_socket(struct postern__redis_address *address, const char *text,
		struct postern_error *error) {
	return take_path(address->socket, sizeof address->socket, "socket", text,
			error);
}

static const struct parameter {
	const char *name;
	int (*take)(struct postern__redis_address *address, const char *text,
			struct postern_error *error);
} parameters[] = {
	{ "key_prefix", take_key_prefix },
	{ "ttl", take_ttl },
	{ "ca_file", take_ca_file },
	{ "connections", take_connections },
	{ "socket", take_socket },
};
#define PARAMETER_COUNT (sizeof parameters / sizeof parameters[0])

static int fail_parameter(struct slice name, struct postern_error *error) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";
	const char *names[PARAMETER_COUNT];
	char text[24] = "";
	if (name.len >= sizeof text || strspn(name.at, letters) < name.len) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the URL has an unknown parameter");
	}
	memcpy(text, name.at, name.len);
	for (size_t i = 0; i < PARAMETER_COUNT; i++) {
		names[i] = parameters[i].name;
	}
	const char *near = postern__closest(text, names, PARAMETER_COUNT);
	return near ? postern__fail(error, POSTERN_E_INVALID,
						  "unknown parameter '%s'; did you mean '%s'?", text,
						  near)
				: postern__fail(error, POSTERN_E_INVALID,
						  "unknown parameter '%s'; there are key_prefix, ttl, "
						  "ca_file, connections and socket",
						  text);
}

static int parse_parameter(struct postern__redis_address *address,
		struct slice text, unsigned *seen, struct postern_error *error) {
	char value[1100];
	const char *equals = memchr(text.at, '=', text.len);
	struct slice name = { text.at,
		equals ? (size_t)(equals - text.at) : text.len };
	for (size_t i = 0; equals && i < PARAMETER_COUNT; i++) {
		const char *known = parameters[i].name;
		if (strlen(known) != name.len ||
				memcmp(known, name.at, name.len) != 0) {
			continue;
		}
		if (*seen & 1U << i) {
			return postern__fail(error, POSTERN_E_INVALID,
					"the parameter '%s' is there twice", known);
		}
		*seen |= 1U << i;
		int r = decode((struct slice){ equals + 1, text.len - name.len - 1 },
				value, sizeof value, known, error);
		return r ? r : parameters[i].take(address, value, error);
	}
	return fail_parameter(name, error);
}

static int parse_query(struct postern__redis_address *address,
		struct slice query, struct postern_error *error) {
	unsigned seen = 0;
	int r = POSTERN_OK;
	while (!r && query.len > 0) {
		const char *end = memchr(query.at, '&', query.len);
		size_t len = end ? (size_t)(end - query.at) : query.len;
		r = parse_parameter(address, (struct slice){ query.at, len }, &seen,
				error);
		len += end != NULL;
		query.at += len;
		query.len -= len;
	}
	return r;
}

static int parse_rest(struct postern__redis_address *address, struct slice rest,
		struct postern_error *error) {
	size_t authority_len = 0;
	while (authority_len < rest.len && !strchr("/?", rest.at[authority_len])) {
		authority_len++;
	}
	size_t place_len = authority_len;
	while (place_len < rest.len && rest.at[place_len] != '?') {
		place_len++;
	}
	struct slice host = { rest.at, authority_len };
	struct slice path = { rest.at + authority_len, place_len - authority_len };
	struct slice query = { rest.at + place_len, rest.len - place_len };
	if (query.len > 0) {
		query.at++;
		query.len--;
	}
	const char *at = memrchr(host.at, '@', host.len);
	int r = POSTERN_OK;
	if (at) {
		size_t len = (size_t)(at - host.at);
		r = parse_user(address, (struct slice){ host.at, len }, error);
		host.at += len + 1;
		host.len -= len + 1;
	}
	if (!r && host.len > 0) {
		r = parse_host(address, host, error);
	}
	if (!r && path.len > 0) {
		r = parse_database(address, (struct slice){ path.at + 1, path.len - 1 },
				error);
	}
	return r ? r : parse_query(address, query, error);
}

static int check_whole(const struct postern__redis_address *address,
		struct postern_error *error) {
	if (address->socket[0] && (address->host[0] || address->tls)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'socket' excludes a host and TLS; write "
				"redis:///?socket=PATH");
	}
	if (!address->socket[0] && !address->host[0]) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the host is missing or not a valid name");
	}
	if (address->ca_file[0] && !address->tls) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'ca_file' is for TLS; write rediss://");
	}
	return POSTERN_OK;
}

static void set_place(struct postern__redis_address *address) {
	bool brackets = strchr(address->host, ':') != NULL;
	if (address->socket[0]) {
		(void)snprintf(address->place, sizeof address->place, "Redis at '%s'",
				address->socket);
	} else {
		(void)snprintf(address->place, sizeof address->place,
				"Redis at '%s%s%s:%s'", brackets ? "[" : "", address->host,
				brackets ? "]" : "", address->port);
	}
}

int postern__redis_address_parse(const char *url,
		struct postern__redis_address *out, struct postern_error *error) {
	size_t len = strnlen(url, URL_LEN_MAX + 1);
	bool tls = strncmp(url, "rediss://", strlen("rediss://")) == 0;
	*out = (struct postern__redis_address){
		.tls = tls,
		.port = "6379",
		.key_prefix = "postern:",
		.ttl_ms = REDIS_TTL_MS_DEFAULT,
		.connections = REDIS_CONNECTION_DEFAULT,
	};
	if (len > URL_LEN_MAX || !postern__utf8_valid(url, len) ||
			postern__utf8_has_control(url, len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the URL of Redis is over %d bytes, not valid UTF-8, or has a "
				"control character",
				URL_LEN_MAX);
	}
	if (!tls && strncmp(url, "redis://", strlen("redis://")) != 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the URL of Redis does not begin with redis:// or rediss://");
	}
	if (memchr(url, '#', len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the URL of Redis has a '#'; in a password it is written %%23");
	}
	size_t start = tls ? strlen("rediss://") : strlen("redis://");
	struct postern_error why = { 0 };
	int r = parse_rest(out, (struct slice){ url + start, len - start }, &why);
	if (!r) {
		r = check_whole(out, &why);
	}
	if (r) {
		postern__redis_address_wipe(out);
		return postern__fail(error, r, "the URL of Redis: %s", why.text);
	}
	set_place(out);
	return POSTERN_OK;
}

void postern__redis_address_wipe(struct postern__redis_address *address) {
	explicit_bzero(address, sizeof *address);
}
