/* SPDX-License-Identifier: MIT */
/*
 * Tokens and hosts. A browser that is misled to this server by a name of its
 * own (DNS rebinding) says that name in Host, and it cannot say an IP address
 * there that it did not connect to.
 */

#include "server/auth.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <postern/error.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "server/api.h"
#include "server/route.h"

#define HOST_LEN_MAX 253

/* Senders without a token, and with one that is not known. */
static const struct postern__grant nobody = { 0 };
static const struct postern__grant stranger = { .unknown = true };

int postern__token_hash(const char *token, uint8_t out[POSTERN__TOKEN_HASH_LEN],
		struct postern_error *error) {
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
								  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
								  "-._~+/=";
	const size_t len = strlen(token);
	unsigned hash_len = 0;
	if (strspn(token, allowed) != len) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a token must have letters, digits and -._~+/= only; make one "
				"with: openssl rand -hex 32");
	}
	if (len < POSTERN__TOKEN_LEN_MIN || len > POSTERN__TOKEN_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a token must have %d to %d characters, not %zu; make one "
				"with: openssl rand -hex 32",
				POSTERN__TOKEN_LEN_MIN, POSTERN__TOKEN_LEN_MAX, len);
	}
	if (EVP_Digest(token, len, out, &hash_len, EVP_sha256(), NULL) != 1 ||
			hash_len != POSTERN__TOKEN_HASH_LEN) {
		return postern__fail(error, POSTERN_E_NOMEM, "cannot hash a token");
	}
	return POSTERN_OK;
}

/* Every token is compared, so that the time says nothing. */
static const struct postern__grant *find_grant(const struct postern__auth *auth,
		const char *token) {
	uint8_t hash[POSTERN__TOKEN_HASH_LEN];
	const struct postern__grant *found = &stranger;
	if (postern__token_hash(token, hash, NULL) != POSTERN_OK) {
		return found;
	}
	for (size_t i = 0; i < auth->token_count; i++) {
		if (CRYPTO_memcmp(hash, auth->tokens[i].hash, sizeof hash) == 0) {
			found = &auth->tokens[i].grant;
		}
	}
	return found;
}

static const struct postern__grant *grant_of(const struct postern__auth *auth,
		const struct postern__request *request) {
	static const char scheme[] = "Bearer ";
	const char *value = postern__request_header(request, "Authorization");
	if (!value) {
		return &nobody;
	}
	if (strncasecmp(value, scheme, sizeof scheme - 1) != 0) {
		return &stranger;
	}
	value += sizeof scheme - 1;
	return find_grant(auth, value + strspn(value, " "));
}

/* Copy the name of "name:80" or "[::1]:80"; "" if it is malformed. */
static void copy_host(const char *text, size_t len,
		char out[HOST_LEN_MAX + 1]) {
	const char *end = memchr(text, *text == '[' ? ']' : ':', len);
	size_t host_len = end ? (size_t)(end - text) + (*text == '[') : len;
	*out = '\0';
	if (host_len <= HOST_LEN_MAX && (*text != '[' || end)) {
		memcpy(out, text, host_len);
		out[host_len] = '\0';
	}
}

static bool is_ip(const char *host) {
	char inner[INET6_ADDRSTRLEN] = "";
	struct in6_addr address;
	size_t len = strlen(host);
	if (host[0] != '[') {
		return inet_pton(AF_INET, host, &address) == 1;
	}
	if (len < 3 || len - 2 >= sizeof inner) {
		return false;
	}
	memcpy(inner, host + 1, len - 2);
	return inet_pton(AF_INET6, inner, &address) == 1;
}

static bool is_listed(const char *hosts, const char *host) {
	const size_t host_len = strlen(host);
	bool is = false;
	while (!is && hosts && *hosts) {
		hosts += strspn(hosts, " ,");
		size_t len = strcspn(hosts, " ,");
		is = len > 0 && len == host_len &&
			 strncasecmp(hosts, host, host_len) == 0;
		hosts += len;
	}
	return is;
}

static bool refuse(struct postern__response *response, int status,
		const char *what, const char *value, const char *why) {
	struct postern_error error;
	(void)postern__fail(&error, POSTERN_E_INVALID, "%s '%.80s' %s", what, value,
			why);
	postern__response_problem(response, status, POSTERN_OK, error.text);
	return false;
}

static bool check_host(const struct postern__auth *auth, const char *value,
		struct postern__response *response) {
	char host[HOST_LEN_MAX + 1];
	copy_host(value, strlen(value), host);
	return is_ip(host) || strcasecmp(host, "localhost") == 0 ||
		   is_listed(auth->hosts, host) ||
		   refuse(response, 421, "the host", value,
				   "is not one of this server's; add it to 'hosts' in the "
				   "configuration");
}

/* A page that this server delivered has its address as the origin. */
static bool check_origin(const char *origin, const char *host,
		struct postern__response *response) {
	const char *start = strstr(origin, "://");
	return (start && host && strcasecmp(start + 3, host) == 0) ||
		   refuse(response, 403, "a web page of", origin,
				   "may not send requests to a server without tokens");
}

/* Without tokens: whether the request cannot come from any web page. */
static bool check_page(const struct postern__auth *auth,
		const struct postern__request *request,
		struct postern__response *response) {
	/* Only a client of HTTP/1.0 has none: no browser. */
	const char *host = postern__request_header(request, "Host");
	const char *origin = postern__request_header(request, "Origin");
	return (!host || check_host(auth, host, response)) &&
		   (!origin || check_origin(origin, host, response));
}

bool postern__auth_admit(const struct postern__auth *auth, bool local, bool web,
		struct postern__request *request, struct postern__response *response) {
	if (!local && auth->token_count > 0) {
		request->grant = grant_of(auth, request);
		return true;
	}
	return !web || check_page(auth, request, response);
}

int postern__auth_hosts_check(const char *text, struct postern_error *error) {
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
								  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
	const char *rest = text;
	while (*rest) {
		rest += strspn(rest, " ");
		size_t len = strcspn(rest, ",");
		if (len == 0 || len > HOST_LEN_MAX || strspn(rest, allowed) < len) {
			return postern__fail(error, POSTERN_E_INVALID,
					"'%.80s' is not the name of a host; write names as in "
					"example.com, without a port",
					text);
		}
		rest += len;
		rest += *rest == ',';
	}
	return POSTERN_OK;
}
