/* SPDX-License-Identifier: MIT */

/*
 * Parsing the URL. It has a password, so an error names the part that is wrong
 * and never quotes it.
 */

#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/utf8.h"
#include "rabbitmq/rabbitmq.h"

#define URL_LEN_MAX 4096
#define PORT 5672
#define PORT_TLS 5671

struct part {
	const char *at;
	size_t len;
};

/* The part up to a character, which is removed with it; all if it is not
   there. */
static struct part take_until(struct part *rest, char c) {
	const char *end = memchr(rest->at, c, rest->len);
	struct part taken = { rest->at,
		end ? (size_t)(end - rest->at) : rest->len };
	size_t gone = taken.len + (end != NULL);
	rest->at += gone;
	rest->len -= gone;
	return taken;
}

static int hex_byte(struct part text, size_t i) {
	int high = i + 2 < text.len ? postern__hex_value(text.at[i + 1]) : -1;
	int low = high >= 0 ? postern__hex_value(text.at[i + 2]) : -1;
	return low < 0 ? -1 : high * 16 + low;
}

/* Undo percent-encoding. `what` names the part. */
static int decode(struct part text, char *out, size_t size, const char *what,
		struct postern_error *error) {
	size_t len = 0;
	for (size_t i = 0; i < text.len; i++) {
		int c = (unsigned char)text.at[i];
		if (c == '%') {
			c = hex_byte(text, i);
			i += 2;
		}
		if (c <= 0) {
			return postern__fail(error, POSTERN_E_INVALID,
					"the %s has a '%%' without the two hexadecimal digits of a "
					"byte other than 0",
					what);
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

static int parse_port(struct part text, int *out, struct postern_error *error) {
	char digits[6] = "";
	uint64_t port;
	if (text.len > 0 && text.len < sizeof digits) {
		memcpy(digits, text.at, text.len);
	}
	if (postern__count_parse(digits, 1, 65535, &port, NULL)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a port is not a number from 1 to 65535; a '@', '/', ',' or "
				"':' in a password is written %%40, %%2F, %%2C or %%3A");
	}
	*out = (int)port;
	return POSTERN_OK;
}

/* HOST, HOST:PORT or [IPV6]:PORT. */
static int parse_host(struct part text, struct postern__rabbitmq_host *out,
		struct postern_error *error) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
								  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
	bool brackets = text.len > 0 && *text.at == '[';
	const char *allowed = brackets ? "0123456789abcdefABCDEF:." : letters;
	struct part rest = { text.at + brackets, text.len - brackets };
	struct part name = take_until(&rest, brackets ? ']' : ':');
	bool all = name.at + name.len == text.at + text.len;
	if ((brackets && all) || name.len == 0 ||
			name.len > RABBITMQ_HOST_LEN_MAX ||
			strspn(name.at, allowed) < name.len) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a host is missing or not a valid name");
	}
	memcpy(out->name, name.at, name.len);
	out->name[name.len] = '\0';
	if (all || (brackets && rest.len == 0)) {
		return POSTERN_OK;
	}
	if (brackets && take_until(&rest, ':').len > 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"']' is followed by something other than a port");
	}
	return parse_port(rest, &out->port, error);
}

static int parse_hosts(struct part text, struct postern__rabbitmq_address *out,
		struct postern_error *error) {
	int r = POSTERN_OK;
	do {
		struct part host = take_until(&text, ',');
		if (out->host_count == RABBITMQ_HOST_COUNT_MAX) {
			return postern__fail(error, POSTERN_E_INVALID, "over %d hosts",
					RABBITMQ_HOST_COUNT_MAX);
		}
		out->hosts[out->host_count].port = out->tls ? PORT_TLS : PORT;
		r = parse_host(host, &out->hosts[out->host_count++], error);
	} while (!r && text.len > 0);
	return r;
}

static int parse_user(struct part text, struct postern__rabbitmq_address *out,
		struct postern_error *error) {
	struct part user = take_until(&text, ':');
	int r = decode(user, out->user, sizeof out->user, "user", error);
	if (!r) {
		r = decode(text, out->password, sizeof out->password, "password",
				error);
	}
	return r;
}

static int parse_rest(struct part rest, struct postern__rabbitmq_address *out,
		struct postern_error *error) {
	struct part authority = take_until(&rest, '/');
	const char *at = memrchr(authority.at, '@', authority.len);
	int r = POSTERN_OK;
	if (at) {
		struct part user = { authority.at, (size_t)(at - authority.at) };
		authority.at += user.len + 1;
		authority.len -= user.len + 1;
		r = parse_user(user, out, error);
	}
	if (!r) {
		r = parse_hosts(authority, out, error);
	}
	if (!r && memchr(rest.at, '/', rest.len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the vhost has a '/'; write it as %%2F");
	}
	return r || rest.len == 0 ? r
							  : decode(rest, out->vhost, sizeof out->vhost,
										"vhost", error);
}

int postern__rabbitmq_address_parse(const char *url,
		struct postern__rabbitmq_address *out, struct postern_error *error) {
	static const char plain[] = "amqp://";
	static const char with_tls[] = "amqps://";
	size_t len = strnlen(url, URL_LEN_MAX + 1);
	bool tls = strncmp(url, with_tls, strlen(with_tls)) == 0;
	*out = (struct postern__rabbitmq_address){
		.tls = tls,
		.user = "guest",
		.password = "guest",
		.vhost = "/",
	};
	if (len > URL_LEN_MAX || !postern__utf8_valid(url, len) ||
			postern__utf8_has_control(url, len) || strpbrk(url, "?#")) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the URL of RabbitMQ is over %d bytes, not valid UTF-8, or has "
				"a control character, a '?' or a '#'",
				URL_LEN_MAX);
	}
	if (!tls && strncmp(url, plain, strlen(plain)) != 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the URL of RabbitMQ does not begin with amqp:// or amqps://");
	}
	size_t start = tls ? strlen(with_tls) : strlen(plain);
	struct postern_error why = { 0 };
	int r = parse_rest((struct part){ url + start, len - start }, out, &why);
	if (r) {
		postern__rabbitmq_address_wipe(out);
		return postern__fail(error, r, "the URL of RabbitMQ: %s", why.text);
	}
	return POSTERN_OK;
}

void postern__rabbitmq_address_wipe(struct postern__rabbitmq_address *address) {
	explicit_bzero(address, sizeof *address);
}

int postern__rabbitmq_url_check(const char *url, struct postern_error *error) {
	struct postern__rabbitmq_address address;
	int r = postern__rabbitmq_address_parse(url, &address, error);
	postern__rabbitmq_address_wipe(&address);
	return r;
}
